"""The checker: whatever plan, its upper end is not below enumeration in fractions, and its lower end not above."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from flint import ctx
from hypothesis import given
from hypothesis import strategies as st

from accounting import Plan
from tests.plans import plan_for
from tests.slow_twins import compose, response_pair
from tests.strategies import searched
from tests.verification.certified.enclosures import (
    Stick,
    around,
    laws_of,
    planted,
    surely_at_least,
    surely_at_most,
    with_parameters,
    worst_stick,
)
from verification.certified import checker
from verification.certified.balls import exact
from verification.certified.checker import Instance, Lower, Upper, bits_for, kinds, upper
from verification.certified.neighbors import Moves, Neighbors, neighbors
from verification.certified.noise_laws import TwoLaws
from verification.certified.profiles import LossGrid, Table
from verification.certified.witness import Grid, Witness
from verification.exact.rational_twins import ExactPair, response_pairs
from verification.twins.bitsum_twins import PoissonTwin, ResponseTwin

WHOLE = 1e-200
FLIP = Fraction(1, 8)
EPSILONS = (0.0, 0.1875, 0.75, 1.5, 2.25)
DELTA = 1e-2


@cache
def base() -> Plan:
    return plan_for(users=30, dim=4, repetitions=2, epsilon=2.0, delta=DELTA, allow_useless=True)


def response_plan(n_users: int, flip: Fraction = FLIP, **changes: Any) -> Plan:
    """Of so many users with this flip probability, whatever it promises."""
    request = dataclasses.replace(base().request)
    for name, value in {"users": n_users, **changes}.items():
        object.__setattr__(request, name, value)
    return dataclasses.replace(base(), request=request, parameters={"flip_probability": float(flip)})


def flips(instances: int) -> Neighbors:
    return Neighbors(instances=instances, covered=Moves(instances), attained=Moves(instances))


def exact_pairs(n_users: int, flip: Fraction = FLIP) -> list[ExactPair]:
    return response_pairs(n_users, flip)


# --- upper ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_users", "times"),
    [(1, 1), (2, 1), (5, 1), (8, 1), (1, 3), (3, 2), (4, 2), pytest.param(5, 3, marks=pytest.mark.slow)],
)
def test_flips_are_never_below_enumeration(n_users: int, times: int) -> None:
    """All sequences of the others' data and all directions; and not far above them.

    One instance: 3 %. Of more the bound also holds if data and direction are chosen after seeing outputs; for so few
    users that costs up to a tenth more.
    """
    found = upper(response_plan(n_users), flips(times), DELTA)
    stick = worst_stick(exact_pairs(n_users), times)
    for epsilon in EPSILONS:
        bound = found.delta(epsilon)
        assert surely_at_least(bound, stick, epsilon)
        assert float(bound) <= (1.03 if times == 1 else 1.15) * float(around(stick, epsilon)[1]) + 1e-3
    assert float(stick(Fraction(2))) > 0.01


@pytest.mark.parametrize("cell", [0, 1, 2, 7])
@pytest.mark.parametrize("times", [1, 2])
def test_cells_cover_all_data_of_the_others(cell: int, times: int) -> None:
    """Of whatever width: wide ones give more reports away, and prove less."""
    witness = Witness(bits=160, tail=1e-12, cell=cell, grid=Grid(step=0.0625, points=32))
    found = upper(response_plan(8), flips(times), DELTA, witness)
    stick = worst_stick(exact_pairs(8)[:4], times)
    assert all(surely_at_least(found.delta(e), stick, e) for e in EPSILONS)
    assert found.witness == witness


@searched(given(st.integers(1, 8), st.integers(1, 31), st.integers(0, 3)), examples=10, study=200)
def test_every_kind_is_dominated_by_a_table(n_users: int, flip: int, cell: int) -> None:
    """Point by point, in one direction or the other."""
    grid, p = LossGrid.of(Grid(step=0.25, points=10)), Fraction(flip, 64)
    instance = Instance.of(ResponseTwin(n_users=n_users, flip_probability=float(p)), WHOLE)
    tables = kinds(instance, grid, cell)
    for pair in response_pairs(n_users, p):
        table = Table.of(laws_of(pair), grid)
        assert any(covers(one, table) or covers(one.reversed(), table) for one in tables)


def covers(larger: Table, smaller: Table) -> bool:
    sides = zip([*larger.forward, *larger.backward], [*smaller.forward, *smaller.backward], strict=True)
    return all(x >= y or x.overlaps(y) for x, y in sides)


def test_noise_in_the_ones_is_never_below_enumeration() -> None:
    """Poisson, two instances: over a table that lacks less than 1e-12."""
    plan = plan_for(users=30, dim=4, repetitions=2, epsilon=2.0, delta=DELTA, bitsum="poisson", allow_useless=True)
    plan = with_parameters(plan, total_mean=3.0)
    found = upper(plan, flips(2), DELTA)
    law = PoissonTwin(n_users=30, total_mean=3.0).noise_counts()[0]
    assert law is not None
    masses = [Fraction(float(law.mass()(k))) for k in range(25)]
    masses = [mass / sum(masses) for mass in masses]
    pair = ExactPair(upper=(Fraction(0), *masses), lower=(*masses, Fraction(0)))
    for epsilon in (0.5, 1.0, 2.0):
        bound = float(found.delta(epsilon))
        truth = float(max(compose([way] * 2).hockey_stick(around_growth(epsilon)) for way in (pair, pair.reversed())))
        assert truth * (1 - 1e-9) <= bound <= 1.03 * truth + 1e-4


def around_growth(epsilon: float) -> Fraction:
    return Fraction(float(exact(epsilon).exp()))


# --- lower ends -----------------------------------------------------------------------------------


def largest(pairs: list[ExactPair]) -> Stick:
    return lambda gamma: max(pair.hockey_stick(gamma) for pair in pairs)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_lower_ends_are_attained(times: int) -> None:
    twin = ResponseTwin(n_users=6, flip_probability=float(FLIP))
    found, pair = Lower.of(twin, WHOLE, Moves(times)), exact_pairs(6)[0]
    whole = [compose([way] * times) for way in (pair, pair.reversed())]
    for epsilon in EPSILONS:
        assert surely_at_most(
            found.delta(epsilon), lambda gamma: max(one.hockey_stick(gamma) for one in whole), epsilon
        )
    epsilon = found.epsilon(DELTA)
    assert around(lambda gamma: max(one.hockey_stick(gamma) for one in whole), epsilon)[1] >= Fraction(DELTA)


def test_half_moves_are_those_of_a_coin_and_a_certain_one() -> None:
    """Others all at 1, the target's bit a coin or 1."""
    twin = ResponseTwin(n_users=12, flip_probability=0.25)
    found, pair = Lower.of(twin, WHOLE, Moves(2, half=True)), response_pair([1] * 11, Fraction(1, 4))
    half = ExactPair(upper=tuple((a + b) / 2 for a, b in zip(pair.upper, pair.lower, strict=True)), lower=pair.upper)
    whole = [compose([way] * 2) for way in (half, half.reversed())]

    assert all(surely_at_most(found.delta(e), largest(whole), e) for e in EPSILONS)
    assert float(found.delta(0.1)) > 0.95 * float(largest(whole)(around_growth(0.1))) > 0.01


