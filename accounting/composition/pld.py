"""Composition of the exact privacy-loss distribution of a dominating pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from accounting.composition.base import Touched, instance_delta, log_ratio
from accounting.composition.blocks import adaptive_supremum
from accounting.contract import Evidence, EvidenceKind
from accounting.losses import DominatingLoss, Repeated, composed_delta, composed_epsilon
from accounting.mechanisms.base import BitsumProtocol, all_kinds, likely_pairs
from accounting.profile import LossGrid, ProfileTable

LARGEST_BLOCK = 24
NEGLIGIBLE_SHARE = 1e-3
"""Share of δ that may be spent on losses beyond the grid."""


def block_size(times: int) -> int:
    """Instances per block: at most 24, chosen to waste the fewest when `times` is not divisible."""
    if times <= LARGEST_BLOCK:
        return times
    return min(range(LARGEST_BLOCK, 7, -1), key=lambda block: -times % block)


def composed_loss(
    protocol: BitsumProtocol, times: int, *, near_epsilon: float | None, delta: float, certified: bool
) -> tuple[DominatingLoss, int]:
    """A block's dominating loss and the number of blocks that cover `times` instances.

    Inside a block the worst data of the others is taken anew after each instance (`adaptive_supremum`);
    the block's profile is then one dominating pair, and blocks compose by convolution. Rounding is smallest
    around `near_epsilon` (None: where δ(ε) = delta).
    """
    grid = LossGrid.for_pair(
        likely_pairs(protocol)[0], n_compositions=times, negligible=NEGLIGIBLE_SHARE * delta / times
    )
    kinds = (
        all_kinds(protocol, grid)
        if certified
        else [ProfileTable.of_pair(pair, grid) for pair in likely_pairs(protocol)]
    )
    joined = kinds[0]
    for kind in kinds:
        joined = joined.join(kind).join(kind.reversed())
    single = DominatingLoss.from_table(joined)
    if near_epsilon is None:
        near_epsilon = Repeated([(single, times)]).chernoff_epsilon(delta)
    tilt = Repeated([(single, times)]).chernoff_tilt(near_epsilon)
    block = block_size(times)
    end = grid.n_steps * grid.step
    reach = min(block * end, 2.0 * end + 10.0 * math.sqrt(block) * single.deviation())
    table = adaptive_supremum(kinds, block, tilt=tilt, largest_epsilon=reach)
    return DominatingLoss.from_table(table), -(-times // block)


@dataclass(frozen=True, slots=True)
class PrivacyLossComposition:
    """No ε₀, δ₀: parameters are calibrated against the final (ε, δ) through the composed loss."""

    name: ClassVar[str] = "pld"

    def excess(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float, *, certified: bool
    ) -> float:
        """ln(δ_composed(ε)/δ)."""
        k = touched.total
        if k == 1:
            return log_ratio(instance_delta(protocol, epsilon, certified=certified), delta)
        loss, blocks = composed_loss(protocol, k, near_epsilon=epsilon, delta=delta, certified=certified)
        return log_ratio(composed_delta(loss, blocks, epsilon), delta)

    def achieved_epsilon(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        """Smallest ε of the composed loss at δ."""
        k = touched.total
        if k == 1:
            return protocol.epsilon(delta)
        loss, blocks = composed_loss(protocol, k, near_epsilon=None, delta=delta, certified=True)
        return composed_epsilon(loss, blocks, delta)

    def instance_point(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float
    ) -> tuple[float, float]:
        """Implied: the exact instance ε at δ₀ = δ/2k."""
        delta_0 = delta / (2.0 * touched.total)
        return protocol.epsilon(delta_0), delta_0

    @property
    def evidence(self) -> Evidence:
        """Connect the dots, adaptive supremum by blocks, FFT composition with a rounding bound."""
        return Evidence(
            kind=EvidenceKind.COMPUTATION,
            method="privacy-loss distribution of a dominating pair (connect the dots), worst data of the others"
            " re-chosen after every instance within blocks, composed by dp-accounting with a bound on rounding",
            source="docs/proofs/composition.md, Propositions 3 and 4",
        )
