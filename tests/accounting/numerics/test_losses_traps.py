"""Traps of dp-accounting 0.6, one by one: that each still exists, and that our wrapper does not fall into it.

If a first half fails after an upgrade, the trap was mended upstream: celebrate and simplify. If a second half
fails, a number we publish is wrong.
"""

import math
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

from accounting.mechanisms.randomized_response import RandomizedResponse
from accounting.numerics.losses import DominatingLoss, Repeated
from accounting.numerics.pmf import Array, binomial
from accounting.numerics.profile import LossGrid, Pair, ProfileTable, smallest_epsilon, symmetric_delta
from tests.slow_twins import repeated_response_delta, response_pair
from verification.exact.rational_twins import ExactPair


def log_masses(law: Array) -> dict[int, float]:
    """A law as dp-accounting wants it."""
    return {i: math.log(mass) for i, mass in enumerate(law.tolist()) if mass > 0.0}


def rounded(pair: ExactPair) -> Pair:
    return Pair(upper=np.array([float(x) for x in pair.upper]), lower=np.array([float(x) for x in pair.lower]))


def dominating(pair: Pair, step: float, n_steps: int) -> DominatingLoss:
    return DominatingLoss.from_table(ProfileTable.of_pair(pair, LossGrid(step=step, n_steps=n_steps)))


def as_dp_accounting(loss: DominatingLoss) -> pld_pmf.DensePLDPmf:
    """The same loss distribution as an object of dp-accounting."""
    return pld_pmf.DensePLDPmf(loss.step, -loss.n_steps, loss.masses.copy(), loss.infinite, True)


def true_epsilon(p: Fraction, times: int, delta: float) -> float:
    """Of one bit sent `times` times, to about ten digits, from the closed form."""
    return smallest_epsilon(lambda e: float(repeated_response_delta(p, times, e, digits=25)), delta)


# --- SelfComposedDpEvent(RandomizedResponseDpEvent) forgets the count -----------------------------


def accountants_epsilon(times: int) -> float:
    """dp-accounting's ε at δ = 1e-6 for one bit flipped with probability 1/4 (noise 1/2 over 2 buckets)."""
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    event = dp_accounting.RandomizedResponseDpEvent(0.5, 2)
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, times))
    return float(accountant.get_epsilon(1e-6))


def test_trap_a_repeated_randomized_response_counts_once() -> None:
    assert accountants_epsilon(1) == pytest.approx(math.log(3), abs=1e-3)
    assert accountants_epsilon(20) == pytest.approx(accountants_epsilon(1))
    assert true_epsilon(Fraction(1, 4), 20, 1e-6) > 15.0


def test_we_count_every_repetition() -> None:
    loss = dominating(RandomizedResponse(n_users=1, flip_probability=0.25).pair(0), math.log(3) / 50, 51)
    epsilon = Repeated([(loss, 20)]).epsilon(1e-6)
    assert repeated_response_delta(Fraction(1, 4), 20, epsilon) <= 1e-6
    assert epsilon <= true_epsilon(Fraction(1, 4), 20, 1e-6) * (1 + 1e-4)


# --- symmetric=True builds one direction only -----------------------------------------------------

LOPSIDED = response_pair([0, 0, 0, 0], Fraction(1, 4))
"""Four others at 0: at ε = 0.7 the direction (bit 0, bit 1) is worse than (bit 1, bit 0) by half."""
EPSILON = 0.7


def test_trap_a_symmetric_distribution_holds_one_direction_only() -> None:
    fast = rounded(LOPSIDED)
    gamma = Fraction(math.exp(EPSILON))
    weak, strong = sorted((LOPSIDED.hockey_stick(gamma), LOPSIDED.reversed().hockey_stick(gamma)))
    assert weak == LOPSIDED.hockey_stick(gamma) < Fraction(8, 10) * strong
    build = privacy_loss_distribution.from_two_probability_mass_functions
    found = build(log_masses(fast.lower), log_masses(fast.upper), symmetric=True).get_delta_for_epsilon(EPSILON)
    assert float(weak) <= found < 0.9 * float(strong)


def test_we_take_both_directions() -> None:
    strong = float(LOPSIDED.reversed().hockey_stick(Fraction(math.exp(EPSILON))))
    assert symmetric_delta([rounded(LOPSIDED)], EPSILON) >= strong
    law = RandomizedResponse(n_users=5, flip_probability=0.25)
    assert law.likely_delta(EPSILON) >= strong
    assert law.delta(EPSILON) >= strong
    assert all(
        max(float(kind.forward[0]), float(kind.backward[0])) > 0
        and not np.allclose(kind.forward, kind.backward, rtol=0.05)
        for kind in law.kinds(LossGrid(step=0.1, n_steps=11))
    ), "a kind keeps its two directions apart"


