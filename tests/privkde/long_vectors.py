"""Long vectors of norm a little above 1 that are hard on sums in single precision."""

import numpy as np
from numpy.typing import NDArray

SHAPES = ("equal", "alternating", "large ones first", "large ones last", "normal", "heavy tails")


def long_vectors(shape: str, dim: int) -> NDArray[np.float32]:
    """Several vectors of this shape, of norm 1 and somewhat more.

    Large entries followed by small ones: each square of these is below half a unit in the last place of a sum that is
    already 1/m, for m partial sums that a processor keeps side by side, so all of them may be lost.
    """
    rng = np.random.default_rng(7)
    if shape.startswith("large"):
        rows = [_large_first(dim, count) for count in (1, 32, 64, 256) if count <= dim]
        return np.stack([row[::-1] for row in rows] if shape.endswith("last") else rows)
    row = {
        "equal": np.ones(dim),
        "alternating": np.where(np.arange(dim) % 2, 1.0, -1.0),
        "normal": rng.normal(size=dim),
        "heavy tails": rng.standard_cauchy(size=dim),
    }[shape]
    lengths = 1.0 + np.array([0.0, 1e-5, 2.25e-4])
    return np.asarray(row / np.linalg.norm(row) * lengths[:, None], np.float32)


def _large_first(dim: int, count: int) -> NDArray[np.float32]:
    row = np.full(dim, np.sqrt(0.95 * 2.0**-25 / count), np.float32)
    row[:count] = np.sqrt(1.0 / count) * (1.0 - 1e-6)
    return row
