"""What the shuffled protocol is compared with: central Gaussian noise and local randomized response."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.accuracy import baselines as module
from accounting.accuracy.baselines import Baseline, baselines, central, local
from accounting.accuracy.density_error import predicted_error
from accounting.composition import PrivacyLossComposition
from accounting.errors import InfeasibleError
from accounting.guarantee import Adjacency, View
from accounting.kernels import KERNELS, KernelFacts, kernel_named
from accounting.mechanisms import GaussianMechanism, RandomizedResponse
from tests.slow_twins import repeated_response_delta
from tests.strategies import deltas

Vector = tuple[float, ...]
EPSILON, DELTA = 2.0, 1e-6


def facts(name: str, dim: int = 4, repetitions: int = 3) -> KernelFacts:
    return kernel_named(name).facts(
        dim=dim,
        repetitions=None if name == "inner-product" else repetitions,
        bias=0.25 if name in ("laplacian", "exponential") else None,
    )


# --- central: the sensitivity ---------------------------------------------------------------------


def extreme_features(kernel: KernelFacts) -> list[Vector]:
    """Values that one repetition's f(x) can take, the extreme ones included, for some public randomness."""
    if kernel.name == "gaussian":  # √2 cos(angle), any angle
        return [(math.sqrt(2) * math.cos(angle),) for angle in np.linspace(0.0, 2 * math.pi, 25)]
    ball = [tuple(s / 2 for s in signs) for signs in itertools.product((-1, 0, 1), repeat=4)]
    ball = [*ball, *(tuple(float(sign * (i == j)) for j in range(4)) for i in range(4) for sign in (-1, 1))]
    ball = [x for x in ball if sum(c * c for c in x) <= 1.0]
    if kernel.name == "inner-product":
        return ball
    if kernel.name == "inner-product-signs":  # σ·x for σ = (1, 1, 1, 1): others only permute the ball
        return [(sum(x),) for x in ball]
    return [tuple(float(i == j) for j in range(kernel.n_coordinates)) for i in range(kernel.n_coordinates)]


@pytest.mark.parametrize("name", KERNELS)
def test_the_declared_distance_is_attained_and_never_exceeded(name: str) -> None:
    kernel = facts(name)
    found = max(math.dist(f, g) for f, g in itertools.product(extreme_features(kernel), repeat=2))
    assert found == pytest.approx(kernel.replaced_norm, rel=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_replacing_one_user_moves_the_sums_by_at_most_the_sensitivity(name: str) -> None:
    """All repetitions together, f chosen as extreme as possible in each: √I times the distance, attained."""
    kernel = facts(name)
    mechanism = central(kernel, 100, epsilon=EPSILON, delta=DELTA).contract.parameters
    few = sorted(set(extreme_features(kernel)))
    step = max(1, len(few) // 6)
    few = [*few[::step], few[0], few[-1]]
    moved = max(
        math.dist(list(itertools.chain(*f)), list(itertools.chain(*g)))
        for f in itertools.product(few, repeat=min(2, kernel.n_repetitions))
        for g in itertools.product(few, repeat=min(2, kernel.n_repetitions))
    )
    scale = math.sqrt(kernel.n_repetitions / min(2, kernel.n_repetitions))
    assert isinstance(mechanism["sensitivity"], float)
    assert moved * scale <= mechanism["sensitivity"] * (1 + 1e-12)
    assert moved * scale > 0.9 * mechanism["sensitivity"]


def test_omitting_a_user_would_understate_the_distance() -> None:
    """A control: add-or-remove moves Gaussian features by √2 only, half of what replacing does."""
    largest = max(math.hypot(*f) for f in extreme_features(facts("gaussian")))
    assert largest == pytest.approx(0.5 * facts("gaussian").replaced_norm, rel=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_the_central_baseline_is_the_calibrated_gaussian_without_rounding(name: str) -> None:
    kernel, n = facts(name), 1000
    found = central(kernel, n, epsilon=EPSILON, delta=DELTA)
    sensitivity = math.sqrt(kernel.n_repetitions) * kernel.replaced_norm
    sigma = GaussianMechanism.calibrate(EPSILON, DELTA, sensitivity).standard_deviation
    assert found.contract.parameters == {"sensitivity": sensitivity, "standard_deviation": sigma}
    assert found.bitsum_rmse == pytest.approx(sigma / (2 * kernel.bound), rel=1e-14)
    parts = predicted_error(kernel, n, found.bitsum_rmse)
    squares = parts.bias**2 + parts.feature**2 + parts.privacy**2
    assert found.predicted_rmse == pytest.approx(math.sqrt(squares), rel=1e-9)
    assert found.predicted_rmse < parts.total
    (guarantee,) = found.contract.guarantees
    assert (guarantee.view, guarantee.adjacency) == (View.MODEL, Adjacency.FEATURES)
    assert guarantee.delta <= DELTA


def test_the_privacy_part_of_the_central_baseline_is_its_noise() -> None:
    """Var of (1/nI) Σ_i N(0, σ²)·g_i(y) with E g² = 1 for the Gaussian family: σ²/(n²I)."""
    kernel, n = facts("gaussian", 4, 9), 500
    found = central(kernel, n, epsilon=EPSILON, delta=DELTA)
    sigma = found.contract.parameters["standard_deviation"]
    assert isinstance(sigma, float)
    assert predicted_error(kernel, n, found.bitsum_rmse).privacy == pytest.approx(sigma / (n * 3.0), rel=1e-12)


# --- local: the claim -----------------------------------------------------------------------------


def flip_probability(baseline: Baseline) -> Fraction:
    value = baseline.contract.parameters["flip_probability"]
    assert isinstance(value, float)
    return Fraction(value)


def with_less_noise(p: Fraction, factor: float) -> Fraction:
    alone = RandomizedResponse(n_users=1, flip_probability=float(p))
    return Fraction(RandomizedResponse.with_rmse(factor * alone.rmse(), n_users=1).flip_probability)


@pytest.mark.parametrize("repetitions", [1, 3, 16, 100, 768])
@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 1e-6), (0.5, 1e-9)])
def test_the_local_claim_holds_and_is_tight_against_the_binomial(
    repetitions: int, epsilon: float, delta: float
) -> None:
    """One user's k flipped bits have binomial losses: exact δ ≤ claimed δ, and 0.2 % less noise would not do."""
    kernel = facts("gaussian", 4, repetitions)
    found = local(kernel, 1000, epsilon=epsilon, delta=delta)
    p = flip_probability(found)
    assert repeated_response_delta(p, repetitions, epsilon) <= delta
    assert repeated_response_delta(with_less_noise(p, 0.998), repetitions, epsilon) > delta


