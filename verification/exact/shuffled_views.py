"""The shuffled view at a tiny size: the law of everything that leaves the shuffler, by enumeration.

In one instance the view is how many ones and zeros were sent. Its law is that of the noise, tabulated from its
definition (`verification.twins`), convolved with what each user's input messages add. All terms are positive, so
a mass inside a table is accurate to about 1e-13 relatively; outcomes beyond the tables are left out, which lowers every
hockey stick, and sums over the noise lack less than 1e-16. Laws of different instances are independent given all
records.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from verification.twins.mechanism_twin import MechanismTwin

Array = NDArray[np.float64]

NEGLIGIBLE = 1e-30
ROUNDING = 1e-12
"""Absolute: how far a hockey stick from these tables may be too large, per unit of 1 + e^ε."""
SUMMING = 2.3e-16
"""What adding one more mass may add to that."""


@lru_cache(maxsize=32)
def _noise_table(twin: MechanismTwin) -> Array:
    return twin.noise_table()


@lru_cache(maxsize=4000)
def _instance_law(twin: MechanismTwin, chances: tuple[float, ...]) -> Array:
    noise, inputs = _noise_table(twin), [twin.inputs(chance) for chance in chances]
    reach = [max(outcome[kind] for sent in inputs for outcome in sent) * len(chances) for kind in (0, 1)]
    size = (noise.shape[0] + reach[0], noise.shape[1] + reach[1])
    law = np.zeros(size)
    law[: noise.shape[0], : noise.shape[1]] = noise
    for sent in inputs:
        moved = np.zeros(size)
        for ones, zeros, mass in sent:
            moved[ones:, zeros:] += mass * law[: size[0] - ones, : size[1] - zeros]
        law = moved
    if noise.size > 1:  # beyond the table of the noise masses are incomplete
        law = law[: noise.shape[0], : noise.shape[1]]
    return law.ravel()


def instance_law(twin: MechanismTwin, chances: tuple[float, ...]) -> Array:
    """The table of (ones, zeros) of one instance, flat, for users whose bits are one with these chances."""
    return _instance_law(twin, tuple(sorted(chances)))


@dataclass(frozen=True, slots=True)
class ViewPair:
    """Two laws on the same outcomes (not all of them need be listed)."""

    upper: Array
    lower: Array

    def trimmed(self) -> ViewPair:
        """Without outcomes of mass below 1e-30 in both laws."""
        seen = self.upper + self.lower > NEGLIGIBLE
        return ViewPair(self.upper[seen], self.lower[seen])

    def merged(self, groups: int) -> ViewPair:
        """Outcomes of similar likelihood ratio as one: what an observer does who forgets, so no hockey stick rises."""
        if len(self.upper) <= groups:
            return self
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.log(self.upper) - np.log(self.lower)
        weight = self.upper + self.lower
        common = np.isfinite(losses) & (weight > 1e-12)
        reach = float(np.max(np.abs(losses[common]), initial=1e-9))
        places = np.clip(np.nan_to_num((losses / reach + 1.0) * 0.5 * (groups - 3)), -1.0, groups - 3.0) + 1.0
        bins = np.where(np.isposinf(losses), groups - 1, np.where(np.isneginf(losses), 0, places)).astype(np.int64)
        return ViewPair(
            np.asarray(np.bincount(bins, weights=self.upper, minlength=groups), dtype=np.float64),
            np.asarray(np.bincount(bins, weights=self.lower, minlength=groups), dtype=np.float64),
        )

    def times(self, other: ViewPair) -> ViewPair:
        """Independent views together."""
        return ViewPair(
            np.multiply.outer(self.upper, other.upper).ravel(), np.multiply.outer(self.lower, other.lower).ravel()
        )

    def sticks(self, epsilons: Array) -> Array:
        """H_{e^ε}(upper‖lower) from below at each ε: what rounding may have added is subtracted.

        Outcomes of the largest ratios first, H is a difference of two sums over the first of them.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.log(self.upper) - np.log(self.lower)
        losses = np.where(np.isnan(losses), -np.inf, losses)
        order = np.argsort(-losses, kind="stable")
        above, below = (np.concatenate([[0.0], np.cumsum(law[order])]) for law in (self.upper, self.lower))
        growth = np.exp(np.minimum(epsilons, 500.0))
        first = np.searchsorted(-losses[order], -np.asarray(epsilons))
        rounding = (ROUNDING + SUMMING * len(losses)) * (1.0 + growth)
        return np.asarray(above[first] - growth * below[first] - rounding)

    def stick(self, epsilon: float) -> float:
        """`sticks` at one ε."""
        return float(self.sticks(np.array([epsilon]))[0])

    def infinite(self) -> float:
        """Mass of what is possible in the upper law only: no finite ε has a smaller δ."""
        return float(np.sum(self.upper[self.lower == 0.0]))

    def largest_loss(self) -> float:
        """The largest ln(upper/lower); infinite if something is possible in one law only."""
        seen = self.upper > NEGLIGIBLE
        with np.errstate(divide="ignore"):
            return float(np.max(np.log(self.upper[seen]) - np.log(self.lower[seen]), initial=0.0))


MOST_OUTCOMES = 40_000
FEW, COARSE = 5, 20
"""Up to so many instances their outcomes are multiplied out; with more, each keeps at most `COARSE` of them."""
UNIT_PAIR = ViewPair(np.ones(1), np.ones(1))


def whole_view(twin: MechanismTwin, target: Array, moved: Array, others: Array) -> ViewPair:
    """The view of all instances when the target's chances are `target` or `moved`; rows of `others` are users.

    Instances in which the target's chance does not move are left out: they add the same factor to both laws. With many
    others, outcomes of similar likelihood ratio are merged after each, which lowers hockey sticks a little.
    """
    moving = np.flatnonzero(target != moved)
    pair = UNIT_PAIR
    if not len(moving):
        return pair
    many = len(moving) > FEW
    groups = COARSE if many else int(MOST_OUTCOMES ** (1.0 / len(moving)))
    for j in moving.tolist():
        rest = tuple(others[:, j].tolist())
        upper, lower = (instance_law(twin, (float(chances[j]), *rest)) for chances in (target, moved))
        instance = ViewPair(upper, lower).trimmed()
        pair = pair.times(instance.merged(groups) if len(moving) > 1 else instance)
        pair = pair.merged(MOST_OUTCOMES // groups) if many else pair
    return pair
