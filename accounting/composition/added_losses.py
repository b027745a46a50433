"""Adding up losses of bits that move only so far: without δ, for roundings of a bounded vector.

One instance that is ε₀-DP with δ = 0 and whose bit moves by t loses at most ln(1 + t(e^{ε₀} − 1)). Over k instances
with Σ t² ≤ Δ² this adds up to at most k·ln(1 + (e^{ε₀} − 1)Δ/√k). Source: docs/proofs/composition.md, Proposition 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from accounting.composition.rung import Rung, Touched
from accounting.contract import Evidence, EvidenceKind
from accounting.mechanisms.bitsum_protocol import BitsumProtocol

ROUNDED_DOWN = 1.0 - 1e-12
"""Share of the ε₀ of an instance that is used: the logarithms are right to about 1e-15."""


def added_losses(touched: Touched, epsilon_0: float) -> float:
    """k·ln(1 + (e^{ε₀} − 1)Δ/√k)."""
    k = touched.total
    return k * math.log1p(math.expm1(epsilon_0) * math.sqrt(touched.shift_budget / k))


@dataclass(frozen=True, slots=True)
class AddedLosses(Rung):
    """ε₀ = ln(1 + (e^{ε/k} − 1)√k/Δ): for laws that spend no δ."""

    name: ClassVar[str] = "shifts"
    evidence: ClassVar[Evidence] = Evidence(
        kind=EvidenceKind.THEOREM,
        method="losses add up; a bit that moves by t loses ln(1 + t(e^{ε₀} − 1)), and squared shifts of one user's bit"
        " probabilities add up to at most Δ²",
        source="docs/proofs/composition.md, Proposition 7",
    )
    keeps_zero_delta: ClassVar[bool] = True
    uses_shifts: ClassVar[bool] = True

    def covers(self, law: type[BitsumProtocol]) -> bool:
        """Laws that spend no δ."""
        return not law.spends_delta

    def group_for(self, touched: Touched) -> int | None:
        """Where not every bit may flip: there it is never worse than `basic`."""
        return 0 if touched.shift_budget < touched.total else None

    def share_without_delta(self, touched: Touched, epsilon: float) -> float:
        """ε₀ of which all losses together are at most ε."""
        k = touched.total
        return math.log1p(math.expm1(epsilon / k) * math.sqrt(k / touched.shift_budget)) * ROUNDED_DOWN

    def achieved_epsilon(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        """By the ε₀ of the instances."""
        return added_losses(touched, protocol.epsilon(0.0))

    def instance_point(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float
    ) -> tuple[float, float]:
        """(ε₀, 0)."""
        return self.share_without_delta(touched, epsilon), 0.0

    def formula(self, law: type[BitsumProtocol], touched: Touched) -> str:
        """By the sum of squared shifts."""
        return f"ε = k·ln(1 + (e^ε₀ − 1)·Δ/√k), Δ² = {touched.shift_budget:.6g}; δ = 0."
