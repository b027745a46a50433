"""A fast random projection for the Gaussian kernel in high dimension (Theorem 3.3 and §A.2 of the paper).

P = √(d/m) · (m random rows) · DCT · (random signs). Projecting takes d multiplications and one transform, about
2.5 d log₂ d operations; the I Fourier features then cost 2mI instead of 2dI. It pays off where m is well below d.

Source: docs/proofs/kernels.md, "Projection".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct

from accounting.errors import require_integer, require_real
from privkde.draws.randomness import ByteStream
from privkde.kernels.lsq_family import Float32, read_only
from privkde.kernels.public_draws import normals, signs, subset, uniforms


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Distortion:
    """What one projection did to random pairs: root mean square and largest absolute change."""

    pairs: int
    distance_rms: float
    """Of ‖Pz‖²/‖z‖² − 1."""
    distance_max: float
    kernel_rms: float
    """Of exp(−‖Pz‖²/h²) − exp(−‖z‖²/h²)."""
    kernel_max: float
    bound: float
    """`distortion_bound`: holds for the root mean square over the choice of P, not for one P."""


def measured_distortion(
    projection: FastProjection, stream: ByteStream, *, bandwidth: float = 1.0, pairs: int = 1000
) -> Distortion:
    """Measure one projection on public random pairs: directions uniform, distances uniform on (0, 2]."""
    require_integer("pairs", pairs, low=1, high=10**6)
    require_real("bandwidth", bandwidth, low=0.0, high=math.inf)
    z = normals(stream.child("directions"), pairs * projection.dim).reshape(pairs, projection.dim)
    lengths = 2.0 * (1.0 - uniforms(stream.child("distances"), pairs))
    z *= (lengths / np.sqrt(np.sum(z * z, axis=1)))[:, None]
    image = projection.project(z.astype(np.float32)).astype(np.float64)
    before, after = lengths * lengths, np.sum(image * image, axis=1)
    ratio = after / before - 1.0
    change = np.exp(-after / bandwidth**2) - np.exp(-before / bandwidth**2)
    return Distortion(
        pairs=pairs,
        distance_rms=float(np.sqrt(np.mean(ratio**2))),
        distance_max=float(np.max(np.abs(ratio))),
        kernel_rms=float(np.sqrt(np.mean(change**2))),
        kernel_max=float(np.max(np.abs(change))),
        bound=distortion_bound(projection.dim, projection.width),
    )
