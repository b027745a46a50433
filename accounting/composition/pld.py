"""Composition of the exact privacy-loss distribution of a dominating pair."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from accounting.composition.instance_blocks import adaptive_supremum
from accounting.composition.rung import Curve, Rung, Touched, instance_delta, log_ratio, spread
from accounting.contract import Evidence, EvidenceKind
from accounting.mechanisms.bitsum_protocol import BitsumProtocol, likely_pairs, searched_kinds
from accounting.numerics.losses import DominatingLoss, Repeated
from accounting.numerics.profile import LossGrid, Pair, symmetric_table

LARGEST_BLOCK = 24
NEGLIGIBLE_SHARE = 1e-3
"""Share of δ that may be spent on losses beyond the grid."""
TILTS = 8
"""Compositions of which a profile takes the best."""
POINTS = 33
"""Points of a curve."""


def block_sizes(times: int) -> list[tuple[int, int]]:
    """(instances of a block, number of such blocks): the fewest blocks of at most 24, as even as they can be.

    >>> block_sizes(24), block_sizes(25), block_sizes(768)
    ([(24, 1)], [(13, 1), (12, 1)], [(24, 32)])
    """
    number = -(-times // LARGEST_BLOCK)
    smaller, longer = divmod(times, number)
    return [(size, count) for size, count in ((smaller + 1, longer), (smaller, number - longer)) if count]


def composed_loss(
    protocol: BitsumProtocol,
    times: int,
    *,
    near_epsilon: float | None,
    delta: float,
    certified: bool,
    shift: float = 1.0,
) -> Repeated:
    """Blocks, each with its dominating loss, of `times` instances in all, whose bits move by `shift` at most.

    Inside a block the worst data of the others is chosen again after each instance (`adaptive_supremum`);
    the block's profile is then one dominating pair, and blocks compose by convolution. Rounding is smallest
    around `near_epsilon` (None: where δ(ε) = delta).
    """
    grid_for = partial(LossGrid.for_pair, n_compositions=times, negligible=NEGLIGIBLE_SHARE * delta / times)
    pair = likely_pairs(protocol)[0]
    grid = grid_for(pair)
    kinds = searched_kinds(protocol, grid, certified=certified)
    if shift < 1.0:
        mixed = (1.0 - shift) * pair.lower + shift * pair.upper
        grid = grid_for(Pair(upper=mixed, lower=pair.lower, missing=pair.missing))
        kinds = [way.moved(shift, grid) for kind in kinds for way in (kind, kind.reversed())]
    single = DominatingLoss.from_table(symmetric_table(kinds))
    if near_epsilon is None:
        near_epsilon = Repeated([(single, times)]).chernoff_epsilon(delta)
    tilt = Repeated([(single, times)]).chernoff_tilt(near_epsilon)
    sizes = block_sizes(times)
    longest = sizes[0][0]
    end = grid.n_steps * grid.step
    reach = min(longest * end, 2.0 * end + 10.0 * math.sqrt(longest) * single.deviation())
    tables = adaptive_supremum(kinds, longest, tilt=tilt, largest_epsilon=reach)
    return Repeated([(DominatingLoss.from_table(tables[size - 1]), count) for size, count in sizes])


def profile_of(blocks: Repeated, near_epsilon: float) -> Callable[[float], float]:
    """δ(ε) for any ε: one composition for each of several tilts, of which the best counts."""
    composed = [blocks.compose(near_epsilon * share) for share in spread(0.1, 2.5, TILTS)]
    return lambda epsilon: min(loss.delta(epsilon) for loss in composed)


@dataclass(frozen=True, slots=True)
class PrivacyLossComposition(Rung):
    """No ε₀, δ₀: parameters are calibrated against the final (ε, δ) through the composed loss."""

    name: ClassVar[str] = "pld"
    evidence: ClassVar[Evidence] = Evidence(
        kind=EvidenceKind.COMPUTATION,
        method="privacy-loss distribution of a dominating pair (connect the dots), worst data of the others"
        " re-chosen after every instance within blocks, composed by dp-accounting with a bound on rounding",
        source="docs/proofs/composition.md, Propositions 3 and 4",
    )
    auto_group: ClassVar[int | None] = 1

    def excess(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float, *, certified: bool
    ) -> float:
        """ln(δ_composed(ε)/δ)."""
        k = touched.total
        if k == 1:
            return log_ratio(instance_delta(protocol, epsilon, certified=certified), delta)
        blocks = composed_loss(protocol, k, near_epsilon=epsilon, delta=delta, certified=certified)
        return log_ratio(blocks.delta(epsilon), delta)

    def achieved_epsilon(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        """Smallest ε of the composed loss at δ."""
        k = touched.total
        if k == 1:
            return protocol.epsilon(delta)
        return composed_loss(protocol, k, near_epsilon=None, delta=delta, certified=True).epsilon(delta)

    def instance_point(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float
    ) -> tuple[float, float]:
        """Implied: the exact instance ε at δ₀ = δ/2k."""
        delta_0 = delta / (2.0 * touched.total)
        return protocol.epsilon(delta_0), delta_0

    def formula(self, law: type[BitsumProtocol], touched: Touched) -> str:
        """By the composed loss."""
        return "δ(ε) = E[(1 − e^{ε − L})₊] for the composed privacy loss L of a dominating pair (rounded up)."

    def profile(
        self, protocol: BitsumProtocol, touched: Touched, *, near_epsilon: float, delta: float
    ) -> Callable[[float], float]:
        """Of the composed loss."""
        k = touched.total
        if k == 1:
            return protocol.delta
        blocks = composed_loss(protocol, k, near_epsilon=None, delta=delta, certified=True)
        return profile_of(blocks, near_epsilon)

    def curve(self, protocol: BitsumProtocol, touched: Touched, delta: float, *, proved: float | None) -> Curve:
        """Points around what it proves, by evaluating δ at given ε."""
        if not proved:
            return []
        at = self.profile(protocol, touched, near_epsilon=proved, delta=delta)
        return [(epsilon, at(epsilon)) for epsilon in (proved * share for share in spread(0.02, 1.6, POINTS))]
