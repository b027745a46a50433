"""Profiles, dominating pairs and their composition against enumeration, mpmath and dp-accounting."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from accounting.composition.instance_blocks import adaptive_supremum
from accounting.errors import InvalidInputError
from accounting.numerics.losses import DominatingLoss, Repeated
from accounting.numerics.pmf import Array
from accounting.numerics.profile import RELATIVE_PAD, LossGrid, Pair, ProfileTable, smallest_epsilon, symmetric_delta
from tests.accounting.numerics.test_losses_traps import as_dp_accounting
from tests.slow_twins import compose, repeated_response_delta, response_pair
from tests.strategies import deltas, epsilons, exact_pairs, rounded, searched
from verification.exact.rational_twins import (
    ExactPair,
    adaptive_hockey_stick,
    response_pairs,
    symmetric_hockey_stick,
)

ULPS = 1e-15
"""Absolute rounding of one subtraction of probabilities, which no relative pad can cover."""

QUARTER = Fraction(1, 4)


def gamma(epsilon: float) -> Fraction:
    """The e^ε that floating point uses, as an exact number."""
    return Fraction(math.exp(epsilon))


def one_bit(flip_probability: Fraction) -> ExactPair:
    """Randomized response of one user: losses ±ln((1−p)/p)."""
    return response_pair([], flip_probability)


def grid_to(end: float, n_steps: int) -> LossGrid:
    return LossGrid(step=end / n_steps, n_steps=n_steps)


def fine_grid(pair: ExactPair, n_steps: int = 400) -> LossGrid:
    """A grid that reaches the pair's largest finite loss."""
    return grid_to(max([0.1, *(abs(math.log(ratio)) for ratio in pair.ratios() if ratio > 0)]), n_steps)


def table_of(pair: ExactPair, grid: LossGrid) -> ProfileTable:
    return ProfileTable.of_pair(rounded(pair), grid)


def delta_of(losses: Array, masses: Array, infinite: float, epsilon: float) -> float:
    """δ(ε) of a loss distribution, from the definition."""
    above = losses > epsilon
    return infinite + float(np.sum(masses[above] * -np.expm1(epsilon - losses[above])))


def composed_one_by_one(loss: DominatingLoss, times: int) -> tuple[Array, Array, float]:
    """Losses, masses and infinite mass after `times` single compositions, by sums of positive terms only."""
    masses, infinite = np.ones(1), 0.0
    for _ in range(times):
        masses = np.convolve(masses, loss.masses)
        infinite += (1.0 - infinite) * loss.infinite
    reach = loss.n_steps * times
    return np.arange(-reach, reach + 1, dtype=np.float64) * loss.step, masses, infinite


# --- one pair -------------------------------------------------------------------------------------


@given(exact_pairs(), epsilons())
def test_hockey_stick_is_the_exact_one_rounded_up(pair: ExactPair, epsilon: float) -> None:
    exact = float(pair.hockey_stick(gamma(epsilon)))
    found = rounded(pair).hockey_stick(epsilon)
    assert exact <= found <= min(1.0, exact * (1 + 1e-6) + 5 * ULPS)


@given(exact_pairs(), epsilons(), epsilons(), st.floats(0, 1))
def test_hockey_stick_decreases_and_is_convex_in_gamma(pair: ExactPair, one: float, other: float, share: float) -> None:
    fast = rounded(pair)
    low, high = sorted((math.exp(one), math.exp(other)))
    middle = share * low + (1 - share) * high
    at_low, at_middle, at_high = (fast.hockey_stick(math.log(g)) for g in (low, middle, high))
    assert at_high <= at_low + 5 * ULPS
    assert at_middle <= share * at_low + (1 - share) * at_high + 10 * ULPS


@given(exact_pairs(infinite_losses=False), epsilons(3.0))
def test_reversal_identity(pair: ExactPair, epsilon: float) -> None:
    """H_{1/γ}(P‖Q) = 1 − 1/γ + H_γ(Q‖P)/γ: with γ = e^ε, negative ε says nothing new."""
    forward = rounded(pair).hockey_stick(-epsilon)
    backward = rounded(pair).reversed().hockey_stick(epsilon)
    assert forward == pytest.approx(-math.expm1(-epsilon) + math.exp(-epsilon) * backward, rel=1e-6, abs=5 * ULPS)


