"""A ball that holds the Fourier features of the records of a domain, whatever the maps: its center and its radius.

With u = e^{−ρ²} for a record of norm ρ (in bandwidths), features s_i = cos(φ_i + y_i) and centers c_i = a·cos φ_i,

    E(s_i − c_i)² = ½(1 + a² − 2au),    E(s_i − c_i)⁴ = ⅜((1 + a²)² − 4a(1 + a²)u + 2a²(1 + u⁴)),

both largest at the largest ρ. So a sum over k draws of the maps is kv, up to a few deviations. Clients hold features
to that ball: privacy rests on what they send and neither on the maps nor on the domain.
Source: docs/proofs/geometric.md, "Features in a ball".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LEAST_RADIUS, LARGEST_RADIUS = 0.01, 100.0
DEVIATIONS = 4.0
"""Features of a record of the domain leave the ball if their squared distance is so many deviations above its mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureBall:
    """For k = `n_features` draws of cos(φ + y) and records of norm at most `radius` bandwidths."""

    n_features: int
    radius: float

    @property
    def share(self) -> float:
        """A = e^{−r²}: the center that is closest to the features of a record of norm r, in the mean."""
        return math.exp(-(self.radius**2))

    @property
    def mean(self) -> float:
        """V = ½(1 − a²), the mean of (s_i − c_i)² for a record of norm r."""
        return -math.expm1(-2.0 * self.radius**2) / 2.0

    @property
    def variance(self) -> float:
        """Of (s_i − c_i)²: ⅜((1 + a²)² − 4a²(1 + a²) + 2a²(1 + a⁴)) − v² = (1 − a²)²(1 + 6a²)/8.

        >>> FeatureBall(n_features=1, radius=100.0).variance  # cos² of a uniform angle
        0.125
        """
        return 0.5 * self.mean**2 * (1.0 + 6.0 * self.share**2)

    @property
    def margin(self) -> float:
        """How far the squared radius lies above its mean kv."""
        deviation = math.sqrt(self.n_features * self.variance)
        return min(DEVIATIONS * deviation, self.n_features * (1.0 - self.mean))

    @property
    def squared_radius(self) -> float:
        """Δ² = min(k, kv + 4√(k·variance)): two points of the ball are at most 2Δ apart, so that Σ t² ≤ Δ²."""
        return self.n_features * self.mean + self.margin

    @property
    def largest_clipping(self) -> float:
        """Bound on what holding features to the ball changes the mean of f(x)·g(y), for ‖x‖ ≤ r and any y.

        It moves features by at most (S − Δ²)₊/(2Δ), where S = Σ(s_i − c_i)², and E(S − Δ²)₊ ≤ ½(√(σ² + m²) − m) for
        the margin m and the variance σ² of S (Scarf's bound, for every law of S).
        """
        spread = self.n_features * self.variance
        beyond = spread / (math.sqrt(spread + self.margin**2) + self.margin) / 2.0
        return beyond / math.sqrt(self.n_features * self.squared_radius)
