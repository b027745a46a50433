"""Windows of integer laws, compared with mpmath at 50 digits: in the middle, in the tails and outside."""

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import InfeasibleError
from accounting.numerics.pmf import TAIL_MASS, Pmf, binomial, negative_binomial, poisson
from accounting.numerics.profile import RELATIVE_PAD
from verification.exact.rational_twins import sum_of_bits

Reference = Callable[[int], Any]

DIGITS = 50
RELATIVE_ERROR = 1e-11

BINOMIALS = [
    *((n, p) for n in (1, 2, 10, 1000, 10**6) for p in (1e-6, 1e-3, 0.1, 0.3, 0.5, 0.9, 0.999999)),
    (37, 0.331),
    (30_000, 0.0932),
    (10**5, 0.4999),
]
POISSONS = [1e-3, 0.5, 1.0, 7.3, 1e3, 1e6]
NEGATIVE_BINOMIALS = [
    *((shape, p) for shape in (1.0, 1.5, 30.0, 1e3, 1e5) for p in (0.01, 0.5, 0.9)),
    (1.5, 0.999),
    (1000.0, 0.99),
]
WIDE = [(1e5, 0.9), (1.5, 0.999), (1000.0, 0.99)]
"""It takes mpmath seconds to add up what their windows leave out."""


def exact_binomial(trials: int, probability: float) -> Reference:
    p = mpmath.mpf(probability)
    return lambda k: mpmath.binomial(trials, k) * p**k * (1 - p) ** (trials - k)


def exact_poisson(mean: float) -> Reference:
    rate = mpmath.mpf(mean)
    return lambda k: mpmath.exp(-rate) * rate**k / mpmath.factorial(k)


def exact_negative_binomial(shape: float, continue_probability: float) -> Reference:
    r, p = mpmath.mpf(shape), mpmath.mpf(continue_probability)
    return lambda k: mpmath.gammaprod([k + r], [r, k + 1]) * (1 - p) ** r * p**k


def sampled(law: Pmf, n_points: int = 40) -> list[int]:
    """Indices spread over the window, both ends and the peak included, where the mass is a normal float."""
    places = {int(i) for i in np.linspace(0, len(law.values) - 1, n_points)} | {int(np.argmax(law.values))}
    return sorted(i for i in places if law.values[i] > 1e-290)


def worst_relative_error(law: Pmf, exact: Reference) -> float:
    with mpmath.workdps(DIGITS):
        return max(float(abs(mpmath.mpf(float(law.values[i])) / exact(law.start + i) - 1)) for i in sampled(law))


def mass_outside(law: Pmf, exact: Reference, highest: int | None) -> Any:
    """Σ of the exact masses below and above the window, until terms no longer matter."""
    with mpmath.workdps(DIGITS):
        total = mpmath.mpf(0)
        for places in (range(law.start - 1, -1, -1), range(law.stop, highest + 1 if highest else 10**9)):
            for k in places:
                term = exact(k)
                total += term
                if term < total * mpmath.mpf(10) ** -12:
                    break
        return total


@pytest.mark.parametrize(("trials", "probability"), BINOMIALS)
def test_binomial_is_right_to_eleven_digits_in_the_whole_window(trials: int, probability: float) -> None:
    law = binomial(trials, probability)
    assert worst_relative_error(law, exact_binomial(trials, probability)) < RELATIVE_ERROR


@pytest.mark.parametrize("mean", POISSONS)
def test_poisson_is_right_to_eleven_digits_in_the_whole_window(mean: float) -> None:
    assert worst_relative_error(poisson(mean), exact_poisson(mean)) < RELATIVE_ERROR


@pytest.mark.parametrize(("shape", "continue_probability"), NEGATIVE_BINOMIALS)
def test_negative_binomial_is_right_to_eleven_digits_in_the_whole_window(
    shape: float, continue_probability: float
) -> None:
    law = negative_binomial(shape, continue_probability)
    assert worst_relative_error(law, exact_negative_binomial(shape, continue_probability)) < RELATIVE_ERROR


def test_a_long_geometric_law_is_right_to_eleven_digits() -> None:
    assert worst_relative_error(negative_binomial(1.0, 0.999), exact_negative_binomial(1.0, 0.999)) < RELATIVE_ERROR


def test_a_geometric_law_is_right_to_the_digits_that_the_accountant_pads() -> None:
    law = negative_binomial(1.0, 0.9999)
    assert worst_relative_error(law, exact_negative_binomial(1.0, 0.9999)) < RELATIVE_PAD


@pytest.mark.slow
def test_the_longest_geometric_laws_are_right_to_the_digits_that_the_accountant_pads() -> None:
    law = negative_binomial(1.0, 0.99998)
    assert len(law.values) > 4_000_000
    assert worst_relative_error(law, exact_negative_binomial(1.0, 0.99998)) < RELATIVE_PAD


