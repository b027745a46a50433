"""Poisson and negative binomial noise on one count: laws against mpmath, error, messages, contracts."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidInputError
from accounting.guarantee import View
from accounting.mechanisms import RandomizedResponse, ThreeNegativeBinomial, single_noise
from accounting.mechanisms.single_noise import NegativeBinomialNoise, PoissonNoise, SingleNoise
from accounting.numerics import pmf
from accounting.numerics.pmf import Pmf
from tests.slow_twins import shift_hockey_stick
from verification.exact.brute_force import Mass, precise_negative_binomial, precise_poisson, table

ENOUGH = 60
"""Deviations (and a margin) beyond which nothing of the exact laws is left that 1e-40 could see."""


def poisson(mean: float, n_users: int = 100) -> PoissonNoise:
    return PoissonNoise(n_users=n_users, total_mean=mean)


def negative_binomial(shape: float, p: float, n_users: int = 100) -> NegativeBinomialNoise:
    return NegativeBinomialNoise(n_users=n_users, shape=shape, continue_probability=p)


LAWS: list[tuple[SingleNoise, Mass]] = [
    *((poisson(mean), precise_poisson(mean)) for mean in (0.5, 3.0, 50.0, 1000.0)),
    *(
        (negative_binomial(shape, p), precise_negative_binomial(shape, p))
        for shape, p in ((1.0, 0.5), (1.5, 0.9), (30.0, 0.3), (200.0, 0.5), (8.0, 0.95))
    ),
]


def length(law: SingleNoise) -> int:
    deviation = math.sqrt(law.variance(law.n_users))
    tail = 100.0 / -math.log(law.continue_probability) if isinstance(law, NegativeBinomialNoise) else 100.0
    return int(law.noise_mean() + ENOUGH * min(deviation, 12.0 + deviation / 4) + tail)


def exact_sticks(law: SingleNoise, mass: Mass, epsilon: float) -> tuple[Any, Any]:
    return shift_hockey_stick(mass, epsilon, length(law))


@pytest.mark.parametrize(("law", "mass"), [*LAWS[:-1], pytest.param(*LAWS[-1], marks=pytest.mark.slow)])
def test_delta_is_the_exact_one_rounded_up(law: SingleNoise, mass: Mass) -> None:
    """Both directions from pmf ratios at 40 digits, down to δ = 1e-20."""
    (pair,) = law.pairs()
    scale = 1.0 / math.sqrt(law.variance(law.n_users))
    compared = 0
    for deviations in (0.0, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0):
        epsilon = deviations * scale
        exact = exact_sticks(law, mass, epsilon)
        for found, true in zip((pair.hockey_stick(epsilon), pair.reversed().hockey_stick(epsilon)), exact, strict=True):
            compared += true > 1e-20
            assert true * (1 - mpmath.mpf(10) ** -15) <= found <= true * (1 + 1e-8) + 1e-30
        assert max(exact) * (1 - mpmath.mpf(10) ** -15) <= law.delta(epsilon) <= max(exact) * (1 + 1e-8) + 1e-30
    assert compared >= 6


def test_one_direction_alone_would_understate_delta() -> None:
    """Few messages speak for the bit 0 more loudly than many speak for 1: (A_0, A_1) is the worse direction."""
    for law in (poisson(50.0), negative_binomial(30.0, 0.3)):
        (pair,) = law.pairs()
        assert law.delta(0.4) == pair.reversed().hockey_stick(0.4)
        assert 0.0 < pair.hockey_stick(0.4) < 0.1 * law.delta(0.4)


def test_the_two_laws_are_shifts_of_one_another() -> None:
    for law, mass in LAWS[:3]:
        (pair,) = law.pairs()
        start = law.noise().start
        exact = table(mass, 40)
        assert start == 0
        assert pair.lower[:30] == pytest.approx(exact[:30], rel=1e-11)
        assert pair.upper[0] == 0.0
        assert pair.upper[1:31] == pytest.approx(exact[:30], rel=1e-11)


@pytest.mark.parametrize("tail", [1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize(("law", "mass"), [LAWS[3], LAWS[7]])
def test_mass_outside_the_window_is_charged(
    law: SingleNoise, mass: Mass, tail: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With windows cut visibly short δ never falls below the exact value; uncharged it does."""

    def cut(full: Callable[..., Pmf], *parameters: float) -> Pmf:
        whole = full(*parameters)
        masses = np.cumsum(whole.values)
        first, last = int(np.searchsorted(masses, tail / 2)), int(np.searchsorted(masses, 1 - tail / 2))
        kept = whole.values[first:last]
        return Pmf(start=whole.start + first, values=kept, missing=1.0 - float(np.sum(kept)) + 1e-15)

    monkeypatch.setattr(single_noise, "poisson", partial(cut, pmf.poisson))
    monkeypatch.setattr(single_noise, "negative_binomial", partial(cut, pmf.negative_binomial))
    (pair,) = law.pairs()
    assert pair.missing > tail / 2
    scale = 1.0 / math.sqrt(law.variance(law.n_users))
    below = 0
    for deviations in (0.0, 1.0, 2.0, 3.0, 5.0):
        exact = exact_sticks(law, mass, deviations * scale)
        for one, true in zip((pair, pair.reversed()), exact, strict=True):
            excess = one.upper - math.exp(deviations * scale) * one.lower
            assert one.hockey_stick(deviations * scale) >= true
            below += float(np.sum(np.maximum(excess, 0.0)[1:-1])) < true
    assert below >= 2


