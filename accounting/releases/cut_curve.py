"""Truncated Rényi curves: what a release costs at every order after a little of its mass is cut off.

A *cut curve* of a mechanism says: of the output law P of one neighbor a part of mass at most `cut` can be removed so
that what is left, P̂ ≤ P, has ln Σ P̂^α Q^{1−α} ≤ ρ(α) against the other neighbor's law Q, in both directions. Curves
of releases add up, cut and ρ alike, also if later releases are chosen after seeing earlier ones.
Source: docs/proofs/releases.md, sections 7 and 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from accounting.errors import InvalidInputError
from accounting.numerics.pmf import Array
from accounting.numerics.profile import RELATIVE_PAD
from accounting.releases.profile_points import Profile

MOST_ORDERS = 500
SMALLEST_SLOPE = 1e-290
"""A smaller slope could vanish by underflow, and with it mass of P; a larger one only raises moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutCurve:
    """Upper bounds ρ at some orders α > 1, after cutting off at most `cut`. Orders increase.

    ln Σ P̂^α Q^{1−α} is convex in α and at most 0 at α = 1, so between two orders it lies below the chord of bounds.
    """

    cut: float
    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if not 0.0 <= self.cut <= 1.0:
            raise InvalidInputError(f"cut={self.cut!r} of a curve must be a probability; correct it.")
        if not 1 <= len(self.points) <= MOST_ORDERS:
            raise InvalidInputError(f"a curve of {len(self.points)} orders; give 1 to {MOST_ORDERS} of them.")
        orders, rhos = (np.array(column, dtype=np.float64) for column in zip(*self.points, strict=True))
        if not (
            orders[0] > 1.0
            and np.isfinite(orders[-1])
            and np.all(np.diff(orders) > 0.0)
            and np.all(np.isfinite(rhos))
            and np.all(rhos >= 0)
        ):
            raise InvalidInputError("a curve needs increasing orders above 1 and finite ρ ≥ 0; correct its points.")

    def at(self, orders: Array) -> Array:
        """ρ at each order, along the chords; infinite beyond the last."""
        known, rhos = zip((1.0, 0.0), *self.points, strict=True)
        return np.asarray(np.interp(orders, known, rhos, right=math.inf) * (1.0 + RELATIVE_PAD))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"cut": self.cut, "points": [list(point) for point in self.points]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """A profile as Q's masses at likelihood ratios: δ(γ) = Σ lower·(ratio − γ)₊ + what it ends with.

    Below γ = 1 the profile follows from the part above by reversal. Where the points are no profile of a pair, the
    mass at ratio 1 would be negative; it is set to 0, which can only raise every moment.
    """

    log_ratios: Array
    lower: Array
    ends_with: float

    @staticmethod
    def of(profile: Profile) -> Ratios:
        """Read off the slopes' changes. A chord of slope −b for γ > 1 becomes one of slope a − 1 below 1."""
        epsilons, deltas = profile.columns()
        if len(epsilons) == 1:
            return Ratios(log_ratios=np.zeros(1), lower=np.ones(1), ends_with=float(deltas[0]))
        falls = -np.diff(deltas)
        slopes = falls / (np.exp(epsilons[:-1]) * np.expm1(np.diff(epsilons)))
        slopes = np.append(np.maximum(slopes, np.where(falls > 0.0, SMALLEST_SLOPE, 0.0)), 0.0)
        upper = -np.diff(slopes)  # Q's mass at each knot after the first
        rising = epsilons[1:]
        mirrored = upper * np.exp(rising)  # P's mass at e^ε is Q's at e^−ε
        centre = max(0.0, 1.0 - float(deltas[-1]) - float(np.sum(upper)) - float(np.sum(mirrored)))
        return Ratios(
            log_ratios=np.concatenate([-rising[::-1], [0.0], rising]),
            lower=np.maximum(np.concatenate([mirrored[::-1], [centre], upper]), 0.0) * (1.0 + RELATIVE_PAD),
            ends_with=float(deltas[-1]),
        )

    def log_moments(self, orders: Array, cap: float) -> Array:
        """Ln Σ q·min(ratio, e^cap)^α at each order."""
        positive = self.lower > 0.0
        if not np.any(positive):
            return np.full(len(orders), -math.inf)
        exponents = np.log(self.lower[positive]) + orders[:, None] * np.minimum(self.log_ratios[positive], cap)
        peak = np.max(exponents, axis=1)
        return np.asarray(peak + np.log(np.sum(np.exp(exponents - peak[:, None]), axis=1)))
