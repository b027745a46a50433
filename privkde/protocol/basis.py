"""A public basis: vectors are projected on a few columns first, which lowers noise and costs no privacy.

With r columns instead of d the noise of means and second moments has fewer coordinates, and the fewest messages that
are possible are about r²/2 + mr for m classes; padding takes more, unless a limit on messages is lower.
With orthonormal columns B, x ↦ x·B is a contraction: norms stay at most 1, so every promise holds as without it. B is
published with the model and must come from public data; nothing here protects whoever it was computed from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.kernels import MOST_DIMENSIONS
from privkde.protocol.inputs import Rows, require_numbers
from privkde.storage.user_blocks import Index

Floats = NDArray[np.float64]

ORTHONORMAL = 1e-9
"""Largest entry of BᵀB − 1: a vector of norm 1 has at most this much more times r after projection."""
LEAST_RANK = 1e-6
"""Columns are dependent if one has less than this share of the longest column outside those before it."""


@dataclass(frozen=True, slots=True, eq=False)
class ProjectedRows:
    """Rows·B, computed for a block at a time."""

    rows: Rows
    basis: Floats

    @property
    def shape(self) -> tuple[int, ...]:
        """(users, columns of the basis)."""
        return (self.rows.shape[0], self.basis.shape[1])

    def __getitem__(self, index: Index, /) -> NDArray[np.floating]:
        """The projected vectors of these users; an entry that is not finite leaves none that is."""
        block = self.rows[index]
        require_numbers(block)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(block.astype(np.float64) @ self.basis)


def on_basis(rows: Rows, basis: Floats | None) -> Rows:
    """The rows as they are collected: projected, or as they were without a basis."""
    return rows if basis is None else ProjectedRows(rows, basis)


def orthonormal(basis: object, dim: int) -> Floats:
    """Orthonormal columns that span what the given (d, r) matrix spans, in its order, up to signs.

    Requires: real finite entries, 1 ≤ r ≤ d, independent columns.
    """
    given = np.asarray(basis)
    require_numbers(given, "basis is")
    if given.ndim != 2 or given.shape[0] != dim or not 1 <= given.shape[1] <= dim:
        raise InvalidInputError(
            f"basis of shape {given.shape} for vectors of {dim} entries; give a matrix ({dim}, r) with 1 ≤ r ≤ {dim}."
        )
    columns = given.astype(np.float64)
    if not np.all(np.isfinite(columns)):
        raise InvalidInputError("basis holds entries that are NaN or infinite; compute it again from public vectors.")
    turned, triangle = np.linalg.qr(columns)
    own = np.abs(np.diag(triangle))
    if own.min() <= LEAST_RANK * np.linalg.norm(columns, axis=0).max():
        raise InvalidInputError(
            f"column {int(own.argmin())} of basis depends on those before it; give independent columns."
        )
    return np.ascontiguousarray(turned)


def require_basis(basis: Floats, dim: int) -> None:
    """Refuse what is not a matrix of `dim` orthonormal columns, for instance in a model that somebody sent."""
    shaped = basis.ndim == 2 and basis.dtype == np.float64 and basis.shape[1] == dim <= len(basis) <= MOST_DIMENSIONS
    if not shaped or not np.all(np.abs(basis) <= 2.0) or np.abs(basis.T @ basis - np.eye(dim)).max() > ORTHONORMAL:
        raise InvalidInputError(f"the basis is not a matrix of {dim} orthonormal columns; publish the model again.")
