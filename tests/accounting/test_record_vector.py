"""The vector of a whole record: how far replacing a record moves it, and how long it is made."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import differential_evolution

from accounting import InvalidInputError
from accounting.kernels import NORM_SLACK, record_facts
from accounting.record_vector import (
    CLIPPED_AT,
    FREE_WEIGHT,
    LARGEST_WEIGHT,
    LEAST_PADDED,
    TRANSFORM_ERROR,
    RecordVector,
    padded_length,
)
from privkde.kernels.norms import NORM_ERROR

WEIGHTS = (0.0, 0.1, 0.49, 0.5, 0.51, 0.75, 1.0, 2.0, 4.0)
Floats = NDArray[np.float64]


def vector(weight: float, dim: int = 3, n_classes: int = 2, padded: int = 10_000) -> RecordVector:
    return RecordVector(dim=dim, n_classes=n_classes, moment_weight=weight, padded=padded)


def slow_vector(x: Floats, c: int, v: RecordVector) -> Floats:
    """v(x, c) from its definition, entry by entry."""
    features = np.zeros((v.n_classes, v.dim))
    features[c] = x
    beta = math.sqrt(v.moment_weight)
    pairs: dict[frozenset[int], float] = {}
    for step in range(v.dim):
        for i in range(v.dim):
            j = (i + step) % v.dim
            pairs.setdefault(frozenset((i, j)), beta * x[i] * x[j] * (1.0 if i == j else math.sqrt(2.0)))
    moments = list(pairs.values())
    sizes = np.zeros(v.n_classes)
    sizes[c] = math.sqrt(v.size_weight)
    return np.concatenate([features.ravel(), moments if beta else [], sizes])


def distance(a: Floats | float, b: Floats | float, s: Floats | float, v: RecordVector, *, same: bool) -> Floats:
    """‖v − v'‖² for norms a, b and cosine s."""
    moved = a**2 + b**2 + v.moment_weight * (a**4 + b**4 - 2.0 * (a * b * s) ** 2)
    return np.asarray(moved - 2.0 * a * b * s if same else moved + 2.0 * v.size_weight)


# --- Proposition 1


@pytest.mark.parametrize("weight", np.linspace(0.0, LARGEST_WEIGHT, 33))
def test_a_grid_never_exceeds_the_declared_distance_and_reaches_it(weight: float) -> None:
    v = vector(float(weight))
    a, b = np.linspace(0.0, 1.0, 41)[:, None, None], np.linspace(0.0, 1.0, 41)[:, None]
    s = np.append(np.linspace(-1.0, 1.0, 81), -min(1.0, 0.5 / max(weight, 0.1)))
    for same in (True, False):
        largest = distance(a, b, s, v, same=same).max()
        assert largest == pytest.approx(v.squared_distance, rel=1e-12)


@pytest.mark.parametrize("weight", [0.0, 0.5, 0.51, 2.0])
def test_an_optimizer_finds_nothing_further_apart(weight: float) -> None:
    v = vector(weight)
    for same in (True, False):

        def nearness(point: Floats, same: bool = same) -> float:
            return -float(distance(point[0], point[1], point[2], v, same=same))

        found = differential_evolution(nearness, [(0, 1), (0, 1), (-1, 1)], seed=1, tol=1e-10, maxiter=60, popsize=10)
        assert v.squared_distance * (1.0 - 1e-6) <= -found.fun <= v.squared_distance * (1.0 + 1e-12)


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0, 4.0])
def test_pairs_of_vectors_from_the_definition(weight: float) -> None:
    """Random pairs never exceed the distance; opposite, slanted and orthogonal ones reach it."""
    v, rng = vector(weight, dim=20, n_classes=3), np.random.default_rng(5)
    assert len(slow_vector(np.ones(20), 0, v)) == v.n_coordinates
    for _ in range(200):
        x, y = rng.normal(size=(2, v.dim))
        x /= np.linalg.norm(x) / rng.uniform() ** 0.1
        y = rng.uniform() * y / np.linalg.norm(y) - rng.uniform() * x
        y /= max(1.0, float(np.linalg.norm(y)))
        classes = rng.integers(0, 3, 2)
        moved = slow_vector(x, classes[0], v) - slow_vector(y, classes[1], v)
        assert moved @ moved <= v.squared_distance * (1.0 + 1e-12)
        s = float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
        a, b = float(np.linalg.norm(x)), float(np.linalg.norm(y))
        by_angle = distance(a, b, s, v, same=bool(classes[0] == classes[1]))
        assert moved @ moved == pytest.approx(float(by_angle), rel=1e-9)
    cosine = -1.0 if weight <= FREE_WEIGHT else -0.5 / weight
    one, two = np.eye(v.dim)[:2]
    slanted = cosine * one + math.sqrt(1.0 - cosine**2) * two
    for other, c in ((slanted, 0), (two, 1)):
        moved = slow_vector(one, 0, v) - slow_vector(other, c, v)
        assert moved @ moved == pytest.approx(v.squared_distance, rel=1e-12)


