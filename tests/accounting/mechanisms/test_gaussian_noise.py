"""The Gaussian mechanism's analytic profile against mpmath, and its calibration from the safe side."""

import math
from functools import partial
from typing import Any

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidInputError
from accounting.guarantee import Adjacency, View
from accounting.mechanisms.gaussian_noise import GaussianMechanism
from tests.strategies import deltas

DIGITS = 50


def mechanism(ratio: float) -> GaussianMechanism:
    """Sensitivity over deviation is exactly `ratio`."""
    return GaussianMechanism(sensitivity=ratio, standard_deviation=1.0)


def exact_delta(sensitivity: float, deviation: float, epsilon: float) -> Any:
    """Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) at 50 digits after a cancellation of up to 40."""
    with mpmath.workdps(DIGITS + 40):
        mu, e = mpmath.mpf(sensitivity) / mpmath.mpf(deviation), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


def test_the_twin_is_the_hockey_stick_of_two_normal_laws() -> None:
    """Slower still: ∫ max(φ(x − μ) − e^ε φ(x), 0) dx, the integrand positive beyond μ/2 + ε/μ."""

    def integrand(mu: float, epsilon: float, x: Any) -> Any:
        return mpmath.npdf(x - mpmath.mpf(mu)) - mpmath.exp(mpmath.mpf(epsilon)) * mpmath.npdf(x)

    for mu, epsilon in ((0.5, 0.3), (2.0, 1.0), (0.1, 0.4)):
        with mpmath.workdps(30):
            edge = mpmath.mpf(mu) / 2 + mpmath.mpf(epsilon) / mpmath.mpf(mu)
            found = mpmath.quad(partial(integrand, mu, epsilon), [edge, edge + 1, edge + 4, edge + 20])
        assert float(found) == pytest.approx(float(exact_delta(mu, 1.0, epsilon)), rel=1e-12)


@pytest.mark.parametrize("ratio", [1e-4, 1e-3, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0])
def test_the_profile_is_exact_and_rounded_up(ratio: float) -> None:
    smallest = 1.0
    for deviations in (0.0, 0.1, 1.0, 3.0, 5.0, 7.0, 7.9, 9.0):
        epsilon = ratio * (deviations + ratio / 2)
        exact = exact_delta(ratio, 1.0, epsilon)
        smallest = min(smallest, float(exact))
        assert exact <= mechanism(ratio).delta(epsilon) <= exact * (1 + 4e-9)
    assert smallest < 1e-14


def test_the_profile_at_one_in_ten_to_the_fifteen() -> None:
    """1 − Φ would be lost to cancellation here; δ is not."""
    ratio, epsilon = 0.13356475983, 1.0
    exact = exact_delta(ratio, 1.0, epsilon)
    assert 0.99e-15 < exact < 1.01e-15
    assert exact <= mechanism(ratio).delta(epsilon) <= exact * (1 + 4e-9)


@pytest.mark.parametrize(("ratio", "deviations"), [(1e-6, 5.0), (1e-5, 10.0), (1e-8, 1.0)])
def test_a_huge_deviation_is_rounded_up_too(ratio: float, deviations: float) -> None:
    epsilon = ratio * deviations
    assert mechanism(ratio).delta(epsilon) >= exact_delta(ratio, 1.0, epsilon)


@given(st.floats(0.05, 5.0), st.floats(0.0, 5.0), st.floats(0.0, 5.0))
def test_delta_decreases_in_epsilon_and_increases_with_the_ratio(ratio: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert mechanism(ratio).delta(high) <= mechanism(ratio).delta(low)
    assert mechanism(ratio).delta(one) <= mechanism(1.01 * ratio).delta(one)


@given(st.floats(0.05, 20.0), deltas(), st.sampled_from([1e-3, 1.0, 78.4, 1e6]))
def test_calibration_is_safe_and_tight(epsilon: float, delta: float, sensitivity: float) -> None:
    found = GaussianMechanism.calibrate(epsilon, delta, sensitivity)
    sigma = found.standard_deviation
    assert found.sensitivity == sensitivity
    assert exact_delta(sensitivity, sigma, epsilon) <= delta
    assert exact_delta(sensitivity, 0.999 * sigma, epsilon) > delta
    assert found.delta(epsilon) <= delta


@pytest.mark.parametrize("delta", [1e-15, 1e-9, 1e-3])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 100.0])
def test_calibration_far_from_the_usual(epsilon: float, delta: float) -> None:
    sigma = GaussianMechanism.calibrate(epsilon, delta, 1.0).standard_deviation
    exact = exact_delta(1.0, sigma, epsilon)
    assert delta * (1 - 1e-6) < exact <= delta
    assert exact_delta(1.0, 0.999 * sigma, epsilon) > delta


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 10.0])
def test_the_slope_says_how_fast_noise_helps(epsilon: float) -> None:
    """−d ln δ/d ln σ of the exact profile."""
    found = GaussianMechanism.calibrate(epsilon, 1e-6, 1.0)
    with mpmath.workdps(DIGITS):
        exact = -mpmath.diff(
            lambda x: mpmath.log(exact_delta(1.0, mpmath.exp(x), epsilon)), mpmath.log(found.standard_deviation)
        )
    assert found.slope(epsilon) == pytest.approx(max(1.0, float(exact)), rel=0.02)


def test_the_classical_formula_is_looser() -> None:
    """sqrt(2 ln(1.25/δ))/ε for ε ≤ 1 (Dwork and Roth 2014): an upper bound from elsewhere."""
    for epsilon in (0.1, 0.5, 1.0):
        for delta in (1e-9, 1e-6, 1e-3):
            sigma = GaussianMechanism.calibrate(epsilon, delta, 1.0).standard_deviation
            classical = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
            assert 0.4 * classical < sigma < classical


@given(st.floats(0.05, 4.0), deltas(-15.0, -1.0))
def test_epsilon_is_just_large_enough(ratio: float, delta: float) -> None:
    found = mechanism(ratio).epsilon(delta)
    assert mechanism(ratio).delta(found) <= delta
    assert found == 0.0 or mechanism(ratio).delta(found * (1 - 1e-6)) > delta


def test_the_contract_protects_the_model_only() -> None:
    found = GaussianMechanism.calibrate(1.0, 1e-6, 2.0)
    (guarantee,) = found.contract(1.0).guarantees
    assert (guarantee.adjacency, guarantee.view, guarantee.epsilon) == (Adjacency.FEATURES, View.MODEL, 1.0)
    assert 0.99e-6 < guarantee.delta <= 1e-6
    assert any("trusted" in text for text in found.contract(1.0).assumed)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan, True, "1", None])
def test_parameters_outside_the_law_are_rejected(bad: object) -> None:
    with pytest.raises(InvalidInputError, match="sensitivity="):
        GaussianMechanism(sensitivity=bad, standard_deviation=1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="standard_deviation="):
        GaussianMechanism(sensitivity=1.0, standard_deviation=bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="epsilon="):
        GaussianMechanism.calibrate(bad, 1e-6, 1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="delta="):
        GaussianMechanism.calibrate(1.0, bad, 1.0)  # type: ignore[arg-type]
