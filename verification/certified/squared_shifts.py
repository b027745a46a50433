"""Bits whose probabilities move by t_i with Σ t_i² ≤ Δ²: Theorems 1 and 2 of geometric accounting, at a witness.

Every order α, every cut and every partition of the shifts gives a valid bound. Ordinary arithmetic looks for good ones
(`Witness.found`); the theorem is then evaluated there in ball arithmetic. Source: docs/proofs/geometric.md, whose
names are used, and docs/proofs/certificate.md, section 7.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from verification.certified.balls import ONE, ZERO, Ball, Balls, exact, total, whole_below
from verification.certified.profiles import Loss
from verification.certified.witness import Cutting

Floats = NDArray[np.float64]

INTERVALS, PARTS = 48, 12
"""Intervals of shifts at first, and the parts of each in which the line above its moments is bounded."""
ROUNDS = 16
"""How often the worst interval of shifts is halved."""
SMALLEST_SHIFT = 0.02
"""The end of the lowest interval, as a share of T."""
CUTS = ((1e-4, 0.0), (1e-3, 0.0), (5e-3, 0.0), (0.02, 0.0), (0.1, 0.0), (0.3, 0.0), (0.1, 0.5), (0.4, 0.5))
"""Shares of δ that may be spent on cutting off the rarest outcomes, and how much of it linearly in the shifts."""
ORDERS: Floats = np.geomspace(1.2, 2e5, 80)
"""Where the search for an order begins."""
PEELED_INTERVALS, PEELED_ROUNDS = 12, 12
"""Theorem 2: intervals of the exceptional shift at first, and how often the worst one is halved."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Δ², k and T: squared shifts of at most k bits add up to at most Δ², none of them is above T."""

    squared_shift: Ball
    instances: int
    largest_shift: float

    @property
    def summed(self) -> Ball:
        """√k·Δ, which bounds Σ t."""
        return (self.squared_shift * self.instances).sqrt()

    def edges(self) -> list[float]:
        """Ends of the intervals that cover (0, T]."""
        between = self.largest_shift * np.geomspace(SMALLEST_SHIFT, 1.0, INTERVALS)[:-1]
        return sorted([0.0, *between.tolist(), self.largest_shift])


@dataclass(frozen=True, slots=True)
class Cut:
    """b₂ and b₁: an instance of shift t may lose the mass b₂t² + b₁t."""

    square: float
    linear: float

    @staticmethod
    def spending(mass: float, share: float, budget: Budget) -> Cut:
        """About `mass` in all, `share` of it linearly."""
        return Cut((1.0 - share) * mass / float(budget.squared_shift), share * mass / float(budget.summed))

    def per_unit(self, shift: float) -> float:
        """About what may be lost at this shift or beyond, divided by the shift."""
        return self.square * shift + self.linear

    def allows(self, lost: Ball, shift: float) -> bool:
        """Whether so much may be lost, per unit of shift, at this shift and beyond."""
        return bool(lost <= exact(self.square) * exact(shift) + exact(self.linear))

    def lost(self, budget: Budget) -> Ball:
        """b₂Δ² + b₁√k·Δ: what all instances may lose together."""
        return exact(self.square) * budget.squared_shift + exact(self.linear) * budget.summed


