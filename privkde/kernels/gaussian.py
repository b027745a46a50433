"""The Gaussian kernel exp(−‖x−y‖²/h²) by random Fourier features."""

from __future__ import annotations

import math

import numpy as np

from privkde.draws.randomness import ByteStream
from privkde.kernels import norms
from privkde.kernels.lsq_family import Float32, Float64, KernelChoice, LsqFamily, read_only
from privkde.kernels.norms import NORM_ERROR
from privkde.kernels.projection import FastProjection
from privkde.kernels.public_draws import normal_rows, uniforms

ROUNDING_UNIT = 2.0**-24


class GaussianFamily(LsqFamily):
    """f = g = √2 cos(√2 ω·x/h + φ) with ω standard normal and φ uniform on [0, 2π); Q = S = 1, R = √2.

    Where a radius is declared, f is held to a ball around a·cos φ (`accounting.feature_ball`), and g is not.

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
        ball = self.facts.ball
        center = None if ball is None else ball.share * np.cos(self.phases.astype(np.float64))
        self.center: Float32 | None = None if center is None else read_only(center.astype(np.float32))

    def scaled_features(self, x: Float32 | Float64) -> Float32:
        """cos(√2 ω·x/h + φ), held to the ball if there is one."""
        return self._held(self._cosines(x))

    def query_features(self, y: Float32 | Float64) -> Float32:
        """g(y): no query is held to the ball."""
        features = self._cosines(y)
        features *= self._bound
        return features

    def _cosines(self, x: Float32 | Float64) -> Float32:
        """One product of matrices, then in place."""
        rows = self.rows(x)
        if self.projection is not None:
            rows = self.projection.project(rows)
        angles: Float32 = rows @ self.weights
        angles += self.phases
        np.cos(angles, out=angles)
        return np.clip(angles, -1.0, 1.0, out=angles)

    def _held(self, features: Float32) -> Float32:
        """Rows s within Δ of the center c, in place; the others move towards it: any two have Σ t² = ‖s − s'‖²/4 ≤ Δ².

        `NORM_ERROR` is for computed distances, the rest for rounding s, and c, which machines may compute differently.
        Source: docs/proofs/geometric.md, "Features in a ball".
        """
        if self.center is None or self.facts.squared_shift is None:
            return features
        slack = 3.0 * ROUNDING_UNIT * math.sqrt(features.shape[1])
        largest = (1.0 - 2.0 * NORM_ERROR) * math.sqrt(self.facts.squared_shift) - slack
        features -= self.center
        lengths = norms.row_norms(features)
        far = np.flatnonzero(lengths > largest)
        features[far] *= (largest / lengths[far, None]).astype(np.float32)
        features += self.center
        return np.clip(features, -1.0, 1.0, out=features)

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
