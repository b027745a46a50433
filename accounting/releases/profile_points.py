"""Upper bounds on a whole privacy profile ε ↦ δ(ε), and what follows from them alone.

Source: docs/proofs/releases.md, sections 1, 2, 5 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from accounting.errors import InvalidInputError, require_integer, require_real
from accounting.guarantee import LARGEST_GROUP
from accounting.numerics.losses import DominatingLoss
from accounting.numerics.pmf import Array
from accounting.numerics.profile import RELATIVE_PAD, LossGrid, ProfileTable

if TYPE_CHECKING:
    from accounting.numerics.losses import PrivacyLossDistribution

MOST_POINTS = 2000
LARGEST_EPSILON = 200.0
GROUP_RATES = 2000
"""Rates of false positives at which the bound for a group is exact."""
GROUP_TAIL = 40.0
"""The smallest of these rates is smaller than any that matters, by this exponent."""
SLOPE_PAD = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Points with δ(ε) ≤ δ of one mechanism, from ε = 0 on; ε increases, δ falls, convex in e^ε.

    A true profile is convex in e^ε, so it lies below every chord between its upper bounds: joined by straight lines
    in e^ε, the points are the profile of a pair that dominates the mechanism. After the last point δ stays.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.points) <= MOST_POINTS:
            raise InvalidInputError(f"a profile of {len(self.points)} points; give 1 to {MOST_POINTS} of them.")
        epsilons, deltas = self.columns()
        if not (np.all(np.isfinite(epsilons)) and np.all((deltas >= 0.0) & (deltas <= 1.0))):
            raise InvalidInputError("a profile needs finite ε and δ in [0, 1]; correct its points.")
        rising, falling = np.all(np.diff(epsilons) > 0.0), np.all(np.diff(deltas) <= 0.0)
        if epsilons[0] != 0.0 or epsilons[-1] > LARGEST_EPSILON or not (rising and falling):
            raise InvalidInputError(
                f"a profile starts at ε = 0; ε increases up to {LARGEST_EPSILON:g} at most, δ falls; sort its points."
            )

    @staticmethod
    def below(bounds: Iterable[tuple[float, float]]) -> Profile:
        """The largest profile below any upper bounds δ(ε) ≤ δ, one of which must be at ε = 0."""
        hull: list[tuple[float, float]] = []
        for epsilon, delta in sorted(bounds):
            if hull and (hull[-1][0] == epsilon or delta >= hull[-1][1]):
                continue
            while len(hull) >= 2 and _above_chord(hull[-2], hull[-1], (epsilon, delta)):
                hull.pop()
            hull.append((epsilon, delta))
        return Profile(points=tuple(hull))

    def columns(self) -> tuple[Array, Array]:
        """All ε, and all δ."""
        epsilons, deltas = (np.array(column, dtype=np.float64) for column in zip(*self.points, strict=True))
        return epsilons, deltas

    @property
    def end(self) -> float:
        """The last ε."""
        return self.points[-1][0]

    @property
    def distance(self) -> float:
        """δ(0): the total variation distance between what neighbors show."""
        return self.points[0][1]

    def at(self, epsilons: Array) -> Array:
        """δ at each ε, along the chords, rounded up."""
        knots, deltas = self.columns()
        return np.asarray(np.interp(np.expm1(epsilons), np.expm1(knots), deltas) * (1.0 + RELATIVE_PAD))

    def delta(self, epsilon: float) -> float:
        """δ at one ε ≥ 0, rounded up."""
        require_real("epsilon", epsilon, low=0.0, high=LARGEST_EPSILON, low_open=False)
        return min(1.0, float(self.at(np.array([epsilon]))[0]))

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 whose δ is at most `delta`, rounded up; infinite if there is none."""
        require_real("delta", delta, low=0.0, high=1.0, low_open=False)
        epsilons, deltas = self.columns()
        after = int(np.argmax(np.append(deltas, 0.0) <= delta))
        if after == 0:
            return 0.0
        if after == len(deltas):
            return math.inf
        share = (deltas[after - 1] - delta) / (deltas[after - 1] - deltas[after])
        below, above = np.expm1(epsilons[after - 1]), np.expm1(epsilons[after])
        return float(min(epsilons[after], np.log1p(below + share * (above - below)) * (1.0 + RELATIVE_PAD)))

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """How often, at most, a test with this rate of false accusations finds the guilty.

        min over ε of δ + e^ε·α and 1 − e^{−ε}(1 − δ − α): the trade-off curve of the profile, in both directions.
        """
        alpha = require_real("false_positive_rate", false_positive_rate, low=0.0, high=1.0, low_open=False)
        return float(self._true_positive_rates(np.array([alpha]))[0])

    def _true_positive_rates(self, alphas: Array) -> Array:
        epsilons, deltas = self.columns()
        ratios = np.exp(epsilons)[:, None]
        forward = np.min(deltas[:, None] + ratios * alphas, axis=0)
        backward = np.min(1.0 - (1.0 - deltas[:, None] - alphas) / ratios, axis=0)
        return np.asarray(np.minimum(1.0, np.minimum(forward, backward)))

    def tradeoff(self, n_points: int = 101) -> list[tuple[float, float]]:
        """The f-DP curve: for false-positive rates α from 0 to 1, the least false-negative rate of any test."""
        alphas = np.linspace(0.0, 1.0, require_integer("n_points", n_points, low=2, high=10_001))
        return list(zip(alphas.tolist(), (1.0 - self._true_positive_rates(alphas)).tolist(), strict=True))

    def for_group(self, size: int) -> Profile:
        """What the mechanism promises a group of people who change their records together.

        A group changes one record after the other, and each step raises a test's rate of true positives to at most
        `true_positive_rate` of the one before: k steps iterate it. The iterated bound is taken by its tangents at some
        rates, each of which holds for every test. Source: docs/proofs/releases.md, section 6.
        """
        require_integer("size", size, low=1, high=LARGEST_GROUP)
        if size == 1:
            return self
        furthest = min(self.end * size, LARGEST_EPSILON) + GROUP_TAIL
        rates = np.exp(-np.linspace(0.0, furthest, GROUP_RATES))
        starts, log_slopes = self._lines()
        slopes = np.exp(log_slopes)
        start, log_slope, reached = np.zeros(GROUP_RATES), np.zeros(GROUP_RATES), rates
        for _ in range(size):
            best = np.argmin(starts[:, None] + slopes[:, None] * reached, axis=0)
            start = starts[best] + slopes[best] * start
            log_slope = log_slopes[best] + log_slope
            reached = start + np.exp(log_slope) * rates
        return Profile.below(_as_bounds(start * (1.0 + RELATIVE_PAD), log_slope))

    def _lines(self) -> tuple[Array, Array]:
        """Lines a + s·α, as a and ln s, above the rate of true positives of every test with α false ones."""
        epsilons, deltas = self.columns()
        backward = deltas * np.exp(-epsilons) - np.expm1(-epsilons)
        return np.concatenate([deltas, backward, [1.0]]), np.concatenate([epsilons, -epsilons, [-math.inf]])

    def loss(self, step: float) -> DominatingLoss:
        """The dominating pair on a grid of losses that ends where the profile does."""
        grid = LossGrid(step=step, n_steps=max(1, math.ceil(self.end / step)))
        table = self.at(np.arange(grid.n_steps + 1, dtype=np.float64) * step)
        return DominatingLoss.from_table(ProfileTable(grid=grid, forward=table, backward=table))

    def to_pld(self, step: float = 1e-4) -> PrivacyLossDistribution:
        """As a `PrivacyLossDistribution` of dp-accounting, both directions alike, never below this profile.

        PLDs compose only if their steps are equal; the default is that of dp-accounting. Its own compositions are
        accurate up to about 1e-14 in δ. At exactly the δ that a profile ends with, rounding up leaves no finite ε: ask
        at a slightly larger one.
        """
        return self.loss(require_real("step", step, low=1e-7, high=1.0)).to_pld()

    def to_json(self) -> list[list[float]]:
        """The points."""
        return [list(point) for point in self.points]

    @staticmethod
    def from_json(points: Sequence[Sequence[float]]) -> Profile:
        """Inverse of `to_json`. Refuses what is not a profile."""
        try:
            pairs = tuple((float(epsilon), float(delta)) for epsilon, delta in points)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"a profile is a list of pairs (ε, δ): {error}; write it again.") from error
        return Profile(points=pairs)