def test_nothing_that_moves_costs_nothing() -> None:
    nothing = Lower.of(ResponseTwin(n_users=3, flip_probability=0.25), WHOLE, Moves(0))
    assert (nothing.epsilon(0.5), float(nothing.delta(0.0))) == (0.0, 0.0)


# --- laws -----------------------------------------------------------------------------------------


def delta_at(n_users: int, flip: float, times: int, epsilon: float) -> Any:
    """On one grid and with one kind of windows, so that results can be compared."""
    witness = Witness(bits=160, tail=1e-30, cell=0, grid=Grid(step=0.125, points=24))
    return upper(response_plan(n_users, Fraction(flip)), flips(times), DELTA, witness).delta(epsilon)


@searched(given(st.integers(1, 6), st.integers(1, 28), st.integers(2, 4), st.floats(0.0, 3.0)), examples=6, study=150)
def test_more_users_more_noise_and_fewer_instances_never_cost_more(
    n_users: int, flip: int, times: int, epsilon: float
) -> None:
    """On one grid, up to what is trimmed (1e-9 of δ) and what windows lack; grids of different laws differ more."""
    before = delta_at(n_users, flip / 64, times, epsilon)
    spare = exact(1e-8 * DELTA)
    assert delta_at(n_users + 1, flip / 64, times, epsilon) <= before + spare
    assert delta_at(n_users, (flip + 3) / 64, times, epsilon) <= before + spare
    assert delta_at(n_users, flip / 64, times - 1, epsilon) <= before + spare


