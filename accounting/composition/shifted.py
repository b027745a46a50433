"""One bit whose probability moves by at most t: what its law reveals, per unit of t².

Two laws (P, Q) dominate a bit that flips completely; a bit that moves by t is dominated by mixtures of them, the
*corners*, and its Rényi moments are bounded for whole intervals of t. Proofs: docs/proofs/geometric.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from accounting.composition.rung import Touched
from accounting.numerics.losses import DominatingLoss
from accounting.numerics.pmf import Array

ORDERS: Array = np.exp(np.linspace(math.log(1.5), math.log(4000.0), 88))
"""Rényi orders α over which bounds are minimized; the best is about 2 ln(1/δ)/ε."""
INTERVALS, ROUNDS, SMALLEST_SHIFT = 12, 5, 0.02
"""Intervals of shifts at first, how often the worst ones are halved, and the end of the lowest as a share of T."""
MOST_ENTRIES = 4_000_000
"""Entries of tables of remainders that are kept for other intervals, in all (32 MB)."""


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
    `cuts[i]` is E_Q of what g exceeds gains[i] by, on the side of the large powers; `beyond[i]` is Q's mass after i.
    """

    gains: Array
    lower: Array
    powers: Array
    cuts: Array
    beyond: Array
    recent: dict[float, Array] = field(default_factory=dict, compare=False)
    """The last tables of `at`: intervals of shifts, and their halves, share their ends."""

    @staticmethod
    def of(gains: Array, lower: Array, powers: Array) -> Remainders:
        """For atoms in the order in which they are cut, the last first."""
        beyond = np.append(np.cumsum(lower[::-1])[::-1][1:], 0.0)
        steps = np.append(np.abs(np.diff(gains)), 0.0)
        cuts = np.cumsum((steps * beyond)[::-1])[::-1]  # positive terms only
        return Remainders(gains, lower, powers, cuts, np.array([np.sum(lower[i + 1 :]) for i in range(len(lower))]))

    def at(self, shift: float, end: int | None = None, *, start: int = 0) -> Array:
        """((1 + tg)^a − 1 − atg)/t² for each g before `end` (rows) and each order (columns); its limit for t = 0."""
        gains = self.gains[start:end, None]
        if shift == 0.0:
            return np.asarray(self.powers * (self.powers - 1.0) / 2.0 * gains**2)
        step = shift * gains
        return np.asarray((np.expm1(self.powers * np.log1p(step)) - self.powers * step) / shift**2)

    def _recalled(self, shift: float, end: int) -> Array:
        known = self.recent.pop(shift, None)
        if known is None:
            known = self.at(shift, end)
        elif len(known) < end:
            known = np.concatenate([known, self.at(shift, end, start=len(known))])
        while len(self.recent) > MOST_ENTRIES // known.size:
            del self.recent[next(iter(self.recent))]
        self.recent[shift] = known
        return known[:end]

    def squared_rates(self, below: float, above: float, allowed: Sequence[float]) -> Array:
        """Bound on (M(α) − 1)/t² for t in [below, above] if g is cut so that it loses at most `allowed`·t (rows).

        For every g the remainder is monotone in t, so its values at the two ends bound it.
        Source: docs/proofs/geometric.md, Lemma 3.
        """
        away = self.powers[0] < 0.0
        lost = self.cuts / np.clip(1.0 + above * self.gains, 1e-300, 1.0) if away else self.cuts
        last = np.argmax(lost <= np.array(allowed)[:, None], axis=1)  # the last atom loses nothing, so there is one
        end = int(np.max(last)) + 1
        weights = np.where(np.arange(end) <= last[:, None], self.lower[:end], 0.0)
        weights[np.arange(len(last)), last] += self.beyond[last]
        ends = np.maximum(self._recalled(below, end), self._recalled(above, end))
        with np.errstate(invalid="ignore", over="ignore"):
            sums = np.asarray(weights @ ends)
        if np.all(np.isfinite(sums)):
            return sums
        finite = np.isfinite(ends)
        infinite = (weights > 0.0).astype(np.float64) @ ~finite > 0.0  # weight 0 times infinity is nothing
        return np.where(infinite, math.inf, weights @ np.where(finite, ends, 0.0))


def remainders(loss: DominatingLoss) -> tuple[Remainders, Remainders]:
    """Both corners of a pair, *toward* and *away*."""
    atoms, _ = corners(loss, 1.0)
    kept = atoms.lower > 0.0
    gains, lower = atoms.ratios[kept] - 1.0, atoms.lower[kept]
    return Remainders.of(gains, lower, ORDERS), Remainders.of(gains[::-1], lower[::-1], 1.0 - ORDERS)


def shifts(largest_shift: float) -> Array:
    """The ends of the first intervals of shifts."""
    return np.append(0.0, largest_shift * np.geomspace(SMALLEST_SHIFT, 1.0, INTERVALS))


def over_shifts(bound: Callable[[float, float], Array], largest_shift: float) -> Array:
    """The supremum of bound(below, above) over intervals that cover all shifts up to the largest."""
    return supremum(bound, shifts(largest_shift), rounds=ROUNDS)


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


def rates(loss: DominatingLoss, largest_shift: float, cuts: Sequence[Cut]) -> Array:
    """K(α): ln moments per unit of squared shift, the supremum over all t ≤ `largest_shift`; a row for each cut."""
    both = remainders(loss)

    def rate(below: float, above: float) -> Array:
        toward, away = (corner.squared_rates(below, above, [cut.per_unit(below) for cut in cuts]) for corner in both)
        moment = np.maximum(toward, away)
        if below > 0.0:  # ln(1 + t²m)/t² falls with t
            moment = np.log1p(below**2 * moment) / below**2
        return np.nan_to_num(moment, nan=math.inf, posinf=math.inf)

    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return over_shifts(rate, largest_shift)