@given(exact_pairs(), epsilons())
def test_symmetric_delta_is_the_larger_direction(pair: ExactPair, epsilon: float) -> None:
    exact = float(symmetric_hockey_stick([pair], gamma(epsilon)))
    assert symmetric_delta([rounded(pair)], epsilon) == pytest.approx(exact, rel=1e-6, abs=5 * ULPS)


def test_the_two_directions_do_differ() -> None:
    pair = rounded(response_pair([0, 0, 0, 0], QUARTER))
    assert pair.hockey_stick(0.7) < 0.8 * pair.reversed().hockey_stick(0.7)
    assert symmetric_delta([pair], 0.7) == pair.reversed().hockey_stick(0.7)


def test_missing_mass_is_charged_to_infinite_loss() -> None:
    """Forgetting an outcome and saying how much it weighed never lowers δ."""
    exact = ExactPair(
        upper=(Fraction(6, 10), Fraction(3, 10), Fraction(1, 10)),
        lower=(Fraction(3, 10), Fraction(6, 10), Fraction(1, 10)),
    )
    whole = rounded(exact)
    cut = Pair(upper=whole.upper[:2], lower=whole.lower[:2], missing=0.1)
    assert cut.hockey_stick(0.3) >= float(exact.hockey_stick(gamma(0.3))) > 0.1
    with pytest.raises(InvalidInputError, match="missing mass"):
        Pair(upper=whole.upper[1:], lower=whole.lower[1:])
    assert cut.hockey_stick(50.0) == pytest.approx(0.1)
    assert cut.reversed().missing == cut.missing


def test_hockey_stick_is_rounded_up_where_almost_nothing_is_left() -> None:
    epsilon = math.nextafter(math.log(9), 0.0)
    pair = one_bit(Fraction(0.1))
    exact = pair.hockey_stick(gamma(epsilon))
    assert 0 < exact < 1e-15
    assert rounded(pair).hockey_stick(epsilon) >= exact


def test_hockey_stick_at_a_huge_epsilon_is_what_is_missing() -> None:
    assert rounded(one_bit(QUARTER)).hockey_stick(1000.0) == 0.0


@given(deltas(-14.0, -0.5), st.floats(0.05, 20.0))
def test_smallest_epsilon_inverts_a_profile_from_above(delta: float, rate: float) -> None:
    found = smallest_epsilon(lambda e: math.exp(-rate * e), delta)
    truth = -math.log(delta) / rate
    assume(truth < 100.0)
    assert math.exp(-rate * found) <= delta
    assert found == pytest.approx(truth, rel=1e-8, abs=1e-14)


def test_smallest_epsilon_at_its_ends() -> None:
    assert smallest_epsilon(lambda _: 1e-7, 1e-6) == 0.0
    assert smallest_epsilon(lambda _: 1e-5, 1e-6) == math.inf
    assert smallest_epsilon(lambda e: math.exp(-e), math.exp(-50.0), largest=10.0) == math.inf


def test_smallest_epsilon_finds_everything_up_to_the_largest() -> None:
    assert smallest_epsilon(lambda e: 1.0 if e < 150.0 else 0.0, 0.5, largest=200.0) == pytest.approx(150.0)


# --- the grid -------------------------------------------------------------------------------------


@searched(given(exact_pairs(), st.integers(1, 60), st.floats(0.05, 6.0)), examples=40, study=100)
def test_a_table_is_the_exact_profile_at_grid_points(pair: ExactPair, n_steps: int, end: float) -> None:
    """Up to rounding: what leaves the accountant is enlarged later, a table is not."""
    grid = grid_to(end, n_steps)
    table = table_of(pair, grid)
    assert len(table.forward) == len(table.backward) == n_steps + 1
    for values, one in ((table.forward, pair), (table.backward, pair.reversed())):
        for i in range(n_steps + 1):
            exact = float(one.hockey_stick(gamma(i * grid.step)))
            assert exact * (1 - 1e-12) - ULPS <= values[i] <= exact * (1 + 1e-12) + 5 * ULPS


