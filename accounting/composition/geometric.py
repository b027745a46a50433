"""Geometric accounting: the bits are roundings of a bounded vector, so one user shifts all of them only so far.

In instance i the target's bit is Bernoulli(q_i(x)); write t_i = |q_i(x) − q_i(x')| ≤ 1. The other rungs assume that
all k touched bits may flip, Σ t_i² = k. Here only Σ t_i² ≤ Δ² is used (`squared_shift`), whatever the number of
instances. Proofs: docs/proofs/geometric.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from accounting.composition.base import Touched, log_ratio
from accounting.contract import Evidence, EvidenceKind
from accounting.errors import InfeasibleError
from accounting.mechanisms.base import BitsumProtocol, likely_pairs
from accounting.pmf import Array, binomial
from accounting.profile import DominatingLoss, LossGrid, Pair, ProfileTable, smallest_epsilon

ORDERS: Array = np.exp(np.linspace(math.log(1.5), math.log(80.0), 48))
"""Rényi orders α over which the bound is minimized."""
CONVERSION: Array = (ORDERS - 1.0) * np.log(ORDERS - 1.0) - ORDERS * np.log(ORDERS)
"""ln of (α−1)^{α−1}/α^α: Σ (p − e^ε q)₊ ≤ e^{−(α−1)ε} (α−1)^{α−1}/α^α Σ p^α q^{1−α}."""
CUT_SHARES = ((0.02, 0.0), (0.1, 0.0), (0.3, 0.0), (0.1, 0.5), (0.4, 0.5))
"""Shares of δ that may be spent on cutting off the rarest outcomes, and how much of it linearly; the best is taken."""

LEVELS, SMALLEST_LEVEL = 240, 2e-4
LARGE_LEVELS, SMALLEST_LARGE = 64, 0.02
NEGLIGIBLE = 1e-20
PAD = 1.0 + 1e-6

COIN_SHARE, COIN_SLACK = 0.501, 0.13


@dataclass(frozen=True, slots=True)
class Cut:
    """How much mass may be cut off an instance of shift t: `per_square`·t² + `per_shift`·t.

    Over at most k instances with Σ t² ≤ Δ² this adds up to at most per_square·Δ² + per_shift·√k·Δ (Cauchy–Schwarz).
    """

    per_square: float
    per_shift: float

    @staticmethod
    def spending(mass: float, touched: Touched, *, linear: float) -> Cut:
        """`mass` in all, a share `linear` of it in proportion to the shifts, the rest to their squares."""
        square = touched.shift_budget
        return Cut((1.0 - linear) * mass / square, linear * mass / math.sqrt(touched.total * square))

    def allowed(self, shift: float) -> float:
        """For one instance."""
        return self.per_square * shift**2 + self.per_shift * shift

    def total(self, budget: float, n_instances: int) -> float:
        """For all instances together, if their squared shifts add up to at most `budget`."""
        return self.per_square * budget + self.per_shift * math.sqrt(n_instances * budget)


@dataclass(frozen=True, slots=True)
class Atoms:
    """A pair of laws by its likelihood ratios: the lower law's masses, and the upper law's mass where that is none."""

    ratios: Array
    lower: Array
    infinite: float


def corners(loss: DominatingLoss, shift: float) -> tuple[Atoms, Atoms]:
    """((1−t)Q + tP, Q) and (Q, (1−t)Q + tP) for a pair (P, Q) that dominates one instance with t = 1.

    Labelled mixtures of these two dominate every (q A_1 + (1−q) A_0, q' A_1 + (1−q') A_0) with |q − q'| = t, in both
    directions, because the table of `loss` is symmetric. Source: docs/proofs/geometric.md, Lemma 1.
    """
    t = shift
    values = loss.losses()
    lower = loss.masses * np.exp(-values)
    absent = max(0.0, 1.0 - float(np.sum(lower)))  # Q's mass where P has none
    mixed = np.concatenate([[1.0 - t], 1.0 + t * np.expm1(values)])
    base = np.concatenate([[absent], lower])
    toward = Atoms(mixed, base, t * loss.infinite)
    kept = slice(1, None) if t >= 1.0 else slice(None)
    away = Atoms((1.0 / mixed[kept])[::-1], (base * mixed)[kept][::-1], absent if t >= 1.0 else 0.0)
    return toward, away


def log_moments(atoms: Atoms, allowed: Sequence[float]) -> Array:
    """Ln Σ min(p, cq)^α q^{1−α} for all orders (columns), with the least c that cuts mass `allowed` (rows) off p.

    Sums of m(α) − 1 by `expm1`, because for small shifts everything happens near 1; if rounding up left the lower law
    with more than mass 1, the excess counts as moment. inf where no c is enough.
    """
    keep = atoms.lower > 0.0
    ratios, lower = atoms.ratios[keep], atoms.lower[keep]
    above = np.append(np.cumsum(lower[::-1])[::-1][1:], 0.0)
    steps = np.append(np.diff(ratios), 0.0)
    cut = np.cumsum((steps * above)[::-1])[::-1] + atoms.infinite  # Σ (p − cq)₊ at c = ratios[i], positive terms only
    excess = max(0.0, float(np.sum(lower)) - 1.0)
    logs = np.log(np.maximum(ratios, 1e-300))
    sums = np.cumsum(lower[:, None] * np.expm1(np.outer(logs, ORDERS)), axis=0)
    rows = []
    for mass in allowed:
        enough = np.flatnonzero(cut <= mass)
        if len(enough) == 0:
            rows.append(np.full(len(ORDERS), math.inf))
            continue
        i = int(enough[0])
        rows.append(np.log1p(np.maximum(sums[i] + above[i] * np.expm1(ORDERS * logs[i]) + excess, 0.0)))
    return np.array(rows)


def small_shift_rates(loss: DominatingLoss, largest: float) -> Array:
    """Sup over 0 < t ≤ `largest` of (Σ p^α q^{1−α} − 1)/t² for both corners, by Taylor's theorem with remainder.

    ((1 + tg)^a − 1 − atg)/t² = g² a(a−1) ∫₀¹ (1−s)(1+stg)^{a−2} ds, with a = α or 1−α, is monotone in t for each g
    (which way depends on the signs of g and a − 2), so the larger of its values at t → 0 and at `largest` bounds it.
    The linear terms vanish but for mass at infinity: `uncut`. Source: docs/proofs/geometric.md, Lemma 4.
    """
    values = loss.losses()
    lower = loss.masses * np.exp(-values)
    gains = np.append(np.expm1(values), -1.0)[:, None]
    masses = np.append(lower, max(0.0, 1.0 - float(np.sum(lower))))[:, None]
    step = largest * gains
    flat = ORDERS * (ORDERS - 1.0) / 2.0 * gains**2
    toward = np.maximum(flat, (np.expm1(ORDERS * np.log1p(step)) - ORDERS * step) / largest**2)
    lowered = ORDERS - 1.0
    away = np.maximum(flat, (np.expm1(-lowered * np.log1p(step)) + lowered * step) / largest**2)
    return np.asarray(np.maximum(np.sum(masses * toward, axis=0), np.sum(masses * away, axis=0)))


def rates(loss: DominatingLoss, largest_shift: float, cuts: Sequence[Cut]) -> Array:
    """K(α): ln moments per unit of squared shift, the supremum over all t ≤ `largest_shift`; a row for each cut.

    A shift in (t_{j−1}, t_j] is at most as revealing as t_j and uses up at least t_{j−1}² of the budget.
    """
    levels = largest_shift * np.exp(np.linspace(math.log(SMALLEST_LEVEL), 0.0, LEVELS))
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.tile(small_shift_rates(loss, float(levels[0])), (len(cuts), 1))
        for below, level in itertools.pairwise(levels):
            masses = [cut.allowed(float(below)) for cut in cuts]
            for atoms in corners(loss, float(level)):
                found = np.maximum(found, log_moments(atoms, masses) / float(below) ** 2)
    return np.where(np.isnan(found), math.inf, found)


def uncut(loss: DominatingLoss, touched: Touched) -> float:
    """k·t_0·P(loss = ∞): what instances of shift at most t_0, which are not cut, add to δ and take from ε."""
    return touched.total * SMALLEST_LEVEL * touched.largest_shift * loss.infinite


def rest_delta(rate: Array, budget: float, epsilon: float | Array) -> Array:
    """The Rényi bound on δ(ε) of any instances with Σ t² ≤ budget, the best order for each ε; 1 if none is finite."""
    finite = np.isfinite(rate)
    if not np.any(finite):
        return np.ones(np.shape(epsilon))
    orders = ORDERS[finite] - 1.0
    exponents = budget * rate[finite] - np.multiply.outer(np.asarray(epsilon), orders) + CONVERSION[finite]
    return np.asarray(np.exp(np.minimum(0.0, np.min(exponents, axis=-1))))


@lru_cache(maxsize=4)
def coin_rates(n_users: int, touched: Touched, cuts: tuple[Cut, ...]) -> tuple[Array, float, float]:
    """Rates of instances in which enough of the others toss fair coins, P(some instance fails), and `uncut`.

    If the others' mean of (2q−1)² is at most s, each is a fair coin with probability 1 − |2q−1|, on average at least
    1 − √s; fewer than 1 − `COIN_SLACK` of the expected number has probability at most e^{−mean·slack²/2} (Chernoff).
    Source: docs/proofs/geometric.md, Lemma 3.
    """
    mean = (n_users - 1) * (1.0 - math.sqrt(COIN_SHARE))
    coins = binomial(math.floor((1.0 - COIN_SLACK) * mean), 0.5)
    edge = float(coins.values[0]) + float(coins.values[-1])
    pair = Pair(
        upper=np.concatenate([[0.0], coins.values]),
        lower=np.concatenate([coins.values, [0.0]]),
        missing=coins.missing + edge,
    )
    failure = touched.total * math.exp(-mean * COIN_SLACK**2 / 2.0)
    loss = _symmetric_loss([ProfileTable.of_pair(pair, _grid(pair))])
    return rates(loss, touched.largest_shift, cuts), failure, uncut(loss, touched)


def _grid(pair: Pair) -> LossGrid:
    return LossGrid.for_pair(pair, n_compositions=1, negligible=NEGLIGIBLE)


def _symmetric_loss(kinds: Sequence[ProfileTable]) -> DominatingLoss:
    """One pair that dominates all kinds in both directions."""
    joined = kinds[0]
    for kind in kinds:
        joined = joined.join(kind).join(kind.reversed())
    return DominatingLoss.from_table(joined)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometricBound:
    """δ(ε) of all touched instances together, for one protocol and one δ to aim at."""

    loss: DominatingLoss
    n_users: int
    touched: Touched
    cuts: tuple[Cut, ...]
    rates: Array

    @staticmethod
    def of(protocol: BitsumProtocol, touched: Touched, delta: float, *, certified: bool) -> GeometricBound:
        """Everything that does not depend on ε."""
        pairs = likely_pairs(protocol)
        grid = _grid(pairs[0])
        kinds = protocol.kinds(grid) if certified else [ProfileTable.of_pair(pair, grid) for pair in pairs]
        loss = _symmetric_loss(kinds)
        cuts = tuple(Cut.spending(share * delta, touched, linear=linear) for share, linear in CUT_SHARES)
        return GeometricBound(
            loss=loss,
            n_users=protocol.n_users,
            touched=touched,
            cuts=cuts,
            rates=rates(loss, touched.largest_shift, cuts),
        )

    def delta(self, epsilon: float) -> float:
        """The smaller of the bounds that apply, rounded up."""
        return min(1.0, PAD * min(self._any_data(epsilon), self._ball(epsilon)))

    def _any_data(self, epsilon: float) -> float:
        """Theorem 1: no matter what the others hold."""
        budget, spare = self.touched.shift_budget, uncut(self.loss, self.touched)
        found = min(
            float(rest_delta(rate, budget, epsilon - spare)) + cut.total(budget, self.touched.total)
            for rate, cut in zip(self.rates, self.cuts, strict=True)
        )
        return found + spare

    def _ball(self, epsilon: float) -> float:
        """Theorem 2: the others' vectors lie in a unit ball, so all instances but one are full of fair coins."""
        touched = self.touched
        if not touched.unit_ball:
            return 1.0
        coins, failure, spare = coin_rates(self.n_users, touched, self.cuts)
        levels = touched.largest_shift * np.exp(np.linspace(math.log(SMALLEST_LARGE), 0.0, LARGE_LEVELS))
        worst = 0.0
        for below, level in zip([0.0, *levels[:-1]], levels, strict=True):
            budget = max(0.0, touched.shift_budget - float(below) ** 2)
            worst = max(
                worst,
                *(self._peeled(atoms, coins, budget, epsilon - spare) for atoms in corners(self.loss, float(level))),
            )
        return worst + failure + spare

    def _peeled(self, atoms: Atoms, coins: Array, budget: float, epsilon: float) -> float:
        """E[δ_rest(ε − L)] over the loss L of one instance."""
        upper = atoms.lower * atoms.ratios
        seen = upper > 0.0
        upper, left = upper[seen], epsilon - np.log(atoms.ratios[seen])
        return atoms.infinite + min(
            float(np.dot(upper, rest_delta(rate, budget, left))) + cut.total(budget, self.touched.total)
            for rate, cut in zip(coins, self.cuts, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Geometric:
    """Noise for the distance that one user can shift all bits together, not for the number of bits."""

    name: ClassVar[str] = "geometric"

    def excess(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float, *, certified: bool
    ) -> float:
        """ln(δ(ε)/δ)."""
        _refuse_pure(delta)
        return log_ratio(GeometricBound.of(protocol, touched, delta, certified=certified).delta(epsilon), delta)

    def achieved_epsilon(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        """Smallest ε of the bound at δ."""
        _refuse_pure(delta)
        return smallest_epsilon(GeometricBound.of(protocol, touched, delta, certified=True).delta, delta)

    def instance_point(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float
    ) -> tuple[float, float]:
        """Implied: the exact ε of one bit that flips completely, at the whole δ."""
        return protocol.epsilon(delta), delta

    @property
    def evidence(self) -> Evidence:
        """Truncated Rényi moments per unit of squared shift, supremum over shifts and over the others' data."""
        return Evidence(
            kind=EvidenceKind.COMPUTATION,
            method="squared shifts of one user's bit probabilities add up to at most Δ²: truncated Rényi moments of"
            " the exact law per unit of squared shift, supremum over shifts and over the others' data",
            source="docs/proofs/geometric.md, Theorems 1 and 2",
        )


def _refuse_pure(delta: float) -> None:
    if delta <= 0.0:
        raise InfeasibleError("geometric accounting needs delta > 0; choose accountant 'basic' for a pure promise.")
