"""A fast random projection for the Gaussian kernel in high dimension (Theorem 3.3 and §A.2 of the paper).

P = √(d/m) · (m random rows) · DCT · (random signs). Projecting takes d multiplications and one transform, about
2.5 d log₂ d operations; the I Fourier features then cost 2mI instead of 2dI. It pays off where m is well below d.

Source: docs/proofs/kernels.md, "Projection".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

from accounting.errors import require_integer
from privkde.draws.randomness import ByteStream
from privkde.kernels.lsq_family import Float32, read_only
from privkde.kernels.public_draws import signs, subset


class FastProjection:
    """x ↦ Px in m = `width` dimensions, with E‖Pz‖² = ‖z‖² for every z."""

    def __init__(self, dim: int, width: int, stream: ByteStream) -> None:
        self.dim = dim
        self.width = require_integer("projection", width, low=1, high=dim)
        drawn = signs(stream.child("signs"), dim)
        self.signs: Float32 = read_only(drawn * np.float32(math.sqrt(dim / width)))
        self.rows: NDArray[np.int64] = read_only(subset(stream.child("rows"), width, dim))

    def project(self, x: Float32) -> Float32:
        """Px for every row x."""
        rotated = dct(x * self.signs, type=2, norm="ortho", axis=1, overwrite_x=True)
        return np.take(rotated, self.rows, axis=1)


def distortion_bound(dim: int, width: int) -> float:
    """σ = √(5(d−m)/(m(d−1))): the root mean square of ‖Pz‖²/‖z‖² − 1 is at most σ, for every z.

    The same holds for exp(−‖Pz‖²/h²) − exp(−‖z‖²/h²), for every h: projecting adds at most σ to the RMSE of any
    density. It does not shrink with more repetitions, which share P.
    Source: docs/proofs/kernels.md, "Projection".
    """
    require_integer("dim", dim, low=1, high=2**53)
    require_integer("projection", width, low=1, high=dim)
    return 0.0 if width == dim else math.sqrt(5.0 * (dim - width) / (width * (dim - 1)))
