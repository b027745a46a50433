"""Advanced composition, as in the paper's Theorem 3.2, over exactly calibrated instances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from accounting.composition.rung import Rung, Touched
from accounting.contract import Evidence, EvidenceKind
from accounting.mechanisms.bitsum_protocol import BitsumProtocol


def advanced_epsilon(instance_epsilon: float, times: int, slack_delta: float) -> float:
    """ε₀(e^{ε₀} − 1)k + ε₀ sqrt(2k ln(1/δ')): the paper's Theorem 3.2."""
    if instance_epsilon > 500.0:
        return math.inf
    return instance_epsilon * (
        math.expm1(instance_epsilon) * times + math.sqrt(2.0 * times * math.log(1.0 / slack_delta))
    )


def mixed_advanced_epsilon(epsilons: Sequence[float], slack_delta: float) -> float:
    """Σ ε_i(e^{ε_i} − 1)/(e^{ε_i} + 1) + sqrt(2 ln(1/δ') Σ ε_i²), for different ε (Kairouz, Oh, Viswanath 2015)."""
    drift = math.fsum(epsilon * math.tanh(epsilon / 2.0) for epsilon in epsilons)
    return drift + math.sqrt(2.0 * math.log(1.0 / slack_delta) * math.fsum(epsilon**2 for epsilon in epsilons))


def instance_epsilon_for(epsilon: float, times: int, slack_delta: float) -> float:
    """Largest ε₀ (rounded down) whose advanced composition is at most ε."""
    low, high = 0.0, epsilon / math.sqrt(2.0 * times * math.log(1.0 / slack_delta))
    for _ in range(200):
        middle = 0.5 * (low + high)
        if advanced_epsilon(middle, times, slack_delta) <= epsilon:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True)
class Advanced(Rung):
    """Half of δ to the composition (δ'), half to the k instances (δ₀ = δ/2k); ε₀ by bisection.

    All k touched instances are composed at once. The paper first adds up the coordinates of a
    repetition and then composes repetitions; that is never tighter, and equal when a repetition has one.
    """

    name: ClassVar[str] = "advanced"
    evidence: ClassVar[Evidence] = Evidence(
        kind=EvidenceKind.THEOREM,
        method="advanced composition of the exact instance profile, δ split in halves",
        source="the paper, Theorem 3.2; docs/proofs/composition.md, Proposition 2",
    )
    auto_group: ClassVar[int | None] = 2

    def achieved_epsilon(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        """Advanced composition of the exact instance ε at δ/2k."""
        return advanced_epsilon(protocol.epsilon(delta / (2.0 * touched.total)), touched.total, delta / 2.0)

    def instance_point(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float
    ) -> tuple[float, float]:
        """(ε₀, δ/2k) with ε₀ solving Theorem 3.2."""
        return instance_epsilon_for(epsilon, touched.total, delta / 2.0), delta / (2.0 * touched.total)

    def formula(self, law: type[BitsumProtocol], touched: Touched) -> str:
        """Theorem 3.2."""
        return "ε = ε₀(e^ε₀ − 1)·k + ε₀·sqrt(2k ln(1/δ')), δ = k·δ₀ + δ', δ' = δ/2 (Theorem 3.2)."
