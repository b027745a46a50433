"""Losses of bits that move only so far, added up: Proposition 7 against enumeration, search and exact logarithms."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import InvalidInputError, plan_budget
from accounting.composition import LADDER, Basic, Touched
from accounting.composition.added_losses import AddedLosses, added_losses
from accounting.mechanisms import Pure, RandomizedResponse
from verification.certified.certificate import certify
from verification.exact.rational_twins import Law

RUNG = AddedLosses()
PURE = Pure.calibrate(0.5, 50, excess_error=0.5)


def bits(total: int, squared_shift: float | None, largest_shift: float = 1.0) -> Touched:
    return Touched(groups=total, per_group=1, squared_shift=squared_shift, largest_shift=largest_shift)


def mixed(one: Law, zero: Law, share: Fraction) -> Law:
    """The output where the bit is 1 with probability `share`."""
    return tuple(share * p + (1 - share) * q for p, q in zip(one, zero, strict=True))


@st.composite
def pure_pairs(draw: st.DrawFn) -> tuple[Law, Law, Fraction]:
    """(A_1, A_0, e^ε₀): two laws on three outcomes, and the largest ratio of their masses in either direction."""
    weights = draw(st.lists(st.integers(1, 40), min_size=6, max_size=6))
    laws = [tuple(Fraction(x, sum(part)) for x in part) for part in (weights[:3], weights[3:])]
    ratios = [p / q for p, q in zip(*laws, strict=True)]
    return laws[0], laws[1], max(*ratios, *(1 / ratio for ratio in ratios))


shares = st.integers(0, 16).map(lambda i: Fraction(i, 16))


@given(pure_pairs(), st.lists(st.tuples(shares, shares), min_size=1, max_size=4))
def test_no_shift_of_any_pure_pair_loses_more(
    pair: tuple[Law, Law, Fraction], moves: list[tuple[Fraction, Fraction]]
) -> None:
    one, zero, growth = pair
    largest, squared = 0.0, Fraction(0)
    for before, after in moves:
        ratios = [p / q for p, q in zip(mixed(one, zero, before), mixed(one, zero, after), strict=True)]
        largest += math.log(max(ratios))
        squared += (before - after) ** 2
    if squared == 0:
        assert largest == 0.0
    else:
        bound = added_losses(bits(len(moves), float(squared)), math.log(growth))
        assert largest <= bound * (1.0 + 1e-12)


@given(st.floats(1e-3, 5.0), st.integers(1, 40), st.floats(0.05, 1.0))
def test_equal_shifts_of_a_pair_attain_it(epsilon_0: float, k: int, shift: float) -> None:
    """Randomized response with p = 1/(e^ε₀ + 1), from a certain 0 to Bernoulli(t): nothing smaller would be true."""
    keep = 1.0 / (1.0 + math.exp(-epsilon_0))
    moved = shift * keep + (1.0 - shift) * (1.0 - keep)
    attained = k * math.log(moved / (1.0 - keep))
    assert added_losses(bits(k, k * shift**2), epsilon_0) == pytest.approx(attained, rel=1e-9)


def test_no_split_of_the_squared_shifts_loses_more_than_equal_ones() -> None:
    random, k, budget, epsilon_0 = np.random.default_rng(7), 12, 3.0, 0.8
    bound, growth = added_losses(bits(k, budget), epsilon_0), math.expm1(epsilon_0)
    splits = budget * random.dirichlet(np.full(k, 0.3), size=20_000)
    losses = np.sum(np.log1p(growth * np.sqrt(np.minimum(splits, 1.0))), axis=1)
    assert np.max(losses) <= bound
    near = budget * random.dirichlet(np.full(k, 300.0), size=200)
    assert np.max(np.sum(np.log1p(growth * np.sqrt(near)), axis=1)) > 0.99 * bound


@given(st.floats(1e-6, 20.0), st.integers(1, 10_000), st.floats(1e-3, 1.0))
def test_its_share_keeps_the_promise_and_is_nearly_all_of_it(epsilon: float, k: int, shift: float) -> None:
    touched = bits(k, None, shift)
    share = RUNG.share_without_delta(touched, epsilon)
    with mpmath.workdps(40):
        t = mpmath.sqrt(mpmath.mpf(touched.shift_budget) / k)
        together = k * mpmath.log(1 + t * mpmath.expm1(mpmath.mpf(share)))
        assert together <= epsilon
        assert together >= epsilon * (1 - mpmath.mpf("1e-10"))


@given(st.floats(0.01, 8.0), st.integers(1, 200))
def test_bits_that_may_all_flip_are_those_of_basic_composition(epsilon: float, k: int) -> None:
    touched = bits(k, None)
    basic = Basic().share_without_delta(touched, epsilon)
    assert RUNG.share_without_delta(touched, epsilon) == pytest.approx(basic)


def test_fewer_shifts_never_lose_more() -> None:
    losses = [added_losses(bits(64, budget), 0.3) for budget in (0.1, 1.0, 4.0, 16.0, 64.0)]
    assert losses == sorted(losses)
    assert losses[-1] == pytest.approx(64 * 0.3)


def test_only_laws_without_delta_are_covered() -> None:
    with pytest.raises(InvalidInputError, match="this one spends δ; choose accountant 'geometric'"):
        RUNG.require_covered(RandomizedResponse)
    RUNG.require_covered(Pure)
    assert RUNG.group_for(bits(4, None)) is None


CASES: dict[str, tuple[dict[str, Any], float]] = {
    "identity": ({"kernel": "inner-product", "dim": 16}, 3.0),
    "signs": ({"kernel": "inner-product-signs", "dim": 16, "repetitions": 16}, 1.5),
    "hashed": ({"kernel": "laplacian", "dim": 4, "repetitions": 4}, 1.7),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_takes_it_needs_less_noise_and_is_proved(name: str) -> None:
    asked, gain = CASES[name]
    request: dict[str, Any] = {
        "users": 1_000,
        "epsilon": 2.0,
        "delta": 0.0,
        "bitsum": "pure",
        "allow_useless": True,
        **asked,
    }
    plan, basic = (plan_budget(**request, accountant=rung) for rung in ("auto", "basic"))
    assert plan.accountant == RUNG.name
    assert basic.protocol().rmse() > gain * plan.protocol().rmse()
    plan.verify()
    found = certify(plan)
    assert found.proves
    assert found.upper_epsilon is not None
    assert found.covered_epsilon > 0.9999 * found.upper_epsilon
    kept = basic.ladder[RUNG.name]
    assert kept is not None
    assert kept < 2.0


@pytest.mark.parametrize("wrong", ["Δ/k", "t·ε₀"])
def test_wrong_sums_are_contradicted_by_equal_shifts(wrong: str) -> None:
    """Negative controls: with either mistake the sum is below what randomized response loses."""
    k, shift, epsilon_0 = 9, 0.4, 1.5
    keep = 1.0 / (1.0 + math.exp(-epsilon_0))
    attained = k * math.log((shift * keep + (1.0 - shift) * (1.0 - keep)) / (1.0 - keep))
    understated = {
        "Δ/k": added_losses(bits(k, shift**2), epsilon_0),
        "t·ε₀": k * shift * epsilon_0,
    }[wrong]
    assert understated < 0.95 * attained


def test_every_rung_without_delta_agrees_where_bits_flip() -> None:
    touched = bits(5, None)
    epsilons = {name: rung.achieved_epsilon(PURE, touched, 0.0) for name, rung in LADDER.items() if rung.covers(Pure)}
    assert set(epsilons) == {"basic", "paper", "shifts"}
    for one, other in itertools.combinations(epsilons.values(), 2):
        assert one == pytest.approx(other)
