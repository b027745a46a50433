"""What is composed, what an accountant answers, and moments of the laws that peers ask for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from accounting.mechanisms import GaussianMechanism, RandomizedResponse
from accounting.numerics.profile import Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an accountant says of ε: at most `high`; at least `low()` where it tells, which is not timed."""

    high: float
    low: Callable[[], float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One mechanism, k times, and δ."""

    times: int
    delta: float
    protocol: RandomizedResponse | None = None
    gaussian: GaussianMechanism | None = None

    @staticmethod
    def read(told: dict[str, Any]) -> Case:
        """From a row of the results."""
        times, delta = int(told["times"]), float(told["delta"])
        if "sigma" in told:
            noise = GaussianMechanism(sensitivity=1.0, standard_deviation=told["sigma"])
            return Case(times=times, delta=delta, gaussian=noise)
        protocol = RandomizedResponse(n_users=told["users"], flip_probability=told["flip_probability"])
        return Case(times=times, delta=delta, protocol=protocol)

    @property
    def sums(self) -> RandomizedResponse:
        """The shuffled sum."""
        assert self.protocol is not None
        return self.protocol

    @property
    def sigma(self) -> float:
        """Deviation of the Gaussian noise; the sensitivity is 1."""
        assert self.gaussian is not None
        return self.gaussian.standard_deviation

    def directions(self) -> tuple[Pair, Pair]:
        """Laws of the count, all others at 0, restricted to counts that both can produce."""
        pair = self.sums.pair(0)
        both = (pair.upper > 0.0) & (pair.lower > 0.0)
        lost = 1.0 - float(min(np.sum(pair.upper[both]), np.sum(pair.lower[both])))
        kept = Pair(upper=pair.upper[both], lower=pair.lower[both], missing=max(lost, 0.0) + pair.missing)
        return kept, kept.reversed()


def renyi(pair: Pair, order: float) -> float:
    """Rényi divergence of the pair at one order."""
    exponents = np.log(pair.lower) + order * pair.losses()
    return float(np.logaddexp.reduce(exponents)) / (order - 1.0)


def worse_renyi(pairs: tuple[Pair, Pair], order: float) -> float:
    """The larger of both directions."""
    if not math.isfinite(order):
        return max(float(np.max(pair.losses())) for pair in pairs)
    return max(renyi(pair, order) for pair in pairs)


def concentrated(pairs: tuple[Pair, Pair]) -> float:
    """ρ with D_α ≤ ρα for every α > 1: between grid points D_α grows, so D at the upper end over α at the lower end."""
    ends = np.concatenate([[1.0], 1.0 + np.geomspace(1e-4, 1e4, 4000)])
    values = np.array([worse_renyi(pairs, order) for order in ends[1:]])
    return max(float(np.max(values / ends[:-1])), worse_renyi(pairs, math.inf) / float(ends[-1]))