@dataclass(frozen=True)
class Corners:
    """g = P/Q − 1 and Q, where Q > 0, and ι = P(Q = 0), of a pair that dominates a bit that flips completely.

    The pair is its own mirror image, so P has no mass at outcomes of Q-mass ι, where g = −1.
    """

    gains: Balls
    lower: Balls
    infinite: Ball

    @staticmethod
    def of(loss: Loss) -> Corners:
        """From a loss whose table is symmetric."""
        ratios = [(exact(loss.step) * (loss.first + i)).exp() for i in range(len(loss.masses))]
        lower = [mass / ratio for mass, ratio in zip(loss.masses, ratios, strict=True)]
        gains = [ratio - ONE for ratio in ratios]
        return Corners([-ONE, *gains], [loss.infinite, *lower], loss.infinite)

    @cached_property
    def rough(self) -> tuple[Floats, Floats]:
        """G and Q as doubles, to search with."""
        return np.array([float(g) for g in self.gains]), np.array([max(0.0, float(q)) for q in self.lower])

    def threshold(self, away: bool, below: float, above: float, cut: Cut) -> float:
        """About the least G at which so little mass is lost as is allowed on [below, above]; to be checked."""
        with np.errstate(all="ignore"):
            return self._rough_threshold(away, below, above, cut)

    def _rough_threshold(self, away: bool, below: float, above: float, cut: Cut) -> float:
        gains, lower = self.rough
        sizes = -gains if away else gains
        order = np.argsort(-sizes)
        sizes, weights = sizes[order], lower[order]
        tail = np.cumsum(weights)
        lost = np.append(0.0, np.cumsum(tail[:-1] * -np.diff(sizes)))
        least = np.minimum(1.0, 1.0 - above * sizes) if away else np.ones(len(sizes))
        fits = (least > 0.0) & (lost <= 0.999999 * cut.per_unit(below) * least)
        fits[0] |= not away or above * sizes[0] < 1.0
        (places,) = np.nonzero(fits)
        if not len(places):
            return math.nan
        at = int(places[-1])
        room = (0.999999 * cut.per_unit(below) * least[at] - lost[at]) / max(tail[at], 1e-300)
        step = sizes[at] - sizes[at + 1] if at + 1 < len(sizes) else 0.0
        if at == 0:
            return math.nextafter(float(sizes[0]), math.inf)  # nothing is cut
        return float(sizes[at] - min(max(room, 0.0), 0.999 * step))

    def checked_loss(self, away: bool, above: float, threshold: float) -> Ball:
        """Lemma 3 (1): the mass lost per unit of shift, without ι."""
        limit = exact(threshold)
        excess = ((-g if away else g) - limit for g in self.gains)
        lost = total([q * x for q, x in zip(self.lower, excess, strict=True) if not x <= ZERO])
        if not away:
            return lost
        kept = ONE - exact(above) * limit
        return lost / kept.min(ONE) if kept > ZERO else exact(math.inf)

    def cut_gains(self, away: bool, threshold: float) -> tuple[Balls, Balls]:
        """ĝ and Q: what is cut has one value, so its masses are added up."""
        limit = exact(threshold)
        gains, lower, rest = [], [], ZERO
        for g, q in zip(self.gains, self.lower, strict=True):
            size = -g if away else g
            if size >= limit:
                rest += q
                continue
            kept = size if size < limit else size.min(limit)  # the smaller one, where they cannot be told apart
            gains.append(-kept if away else kept)
            lower.append(q)
        return [*gains, -limit if away else limit], [*lower, rest]

    def rate(self, order: float, budget: Budget, cut: Cut) -> Ball:
        """K(α): a bound on ln M(α)/t² − (α−1)ι/t for both corners and all t ≤ T; infinite if nothing is bounded."""
        toward, away = (_worst(partial(self._rate, order, cut, way), budget.edges(), ROUNDS) for way in (False, True))
        return toward.max(away)

    def _rate(self, order: float, cut: Cut, away: bool, below: float, above: float) -> Ball:
        """The same for one corner and the shifts of one interval."""
        threshold = self.threshold(away, below, above, cut)
        if math.isnan(threshold) or not cut.allows(self.checked_loss(away, above, threshold), below):
            return exact(math.inf)
        return Moments(*self.cut_gains(away, threshold), 1.0 - order if away else order).largest(below, above)

    def rough_rates(self, orders: Floats, budget: Budget, cut: Cut) -> Floats:
        """About K(α) for many orders, by doubles."""
        gains, lower = self.rough
        worst = np.zeros(len(orders))
        with np.errstate(all="ignore"):
            for away in (False, True):
                for below, above in itertools.pairwise(budget.edges()):
                    limit = self.threshold(away, below, above, cut)
                    g = np.maximum(gains, -limit) if away else np.minimum(gains, limit)
                    powers = 1.0 - orders if away else orders
                    grown = np.expm1(np.log1p(above * g)[:, None] * powers) - above * g[:, None] * powers
                    rates = np.log1p(lower @ grown) / above**2
                    worst = np.maximum(worst, np.where(np.isnan(rates), np.inf, rates))
        return worst


def _worst(bound: Callable[[float, float], Ball], edges: list[float], rounds: int) -> Ball:
    """The largest bound(below, above) over the intervals between edges; in each round the worst interval is halved."""
    intervals = list(itertools.pairwise(edges))
    values = [bound(*interval) for interval in intervals]
    for _ in range(rounds):
        i = max(range(len(values)), key=lambda j: float(values[j]))
        below, above = intervals[i]
        middle = math.sqrt(below * above) if below > 0.0 else above / 2.0
        halves = [(below, middle), (middle, above)]
        bounds = [bound(*half) for half in halves]
        if not all(value < values[i] for value in bounds):
            break  # nothing is gained any more
        intervals[i : i + 1], values[i : i + 1] = halves, bounds
    largest = ZERO
    for value in values:
        largest = largest.max(value)
    return largest