@pytest.mark.parametrize("mean", [200.0, 5000.0])
def test_a_negative_binomial_with_a_small_continuation_is_nearly_poisson(mean: float) -> None:
    rmse = math.sqrt(mean)
    near, far = (NegativeBinomialNoise.with_rmse(rmse, 100, continue_probability=p) for p in (1e-4, 0.3))
    limit = PoissonNoise.with_rmse(rmse, 100)
    for deviations in (1.0, 3.0, 5.0):
        epsilon = deviations / rmse
        assert limit.delta(epsilon) > 1e-12
        assert near.delta(epsilon) == pytest.approx(limit.delta(epsilon), rel=2e-2)
        assert far.delta(epsilon) > limit.delta(epsilon)
    assert far.delta(5.0 / rmse) > 1.05 * limit.delta(5.0 / rmse)
    assert near.noise_mean() == pytest.approx(limit.noise_mean(), rel=1e-3)


# --- error and messages ---------------------------------------------------------------------------


@pytest.mark.parametrize(("law", "mass"), LAWS)
def test_mean_variance_and_messages_are_those_of_the_law(law: SingleNoise, mass: Mass) -> None:
    masses = table(mass, length(law))
    counts = np.arange(len(masses))
    mean = float(np.sum(masses * counts))
    assert law.noise_mean() == pytest.approx(mean, rel=1e-11)
    assert law.variance(law.n_users) == pytest.approx(float(np.sum(masses * (counts - mean) ** 2)), rel=1e-10)
    assert law.rmse() ** 2 == pytest.approx(law.variance(law.n_users), rel=1e-14)
    for bit in (0.0, 0.5, 1.0):
        assert law.messages_per_user(bit) == pytest.approx(bit + mean / law.n_users, rel=1e-11)


@pytest.mark.parametrize("law", [law for law, _ in LAWS])
def test_the_shares_add_up_to_the_total(law: SingleNoise) -> None:
    """Per-user parameters are the total's over n: means and variances of n shares are those of the sum."""
    shares = law.parameters()
    if isinstance(law, PoissonNoise):
        assert shares["mean_per_user"] * law.n_users == pytest.approx(law.total_mean, rel=1e-15)
    else:
        assert isinstance(law, NegativeBinomialNoise)
        assert shares["shape_per_user"] * law.n_users == pytest.approx(law.shape, rel=1e-15)
        assert shares["continue_probability"] == law.continue_probability
    assert law.variance(250) == pytest.approx(2.5 * law.variance(100), rel=1e-14)


def test_three_shares_convolve_to_the_total() -> None:
    for share, total in (
        (precise_poisson(0.4), precise_poisson(1.2)),
        (precise_negative_binomial(0.5, 0.4), precise_negative_binomial(1.5, 0.4)),
    ):
        one = table(share, 60)
        assert np.convolve(np.convolve(one, one), one)[:60] == pytest.approx(table(total, 60), rel=1e-12, abs=1e-25)


@given(st.floats(-1, 5).map(lambda x: 10.0**x), st.floats(0.01, 0.99))
def test_with_rmse_round_trip(rmse: float, p: float) -> None:
    assert PoissonNoise.with_rmse(rmse, 10).rmse() == pytest.approx(rmse, rel=1e-14)
    if rmse * rmse * (1 - p) ** 2 / p >= 1.0:
        assert NegativeBinomialNoise.with_rmse(rmse, 10, continue_probability=p).rmse() == pytest.approx(
            rmse, rel=1e-13
        )
    else:
        with pytest.raises(InvalidInputError, match="shape="):
            NegativeBinomialNoise.with_rmse(rmse, 10, continue_probability=p)


def test_more_noise_helps() -> None:
    assert poisson(200.0).delta(0.3) < 0.5 * poisson(100.0).delta(0.3)
    assert negative_binomial(60.0, 0.5).delta(0.5) < 0.5 * negative_binomial(30.0, 0.5).delta(0.5)


# --- contract -------------------------------------------------------------------------------------


def test_epsilon_is_just_large_enough() -> None:
    for law, _ in LAWS[2:]:
        for delta in (1e-3, 1e-8):
            epsilon = law.epsilon(delta)
            if math.isfinite(epsilon):
                assert law.delta(epsilon) <= delta < law.delta(epsilon * (1 - 1e-6))
    assert poisson(0.5).epsilon(1e-3) == math.inf  # an empty count gives the zero away


def test_the_contract_promises_nothing_without_the_shuffler() -> None:
    contract = poisson(1000.0).contract(0.2, 1e-6)
    assert [g.view for g in contract.guarantees] == [View.COMMUNICATION, View.LOCAL]
    assert contract.guarantees[1].is_empty
    assert "count" in contract.evidence.method


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, True, "1"])
def test_a_mean_outside_the_law_is_rejected(bad: object) -> None:
    with pytest.raises(InvalidInputError, match="total_mean="):
        PoissonNoise(n_users=3, total_mean=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "p", "name"),
    [
        (0.99, 0.5, "shape="),
        (math.nan, 0.5, "shape="),
        (2.0, 0.0, "continue_probability="),
        (2.0, 1.0, "continue_probability="),
    ],
)
def test_negative_binomials_outside_the_law_are_rejected(shape: float, p: float, name: str) -> None:
    with pytest.raises(InvalidInputError, match=name):
        negative_binomial(shape, p)


@pytest.mark.parametrize(("n_instances", "bits"), [(1, 1), (2, 2), (3, 3), (4, 3), (768, 11), (1024, 11), (1025, 12)])
def test_bits_name_the_instance_and_the_content(n_instances: int, bits: int) -> None:
    assert ThreeNegativeBinomial.message_bits(n_instances) == bits
    assert PoissonNoise.message_bits(n_instances) == max(1, bits - 1)
    assert RandomizedResponse.message_bits(n_instances) == 1, "in order they need no names"
