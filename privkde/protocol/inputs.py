"""Private vectors are checked on the client, so that privacy never depends on well-formed data."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.errors import require_choice
from privkde.kernels import norms
from privkde.storage.user_blocks import Index

OUTSIDE = ("reject", "project")
ROUNDING_SLACK = 1e-3
"""A norm up to 1 + this times the largest is one that was stored in few digits: it is projected, never rejected."""

ROUNDED_UNIT = 1.0 + 2.0**-24
"""A norm up to this times the largest is the same in single precision: the vector is left as it is."""

LARGEST_NORM = 1e18
"""Beyond it, features would leave single precision."""

SCANNED_AT_ONCE = 4096


class Rows(Protocol):
    """Vectors that are read a block at a time: an array, a memory map, or anything else that is indexed like them."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(users, dim)."""

    def __getitem__(self, index: Index, /) -> NDArray[np.floating]:
        """The vectors of these users."""


def checked_vectors(
    x: NDArray[np.floating], dim: int, *, longest: float | None, outside: str = "reject", numbers: Index | None = None
) -> NDArray[np.float32]:
    """Vectors (b, dim) as float32, finite, and of norm `longest` at most if there is a limit, up to `NORM_ERROR`.

    What single precision takes for longer is measured again in double precision, and projected by that.
    Errors name a row by its number (`numbers`, by default 0, 1, …) and never show a value.
    """
    require_choice("outside", outside, OUTSIDE)
    require_numbers(x)
    if x.ndim != 2 or x.shape[1] != dim:
        raise InvalidInputError(f"vectors of shape {x.shape} were given; the plan is for (users, {dim}).")
    with np.errstate(over="ignore"):  # what overflows float32 is refused below
        vectors = np.ascontiguousarray(x, dtype=np.float32)
    named = np.arange(len(vectors)) if numbers is None else numbers
    lengths = norms.row_norms(vectors)
    bad = np.flatnonzero(~(lengths <= LARGEST_NORM))
    if len(bad):
        raise InvalidInputError(
            f"row {int(named[bad[0]])} has an entry that is NaN or infinite, or a norm beyond {LARGEST_NORM:g}"
            f" ({len(bad)} such rows in this block); repair or leave out these rows."
        )
    if longest is None:
        return vectors
    lengths /= longest
    over = lengths > ROUNDED_UNIT
    lengths[over] = np.sqrt(np.einsum("ij,ij->i", vectors[over], vectors[over], dtype=np.float64)) / longest
    far = np.flatnonzero(lengths > (1.0 + ROUNDING_SLACK))
    if len(far) and outside == "reject":
        raise InvalidInputError(
            f"row {int(named[far[0]])} has a norm above {longest:g} ({len(far)} such rows in this block), which this"
            " kernel's contract excludes; scale the vectors, or let the client project them (outside='project')."
        )
    over = lengths > ROUNDED_UNIT
    if over.any():
        vectors = vectors.copy() if np.may_share_memory(vectors, x) else vectors
        vectors[over] = vectors[over] / lengths[over, None]
    return vectors


def require_numbers(x: object, what: str = "vectors are") -> None:
    """Refuse what is not an array of real numbers; a conversion would quote private values, or change them."""
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "fiu":
        kind = f"an array of type {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise InvalidInputError(f"{what} given as {kind}; give a NumPy array of real numbers.")


def require_all(rows: Rows, dim: int, *, longest: float | None, outside: str) -> None:
    """Check all rows, block by block, so that bad data are refused before anything is planned for them."""
    for start in range(0, rows.shape[0], SCANNED_AT_ONCE):
        numbers = np.arange(start, min(start + SCANNED_AT_ONCE, rows.shape[0]))
        checked_vectors(rows[numbers], dim, longest=longest, outside=outside, numbers=numbers)
