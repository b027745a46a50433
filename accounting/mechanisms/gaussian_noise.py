"""The Gaussian mechanism with its exact (analytic) profile: the central baseline.

δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) with μ = sensitivity/σ (Balle and Wang 2018, Theorem 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import scipy

from accounting.contract import Contract, Evidence, EvidenceKind
from accounting.errors import require_real
from accounting.guarantee import Adjacency, Guarantee, View
from accounting.numerics.profile import RELATIVE_PAD, smallest_epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianMechanism:
    """Add N(0, σ²) to every coordinate of a vector with ℓ₂ sensitivity `sensitivity` under replace-one."""

    sensitivity: float
    standard_deviation: float

    def __post_init__(self) -> None:
        require_real("sensitivity", self.sensitivity, low=0.0, high=1e12)
        require_real("standard_deviation", self.standard_deviation, low=0.0, high=1e18)

    @staticmethod
    def calibrate(epsilon: float, delta: float, sensitivity: float) -> GaussianMechanism:
        """Smallest σ whose exact δ(ε) is at most delta, on the safe side."""
        require_real("epsilon", epsilon, low=0.0, high=1e3)
        require_real("delta", delta, low=0.0, high=1.0 - 1e-12)

        def excess(log_ratio: float) -> float:
            return _delta(math.exp(log_ratio), epsilon) - delta

        # μ = sensitivity/σ grows with δ.
        root = scipy.optimize.brentq(excess, math.log(1e-12), math.log(1e4), xtol=1e-13)
        ratio = math.exp(root - 1e-9)
        return GaussianMechanism(sensitivity=sensitivity, standard_deviation=sensitivity / ratio)

    def delta(self, epsilon: float) -> float:
        """Exact δ(ε), rounded up."""
        return _delta(self.sensitivity / self.standard_deviation, epsilon)

    def slope(self, epsilon: float) -> float:
        """−d ln δ(ε)/d ln σ, at least 1: how fast more noise helps, roughly."""
        more = 1.001
        noisier = GaussianMechanism(sensitivity=self.sensitivity, standard_deviation=more * self.standard_deviation)
        logs = [math.log(max(mechanism.delta(epsilon), 1e-300)) for mechanism in (self, noisier)]
        return max(1.0, (logs[0] - logs[1]) / math.log(more))

    def epsilon(self, delta: float) -> float:
        """Smallest ε with δ(ε) ≤ delta, rounded up."""
        return smallest_epsilon(self.delta, delta)

    def contract(self, epsilon: float) -> Contract:
        """The central baseline: the analyzer sees the raw data, only the published model is protected."""
        return Contract(
            component="central Gaussian baseline",
            guarantees=(
                Guarantee(epsilon=epsilon, delta=self.delta(epsilon), adjacency=Adjacency.FEATURES, view=View.MODEL),
            ),
            evidence=Evidence(
                kind=EvidenceKind.THEOREM,
                method="exact profile of the Gaussian mechanism",
                source="Balle and Wang 2018, Theorem 8",
            ),
            checked=("σ > 0", "ℓ₂ sensitivity under replace-one is as declared by the kernel"),
            assumed=("the analyzer is trusted with the raw data",),
            parameters={"sensitivity": self.sensitivity, "standard_deviation": self.standard_deviation},
        )


def _delta(ratio: float, epsilon: float) -> float:
    """Φ(a) − e^ε Φ(b), a = μ/2 − ε/μ, b = a − μ, rounded up.

    Since φ(a) = e^ε φ(b), this is φ(a)·(R(−a) − R(−b)) with the Mills ratio R(x) = Φ(−x)/φ(x), which `erfcx`
    gives without underflow. The difference of two values μ apart loses 1/μ in relative accuracy: padded.
    """
    a, b = ratio / 2.0 - epsilon / ratio, -ratio / 2.0 - epsilon / ratio
    if a > 5.0:  # Φ(a) is nearly 1: nothing cancels
        difference = float(scipy.special.ndtr(a)) - math.exp(epsilon + float(scipy.special.log_ndtr(b)))
    else:
        mills = float(scipy.special.erfcx(-a / math.sqrt(2.0)) - scipy.special.erfcx(-b / math.sqrt(2.0)))
        difference = 0.5 * math.exp(-a * a / 2.0) * mills
    return min(1.0, max(difference, 0.0) * (1.0 + RELATIVE_PAD + 1e-14 / ratio))
