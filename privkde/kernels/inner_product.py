"""The inner product x·y: identity features, and random signs (§A.3 of the paper)."""

from __future__ import annotations

import math

import numpy as np

from accounting.kernels import MOST_SINGULAR, NORM_SLACK
from privkde.draws.randomness import ByteStream
from privkde.kernels import norms
from privkde.kernels.lsq_family import Float32, Float64, KernelChoice, LsqFamily, read_only
from privkde.kernels.norms import NORM_ERROR
from privkde.kernels.projection import FastProjection
from privkde.kernels.public_draws import signs


class InnerProductFamily(LsqFamily):
    """What both families share: the kernel x·y of vectors of norm at most 1."""

    def kernel(self, x: Float32 | Float64, y: Float32 | Float64) -> Float64:
        """x·y."""
        return np.asarray(self.wide_rows(x) @ self.wide_rows(y).T)

    def _held(self, features: Float32) -> Float32:
        """Features clipped to [−1, 1], and each row to the norm Δ that is declared, in place.

        Two rows of norm at most Δ differ by Σ t² = ‖s − s'‖²/4 ≤ Δ², whatever rounding did on the way to them. It
        never takes a vector of norm 1 that far; so nothing but the clipping changes a feature in practice.
        Source: docs/proofs/geometric.md, "Single precision".
        """
        np.clip(features, -1.0, 1.0, out=features)
        if self.facts.squared_shift is not None:
            largest = (1.0 - 2.0 * NORM_ERROR) * math.sqrt(self.facts.squared_shift)
            lengths = norms.row_norms(features)
            far = np.flatnonzero(lengths > largest)
            features[far] *= (largest / lengths[far, None]).astype(np.float32)
        return features


class IdentityFamily(InnerProductFamily):
    """f(x) = g(x) = x, one repetition: Q = S = d. With R = 1 nothing is drawn, f·g is the kernel itself.

    With R < 1 both are first rotated by public signs and a cosine transform, and f is clipped to [−R, R]: the
    coordinates of a rotated unit vector are of size 1/√d, and rounding them relative to R makes R times less noise.
    """

    @staticmethod
    def n_parameters(choice: KernelChoice) -> float:
        """The signs of the rotation and their places."""
        return 2 * choice.dim

    def __init__(self, choice: KernelChoice, stream: ByteStream) -> None:
        super().__init__(choice, stream)
        self.rotation = (
            None if self.facts.bound >= 1.0 else FastProjection(choice.dim, choice.dim, stream.child("rotation"))
        )

    def scaled_features(self, x: Float32 | Float64) -> Float32:
        """The record itself, or rotated, clipped and divided by R."""
        return self._held(self.query_features(x) / self._bound)

    def query_features(self, y: Float32 | Float64) -> Float32:
        """The query itself, or rotated."""
        rows = self.rows(y)
        return rows if self.rotation is None else self.rotation.project(rows)


class SignFamily(InnerProductFamily):
    """f(x) = g(x) = σ·x with independent signs σ: Q = S = 1, R = √d, since |σ·x| ≤ ‖x‖₁ ≤ √d ‖x‖₂.

    E[(σ·x)(σ·y)] = Σ_jk E[σ_j σ_k] x_j y_k = x·y.
    Source: §A.3 of the paper; docs/proofs/kernels.md, "Inner product".
    """

    @staticmethod
    def n_parameters(choice: KernelChoice) -> float:
        """The signs."""
        return choice.facts().n_repetitions * choice.dim

    def __init__(self, choice: KernelChoice, stream: ByteStream) -> None:
        super().__init__(choice, stream)
        shape = (self.facts.n_repetitions, choice.dim)
        drawn = signs(stream.child("signs"), shape[0] * shape[1]).reshape(shape)
        self.weights: Float32 = read_only(drawn.T * np.float32(1.0 / math.sqrt(choice.dim)))

    def squared_shift(self) -> float | None:
        """(σ_max/√d)² of the drawn signs: ‖σ(x − x')/(2√d)‖² for opposite x and x' of norm 1, at worst."""
        if min(self.weights.shape) > MOST_SINGULAR:
            return None
        return (NORM_SLACK * float(np.linalg.norm(self.weights.astype(np.float64), 2))) ** 2

    def scaled_features(self, x: Float32 | Float64) -> Float32:
        """σ·x/√d."""
        return self._held(self.rows(x) @ self.weights)
