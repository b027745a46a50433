"""Joint labels in one vector: a client rotates features, second moments and label together (docs/proofs/moments.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.fft import dct, idct

from accounting import InvalidInputError
from accounting.kernels import KernelFacts
from accounting.record_vector import TRANSFORM_ERROR, RecordVector
from privkde.draws.randomness import public_stream
from privkde.kernels.norms import row_norms
from privkde.kernels.public_draws import signs
from privkde.protocol.joint_labels import checked_classes

Floats = NDArray[np.float64]

ROWS_AT_ONCE = 16
"""That are rotated together: enough to be transformed side by side, few enough for a core's cache."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordLayout:
    """v(x, c) of every user, its rotation, and how published sums are read.

    The rotation is public: signs, then a cosine transform over all coordinates.
    """

    vector: RecordVector
    bound: float
    scales: NDArray[np.float32]
    """What coordinates are multiplied by before the transform: sign, 1/R, and β or √2·β in the second moments."""

    @staticmethod
    def of(facts: KernelFacts, public_seed: str) -> RecordLayout | None:
        """The layout of a plan whose records are rotated as one vector; None for other plans."""
        return None if facts.record is None else _drawn(facts.record, facts.bound, public_seed)

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return self.vector.n_classes

    def scaled(self, vectors: NDArray[np.float32], classes: NDArray[np.integer] | None) -> NDArray[np.float32]:
        """The rotated v(x, c)/R of every user (rows), clipped to [−1, 1]."""
        numbers = checked_classes(classes, len(vectors), self.n_classes)
        rows = np.empty((len(vectors), self.vector.padded), np.float32)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            self._write(vectors[part], numbers[part], rows[part])
            self._rotate(rows[part], self._lengths(vectors[part]))
        return rows

    def _write(self, vectors: NDArray[np.float32], numbers: NDArray[np.integer], rows: NDArray[np.float32]) -> None:
        """v(x, c) of some users, with β and √2·β left to `scales`."""
        v, users = self.vector, np.arange(len(vectors))
        moments, sizes = v.n_classes * v.dim, v.n_classes * v.dim + v.n_moments
        rows[:, :moments] = rows[:, sizes:] = 0.0
        rows[:, :moments].reshape(len(vectors), v.n_classes, v.dim)[users, numbers] = vectors
        if v.n_moments:
            _write_products(vectors, rows[:, moments:sizes])
        rows[users, sizes + numbers] = np.float32(math.sqrt(v.size_weight))

    def _lengths(self, vectors: NDArray[np.float32]) -> Floats:
        """‖v(x, c)‖/R of some users, √(‖x‖² + β²‖x‖⁴ + γ²)/R, with 1/R and β/R as `scales` have them."""
        v, squares = self.vector, row_norms(vectors) ** 2
        moment = float(self.scales[v.n_classes * v.dim]) if v.n_moments else 0.0
        return np.sqrt((squares + v.size_weight) / self.bound**2 + (moment * squares) ** 2)

    def _rotate(self, rows: NDArray[np.float32], lengths: Floats) -> None:
        """Scale, rotate and clip some rows, in place; `lengths` are those that they must have afterwards."""
        rows *= self.scales
        rotated = dct(rows, type=2, norm="ortho", axis=1, overwrite_x=True)
        if not np.all(np.abs(row_norms(rotated) - lengths) <= 2.0 * TRANSFORM_ERROR * lengths):
            raise InvalidInputError(
                f"the cosine transform of this machine changes lengths by more than {2.0 * TRANSFORM_ERROR:g}, and"
                " promises count on less; nothing was sent. Install another build of SciPy."
            )
        np.clip(rotated, -1.0, 1.0, out=rows)

    def unrotated(self, sums: Floats) -> Floats:
        """Estimates of Σ v(x_u, c_u), one for each coordinate that is not padding, from published sums.

        What clipping takes is given back (`RecordVector.clipped_share`).
        """
        v = self.vector
        back = np.asarray(idct(sums, type=2, norm="ortho"))[: v.n_coordinates]
        return back * np.sign(self.scales[: v.n_coordinates]) / (1.0 - v.clipped_share(self.bound))

    def split(self, sums: Floats, n_users: int) -> tuple[Floats, Floats]:
        """Σ x of each class (rows) and the estimated number of users of each class, from published sums."""
        v, back = self.vector, self.unrotated(sums)
        features = back[: v.n_classes * v.dim].reshape(v.n_classes, v.dim)
        return features, back[-v.n_classes :] / math.sqrt(v.size_weight)

    def second_moments(self, sums: Floats) -> Floats:
        """Σ xxᵀ over all users, from published sums."""
        v = self.vector
        rows, columns = moment_indices(v.dim)
        entries = self.unrotated(sums)[v.n_classes * v.dim : -v.n_classes] / _moment_scales(v)
        matrix = np.zeros((v.dim, v.dim))
        matrix[rows, columns] = matrix[columns, rows] = entries
        return matrix

    def noise_deviation(self, n_users: int, bitsum_variance: float) -> float:
        """Standard deviation of one coordinate of `unrotated`."""
        return self.vector.noise_deviation(self.bound, n_users, bitsum_variance)


@lru_cache(maxsize=4)
def _drawn(vector: RecordVector, bound: float, public_seed: str) -> RecordLayout:
    exact = signs(public_stream(public_seed).child("record"), vector.padded) / bound
    start = vector.n_classes * vector.dim
    exact[start : start + vector.n_moments] *= _moment_scales(vector)
    scales = exact.astype(np.float32)
    scales.flags.writeable = False
    return RecordLayout(vector=vector, bound=bound, scales=scales)


def moment_indices(dim: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which x_i·x_j is where in svec: those with j = i, then those with j = i + 1 modulo d, and so on.

    >>> print(*(f"{i}{j}" for i, j in zip(*moment_indices(3), strict=True)))
    00 11 22 01 12 20
    """
    steps, rows = np.divmod(np.arange(dim * (dim + 1) // 2), dim)
    return rows, (rows + steps) % dim


def _write_products(vectors: NDArray[np.float32], out: NDArray[np.float32]) -> None:
    """x_i·x_j in the order of `moment_indices`: long rows of products, since short ones take longer."""
    dim = vectors.shape[1]
    whole = (dim + 1) // 2
    ahead = sliding_window_view(np.concatenate([vectors, vectors[:, : whole - 1]], axis=1), dim, axis=1)
    np.multiply(vectors[:, None], ahead, out=out[:, : whole * dim].reshape(-1, whole, dim))
    if dim % 2 == 0:
        np.multiply(vectors[:, :whole], vectors[:, whole:], out=out[:, whole * dim :])


def _moment_scales(vector: RecordVector) -> Floats:
    """β on the diagonal and √2·β beside it, in the order of svec."""
    if not vector.n_moments:
        return np.zeros(0)
    rows, columns = moment_indices(vector.dim)
    return math.sqrt(vector.moment_weight) * np.where(rows == columns, 1.0, math.sqrt(2.0))
