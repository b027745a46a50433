"""The published calibration, to compare with: Lemma 4.8 for RR, published constants for 3NB and Pure, Theorem 3.2.

Each law knows what was published of it. Whatever is built here is checked against the exact law before it is returned,
in searches for the likely worst case of the others' data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from accounting.composition.advanced import Advanced, advanced_epsilon, instance_epsilon_for
from accounting.composition.basic import Basic
from accounting.composition.rung import L, Rung, Touched, instance_delta
from accounting.contract import Evidence, EvidenceKind
from accounting.errors import InfeasibleError
from accounting.mechanisms.bitsum_protocol import BitsumProtocol

if TYPE_CHECKING:
    from accounting.composition.target import Target
    from accounting.kernels import KernelFacts


@dataclass(frozen=True, slots=True)
class Paper(Rung):
    """Theorem 3.2 with instances calibrated as published; laws without δ are composed by adding up ε."""

    name: ClassVar[str] = "paper"
    evidence: ClassVar[Evidence] = Evidence(
        kind=EvidenceKind.THEOREM,
        method="published calibration and Theorem 3.2; instances per repetition counted as min(2S, Q), not S",
        source="the paper, Theorem 3.2 and appendix A.2; Cheu et al. 2019, Lemma 4.8",
    )
    checked: ClassVar[str] = "the published parameters pass the exact law of one instance"
    keeps_zero_delta: ClassVar[bool] = True

    def design(self, law: type[L], target: Target, n_users: int, *, certified: bool = True) -> L:
        """The published instance for a final (ε, δ), refused if the exact law contradicts it."""
        epsilon_0, delta_0 = _point(law, target.touched, target.epsilon, target.delta)
        protocol = law.as_published(epsilon_0, delta_0, n_users)
        exact = instance_delta(protocol, epsilon_0, certified=certified)
        if exact > delta_0:
            raise InfeasibleError(
                f"the published calibration for ε₀={epsilon_0:.4g}, δ₀={delta_0:.3g}, n={n_users} does not keep its"
                f" promise: the exact δ is {exact:.3g}; use accountant 'pld'."
            )
        return protocol

    def touched(self, facts: KernelFacts) -> Touched:
        """Grouped as the paper groups them."""
        return facts.paper_touched

    def achieved_epsilon(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        """What the publication would claim for these parameters; None where it says nothing."""
        delta_0 = protocol.promised_delta(delta) / (2.0 * touched.total)
        epsilon_0 = protocol.published_epsilon(delta_0)
        if epsilon_0 is None or protocol.delta(epsilon_0) > delta_0:
            return None
        if not protocol.spends_delta:
            return touched.total * epsilon_0
        return advanced_epsilon(touched.per_group * epsilon_0, touched.groups, delta / 2.0)

    def instance_point(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float
    ) -> tuple[float, float]:
        """(ε₀, δ₀) of Theorem 3.2, or (ε/k, 0) for a law without δ."""
        return _point(type(protocol), touched, epsilon, delta)

    def formula(self, law: type[BitsumProtocol], touched: Touched) -> str:
        """That of advanced composition, or of basic composition for a law without δ."""
        return (Advanced() if law.spends_delta else Basic()).formula(law, touched)


def _point(law: type[BitsumProtocol], touched: Touched, epsilon: float, delta: float) -> tuple[float, float]:
    if not law.spends_delta:
        return epsilon / touched.total, 0.0
    grouped = instance_epsilon_for(epsilon, touched.groups, delta / 2.0)
    return grouped / touched.per_group, delta / (2.0 * touched.total)
