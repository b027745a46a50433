"""Releases and exact pairs that tests of releases share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accounting import Adjacency, Guarantee, View
from accounting.numerics.profile import Pair
from accounting.releases.release import Release

SMALL: dict[str, Any] = {"users": 2000, "dim": 4, "repetitions": 8, "epsilon": 1.0, "delta": 1e-6, "accountant": "pld"}


def promise(epsilon: float, delta: float = 0.0) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=delta, adjacency=Adjacency.RECORD, view=View.COMMUNICATION)


def plain(epsilon: float, delta: float = 0.0) -> Release:
    return Release.of_guarantee("plain", promise(epsilon, delta))


def worst_pair(epsilon: float, delta: float) -> Pair:
    """The pair that has exactly the profile which (ε, δ) implies."""
    high, low = (1.0 - delta) / (1.0 + math.exp(-epsilon)), (1.0 - delta) / (1.0 + math.exp(epsilon))
    return Pair(upper=np.array([delta, high, low, 0.0]), lower=np.array([0.0, low, high, delta]))


def product(pairs: list[Pair]) -> Pair:
    upper, lower = np.ones(1), np.ones(1)
    for pair in pairs:
        upper, lower = np.outer(upper, pair.upper).ravel(), np.outer(lower, pair.lower).ravel()
    return Pair(upper=upper, lower=lower)
