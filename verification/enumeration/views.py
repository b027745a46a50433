"""The shuffled view at a tiny size: the law of everything that leaves the shuffler, by enumeration.

In one instance the view is how many ones and zeros were sent. Its law is that of the noise, tabulated from its
definition (`verification.brute_force`), convolved with what each user's input messages add. All terms are positive, so
a mass inside a table is accurate to about 1e-13 relatively; outcomes beyond the tables are left out, which lowers every
hockey stick, and sums over the noise lack less than 1e-16. Laws of different instances are independent given all
records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import mpmath
import numpy as np
from numpy.typing import NDArray

from verification.brute_force import DIGITS, Mass, PlaneLaw, precise_negative_binomial, precise_poisson, table

Array = NDArray[np.float64]
Inputs = tuple[tuple[int, int, float], ...]
"""What one user's input adds: (ones, zeros, probability)."""

LEFT_OUT = 1e-17
"""Mass that a table of one noise may lack."""
NEGLIGIBLE = 1e-30
ROUNDING = 1e-12
"""Absolute: how far a hockey stick from these tables may be too large, per unit of 1 + e^ε."""
SUMMING = 2.3e-16
"""What adding one more mass may add to that."""


def _enough(mass: Mass) -> int:
    """Length of a table that lacks at most `LEFT_OUT`."""
    with mpmath.workdps(DIGITS):
        length, total = 0, mpmath.mpf(0)
        while 1 - total > LEFT_OUT:
            total += mass(length)
            length += 1
    return length + 1


@lru_cache(maxsize=32)
def _noise(bitsum: str, items: tuple[tuple[str, float]]) -> Array:
    """The law of (ones, zeros) of the noise of all users together."""
    given = dict(items)
    if bitsum == "rr":
        return np.ones((1, 1))
    if bitsum in ("poisson", "negative-binomial"):
        mass = (
            precise_poisson(given["total_mean"])
            if bitsum == "poisson"
            else precise_negative_binomial(given["shape"], given["continue_probability"])
        )
        return table(mass, _enough(mass))[:, None]
    if bitsum == "pure":
        with mpmath.workdps(DIGITS):
            x = mpmath.exp(-mpmath.mpf(given["noise_epsilon"]))
        single: Mass = lambda j: (1 - x) * x**j  # noqa: E731
    else:
        single = precise_negative_binomial(given["noise_shape"], given["continue_probability"])
    flood = precise_negative_binomial(given["flood_shape"], given["flood_continue_probability"])
    lengths = _enough(single), _enough(flood)
    if bitsum == "pure":  # ratios of masses matter everywhere, so no term of any sum may be left out
        lengths = (sum(lengths), sum(lengths))
        return PlaneLaw.of(table(single, lengths[0]), table(flood, lengths[1]), lengths[0]).zero
    return PlaneLaw.of(table(single, lengths[0]), table(flood, lengths[1]), sum(lengths)).zero


@dataclass(frozen=True, slots=True)
class InstanceView:
    """Law of one instance's view for n users, from the parameters of a plan."""

    bitsum: str
    parameters: Mapping[str, float | int]
    n_users: int

    def inputs(self, chance: float) -> Inputs:
        """What a user sends whose bit is one with probability `chance`, the flip of randomized response included."""
        if self.bitsum == "rr":
            p = float(self.parameters["flip_probability"])
            one = p + (1.0 - 2.0 * p) * chance
            return ((1, 0, one), (0, 0, 1.0 - one))
        if self.bitsum == "pure":
            q, s = float(self.parameters["silence_probability"]), int(self.parameters["base_messages"])
            return ((0, 0, q), (s + 1, s, (1.0 - q) * chance), (s, s, (1.0 - q) * (1.0 - chance)))
        return ((1, 0, chance), (0, 0, 1.0 - chance))

    def law(self, chances: Sequence[float]) -> Array:
        """The table of (ones, zeros) for users with these chances, flat; the number of zeros of `rr` is redundant."""
        noise = _noise(self.bitsum, tuple(sorted((k, float(v)) for k, v in self.parameters.items())))
        most = self.inputs(0.5)
        reach = max(one for one, _, _ in most) * self.n_users, max(zero for _, zero, _ in most) * self.n_users
        size = (noise.shape[0] + reach[0], noise.shape[1] + reach[1])
        law = np.zeros(size)
        law[: noise.shape[0], : noise.shape[1]] = noise
        for chance in chances:
            moved = np.zeros(size)
            for ones, zeros, mass in self.inputs(chance):
                moved[ones:, zeros:] += mass * law[: size[0] - ones, : size[1] - zeros]
            law = moved
        if self.bitsum != "rr":  # beyond the table of the noise masses are incomplete
            law = law[: noise.shape[0], : noise.shape[1]]
        return law.ravel()


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
UNIT_PAIR = ViewPair(np.ones(1), np.ones(1))


def whole_view(view: InstanceView, target: Array, moved: Array, others: Array) -> ViewPair:
    """The view of all instances when the target's chances are `target` or `moved`; rows of `others` are users.

    Instances in which the target's chance does not move are left out: they add the same factor to both laws.
    """
    moving = np.flatnonzero(target != moved)
    pair = UNIT_PAIR
    if not len(moving):
        return pair
    groups = max(6, int(MOST_OUTCOMES ** (1.0 / len(moving))))
    for j in moving.tolist():
        rest = tuple(others[:, j].tolist())
        one = ViewPair(
            cached_law(view, (float(target[j]), *rest)), cached_law(view, (float(moved[j]), *rest))
        ).trimmed()
        pair = pair.times(one.merged(groups) if len(moving) > 1 else one)
    return pair


_KEPT: dict[tuple[object, ...], Array] = {}


def cached_law(view: InstanceView, chances: tuple[float, ...]) -> Array:
    """`view.law`, kept while one check runs; only the first user (the target) is not exchangeable."""
    key = (view.bitsum, tuple(sorted(view.parameters.items())), view.n_users, tuple(sorted(chances)))
    if key not in _KEPT:
        if len(_KEPT) > 4000:
            _KEPT.clear()
        _KEPT[key] = view.law(sorted(chances))
    return _KEPT[key]
