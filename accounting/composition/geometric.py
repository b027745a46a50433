"""Geometric accounting: the bits are roundings of a bounded vector, so one user shifts all of them only so far.

In instance i the target's bit is Bernoulli(q_i(x)); write t_i = |q_i(x) − q_i(x')| ≤ 1. The other rungs assume that
all k touched bits may flip, Σ t_i² = k. Here only Σ t_i² ≤ Δ² is used (`squared_shift`), whatever the number of
instances. Proofs: docs/proofs/geometric.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
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

INTERVALS, ROUNDS, SMALLEST_SHIFT = 12, 5, 0.02
"""Intervals of shifts at first, how often the worst ones are halved, and the end of the lowest as a share of T."""
STEPS_PER_DEVIATION = 16
NEGLIGIBLE = 1e-20
PAD = 1.0 + 1e-6
ORDER_CHOICES = 128

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

    def per_unit(self, shift: float) -> float:
        """For one instance of this shift or more, divided by its shift."""
        return self.per_square * shift + self.per_shift

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

    Labeled mixtures of these two dominate every (q A_1 + (1−q) A_0, q' A_1 + (1−q') A_0) with |q − q'| = t, in both
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


@dataclass(frozen=True, slots=True)
class Remainders:
    """One corner as E_Q[(1 + tg)^a], g = P/Q − 1, from where cutting leaves off: the largest powers come last.

    `gains` are the g, `powers` one a for each order: α for *toward*, with g rising; 1−α for *away*, with g falling.
    `cuts[i]` is E_Q of what g exceeds gains[i] by, on the side of the large powers.
    """

    gains: Array
    lower: Array
    powers: Array
    cuts: Array

    @staticmethod
    def of(gains: Array, lower: Array, powers: Array) -> Remainders:
        """For atoms in the order in which they are cut, the last first."""
        beyond = np.append(np.cumsum(lower[::-1])[::-1][1:], 0.0)
        steps = np.append(np.abs(np.diff(gains)), 0.0)
        return Remainders(gains, lower, powers, np.cumsum((steps * beyond)[::-1])[::-1])  # positive terms only

    def at(self, shift: float) -> Array:
        """((1 + tg)^a − 1 − atg)/t² for each g (rows) and each order (columns); its limit for t = 0."""
        gains = self.gains[:, None]
        if shift == 0.0:
            return np.asarray(self.powers * (self.powers - 1.0) / 2.0 * gains**2)
        step = shift * gains
        return np.asarray((np.expm1(self.powers * np.log1p(step)) - self.powers * step) / shift**2)

    def squared_rates(self, below: float, above: float, allowed: Sequence[float]) -> Array:
        """Bound on (M(α) − 1)/t² for t in [below, above] if g is cut so that it loses at most `allowed`·t (rows).

        For every g the remainder is monotone in t, so its values at the two ends bound it.
        Source: docs/proofs/geometric.md, Lemma 3.
        """
        away = self.powers[0] < 0.0
        lost = self.cuts / np.clip(1.0 + above * self.gains, 1e-300, 1.0) if away else self.cuts
        last = [int(np.argmax(lost <= mass)) for mass in allowed]  # the last atom loses nothing, so there is one
        end = max(last) + 1
        kept = Remainders(self.gains[:end], self.lower[:end], self.powers, self.cuts[:end])
        weights = np.where(np.arange(end) <= np.array(last)[:, None], kept.lower, 0.0)
        weights[np.arange(len(last)), last] += [float(np.sum(self.lower[i + 1 :])) for i in last]
        ends = np.maximum(kept.at(below), kept.at(above))
        finite = np.isfinite(ends)
        if np.all(finite):
            return np.asarray(weights @ ends)
        infinite = (weights > 0.0).astype(np.float64) @ ~finite > 0.0  # weight 0 times infinity is nothing
        return np.where(infinite, math.inf, weights @ np.where(finite, ends, 0.0))


def remainders(loss: DominatingLoss) -> tuple[Remainders, Remainders]:
    """Both corners of a pair, *toward* and *away*."""
    atoms, _ = corners(loss, 1.0)
    kept = atoms.lower > 0.0
    gains, lower = atoms.ratios[kept] - 1.0, atoms.lower[kept]
    return Remainders.of(gains, lower, ORDERS), Remainders.of(gains[::-1], lower[::-1], 1.0 - ORDERS)


def supremum(bound: Callable[[float, float], Array], points: Array, *, rounds: int) -> Array:
    """The elementwise largest bound(below, above) over intervals that cover all of `points`.

    In each round those intervals that attain a finite supremum somewhere are halved.
    """
    intervals = list(itertools.pairwise(points.tolist()))
    values = [bound(*interval) for interval in intervals]
    for _ in range(rounds):
        table = np.array(values)
        worst = np.where(np.all(np.isfinite(table), axis=0), np.argmax(table, axis=0), -1)
        for i in sorted(set(worst.ravel().tolist()) - {-1}, reverse=True):
            below, above = intervals[i]
            middle = math.sqrt(below * above) if below > 0.0 else above / 2.0
            intervals[i : i + 1] = [(below, middle), (middle, above)]
            values[i : i + 1] = [bound(*half) for half in intervals[i : i + 2]]
    return np.asarray(np.max(np.array(values), axis=0))


def shifts(largest_shift: float) -> Array:
    """The first intervals of shifts."""
    return np.append(0.0, largest_shift * np.geomspace(SMALLEST_SHIFT, 1.0, INTERVALS))


def rates(loss: DominatingLoss, largest_shift: float, cuts: Sequence[Cut]) -> Array:
    """K(α): ln moments per unit of squared shift, the supremum over all t ≤ `largest_shift`; a row for each cut."""
    both = remainders(loss)

    def rate(below: float, above: float) -> Array:
        toward, away = (one.squared_rates(below, above, [cut.per_unit(below) for cut in cuts]) for one in both)
        moment = np.maximum(toward, away)
        if below > 0.0:  # ln(1 + t²m)/t² falls with t
            moment = np.log1p(below**2 * moment) / below**2
        return np.nan_to_num(moment, nan=math.inf, posinf=math.inf)

    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return supremum(rate, shifts(largest_shift), rounds=ROUNDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Theorem 1: δ(ε) of at most `n_instances` instances, each dominated by one pair, from Σ t² alone."""

    cuts: tuple[Cut, ...]
    rates: Array
    n_instances: int
    infinite: float
    """P's mass at infinite loss, for t = 1."""
    surplus: float
    """What rounding up left Q with beyond mass 1."""

    @staticmethod
    def of(loss: DominatingLoss, touched: Touched, cuts: tuple[Cut, ...]) -> Rest:
        """For instances that this pair dominates if they flip completely."""
        return Rest(
            cuts=cuts,
            rates=rates(loss, touched.largest_shift, cuts),
            n_instances=touched.total,
            infinite=loss.infinite,
            surplus=max(0.0, float(np.sum(loss.masses * np.exp(-loss.losses()))) - 1.0),
        )

    def delta(self, budget: float, epsilon: Array) -> Array:
        """The bound for Σ t² ≤ budget: a row for each cut, a column for each ε. Any order is valid for any ε."""
        infinite = math.sqrt(self.n_instances * budget) * self.infinite
        left = epsilon - infinite - 2.0 * self.n_instances * self.surplus
        swollen = math.exp(min(700.0, self.n_instances * self.surplus))
        rows = [
            _converted(rate, budget, left) + swollen * (cut.total(budget, self.n_instances) + infinite)
            for rate, cut in zip(self.rates, self.cuts, strict=True)
        ]
        return np.array(rows)


