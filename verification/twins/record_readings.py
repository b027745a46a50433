"""What the sums of rotated records should say of classes and second moments: read by an explicit matrix.

Written from docs/proofs/moments.md: signs s and the orthonormal cosine matrix C take v(x, c) to C(s·v), so Σv is s·Cᵀ
of the sums, divided by the share that clipping leaves, 1 − 2Φ(−R√D'/‖v‖). Only the signs come from the library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from privkde.protocol.record_vectors import RecordLayout

Floats = NDArray[np.float64]

DENSITY, SIZE, MOMENT = "density", "size", "second moment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One number that is published, a linear function of the sums: by its definition, and as the library reads it."""

    what: str
    kind: str
    weights: Floats
    """One for each instance."""
    expected: float
    """What it should be: a density, a share of all users, or yᵀ(Σxxᵀ)y/n."""
    residual: float
    """How far clipping may leave its mean over rotations from `expected`."""
    published: Callable[[Floats], float]
    """The same of some sums, by the library."""


def clipped_share(layout: RecordLayout) -> float:
    """2Φ(−R√D'/‖v‖): what clipping takes if rotated coordinates are normal. They are not, quite.

    Sums of random signs have lighter tails, so less is taken; what is given back is at most this share too much.
    """
    v = layout.vector
    norm = math.sqrt(1.0 + v.moment_weight + _size_weight(v.moment_weight))
    return float(2.0 * stats.norm.cdf(-layout.bound * math.sqrt(v.padded) / norm))


def _size_weight(moment_weight: float) -> float:
    """γ² = ½ sup‖v − v'‖² − 1 − β²."""
    return 1.0 - moment_weight if moment_weight <= 0.5 else 1.0 / (4.0 * moment_weight)


@lru_cache(maxsize=4)
def _cosines(size: int) -> Floats:
    """C: row k is √(2/D')·cos(πk(2j+1)/(2D')), the first by √(1/D')."""
    k, j = np.arange(size)[:, None], np.arange(size)[None]
    matrix = math.sqrt(2.0 / size) * np.cos(math.pi * k * (2 * j + 1) / (2 * size))
    matrix[0] /= math.sqrt(2.0)
    return np.asarray(matrix)


def readings(layout: RecordLayout, x: Floats, classes: NDArray[np.int64], y: Floats) -> list[Reading]:
    """Densities of both classes at all queries y, second moments along them, and sizes."""
    v, n, lost = layout.vector, len(x), clipped_share(layout)
    d, gamma = v.dim, math.sqrt(_size_weight(v.moment_weight))
    back = (_cosines(v.padded) * np.sign(layout.scales)).T / (1.0 - lost)
    found = []
    for c in range(v.n_classes):
        mine = classes == c
        for at, query in enumerate(y):
            found.append(
                Reading(
                    what=f"density of class {c} at query {at}",
                    kind=DENSITY,
                    weights=query @ back[c * d : (c + 1) * d] / mine.sum(),
                    expected=float(np.mean(x[mine] @ query)),
                    residual=2.0 * lost,
                    published=partial(_density, layout, c, query / mine.sum()),
                )
            )
    start = v.n_classes * d
    pairs = [(i, (i + k) % d) for k in range(d // 2 + 1) for i in range(d) if 2 * k < d or i < k]
    rows, columns = np.array(pairs).T
    for at, query in enumerate(y if v.moment_weight else y[:0]):
        entries = query[rows] * query[columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))
        found.append(
            Reading(
                what=f"second moment along query {at}",
                kind=MOMENT,
                weights=entries @ back[start : start + len(rows)] / (n * math.sqrt(v.moment_weight)),
                expected=float(np.mean((x @ query) ** 2)),
                residual=2.0 * lost,
                published=partial(_moment, layout, query, n),
            )
        )
    start += len(rows) if v.moment_weight else 0
    for c in range(v.n_classes):
        found.append(
            Reading(
                what=f"size of class {c}",
                kind=SIZE,
                weights=back[start + c] / (gamma * n),
                expected=float(np.mean(classes == c)),
                residual=2.0 * lost,
                published=partial(_size, layout, c, n),
            )
        )
    return found


def _density(layout: RecordLayout, c: int, query: Floats, sums: Floats) -> float:
    return float(layout.split(sums, 0)[0][c] @ query)


def _moment(layout: RecordLayout, query: Floats, n_users: int, sums: Floats) -> float:
    return float(query @ layout.second_moments(sums) @ query) / n_users


def _size(layout: RecordLayout, c: int, n_users: int, sums: Floats) -> float:
    return float(layout.split(sums, n_users)[1][c]) / n_users
