"""The Gaussian kernel exp(−‖x−y‖²/h²) by random Fourier features."""

from __future__ import annotations

import math

import numpy as np

from privkde.draws.randomness import ByteStream
from privkde.kernels.lsq_family import Float32, Float64, KernelChoice, LsqFamily, read_only
from privkde.kernels.projection import FastProjection
from privkde.kernels.public_draws import normal_rows, uniforms


class GaussianFamily(LsqFamily):
    """f = g = √2 cos(√2 ω·x/h + φ) with ω standard normal and φ uniform on [0, 2π); Q = S = 1, R = √2.

    E[f(x) g(y)] = E cos(√2 ω·(x−y)/h) = exp(−‖x−y‖²/h²). With `projection`, x and y are projected first.
    Source: docs/proofs/kernels.md, "Gaussian".
    """

    @staticmethod
    def n_parameters(choice: KernelChoice) -> float:
        """The frequencies."""
        return choice.facts().n_repetitions * (choice.projection or choice.dim)

    def __init__(self, choice: KernelChoice, stream: ByteStream) -> None:
        super().__init__(choice, stream)
        width = choice.projection or choice.dim
        self.projection = (
            None if choice.projection is None else FastProjection(choice.dim, width, stream.child("projection"))
        )
        weights = np.empty((width, self.facts.n_repetitions), dtype=np.float32)
        for part, omega in normal_rows(stream.child("frequencies"), self.facts.n_repetitions, width):
            weights[:, part] = (omega * (math.sqrt(2.0) / choice.bandwidth)).T
        self.weights: Float32 = read_only(weights)
        phases = uniforms(stream.child("phases"), self.facts.n_repetitions) * (2.0 * math.pi)
        self.phases: Float32 = read_only(phases.astype(np.float32))

    def scaled_features(self, x: Float32 | Float64) -> Float32:
        """cos(√2 ω·x/h + φ): one product of matrices, then in place."""
        rows = self.rows(x)
        if self.projection is not None:
            rows = self.projection.project(rows)
        angles: Float32 = rows @ self.weights
        angles += self.phases
        np.cos(angles, out=angles)
        return np.clip(angles, -1.0, 1.0, out=angles)

    def kernel(self, x: Float32 | Float64, y: Float32 | Float64) -> Float64:
        """exp(−‖x−y‖²/h²), whether projected or not.

        ‖x−y‖² is taken as ‖x‖² + ‖y‖² − 2x·y: accurate to about 1e-15 (‖x‖² + ‖y‖²)/h².
        """
        left, right = self.wide_rows(x), self.wide_rows(y)
        squares: Float64 = left @ right.T
        squares *= -2.0
        squares += np.einsum("ij,ij->i", left, left)[:, None]
        squares += np.einsum("ij,ij->i", right, right)
        np.maximum(squares, 0.0, out=squares)
        squares /= -(float(self.choice.bandwidth) ** 2)
        return np.exp(squares, out=squares)