def test_a_table_charges_missing_mass_at_every_point() -> None:
    pair = rounded(response_pair([0, 1, 0], QUARTER))
    short = Pair(upper=pair.upper, lower=pair.lower, missing=1e-4)
    grid = grid_to(1.5, 30)
    assert np.allclose(ProfileTable.of_pair(short, grid).forward - ProfileTable.of_pair(pair, grid).forward, 1e-4)


def test_a_table_keeps_a_tail_far_below_the_mass_beneath_it() -> None:
    """Half of P at loss 1 and 1e-20 of it at infinite loss: between the two, δ is the tail alone."""
    tail = 1e-20
    pair = Pair(
        upper=np.array([0.5, tail, 0.5]),
        lower=np.array([0.5 * math.exp(-1.0), 0.0, 1.0 - 0.5 * math.exp(-1.0)]),
    )
    table = ProfileTable.of_pair(pair, LossGrid(step=0.5, n_steps=4)).forward
    assert table[4] >= tail  # ε = 2
    assert table[2] >= tail  # ε = 1, where P's other half stops counting


@searched(
    given(exact_pairs(infinite_losses=False), st.sampled_from([1, 10, 1000]), st.sampled_from([1e-3, 1e-9])),
    examples=40,
    study=100,
)
def test_a_grid_for_a_pair_ends_where_little_is_left(pair: ExactPair, times: int, negligible: float) -> None:
    fast = rounded(pair)
    grid = LossGrid.for_pair(fast, n_compositions=times, negligible=negligible)
    end = grid.step * grid.n_steps
    assert symmetric_delta([fast], end) <= negligible + 5 * ULPS
    assert end <= 1.1 * max(float(np.max(np.abs(fast.losses()))), 1.0)
    assert 1 <= grid.n_steps <= 500_000


def test_a_grid_for_equal_laws_is_trivial_and_still_works() -> None:
    same = Pair(upper=np.array([0.5, 0.5]), lower=np.array([0.5, 0.5]))
    grid = LossGrid.for_pair(same, n_compositions=10, negligible=1e-9)
    loss = DominatingLoss.from_table(ProfileTable.of_pair(same, grid))
    assert Repeated([(loss, 10)]).delta(0.01) < 1e-15


def test_disjoint_laws_have_no_privacy_and_say_so() -> None:
    apart = Pair(upper=np.array([1.0, 0.0]), lower=np.array([0.0, 1.0]))
    grid = LossGrid.for_pair(apart, n_compositions=2, negligible=1e-9)
    loss = DominatingLoss.from_table(ProfileTable.of_pair(apart, grid))
    assert Repeated([(loss, 2)]).delta(5.0) == 1.0


@searched(given(exact_pairs(), exact_pairs()), examples=40, study=100)
def test_joining_tables_is_the_least_table_above_both(one: ExactPair, other: ExactPair) -> None:
    grid = grid_to(2.0, 20)
    a, b = table_of(one, grid), table_of(other, grid)
    joined = a.join(b)
    assert a.dominated_by(joined)
    assert b.dominated_by(joined)
    assert joined.dominated_by(b.join(a))
    assert np.all((joined.forward == a.forward) | (joined.forward == b.forward))
    assert a.reversed().join(b.reversed()).dominated_by(joined.reversed())
    assert a.reversed().reversed().dominated_by(a)


def test_domination_looks_at_both_directions() -> None:
    table = table_of(response_pair([0, 0, 0, 0], QUARTER), grid_to(1.0, 10))
    assert table.dominated_by(table)
    assert not table.dominated_by(table.reversed())
    assert not table.reversed().dominated_by(table)


def test_tables_on_different_grids_do_not_meet() -> None:
    pair = one_bit(QUARTER)
    with pytest.raises(ValueError, match="grid"):
        table_of(pair, grid_to(1.0, 10)).join(table_of(pair, grid_to(2.0, 10)))