@searched(given(st.integers(1, 12), st.integers(1, 31), st.integers(1, 4)), examples=8, study=150)
def test_lower_ends_are_below_upper_ends(n_users: int, flip: int, times: int) -> None:
    plan = response_plan(n_users, Fraction(flip, 64))
    found = upper(plan, flips(times), DELTA)
    low = Lower.of(found.instance.twin, found.witness.tail, Moves(times))
    assert low.epsilon(DELTA) <= found.epsilon(DELTA, 2.0)
    assert not any(low.delta(e) > found.delta(e) for e in EPSILONS)


def test_the_epsilon_that_is_found_is_proved_and_hardly_larger_than_needed() -> None:
    found = upper(response_plan(6), flips(2), DELTA)
    for guess in (0.5, 1.0, 4.0, 50.0):
        epsilon = found.epsilon(DELTA, guess)
        assert found.delta(epsilon) <= exact(DELTA)
        assert not found.delta(epsilon - 1e-4 * guess) <= exact(DELTA)
    assert Upper(lambda _: exact(1.0), found.instance, found.witness).epsilon(DELTA, 1.0) == float("inf")


def test_precision_tells_delta_from_nothing() -> None:
    for delta in (0.5, 1e-2, 1e-30, 1e-300):
        with ctx.workprec(bits_for(delta, 1.0)):
            assert exact(1.0) + exact(delta) * delta > exact(1.0)


# --- planted errors -------------------------------------------------------------------------------


def one_instance_holds(module: Any) -> bool:
    found = module.upper(response_plan(5), flips(1), DELTA)
    stick = worst_stick(exact_pairs(5), 1)
    return all(surely_at_least(found.delta(e), stick, e) for e in EPSILONS)


def directions_hold(module: Any) -> bool:
    """Data of the others that hides less in one direction: then the other is not enough."""
    laws = Instance.of(ResponseTwin(n_users=5, flip_probability=float(FLIP)), WHOLE).all_zero
    pair = exact_pairs(5)[0]
    for laws_, way in ((laws, pair), (laws.reversed(), pair.reversed())):
        for epsilon in EPSILONS:
            growth = exact(epsilon).exp()
            both = [one.hockey_stick for one in (way, way.reversed())]
            if not all(surely_at_least(module._sticks(laws_, growth), stick, epsilon) for stick in both):
                return False
    return True


def compositions_hold(module: Any) -> bool:
    found = module.upper(response_plan(3), flips(2), DELTA)
    stick = worst_stick(exact_pairs(3), 2)
    return all(surely_at_least(found.delta(e), stick, e) for e in (*EPSILONS, 1.0))


def unlisted_mass_counts(module: Any) -> bool:
    pair = exact_pairs(5)[0]
    part = TwoLaws(one=laws_of(pair).one[1:], zero=laws_of(pair).zero[1:])
    return surely_at_least(
        module._sticks(part.reversed(), exact(2.0)), lambda _: pair.reversed().hockey_stick(Fraction(2)), 0.7
    )


def counted_users_hold(module: Any) -> bool:
    """Of 8 users who are expected 5 are counted on: the noise of the others may be missing."""
    found = module.upper(response_plan(8, min_users=5), flips(1), DELTA)
    stick = worst_stick(exact_pairs(5), 1)
    return all(surely_at_least(found.delta(e), stick, e) for e in EPSILONS)


COUNTED = "Instance.of(mechanism_twin(plan), tail)"
FORECAST = "Instance.of(replace(mechanism_twin(plan), n_users=plan.request.users), tail)"
NO_CELLS = "stack: list[tuple[int, int, bool]] = []"
BOTH, ONE_HALF = "stack += [(a, middle, trying), (middle + 1, b, trying)]", "stack += [(a, middle, trying)]"
ERRORS: dict[str, tuple[str, str, Any]] = {
    "cells missing": ("stack = [(1, highest, True)] if highest else []", NO_CELLS, one_instance_holds),
    "only the smallest cell": (BOTH, ONE_HALF, one_instance_holds),
    "a wrong direction": ("return sides[0].max(sides[1])", "return sides[0]", directions_hold),
    "one instance too few": ("grid, reach.instances, TRIMMED", "grid, reach.instances - 1, TRIMMED", compositions_hold),
    "missing mass": ("sides = [way.missing + total(", "sides = [total(", unlisted_mass_counts),
    "the forecast number of users": (COUNTED, FORECAST, counted_users_hold),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_planted_errors_are_found(name: str) -> None:
    honest, wrong, law = ERRORS[name]
    assert law(checker)
    assert not law(planted(checker, honest, wrong))


def test_reach_of_the_plan_is_what_is_composed() -> None:
    found = neighbors(base())
    assert (found.instances, found.covered) == (2, Moves(2))
