"""Basic composition: k instances of (ε₀, δ₀) are (kε₀, kδ₀). The only rung that keeps δ = 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accounting.composition.base import Touched, instance_delta, log_ratio
from accounting.contract import Evidence, EvidenceKind
from accounting.mechanisms.base import BitsumProtocol


@dataclass(frozen=True, slots=True)
class Basic:
    """ε₀ = ε/k, δ₀ = δ/k, each instance by its exact law."""

    name: ClassVar[str] = "basic"

    def excess(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float, *, certified: bool
    ) -> float:
        """ln(δ_instance(ε/k)/(δ/k))."""
        k = touched.total
        return log_ratio(instance_delta(protocol, epsilon / k, certified=certified), delta / k)

    def achieved_epsilon(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        """The exact ε of one instance at δ/k, k times."""
        return touched.total * protocol.epsilon(delta / touched.total)

    def instance_point(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float
    ) -> tuple[float, float]:
        """(ε/k, δ/k)."""
        return epsilon / touched.total, delta / touched.total

    @property
    def evidence(self) -> Evidence:
        """Basic composition."""
        return Evidence(
            kind=EvidenceKind.THEOREM,
            method="basic composition of the exact instance profile: ε and δ add",
            source="docs/proofs/composition.md, Proposition 1",
        )