# --- the dominating pair --------------------------------------------------------------------------


@searched(given(exact_pairs(), st.integers(2, 80)), examples=40, study=100)
def test_masses_sum_to_one(pair: ExactPair, n_steps: int) -> None:
    loss = DominatingLoss.from_table(table_of(pair, fine_grid(pair, n_steps)))
    total = float(np.sum(loss.masses)) + loss.infinite
    assert np.all(loss.masses >= 0.0)
    assert total == pytest.approx(1.0, abs=1e-12)


@searched(given(exact_pairs(), st.integers(2, 80)), examples=40, study=100)
def test_connect_the_dots_agrees_with_dp_accounting(pair: ExactPair, n_steps: int) -> None:
    grid = fine_grid(pair, n_steps)
    profile = np.array([float(pair.hockey_stick(gamma(i * grid.step))) for i in range(-n_steps, n_steps + 1)])
    backward = [float(pair.reversed().hockey_stick(gamma(i * grid.step))) for i in range(n_steps + 1)]
    ours = DominatingLoss.from_table(ProfileTable(grid=grid, forward=profile[n_steps:], backward=np.array(backward)))
    connect = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap
    theirs = connect(grid.step, -n_steps, n_steps, profile).to_dense_pmf()
    tolerance = 1e-13 / grid.step  # dp-accounting takes second differences of numbers near 1
    assert theirs._infinity_mass == ours.infinite
    # What P may have below the grid, dp-accounting puts on its lowest point and we put at loss 0.
    below = theirs._probs[0] - ours.masses[0]
    theirs._probs[0] -= below
    theirs._probs[n_steps] += below
    assert below >= -tolerance
    assert np.allclose(theirs._probs, ours.masses, rtol=0.0, atol=tolerance)
    assert float(np.sum(ours.masses)) + ours.infinite == pytest.approx(1.0, abs=1e-9)


@searched(given(exact_pairs(), st.integers(1, 40), epsilons(3.0, -3.0)), examples=40, study=100)
def test_a_dominating_pair_lies_above_the_exact_profile(pair: ExactPair, n_steps: int, epsilon: float) -> None:
    """At every ε, negative ones included, and with equality at grid points."""
    grid = fine_grid(pair, n_steps)
    loss = DominatingLoss.from_table(table_of(pair, grid))
    exact = float(pair.hockey_stick(gamma(epsilon)))
    assert delta_of(loss.losses(), loss.masses, loss.infinite, epsilon) >= exact - 1e-14
    for i in range(n_steps + 1):
        at_point = i * grid.step
        exact = float(pair.hockey_stick(gamma(at_point)))
        found = delta_of(loss.losses(), loss.masses, loss.infinite, at_point)
        assert exact - ULPS <= found <= exact * (1 + 1e-6) + 1e-13  # a loss may sit on the end of the grid


@searched(given(exact_pairs(), st.integers(1, 40), epsilons(3.0)), examples=40, study=100)
def test_composing_once_is_the_dominating_pair_itself(pair: ExactPair, n_steps: int, epsilon: float) -> None:
    loss = DominatingLoss.from_table(table_of(pair, fine_grid(pair, n_steps)))
    at_once = delta_of(loss.losses(), loss.masses, loss.infinite, epsilon)
    composed = Repeated([(loss, 1)]).delta(epsilon)
    assert min(at_once, 1.0) * (1 - 1e-12) <= composed <= at_once * (1 + 1e-6) + 1e-12


def test_the_supremum_of_two_profiles_becomes_one_pair_above_both() -> None:
    ends = response_pair([0] * 4, QUARTER)
    grid = grid_to(math.log(3), 80)
    joined = table_of(ends, grid).join(table_of(ends.reversed(), grid))
    loss = DominatingLoss.from_table(joined)
    for epsilon in np.linspace(0.0, 1.09, 50):
        exact = float(symmetric_hockey_stick([ends], gamma(epsilon)))
        found = delta_of(loss.losses(), loss.masses, loss.infinite, epsilon)
        assert exact <= found <= exact * 1.01 + 1e-4
    assert DominatingLoss.from_table(joined.reversed()).masses == pytest.approx(loss.masses, rel=1e-9, abs=1e-15)


