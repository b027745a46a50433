"""Kernel families as facts: (Q, R, S, β, I), touched instances, and error constants that dominate exact variances."""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidInputError
from accounting.kernels import DEFAULT_BIAS, KERNELS, KernelFacts, kernel_named
from accounting.numerics.pmf import Array

HASHED = ("laplacian", "exponential")


def facts(name: str, dim: int = 4, repetitions: int | None = None, bias: float | None = None) -> KernelFacts:
    return kernel_named(name).facts(dim=dim, repetitions=repetitions, bias=bias)


def sign_vectors(dim: int) -> list[tuple[int, ...]]:
    return list(itertools.product((-1, 1), repeat=dim))


def dot(x: tuple[Fraction, ...], y: Sequence[Fraction | int]) -> Fraction:
    return sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))


def scaled(entries: tuple[int, ...], denominator: int) -> tuple[Fraction, ...]:
    return tuple(Fraction(entry, denominator) for entry in entries)


UNIT: dict[int, list[tuple[Fraction, ...]]] = {
    1: [scaled((1,), 1), scaled((-1,), 1)],
    2: [scaled((1, 0), 1), scaled((3, 4), 5), scaled((-5, 12), 13), scaled((4, -3), 5)],
    3: [scaled((0, 1, 0), 1), scaled((2, 2, 1), 3), scaled((-2, 1, 2), 3), scaled((2, 3, 6), 7)],
    4: [scaled((1, 1, 1, 1), 2), scaled((1, -1, 1, 1), 2), scaled((0, 0, 0, 1), 1), scaled((1, 2, 2, 4), 5)],
    5: [scaled((2, 2, 2, 2, 3), 5), scaled((-2, 2, 2, 2, 3), 5), scaled((1, 0, 0, 0, 0), 1)],
    6: [scaled((2, 2, 2, 2, 3, 0), 5), scaled((1, 2, 2, 0, 0, 0), 3), scaled((0, 2, 2, 2, 2, 3), 5)],
}
"""Rational points of the unit sphere; `INSIDE` adds shorter ones and the origin."""
INSIDE = {dim: [*points, tuple(c / 2 for c in points[0]), (Fraction(0),) * dim] for dim, points in UNIT.items()}


def test_the_points_have_norm_at_most_one() -> None:
    assert all(dot(x, x) == 1 for points in UNIT.values() for x in points)
    assert all(dot(x, x) <= 1 for points in INSIDE.values() for x in points)


# --- the five numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("gaussian", (1, 2.0, 1, 0.0, 7)),
        ("inner-product", (4, 1.0, 4, 0.0, 1)),
        ("inner-product-signs", (1, 4.0, 1, 0.0, 7)),
        ("laplacian", (20, 1.0, 1, 0.05, 7)),
        ("exponential", (20, 1.0, 1, 0.05, 7)),
    ],
)
def test_the_family_is_the_papers(name: str, numbers: tuple[int, float, int, float, int]) -> None:
    """(Q, R², S, β, I) in four dimensions with seven repetitions."""
    found = facts(name, 4, None if name == "inner-product" else 7)
    n_coordinates, square, sparsity, bias, n_repetitions = numbers
    assert (found.name, found.dim, found.n_coordinates, found.sparsity) == (name, 4, n_coordinates, sparsity)
    assert (found.bias, found.n_repetitions) == (bias, n_repetitions)
    assert found.bound**2 == pytest.approx(square, rel=1e-15)


def test_every_family_is_covered() -> None:
    assert set(KERNELS) == {"gaussian", "inner-product", "inner-product-signs", *HASHED}


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "inner-product"])
def test_repetitions_default_to_the_dimension(name: str) -> None:
    assert facts(name, 12).n_repetitions == 12
    assert facts(name, 12, 3).n_repetitions == 3


@pytest.mark.parametrize("name", HASHED)
@pytest.mark.parametrize("bias", [0.5, 0.3, 0.05, 0.003, 1e-4])
def test_enough_buckets_for_the_bias(name: str, bias: float) -> None:
    """Hashing into Q buckets adds a false collision with probability (1 − k)/Q, which must not exceed β."""
    found = facts(name, 4, 7, bias)
    assert found.bias == bias
    worst = max((1 - Fraction(k, 10)) / found.n_coordinates for k in range(11))
    assert worst <= Fraction(bias) * (1 + Fraction(1, 10**12))
    assert Fraction(1, found.n_coordinates - 1) > Fraction(bias) * (1 - Fraction(1, 10**12)), "more than needed"
    assert facts(name).bias == DEFAULT_BIAS


