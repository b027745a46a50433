"""Most messages of one user: never below the exact tail of small laws, found by convolution, and not far above it."""

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import given, target
from hypothesis import strategies as st
from numpy.typing import NDArray

from accounting.mechanisms import (
    BitsumProtocol,
    NegativeBinomialNoise,
    PoissonNoise,
    Pure,
    RandomizedResponse,
    ThreeNegativeBinomial,
)
from accounting.numerics import tails
from accounting.request import LARGEST_EPSILON, LONGEST_SCHEDULE, MOST_USERS
from tests.privkde.unplanned import small_laws
from tests.strategies import searched

Law = NDArray[np.float64]
WINDOW = 6_000


def noise(ratio: Callable[[int], float], first: float, step: int = 1) -> Law:
    """P(step·k) from P(0) and the ratios P(k+1)/P(k)."""
    law, mass = np.zeros(WINDOW), first
    for k in range(WINDOW // step):
        law[step * k] = mass
        mass *= ratio(k)
    return law


def negative_binomial(shape: float, p: float, step: int = 1) -> Law:
    return noise(lambda k: p * (shape + k) / (k + 1), (1.0 - p) ** shape, step)


def sent(law: BitsumProtocol) -> list[Law]:
    """What one user with a bit of 1 sends in one instance: independent parts, written from what each protocol says."""
    n, one = law.n_users, np.eye(1, WINDOW, 1)[0]
    if isinstance(law, PoissonNoise):
        rate = law.total_mean / n
        return [one, noise(lambda k: rate / (k + 1), math.exp(-rate))]
    if isinstance(law, NegativeBinomialNoise):
        return [one, negative_binomial(law.shape / n, law.continue_probability)]
    if isinstance(law, ThreeNegativeBinomial):
        single = negative_binomial(law.noise_shape / n, law.continue_probability)
        flood = negative_binomial(law.flood_shape / n, law.flood_continue_probability, 2)
        return [one, single, single, flood]
    assert isinstance(law, Pure)
    single = negative_binomial(1.0 / n, math.exp(-law.noise_epsilon))
    flood = negative_binomial(law.flood_shape / n, law.flood_continue_probability, 2)
    spoken = np.eye(1, WINDOW, 2 * law.base_messages + 1)[0] * (1.0 - law.silence_probability)
    spoken[0] = law.silence_probability
    return [spoken, single, single, flood]


def tail(law: BitsumProtocol, n_instances: int) -> Law:
    """P(more than m) for every m; sums of positive numbers, so that even the smallest are accurate."""
    total = np.eye(1, WINDOW, 0)[0]
    for part in sent(law) * n_instances:
        short = part[: 1 + int(np.flatnonzero(part > 1e-300)[-1])]
        total = np.convolve(total, short)[:WINDOW]
    return np.append(np.cumsum(total[::-1])[::-1], 0.0)[1:]


def bounded(law: BitsumProtocol, n_instances: int, exponent: float) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tails, "OVERLONG_EXPONENT", exponent)
        return law.most_messages(n_instances)


def require_bound(law: BitsumProtocol, n_instances: int, exponent: float) -> float:
    """The exact tail keeps the bound; how many times the least possible limit the limit is."""
    exact, most = tail(law, n_instances), bounded(law, n_instances, exponent)
    assert most < WINDOW / 2, "the window shows the tail"
    assert 0.0 < exact[most] <= math.exp(-exponent)
    least = int(np.flatnonzero(exact <= math.exp(-exponent))[0])
    assert most >= least
    return most / least


@pytest.mark.parametrize("exponent", [1.0, 30.0, 200.0])
@pytest.mark.parametrize("n_instances", [1, 4])
@pytest.mark.parametrize("n_users", [2, 7, 600])
@pytest.mark.parametrize("name", ["poisson", "negative-binomial", "3nb", "pure"])
def test_exact_tails_keep_the_bound_and_it_is_not_far_above_them(
    name: str, n_users: int, n_instances: int, exponent: float
) -> None:
    assert require_bound(small_laws(n_users)[name], n_instances, exponent) <= (2.0 if exponent > 20.0 else 8.0)