# --- composition ----------------------------------------------------------------------------------


@searched(given(exact_pairs(4), st.integers(1, 25), st.integers(1, 12), st.floats(0.0, 1.0)), examples=40, study=60)
def test_composing_k_times_equals_k_single_compositions(
    pair: ExactPair, n_steps: int, times: int, share: float
) -> None:
    loss = DominatingLoss.from_table(table_of(pair, fine_grid(pair, n_steps)))
    epsilon = share * times * n_steps * loss.step
    slow = min(1.0, delta_of(*composed_one_by_one(loss, times), epsilon))
    fast = Repeated([(loss, times)]).delta(epsilon)
    pads = 1e-12 + times * 1e-13  # the bound on rounding grows with the number of compositions, also where δ is 0
    assert slow * (1 - 1e-12) <= fast <= slow * (1 + 1e-6) + pads


@pytest.mark.parametrize("times", [2, 30, 500])
def test_composition_agrees_with_dp_accounting_where_that_is_accurate(times: int) -> None:
    pair = response_pair([1, 0, 0, 0, 0, 0, 0], Fraction(7, 16))
    loss = DominatingLoss.from_table(table_of(pair, fine_grid(pair, 100)))
    theirs = as_dp_accounting(loss).self_compose(times, 1e-17)
    compared = 0
    for epsilon in np.linspace(0.0, 3.0, 13):
        delta = float(theirs.get_delta_for_epsilon(float(epsilon)))
        if delta > 1e-9:
            compared += 1
            assert Repeated([(loss, times)]).delta(float(epsilon)) == pytest.approx(delta, rel=1e-6, abs=0.0)
    assert compared >= 3


@searched(given(exact_pairs(3), st.integers(2, 4), epsilons(4.0)), examples=15, study=60)
@example(one_bit(QUARTER), 4, 2.0)
@example(response_pair([0, 1], QUARTER), 4, 0.5)
def test_composition_is_above_the_exact_product_and_within_one_percent(
    pair: ExactPair, times: int, epsilon: float
) -> None:
    loss = DominatingLoss.from_table(table_of(pair, fine_grid(pair, 3000)))
    exact = float(compose([pair] * times).hockey_stick(gamma(epsilon)))
    found = Repeated([(loss, times)]).delta(epsilon)
    assert exact <= found <= exact * 1.01 + 1e-5


@pytest.mark.parametrize(
    ("p", "times", "delta"),
    [
        (Fraction(9, 20), 20, 1e-2),
        *((Fraction(9, 20), 100, delta) for delta in (1e-2, 1e-25)),
        (Fraction(499, 1000), 1000, 1e-20),
        *(pytest.param(Fraction(9, 20), 100, delta, marks=pytest.mark.slow) for delta in (1e-8, 1e-15)),
        *(pytest.param(Fraction(9, 20), 1000, delta, marks=pytest.mark.slow) for delta in (1e-2, 1e-8, 1e-15, 1e-25)),
        pytest.param(Fraction(1, 4), 400, 1e-15, marks=pytest.mark.slow),
        pytest.param(Fraction(49, 100), 1000, 1e-15, marks=pytest.mark.slow),
    ],
)
def test_a_tiny_delta_is_as_accurate_as_a_large_one(p: Fraction, times: int, delta: float) -> None:
    """One bit sent k times: the loss is binomial, and mpmath knows δ to 60 digits."""
    end = math.log((1 - p) / p)
    loss = DominatingLoss.from_table(table_of(one_bit(p), LossGrid(step=end / 20, n_steps=21)))
    epsilon = smallest_epsilon(lambda e: Repeated([(loss, times)]).delta(e), delta, largest=1000.0)
    assert 0.0 < epsilon < 0.99 * times * end
    exact = float(repeated_response_delta(p, times, epsilon))
    assert delta * (1 - 3 * times * RELATIVE_PAD - 1e-4) <= exact <= delta
    assert exact <= Repeated([(loss, times)]).delta(epsilon) <= exact * (1 + 3 * times * RELATIVE_PAD + 1e-4)