@dataclass(frozen=True, slots=True)
class Moments:
    """m(t) = E_Q[((1 + tĝ)^a − 1 − atĝ)/t²] for one power a."""

    gains: Balls
    lower: Balls
    power: float

    def at(self, shift: Ball) -> Ball:
        """m(t)."""
        a = exact(self.power)
        if shift == ZERO:
            return a * (a - ONE) / 2 * total([q * g * g for g, q in zip(self.gains, self.lower, strict=True)])
        result = ZERO
        for g, q in zip(self.gains, self.lower, strict=True):
            step = shift * g
            grown = ONE + step
            nothing = ZERO if self.power > 0.0 else exact(math.inf)  # 0^a, at g = −1 and t = 1
            result += q * ((nothing if grown == ZERO else grown**a) - ONE - a * step)
        return result / (shift * shift)

    def largest(self, below: float, above: float) -> Ball:
        """A bound on ln(1 + t²m(t))/t² for t in (below, above]: Lemma 3 (3) and (4)."""
        u, v = exact(below), exact(above)
        left, right = u, v
        if 2.0 < self.power < 3.0:  # m is concave: below the line through two points on the same side
            left, right = (v, v + (v - u) / 2) if below == 0.0 else (u / 2, u)
        at_left, at_right = self.at(left), self.at(right)
        slope = (at_right - at_left) / (right - left)
        ends = [u + (v - u) * i / PARTS for i in range(PARTS + 1)]
        lines = [at_left + slope * (t - left) for t in ends]
        worst = ZERO
        for x, (one, other) in zip(ends, itertools.pairwise(lines), strict=False):
            m = one.max(other)
            worst = worst.max(m if x == ZERO else (ONE + x * x * m).log() / (x * x))
        return worst


@dataclass(frozen=True, slots=True)
class Line:
    """Theorem 1 at one order: δ(ε) ≤ lost + s + e^{K·Δ² − (α−1)(ε − s)}(α−1)^{α−1}/α^α, s = √k·Δ·ι, for any Δ."""

    order: float
    rate: Ball
    conversion: Ball

    @staticmethod
    def of(corners: Corners, order: float, budget: Budget, cut: Cut) -> Line:
        """The rate, proved."""
        a = exact(order)
        conversion = (a - ONE) * (a - ONE).log() - a * a.log()
        return Line(order, corners.rate(order, budget, cut), conversion)

    def log_rest(self, squared_shift: Ball) -> Ball:
        """K·Δ² + ln((α−1)^{α−1}/α^α): what is left but −(α−1)(ε − s)."""
        return self.rate * squared_shift + self.conversion


@dataclass(frozen=True, slots=True)
class AnyData:
    """Theorem 1: δ(ε) whatever the others hold, by the best of the lines."""

    budget: Budget
    lines: list[Line]
    spent: Ball
    """What is cut, and P's mass at infinite loss."""
    summed_infinite: Ball

    @staticmethod
    def of(corners: Corners, budget: Budget, cutting: Cutting) -> AnyData:
        """At a witness."""
        cut, summed = Cut(cutting.square, cutting.linear), corners.infinite * budget.summed
        lines = [Line.of(corners, order, budget, cut) for order in cutting.orders]
        return AnyData(budget, lines, cut.lost(budget) + summed, summed)

    def delta(self, epsilon: float) -> Ball:
        """The bound on δ(ε)."""
        left = exact(epsilon) - self.summed_infinite
        rests = [line.log_rest(self.budget.squared_shift) - (exact(line.order) - ONE) * left for line in self.lines]
        best = rests[0]
        for rest in rests[1:]:
            best = best.min(rest)
        return self.spent + best.exp()


def any_data_cutting(corners: Corners, budget: Budget, delta: float) -> tuple[float, Cutting]:
    """About the least ε at δ, and the order and the cut that promise it."""
    best, infinite = (math.inf, 2.0, Cut(0.0, 0.0)), float(corners.infinite * budget.summed)
    affordable = [way for way in CUTS if (1.0 - way[0]) * delta > infinite]
    if not affordable:
        infinite = 0.0  # nothing is bounded at δ, but at a larger one
    for share, linear in affordable or CUTS:
        cut, left = Cut.spending(share * delta, linear, budget), (1.0 - share) * delta - infinite
        best = min(best, _best_order(corners, budget, cut, left), key=lambda one: one[0])
    epsilon, order, cut = best
    return epsilon, Cutting(orders=(order,), square=cut.square, linear=cut.linear)