@given(st.integers(1, 300), st.floats(0.2, 4.0), deltas(-9.0, -3.0))
@settings(max_examples=8)
def test_the_local_claim_on_random_requests(repetitions: int, epsilon: float, delta: float) -> None:
    found = local(facts("gaussian", 4, repetitions), 10, epsilon=epsilon, delta=delta)
    p = flip_probability(found)
    assert repeated_response_delta(p, repetitions, epsilon) <= delta
    assert repeated_response_delta(with_less_noise(p, 0.998), repetitions, epsilon) > delta


def test_hashed_families_pay_for_both_supports() -> None:
    """min(2S, Q)·I = 2I instances are touched: the local baseline must survive twice as many."""
    found = local(facts("laplacian", 4, 8), 1000, epsilon=EPSILON, delta=DELTA)
    p = flip_probability(found)
    assert repeated_response_delta(p, 16, EPSILON) <= DELTA < repeated_response_delta(p, 17, EPSILON)


def test_the_local_baseline_is_the_shuffled_law_of_one_and_its_error_that_of_all() -> None:
    kernel, n = facts("gaussian", 4, 16), 1000
    found = local(kernel, n, epsilon=EPSILON, delta=DELTA)
    p = float(flip_probability(found))
    assert found.bitsum_rmse == pytest.approx(math.sqrt(n * p * (1 - p)) / (1 - 2 * p), rel=1e-12)
    assert found.predicted_rmse == predicted_error(kernel, n, found.bitsum_rmse).total
    assert {g.view for g in found.contract.guarantees} == {View.LOCAL, View.COMMUNICATION, View.MODEL}
    assert all((g.epsilon, g.delta) == (EPSILON, DELTA) for g in found.contract.guarantees)
    assert found.contract.evidence == PrivacyLossComposition().evidence


# --- both -----------------------------------------------------------------------------------------


def test_trust_buys_accuracy() -> None:
    """Central noise is less than local noise by about √n; with a shuffler one is in between."""
    kernel, n = facts("gaussian", 4, 16), 10_000
    trusted, alone = baselines(kernel, n, epsilon=EPSILON, delta=DELTA)
    assert (trusted.name, alone.name) == ("central", "local")
    assert trusted.bitsum_rmse * 10 < alone.bitsum_rmse
    assert trusted.predicted_rmse < alone.predicted_rmse


def test_a_baseline_that_does_not_exist_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def impossible(*_: object, **__: object) -> Baseline:
        raise InfeasibleError("no noise is enough")

    monkeypatch.setattr(module, "local", impossible)
    (found,) = baselines(facts("gaussian"), 100, epsilon=EPSILON, delta=DELTA)
    assert found.name == "central"


def test_json_round_trip() -> None:
    for found in baselines(facts("gaussian"), 100, epsilon=EPSILON, delta=DELTA):
        assert Baseline.from_json(found.to_json()) == found