@given(st.sampled_from(list(KERNELS)), st.integers(1, 10**4), st.integers(1, 10**4))
def test_touched_counts_both_supports(name: str, dim: int, repetitions: int) -> None:
    """min(2S, Q)·I: a replaced record changes coordinates of the old and of the new support."""
    found = facts(name, dim, None if name == "inner-product" else repetitions)
    expected = min(2 * found.sparsity, found.n_coordinates) * found.n_repetitions
    assert found.touched.total == expected
    assert found.touched.groups == found.n_repetitions
    assert found.n_instances == found.n_coordinates * found.n_repetitions >= expected


@pytest.mark.parametrize(
    ("name", "total"),
    [("gaussian", 7), ("inner-product", 4), ("inner-product-signs", 7), ("laplacian", 14), ("exponential", 14)],
)
def test_touched_of_each_family(name: str, total: int) -> None:
    found = facts(name, 4, None if name == "inner-product" else 7)
    assert found.touched.total == total
    assert found.paper_touched.total == total
    per_group = 1 if name == "inner-product" else found.touched.per_group
    assert found.paper_touched.per_group == per_group


def test_one_hot_features_touch_two_coordinates_by_enumeration() -> None:
    found = facts("laplacian", 4, 7, bias=0.25)
    one_hot = [tuple(int(i == j) for i in range(found.n_coordinates)) for j in range(found.n_coordinates)]
    changed = {sum(a != b for a, b in zip(x, y, strict=True)) for x, y in itertools.product(one_hot, repeat=2)}
    assert changed == {0, found.touched.per_group}


def test_one_bucket_more_than_twice_the_support_is_not_touched() -> None:
    assert facts("laplacian", 4, 1, bias=0.5).touched.per_group == 2
    assert facts("laplacian", 4, 1, bias=0.5).n_coordinates == 2


# --- features stay in their box -------------------------------------------------------------------


@pytest.mark.parametrize("dim", range(1, 7))
def test_sign_features_are_bounded_by_the_root_of_the_dimension(dim: int) -> None:
    bound = facts("inner-product-signs", dim).bound
    largest = max(dot(x, sigma) ** 2 for x in INSIDE[dim] for sigma in sign_vectors(dim))
    assert largest <= dim
    assert bound**2 == pytest.approx(dim, rel=1e-15)
    if dim in (1, 4):  # here a rational x points along σ
        assert largest == dim


@pytest.mark.parametrize("dim", range(1, 7))
def test_sign_features_are_unbiased(dim: int) -> None:
    for x, y in itertools.product(INSIDE[dim], repeat=2):
        products = [dot(x, sigma) * dot(y, sigma) for sigma in sign_vectors(dim)]
        assert sum(products) / len(products) == dot(x, y)


# --- error constants ------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", range(1, 7))
def test_sign_constants_dominate_the_enumerated_variances(dim: int) -> None:
    """E[(σ·x)²(σ·y)²] − (x·y)² and E[(σ·y)²(R² − (σ·x)²)] and 4R²E[(σ·y)²], over all 2^d signs, in fractions."""
    found = facts("inner-product-signs", dim)
    features, roundings, privacies = [], [], []
    for x, y in itertools.product(INSIDE[dim], repeat=2):
        signs = sign_vectors(dim)
        fourth = sum(dot(x, s) ** 2 * dot(y, s) ** 2 for s in signs) / len(signs)
        second = sum(dot(y, s) ** 2 for s in signs) / len(signs)
        features.append(fourth - dot(x, y) ** 2)
        roundings.append(dim * second - fourth)
        privacies.append(4 * dim * second)
    assert max(features) <= found.feature
    assert max(roundings) == found.rounding
    assert max(privacies) == found.privacy
    assert min(features) >= 0
    if dim in (4, 5, 6):  # dense vectors come near the constant 2 − 2/d
        assert max(features) > Fraction(1)


