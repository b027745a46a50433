"""Hockey-stick divergences, privacy profiles and dominating pairs; `losses` composes them.

Words: for two laws (P, Q) the *loss* at an outcome is
ln P/Q; H_γ(P‖Q) = Σ max(P − γQ, 0); the *profile* of a mechanism is ε ↦ δ(ε) = sup H_{e^ε} over all
adjacent pairs, in both directions. Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from accounting.errors import InvalidInputError
from accounting.numerics.effort import require_time
from accounting.numerics.pmf import Array

UNIT_ROUNDOFF = 2.0**-53
ROUNDING = 16.0 * UNIT_ROUNDOFF
"""Bounds the rounding of P − e^ε·Q relative to P, where an outcome far heavier than δ has its loss just above ε."""
RELATIVE_PAD = 1e-9
"""A δ that leaves the accountant is enlarged by this share, once, for all that was rounded on the way."""

GRID_STEPS_PER_DEVIATION = 40
"""Default resolution of a grid: steps per standard deviation of one instance's loss."""

_LARGEST_GRID = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two laws on the same finite set of outcomes, plus mass of either that is not listed.

    `missing` bounds what each law may put outside the listed outcomes; it is charged to infinite loss.
    """

    upper: Array
    lower: Array
    missing: float = 0.0

    def __post_init__(self) -> None:
        require_time()
        for law in (self.upper, self.lower):
            total = float(np.sum(law))
            if not 1.0 - self.missing - 1e-11 <= total <= 1.0 + 1e-11 or float(np.min(law)) < 0.0:
                raise InvalidInputError(
                    f"a law of total mass {total:.12g} with missing={self.missing:.3g} is not a probability law;"
                    " list every outcome or declare the missing mass."
                )

    def reversed(self) -> Pair:
        """The same two laws in the other direction."""
        return Pair(upper=self.lower, lower=self.upper, missing=self.missing)

    def hockey_stick(self, epsilon: float) -> float:
        """H_{e^ε}(upper‖lower), rounded up."""
        return _hockey_stick(self.upper, self.lower, epsilon, self.missing)

    def symmetric_delta(self, epsilon: float) -> float:
        """The larger of the hockey sticks of both directions."""
        return max(self.hockey_stick(epsilon), _hockey_stick(self.lower, self.upper, epsilon, self.missing))

    def losses(self) -> Array:
        """ln(upper/lower) at each outcome, ±inf where one law vanishes."""
        require_time()
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(self.upper) - np.log(self.lower)


def symmetric_delta(pairs: Iterable[Pair], epsilon: float) -> float:
    """δ(ε) = the largest hockey stick over all pairs and both directions."""
    return max(pair.symmetric_delta(epsilon) for pair in pairs)


def _hockey_stick(upper: Array, lower: Array, epsilon: float, missing: float) -> float:
    require_time()
    excess = upper - math.exp(min(epsilon, 700.0)) * lower
    positive = excess > 0.0
    total = float(np.dot(excess, positive)) * (1.0 + RELATIVE_PAD)
    return min(1.0, total + ROUNDING * float(np.dot(upper, positive)) + missing)


def smallest_epsilon(delta_at: Callable[[float], float], delta: float, *, largest: float = 200.0) -> float:
    """Smallest ε ≥ 0 (rounded up) with delta_at(ε) ≤ delta, for a decreasing profile; inf if above `largest`."""
    if delta_at(0.0) <= delta:
        return 0.0
    high = 1e-3
    while delta_at(high) > delta:
        if high >= largest:
            return math.inf
        high = min(2.0 * high, largest)
    return smallest_root(lambda epsilon: delta_at(epsilon) <= delta, 0.0, high, tolerance=1e-9)


def smallest_root(holds: Callable[[float], bool], low: float, high: float, *, tolerance: float = 1e-6) -> float:
    """The upper end of a bracket [low, high] around where `holds` turns true, to a relative `tolerance`."""
    while high - low > tolerance * max(high, 1e-9):
        middle = 0.5 * (low + high)
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True, slots=True, kw_only=True)
class LossGrid:
    """The grid 0, h, 2h, …, n_steps·h of non-negative losses on which profiles are tabulated."""

    step: float
    n_steps: int

    @staticmethod
    def for_pair(
        pair: Pair,
        *,
        n_compositions: int,
        negligible: float,
        steps_per_deviation: int = GRID_STEPS_PER_DEVIATION,
    ) -> LossGrid:
        """A grid that resolves the loss of `pair` and ends where its profile is below `negligible`."""
        losses = pair.losses()
        require_time()
        finite = np.isfinite(losses)
        sizes = np.abs(losses[finite])
        weights = np.minimum(pair.upper, pair.lower)[finite]
        deviation = math.sqrt(float(np.sum(weights * sizes**2) / max(np.sum(weights), 1e-300)))
        require_time()
        end = _tail_start(sizes, np.maximum(pair.upper, pair.lower)[finite], negligible)
        if end <= 0.0:
            return LossGrid(step=1.0, n_steps=1)
        step = min(max(deviation, end / 1e4) / steps_per_deviation, end)
        # The composed grid has about 20·√k·deviation/step points; keep it affordable.
        span = min(20.0 * math.sqrt(n_compositions) * deviation + end, n_compositions * end)
        step = max(step, 2.0 * span / _LARGEST_GRID)
        n_steps = max(1, math.ceil(end / step))
        return LossGrid(step=end / n_steps * (1.0 + 1e-15), n_steps=n_steps)  # the last point is the end, rounded up

    def tabulate(self, losses: Array, upper: Array, missing: float) -> Array:
        """H_{e^ε}(upper‖lower) at the grid's ε, by sums of positive terms only.

        Each outcome's mass is split between its two neighboring grid losses so that both laws keep
        their mass (the connect-the-dots discretisation of one outcome), which leaves H unchanged at
        grid points.
        """
        require_time()
        h, n = self.step, self.n_steps
        inside = (losses > 0.0) & (losses < n * h)
        loss, mass = losses[inside], upper[inside]
        cell = np.minimum((loss / h).astype(np.int64), n - 1)
        require_time()
        share = np.clip(np.expm1(cell * h - loss) / math.expm1(-h), 0.0, 1.0)
        masses = np.bincount(cell + 1, weights=mass * share, minlength=n + 1)
        masses += np.bincount(cell, weights=mass * (1.0 - share), minlength=n + 1)
        require_time()
        beyond = losses >= n * h
        top = float(np.sum(upper[beyond] * -np.expm1(np.minimum(n * h - losses[beyond], 0.0))))
        above = float(np.sum(upper[beyond]))
        # δ_i = e^{−h} δ_{i+1} + (1 − e^{−h}) P(loss > ih), from the top down.
        tails = np.cumsum(np.concatenate([[above], masses[:0:-1]]))[::-1]
        decay = math.exp(-h)
        falling, _ = scipy.signal.lfilter([-math.expm1(-h)], [1.0, -decay], tails[:-1][::-1], zi=[decay * top])
        return np.append(falling[::-1], top) + missing


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileTable:
    """H_{e^ε}(P‖Q) (`forward`) and H_{e^ε}(Q‖P) (`backward`) at the ε of one grid."""

    grid: LossGrid
    forward: Array
    backward: Array

    @staticmethod
    def of_pair(pair: Pair, grid: LossGrid) -> ProfileTable:
        """Tabulate one pair."""
        losses = pair.losses()
        return ProfileTable(
            grid=grid,
            forward=grid.tabulate(losses, pair.upper, pair.missing),
            backward=grid.tabulate(-losses, pair.lower, pair.missing),
        )

    def reversed(self) -> ProfileTable:
        """The table of (Q, P)."""
        return ProfileTable(grid=self.grid, forward=self.backward, backward=self.forward)

    def join(self, other: ProfileTable) -> ProfileTable:
        """Pointwise supremum: again the table of a pair, which dominates both."""
        self._refuse_other_grid(other)
        return ProfileTable(
            grid=self.grid,
            forward=np.maximum(self.forward, other.forward),
            backward=np.maximum(self.backward, other.backward),
        )

    def moved(self, shift: float, grid: LossGrid) -> ProfileTable:
        """((1 − t)Q + tP, Q) for the pair (P, Q) of this table, on another grid; between points, by the chord in e^ε.

        H_γ is t·H_{γ'}(P‖Q) with γ' = 1 + (γ − 1)/t and, reversed, (1 − (1 − t)γ)·H_{γ'}(Q‖P) with
        1/γ' = 1 − (1 − 1/γ)/t, or 0 where that is not positive. Source: docs/proofs/geometric.md, Lemma 1.
        """
        epsilon = np.arange(grid.n_steps + 1) * grid.step
        still = 1.0 - shift  # exact for shifts from one half on, where the other way would cancel
        left = (np.exp(-epsilon) - still) / shift if shift >= 0.5 else 1.0 + np.expm1(-epsilon) / shift
        left = np.maximum(left, 0.0)
        with np.errstate(divide="ignore"):
            forward = shift * self._at(self.forward, np.log1p(np.expm1(epsilon) / shift))
            backward = shift * np.exp(epsilon) * left * self._at(self.backward, -np.log(left))
        return ProfileTable(grid=grid, forward=forward, backward=backward)

    def _at(self, table: Array, epsilon: Array) -> Array:
        """The chord between the points of the grid, in e^ε; the last value beyond."""
        h, n = self.grid.step, self.grid.n_steps
        at = np.minimum(epsilon / h, float(n))
        cell = np.minimum(at.astype(np.int64), n - 1)
        share = np.clip(np.expm1(h * (at - cell)) / math.expm1(h), 0.0, 1.0)
        return np.asarray(table[cell] + share * (table[cell + 1] - table[cell]))

    def _refuse_other_grid(self, other: ProfileTable) -> None:
        if self.grid != other.grid:
            raise InvalidInputError(
                f"tables on {self.grid} and {other.grid} do not share a grid; tabulate both on one."
            )

    def dominated_by(self, other: ProfileTable) -> bool:
        """Whether `other` lies on or above this table everywhere."""
        self._refuse_other_grid(other)
        return bool(np.all(self.forward <= other.forward) and np.all(self.backward <= other.backward))


def symmetric_table(kinds: Sequence[ProfileTable]) -> ProfileTable:
    """One table that dominates all kinds in both directions."""
    joined = kinds[0]
    for kind in kinds:
        joined = joined.join(kind).join(kind.reversed())
    return joined


def _tail_start(sizes: Array, masses: Array, negligible: float) -> float:
    """A size (on a logarithmic scale) beyond which the masses sum to at most `negligible`."""
    positive = sizes > 0.0
    if not np.any(positive):
        return 0.0
    bins = np.ceil(np.log2(sizes[positive]) * 32.0).astype(np.int64)
    lowest = int(np.min(bins))
    tails = np.cumsum(np.bincount(bins - lowest, weights=masses[positive])[::-1])[::-1]
    first = int(np.argmax(np.append(tails, 0.0) <= negligible))
    return float(min(2.0 ** ((lowest + first - 1) / 32.0), np.max(sizes)))