probabilities = st.floats(1e-3, 0.9)
laws = st.one_of(
    st.builds(PoissonNoise, n_users=st.integers(2, 50), total_mean=st.floats(1e-3, 200.0)),
    st.builds(
        NegativeBinomialNoise,
        n_users=st.integers(2, 50),
        shape=st.floats(1.0, 50.0),
        continue_probability=probabilities,
    ),
    st.builds(
        ThreeNegativeBinomial,
        n_users=st.integers(2, 50),
        noise_shape=st.integers(1, 8),
        continue_probability=probabilities,
        flood_shape=st.floats(1.0, 20.0),
        flood_continue_probability=probabilities,
    ),
)


@searched(
    given(law=laws, n_instances=st.integers(1, 4), exponent=st.floats(0.5, 100.0)),
    examples=40,
    study=3_000,
)
def test_no_law_is_found_that_exceeds_its_bound(law: BitsumProtocol, n_instances: int, exponent: float) -> None:
    """The search climbs toward tails that come near to what is allowed."""
    exact, most = tail(law, n_instances), bounded(law, n_instances, exponent)
    assert most < WINDOW
    if exact[most] > 0.0:
        target(math.log(exact[most]) + exponent)
    assert exact[most] <= math.exp(-exponent)


def test_a_bound_without_the_bit_or_with_half_the_flood_would_be_refuted() -> None:
    """The negative control: with moments that forget something, the exact tail is above what is allowed."""
    law = ThreeNegativeBinomial(
        n_users=2, noise_shape=1, continue_probability=0.5, flood_shape=4.0, flood_continue_probability=0.5
    )

    def forgetful(rate: float) -> float:
        single = tails.negative_binomial_moment(1.0, 1.0, rate)
        return rate + single + tails.negative_binomial_moment(2.0, 1.0, rate)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tails, "OVERLONG_EXPONENT", 30.0)
        most = tails.most_messages(2, forgetful)
    assert tail(law, 2)[most] > math.exp(-30.0)


def test_the_bound_that_is_used_holds_to_its_last_digit() -> None:
    """Poisson(5) at e^−900, by a sum of 50 digits."""
    law = PoissonNoise(n_users=10, total_mean=10.0)
    most = law.most_messages(5)
    with mpmath.workdps(50):
        terms = (mpmath.exp(-5) * mpmath.mpf(5) ** k / mpmath.factorial(k) for k in range(most - 4, most + 200))
        exact = mpmath.fsum(terms)
        assert mpmath.mpf(0) < exact <= mpmath.exp(-900)
        assert mpmath.fsum([exact, mpmath.exp(-5) * mpmath.mpf(5) ** (0.8 * most) / mpmath.gamma(0.8 * most)]) > (
            mpmath.exp(-900)
        ), "a limit of four fifths would be too low"


def test_what_refusals_cost_changes_no_float() -> None:
    exponent = math.log(MOST_USERS) + math.log(LONGEST_SCHEDULE) + LARGEST_EPSILON + 1e-9 - tails.OVERLONG_EXPONENT
    assert exponent < -1075.0 * math.log(2.0)
    with mpmath.workprec(2_000):
        for delta in (0.0, 5e-324, 1e-300, 1e-6, 0.5):
            assert float(mpmath.mpf(delta) + mpmath.exp(exponent)) == delta


def test_randomized_response_sends_exactly_one_message_in_each_instance() -> None:
    assert RandomizedResponse(n_users=5, flip_probability=0.25).most_messages(768) == 768


@pytest.mark.parametrize(
    "law",
    [
        PoissonNoise(n_users=2, total_mean=1e16),
        NegativeBinomialNoise(n_users=2, shape=1e16, continue_probability=1.0 - 1e-12),
        ThreeNegativeBinomial(
            n_users=2, noise_shape=8, continue_probability=1.0 - 1e-12, flood_shape=1e9,
            flood_continue_probability=1.0 - 1e-12,
        ),
        PoissonNoise(n_users=10**12, total_mean=1e-300),
    ],
    ids=lambda law: law.name,
)  # fmt: skip
def test_the_widest_and_the_narrowest_laws_have_a_bound(law: BitsumProtocol) -> None:
    expected = 1000 * law.messages_per_user(1.0)
    assert expected < law.most_messages(1000) < 2.0 * expected + 2e18
