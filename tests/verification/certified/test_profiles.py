"""Profiles on a grid, the dots connected, and compositions: never below enumeration in fractions, and close to it."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import exact_pairs, searched
from tests.verification.certified.enclosures import (
    around,
    ends,
    holds,
    laws_of,
    planted,
    surely_at_least,
    worst_stick,
)
from verification.certified import profiles
from verification.certified.balls import ONE, ZERO, Ball, exact, total
from verification.certified.noise_laws import TwoLaws
from verification.certified.profiles import Loss, LossGrid, Table, blocks, composed, symmetric
from verification.certified.witness import Grid
from verification.exact.rational_twins import ExactPair, adaptive_hockey_stick, response_pairs

GRID = Grid(step=0.0625, points=40)
EPSILONS = (0.0, 0.1875, 0.5, 1.0, 1.75, 2.5)


def contains_between(ball: Ball, values: tuple[Fraction, Fraction]) -> bool:
    """Whether the ball contains a number that lies between these two."""
    low, high = ends(ball)
    return low <= values[1] and values[0] <= high and high - low < Fraction(1, 10**20)


@searched(given(exact_pairs()), examples=15, study=500)
def test_sticks_are_the_exact_ones(pair: ExactPair) -> None:
    """Whatever the losses, also infinite ones and those on the grid."""
    grid = LossGrid.of(Grid(step=0.25, points=12))
    found = Table.of(laws_of(pair), grid)
    for side, way in ((found.forward, pair), (found.backward, pair.reversed())):
        for i, value in enumerate(side):
            assert contains_between(value, around(way.hockey_stick, 0.25 * i)), i


def test_losses_on_points_of_the_grid() -> None:
    """Ratios that are e^h, as far as balls can tell, count there with their mass unsure and not less than it is."""
    grid = LossGrid.of(Grid(step=0.5, points=4))
    zero = [ONE / 8, ONE / 8, ONE / 4]
    one = [zero[0] * grid.growth[1], zero[1] * grid.growth[2], zero[2]]
    sticks = grid.sticks(TwoLaws(one=one, zero=zero))
    missing = ONE - total(one)
    for i, growth in enumerate(grid.growth):
        truth = missing + total([(p - growth * q).max(ZERO) for p, q in zip(one, zero, strict=True)])
        assert truth.overlaps(sticks[i])
        assert float(sticks[i].rad()) < 1e-25


@pytest.mark.parametrize("step", [0.1, 0.7, 0.003])
def test_losses_just_above_points_of_the_grid_reach_them(step: float) -> None:
    """By less than doubles can tell: a first guess may be one point too low, or too high."""
    grid = LossGrid.of(Grid(step=step, points=60))
    for sign in (1, -1):
        for i in range(1, 60):
            ratio = grid.growth[i] * (1 + sign * exact(1e-30))
            place, mass = grid._place(ratio / 8, ONE / 8)
            assert place == (i if sign > 0 else i - 1)
            assert mass.overlaps(ratio / 8)


def test_mass_that_is_not_listed_counts_everywhere() -> None:
    pair = response_pairs(4, Fraction(1, 4))[0]
    whole = laws_of(pair)
    part = TwoLaws(one=whole.one[1:], zero=whole.zero[1:])
    grid = LossGrid.of(GRID)
    for i, value in enumerate(grid.sticks(part)):
        assert surely_at_least(value, pair.hockey_stick, GRID.step * i)


@searched(given(exact_pairs()), examples=15, study=300)
def test_connected_dots_have_the_profile_at_every_point(pair: ExactPair) -> None:
    grid = LossGrid.of(Grid(step=0.25, points=12))
    table = Table.of(laws_of(pair), grid)
    for way in (table, table.reversed()):
        loss = Loss.of(way, grid.step, grid.growth)
        assert holds(total(loss.masses) + loss.infinite, Fraction(1))
        assert all(ends(mass)[1] >= 0 for mass in loss.masses)
        for i, value in enumerate(way.forward):
            assert loss.delta(0.25 * i).overlaps(value)
        lower = [m * (-exact(grid.step) * (loss.first + i)).exp() for i, m in enumerate(loss.masses)]
        assert (total(lower) + way.backward[-1]).overlaps(ONE)


@searched(given(exact_pairs(infinite_losses=False), st.floats(0.0, 3.5)), examples=15, study=300)
def test_connected_dots_dominate_between_the_points(pair: ExactPair, epsilon: float) -> None:
    grid = LossGrid.of(Grid(step=0.5, points=6))
    table = Table.of(laws_of(pair), grid)
    assert surely_at_least(Loss.of(table, grid.step, grid.growth).delta(epsilon), pair.hockey_stick, epsilon)


def test_a_loss_just_above_epsilon_is_counted() -> None:
    """3·0.1 as doubles is not the loss of 3 steps of 0.1: comparisons are those of the numbers meant."""
    for step, place in ((0.1, 3), (0.7, 3), (0.1, 7), (1e-3, 977)):
        loss = Loss(step, place, [ONE], ZERO)
        for epsilon in (step * place, step * place * (1 - 2**-53), step * place * (1 + 2**-52)):
            rest = ONE - (exact(epsilon) - exact(step) * place).exp()
            assert loss.delta(epsilon).overlaps(rest.max(ZERO))


def test_suprema() -> None:
    grid = LossGrid.of(GRID)
    first, second = (Table.of(laws_of(pair), grid) for pair in response_pairs(6, Fraction(1, 8))[:3:2])
    joined = first.joined(second)
    for one in (first, second):
        assert one.certainly_below(Table([x + exact(1e-30) for x in one.forward], [x + 1 for x in one.backward]))
        assert not one.certainly_below(Table([x + exact(1e-30) for x in one.forward], [ZERO] * len(one.backward)))
        assert all(x <= y or x.overlaps(y) for x, y in zip(one.forward, joined.forward, strict=True))
        assert all(x <= y or x.overlaps(y) for x, y in zip(one.backward, joined.backward, strict=True))
        both = symmetric([first, second])
        assert both.forward is both.backward
        assert all(x <= y or x.overlaps(y) for x, y in zip(one.backward, both.forward, strict=True))


def test_trimming_never_lowers_a_profile() -> None:
    loss = Loss(0.5, -2, [ONE / 8, ONE / 4, ONE / 4, ONE / 8, ONE / 8], ONE / 8)
    trimmed = loss.trimmed(0.3)
    assert (trimmed.first, len(trimmed.masses), trimmed.infinite) == (-1, 2, ONE * 3 / 8)
    assert holds(total(trimmed.masses) + trimmed.infinite, Fraction(1))
    assert all(ends(trimmed.delta(e) - loss.delta(e))[1] >= 0 for e in (0.0, 0.2, 0.5, 1.0, 2.0))
    assert loss.trimmed(0.0) == loss


@pytest.mark.parametrize("times", [1, 2, 3, 4, 7])
def test_powers_are_products(times: int) -> None:
    grid = LossGrid.of(Grid(step=0.25, points=8))
    loss = Loss.of(Table.of(laws_of(response_pairs(3, Fraction(1, 4))[0]), grid), grid.step, grid.growth)
    product = loss
    for _ in range(times - 1):
        product = product.times(loss)
    power = loss.power(times, 0.0)
    assert power.first == product.first
    assert all(x.overlaps(y) for x, y in zip(power.masses, product.masses, strict=True))
    assert power.infinite.overlaps(product.infinite)


# --- k instances, whatever the others hold --------------------------------------------------------


@cache
def tables(n_users: int, flip: Fraction, points: int = 60) -> tuple[LossGrid, list[Table]]:
    """All kinds: the largest loss of any is ln((1−p)/p)."""
    grid = LossGrid.of(Grid(step=1.01 * math.log(1 / flip - 1) / points, points=points))
    return grid, [Table.of(laws_of(pair), grid) for pair in response_pairs(n_users, flip)]


SYSTEMS = [
    (2, Fraction(1, 4), 3),
    (4, Fraction(1, 4), 2),
    (5, Fraction(1, 8), 2),
    pytest.param(3, Fraction(3, 8), 4, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("n_users", "flip", "times"), SYSTEMS)
def test_compositions_against_all_sequences_of_the_others_data(n_users: int, flip: Fraction, times: int) -> None:
    """Bounds on every sequence, in every direction, even if chosen adaptively; and no more than 3 % above that."""
    pairs = response_pairs(n_users, flip)
    grid, kinds = tables(n_users, flip)
    found, stick = composed(kinds, grid, times, 1e-15), worst_stick(pairs, times)
    for epsilon in EPSILONS:
        bound = found.delta(epsilon)
        assert surely_at_least(bound, stick, epsilon)
        gamma = Fraction(float(exact(epsilon).exp()))
        adaptive = adaptive_hockey_stick(pairs, times, gamma)
        assert float(bound) >= float(adaptive) * (1 - 1e-12)
        assert float(bound) <= 1.03 * float(adaptive) + 1e-5
    assert stick(Fraction(2)) > Fraction(1, 20)


def test_every_block_bounds_its_number_of_instances() -> None:
    grid, kinds = tables(3, Fraction(1, 4))
    found = blocks(kinds, grid, 3)
    assert len(found) == 3
    for times, loss in enumerate(found, 1):
        stick = worst_stick(response_pairs(3, Fraction(1, 4)), times)
        assert all(surely_at_least(loss.delta(e), stick, e) for e in EPSILONS)


def test_instances_beyond_a_block_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 = 2 + 1: a block of two, and a shorter one."""
    monkeypatch.setattr(profiles, "LARGEST_BLOCK", 2)
    grid, kinds = tables(2, Fraction(3, 8))
    found, stick = composed(kinds, grid, 3, 1e-15), worst_stick(response_pairs(2, Fraction(3, 8)), 3)
    assert all(surely_at_least(found.delta(e), stick, e) for e in EPSILONS)
    assert float(found.delta(0.5)) > 1.05 * float(composed(kinds, grid, 2, 1e-15).delta(0.5))


