"""The fast projection: its law by enumeration, its distortion against the proved bound, and its use by the Gaussian."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidInputError
from privkde.draws.randomness import ByteStream, public_stream
from privkde.kernels import KernelChoice
from privkde.kernels import public_draws as draws
from privkde.kernels.gaussian import GaussianFamily
from privkde.kernels.lsq_family import Float64
from privkde.kernels.projection import FastProjection, distortion_bound
from verification.statistical.kernel_means import check_mean

SEED = "000102030405060708090a0b0c0d0e0f"


def stream(*labels: str | int) -> ByteStream:
    return public_stream(SEED).child("test projection", *labels)


def cosine_matrix(dim: int) -> Float64:
    """The orthonormal DCT-II from its definition: rows √(2/d) cos(π k (2j+1)/(2d)), the first one by √(1/d)."""
    rows = [
        [math.sqrt((1 if k == 0 else 2) / dim) * math.cos(math.pi * k * (2 * j + 1) / (2 * dim)) for j in range(dim)]
        for k in range(dim)
    ]
    return np.array(rows)


def matrix(projection: FastProjection) -> Float64:
    """P as a matrix, from the definition."""
    signs = np.sign(projection.signs).astype(np.float64)
    scale = math.sqrt(projection.dim / projection.width)
    found: Float64 = scale * (cosine_matrix(projection.dim) * signs)[projection.rows]
    return found


@pytest.mark.parametrize("dim", [1, 2, 5, 16])
def test_the_transform_is_orthonormal_with_small_entries(dim: int) -> None:
    """The two facts that the proof uses: HᵀH = 1, and squares of entries at most 2/d."""
    found = cosine_matrix(dim)
    np.testing.assert_allclose(found @ found.T, np.eye(dim), atol=1e-14)
    assert float(np.max(found**2)) <= 2 / dim + 1e-15


@given(st.integers(1, 40), st.data())
def test_projection_is_the_matrix(dim: int, data: st.DataObject) -> None:
    width = data.draw(st.integers(1, dim))
    projection = FastProjection(dim, width, stream(dim, width))
    x = draws.normals(stream("x", dim), 5 * dim).reshape(5, dim).astype(np.float32)
    np.testing.assert_allclose(projection.project(x), x @ matrix(projection).T, atol=2e-5)
    assert len(set(projection.rows.tolist())) == width
    assert projection.project(x).dtype == np.float32


def test_all_rows_keep_every_distance() -> None:
    projection = FastProjection(33, 33, stream())
    x = draws.normals(stream("x"), 5 * 33).reshape(5, 33).astype(np.float32)
    np.testing.assert_allclose(np.linalg.norm(projection.project(x), axis=1), np.linalg.norm(x, axis=1), rtol=1e-5)
    assert distortion_bound(33, 33) == 0.0


# --- the law, by enumeration of all signs and all subsets of rows -----------------------------------


def all_squared_lengths(z: Float64, width: int) -> Float64:
    """‖Pz‖² for each of the 2^d·C(d, m) equally likely P."""
    dim = len(z)
    signs = np.array(list(itertools.product((-1, 1), repeat=dim)))
    squares = ((signs * z) @ cosine_matrix(dim).T) ** 2
    subsets = list(itertools.combinations(range(dim), width))
    return np.concatenate([squares[:, rows].sum(axis=1) for rows in subsets]) * dim / width


DIRECTIONS = {
    dim: [*np.eye(dim), np.ones(dim), *cosine_matrix(dim), np.arange(1.0, dim + 1)] for dim in (2, 3, 4, 6, 8)
}


@pytest.mark.parametrize(("dim", "width"), [(2, 1), (3, 1), (3, 2), (4, 2), (6, 2), (6, 5), (8, 3)])
def test_enumerated_distortion_is_unbiased_and_within_the_bound(dim: int, width: int) -> None:
    """E‖Pz‖² = ‖z‖², and the root mean square of the relative change is at most σ."""
    sigma, seen = distortion_bound(dim, width), []
    for z in DIRECTIONS[dim]:
        ratio = all_squared_lengths(z, width) / float(z @ z)
        assert float(ratio.mean()) == pytest.approx(1.0, abs=1e-12)
        seen.append(math.sqrt(float(np.mean((ratio - 1.0) ** 2))))
        assert seen[-1] <= sigma
    assert max(seen) > 0.3 * sigma, "the bound is not far from what happens"


@pytest.mark.parametrize(("dim", "width"), [(2, 1), (4, 2), (6, 2), (8, 3)])
@pytest.mark.parametrize("exponent", [0.01, 0.3, 1.0, 4.0, 30.0])
def test_enumerated_kernel_change_is_within_the_bounds(dim: int, width: int, exponent: float) -> None:
    """With D = ‖z‖²/h²: 0 ≤ E[change] ≤ σ²(1 − e^{−D})/(1 + σ²), and the root mean square is at most σ."""
    sigma = distortion_bound(dim, width)
    for z in DIRECTIONS[dim]:
        ratio = all_squared_lengths(z, width) / float(z @ z)
        change = np.exp(-exponent * ratio) - math.exp(-exponent)
        assert -1e-12 <= float(change.mean()) <= sigma**2 * -math.expm1(-exponent) / (1 + sigma**2) + 1e-12
        assert math.sqrt(float(np.mean(change**2))) <= sigma
        assert np.all(np.abs(change) <= np.abs(ratio - 1.0) + 1e-12)


# --- the law in higher dimension, by sampling ------------------------------------------------------

DIM, WIDTH, SEEDS = 48, 12, 4000
"""σ² = 0.319 and ‖Pz‖²/‖z‖² lies in [0, 4]."""


SAMPLED = {"axis": np.eye(DIM)[5], "cosine": cosine_matrix(DIM)[7], "dense": np.arange(-20.0, DIM - 20)}


@cache
def sampled_ratios(direction: str, *, signs: bool = True) -> Float64:
    """‖Pz‖²/‖z‖² for independent P; a saboteur leaves the signs out."""
    z, ratios = SAMPLED[direction], []
    for seed in range(SEEDS):
        projection = FastProjection(DIM, WIDTH, stream("seed", seed))
        if not signs:
            projection.signs = np.abs(projection.signs)
        image = projection.project(z[None].astype(np.float32))[0].astype(np.float64)
        ratios.append(float(image @ image) / float(z @ z))
    return np.array(ratios)


def excess(ratios: Float64) -> float:
    """A bound from below on E[(ratio − 1)²] − σ² that holds with probability 1 − 1e-10."""
    check = check_mean((ratios - 1.0) ** 2, claimed=0.0, low=0.0, high=9.0, false_alarm_rate=1e-10)
    return check.estimate - check.bound - distortion_bound(DIM, WIDTH) ** 2


@pytest.mark.parametrize("direction", SAMPLED)
def test_sampled_distortion_is_unbiased_and_within_the_bound(direction: str) -> None:
    """Level 3·2·1e-10. Power: a mean off by 0.2 is missed with probability ≤ 1e-10; saboteurs below."""
    ratios = sampled_ratios(direction)
    check = check_mean(ratios, claimed=1.0, low=0.0, high=4.0, false_alarm_rate=1e-10, rounding=1e-5)
    assert not check.refuted
    assert check.smallest_defect < 0.2
    assert excess(ratios) <= 0.0


def test_saboteurs_of_the_projection_are_refuted() -> None:
    """A missing factor d/m; a factor 1.2; and no signs: then P maps a cosine to one coordinate, or to nothing."""
    for scale in (WIDTH / DIM, 1.2):
        ratios = scale * sampled_ratios("cosine")
        assert check_mean(ratios, claimed=1.0, low=0.0, high=5.0, false_alarm_rate=1e-10).refuted
    assert excess(sampled_ratios("cosine", signs=False)) > 1.0


# --- the Gaussian family with a projection ----------------------------------------------------------


def test_projected_features_are_features_of_the_projected_points() -> None:
    family = KernelChoice(name="gaussian", dim=20, repetitions=50, projection=8, bandwidth=1.5).build(SEED)
    assert isinstance(family, GaussianFamily)
    assert family.projection is not None
    x = draws.normals(stream("x"), 6 * 20).reshape(6, 20) / 5
    expected = np.cos(x @ matrix(family.projection).T @ family.weights.astype(np.float64) + family.phases)
    np.testing.assert_allclose(family.scaled_features(x), expected, atol=1e-5)
    assert family.weights.shape == (8, 50)


def test_given_the_projection_features_average_to_the_projected_kernel() -> None:
    """Level 1e-10; a mean off by 0.04 is missed with probability ≤ 1e-10. The unprojected kernel is refuted."""
    family = KernelChoice(name="gaussian", dim=20, repetitions=200_000, projection=2).build(SEED)
    assert isinstance(family, GaussianFamily)
    assert family.projection is not None
    x = draws.normals(stream("x"), 2 * 20).reshape(2, 20) / 6
    products = 2.0 * family.scaled_features(x[:1])[0].astype(np.float64) * family.scaled_features(x[1:])[0]
    image = matrix(family.projection) @ (x[0] - x[1])
    projected, exact = math.exp(-float(image @ image)), float(family.kernel(x[:1], x[1:])[0, 0])
    check = check_mean(products, claimed=projected, low=-2.0, high=2.0, false_alarm_rate=1e-10, rounding=1e-5)
    assert not check.refuted
    assert check.smallest_defect < 0.04 < abs(projected - exact)
    assert check_mean(products, claimed=exact, low=-2.0, high=2.0, false_alarm_rate=1e-10).refuted


@pytest.mark.parametrize(
    ("dim", "width", "message"),
    [(3, 0, "projection=0"), (3, 4, "projection=4 is outside"), (0, 1, "dim=0"), (3, 1.5, "must be a whole number")],
)
def test_impossible_widths_are_refused(dim: int, width: int, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        distortion_bound(dim, width)
    if dim:
        with pytest.raises(InvalidInputError, match=message):
            FastProjection(dim, width, stream())
