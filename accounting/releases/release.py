"""Several releases about the same people: what they promise together, and what is left of a budget.

A release is known by upper bounds on its whole profile ε ↦ δ(ε), not by one (ε, δ) only. So releases of different
kinds compose by their privacy losses, which is far tighter than adding ε. Source: docs/proofs/releases.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from accounting.composition.advanced import mixed_advanced_epsilon
from accounting.errors import InvalidInputError, PrivkdeError, UnlikeGuaranteesError, require_real
from accounting.guarantee import Adjacency, Guarantee, View
from accounting.numerics.losses import DominatingLoss, Repeated
from accounting.numerics.pmf import Array
from accounting.numerics.profile import RELATIVE_PAD, LossGrid, ProfileTable
from accounting.plan import Plan
from accounting.releases.plan_curves import implied_curve, label_curve, promised_curve

MOST_RELEASES = 1000
MOST_POINTS = 2000
LARGEST_EPSILON = 200.0
STEPS_PER_DISTANCE = 64
MOST_STEPS = 2**16
JOINT_SHARES = (0.05, 0.15, 0.3, 0.45, 0.6, 0.8)
"""Where, between no loss and the largest, the compositions are most accurate of which the best counts."""
JOINT_POINTS = 240


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
        epsilons, deltas = (np.array(column, dtype=np.float64) for column in zip(*self.points, strict=True))
        if not (np.all(np.isfinite(epsilons)) and np.all((deltas >= 0.0) & (deltas <= 1.0))):
            raise InvalidInputError("a profile needs finite ε and δ in [0, 1]; correct its points.")
        if (
            epsilons[0] != 0.0
            or np.any(np.diff(epsilons) <= 0.0)
            or epsilons[-1] > 200.0
            or np.any(np.diff(deltas) > 0)
        ):
            raise InvalidInputError(
                "a profile starts at ε = 0; ε increases up to 200 at most, δ falls; sort its points."
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
        knots, deltas = (np.array(column) for column in zip(*self.points, strict=True))
        return np.asarray(np.interp(np.expm1(epsilons), np.expm1(knots), deltas) * (1.0 + RELATIVE_PAD))

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """How often, at most, a test with this rate of false accusations finds the guilty.

        min over ε of δ + e^ε·α and 1 − e^{−ε}(1 − δ − α): the trade-off curve of the profile, in both directions.
        """
        alpha = false_positive_rate
        forward = min(delta + math.exp(epsilon) * alpha for epsilon, delta in self.points)
        backward = min(1.0 - math.exp(-epsilon) * (1.0 - delta - alpha) for epsilon, delta in self.points)
        return min(1.0, forward, backward)

    def loss(self, step: float) -> DominatingLoss:
        """The dominating pair on a grid of losses that ends where the profile does."""
        grid = LossGrid(step=step, n_steps=max(1, math.ceil(self.end / step)))
        table = self.at(np.arange(grid.n_steps + 1, dtype=np.float64) * step)
        return DominatingLoss.from_table(ProfileTable(grid=grid, forward=table, backward=table))


def _above_chord(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    """Whether the middle point lies on or above the line from left to right, in e^ε."""
    whole = math.expm1(right[0] - left[0])
    share = math.expm1(middle[0] - left[0]) / whole
    return middle[1] >= left[1] + share * (right[1] - left[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One thing that was or will be published about the same people: its promise, and profiles that say more.

    `profiles` belong to parts with independent randomness (features and label); they compose.
    """

    name: str
    guarantee: Guarantee
    profiles: tuple[Profile, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= 200 or not self.name.isprintable():
            raise InvalidInputError(f"name={self.name!r} of a release must be 1 to 200 printable characters.")
        if not self.profiles:
            raise InvalidInputError(f"release {self.name!r} has no profile; give at least one.")

    @staticmethod
    def of_guarantee(name: str, guarantee: Guarantee) -> Release:
        """A release of which only (ε, δ) is known."""
        require_real("epsilon", guarantee.epsilon, low=0.0, high=LARGEST_EPSILON, low_open=False)
        return Release(
            name=name,
            guarantee=guarantee,
            profiles=(Profile.below(implied_curve(guarantee.epsilon, guarantee.delta)),),
        )

    @staticmethod
    def of_plan(name: str, plan: Plan, *, view: View = View.COMMUNICATION) -> Release:
        """One collection by this plan, for replacing a user's whole record; the plan is verified first.

        Without classes the record is x itself. With separate labels the label's response is a second part.
        """
        plan.verify()
        if view is View.LOCAL:
            raise UnlikeGuaranteesError("a plan's profile is that of all shuffled messages; charge another view.")
        (whole,) = [g for g in plan.guarantees if g.view is view and g.adjacency is _whole_record(plan)]
        label = plan.request.label_response()
        curves = [promised_curve(plan), *([] if label is None else [label_curve(label)])]
        return Release(
            name=name,
            guarantee=whole.restated(adjacency=Adjacency.RECORD),
            profiles=tuple(Profile.below(curve) for curve in curves),
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "name": self.name,
            "guarantee": self.guarantee.to_json(),
            "profiles": [[list(point) for point in profile.points] for profile in self.profiles],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Release:
        """Inverse of `to_json`; raises `InvalidInputError` on anything else."""
        try:
            return Release(
                name=data["name"],
                guarantee=Guarantee.from_json(data["guarantee"]),
                profiles=tuple(Profile(points=tuple((e, d) for e, d in points)) for points in data["profiles"]),
            )
        except PrivkdeError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"release document is malformed near {error}; write it again.") from error


def _whole_record(plan: Plan) -> Adjacency:
    return Adjacency.FEATURES if plan.request.classes is None else Adjacency.RECORD


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What releases promise together at one δ, by each way to compose them; infinite where a way proves nothing."""

    delta: float
    basic: float
    advanced: float
    pld: float

    @property
    def epsilon(self) -> float:
        """The smallest: all of them are proofs."""
        return min(self.basic, self.advanced, self.pld)

    def to_json(self) -> dict[str, float | None]:
        """As plain JSON values, null for infinite."""
        values = {"basic": self.basic, "advanced": self.advanced, "pld": self.pld, "epsilon": self.epsilon}
        return {name: finite(value) for name, value in values.items()}


def finite(value: float) -> float | None:
    """None for an infinite ε, which JSON cannot hold."""
    return value if math.isfinite(value) else None


def spent(releases: Sequence[Release], delta: float) -> Spent:
    """ε of all releases together at δ, for the people whom all of them are about.

    Valid if what is released, and how often, does not depend on what earlier releases showed, or if every choice
    that could have been made has a profile below the one charged.
    """
    if len(releases) > MOST_RELEASES:
        raise InvalidInputError(f"{len(releases)} releases are more than {MOST_RELEASES}; open a new budget.")
    if not releases:
        return Spent(delta=delta, basic=0.0, advanced=0.0, pld=0.0)
    for other in releases:
        releases[0].guarantee.refuse_unlike(other.guarantee)
    guarantees = [release.guarantee for release in releases]
    left = math.nextafter(delta - math.fsum(guarantee.delta for guarantee in guarantees), -math.inf)
    advanced = math.inf
    if left > 0.0:
        advanced = mixed_advanced_epsilon([guarantee.epsilon for guarantee in guarantees], left)
    return Spent(
        delta=delta,
        basic=basic_epsilon(releases, delta),
        advanced=advanced * (1.0 + RELATIVE_PAD),
        pld=_repeated(profile for release in releases for profile in release.profiles).epsilon(delta),
    )


def basic_epsilon(releases: Sequence[Release], delta: float) -> float:
    """The sum of all ε if all δ together are at most `delta`, else infinite.

    Exact in the decimals that the numbers are printed as, so that ten times 0.1 is 1; only the result is rounded, up.
    """
    if sum((_decimal(release.guarantee.delta) for release in releases), Fraction()) > _decimal(delta):
        return math.inf
    total = sum((_decimal(release.guarantee.epsilon) for release in releases), Fraction())
    nearest = float(total)
    return nearest if _decimal(nearest) >= total else math.nextafter(nearest, math.inf)


def _decimal(value: float) -> Fraction:
    return Fraction(repr(float(value)))


def joint_profile(profiles: Sequence[Profile]) -> Profile:
    """What mechanisms with independent randomness show together of the same person."""
    if len(profiles) == 1:
        return profiles[0]
    whole, end = _repeated(profiles), sum(profile.end for profile in profiles)
    composed = [whole.compose(end * share) for share in JOINT_SHARES]
    epsilons = np.linspace(0.0, end, JOINT_POINTS).tolist()
    return Profile.below((epsilon, min(loss.delta(epsilon) for loss in composed)) for epsilon in epsilons)


def _repeated(profiles: Iterable[Profile]) -> Repeated:
    """The dominating losses of all profiles on one grid.

    Fine against the smallest distance between neighbors, but no more than `MOST_STEPS` steps for all together.
    """
    counted = Counter(profiles)
    total = sum(profile.end * math.sqrt(times) for profile, times in counted.items())
    finest = min((profile.distance for profile in counted if profile.distance > 0.0), default=1.0)
    step = max(finest / STEPS_PER_DISTANCE, total / MOST_STEPS, 1e-9)
    return Repeated([(profile.loss(step), times) for profile, times in counted.items()])
