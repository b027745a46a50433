"""Theorems 1 and 2 at a witness: never below enumeration of small systems, and what they are made of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import pytest
from flint import arb

from tests.plans import plan_for
from tests.slow_twins import compose
from tests.verification.certified.enclosures import laws_of, planted, surely_at_least
from verification.certified import squared_shifts
from verification.certified.balls import ONE, ZERO, exact, total
from verification.certified.certificate import certify
from verification.certified.noise_laws import binomial, shifted
from verification.certified.profiles import Loss, LossGrid, Table, symmetric
from verification.certified.squared_shifts import (
    AnyData,
    Budget,
    Coins,
    Corners,
    Cut,
    Line,
    Moments,
    UnitBall,
    any_data_cutting,
)
from verification.certified.witness import Cutting, Grid
from verification.exact.rational_twins import ExactPair, response_pairs, sum_of_bits

EPSILONS = (0.0, 0.3, 0.7, 1.2, 2.0)


@cache
def corners_of(n_users: int, flip: Fraction, points: int = 40) -> Corners:
    grid = LossGrid.of(Grid(step=1.01 * math.log(1 / flip - 1) / points, points=points))
    both = symmetric([Table.of(laws_of(pair), grid) for pair in response_pairs(n_users, flip)])
    return Corners.of(Loss.of(both, grid.step, grid.growth))


def moved(pair: ExactPair, before: Fraction, after: Fraction) -> ExactPair:
    """The output for a bit that is 1 with probability `before` or with probability `after`."""
    upper, lower = (
        tuple(q * a + (1 - q) * b for a, b in zip(pair.upper, pair.lower, strict=True)) for q in (before, after)
    )
    return ExactPair(upper=upper, lower=lower)


def systems(n_users: int, flip: Fraction, instances: int, square: Fraction, steps: int) -> Iterator[ExactPair]:
    """All data of the others in all instances, all bit probabilities of a lattice with squared shifts up to this."""
    lattice = [Fraction(i, steps) for i in range(steps + 1)]
    kinds = response_pairs(n_users, flip)[: (n_users + 1) // 2]  # the rest are their mirror images
    ways = [(pair, q, r) for pair in kinds for q in lattice for r in lattice if q != r]
    for chosen in itertools.combinations_with_replacement(ways, instances):
        spent = sum(((q - r) ** 2 for _, q, r in chosen), Fraction(0))
        if square * Fraction(3, 4) <= spent <= square:
            yield compose([moved(pair, q, r) for pair, q, r in chosen])


def bounded(bound: Any, found: list[ExactPair]) -> bool:
    """Whether a bound holds for all of them, at every ε."""
    return all(
        surely_at_least(bound.delta(e), lambda gamma: max(pair.hockey_stick(gamma) for pair in found), e)
        for e in EPSILONS
    )


def budget_of(square: Fraction, instances: int, largest: float = 1.0) -> Budget:
    return Budget(exact(square.numerator) / square.denominator, instances, largest)


SYSTEMS = [
    (2, Fraction(1, 8), 2, Fraction(1, 2), 2, 1.0),
    (3, Fraction(1, 4), 2, Fraction(1, 2), 2, 0.5),
    (3, Fraction(1, 4), 1, Fraction(1), 4, 1.0),
    pytest.param((3, Fraction(1, 8), 3, Fraction(3, 4), 2, 1.0), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("delta", [0.2, 1e-3])
@pytest.mark.parametrize("system", SYSTEMS, ids=str)
def test_theorem_1_is_never_below_enumeration(system: Any, delta: float) -> None:
    n_users, flip, instances, square, steps, largest = system
    corners, budget = corners_of(n_users, flip), budget_of(square, instances, largest)
    bound = AnyData.of(corners, budget, any_data_cutting(corners, budget, delta)[1])
    exact_ones = [pair for pair in systems(n_users, flip, instances, square, steps)]
    assert len(exact_ones) > 3
    assert bounded(bound, exact_ones)
    assert any(float(bound.delta(e)) < 1.0 for e in (*EPSILONS, 4.0, 8.0)), "vacuous"


@pytest.mark.parametrize(
    "cutting",
    [
        Cutting(orders=(1.5,), square=0.0, linear=0.0),
        Cutting(orders=(2.5,), square=0.05, linear=0.0),
        Cutting(orders=(4.0, 2.0), square=0.02, linear=0.05),
        Cutting(orders=(40.0,), square=0.3, linear=0.2),
        Cutting(orders=(3.0,), square=1.0, linear=1.0),
    ],
    ids=str,
)
def test_any_cutting_is_valid(cutting: Cutting) -> None:
    """A witness may be bad, and then proves less."""
    corners, budget = corners_of(2, Fraction(1, 8)), budget_of(Fraction(1, 2), 2)
    assert bounded(AnyData.of(corners, budget, cutting), list(systems(2, Fraction(1, 8), 2, Fraction(1, 2), 2)))


@pytest.mark.parametrize("order", [1.3, 2.0, 2.5, 3.0, 7.0])
def test_the_rate_bounds_the_moments_of_both_corners(order: float) -> None:
    """ln M(α) ≤ K(α)t² + (α−1)tι, by M from its definition; and it is attained up to a few percent."""
    corners, budget = corners_of(3, Fraction(1, 4)), budget_of(Fraction(1), 2)
    rate = corners.rate(order, budget, Cut(0.0, 0.0))
    a, largest = exact(order), 0.0
    for shift in (0.005, 0.1, 0.33, 0.75, 0.999):
        t = exact(shift)
        mixed = [q * (ONE + t * g) for g, q in zip(corners.gains, corners.lower, strict=True)]
        toward = total([p**a * q ** (ONE - a) for p, q in zip(mixed, corners.lower, strict=True) if float(q) > 1e-30])
        away = total([q**a * p ** (ONE - a) for p, q in zip(mixed, corners.lower, strict=True) if float(q) > 1e-30])
        for moment in (toward, away):
            assert moment.log() / t**2 <= rate + (a - 1) * corners.infinite / t + exact(1e-20)
            largest = max(largest, float(moment.log() / t**2))
    assert float(rate) <= 1.05 * largest


def test_moments_are_convex_or_below_their_lines() -> None:
    corners = corners_of(3, Fraction(1, 4))
    for power in (-3.0, -0.5, 1.5, 2.5, 4.0):
        moments = Moments(corners.gains, corners.lower, power)
        for below, above in ((0.0, 0.02), (0.3, 0.4), (0.8, 0.99)):
            largest = moments.largest(below, above)
            for part in (0.01, 0.3, 0.77, 1.0):
                t = exact(below + part * (above - below))
                assert (ONE + t * t * moments.at(t)).log() / t**2 <= largest + exact(1e-30)
        assert float(moments.at(ZERO)) == pytest.approx(float(moments.at(exact(1e-9))), rel=1e-6)


def test_lines_are_above_concave_moments() -> None:
    """Between powers 2 and 3 m is concave; here it is largest inside, where a chord lies below it."""
    moments = Moments([ONE, -exact(0.9)], [exact(5e-7), exact(5e-7)], 2.5)
    inside, ends_ = moments.at(exact(0.55)), [moments.at(exact(t)) for t in (0.1, 1.0)]
    assert inside > ends_[0].max(ends_[1])
    assert moments.largest(0.1, 1.0) >= inside * (1 - exact(1e-6))


def test_what_may_lie_above_a_threshold_is_lost() -> None:
    """A gain between 0.4 and 0.6, cut at 0.5: up to a tenth of its mass is lost."""
    wide = Corners([arb(0.5, 0.1)], [ONE], ZERO)
    assert not wide.checked_loss(False, 1.0, 0.5) < exact(0.099)


def test_what_is_cut_is_what_is_lost() -> None:
    """Lemma 3 (1), against E_Q of what is above the threshold; nothing is allowed that is not charged."""
    corners, budget = corners_of(3, Fraction(1, 8)), budget_of(Fraction(1), 2)
    cut = Cut(0.02, 0.01)
    for away, (below, above) in itertools.product((False, True), ((0.0, 0.02), (0.3, 0.4), (0.9, 0.999))):
        threshold = corners.threshold(away, below, above, cut)
        lost = corners.checked_loss(away, above, threshold)
        assert cut.allows(lost, below)
        assert not cut.allows(exact(cut.per_unit(below)) + exact(1e-9), below)
        for t in (exact(max(below, 1e-3)), exact(above)):
            spent = ZERO
            for g, q in zip(corners.gains, corners.lower, strict=True):
                p, other = (q, q * (ONE + t * g)) if away else (q * (ONE + t * g), q)
                limit = other / (ONE - t * threshold) if away else (ONE + t * threshold) * other
                spent += (p - limit).max(ZERO)
            assert spent <= t * lost + exact(1e-30)
    assert cut.lost(budget).overlaps(exact(0.02) + exact(0.01) * exact(2).sqrt())


@pytest.mark.parametrize("n_users", [2, 50, 2_000, 30_000])
def test_lemma_4_by_the_exact_law_of_the_coins(n_users: int) -> None:
    """At least so many of n − 1 toss a coin, except with the probability of failure."""
    coins = Coins.of(n_users)
    with mpmath.workdps(30):
        chance = 1 - mpmath.sqrt(mpmath.mpf(501) / 1000)
        assert coins.number == int(mpmath.floor(mpmath.mpf(87) / 100 * (n_users - 1) * chance))
    fewer = binomial(n_users - 1, ONE - (exact(501) / 1000).sqrt(), 1e-60)
    below = total([mass for k, mass in enumerate(fewer.values, fewer.start) if k < coins.number])
    assert below <= coins.failure
    assert n_users < 30_000 or coins.failure < exact(1e-30)


N_COINS, EXCEPTIONAL = 30, Fraction(1, 4)
ZERO_, ONE_ = Fraction(0), Fraction(1)


@cache
def of_coins() -> Corners:
    grid = LossGrid.of(Grid(step=0.1, points=22))
    return Corners.of(
        Loss.of(symmetric([Table.of(shifted(binomial(N_COINS, ONE / 2, 1e-99)), grid)]), grid.step, grid.growth)
    )


def coin_pair() -> ExactPair:
    law = sum_of_bits([Fraction(1, 2)] * N_COINS)
    return ExactPair(upper=(Fraction(0), *law), lower=(*law, Fraction(0)))


def with_coins() -> list[ExactPair]:
    """One instance without coins, of shift t, and one with coins, for what Δ² = 1 leaves."""
    found = []
    shifts = [(Fraction(4, 5), Fraction(3, 5)), (Fraction(3, 5), Fraction(4, 5)), (ONE_, ZERO_), (ZERO_, ONE_)]
    for pair in response_pairs(2, EXCEPTIONAL)[:1]:
        for first, second in shifts:
            ways = [((1 - t, ONE_), (t, ZERO_), (ZERO_, t)) for t in (first, second)]
            for (a, b), (c, d) in itertools.product(*ways):
                found.append(compose([moved(pair, a, b), moved(coin_pair(), c, d)]))
    return found


def unit_ball(module: Any = squared_shifts, delta: float = 0.05) -> Any:
    """Theorem 2 for these, with enough coins for certain."""
    budget = module.Budget(ONE, 2, 1.0)
    first, rest = (
        module.Corners(one.gains, one.lower, one.infinite) for one in (corners_of(2, EXCEPTIONAL), of_coins())
    )
    cutting = Cutting(orders=(1.5, 2.0, 2.5, 3.0, 4.0, 6.0), square=0.02 * delta, linear=0.0)
    return module.UnitBall(first, module.AnyData.of(rest, budget, cutting), ZERO)


def test_theorem_2_is_never_below_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(squared_shifts, "PEELED_ROUNDS", 2)
    bound = unit_ball()
    assert bounded(bound, with_coins())
    assert float(bound.delta(2.5)) < 0.9, "vacuous"


def test_failing_coins_are_charged_in_every_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(squared_shifts, "PEELED_ROUNDS", 0)
    without = unit_ball()
    charged = UnitBall(without.exceptional, without.rest, exact(1e-3))
    assert (charged.delta(1.0) - without.delta(1.0)).overlaps(exact(2e-3) * 1)


def test_what_is_left_is_what_the_smallest_shift_of_an_interval_leaves() -> None:
    """If the exceptional instance tells nothing, the others have all of Δ²."""
    rest = unit_ball().rest
    nothing = UnitBall(Corners([ZERO], [ONE], ZERO), rest, ZERO)
    for epsilon in (1.0, 1.5):
        assert rest.delta(epsilon) < ONE
        assert (nothing._peeled(epsilon, 0.0, 1.0) + rest.spent).overlaps(rest.delta(epsilon))
        assert nothing._peeled(epsilon, 0.6, 1.0) < nothing._peeled(epsilon, 0.0, 1.0)


def test_infinite_losses_of_the_exceptional_instance_count() -> None:
    tenth = UnitBall(Corners([-ONE, ZERO], [ONE / 10, ONE * 9 / 10], ONE / 10), unit_ball().rest, ZERO)
    assert not tenth._peeled(30.0, 0.4, 0.5) < ONE / 20
    away = UnitBall(Corners([-ONE, ZERO], [ONE / 10, ONE * 9 / 10], ZERO), unit_ball().rest, ZERO)
    assert not away._peeled(30.0, 0.9, 1.0) < ONE / 20, "at t = 1 its law has nothing where the other has a tenth"


# --- planted errors -------------------------------------------------------------------------------


RARE = ExactPair(
    upper=(Fraction(1, 10), Fraction(22, 25), Fraction(1, 50)),
    lower=(Fraction(1, 50), Fraction(22, 25), Fraction(1, 10)),
)
"""A rare outcome that tells nearly all, in either direction."""


def theorem_1_holds(module: Any, linear: float = 0.1) -> bool:
    """One bit that moves by ½. The outcomes that tell something are cut: that is all that is left of the bound."""
    masses = list(zip(RARE.upper, RARE.lower, strict=True))
    gains = [exact(p.numerator * q.denominator) / (p.denominator * q.numerator) - ONE for p, q in masses]
    lower = laws_of(RARE).zero
    corners, budget = module.Corners(gains, lower, ZERO), module.Budget(ONE / 4, 1, 0.5)
    bound = module.AnyData.of(corners, budget, Cutting(orders=(10.0,), square=0.0, linear=linear))
    half = moved(RARE, Fraction(1, 2), Fraction(0))
    return all(surely_at_least(bound.delta(0.9), way.hockey_stick, 0.9) for way in (half, half.reversed()))


def nothing_is_cut_unseen(module: Any) -> bool:
    return theorem_1_holds(module, linear=1e-9)


def infinite_loss_counts(module: Any) -> bool:
    """P and Q have a tenth where the other has nothing, and are equal elsewhere: δ = t/10 for every ε."""
    corners, budget = module.Corners([-ONE, ZERO], [ONE / 10, ONE * 9 / 10], ONE / 10), module.Budget(ONE / 4, 1, 0.5)
    bound = module.AnyData.of(corners, budget, Cutting(orders=(30.0,), square=0.0, linear=0.0)).delta(8.0)
    assert bound < exact(0.051)
    return not bound < ONE / 20


def theorem_2_holds(module: Any) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PEELED_ROUNDS", 2)
        return bounded(unit_ball(module), with_coins()[::3])


CHECKED = """threshold = self.threshold(away, below, above, cut)
        if math.isnan(threshold) or not cut.allows(self.checked_loss(away, above, threshold), below):"""
UNCHECKED = """threshold = 0.01
        if False:"""
ERRORS: dict[str, tuple[str, str, Any]] = {
    "a cut not charged": ("cut.lost(budget) + summed, summed)", "summed, summed)", theorem_1_holds),
    "the linear cut not charged": (" + exact(self.linear) * budget.summed", "", theorem_1_holds),
    "infinite loss not charged": ("(budget) + summed, summed)", "(budget), ZERO)", infinite_loss_counts),
    "no check of the cut": (CHECKED, UNCHECKED, nothing_is_cut_unseen),
    "peeled without its loss": ("(at - loss)\n                result", "at\n                result", theorem_2_holds),
}


@pytest.mark.parametrize("name", ERRORS)
def test_planted_errors_are_found(name: str) -> None:
    honest, wrong, law = ERRORS[name]
    assert law(squared_shifts)
    assert not law(planted(squared_shifts, honest, wrong))


def test_orders_that_prove_nothing_prove_nothing() -> None:
    """At t = 1, where all of an outcome goes away, the moment is infinite unless that outcome is cut."""
    corners, budget = corners_of(2, Fraction(1, 8)), budget_of(Fraction(1), 2)
    certain = Corners([-ONE, *corners.gains], [exact(0.01), *corners.lower], exact(0.01))
    line = Line.of(certain, 3.0, budget, Cut(0.0, 0.0))
    assert not line.rate <= exact(1e300)
    bound = AnyData(budget, [line], ZERO, ZERO)
    assert not bound.delta(100.0) <= ONE


TIGHT_SPOTS: list[dict[str, Any]] = [
    {"users": 30, "dim": 48, "bound": 1.0, "epsilon": 8.0, "delta": 1e-3, "bitsum": "rr"},
    {"users": 2, "dim": 48, "epsilon": 20.0, "delta": 1e-2, "bitsum": "rr"},
]


@pytest.mark.parametrize("request_", TIGHT_SPOTS, ids=str)
def test_plans_with_little_room_are_proved(request_: dict[str, Any]) -> None:
    """Where infinite loss takes most of δ, or where nothing may be cut off: the search for a witness failed here."""
    found = certify(plan_for(kernel="inner-product", allow_useless=True, **request_))
    assert found.proves, found.headline


def test_masses_that_are_lost_are_told_from_rounding() -> None:
    """A mass of 10⁻¹⁶ beside one of 0.2: nothing may be lost, so nothing is cut."""
    gains, lower = [-1.0, -0.94, 0.0, 15.0], [1e-16, 0.2, 0.7, 0.1]
    corners = Corners([exact(g) for g in gains], [exact(q) for q in lower], exact(1e-16))
    nothing = Cut(0.0, 0.0)
    threshold = corners.threshold(True, 0.0, 0.5, nothing)
    assert nothing.allows(corners.checked_loss(True, 0.5, threshold), 0.0)
