"""The published calibration, to compare with: Lemma 4.8 for RR, published constants for 3NB and Pure, Theorem 3.2.

The paper's bibliography key for Lemma 4.8 is a slip; the lemma is of Cheu, Smith, Ullman, Zeber and
Zhilyaev 2019. Whatever is built here is checked against the exact law before it is returned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from accounting.composition.advanced import advanced_epsilon, instance_epsilon_for
from accounting.composition.base import Touched, instance_delta, log_ratio
from accounting.contract import Evidence, EvidenceKind
from accounting.errors import InfeasibleError, InvalidInputError
from accounting.mechanisms.base import BitsumProtocol
from accounting.mechanisms.pure import Pure
from accounting.mechanisms.randomized_response import RandomizedResponse
from accounting.mechanisms.three_negative_binomial import ThreeNegativeBinomial
from accounting.profile import smallest_root

PUBLISHED_SHRINK = 0.99


def lemma_4_8(epsilon_0: float, delta_0: float, n_users: int) -> float:
    """Flip probability λ/2n with L = ln(4/δ₀): λ = 64L/ε₀² if ε₀ ≥ sqrt(192L/n), else n − ε₀ n^{3/2}/sqrt(432L).

    Both branches give λ = n/3 at the seam.
    """
    log_term = math.log(4.0 / delta_0)
    if epsilon_0 >= math.sqrt(192.0 * log_term / n_users):
        blanket = 64.0 * log_term / epsilon_0**2
    else:
        blanket = n_users - epsilon_0 * n_users * math.sqrt(n_users / (432.0 * log_term))
    return blanket / (2.0 * n_users)


def lemma_4_8_epsilon(flip_probability: float, delta_0: float, n_users: int) -> float:
    """The ε₀ at which Lemma 4.8 prescribes exactly this flip probability."""
    log_term = math.log(4.0 / delta_0)
    blanket = 2.0 * n_users * flip_probability
    if blanket <= n_users / 3.0:
        return math.sqrt(64.0 * log_term / blanket)
    return (n_users - blanket) * math.sqrt(432.0 * log_term / n_users) / n_users


def published_three_negative_binomial(epsilon_0: float, delta_0: float, n_users: int) -> ThreeNegativeBinomial:
    """Parameters p = e^{−0.99ε₀}, r' = 3(1 + ln(2e^{0.99ε₀}/δ₀)), p' = e^{−cε₀/(ε₀ + ln(1/δ₀))}.

    The publication leaves the constant c open; the largest c (fewest messages) that the exact law
    allows is used.
    """
    shrunk = PUBLISHED_SHRINK * epsilon_0
    flood_shape = 3.0 * (1.0 + math.log(2.0 / delta_0) + shrunk)

    def build(constant: float) -> ThreeNegativeBinomial:
        return ThreeNegativeBinomial(
            n_users=n_users,
            noise_shape=1,
            continue_probability=math.exp(-shrunk),
            flood_shape=flood_shape,
            flood_continue_probability=math.exp(-constant * epsilon_0 / (epsilon_0 + math.log(1.0 / delta_0))),
        )

    def holds(inverse: float) -> bool:
        return build(1.0 / inverse).delta(epsilon_0) <= delta_0

    high = 0.01
    while not holds(high):
        high *= 2.0
        if high > 1e6:
            raise InfeasibleError(
                f"the published 3nb constants do not reach ε₀={epsilon_0:.3g}, δ₀={delta_0:.3g} for any flood;"
                " use accountant 'pld'."
            )
    return build(1.0 / smallest_root(holds, high / 2.0, high, tolerance=1e-4))


@dataclass(frozen=True, slots=True)
class Paper:
    """Theorem 3.2 with instances calibrated as published; Pure is composed by adding up ε."""

    name: ClassVar[str] = "paper"

    def build(self, bitsum: str, n_users: int, touched: Touched, epsilon: float, delta: float) -> BitsumProtocol:
        """The published instance for a final (ε, δ), refused if the exact law contradicts it."""
        if bitsum == Pure.name:
            return Pure.published(epsilon / touched.total, n_users)
        if bitsum not in (RandomizedResponse.name, ThreeNegativeBinomial.name):
            raise InvalidInputError(
                f"bitsum={bitsum!r} has no published calibration; choose accountant 'pld', 'advanced' or 'basic'."
            )
        epsilon_0, delta_0 = self._point(touched, epsilon, delta)
        protocol: BitsumProtocol
        if bitsum == RandomizedResponse.name:
            protocol = RandomizedResponse(n_users=n_users, flip_probability=lemma_4_8(epsilon_0, delta_0, n_users))
        else:
            protocol = published_three_negative_binomial(epsilon_0, delta_0, n_users)
        if protocol.delta(epsilon_0) > delta_0:
            raise InfeasibleError(
                f"the published calibration for ε₀={epsilon_0:.4g}, δ₀={delta_0:.3g}, n={n_users} does not keep its"
                f" promise: the exact δ is {protocol.delta(epsilon_0):.3g}; use accountant 'pld'."
            )
        return protocol

    def excess(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float, *, certified: bool
    ) -> float:
        """ln(δ_instance(ε₀)/δ₀): that the published instance is sound, not that it is tight."""
        epsilon_0, delta_0 = self.instance_point(protocol, touched, epsilon, delta)
        return log_ratio(instance_delta(protocol, epsilon_0, certified=certified), delta_0)

    def achieved_epsilon(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        """What the publication would claim for these parameters; None where it says nothing."""
        if isinstance(protocol, Pure):
            return touched.total * protocol.epsilon_target
        delta_0 = delta / (2.0 * touched.total)
        if isinstance(protocol, RandomizedResponse):
            epsilon_0 = lemma_4_8_epsilon(protocol.flip_probability, delta_0, protocol.n_users)
        elif isinstance(protocol, ThreeNegativeBinomial) and protocol.noise_shape == 1:
            epsilon_0 = -math.log(protocol.continue_probability) / PUBLISHED_SHRINK
        else:
            return None
        if protocol.delta(epsilon_0) > delta_0:
            return None
        return advanced_epsilon(touched.per_group * epsilon_0, touched.groups, delta / 2.0)

    def instance_point(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float
    ) -> tuple[float, float]:
        """(ε₀, δ₀) of Theorem 3.2, or (ε/k, 0) for Pure."""
        if isinstance(protocol, Pure):
            return protocol.epsilon_target, 0.0
        return self._point(touched, epsilon, delta)

    @staticmethod
    def _point(touched: Touched, epsilon: float, delta: float) -> tuple[float, float]:
        grouped = instance_epsilon_for(epsilon, touched.groups, delta / 2.0)
        return grouped / touched.per_group, delta / (2.0 * touched.total)

    @property
    def evidence(self) -> Evidence:
        """Theorem 3.2 as published."""
        return Evidence(
            kind=EvidenceKind.THEOREM,
            method="published calibration and Theorem 3.2; instances per repetition counted as min(2S, Q), not S",
            source="the paper, Theorem 3.2 and appendix A.2; Cheu et al. 2019, Lemma 4.8",
        )
