"""One bit whose probability moves by at most t: what its law reveals, per unit of t².

Two laws (P, Q) dominate a bit that flips completely; a bit that moves by t is dominated by mixtures of them, the
*corners*, and its Rényi moments are bounded for whole intervals of t. Proofs: docs/proofs/geometric.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from accounting.composition.rung import Touched
from accounting.numerics.effort import require_time
from accounting.numerics.losses import DominatingLoss
from accounting.numerics.pmf import Array

ORDERS: Array = np.exp(np.linspace(math.log(1.5), math.log(4000.0), 88))
"""Rényi orders α over which bounds are minimized; the best is about 2 ln(1/δ)/ε."""
SMALLEST_SHIFT = 0.02
"""The end of the lowest interval of shifts, as a share of T."""
INTERVALS, PARTS = 32, 24
"""Theorem 1: intervals of shifts, and the parts of each in which the line above its moments is bounded."""
FIRST_INTERVALS, ROUNDS = 12, 5
"""Theorem 2: intervals of shifts at first, and how often the worst one is halved."""
BLOCK = 8
"""Neighboring orders whose rates are computed together."""
EVERY, MIDDLES = slice(None), slice(BLOCK // 2, None, BLOCK)
"""All orders, and one of each block."""


def conversion(orders: Array) -> Array:
    """Ln of (α−1)^{α−1}/α^α: Σ (p − e^ε q)₊ ≤ e^{−(α−1)ε} (α−1)^{α−1}/α^α Σ p^α q^{1−α}."""
    return np.asarray((orders - 1.0) * np.log(orders - 1.0) - orders * np.log(orders))


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
    mixed = np.concatenate([[1.0 - t], 1.0 + t * np.expm1(values)])
    base = np.concatenate([[loss.infinite], lower])  # by symmetry Q's mass where P has none
    toward = Atoms(mixed, base, t * loss.infinite)
    held = mixed > 0.0  # for t = 1 the mixture has no mass where P has none, or less than can be told from none
    away = Atoms((1.0 / mixed[held])[::-1], (base * mixed)[held][::-1], float(np.sum(base[~held])))
    return toward, away


@dataclass(frozen=True, slots=True)
class Remainders:
    """One corner as E_Q[(1 + tg)^a], g = P/Q − 1, from where cutting leaves off: the largest powers come last.

    `gains` are the g, `powers` one a for each order: α for *toward*, with g rising; 1−α for *away*, with g falling.
    `cuts[i]` is E_Q of what g exceeds gains[i] by, on the side of the large powers; `tails[i]` is Q's mass from i on.
    """

    gains: Array
    lower: Array
    powers: Array
    cuts: Array
    tails: Array

    @staticmethod
    def of(gains: Array, lower: Array, powers: Array) -> Remainders:
        """For atoms in the order in which they are cut, the last first."""
        tails = np.cumsum(lower[::-1])[::-1]
        steps = np.append(np.abs(np.diff(gains)) * tails[1:], 0.0)
        return Remainders(gains, lower, powers, np.cumsum(steps[::-1])[::-1], tails)

    def threshold(self, above: float, allowed: Array) -> tuple[NDArray[np.intp], Array]:
        """How many g are kept as they are, and the threshold of the others, for each `allowed` loss of mass per shift.

        Shifts are at most `above`. Between the first atom that loses little enough as a threshold and the one before
        it the loss is linear; for *away* it is divided by what that atom allows, which is the least between the two.
        """
        away = self.powers[0] < 0.0
        least = np.clip(1.0 + above * self.gains, 1e-300, 1.0) if away else np.ones(len(self.gains))
        kept = np.argmax(self.cuts / least <= allowed[:, None], axis=1)  # the last atom loses nothing, so there is one
        spare = np.maximum(allowed * least[kept] - self.cuts[kept], 0.0) / self.tails[kept]
        previous = self.gains[np.maximum(kept - 1, 0)] - self.gains[kept]
        moved = np.minimum(spare, np.abs(previous))
        return kept, np.asarray(self.gains[kept] + np.sign(previous) * moved)

    def moments(self, points: Array, cuts: Sequence[Cut], columns: slice) -> Array:
        """m(t) = E_Q[((1 + tĝ)^a − 1 − atĝ)/t²], with ĝ cut as it may be between two neighboring points.

        Indices: the interval; t, one of the point before it, its two ends and the point behind it (nan where there is
        none); the cut; the order.
        """
        powers = self.powers[columns]
        thresholds = [
            self.threshold(above, np.array([cut.per_unit(below) for cut in cuts]))
            for below, above in itertools.pairwise(points.tolist())
        ]
        moments = np.full((len(thresholds), 4, len(cuts), len(powers)), math.nan)
        for number, t in enumerate(points.tolist()):
            require_time()
            users = range(max(0, number - 2), min(len(thresholds), number + 2))
            end = max(int(np.max(thresholds[i][0])) for i in users)
            sums = np.zeros((end + 1, len(powers)))
            np.cumsum(self.lower[:end, None] * remainder(powers, t, self.gains[:end]), axis=0, out=sums[1:])
            for i in users:
                kept, caps = thresholds[i]
                moments[i, number - i + 1] = sums[kept] + self.tails[kept, None] * remainder(powers, t, caps)
        return moments

    def rates(self, points: Array, cuts: Sequence[Cut], columns: slice = EVERY) -> Array:
        """Bound on ln(M(α))/t² for all t from the first to the last of three points or more: a row for each cut.

        m is convex in t for powers up to 2 and from 3 on, and lies below its chord; between 2 and 3 it is concave and
        lies below the chord of a neighboring interval. Source: docs/proofs/geometric.md, Lemma 3.
        """
        powers, parts = self.powers[columns], np.linspace(points[:-1], points[1:], PARTS + 1, axis=1)
        own, concave = np.arange(len(parts)), (powers > 2.0) & (powers < 3.0)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            moments = self.moments(points, cuts, columns)
            lines = _on_chords(moments, points, parts, own)
            if np.any(concave):
                lines = np.where(concave, _on_chords(moments, points, parts, np.where(own > 0, own - 1, 1)), lines)
            larger, below = np.maximum(lines[:, :-1], lines[:, 1:]), parts[:, :-1, None, None]
            bounds = np.where(below > 0.0, np.log1p(below**2 * larger) / below**2, larger)  # it falls with t
        return np.asarray(np.max(np.where(np.isnan(bounds), math.inf, bounds), axis=(0, 1)))


def _on_chords(moments: Array, points: Array, parts: Array, chords: NDArray[np.intp]) -> Array:
    """The chord of one interval, at the ends of the parts of another: `chords` names one for each."""
    own, start = np.arange(len(parts)), points[chords, None]
    shares = ((parts - start) / (points[chords + 1, None] - start))[:, :, None, None]
    first, second = (moments[own, chords - own + end][:, None] for end in (1, 2))
    return np.asarray((1.0 - shares) * first + shares * second)


def remainder(powers: Array, shift: float, gains: Array) -> Array:
    """((1 + tg)^a − 1 − atg)/t² for all g and, as last index, each a; its limit for t = 0."""
    if shift == 0.0:
        return np.asarray(gains[..., None] ** 2 * (powers * (powers - 1.0) / 2.0))
    step = shift * gains
    table = np.expm1(np.log1p(step)[..., None] * powers)
    table -= step[..., None] * powers
    table /= shift**2
    return np.asarray(table)


def remainders(loss: DominatingLoss) -> tuple[Remainders, Remainders]:
    """Both corners of a pair, *toward* and *away*."""
    atoms, _ = corners(loss, 1.0)
    kept = atoms.lower > 0.0
    gains, lower = atoms.ratios[kept] - 1.0, atoms.lower[kept]
    return Remainders.of(gains, lower, ORDERS), Remainders.of(gains[::-1], lower[::-1], 1.0 - ORDERS)


def shifts(largest_shift: float, intervals: int) -> Array:
    """The ends of intervals that cover all shifts up to the largest."""
    return np.append(0.0, largest_shift * np.geomspace(SMALLEST_SHIFT, 1.0, intervals))


def over_shifts(bound: Callable[[float, float], float], largest_shift: float) -> float:
    """The largest bound(below, above) over intervals that cover all shifts up to the largest.

    In each round the interval of the largest bound is halved.
    """
    intervals = list(itertools.pairwise(shifts(largest_shift, FIRST_INTERVALS).tolist()))
    values = [bound(*interval) for interval in intervals]
    for _ in range(ROUNDS):
        i = int(np.argmax(values))
        below, above = intervals[i]
        middle = math.sqrt(below * above) if below > 0.0 else above / 2.0
        intervals[i : i + 1] = [(below, middle), (middle, above)]
        values[i : i + 1] = [bound(*half) for half in intervals[i : i + 2]]
    return max(values)


@dataclass(frozen=True, slots=True)
class Rates:
    """K(α): ln moments per unit of squared shift, a row for each cut, computed only for blocks of orders that decide.

    `sketch` holds one order of each block. It says where to look.
    """

    sketch: Array
    compute: Callable[[slice], Array]
    """The rates of a block of orders."""
    computed: dict[int, Array] = field(default_factory=dict, compare=False)
    """Blocks that were computed; none depends on another."""

    def whole(self) -> Array:
        """The rates of all orders."""
        return self.table(range(math.ceil(len(ORDERS) / BLOCK)))

    def table(self, blocks: Iterable[int]) -> Array:
        """The rates of all orders of these blocks; infinite for the others."""
        table = np.full((len(self.sketch), len(ORDERS)), math.inf)
        for block in blocks:
            columns = slice(block * BLOCK, (block + 1) * BLOCK)
            if block not in self.computed:
                self.computed[block] = self.compute(columns)
            table[:, columns] = self.computed[block]
        return table


def rates(loss: DominatingLoss, largest_shift: float, cuts: Sequence[Cut]) -> Rates:
    """K(α), the supremum over all t ≤ `largest_shift`, for a pair that dominates an instance that flips completely."""
    points, both = shifts(largest_shift, INTERVALS), remainders(loss)

    def largest(columns: slice) -> Array:
        return np.maximum(*(corner.rates(points, cuts, columns) for corner in both))

    return Rates(largest(MIDDLES), largest)
