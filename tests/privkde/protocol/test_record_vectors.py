"""Whole records as one vector: what a client rounds, how sums are read, and how large their noise is.

Statistical test: `test_noise_is_as_large_as_predicted`, three times two tails at level 1e-9 each, together 6e-9.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.stats import chi2

from accounting import InvalidInputError
from accounting.kernels import kernel_named, record_facts
from accounting.mechanisms import RandomizedResponse
from accounting.record_vector import TRANSFORM_ERROR, RecordVector
from privkde.draws.randomness import ByteStream
from privkde.engines.local import collect
from privkde.protocol import record_vectors
from privkde.protocol.parties import Randomizer
from privkde.protocol.record_vectors import RecordLayout
from tests.accounting.test_record_vector import slow_vector
from tests.privkde.unplanned import SEED, announced

Floats = NDArray[np.float64]


def layout_of(weight: float, *, dim: int = 4, classes: int = 3, padded: int = 64, bound: float = 1.0) -> RecordLayout:
    vector = RecordVector(dim=dim, n_classes=classes, moment_weight=weight, padded=padded)
    layout = RecordLayout.of(record_facts(vector, bound), SEED)
    assert layout is not None
    return layout


def unit_rows(count: int, dim: int, seed: int) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).normal(size=(count, dim))
    return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None], dtype=np.float32)


def cosine_matrix(size: int) -> Floats:
    """The orthonormal cosine transform, entry by entry from its definition."""
    k, j = np.arange(size)[:, None], np.arange(size)
    matrix = math.sqrt(2.0 / size) * np.cos(math.pi * k * (2 * j + 1) / (2 * size))
    matrix[0] /= math.sqrt(2.0)
    return np.asarray(matrix)


def slow_scaled(layout: RecordLayout, x: NDArray[np.float32], classes: list[int]) -> Floats:
    """The rotated v(x, c)/R in double precision, clipped."""
    v, rows = layout.vector, np.zeros((len(x), layout.vector.padded))
    for row, record, c in zip(rows, x.astype(np.float64), classes, strict=True):
        row[: v.n_coordinates] = slow_vector(record, c, v)
    rotated = (rows * np.sign(layout.scales)) @ cosine_matrix(v.padded).T
    return np.clip(rotated / layout.bound, -1.0, 1.0)


# --- what a client rounds


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0, 4.0])
@pytest.mark.parametrize(("padded", "bound"), [(64, 1.0), (100, 0.3), (37, 0.2)])
def test_rows_are_those_of_the_definition(weight: float, padded: int, bound: float) -> None:
    layout = layout_of(weight, padded=padded, bound=bound)
    x, classes = unit_rows(9, 4, 1), [0, 1, 2] * 3
    x[:4] *= np.float32(0.6)
    found, expected = layout.scaled(x, np.array(classes)), slow_scaled(layout, x, classes)
    assert found.dtype == np.float32
    assert found == pytest.approx(expected, abs=1e-5)
    assert (np.max(np.abs(expected)) == 1.0) == (bound < 1.0), "clipping was tried, and its absence"


def test_the_cosine_matrix_is_orthogonal() -> None:
    assert cosine_matrix(37) @ cosine_matrix(37).T == pytest.approx(np.eye(37), abs=1e-12)


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_rotation_keeps_distances_and_clipping_raises_none(weight: float) -> None:
    x, classes = unit_rows(30, 4, 2), np.arange(30) % 3
    whole, clipped = (layout_of(weight, bound=bound).scaled(x, classes).astype(float) * bound for bound in (1.0, 0.2))
    layout = layout_of(weight)
    numbered = zip(x.astype(float), classes.tolist(), strict=True)
    rows = np.array([slow_vector(record, c, layout.vector) for record, c in numbered])
    exact, kept, less = (np.linalg.norm(each[:, None] - each[None], axis=2).ravel() for each in (rows, whole, clipped))
    assert np.max(np.abs(exact - kept)) < 1e-5
    assert np.all(less <= kept + 1e-5)
    assert np.max(kept - less) > 0.1
    assert np.max(exact) ** 2 <= layout.vector.squared_distance + 1e-5


def test_signs_and_weights_are_public_and_drawn_once() -> None:
    layout, again = layout_of(0.5), layout_of(0.5)
    assert layout is again, "remembered"
    assert not layout.scales.flags.writeable
    other = RecordLayout.of(record_facts(layout.vector, 1.0), SEED[::-1])
    assert other is not None
    assert np.any(np.sign(other.scales) != np.sign(layout.scales))
    assert 16 < np.sum(layout.scales < 0) < 48
    plain = kernel_named("inner-product").facts(dim=4)
    assert RecordLayout.of(plain, SEED) is None
    assert RecordLayout.of(plain.joint(3), SEED) is None


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (None, "no classes were given for 2 users"),
        (np.array([0]), r"shape \(1,\)"),
        (np.array([0.0, 1.0]), "float64"),
        (np.array([0, 3]), "row 1 is not one of the 3, 0 to 2"),
        (np.array([-1, 0]), "row 0 is not one of the 3, 0 to 2"),
    ],
)
def test_bad_classes_are_refused(classes: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        layout_of(0.5).scaled(unit_rows(2, 4, 3), classes)


def test_a_transform_that_changes_lengths_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def longer(rows: NDArray[np.float32], **options: Any) -> Any:
        return dct(rows, **options) * np.float32(1.001)

    monkeypatch.setattr(record_vectors, "dct", longer)
    with pytest.raises(InvalidInputError, match="changes lengths by more than"):
        layout_of(0.5).scaled(unit_rows(2, 4, 3), np.array([0, 1]))


@pytest.mark.parametrize("length", [32_768, 76_800, 400_000, 99_991])
def test_the_transform_is_far_more_exact_than_the_hypothesis(length: int) -> None:
    """docs/proofs/moments.md, Lemma 3: against double precision, for spread, single, even and sparse rows."""
    rng = np.random.default_rng(length)
    rows = np.zeros((5, length), np.float32)
    rows[0], rows[1, length // 3], rows[2, 0], rows[3] = rng.normal(size=length), 1.0, 1.0, 1.0
    rows[4, : length // 50] = rng.normal(size=length // 50)
    exact = dct(rows.astype(np.float64), type=2, norm="ortho", axis=1)
    assert np.linalg.norm(exact, axis=1) == pytest.approx(np.linalg.norm(rows.astype(np.float64), axis=1), rel=1e-12)
    computed = dct(rows, type=2, norm="ortho", axis=1)
    assert computed.dtype == np.float32
    error = np.linalg.norm(computed - exact, axis=1) / np.linalg.norm(exact, axis=1)
    assert 0.0 < np.max(error) < 1e-6 < TRANSFORM_ERROR


# --- how sums are read


@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0])
def test_without_noise_sums_sizes_and_moments_come_back(weight: float) -> None:
    """Nothing is clipped at R = 1 and 4,000 coordinates, and nothing is given back."""
    layout = layout_of(weight, padded=4_000)
    x, classes = unit_rows(20, 4, 5), np.array([0] * 11 + [2] * 9)
    x[5:] *= np.float32(0.7)
    sums = layout.scaled(x, classes).astype(np.float64).sum(axis=0)
    v, wide = layout.vector, x.astype(np.float64)
    exact = np.sum([slow_vector(record, c, v) for record, c in zip(wide, classes, strict=True)], axis=0)
    assert layout.unrotated(sums) == pytest.approx(exact, abs=1e-4)
    features, sizes = layout.split(sums, 20)
    assert features == pytest.approx(np.array([wide[classes == c].sum(axis=0) for c in range(3)]), abs=1e-4)
    assert sizes == pytest.approx([11.0, 0.0, 9.0], abs=1e-4)
    if weight:
        moments = layout.second_moments(sums)
        assert moments == pytest.approx(wide.T @ wide, abs=1e-4)
        assert np.array_equal(moments, moments.T)


def test_what_clipping_takes_is_given_back() -> None:
    """A little too much of it: the label is a large part of v, and leaves lighter tails than normal ones."""
    layout = layout_of(0.5, dim=16, padded=4_096, bound=3.0 * math.sqrt(2.0 / 4_096))
    x, classes = unit_rows(400, 16, 6), np.arange(400) % 3
    sums = layout.bound * layout.scaled(x, classes).astype(np.float64).sum(axis=0)
    features, sizes = layout.split(sums, 400)
    lost = layout.vector.clipped_share(layout.bound)
    assert lost == pytest.approx(0.0027, abs=1e-5)
    assert 0.0 < np.sum(sizes) / 400 - 1.0 < lost
    exact = np.array([x[classes == c].astype(np.float64).sum(axis=0) for c in range(3)])
    assert abs(np.sum(features * exact) / np.sum(exact**2) - 1.0) < lost
    assert np.sum(np.abs(layout.scaled(x, classes)) == 1.0) > 0.001 * sums.size * 400, "something was clipped"


# --- noise


@pytest.mark.parametrize(("weight", "n_users", "flip"), [(0.0, 40, 0.01), (0.5, 40, 0.2), (1.0, 200, 0.05)])
def test_noise_is_as_large_as_predicted(weight: float, n_users: int, flip: float) -> None:
    """Bits of real clients: the mean square of the errors of all 2,000 coordinates, padding included, against s².

    They are nearly normal and uncorrelated, so that their sum of squares over s² is nearly χ². Each tail at level 1e-9;
    a deviation of s by 25 % would be seen.
    """
    padded = 2_000
    vector = RecordVector(dim=8, n_classes=3, moment_weight=weight, padded=padded)
    law = RandomizedResponse(n_users=n_users, flip_probability=flip)
    announcement = announced(
        law, kernel="inner-product", repetitions=None, dim=8, classes=3, labels="joint",
        model="discriminant" if weight else "mean", moment_weight=weight, padded=padded, bound=vector.planned_bound,
    )  # fmt: skip
    layout = announcement.layout()
    assert isinstance(layout, RecordLayout)
    x, classes = unit_rows(n_users, 8, 7), np.arange(n_users) % 3
    stream = ByteStream(bytes(range(32))).child("test_record_vectors", n_users)
    sums = collect(announcement, x, np.arange(n_users), classes, stream=stream, path="faithful").sums()
    exact = layout.bound * layout.scaled(x, classes).astype(np.float64).sum(axis=0)
    errors = layout.unrotated(sums) - layout.unrotated(exact)
    predicted = layout.noise_deviation(n_users, law.variance(n_users))
    everywhere = dct(sums - exact, type=3, norm="ortho") / (1.0 - vector.clipped_share(layout.bound))
    assert errors == pytest.approx(everywhere[: vector.n_coordinates] * np.sign(layout.scales[: len(errors)]), abs=1e-6)
    statistic = float(np.sum(everywhere**2) / predicted**2)
    low, high = chi2.ppf([1e-9, 1.0 - 1e-9], padded)
    assert low < statistic < high
    assert 0.8**2 * padded < low
    assert high < 1.25**2 * padded
    facts = announcement.plan.request.facts()
    assert facts.size_deviation(n_users, law.variance(n_users)) == pytest.approx(
        predicted / math.sqrt(vector.size_weight), rel=1e-12
    )


def test_clients_round_what_the_layout_says() -> None:
    """A packet for each coordinate, and no classes without joint labels or out of range."""
    announcement = announced(
        RandomizedResponse(n_users=6, flip_probability=0.125), kernel="inner-product", repetitions=None, dim=4,
        classes=3, labels="joint", model="discriminant", moment_weight=0.5, padded=64, bound=0.5,
    )  # fmt: skip
    assert announcement.n_instances == 64
    client = Randomizer(announcement, stream=ByteStream(bytes(32)))
    tally = client.inputs(unit_rows(5, 4, 8), np.array([0, 1, 2, 0, 1]), stream=ByteStream(bytes(32)))
    assert (tally.ones + tally.zeros).tolist() == np.ones((5, 64)).tolist()
    with pytest.raises(InvalidInputError, match="no classes were given"):
        client.packet(unit_rows(1, 4, 9)[0])