def test_second_moments_are_free_up_to_one_half_and_not_beyond() -> None:
    assert {vector(weight).squared_distance for weight in WEIGHTS if weight <= 0.5} == {4.0}
    beyond = [vector(weight).squared_distance for weight in (0.5, 0.51, 0.75, 1.0, 2.0, 4.0)]
    assert beyond == sorted(set(beyond))
    assert vector(1.0).squared_distance == 4.5


@pytest.mark.parametrize("weight", WEIGHTS)
def test_sizes_weigh_as_much_as_is_free(weight: float) -> None:
    v = vector(weight)
    assert v.size_weight == pytest.approx(1.0 - weight if weight <= 0.5 else 0.25 / weight, rel=1e-12)
    assert v.squared_norm == pytest.approx(v.squared_distance / 2.0, rel=1e-12)
    x = np.array([0.6, 0.0, -0.8])
    assert np.sum(slow_vector(x, 1, v) ** 2) == pytest.approx(v.squared_norm, rel=1e-12)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_the_slack_pays_for_single_precision(weight: float) -> None:
    """Lemma 3: norms up to 1 + e, and two rows off by the transform and 6.2 roundings each."""
    v, unit = vector(weight), 2.0**-24
    x = (1.0 + NORM_ERROR) * np.array([1.0, 0.0, 0.0])
    longest = float(np.linalg.norm(slow_vector(x, 0, v)))
    off = TRANSFORM_ERROR * (1.0 + 4.1 * unit) + 4.1 * unit
    apart = (1.0 + NORM_ERROR) ** 2 * math.sqrt(v.squared_distance) + 2.0 * off * longest
    assert apart <= NORM_SLACK * math.sqrt(v.squared_distance)
    facts = record_facts(v, 0.1)
    assert facts.squared_shift is not None
    assert (apart / 0.2) ** 2 <= facts.squared_shift


# --- lengths


@pytest.mark.parametrize(("weight", "count"), [(0.0, 2 * 3 + 2), (0.5, 2 * 3 + 6 + 2)])
def test_coordinates_are_counted(weight: float, count: int) -> None:
    v = vector(weight)
    assert v.n_coordinates == count
    assert v.n_moments == (6 if weight else 0)
    with pytest.raises(InvalidInputError, match=f"padded={count - 1}"):
        vector(weight, padded=count - 1)


@pytest.mark.parametrize("weight", [-0.1, 4.1, math.nan])
def test_other_weights_are_refused(weight: float) -> None:
    with pytest.raises(InvalidInputError, match="moment_weight"):
        vector(weight)


def test_clipping_is_planned_at_three_deviations() -> None:
    v = vector(1.0, padded=90_000)
    assert v.planned_bound == pytest.approx(CLIPPED_AT * math.sqrt(2.25 / 90_000), rel=1e-12)
    assert v.clipped_share(v.planned_bound) == pytest.approx(0.0026998, rel=1e-4)
    assert vector(1.0, padded=14).planned_bound == 1.0


def test_padding_makes_rounding_no_larger_than_noise_where_messages_allow() -> None:
    v = vector(0.5, dim=100, n_classes=4, padded=10_000)
    assert padded_length(v, 1_000, noise=1e6, most=1e6) == LEAST_PADDED, "noise is far above rounding"
    length = padded_length(v, 100_000, noise=5.0, most=1e6)
    assert LEAST_PADDED < length <= 1e6
    assert 100_000 * CLIPPED_AT**2 * v.squared_norm / length <= 5.0**2, "nR² is at most the square of the noise"
    assert padded_length(v, 100_000, noise=0.5, most=50_000) == 50_000, "a length with small factors"
    for most in (v.n_coordinates, 6_007, 49_999):
        assert v.n_coordinates <= padded_length(v, 100_000, noise=0.5, most=most) <= most
