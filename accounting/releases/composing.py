"""Several releases about the same people, fixed beforehand: what they promise together.

A release is known by upper bounds on its whole profile ε ↦ δ(ε), and perhaps by cut curves, not by one (ε, δ) only. So
releases of different kinds compose far tighter than by adding ε. Source: docs/proofs/releases.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from accounting.composition.advanced import mixed_advanced_epsilon
from accounting.composition.shifted import conversion
from accounting.errors import InvalidInputError
from accounting.numerics.losses import Repeated
from accounting.numerics.pmf import Array
from accounting.numerics.profile import RELATIVE_PAD, smallest_epsilon
from accounting.plan import Plan
from accounting.releases.cut_curve import CutCurve
from accounting.releases.profile_points import Profile
from accounting.releases.release import Part, Release

MOST_RELEASES = 1000
STEPS_PER_DISTANCE = 64
MOST_STEPS = 2**16
JOINT_SHARES = (0.05, 0.15, 0.3, 0.45, 0.6, 0.8)
"""Where, between no loss and the largest, the compositions are most accurate of which the best counts."""
JOINT_POINTS = 240
CUT_SHARES = (1e-4, 1e-2, 0.1, 0.4)
"""Shares of δ that all cuts together may spend; the best is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """ε of releases together at one δ, by each way to compose them; infinite where a way proves nothing.

    `at_budget` is δ at the budget's ε, by the best of these ways: what is spent of δ if all of ε is used; None if
    there is no budget, or it was not recorded.
    """

    delta: float
    basic: float = math.inf
    advanced: float = math.inf
    pld: float = math.inf
    renyi: float = math.inf
    """Cut curves for the parts that have them, privacy losses for the others."""
    adaptive: float = math.inf
    """By the adaptive filter; only for budgets that are composed by it."""
    at_budget: float | None = None

    @property
    def epsilon(self) -> float:
        """The smallest: all of them are proofs."""
        return min(float(getattr(self, way)) for way in WAYS)

    def to_json(self) -> dict[str, float | None]:
        """As plain JSON values, null for infinite."""
        ways = {way: finite(getattr(self, way)) for way in WAYS}
        return ways | {"epsilon": finite(self.epsilon), "delta_at_budget": self.at_budget}


WAYS = tuple(field.name for field in fields(Spent) if field.name not in ("delta", "at_budget"))


def finite(value: float) -> float | None:
    """None for an infinite ε, which JSON cannot hold."""
    return value if math.isfinite(value) else None


def spent(releases: Sequence[Release], delta: float, *, epsilon: float | None = None) -> Spent:
    """ε of all releases together at δ, for the people whom all of them are about; δ also at `epsilon`, if given.

    Valid if what is released, and how often, does not depend on what earlier releases showed, or if every choice
    that could have been made has a profile below the one charged.
    """
    if len(releases) > MOST_RELEASES:
        raise InvalidInputError(f"{len(releases)} releases are more than {MOST_RELEASES}; open a new budget.")
    if not releases:
        return Spent(delta=delta, basic=0.0, advanced=0.0, pld=0.0, renyi=0.0, at_budget=0.0)
    for other in releases:
        releases[0].guarantee.refuse_unlike(other.guarantee)
    parts = Counter[Part]()
    for release in releases:
        for part in release.parts:
            parts[part] += release.times
    losses, curves = _repeated((part.profile, times) for part, times in parts.items()), Mixed.of(parts, delta)
    at_budget = None
    if epsilon is not None:
        summed = basic_delta(releases) if basic_epsilon(releases, 1.0) <= epsilon else 1.0
        at_budget = min(summed, losses.delta(epsilon), curves.delta(epsilon))
    return Spent(
        delta=delta,
        basic=basic_epsilon(releases, delta),
        advanced=_advanced_epsilon(releases, delta),
        pld=losses.epsilon(delta),
        renyi=curves.epsilon(delta),
        at_budget=at_budget,
    )


def basic_epsilon(releases: Sequence[Release], delta: float) -> float:
    """The sum of all ε if all δ together are at most `delta`, else infinite; ten times 0.1 is 1."""
    if _total((release.guarantee.delta, release.times) for release in releases) > _decimal(delta):
        return math.inf
    return exact_sum((release.guarantee.epsilon, release.times) for release in releases)


def basic_delta(releases: Sequence[Release]) -> float:
    """The sum of all δ, at most 1."""
    return min(1.0, exact_sum((release.guarantee.delta, release.times) for release in releases))


def exact_sum(numbers: Iterable[tuple[float, int]]) -> float:
    """The sum of numbers, each so many times, in the decimals that they are printed as; the result is rounded up."""
    known = list(numbers)
    if any(math.isinf(value) for value, _ in known):
        return math.inf
    total = _total(known)
    nearest = float(total)
    return nearest if _decimal(nearest) >= total else math.nextafter(nearest, math.inf)


def _total(numbers: Iterable[tuple[float, int]]) -> Fraction:
    return sum((_decimal(value) * times for value, times in numbers), Fraction())


def _decimal(value: float) -> Fraction:
    return Fraction(repr(float(value)))


def _advanced_epsilon(releases: Sequence[Release], delta: float) -> float:
    left = math.nextafter(delta - basic_delta(releases), -math.inf)
    if left <= 0.0:
        return math.inf
    epsilons = [release.guarantee.epsilon for release in releases for _ in range(release.times)]
    return mixed_advanced_epsilon(epsilons, left) * (1.0 + RELATIVE_PAD)


