"""What one fast projection does to random pairs of points. The proofs bound it on average over all projections only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.errors import require_integer, require_real
from privkde.draws.randomness import ByteStream
from privkde.kernels.projection import FastProjection, distortion_bound
from privkde.kernels.public_draws import normals, uniforms


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
