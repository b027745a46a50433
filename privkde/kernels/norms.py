"""Norms of rows in single precision, with an error that does not grow with their length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ADDED_AT_ONCE = 512
NORM_ERROR = 2e-5
"""How far a norm of 10⁻⁹ or more may be off, relatively. Source: docs/proofs/geometric.md, "Single precision"."""


def row_norms(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """‖row‖ up to a factor 1 ± `NORM_ERROR`; infinite if a square overflows, NaN if an entry is.

    512 squares at a time are added in single precision, in any order; these sums are added in double precision.
    """
    whole = rows.shape[1] - rows.shape[1] % ADDED_AT_ONCE
    blocks, rest = rows[:, :whole].reshape(len(rows), whole // ADDED_AT_ONCE, ADDED_AT_ONCE), rows[:, whole:]
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.vecdot(blocks, blocks).sum(axis=1, dtype=np.float64)
        squares += np.vecdot(rest, rest)
    norms: NDArray[np.float64] = np.sqrt(squares)
    return norms
