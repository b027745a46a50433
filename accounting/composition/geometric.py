"""Geometric accounting: the bits are roundings of a bounded vector, so one user shifts all of them only so far.

In instance i the target's bit is Bernoulli(q_i(x)); write t_i = |q_i(x) − q_i(x')| ≤ 1. The other rungs assume that
all k touched bits may flip, Σ t_i² = k. Here only Σ t_i² ≤ Δ² is used (`squared_shift`), whatever the number of
instances. Proofs: docs/proofs/geometric.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting.composition.contour import Contour
from accounting.composition.pld import composed_loss, profile_of
from accounting.composition.rung import Curve, Rung, Touched, log_ratio
from accounting.composition.shifted import (
    BLOCK,
    EVERY,
    MIDDLES,
    ORDERS,
    Atoms,
    Cut,
    Rates,
    conversion,
    corners,
    over_shifts,
    rates,
)
from accounting.contract import Evidence, EvidenceKind
from accounting.errors import InfeasibleError
from accounting.mechanisms.bitsum_protocol import BitsumProtocol, likely_pairs, searched_kinds
from accounting.numerics.effort import require_time
from accounting.numerics.losses import DominatingLoss, Repeated
from accounting.numerics.pmf import Array, binomial
from accounting.numerics.profile import (
    RELATIVE_PAD,
    LossGrid,
    Pair,
    ProfileTable,
    smallest_epsilon,
    symmetric_table,
)

if TYPE_CHECKING:
    from accounting.kernels import KernelFacts

CONVERSION: Array = conversion(ORDERS)
CUT_SHARES = ((0.02, 0.0), (0.1, 0.0), (0.3, 0.0), (0.1, 0.5), (0.4, 0.5))
"""Shares of δ that may be spent on cutting off the rarest outcomes, and how much of it linearly; the best is taken."""
DEEP_CUT_SHARES = ((1e-3, 0.0), (1e-4, 0.0), (1e-6, 0.0))
"""Further shares, for many ε and for releases that share a δ with many others."""
LIGHT_CUT_SHARES = ((1e-3, 0.0),)
"""One more for Theorem 3, which often needs no cut at all."""
EPSILON_TOLERANCE = 1e-5
"""How near an ε that was found by few orders is to the smallest, relatively."""

STEPS_PER_DEVIATION = 16
NEGLIGIBLE = 1e-20

COIN_SHARE, COIN_SLACK = 0.501, 0.13


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Theorem 1: δ(ε) of at most `n_instances` instances, each dominated by one pair, from Σ t² alone."""

    cuts: tuple[Cut, ...]
    rates: Rates
    n_instances: int
    infinite: float
    """P's mass at infinite loss, for t = 1."""
    every_order: bool = False
    """Whether all orders are tried: quicker for many ε, slower for a few."""

    @staticmethod
    def of(loss: DominatingLoss, touched: Touched, cuts: tuple[Cut, ...], *, every_order: bool = False) -> Rest:
        """For instances that this pair dominates if they flip completely."""
        return Rest(
            cuts=cuts,
            rates=rates(loss, touched.largest_shift, cuts),
            n_instances=touched.total,
            infinite=loss.infinite,
            every_order=every_order,
        )

    def cut_curves(self, budget: float) -> list[tuple[float, Curve]]:
        """Lemma 2 for Σ t² ≤ budget, order by order: for each cut the mass cut off, and ln Π M_i(α) at most."""
        infinite, enlarged = math.sqrt(self.n_instances * budget) * self.infinite, 1.0 + RELATIVE_PAD
        curves = []
        for rate, cut in zip(self.rates.whole(), self.cuts, strict=True):
            rhos = (budget * rate + (ORDERS - 1.0) * infinite) * enlarged
            finite = np.isfinite(rhos)
            points = list(zip(ORDERS[finite].tolist(), rhos[finite].tolist(), strict=True))
            if points:
                curves.append((min(1.0, (cut.total(budget, self.n_instances) + infinite) * enlarged), points))
        return curves

    def delta(self, budget: float, epsilon: Array) -> Array:
        """The bound for Σ t² ≤ budget: a row for each cut, a column for each ε. Any order is valid for any ε."""
        require_time()
        infinite = math.sqrt(self.n_instances * budget) * self.infinite
        left = epsilon - infinite
        table = self.rates.whole() if self.every_order else self._deciding(budget, left)
        rows = [
            Lines.of(rate, budget).converted(left) + cut.total(budget, self.n_instances) + infinite
            for rate, cut in zip(table, self.cuts, strict=True)
        ]
        return np.array(rows)

    def _deciding(self, budget: float, epsilon: Array) -> Array:
        """The rates of the blocks in which an ε has its best order, and of the next block if that lies at an end.

        Which blocks these are depends on nothing that was computed before. Where the sketch has no moment at all, the
        smallest orders may have one.
        """
        blocks = set(self._best(self.rates.sketch, budget, epsilon, MIDDLES).tolist()) or {0}
        while True:
            table = self.rates.table(blocks)
            best = self._best(table, budget, epsilon, EVERY)
            near = np.concatenate([np.maximum(best - 1, 0), np.minimum(best + 1, len(ORDERS) - 1)])
            around = set((near // BLOCK).tolist())  # an order's own block is that of one of its neighbors
            if around <= blocks:
                return table
            blocks |= around

    @staticmethod
    def _best(table: Array, budget: float, epsilon: Array, among: slice) -> NDArray[np.intp]:
        """The numbers of the orders that are best for some cut and some ε."""
        found = np.zeros(table.shape[1], dtype=np.bool_)
        for rate in table:
            line = Lines.of(rate, budget, among)
            if len(line.numbers):
                found[line.numbers[line.best(epsilon)]] = True
        return np.flatnonzero(found)


@dataclass(frozen=True, slots=True)
class Lines:
    """ln of e^{K(α)·budget − (α−1)ε}(α−1)^{α−1}/α^α as lines in ε, one for each order whose rate is finite.

    Their values at ε = 0 are convex in α, so the order α_j gives way to the next one where their lines meet. Any
    order would be valid.
    """

    numbers: NDArray[np.intp]
    orders: Array
    start: Array

    @staticmethod
    def of(rate: Array, budget: float, among: slice = EVERY) -> Lines:
        """For the rates of all orders, or of some."""
        (numbers,) = np.nonzero(np.isfinite(rate))
        return Lines(numbers, ORDERS[among][numbers] - 1.0, budget * rate[numbers] + CONVERSION[among][numbers])

    def best(self, epsilon: Array) -> NDArray[np.intp]:
        """Which line to take for each ε; there must be one."""
        start, orders = self.start, self.orders
        meet = np.maximum.accumulate((start[1:] - start[:-1]) / (orders[1:] - orders[:-1]))
        return np.searchsorted(meet, epsilon)

    def converted(self, epsilon: Array) -> Array:
        """The bound by the best order for each ε, at most 1."""
        if len(self.numbers) == 0:
            return np.ones(len(epsilon))
        best = self.best(epsilon)
        return np.asarray(np.exp(np.minimum(0.0, self.start[best] - self.orders[best] * epsilon)))


@lru_cache(maxsize=4)
def coins(n_users: int, touched: Touched, cuts: tuple[Cut, ...], *, every_order: bool) -> tuple[Rest, float]:
    """Instances in which enough of the others toss fair coins, and P(some instance has too few).

    If the others' mean of (2q−1)² is at most s, each is a fair coin with probability 1 − |2q−1|, on average at least
    1 − √s; fewer than 1 − `COIN_SLACK` of the expected number has probability at most e^{−mean·slack²/2} (Chernoff).
    Source: docs/proofs/geometric.md, Lemma 4.
    """
    mean = (n_users - 1) * (1.0 - math.sqrt(COIN_SHARE))
    law = binomial(math.floor((1.0 - COIN_SLACK) * mean), 0.5)
    pair = Pair(
        upper=np.concatenate([[0.0], law.values]),
        lower=np.concatenate([law.values, [0.0]]),
        missing=law.missing,
    )
    loss = DominatingLoss.from_table(symmetric_table([ProfileTable.of_pair(pair, _grid(pair))]))
    rest = Rest.of(loss, touched, cuts, every_order=every_order)
    return rest, touched.total * math.exp(-mean * COIN_SLACK**2 / 2.0)


def _grid(pair: Pair) -> LossGrid:
    return LossGrid.for_pair(pair, n_compositions=1, negligible=NEGLIGIBLE, steps_per_deviation=STEPS_PER_DEVIATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometricBound:
    """δ(ε) of all touched instances together, for one protocol and one δ to aim at."""

    loss: DominatingLoss
    n_users: int
    touched: Touched
    cuts: tuple[Cut, ...]
    contour: Contour
    deep: bool
    moments: list[Rest] = field(default_factory=list, compare=False)
    """Theorem 1, once it is needed."""

    @staticmethod
    def of(
        protocol: BitsumProtocol, touched: Touched, delta: float, *, certified: bool, deep: bool = False
    ) -> GeometricBound:
        """Everything that does not depend on ε; `deep` for a whole profile, down to a δ far below this one."""
        kinds = searched_kinds(protocol, _grid(likely_pairs(protocol)[0]), certified=certified)
        loss = DominatingLoss.from_table(symmetric_table(kinds))
        shares = CUT_SHARES + DEEP_CUT_SHARES if deep else CUT_SHARES
        cuts, few = (
            tuple(Cut.spending(share * delta, touched, linear=linear) for share, linear in some)
            for some in (shares, (*shares, *LIGHT_CUT_SHARES))
        )
        contour = Contour.of(loss, touched, few)
        return GeometricBound(
            loss=loss, n_users=protocol.n_users, touched=touched, cuts=cuts, contour=contour, deep=deep
        )

    @property
    def any_data(self) -> Rest:
        """Theorem 1."""
        if not self.moments:
            self.moments.append(Rest.of(self.loss, self.touched, self.cuts, every_order=self.deep))
        return self.moments[0]

    def delta(self, epsilon: float) -> float:
        """The smaller of the bounds that apply, rounded up; Theorem 1 only where it may be smaller than Theorem 3.

        Theorem 3 is about shifts that are fixed before anything is seen.
        """
        whatever, moments = (1.0, 0.0) if self.touched.adaptive else self.contour.delta(epsilon)
        if whatever > moments:
            least = self.any_data.delta(self.touched.shift_budget, np.array([epsilon]))
            whatever = min(whatever, float(np.min(least)))
        return min(1.0, (1.0 + RELATIVE_PAD) * min(whatever, self._ball(epsilon)))

    def epsilon(self, delta: float) -> float:
        """The smallest ε of the bound at δ, rounded up; inf if there is none."""
        near = math.inf if self.touched.adaptive else self.contour.epsilon(delta)
        if near < math.inf:
            low, high = (1.0 - EPSILON_TOLERANCE) * near, (1.0 + 1e-9) * near
            if self.delta(high) <= delta < self.delta(low):
                return high
        return smallest_epsilon(self.delta, delta)

    def _ball(self, epsilon: float) -> float:
        """Theorem 2: the others' vectors lie in a unit ball, so all instances but one are full of fair coins."""
        if not self.touched.unit_ball:
            return 1.0
        rest, failure = coins(self.n_users, self.touched, self.cuts, every_order=self.deep)

        def peeled(below: float, above: float) -> float:
            budget = max(0.0, self.touched.shift_budget - below**2)
            return max(_peeled(atoms, rest, budget, epsilon) for atoms in corners(self.loss, above))

        return failure + over_shifts(peeled, self.touched.largest_shift)


def _peeled(atoms: Atoms, rest: Rest, budget: float, epsilon: float) -> float:
    """E[δ_rest(ε − L)] over the loss L of one instance, with the best cut."""
    upper = atoms.lower * atoms.ratios
    seen = upper > 0.0
    left = epsilon - np.log(atoms.ratios[seen])
    return atoms.infinite + float(np.min(rest.delta(budget, left) @ upper[seen]))


@lru_cache(maxsize=8)
def _bound(
    protocol: BitsumProtocol, touched: Touched, delta: float, *, certified: bool, deep: bool = False
) -> GeometricBound:
    """`GeometricBound.of`, kept for the last protocols: after a noise level that holds, its ε and curve follow."""
    return GeometricBound.of(protocol, touched, delta, certified=certified, deep=deep)


@dataclass(frozen=True, slots=True)
class Geometric(Rung):
    """Noise for the distance that one user can shift all bits together, not for the number of bits."""

    name: ClassVar[str] = "geometric"
    evidence: ClassVar[Evidence] = Evidence(
        kind=EvidenceKind.COMPUTATION,
        method="squared shifts of one user's bit probabilities add up to at most Δ²: moments of the exact law per unit"
        " of squared shift, at real and complex orders, supremum over shifts and over the others' data",
        source="docs/proofs/geometric.md, Theorems 1 and 3 (and Theorem 2 for unclipped vectors of the unit ball)",
    )
    former_words: ClassVar[Mapping[str, str]] = {
        evidence.method: "squared shifts of one user's bit probabilities add up to at most Δ²: truncated Rényi moments"
        " of the exact law per unit of squared shift, supremum over shifts and over the others' data",
        evidence.source: "docs/proofs/geometric.md, Theorem 1 (and Theorem 2 for unclipped vectors of the unit ball)",
    }
    uses_shifts: ClassVar[bool] = True

    def excess(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float, *, certified: bool
    ) -> float:
        """ln(δ(ε)/δ)."""
        _refuse_zero(delta)
        if touched.every_shift_may_be_largest:
            found = _composed(protocol, touched, delta, epsilon, certified=certified).delta(epsilon)
        else:
            found = _bound(protocol, touched, delta, certified=certified).delta(epsilon)
        return log_ratio(found, delta)

    def achieved_epsilon(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        """Smallest ε of the bound at δ."""
        _refuse_zero(delta)
        if touched.every_shift_may_be_largest:
            return _composed(protocol, touched, delta, None, certified=True).epsilon(delta)
        return _bound(protocol, touched, delta, certified=True).epsilon(delta)

    def instance_point(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float
    ) -> tuple[float, float]:
        """Implied: the exact ε of one bit that flips completely, at the whole δ."""
        return protocol.epsilon(delta), delta

    def formula(self, law: type[BitsumProtocol], touched: Touched) -> str:
        """By the sum of squared shifts."""
        return (
            f"Squared shifts of one user's bits add up to at most Δ² = {touched.shift_budget:.6g}; the bound on"
            " δ(ε) is computed from that (docs/proofs/geometric.md, which recomputes one plan by hand)."
        )

    def group_for(self, touched: Touched) -> int | None:
        """Where squared shifts add up to at most three quarters of the number of bits.

        Below an eighth, what its conversion loses cannot matter, and it is tried before `pld`.
        """
        if touched.shift_budget <= touched.total / 8.0:
            return 0
        return 1 if touched.shift_budget <= 0.75 * touched.total else None

    def assumed(self, facts: KernelFacts) -> tuple[str, ...]:
        """Theorem 2 counts on the others' records, too. Source: docs/proofs/geometric.md."""
        own = Rung.assumed(self, facts)
        if not facts.touched.unit_ball:
            return own
        return (
            *own,
            "so do the clients of all users counted on: their roundings of vectors in the unit ball are noise too",
        )

    def reason(self, touched: Touched) -> str:
        """With the numbers that make the difference."""
        numbers = f"here Δ² = {touched.shift_budget:.6g}, and {touched.total} if every bit could flip"
        return f"{self.evidence.method}; {numbers}"

    def profile(
        self, protocol: BitsumProtocol, touched: Touched, *, near_epsilon: float, delta: float
    ) -> Callable[[float], float]:
        """The same bound for every ε, and also for far smaller δ."""
        if touched.every_shift_may_be_largest:
            return profile_of(_composed(protocol, touched, delta, None, certified=True), near_epsilon)
        return _bound(protocol, touched, delta, certified=True, deep=True).delta

    def cut_curves(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> list[tuple[float, Curve]]:
        """Theorem 1 before its conversion."""
        bound = _bound(protocol, touched, delta, certified=True, deep=True)
        return bound.any_data.cut_curves(touched.shift_budget)

    def curve(self, protocol: BitsumProtocol, touched: Touched, delta: float, *, proved: float | None) -> Curve:
        """Only where it proves something at the promised δ."""
        return Rung.curve(self, protocol, touched, delta, proved=proved) if proved else []


def _composed(
    protocol: BitsumProtocol, touched: Touched, delta: float, near_epsilon: float | None, *, certified: bool
) -> Repeated:
    """The loss of instances that all move by T: it dominates whatever they do. Source: docs/proofs/geometric.md."""
    return composed_loss(
        protocol,
        touched.total,
        near_epsilon=near_epsilon,
        delta=delta,
        certified=certified,
        shift=touched.largest_shift,
    )


def _refuse_zero(delta: float) -> None:
    if delta <= 0.0:
        raise InfeasibleError("geometric accounting needs delta > 0; choose accountant 'basic' for a pure promise.")