@pytest.mark.parametrize("probability", [1e-9, 1e-6, 0.01, 0.3, 0.5])
def test_a_billion_trials_work(probability: float) -> None:
    law = binomial(10**9, probability)
    assert worst_relative_error(law, exact_binomial(10**9, probability)) < 1e-10
    assert law.missing < TAIL_MASS
    assert float(np.sum(law.values)) == pytest.approx(1.0, rel=1e-12)


def test_the_relative_error_is_able_to_see_a_wrong_parameter() -> None:
    wrong = worst_relative_error(binomial(1000, 0.3), exact_binomial(1000, 0.3 * (1 + 1e-10)))
    assert wrong > RELATIVE_ERROR


@pytest.mark.parametrize("law", [binomial(10**6, 0.3), poisson(1e6), negative_binomial(1e3, 0.9)])
def test_the_window_reaches_into_tails_of_one_in_ten_to_the_thirty(law: Pmf) -> None:
    assert 0.0 < law.values[-1] < 1e-30
    assert 0.0 < law.values[0] < 1e-30


@pytest.mark.parametrize(("trials", "probability"), BINOMIALS)
def test_what_a_binomial_window_leaves_out_is_bounded(trials: int, probability: float) -> None:
    law = binomial(trials, probability)
    outside = mass_outside(law, exact_binomial(trials, probability), trials)
    assert outside <= law.missing <= TAIL_MASS
    assert (outside > 0) == (law.start > 0 or law.stop <= trials)
    assert law.missing < 100 * outside or law.missing == 0.0  # the bound is not idle


@pytest.mark.parametrize("mean", POISSONS)
def test_what_a_poisson_window_leaves_out_is_bounded(mean: float) -> None:
    law = poisson(mean)
    outside = mass_outside(law, exact_poisson(mean), None)
    assert 0 < outside <= law.missing <= TAIL_MASS
    assert law.missing < 100 * outside


@pytest.mark.parametrize(
    ("shape", "continue_probability"),
    [
        *(case for case in NEGATIVE_BINOMIALS if case not in WIDE),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in WIDE),
    ],
)
def test_what_a_negative_binomial_window_leaves_out_is_bounded(shape: float, continue_probability: float) -> None:
    law = negative_binomial(shape, continue_probability)
    exact = exact_negative_binomial(shape, continue_probability)
    outside = mass_outside(law, exact, None)
    # A geometric law meets its bound with equality, so rounding may show.
    assert 0 < outside <= law.missing * (1 + 1e-9) <= TAIL_MASS
    assert law.missing < 100 * outside


def test_a_window_that_is_too_narrow_says_so() -> None:
    law = negative_binomial(30.0, 0.9, tail=1e-3)
    outside = mass_outside(law, exact_negative_binomial(30.0, 0.9), None)
    assert 1e-9 < outside <= law.missing <= 1e-3


@given(st.integers(0, 12), st.fractions(0, 1, max_denominator=16))
@settings(max_examples=60)
def test_binomial_is_a_sum_of_equal_bits(trials: int, probability: Any) -> None:
    law = binomial(trials, float(probability))
    exact = sum_of_bits([probability] * trials)
    fast = {law.start + i: float(mass) for i, mass in enumerate(law.values)}
    assert law.missing == 0.0
    for k, mass in enumerate(exact):
        assert fast.get(k, 0.0) == pytest.approx(float(mass), rel=1e-13, abs=0.0)


def test_one_trial_and_a_certain_outcome() -> None:
    assert binomial(5, 1.0).start == 5
    assert binomial(5, 0.0).start == 0
    assert binomial(0, 0.3).start == 0
    for law in (binomial(5, 1.0), binomial(5, 0.0), binomial(0, 0.3), binomial(0, 1.0)):
        assert law.values.tolist() == [1.0]
        assert law.stop == law.start + 1
    assert binomial(1, 0.25).values.tolist() == pytest.approx([0.75, 0.25], rel=1e-15)


def test_continue_probability_is_the_papers_and_not_numpys() -> None:
    """NB(1, p) has P(0) = 1 − p; numpy's p would give P(0) = p."""
    assert negative_binomial(1.0, 0.9).values[0] == pytest.approx(0.1, rel=1e-13)


def test_a_shape_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="log-concave"):
        negative_binomial(0.99, 0.5)


def test_a_law_that_would_fill_the_memory_is_refused_with_a_remedy() -> None:
    with pytest.raises(InfeasibleError, match="ask for a larger epsilon or fewer repetitions"):
        negative_binomial(1.0, 1.0 - 1e-9)
    with pytest.raises(InfeasibleError, match="window"):
        poisson(1e14)