def _best_order(corners: Corners, budget: Budget, cut: Cut, left: float) -> tuple[float, float, Cut]:
    """(about the least ε at δ, its order, the cut)."""

    def epsilons(orders: Floats) -> Floats:
        conversion = (orders - 1.0) * np.log(orders - 1.0) - orders * np.log(orders)
        exponents = corners.rough_rates(orders, budget, cut) * float(budget.squared_shift) + conversion
        return np.asarray((exponents - math.log(left)) / (orders - 1.0))

    orders = ORDERS
    for _ in range(3):
        found = epsilons(orders)
        at = int(np.argmin(found))
        low, high = orders[max(at - 1, 0)], orders[min(at + 1, len(orders) - 1)]
        best = float(found[at]), float(orders[at]), cut
        orders = np.linspace(low, high, 9)
    return best


COIN_SHARE, COIN_SHORTFALL = (501, 1000), (13, 100)
"""Lemma 4: at most one instance has s_j > 0.501; fewer than 1 − 0.13 of the expected coins are hardly ever tossed."""
COIN_CUT = 1e-5
"""Share of δ that the instances with coins may spend on cutting."""
N_LINES = 32
"""Orders at which Theorem 1 is proved for the instances with coins."""


@dataclass(frozen=True, slots=True)
class Coins:
    """Lemma 4: of n − 1 others in the unit ball at least `number` toss fair coins, except with probability `failure`.

    In all instances but one; `failure` is for each of them.
    """

    number: int
    failure: Ball

    @staticmethod
    def of(n_users: int) -> Coins:
        """⌊0.87μ⌋ and e^{−0.13²μ/2}, with μ = (n−1)(1 − √0.501)."""
        share, slack = (ONE * above / below for above, below in (COIN_SHARE, COIN_SHORTFALL))
        mean = (n_users - 1) * (ONE - share.sqrt())
        return Coins(max(0, whole_below((ONE - slack) * mean)), (-slack * slack * mean / 2).exp())


@dataclass(frozen=True, slots=True)
class UnitBall:
    """Theorem 2: one exceptional instance of shift t, and the coins of all others for what Δ² − t² leaves."""

    exceptional: Corners
    rest: AnyData
    failure: Ball

    def delta(self, epsilon: float) -> Ball:
        """The bound on δ(ε), over all shifts of the exceptional instance."""
        edges = self.rest.budget.edges()
        few = edges[: -1 : INTERVALS // PEELED_INTERVALS] + edges[-1:]
        worst = _worst(partial(self._peeled, epsilon), few, PEELED_ROUNDS)
        return self.failure * self.rest.budget.instances + self.rest.spent + worst

    def _peeled(self, epsilon: float, below: float, above: float) -> Ball:
        """E over both corners at `above`, with what shifts of `below` or more leave of Δ²."""
        left = (self.rest.budget.squared_shift - exact(below) * exact(below)).max(ZERO)
        rests = [line.log_rest(left) for line in self.rest.lines]
        rough = np.array([float(rest) for rest in rests])
        slopes = np.array([line.order - 1.0 for line in self.rest.lines])
        at, shift = exact(epsilon) - self.rest.summed_infinite, exact(above)
        infinite, results = self.exceptional.infinite, []
        for away in (False, True):
            result = ZERO if away else shift * infinite
            for g, q in zip(self.exceptional.gains, self.exceptional.lower, strict=True):
                grown = ONE + shift * g
                if grown == ZERO:  # t = 1 where P has no mass: no mass for *toward*, infinite loss for *away*
                    result += q if away else ZERO
                    continue
                loss = -grown.log() if away else grown.log()
                mass = q if away else q * grown
                i = int(np.argmin(rough - slopes * float(at - loss)))
                rest = rests[i] - (exact(self.rest.lines[i].order) - ONE) * (at - loss)
                result += mass * (rest.exp() if rest < ZERO else ONE)
            results.append(result)
        return results[0].max(results[1])


def coin_cutting(coins: Corners, budget: Budget, delta: float) -> Cutting:
    """Orders from little more than 1 to beyond the one that would be best if nothing were peeled off."""
    cut = Cut.spending(COIN_CUT * delta, 0.0, budget)
    _, best, _ = _best_order(coins, budget, cut, delta)
    orders = 1.0 + np.geomspace(0.2, 2.0 * best, N_LINES)
    return Cutting(orders=tuple(orders.tolist()), square=cut.square, linear=cut.linear)