def test_one_instance_is_not_convolved() -> None:
    p = Fraction(9, 20)
    loss = DominatingLoss.from_table(table_of(one_bit(p), grid_to(math.log((1 - p) / p), 20)))
    alone = loss.tilted_power(1, 0.5)
    assert (alone.rounding, alone.truncated) == (0.0, 0.0)
    assert 0.0 < float(1 - 2 * p) <= alone.delta(0.0) <= float(1 - 2 * p) * (1 + 1e-6)


@pytest.mark.parametrize("times", [1, 5, 200])
@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-15])
def test_composed_epsilon_is_just_large_enough(times: int, delta: float) -> None:
    p = Fraction(9, 20)
    end = math.log((1 - p) / p)
    loss = DominatingLoss.from_table(table_of(one_bit(p), LossGrid(step=end / 20, n_steps=21)))
    epsilon = Repeated([(loss, times)]).epsilon(delta)
    assert repeated_response_delta(p, times, epsilon) <= delta
    assert repeated_response_delta(p, times, epsilon * 0.998) > delta


def test_composed_epsilon_exists_for_a_delta_far_below_the_floor_of_doubles() -> None:
    p = Fraction(9, 20)
    end = math.log((1 - p) / p)
    loss = DominatingLoss.from_table(table_of(one_bit(p), LossGrid(step=end / 20, n_steps=21)))
    assert Repeated([(loss, 100)]).delta(18.43) < 1e-21
    assert Repeated([(loss, 100)]).epsilon(1e-21) < 18.44


@pytest.mark.filterwarnings("error")
def test_composition_is_silent() -> None:
    loss = DominatingLoss.from_table(table_of(one_bit(Fraction(9, 20)), grid_to(math.log(11 / 9), 20)))
    assert Repeated([(loss, 1)]).epsilon(1e-9) == pytest.approx(math.log(11 / 9), rel=1e-3)


def test_composed_epsilon_is_infinite_if_the_infinite_mass_is_too_large() -> None:
    pair = ExactPair(upper=(QUARTER, 1 - QUARTER, Fraction(0)), lower=(Fraction(0), 1 - QUARTER, QUARTER))
    loss = DominatingLoss.from_table(table_of(pair, grid_to(1.0, 10)))
    assert Repeated([(loss, 2)]).epsilon(0.4) == math.inf
    exact = float(compose([pair, pair]).hockey_stick(gamma(0.1)))
    assert exact == 1 - 0.75**2
    assert Repeated([(loss, 2)]).delta(0.1) == pytest.approx(exact, rel=1e-6)


@searched(given(exact_pairs(5), st.integers(1, 20), epsilons(3.0)), examples=20, study=60)
def test_more_instances_never_lower_delta(pair: ExactPair, times: int, epsilon: float) -> None:
    loss = DominatingLoss.from_table(table_of(pair, fine_grid(pair, 50)))
    fewer, more = (Repeated([(loss, k)]).delta(epsilon) for k in (times, times + 1))
    assert fewer <= more * (1 + 1e-9) + 1e-14


def test_a_loss_composed_near_one_epsilon_is_an_upper_bound_at_others() -> None:
    p = Fraction(9, 20)
    end = math.log((1 - p) / p)
    loss = DominatingLoss.from_table(table_of(one_bit(p), LossGrid(step=end / 10, n_steps=10)))
    composed = Repeated([(loss, 100)]).compose(10.0)
    assert composed.tilt > 0.0
    for epsilon in (0.0, 1.0, 5.0, 10.0, 19.0, 20.5):
        assert repeated_response_delta(p, 100, epsilon) <= composed.delta(epsilon)


# --- any kind, in any direction, chosen adaptively ------------------------------------------------

