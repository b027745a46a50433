"""Basic composition: k instances of (ε₀, δ₀) are (kε₀, kδ₀)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accounting.composition.rung import Rung, Touched
from accounting.contract import Evidence, EvidenceKind
from accounting.mechanisms.bitsum_protocol import BitsumProtocol


@dataclass(frozen=True, slots=True)
class Basic(Rung):
    """ε₀ = ε/k, δ₀ = δ/k, each instance by its exact law."""

    name: ClassVar[str] = "basic"
    evidence: ClassVar[Evidence] = Evidence(
        kind=EvidenceKind.THEOREM,
        method="basic composition of the exact instance profile: ε and δ add",
        source="docs/proofs/composition.md, Proposition 1",
    )
    keeps_zero_delta: ClassVar[bool] = True
    auto_group: ClassVar[int | None] = 2

    def achieved_epsilon(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        """The exact ε of one instance at δ/k, k times."""
        return touched.total * protocol.epsilon(delta / touched.total)

    def instance_point(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float
    ) -> tuple[float, float]:
        """(ε/k, δ/k)."""
        return self.share_without_delta(touched, epsilon), delta / touched.total

    def formula(self, law: type[BitsumProtocol], touched: Touched) -> str:
        """Both add up."""
        return "ε = k·ε₀, δ = k·δ₀ (basic composition)."
