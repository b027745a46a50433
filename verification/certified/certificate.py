"""`certify(plan)`: bounds on the ε of a plan of any size, from both sides, by a route of its own.

Only what the plan's document declares is read: no law, no grid, no composition of `accounting` is used, and the number
of instances that one user touches is counted again. What is shared all the same is in docs/proofs/certificate.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from accounting import Plan
from verification.certified import renyi
from verification.certified.ball import Ball
from verification.certified.composed_loss import lower_profile
from verification.certified.neighbors import Moves, Neighbors, neighbors
from verification.certified.noise_laws import Array, TooLargeError, TwoLaws
from verification.twins import mechanism_twin
from verification.twins.mechanism_twin import MechanismTwin

Curve = tuple[tuple[float, float], ...]
DELTAS = (1e2, 1.0, 1e-2)
"""Points of the curves: multiples of the plan's δ."""
CELLS, FINE_CELLS = 256, 4096
"""Into how many cells the others' data is split, at least: for moments, and for hockey sticks, which are cheaper."""
TAIL_SHARE = 1e-5
"""Share of δ that mass outside the windows may cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Bounds on ε at `delta` for the plan's parameters.

    *What the rung covers*: the plan's accountant claims that `neighbors.covered` costs at most the claimed ε; it costs
    at least `covered_epsilon`. If that is more, the contract's claim is false and proves nothing. Whether records do
    this to anybody is another question.

    *The promise to people*: the true ε, a supremum over records, is at least `lower_epsilon`, which two records cost
    (`neighbors.attained`), and at most `upper_epsilon` (None: not certified), which bounds what is covered as well.
    """

    claimed_epsilon: float
    delta: float
    covered_epsilon: float
    lower_epsilon: float
    upper_epsilon: float | None
    lower_curve: Curve
    """Points (ε, δ) that lie below the true profile of the promise: two records."""
    upper_curve: Curve
    """Points (ε, δ) that lie above the true profile of the promise: all records."""
    neighbors: Neighbors
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Instance:
    """One instance of the plan's mechanism, with the mass that its tables may leave out."""

    twin: MechanismTwin
    tail: float

    @property
    def users(self) -> int:
        return self.twin.n_users

    def laws(self, ones: int = 0, dropped: int = 0) -> TwoLaws:
        """The shuffled output for the target's bit 1 and 0; `ones` and `dropped` are about the others."""
        return self.twin.certified_laws(self.tail, ones=ones, dropped=dropped)

    def cells(self, number: int) -> tuple[int, int]:
        """(largest number of ones that need be looked at, width of the finest cells), of about `number` cells.

        By symmetry half of the others' data is enough; and none if they only shift the counts.
        """
        return ((self.users - 1) // 2, self.users // number) if self.twin.depends_on_others else (0, 0)


def certify(plan: Plan) -> Certificate:
    """Bounds on the ε of the plan at its δ. Deterministic; nothing is sampled."""
    promise = plan.request
    claimed = min(promise.kde_epsilon, *(guarantee.epsilon for guarantee in plan.guarantees[:1]))
    reach, twin = neighbors(plan), mechanism_twin(plan)
    if not twin.spends_delta:
        return _without_delta(plan, twin, claimed, reach)
    delta = min(float(promise.delta), plan.guarantees[0].delta)
    tail = TAIL_SHARE * delta * math.exp(-min(claimed, 50.0)) / reach.instances
    instance = _Instance(twin, max(tail, 1e-280))
    covered = _lower(instance, reach.covered, delta)
    attained = covered if reach.attained == reach.covered else _lower(instance, reach.attained, delta)
    notes = (*_reach_notes(plan, reach), *dict.fromkeys(covered.notes + attained.notes))
    upper: Curve | None = None
    try:
        upper = _upper(instance, reach, tuple(delta * x for x in DELTAS)) if twin.certified_whole else None
    except TooLargeError as error:
        notes += (str(error),)
    if upper is not None and not math.isfinite(upper[1][0]):
        upper = None  # too much mass at infinite loss for moments; says nothing against the plan
    if upper is None:
        notes += ("no upper bound is certified for this law",)
    return Certificate(
        claimed_epsilon=claimed,
        delta=delta,
        covered_epsilon=covered.curve[1][0],
        lower_epsilon=attained.curve[1][0],
        upper_epsilon=None if upper is None else upper[1][0],
        lower_curve=attained.curve,
        upper_curve=tuple(point for point in upper or () if math.isfinite(point[0])),
        neighbors=reach,
        notes=notes,
    )


def _reach_notes(plan: Plan, reach: Neighbors) -> tuple[str, ...]:
    shifts = "" if reach.squared_shift is None else f" (squared shifts up to {reach.squared_shift:.4g})"
    return (f"the rung {plan.accountant!r} covers {reach.covered}{shifts}; two records attain {reach.attained}",)


def _without_delta(plan: Plan, twin: MechanismTwin, claimed: float, reach: Neighbors) -> Certificate:
    """Losses add up. The bounds are exact for who knows the others' silences, so nothing follows about people."""
    bounds, k = twin.loss_bounds(), reach.instances
    upper = None if bounds.upper is None else k * bounds.upper
    return Certificate(
        claimed_epsilon=claimed,
        delta=0.0,
        covered_epsilon=k * bounds.lower,
        lower_epsilon=0.0,
        upper_epsilon=upper,
        lower_curve=((0.0, 0.0),),
        upper_curve=() if upper is None else ((upper, 0.0),),
        neighbors=reach,
        notes=(
            *_reach_notes(plan, reach),
            *bounds.notes,
            "covered: for an adversary who knows which of the others were silent, as the proof assumes; no lower bound"
            " on what others learn of people is certified",
        ),
    )


@dataclass(frozen=True, slots=True)
class _Lower:
    """Points (ε, δ) below the profile of some moves of one user's bits."""

    curve: Curve
    notes: tuple[str, ...] = ()


def _lower(instance: _Instance, moves: Moves, delta: float) -> _Lower:
    """One fixed dataset and one pair of laws for every bit that moves, in both directions.

    Complete flips: all others at 0. Half: all others at 1, as if their records were x′, and the bit goes from a fair
    coin to 1, which is what a hashed feature does in the bucket of x′.
    """
    if moves.bits < 1:
        return _Lower(tuple((0.0, delta * x) for x in DELTAS), ("no bit is moved far enough for a lower bound",))
    pair = instance.laws()
    if moves.half:
        certain = instance.laws(ones=instance.users - 1)
        half = 0.5 * certain.one + 0.5 * certain.zero
        pair = TwoLaws(one=half, zero=certain.one, missing=certain.missing, error=certain.error + 1e-15)
    profiles = [lower_profile(way, moves.bits, delta) for way in (pair, pair.reversed())]
    curve = tuple((max(profile.epsilon(delta * x) for profile in profiles), delta * x) for x in DELTAS)
    lost = max(profile.rounded_off for profile in profiles)
    loose = f"rounding the losses of {moves} to a grid takes up to {lost:.3g} from their lower bound: it is "
    loose += "useless" if curve[1][0] == 0.0 else "loose"
    return _Lower(curve, (loose,) if any(profile.loose for profile in profiles) else ())


def _upper(instance: _Instance, reach: Neighbors, deltas: tuple[float, ...]) -> Curve:
    if reach.squared_shift is None and reach.instances == 1:
        return tuple((_single_upper(instance, delta), delta) for delta in deltas)
    if reach.squared_shift is None:
        return _flipped_upper(instance, reach, deltas)
    whatever = _shifted_upper(instance, reach, deltas)
    if not reach.unit_ball:
        return whatever
    ball = Ball.of(instance.users, reach.instances, reach.squared_shift, min(deltas), instance.tail)

    def bounds(epsilon: float, a: int, b: int) -> Array:
        return np.array([ball.delta(instance.laws(ones=a, dropped=b - a), epsilon)])

    cells = instance.cells(FINE_CELLS)
    return tuple((min(_smallest_epsilon(bounds, delta, *cells), epsilon), delta) for epsilon, delta in whatever)


def _single_upper(instance: _Instance, delta: float) -> float:
    """One bit that may flip: hockey sticks themselves, no moments."""

    def sticks(epsilon: float, a: int, b: int) -> Array:
        pair = instance.laws(ones=a, dropped=b - a)
        return np.array([max(renyi.stick_above(way, epsilon) for way in (pair, pair.reversed()))])

    return _smallest_epsilon(sticks, delta, *instance.cells(FINE_CELLS))


def _smallest_epsilon(sticks: Callable[[float, int, int], Array], delta: float, highest: int, finest: int) -> float:
    """An ε at which `sticks` (a bound on δ for a cell of the others' data) is at most δ for all of them."""
    low, high = 0.0, 1.0
    while sticks(high, 0, 0)[0] > delta:
        low, high = high, 2.0 * high
        if high > 1e3:
            return math.inf
    while high - low > 1e-3 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if sticks(middle, 0, 0)[0] > delta else (low, middle)
    for factor in (1.002, 1.01, 1.05, 1.2, 2.0):
        bound = renyi.supremum(partial(sticks, factor * high), highest, deciding=[0], finest=finest)
        if bound[0] <= delta:
            return factor * high
    return math.inf


def _deciding(log_moments: Array, orders: Array, delta: float) -> list[int]:
    """The orders that matter at δ: the best one and its neighbors."""
    with np.errstate(invalid="ignore"):
        values = (log_moments + (orders - 1) * np.log(orders - 1) - orders * np.log(orders) - math.log(delta)) / (
            orders - 1
        )
    best = int(np.nanargmin(values))
    return [i for i in (best - 1, best, best + 1) if 0 <= i < len(orders)]


def _flipped_upper(instance: _Instance, reach: Neighbors, deltas: tuple[float, ...]) -> Curve:
    """Every one of k bits may flip, whatever the others hold in each instance."""
    k = reach.instances
    worst_lost = 0.0

    def moments(a: int, b: int, cut: float) -> Array:
        nonlocal worst_lost
        pair = instance.laws(ones=a, dropped=b - a)
        both = [renyi.flipped_moments(way, cut * deltas[1] / k) for way in (pair, pair.reversed())]
        worst_lost = max(worst_lost, both[0][1], both[1][1])
        return np.maximum(both[0][0], both[1][0])

    def at_zero(cut: float) -> float:
        nonlocal worst_lost
        worst_lost = 0.0
        total = k * moments(0, 0, cut)
        return renyi.converted(total, renyi.ORDERS, deltas[1] - 1.01 * k * worst_lost)

    share = min(renyi.CUT_SHARES, key=at_zero)
    worst_lost = 0.0
    highest, finest = instance.cells(CELLS)
    deciding = _deciding(k * moments(0, 0, share), renyi.ORDERS, deltas[1])
    largest = renyi.supremum(lambda a, b: moments(a, b, share), highest, deciding=deciding, finest=finest)
    total = k * largest * (1.0 + 1e-12)
    return tuple((renyi.converted(total, renyi.ORDERS, d - 1.01 * k * worst_lost), d) for d in deltas)


COARSE_ORDERS: Array = np.array([1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 11.0, 16.0, 23.0, 32.0, 45.0])


@dataclass
class _Shifted:
    """Bounds for Σt² ≤ Δ²; `lost` and `bias` grow with every cell that is looked at."""

    instance: _Instance
    reach: Neighbors
    spare: float
    lost: float = 0.0
    bias: float = 0.0

    def rates(self, a: int, b: int, orders: Array) -> Array:
        """The largest ln M(α; t)/t², the supremum over shifts and corners, for all m in [a, b]."""
        largest = self.reach.largest_shift
        pair = self.instance.laws(ones=a, dropped=b - a)
        corners = renyi.corners(pair, largest=largest, spare=self.spare)
        self.lost = max(self.lost, *(corner.lost for corner in corners))
        self.bias = max(self.bias, pair.missing + 8.0 * pair.error)
        edges = renyi.shift_edges(largest)
        return np.asarray(np.max(np.stack([corner.rates(edges, orders) for corner in corners]), axis=0))

    def epsilon(self, rates: Array, orders: Array, delta: float) -> float:
        """Theorem of section 4."""
        assert self.reach.squared_shift is not None
        k, budget = self.reach.instances, self.reach.squared_shift
        total = (budget * rates + 4.0 * k * orders * self.bias) * (1.0 + 1e-9)
        return renyi.converted(total, orders, delta - 1.01 * (math.sqrt(k * budget) * self.lost + k * self.bias))


def _shifted_upper(instance: _Instance, reach: Neighbors, deltas: tuple[float, ...]) -> Curve:
    """Squared shifts add up to at most Δ², whatever the others hold."""
    assert reach.squared_shift is not None
    linear = math.sqrt(reach.instances * reach.squared_shift)  # Σ t ≤ √k·Δ
    tried = []
    for share in renyi.CUT_SHARES:
        coarse = _Shifted(instance, reach, share * deltas[1] / linear)
        first = coarse.rates(0, 0, COARSE_ORDERS)
        tried.append((coarse.epsilon(first, COARSE_ORDERS, deltas[1]), share, first))
    _, share, first = min(tried, key=lambda entry: entry[0])
    best = COARSE_ORDERS[_deciding(reach.squared_shift * first, COARSE_ORDERS, deltas[1])]
    orders = np.unique(np.geomspace(best[0], best[-1], 5))
    middle = len(orders) // 2
    bounds = _Shifted(instance, reach, share * deltas[1] / linear)
    highest, finest = instance.cells(CELLS)
    largest = renyi.supremum(
        lambda a, b: bounds.rates(a, b, orders), highest, deciding=[max(0, middle - 1), middle], finest=finest
    )
    return tuple((bounds.epsilon(largest, orders, delta), delta) for delta in deltas)