# --- pmfs are not validated, missing mass is not counted ------------------------------------------


def test_trap_half_a_law_is_accepted_and_its_other_half_forgotten() -> None:
    """Two laws without their only distinguishing outcomes: dp-accounting sees perfect privacy."""
    upper, lower = np.array([0.5, 0.5, 0.0]), np.array([0.5, 0.0, 0.5])
    build = privacy_loss_distribution.from_two_probability_mass_functions
    whole = build(log_masses(lower), log_masses(upper))
    assert whole.get_delta_for_epsilon(0.1) == pytest.approx(0.5)
    half = build(log_masses(lower[:1]), log_masses(upper[:1]))
    assert half.get_delta_for_epsilon(0.1) == 0.0
    masses = pld_pmf.create_pmf({0: 0.1}, 1.0, 0.0, True)
    assert masses.get_delta_for_epsilon(0.1) == 0.0, "a tenth of a law is a law"


def test_we_charge_missing_mass_to_infinite_loss() -> None:
    half = Pair(upper=np.array([0.5]), lower=np.array([0.5]), missing=0.5)
    assert half.hockey_stick(0.1) >= 0.5
    loss = dominating(half, 0.1, 5)
    assert loss.infinite >= 0.5
    assert Repeated([(loss, 2)]).delta(0.1) >= 1 - 0.5**2


@pytest.mark.parametrize("n_users", [10**5, pytest.param(10**6, marks=pytest.mark.slow)])
def test_the_mass_that_long_laws_leave_out_is_charged(n_users: int) -> None:
    law = RandomizedResponse(n_users=n_users, flip_probability=0.3)
    assert binomial(n_users - 1, 0.3).missing > 0.0
    assert law.pair(0).missing > 0.0
    assert law.delta(5.0) >= law.pair(0).missing


def test_we_validate_laws() -> None:
    with pytest.raises(ValueError, match=r"missing|sum|mass"):
        Pair(upper=np.array([0.5]), lower=np.array([0.5]))


# --- rounding a pmf biases ε by up to T·h; connect the dots does not ------------------------------

P = Fraction(9, 20)
TIMES, STEP, DELTA = 50, 0.02, 1e-6


def test_trap_rounding_the_losses_up_costs_up_to_times_step() -> None:
    fast = rounded(response_pair([], P))
    build = privacy_loss_distribution.from_two_probability_mass_functions
    coarse = build(log_masses(fast.lower), log_masses(fast.upper), value_discretization_interval=STEP)
    bias = float(coarse.self_compose(TIMES).get_epsilon_for_delta(DELTA)) - true_epsilon(P, TIMES, DELTA)
    assert 0.4 * TIMES * STEP < bias <= TIMES * STEP


def test_we_connect_the_dots() -> None:
    """The same coarse grid, which the loss 0.2007 misses by nearly a whole step."""
    loss = dominating(rounded(response_pair([], P)), STEP, 11)
    epsilon = Repeated([(loss, TIMES)]).epsilon(DELTA)
    assert repeated_response_delta(P, TIMES, epsilon) <= DELTA
    assert epsilon - true_epsilon(P, TIMES, DELTA) < 0.05 * TIMES * STEP


# --- a floor near δ = 1e-15 -----------------------------------------------------------------------

FAR = 18.0
"""After 100 repetitions at P the true δ is about 1e-20 here."""


def test_trap_nothing_is_known_below_the_floor() -> None:
    loss = dominating(rounded(response_pair([], P)), math.log(11 / 9) / 20, 21)
    truth = float(repeated_response_delta(P, 100, FAR))
    assert 1e-22 < truth < 1e-18
    theirs = as_dp_accounting(loss)
    assert theirs.self_compose(100).get_delta_for_epsilon(FAR) >= 1e-15
    # Without truncation it is rounding noise, of either sign.
    assert abs(float(theirs.self_compose(100, 0.0).get_delta_for_epsilon(FAR)) / truth - 1) > 1.0


def test_we_resolve_far_below_the_floor() -> None:
    loss = dominating(rounded(response_pair([], P)), math.log(11 / 9) / 20, 21)
    truth = float(repeated_response_delta(P, 100, FAR))
    assert truth <= Repeated([(loss, 100)]).delta(FAR) <= truth * 1.001