def _converted(rate: Array, budget: float, epsilon: Array) -> Array:
    """e^{K(α)·budget − (α−1)ε}(α−1)^{α−1}/α^α, at most 1, with the order that is best at a nearby ε."""
    finite = np.isfinite(rate)
    if not np.any(finite):
        return np.ones(len(epsilon))
    orders, start = ORDERS[finite] - 1.0, budget * rate[finite] + CONVERSION[finite]
    low, high = float(np.min(epsilon)), float(np.max(epsilon))
    best = np.argmin(start - np.outer(np.linspace(low, high, ORDER_CHOICES), orders), axis=1)
    nearest = ((ORDER_CHOICES - 1) * (epsilon - low) / max(high - low, 1e-300) + 0.5).astype(np.intp)
    chosen = best[np.minimum(nearest, ORDER_CHOICES - 1)]
    return np.asarray(np.exp(np.minimum(0.0, start[chosen] - orders[chosen] * epsilon)))


@lru_cache(maxsize=4)
def coins(n_users: int, touched: Touched, cuts: tuple[Cut, ...]) -> tuple[Rest, float]:
    """Instances in which enough of the others toss fair coins, and P(some instance has too few).

    If the others' mean of (2q−1)² is at most s, each is a fair coin with probability 1 − |2q−1|, on average at least
    1 − √s; fewer than 1 − `COIN_SLACK` of the expected number has probability at most e^{−mean·slack²/2} (Chernoff).
    Source: docs/proofs/geometric.md, Lemma 4.
    """
    mean = (n_users - 1) * (1.0 - math.sqrt(COIN_SHARE))
    law = binomial(math.floor((1.0 - COIN_SLACK) * mean), 0.5)
    edge = float(law.values[0]) + float(law.values[-1])
    pair = Pair(
        upper=np.concatenate([[0.0], law.values]),
        lower=np.concatenate([law.values, [0.0]]),
        missing=law.missing + edge,
    )
    loss = _symmetric_loss([ProfileTable.of_pair(pair, _grid(pair))])
    return Rest.of(loss, touched, cuts), touched.total * math.exp(-mean * COIN_SLACK**2 / 2.0)