def test_the_last_block_has_as_many_instances_as_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 = 3 + 2."""
    monkeypatch.setattr(profiles, "LARGEST_BLOCK", 3)
    grid, kinds = tables(2, Fraction(3, 8))
    found, stick = composed(kinds, grid, 5, 1e-15), worst_stick(response_pairs(2, Fraction(3, 8)), 5)
    assert all(surely_at_least(found.delta(e), stick, e) for e in EPSILONS)


def test_infinite_losses_of_two_instances() -> None:
    """Either of them: 1 − ½·¾."""
    one, other = Loss(0.5, 0, [ONE / 2], ONE / 2), Loss(0.5, 0, [ONE * 3 / 4], ONE / 4)
    assert one.times(other).infinite.overlaps(ONE * 5 / 8)


def test_a_grid_that_ends_too_early_costs_tightness_only() -> None:
    pairs = response_pairs(3, Fraction(1, 8))
    grid = LossGrid.of(Grid(step=0.125, points=6))
    kinds = [Table.of(laws_of(pair), grid) for pair in pairs]
    loss = composed(kinds, grid, 2, 1e-15)
    assert ends(loss.infinite)[0] > Fraction(1, 20)
    stick = worst_stick(pairs, 2)
    assert all(surely_at_least(loss.delta(e), stick, e) for e in EPSILONS)


# --- planted errors -------------------------------------------------------------------------------


def bounds_compositions(module: Any, pairs: list[ExactPair], listed: list[ExactPair], times: int) -> bool:
    """Whether the module's bound for the pairs `listed` holds for all of `pairs`. Its grid ends before losses do."""
    grid = module.LossGrid.of(Grid(step=0.0625, points=28))
    kinds = [module.Table.of(laws_of(pair), grid) for pair in listed]
    loss, stick = module.composed(kinds, grid, times, 1e-15), worst_stick(pairs, times)
    return all(surely_at_least(loss.delta(epsilon), stick, epsilon) for epsilon in EPSILONS)