def quadrature(x: float, y: float) -> tuple[float, float, float, float]:
    """E[fg], E[f²g²], E[g²] and E[g²(2 − f²)] of f = √2 cos(√2ωx + φ), over ω ~ N(0, 1) and φ uniform.

    Sixteen equally spaced φ integrate trigonometric polynomials of degree 4 exactly; Gauss–Hermite does ω.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    phases = 2 * np.pi * np.arange(16) / 16
    f, g = (np.sqrt(2) * np.cos(np.sqrt(2) * nodes[:, None] * z + phases[None, :]) for z in (x, y))

    def mean(values: Array) -> float:
        return float(np.sum(weights[:, None] * values) / (16 * np.sum(weights)))

    return mean(f * g), mean(f**2 * g**2), mean(g**2), mean(g**2 * (2 - f**2))


@pytest.mark.parametrize("distance", [0.0, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0])
def test_gaussian_constants_dominate_the_integrated_variances(distance: float) -> None:
    found, t = facts("gaussian", 1), distance**2
    kernel, fourth, second, rounding = quadrature(0.3 - distance / 2, 0.3 + distance / 2)
    assert kernel == pytest.approx(math.exp(-t), abs=1e-12)
    assert fourth - kernel**2 == pytest.approx(1 + math.exp(-4 * t) / 2 - math.exp(-2 * t), abs=1e-12)
    assert rounding == pytest.approx(1 - math.exp(-4 * t) / 2, abs=1e-12)
    assert second == pytest.approx(1.0, abs=1e-12)
    assert 0.5 - 1e-12 <= fourth - kernel**2 <= found.feature
    assert 0.5 - 1e-12 <= rounding <= found.rounding
    assert 4 * found.bound**2 * second == pytest.approx(found.privacy, rel=1e-12)


@given(st.floats(0, 1))
def test_gaussian_constants_are_suprema_over_all_distances(decay: float) -> None:
    """With s = e^{−2t}: 1 + s²/2 − s ≤ 1 and 1 − s²/2 ≤ 1, both approached far away (s → 0)."""
    found = facts("gaussian", 3)
    assert 1 + decay**2 / 2 - decay <= found.feature
    assert 1 - decay**2 / 2 <= found.rounding
    assert found.feature == found.rounding == 1.0


def test_gaussian_features_of_several_users_vary_less_than_one_user_alone() -> None:
    """The constant is for n users: Var of a mean is at most the mean of the variances (redteam.md's covariance)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    phases = 2 * np.pi * np.arange(16) / 16
    y, users = 0.2, (-0.7, 0.0, 0.9)
    angle = np.sqrt(2) * nodes[:, None] * np.array([y, *users])[:, None, None] + phases
    features = np.sqrt(2) * np.cos(angle)
    estimate = np.mean(features[1:], axis=0) * features[0]
    law = weights[:, None] / (16 * np.sum(weights))
    mean = float(np.sum(law * estimate))
    variance = float(np.sum(law * estimate**2)) - mean**2
    covariances = [
        math.exp(-((a - b) ** 2)) + 0.5 * math.exp(-((a + b - 2 * y) ** 2)) - math.exp(-((a - y) ** 2) - (b - y) ** 2)
        for a, b in itertools.product(users, repeat=2)
    ]
    assert variance == pytest.approx(sum(covariances) / 9, rel=1e-10)
    assert 0.1 < variance < 1.0 == facts("gaussian", 1).feature


@pytest.mark.parametrize("name", HASHED)
def test_hashed_constants_dominate_the_enumerated_variances(name: str) -> None:
    """f·g is a collision, a coin with variance k(1 − k) ≤ 1/4; all other coordinates of f are fair coins."""
    found = facts(name, 3, 5, bias=0.25)
    collisions = [Fraction(k, 20) for k in range(21)]
    assert max(k * (1 - k) for k in collisions) == found.feature
    roundings = [1 - k for k in collisions]  # E[g_j²(R² − f_j²)] at the bucket of y
    assert max(roundings) == found.rounding
    assert found.privacy == 4 * found.bound**2
    n = 3  # users who collide with y independently or together
    for together in (True, False):
        for k in collisions:
            variance = k * (1 - k) if together else k * (1 - k) / n
            assert variance <= found.feature


@pytest.mark.parametrize("dim", range(1, 7))
def test_identity_features_have_rounding_error_only(dim: int) -> None:
    found = facts("inner-product", dim)
    assert (found.feature, found.bias) == (0.0, 0.0)
    roundings, privacies = [], []
    for x, y in itertools.product(INSIDE[dim], repeat=2):
        roundings.append(sum(b**2 * (1 - a**2) for a, b in zip(x, y, strict=True)))
        privacies.append(4 * dot(y, y))
    assert max(privacies) == found.privacy
    assert max(roundings) == found.rounding, "the origin attains it"


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("gausian", {"dim": 3}, "Did you mean 'gaussian'"),
        ("gaussian", {"dim": 0}, "dim=0"),
        ("gaussian", {"dim": True}, "dim=True"),
        ("gaussian", {"dim": 3, "repetitions": 0}, "repetitions=0"),
        ("gaussian", {"dim": 3, "bias": 0.1}, "leave bias out"),
        ("inner-product", {"dim": 3, "repetitions": 2}, "exactly one repetition"),
        ("laplacian", {"dim": 3, "bias": 0.6}, "bias=0.6"),
        ("laplacian", {"dim": 3, "bias": 1e-5}, "bias=1e-05"),
        ("laplacian", {"dim": 3, "bias": True}, "bias=True"),
    ],
)
def test_families_that_do_not_exist_are_refused(name: str, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        kernel_named(name).facts(**arguments)  # type: ignore[arg-type]