def _above_chord(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    """Whether the middle point lies on or above the line from left to right, in e^ε."""
    whole = math.expm1(right[0] - left[0])
    share = math.expm1(middle[0] - left[0]) / whole
    return middle[1] >= left[1] + share * (right[1] - left[1])


def _as_bounds(starts: Array, log_slopes: Array) -> list[tuple[float, float]]:
    """Points (ε, δ) that follow from lines a + s·α above the true positives: δ(ln s) ≤ a. Some s ≥ 1 and some s < 1.

    Between two lines lies each of their averages, so at ε = 0 the two lines next to s = 1 are averaged. Slopes are
    rounded up; the absolute pad covers what the sum of up to `LARGEST_GROUP` logarithms loses.
    """
    order = np.argsort(log_slopes)
    distance = float(np.interp(1.0, np.exp(log_slopes[order]), starts[order])) + SLOPE_PAD
    rising = (log_slopes >= 0.0) & (log_slopes <= LARGEST_EPSILON / (1.0 + RELATIVE_PAD) - SLOPE_PAD)
    epsilons = log_slopes[rising] * (1.0 + RELATIVE_PAD) + SLOPE_PAD
    deltas = np.minimum(1.0, starts[rising])
    return [(0.0, min(1.0, distance)), *zip(epsilons.tolist(), deltas.tolist(), strict=True)]