ERRORS = {
    "only one direction": ("for way in (kind, kind.reversed())]", "for way in (kind,)]"),
    "reversal identity forgotten": ("ONE - (ONE - rest[i]) / growth[i] for i", "rest[i] for i"),
    "infinite loss forgotten": ("[loss.infinite + value for value", "[value for value"),
    "one instance too few": ("    found = blocks(", "    times -= 1\n    found = blocks("),
    "rest of the blocks forgotten": ("return result if not rest else", "return result if True else"),
    "trimmed mass lost": ("            infinite += self.masses[top]\n", ""),
    "first kind instead of the largest": ("phi = _largest(raised)", "phi = raised[0]"),
    "missing mass forgotten": ("* zero + missing", "* zero"),
    "last point not infinite": ("positive], table.forward[-1])", "positive], ZERO)"),
}  # fmt: skip


def keeps_missing_mass(module: Any) -> bool:
    pair = response_pairs(4, Fraction(1, 4))[0]
    part = TwoLaws(one=laws_of(pair).one[1:], zero=laws_of(pair).zero[1:])
    sticks, whole = module.LossGrid.of(GRID).sticks(part.reversed()), pair.reversed()
    return all(surely_at_least(value, whole.hockey_stick, GRID.step * i) for i, value in enumerate(sticks))


def keeps_trimmed_mass(module: Any) -> bool:
    loss = module.Loss(0.5, 0, [ONE / 2, ONE / 4], ONE / 4)
    return bool(loss.trimmed(0.3).delta(0.1) >= loss.delta(0.1))


def keeps_the_rest(module: Any) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LARGEST_BLOCK", 2)
        pairs = response_pairs(2, Fraction(1, 8))
        return bounds_compositions(module, pairs, pairs, 3)


def bounds_two(module: Any) -> bool:
    pairs = response_pairs(3, Fraction(1, 8))
    return bounds_compositions(module, pairs, pairs[:2], 2)


LAWS = {
    "rest of the blocks forgotten": keeps_the_rest,
    "trimmed mass lost": keeps_trimmed_mass,
    "missing mass forgotten": keeps_missing_mass,
}


@pytest.mark.parametrize("name", ERRORS)
def test_planted_errors_are_found(name: str) -> None:
    """The comparisons above fail if the checker makes one of these mistakes, and hold if it makes none."""
    law = LAWS.get(name, bounds_two)
    assert law(profiles)
    assert not law(planted(profiles, *ERRORS[name]))


def test_cells_that_are_missing_are_found() -> None:
    """The others' data matter: a bound for all of them at 0 does not hold for one of them at 1."""
    pairs = response_pairs(5, Fraction(1, 8))
    assert bounds_compositions(profiles, pairs, pairs[:3], 1)
    assert not bounds_compositions(profiles, pairs, pairs[:1], 1)
