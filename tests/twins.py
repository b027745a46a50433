"""Algorithm 1 written out, one number at a time, from the public parameters of a family."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from privkde.kernels import LsqFamily
from privkde.kernels.gaussian import GaussianFamily
from privkde.kernels.hashed import CutFamily, ExponentialFamily
from privkde.kernels.inner_product import IdentityFamily, SignFamily

Vector = Sequence[float]
Floats = NDArray[np.float64]


def features(family: LsqFamily, x: Vector) -> list[float]:
    """f_i(x)_j for i = 1, …, I and j = 1, …, Q; also g_i(x)_j."""
    if isinstance(family, IdentityFamily):
        return list(x)
    if isinstance(family, SignFamily):
        return [_dot(np.sign(sigma), x) for sigma in family.weights.T]
    if isinstance(family, GaussianFamily):  # the factor √2/h is in the weights
        angles = [_dot(w, x) + float(phase) for w, phase in zip(family.weights.T, family.phases, strict=True)]
        return [math.sqrt(2.0) * math.cos(angle) for angle in angles]
    assert isinstance(family, CutFamily)
    n_buckets = family.facts.n_coordinates
    return [
        float(bucket == j) for bucket in (_bucket(family, i, x) for i in range(family.facts.n_repetitions))
        for j in range(n_buckets)
    ]  # fmt: skip


def _bucket(family: CutFamily, repetition: int, x: Vector) -> int:
    cuts = family.cuts
    bucket = int(cuts.offsets[repetition])
    for c in range(int(cuts.starts[repetition]), int(cuts.starts[repetition + 1])):
        height = _dot(family.directions[c], x) if isinstance(family, ExponentialFamily) else x[int(cuts.segments[c])]
        if height > float(cuts.thresholds[c]):
            bucket += int(cuts.residues[c])
    return bucket % family.facts.n_coordinates


def kernel(name: str, x: Vector, y: Vector, bandwidth: float = 1.0) -> float:
    """The kernel as docs/proofs/error.md defines it."""
    gaps = [a - b for a, b in zip(x, y, strict=True)]
    if name == "gaussian":
        return math.exp(-sum(gap**2 for gap in gaps) / bandwidth**2)
    if name == "laplacian":
        return math.exp(-sum(abs(gap) for gap in gaps) / bandwidth)
    if name == "exponential":
        return math.exp(-math.sqrt(sum(gap**2 for gap in gaps)) / bandwidth)
    return _dot(x, y)


def feature_sums(family: LsqFamily, records: Sequence[Vector]) -> list[float]:
    """Σ_u f_i(x_u)_j."""
    rows = [features(family, x) for x in records]
    return [math.fsum(column) for column in zip(*rows, strict=True)]


def density(family: LsqFamily, sums: Vector, n_users: int, y: Vector) -> float:
    """K(y) = (1/(nI)) Σ_i Σ_j F_ij g_i(y)_j."""
    products = [f * g for f, g in zip(sums, features(family, y), strict=True)]
    return math.fsum(products) / (n_users * family.facts.n_repetitions)


def _dot(a: Vector | NDArray[np.float32], b: Vector) -> float:
    return math.fsum(float(p) * float(q) for p, q in zip(a, b, strict=True))