def joint_profile(profiles: Sequence[Profile]) -> Profile:
    """What mechanisms with independent randomness show together of the same person."""
    if len(profiles) == 1:
        return profiles[0]
    whole, end = _repeated((profile, 1) for profile in profiles), sum(profile.end for profile in profiles)
    composed = [whole.compose(end * share) for share in JOINT_SHARES]
    epsilons = np.linspace(0.0, end, JOINT_POINTS).tolist()
    return Profile.below((epsilon, min(loss.delta(epsilon) for loss in composed)) for epsilon in epsilons)


@lru_cache(maxsize=32)
def profile_of(plan: Plan) -> Profile:
    """What a plan promises for replacing a whole record, features and label; the plan is verified first."""
    release = Release.of_plan("plan", plan)
    joint = joint_profile([part.profile for part in release.parts])
    return Profile.below([*joint.points, (release.guarantee.epsilon, release.guarantee.delta)])


def _repeated(profiles: Iterable[tuple[Profile, int]]) -> Repeated:
    """The dominating losses of all profiles on one grid.

    Fine against the smallest distance between neighbors, but no more than `MOST_STEPS` steps for all together.
    """
    counted = Counter[Profile]()
    for profile, times in profiles:
        counted[profile] += times
    total = sum(profile.end * math.sqrt(times) for profile, times in counted.items())
    finest = min((profile.distance for profile in counted if profile.distance > 0.0), default=1.0)
    step = max(finest / STEPS_PER_DISTANCE, total / MOST_STEPS, 1e-9)
    return Repeated([(profile.loss(step), times) for profile, times in counted.items()])


class Choice(NamedTuple):
    """Which cuts are taken: all that they cut off, orders, and the sum of ρ at each."""

    cut: float
    orders: Array
    rhos: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """δ(ε) of parts with cut curves, whose cuts and ρ add up, and of others by their composed privacy loss.

    Source: docs/proofs/releases.md, Theorem 2 (first with all parts cut, then with others).
    """

    choices: tuple[Choice, ...]
    """One for each share of δ that may be cut."""
    others: Repeated | None

    @staticmethod
    def of(parts: Counter[Part], delta: float) -> Mixed:
        """Curves where there are some; of each part, the one that cuts most within its share."""
        curved = {part: times for part, times in parts.items() if part.curves}
        others = [(part.profile, times) for part, times in parts.items() if not part.curves]
        choices = []
        for share in CUT_SHARES if curved else ():
            each = share * delta / sum(curved.values())
            chosen = [(_within(part.curves, each), times) for part, times in curved.items()]
            orders = np.array(sorted({order for curve, _ in chosen for order, _ in curve.points}))
            total = np.sum([times * curve.at(orders) for curve, times in chosen], axis=0)
            usable = np.isfinite(total)
            cut = math.fsum(times * curve.cut for curve, times in chosen) * (1.0 + RELATIVE_PAD)
            choices.append(Choice(cut, orders[usable], total[usable]))
        return Mixed(choices=tuple(choices), others=_repeated(others) if others else None)

    def delta(self, epsilon: float) -> float:
        """δ at ε, rounded up; 1 if no part has a curve."""
        return min((self._near(choice, epsilon)(epsilon) for choice in self.choices), default=1.0)

    def epsilon(self, delta: float) -> float:
        """The smallest ε whose δ is at most `delta`; infinite if there is none, or no part has a curve."""
        return min((self._smallest(choice, delta) for choice in self.choices), default=math.inf)

    def _smallest(self, choice: Choice, delta: float) -> float:
        if choice.cut >= delta or len(choice.orders) == 0:
            return math.inf
        start = (self._exponents(choice) - math.log(delta - choice.cut)) / (choice.orders - 1.0)
        return smallest_epsilon(self._near(choice, float(np.min(start))), delta)

    def _exponents(self, choice: Choice) -> Array:
        """Logarithm of all moments together at each order, converted: δ ≤ cut + e^{this − (α−1)ε}."""
        others = np.zeros(len(choice.orders))
        if self.others is not None:
            others = np.array([self.others.log_moment(order - 1.0) for order in choice.orders.tolist()])
        return np.asarray(choice.rhos + conversion(choice.orders) + others)

    def _near(self, choice: Choice, near_epsilon: float) -> Callable[[float], float]:
        """δ as a function of ε, most accurate around one: other parts' losses are tilted by the best order there."""
        if len(choice.orders) == 0:
            return lambda _: 1.0
        start, tilts = choice.rhos + conversion(choice.orders), choice.orders - 1.0
        loss = None
        if self.others is not None:
            loss = self.others.tilted(float(tilts[np.argmin(self._exponents(choice) - tilts * near_epsilon)]))

        def converted(left: Array) -> Array:
            return np.asarray(np.exp(np.minimum(0.0, np.min(start - tilts * left[:, None], axis=1))))

        def delta(epsilon: float) -> float:
            if loss is None:
                tail = float(converted(np.array([epsilon]))[0])
            else:
                tail = loss.expectation(lambda losses: converted(epsilon - losses))
            return min(1.0, choice.cut + tail * (1.0 + RELATIVE_PAD))

        return delta


def _within(curves: tuple[CutCurve, ...], most: float) -> CutCurve:
    """The curve that cuts most without cutting more than `most`, else the one that cuts least."""
    allowed = [curve for curve in curves if curve.cut <= most]
    return max(allowed, key=lambda curve: curve.cut) if allowed else min(curves, key=lambda curve: curve.cut)
