"""A public basis: vectors are projected on a few columns first, which lowers noise and costs no privacy.

With r columns instead of d the noise of means and second moments has fewer coordinates, and the fewest messages that
are possible are about r²/2 + mr for m classes; padding takes more, unless a limit on messages is lower.
With orthonormal columns B, x ↦ x·B is a contraction: norms stay at most 1, so every promise holds as without it. B is
published with the model and must come from public data; nothing here protects whoever it was computed from.

An announcement names B by its fingerprint. B itself is too large for it, and reaches clients as a file.
"""

from __future__ import annotations

import hashlib
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
        """The projected vectors of these users."""
        return projected(self.rows[index], self.basis)


def projected(vectors: NDArray[np.floating], basis: Floats) -> Floats:
    """x·B for each vector; one with an entry that is not finite leaves none that is."""
    require_numbers(vectors)
    if vectors.ndim != 2 or vectors.shape[1] != len(basis):
        raise InvalidInputError(f"vectors of shape {vectors.shape} were given; the basis is for (users, {len(basis)}).")
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(vectors.astype(np.float64) @ basis)


def fingerprint(basis: Floats) -> str:
    """SHA-256 of shape and entries, by which an announcement names a basis."""
    shape = "×".join(str(length) for length in basis.shape)
    return hashlib.sha256(f"{shape} ".encode() + np.ascontiguousarray(basis, "<f8").tobytes()).hexdigest()


def require_announced(basis: Floats | None, sha256: str | None) -> None:
    """Refuse a basis that is not the announced one, or one where none is announced."""
    if basis is None and sha256 is not None:
        raise InvalidInputError(f"the announcement names the basis {sha256[:16]}…; give that matrix.")
    if basis is not None and fingerprint(basis) != sha256:
        if sha256 is None:
            raise InvalidInputError("a basis was given and the announcement names none; leave it out.")
        raise InvalidInputError(
            f"the announcement names the basis {sha256[:16]}…, and another was given; give that one."
        )


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
    if not isinstance(basis, np.ndarray):
        raise InvalidInputError(f"the basis is a {type(basis).__name__}; give a NumPy array.")
    shaped = basis.ndim == 2 and basis.dtype == np.float64 and basis.shape[1] == dim <= len(basis) <= MOST_DIMENSIONS
    if not shaped or not np.all(np.abs(basis) <= 2.0) or np.abs(basis.T @ basis - np.eye(dim)).max() > ORTHONORMAL:
        raise InvalidInputError(
            f"the basis is not a matrix of {dim} orthonormal columns; make it by privkde.protocol.basis.orthonormal."
        )