N_USERS = 5
STEPS = 120
KINDS = response_pairs(N_USERS, QUARTER)
GRID = grid_to(math.log(3), STEPS)
TABLES = [table_of(pair, GRID) for pair in KINDS[: (N_USERS + 1) // 2]]
"""m and n − 1 − m ones are each other's reversal: half of the kinds are all of them."""


def supremum(kinds: Sequence[ProfileTable], times: int, tilt: float = 1.0) -> ProfileTable:
    reach = times * kinds[0].grid.step * kinds[0].grid.n_steps
    return adaptive_supremum(kinds, times, tilt=tilt, largest_epsilon=reach)[-1]


def test_reversing_swaps_ones_and_zeros_of_the_others() -> None:
    for m in range(N_USERS):
        assert KINDS[m].upper == KINDS[N_USERS - 1 - m].lower[::-1]


@pytest.mark.parametrize("times", [1, 2, 7, 24])
def test_one_symmetric_kind_is_plain_composition(times: int) -> None:
    table = table_of(one_bit(QUARTER), GRID)
    loss = DominatingLoss.from_table(table)
    tightness = 1 + 3 * times * RELATIVE_PAD + 1e-9
    compared = 0
    for i in range(0, times * STEPS, max(1, times // 4) * STEPS // 4):
        epsilon = i * GRID.step
        profile = supremum([table], times, Repeated([(loss, times)]).chernoff_tilt(epsilon))
        exact = float(repeated_response_delta(QUARTER, times, epsilon))
        compared += exact > 0
        assert profile.grid.n_steps == times * STEPS
        assert np.array_equal(profile.forward, profile.backward)
        assert exact <= profile.forward[i] <= exact * tightness + 1e-13
        assert exact <= Repeated([(loss, times)]).delta(epsilon) <= exact * tightness
    assert compared >= 4


@pytest.mark.parametrize("tilt", [0.0, 0.3, 1.0, 3.0])
def test_an_unfit_tilt_costs_accuracy_and_never_the_bound(tilt: float) -> None:
    profile = supremum([table_of(one_bit(QUARTER), GRID)], 24, tilt).forward
    for i in range(0, 24 * STEPS, STEPS):
        assert repeated_response_delta(QUARTER, 24, i * GRID.step) <= profile[i]


@pytest.mark.parametrize("tilt", [0.3, 1.0])
def test_the_rounding_of_every_transform_is_charged(tilt: float) -> None:
    """Far below 1e-16 the transforms' noise shows: without its bound δ would be up to 7e-4 of itself too small."""
    p = Fraction(9, 20)
    end = math.log((1 - p) / p)
    table = table_of(one_bit(p), LossGrid(step=end / 10, n_steps=11))
    profile = adaptive_supremum([table], 100, tilt=tilt, largest_epsilon=120 * end)[-1].forward
    smallest = 1.0
    for i in range(0, 1000, 8):
        exact = float(repeated_response_delta(p, 100, i * end / 10, digits=25))
        smallest = min(smallest, exact)
        assert exact <= profile[i]
    assert 0 < smallest < 1e-25


@pytest.mark.parametrize("times", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_it_dominates_every_sequence_of_kinds_and_directions(times: int) -> None:
    """All n^k sequences of m: since reversing m gives n − 1 − m, these are all directions too."""
    profile = supremum(TABLES, times).forward
    sequences = list(itertools.combinations_with_replacement(range(N_USERS), times))  # order does not matter
    composed = {ms: compose([KINDS[m] for m in ms]) for ms in sequences}
    worst: set[tuple[int, ...]] = set()
    for i in range(0, times * STEPS, STEPS // 4):
        found = {ms: pair.hockey_stick(gamma(i * GRID.step)) for ms, pair in composed.items()}
        largest = max(found.values())
        worst |= {ms for ms, value in found.items() if value == largest > 0}
        assert float(largest) <= profile[i] <= 1.25 * float(largest) + 1e-9
    assert len(worst) >= 3, "the same sequence was always the worst: nothing was tested"
    assert any(len(set(ms)) > 1 for ms in worst), "only equal kinds were ever the worst"


@pytest.mark.parametrize("times", [1, 2, 3])
def test_it_is_the_exact_adaptive_supremum(times: int) -> None:
    """The same recursion in fractions, without a grid, is met from above and within one percent."""
    profile = supremum(TABLES, times).forward
    for i in (0, STEPS // 4, STEPS // 2, STEPS, 3 * STEPS // 2):
        if i < times * STEPS:
            exact = float(adaptive_hockey_stick(KINDS[: len(TABLES)], times, gamma(i * GRID.step)))
            assert exact <= profile[i] <= exact * 1.01
    if times == 2:
        fixed = max(
            compose([KINDS[a], KINDS[b]]).hockey_stick(gamma(STEPS // 2 * GRID.step))
            for a in range(N_USERS)
            for b in range(N_USERS)
        )
        assert profile[STEPS // 2] > 1.01 * float(fixed), "choosing adaptively made no difference"


@pytest.mark.parametrize("times", [2, 6, pytest.param(20, marks=pytest.mark.slow)])
def test_it_lies_between_the_homogeneous_ones_and_the_joined_table(times: int) -> None:
    profile = supremum(TABLES, times).forward
    joined = reduce(ProfileTable.join, [one for table in TABLES for one in (table, table.reversed())])
    above = composed_one_by_one(DominatingLoss.from_table(joined), times)
    gains = []
    for i in range(0, times * STEPS, STEPS // 2):
        epsilon = i * GRID.step
        for table in TABLES:
            for one in (table, table.reversed()):
                homogeneous = delta_of(*composed_one_by_one(DominatingLoss.from_table(one), times), epsilon)
                assert profile[i] >= min(1.0, homogeneous) * (1 - 1e-12)
        upper = delta_of(*above, epsilon)
        assert profile[i] <= upper * (1 + 1e-9) + 1e-9
        gains.append(upper / profile[i])
    assert max(gains) > 1.01, "the supremum after each instance gained nothing over the joined table"


def test_the_order_of_the_kinds_does_not_matter() -> None:
    one = supremum(TABLES, 5).forward
    other = supremum([table.reversed() for table in TABLES[::-1]], 5).forward
    assert np.allclose(one, other, rtol=1e-12, atol=1e-15)


def test_a_range_cut_short_is_charged_and_stays_an_upper_bound() -> None:
    whole = supremum(TABLES, 6).forward
    cut = adaptive_supremum(TABLES, 6, tilt=1.0, largest_epsilon=2 * STEPS * GRID.step)[-1]
    assert cut.grid.n_steps == 2 * STEPS
    assert np.all(cut.forward >= whole[: 2 * STEPS + 1] * (1 - 1e-12))
    assert cut.forward[0] < 1.0


def test_blocks_compose_to_an_upper_bound() -> None:
    """The block's table is a profile again: four blocks of three bound twelve instances."""
    block = DominatingLoss.from_table(supremum(TABLES, 3))
    whole = supremum(TABLES, 12).forward
    for i in range(0, 6 * STEPS, STEPS):
        assert whole[i] * (1 - 1e-12) <= Repeated([(block, 4)]).delta(i * GRID.step) <= whole[i] * 1.2


def supremum_and_exact(one: ExactPair, other: ExactPair, i: int) -> tuple[float, float]:
    """Three instances of either kind at the i-th grid point: the fast bound and the recursion in fractions."""
    grid = grid_to(5.0, 200)
    found = supremum([table_of(one, grid), table_of(other, grid)], 3).forward[i]
    return float(found), float(adaptive_hockey_stick([one, other], 3, gamma(i * grid.step)))


@given(exact_pairs(3), exact_pairs(3), st.integers(0, 120))
@settings(max_examples=30, deadline=None)
def test_random_kinds_with_infinite_losses_are_dominated(one: ExactPair, other: ExactPair, i: int) -> None:
    """Only from above: the worst finite and the worst infinite part are added even if no kind has both."""
    found, exact = supremum_and_exact(one, other, i)
    assert exact <= found


@given(exact_pairs(3, infinite_losses=False), exact_pairs(3, infinite_losses=False), st.integers(0, 120))
@settings(max_examples=30, deadline=None)
def test_random_kinds_are_met_closely(one: ExactPair, other: ExactPair, i: int) -> None:
    found, exact = supremum_and_exact(one, other, i)
    assert exact <= found <= exact * 1.02 + 1e-3
