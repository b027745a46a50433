"""Norms in single precision: near the true ones at every length, also where single precision loses what it adds."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from accounting.kernels import MOST_DIMENSIONS, NORM_SLACK
from privkde.kernels.norms import ADDED_AT_ONCE, NORM_ERROR, row_norms
from tests.privkde.long_vectors import SHAPES, long_vectors


def true_norms(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.array([math.sqrt(np.sum(row.astype(np.longdouble) ** 2)) for row in rows])


def test_the_error_is_what_rounding_can_do_at_most() -> None:
    """512 products and 511 additions, each off by 2⁻²⁴ at most; the rest pays for double precision and underflow.

    The slack pays for the norms of a vector and of its features, for the hold below Δ, and for some rotation.
    """
    unit = 2.0**-24
    lost = ADDED_AT_ONCE * unit / (1.0 - ADDED_AT_ONCE * unit)
    assert 1.0 / math.sqrt(1.0 - lost) - 1.0 + 1e-6 <= NORM_ERROR
    assert (1.0 + NORM_ERROR) ** 2 * (1.0 + 4.0 * unit) * (1.0 + 1.9e-5) <= (1.0 - 2.0 * NORM_ERROR) * NORM_SLACK


@pytest.mark.parametrize("dim", [1, ADDED_AT_ONCE - 1, ADDED_AT_ONCE, ADDED_AT_ONCE + 1, 100_003, MOST_DIMENSIONS])
@pytest.mark.parametrize("shape", SHAPES)
def test_norms_are_near_the_true_ones(shape: str, dim: int) -> None:
    rows = long_vectors(shape, dim)
    np.testing.assert_allclose(row_norms(rows), true_norms(rows), rtol=NORM_ERROR)
    np.testing.assert_allclose(row_norms(np.float32(1e-6) * rows), 1e-6 * true_norms(rows), rtol=NORM_ERROR)


def test_one_sum_in_single_precision_would_lose_too_much() -> None:
    rows = long_vectors("large ones first", MOST_DIMENSIONS)
    assert np.any(true_norms(rows) > NORM_SLACK * np.sqrt(np.vecdot(rows, rows)))


def test_what_is_not_finite_has_no_finite_norm() -> None:
    rows = np.full((4, 3 * ADDED_AT_ONCE + 1), 0.5, np.float32)
    rows[0, 5], rows[1, -1], rows[2, ADDED_AT_ONCE] = math.nan, -math.inf, 1e30
    np.testing.assert_array_equal(np.isfinite(row_norms(rows)), [False, False, False, True])
    assert row_norms(rows[:0]).shape == (0,)