def _grid(pair: Pair) -> LossGrid:
    return LossGrid.for_pair(pair, n_compositions=1, negligible=NEGLIGIBLE, steps_per_deviation=STEPS_PER_DEVIATION)


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
    any_data: Rest

    @staticmethod
    def of(protocol: BitsumProtocol, touched: Touched, delta: float, *, certified: bool) -> GeometricBound:
        """Everything that does not depend on ε."""
        pairs = likely_pairs(protocol)
        grid = _grid(pairs[0])
        kinds = protocol.kinds(grid) if certified else [ProfileTable.of_pair(pair, grid) for pair in pairs]
        loss = _symmetric_loss(kinds)
        cuts = tuple(Cut.spending(share * delta, touched, linear=linear) for share, linear in CUT_SHARES)
        return GeometricBound(
            loss=loss, n_users=protocol.n_users, touched=touched, any_data=Rest.of(loss, touched, cuts)
        )

    def delta(self, epsilon: float) -> float:
        """The smaller of the bounds that apply, rounded up."""
        whatever = float(np.min(self.any_data.delta(self.touched.shift_budget, np.array([epsilon]))))
        return min(1.0, PAD * min(whatever, self._ball(epsilon)))

    def _ball(self, epsilon: float) -> float:
        """Theorem 2: the others' vectors lie in a unit ball, so all instances but one are full of fair coins."""
        if not self.touched.unit_ball:
            return 1.0
        rest, failure = coins(self.n_users, self.touched, self.any_data.cuts)

        def peeled(below: float, above: float) -> Array:
            budget = max(0.0, self.touched.shift_budget - below**2)
            return np.array([max(_peeled(atoms, rest, budget, epsilon) for atoms in corners(self.loss, above))])

        return failure + float(supremum(peeled, shifts(self.touched.largest_shift), rounds=ROUNDS)[0])


def _peeled(atoms: Atoms, rest: Rest, budget: float, epsilon: float) -> float:
    """E[δ_rest(ε − L)] over the loss L of one instance, with the best cut."""
    upper = atoms.lower * atoms.ratios
    seen = upper > 0.0
    left = epsilon - np.log(atoms.ratios[seen])
    return atoms.infinite + float(np.min(rest.delta(budget, left) @ upper[seen]))


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
