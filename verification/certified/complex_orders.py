"""Bits whose probabilities move by t_i with Σ t_i² = Δ²: Theorem 3 of geometric accounting, at a witness.

The theorem bounds an integral over the orders α + iω. Any α, any cut, any frequencies and any partition of the shifts
give a valid bound; here each is evaluated in ball arithmetic. Source: docs/proofs/geometric.md, whose names are used,
and docs/proofs/certificate.md, section 7.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from flint import acb, arb, ctx

from verification.certified.balls import ONE, ZERO, Ball, Balls, exact, total
from verification.certified.squared_shifts import Budget, Corners, Cut, Floats
from verification.certified.witness import Contouring

Spiral = acb
"""A complex ball."""

BITS = 96
"""Precision inside: moments are near 1, and δ is only seen through their logarithms."""
EDGES = (0.0, *np.geomspace(0.02, 0.5, 20).tolist(), *np.linspace(0.5, 1.0, 11)[1:].tolist())
"""Ends of intervals that cover the shifts, as shares of T."""
PARTS = 16
"""Parts of each interval."""
RANGES = ((0.1, 60), (0.6, 40), (2.0, 60))
"""Steps of the frequencies, in deviations of the composed loss, and how many of each."""
SMOOTHING = 0.04
"""η, in the same unit."""
LEAST_GAIN, SMOOTH_POWER = -0.9, 6
"""For *toward* and powers up to the second, gains below the first are raised to it."""
ORDERS: Floats = np.geomspace(1.5, 2e5, 80)
"""Where the search for an order begins."""
SHARES = ((1e-3, 0.0), (0.02, 0.0), (0.1, 0.0), (0.3, 0.0), (0.1, 0.5), (0.4, 0.5))
"""Shares of δ that may be cut off, and how much of it linearly in the shifts."""


@dataclass(frozen=True, slots=True)
class Contour:
    """δ(ε) ≤ spent + e^{log_integral − (α−1)ε}, for one α."""

    order: float
    log_integral: Ball
    spent: Ball

    @staticmethod
    def of(corners: Corners, budget: Budget, where: Contouring) -> Contour:
        """At a witness."""
        cut, certain = Cut(where.square, where.linear), exact(budget.largest_shift) ** 2 * budget.instances
        budget = replace(budget, squared_shift=budget.squared_shift.min(certain))  # shifts can be enlarged so far
        infinite = corners.infinite * budget.summed
        with ctx.workprec(BITS):
            log_integral = Spectrum.of(corners, budget, where, cut).log_integral(budget)
        return Contour(where.order, log_integral, cut.lost(budget) + infinite)

    def delta(self, epsilon: float) -> Ball:
        """The bound on δ(ε)."""
        return self.spent + (self.log_integral - (exact(self.order) - ONE) * exact(epsilon)).min(ZERO).exp()

    def epsilon(self, delta: float) -> float:
        """About the ε that it promises at δ."""
        left = delta - float(self.spent)
        return (float(self.log_integral) - math.log(left)) / (self.order - 1.0) if left > 0.0 else math.inf


@dataclass(frozen=True, slots=True)
class Spectrum:
    """|M_t(α + iω_j)| ≤ exp(rates[j]·t² + units[j]·t) for all t ≤ T and both corners, at frequencies that rise from 0.

    `spread` bounds |d²M_t/dω²|/t², but for a factor e^{iωc}.
    """

    order: Ball
    frequencies: Balls
    rates: Balls
    units: Balls
    spread: Ball
    smoothing: Ball

    @staticmethod
    def of(corners: Corners, budget: Budget, where: Contouring, cut: Cut) -> Spectrum:
        """The supremum over intervals of shifts, of both corners."""
        steps = [exact(step) / exact(where.deviation) for step, count in RANGES for _ in range(count)]
        frequencies = list(itertools.accumulate(steps, initial=ZERO))
        rates, units, spread = [exact(-math.inf)] * len(frequencies), [ZERO] * len(frequencies), ZERO
        for away in (False, True):
            order = acb(exact(where.order))
            powers = [(ONE - order - acb(0, w)) if away else order + acb(0, w) for w in frequencies]
            for low, high in itertools.pairwise(EDGES):
                below, above = low * budget.largest_shift, high * budget.largest_shift
                piece = Piece.of(corners, (below, above), cut, powers[0].real)
                spread = spread.max(piece.spread(powers[0].real))
                derivative = piece.derivative(powers[0].real, 2 if below == 0.0 else 4)
                for j, (a, ends) in enumerate(zip(powers, piece.moments(powers, steps), strict=True)):
                    unit = piece.unit(a, corners.infinite)
                    if below == 0.0:
                        rates[j] = rates[j].max(piece.lowest(a, ends, unit, derivative))
                        units[j] = units[j].max(unit)
                    else:
                        rates[j] = rates[j].max(piece.inside(a, ends, unit, derivative))
        smoothing = exact(SMOOTHING) * exact(where.deviation)
        return Spectrum(exact(where.order), frequencies, rates, units, spread, smoothing)

    def log_integral(self, budget: Budget) -> Ball:
        """Ln of (1/π)∫ Π|M| e^{η²(s² − s)/2}/|s(s − 1)| dω."""
        a, smooth, summed = self.order, self.smoothing * self.smoothing / 2, budget.summed
        square, shift = budget.squared_shift, exact(budget.largest_shift)
        kernels = [
            -smooth * w * w - ((a * a + w * w) * ((a - ONE) * (a - ONE) + w * w)).log() / 2 for w in self.frequencies
        ]
        exponents = [square * rate + summed * unit for rate, unit in zip(self.rates, self.units, strict=True)]
        whole = ZERO
        for j, (w, ahead) in enumerate(itertools.pairwise(self.frequencies)):
            eighth = (ahead - w) * (ahead - w) / 8
            rise = shift * abs(self.rates[j + 1] - self.rates[j]) + abs(self.units[j + 1] - self.units[j])
            lowest = self.rates[j].min(self.rates[j + 1]).min(ZERO)
            bulge = square * (rise * rise / 8 + eighth * self.spread * (-lowest * shift * shift).exp())
            bulge += eighth * (ONE / (a * a) + ONE / ((a - ONE) * (a - ONE)) + 2 * smooth)
            left, right = exponents[j] + kernels[j], exponents[j + 1] + kernels[j + 1]
            # The mean of e^x over x from left to right, in two ways; and |M| is largest at ω = 0.
            narrow, wide = (left + right) / 2 + (right - left) * (right - left) / 24, left.max(right)
            whole += (ahead - w) * (narrow.min(wide) + bulge).min(exponents[0] + kernels[j]).exp()
        end = self.frequencies[-1]
        whole += (exponents[0] - smooth * end * end).exp() / end
        return whole.log() + smooth * (a * a - a) - arb.pi().log()


@dataclass(frozen=True, slots=True)
class Ends:
    """m and width·m' at both ends of an interval, for one power."""

    values: tuple[Spiral, Spiral]
    steps: tuple[Spiral, Spiral]


@dataclass(frozen=True, slots=True)
class Piece:
    """One corner, cut as it may be for shifts in [below, above]: ĝ and Q, and what is lost per unit of shift."""

    below: float
    above: float
    gains: Balls
    lower: Balls
    allowed: Ball
    raised: Ball
    """How much gains were raised, on average."""

    @staticmethod
    def of(corners: Corners, shifts: tuple[float, float], cut: Cut, power: Ball) -> Piece:
        """By a threshold that is proved to lose little enough; if there is none, the bound is infinite.

        For *toward* and small powers, small gains are raised: derivatives of (1 + tg)^a in t exist then.
        """
        (below, above), away = shifts, bool(power < ZERO)
        threshold = corners.threshold(away, below, above, cut)
        if math.isnan(threshold) or not cut.allows(corners.checked_loss(away, above, threshold), below):
            return Piece(below, above, [ZERO], [ONE], exact(math.inf), ZERO)
        gains, lower = corners.cut_gains(away, threshold)
        raised, least = ZERO, exact(LEAST_GAIN)
        if not away and not power > SMOOTH_POWER:
            raised = total([q * (least - g).max(ZERO) for g, q in zip(gains, lower, strict=True)])
            gains = [g.max(least) for g in gains]
        return Piece(below, above, gains, lower, exact(cut.square) * exact(below) + exact(cut.linear), raised)

    def logs(self, shift: Ball) -> Balls:
        """ln(1 + tĝ); −∞ where an outcome has no mass."""
        return [exact(-math.inf) if (grown := ONE + shift * g) == ZERO else grown.log() for g in self.gains]

    def unit(self, power: Spiral, infinite: Ball) -> Ball:
        """A bound on what is left of the linear term, per unit of shift; for *away*, of cut outcomes, too."""
        linear = abs(power) * (infinite + self.allowed + 2 * self.raised)
        if not power.real < ZERO or self.allowed == ZERO:
            return linear
        least = ONE + exact(self.above) * self.gains[-1]
        return linear + self.allowed * (least**power.real).max(ONE)

    def spread(self, power: Ball) -> Ball:
        """A bound on E_Q[(1 + tĝ)^ρ (ln(1 + tĝ) − ct)²]/t² for all t inside, with a c that suits it."""
        u, v = exact(self.below), exact(self.above)
        low = self.gains if self.below == 0.0 else [x / u for x in self.logs(u)]
        high = [x / v for x in self.logs(v)]
        sizes = [(power * u * one).max(power * v * two).exp() for one, two in zip(low, high, strict=True)]
        middles = [(float(q * size), float(two)) for q, size, two in zip(self.lower, sizes, high, strict=True)]
        known = [(mass, place) for mass, place in middles if math.isfinite(place)]
        center = exact(sum(mass * place for mass, place in known) / max(sum(mass for mass, _ in known), 1e-300))
        result = ZERO
        for q, size, one, two in zip(self.lower, sizes, low, high, strict=True):
            if two.is_finite():
                result += q * size * ((one - center) ** 2).max((two - center) ** 2)
            else:  # no mass at t = v: x^ρ (ln x − ct)² ≤ 2x^(ρ−1)·x ln² x + 2c²t²x^ρ, and x ln² x ≤ 4/e² < 0.55
                start = (u * one).exp()
                result += q * size * (ONE * 11 / 10 / (start * u * u) + 2 * center * center)
        return result if power > 1 or all(x.is_finite() for x in high) else exact(math.inf)

    def derivative(self, power: Ball, order: int) -> Ball:
        """A bound on |m^(order)| inside, but for the factor |a(a − 1)…(a − order − 1)|."""
        v, lower_order = exact(self.above), order + 2
        result = ZERO
        for g, q in zip(self.gains, self.lower, strict=True):
            grown, rest = ONE + v * g, power - lower_order
            if grown == ZERO and not rest > ZERO:
                return exact(math.inf)
            result += q * g**lower_order * (ONE if grown == ZERO else (grown**rest).max(ONE))
        return result / ((order + 1) * (order + 2))

    def moments(self, powers: list[Spiral], steps: Balls) -> list[Ends]:
        """For all powers, m and its derivative at both ends: a wave for each outcome is turned from power to power."""
        mass = total(self.lower)
        first, second, third = (
            total([q * g**k for g, q in zip(self.gains, self.lower, strict=True)]) for k in (1, 2, 3)
        )
        width, found = exact(self.above) - exact(self.below), []
        for end in (self.below, self.above):
            t, values, slopes = exact(end), [], []
            if end == 0.0:
                values = [a * (a - 1) / 2 * second for a in powers]
                slopes = [a * (a - 1) * (a - 2) / 6 * third for a in powers]
            else:
                for a, (value, slope) in zip(powers, self._sums(t, powers[0].real, steps), strict=True):
                    m = (value - mass - a * t * first) / (t * t)
                    values.append(m)
                    slopes.append((a * (slope - first) / t - 2 * m) / t)
            found.append((values, [width * slope for slope in slopes]))
        (p, dp), (q, dq) = found
        return [Ends(*pairs) for pairs in zip(zip(p, q, strict=True), zip(dp, dq, strict=True), strict=True)]

    def _sums(self, t: Ball, power: Ball, steps: Balls) -> Iterable[tuple[Spiral, Spiral]]:
        """E_Q[(1 + tĝ)^a] and E_Q[ĝ(1 + tĝ)^(a−1)], frequency by frequency."""
        kept = [
            (g, q, x) for g, q, x in zip(self.gains, self.lower, self.logs(t), strict=True) if x != exact(-math.inf)
        ]
        if len(kept) < len(self.gains) and not power > ONE:
            kept.append((ZERO, exact(math.nan), ZERO))  # no moment: nothing is claimed
        waves = [acb(q * (power * x).exp()) for _, q, x in kept]
        weights = [g / (ONE + t * g) for g, _, _ in kept]
        turns: dict[str, list[Spiral]] = {}
        yield _sum(waves), _sum([y * h for y, h in zip(waves, weights, strict=True)])
        for step in steps:
            if (name := str(step)) not in turns:
                turns[name] = [acb(0, -step * x if power < ZERO else step * x).exp() for _, _, x in kept]
            waves = [y * z for y, z in zip(waves, turns[name], strict=True)]
            yield _sum(waves), _sum([y * h for y, h in zip(waves, weights, strict=True)])

    def lowest(self, a: Spiral, ends: Ends, unit: Ball, fourth: Ball) -> Ball:
        """For t in (0, v]: ln|1 + z| ≤ Re z + |z|²/2, and m is near its chord; `fourth` is `derivative(…, 2)`."""
        v = exact(self.above)
        error = v * v / 8 * _falling(a, 4) * fourth
        p, q = ends.values
        size = v * (abs(p).max(abs(q)) + error) + unit
        return p.real.max(q.real) + error + size * size / 2

    def inside(self, a: Spiral, ends: Ends, unit: Ball, sixth: Ball) -> Ball:
        """For t in [u, v], u > 0, by F = 1 + t²H, H the cubic through the ends; `sixth` is `derivative(…, 4)`.

        κ is the larger ln|F|/t² at the ends of a part. |F|e^{−κt²} is at most 1 there, and inside at most w²/8 of its
        second derivative more.
        """
        u, v = exact(self.below), exact(self.above)
        width = v - u
        error = width**4 / 384 * _falling(a, 6) * sixth
        (p, q), (dp, dq) = ends.values, ends.steps
        bent, third = 3 * (q - p) - 2 * dp - dq, 2 * (p - q) + dp + dq
        step, points = width / PARTS, []
        for i in range(PARTS + 1):
            x = ONE * i / PARTS
            t, cubic = u + width * x, p + x * (dp + x * (bent + x * third))
            slope, bend = abs(dp + x * (2 * bent + 3 * x * third)) / width, abs(2 * bent + 6 * x * third) / width**2
            points.append((t, abs(ONE + t * t * cubic).log() / (t * t), abs(cubic), slope, bend))
        worst = exact(-math.inf)
        for (x, one, *low), (y, two, *high) in itertools.pairwise(points):
            kappa, bend = one.max(two), low[2].max(high[2])
            slope = low[1].max(high[1]) + step / 2 * bend
            size = low[0].max(high[0]) + step / 2 * slope
            k = abs(kappa)
            curvature = 2 * size + 4 * y * slope + y * y * bend + 4 * k * y * (2 * y * size + y * y * slope)
            curvature += (4 * k * k * y * y + 2 * k) * (ONE + y * y * size)
            rest = step * step / 8 * curvature + y * y * error + v * unit
            rest *= (-kappa * x * x).max(-kappa * y * y).exp()
            worst = worst.max(kappa + rest.log1p() / (x * x))
        return worst


def _sum(spirals: list[Spiral]) -> Spiral:
    return sum(spirals, acb(0))


def _falling(a: Spiral, count: int) -> Ball:
    """|a(a − 1)…(a − count + 1)|."""
    result = acb(1)
    for k in range(count):
        result *= a - k
    return abs(result)


def contouring(corners: Corners, budget: Budget, delta: float) -> tuple[float, Contouring] | None:
    """About the least ε at δ, and the order and the cut that promise it; None if none does."""
    gains, lower = corners.rough
    deviation = math.sqrt(float(budget.squared_shift) * float(lower @ gains**2))
    infinite, best = float(corners.infinite * budget.summed), (math.inf, 0.0, Cut(0.0, 0.0))
    for share, linear in SHARES:
        cut, left = Cut.spending(share * delta, linear, budget), (1.0 - share) * delta - infinite
        if left > 0.0:
            best = min(best, _best(corners, budget, cut, deviation * left), key=lambda one: one[0])
    epsilon, order, cut = best
    if not epsilon < math.inf:
        return None
    return epsilon, Contouring(order=order, square=cut.square, linear=cut.linear, deviation=deviation)


def _best(corners: Corners, budget: Budget, cut: Cut, left: float) -> tuple[float, float, Cut]:
    """The least ε, its order and the cut, by the integral of a Gaussian."""
    orders, best = ORDERS, (math.inf, 0.0, cut)
    for _ in range(3):
        rates = corners.rough_rates(orders, budget, cut) * float(budget.squared_shift)
        found = (rates - np.log(orders * (orders - 1.0) * math.sqrt(2.0 * math.pi) * left)) / (orders - 1.0)
        found = np.where(np.isnan(found), math.inf, found)
        at = int(np.argmin(found))
        best = float(found[at]), float(orders[at]), cut
        orders = np.linspace(orders[max(at - 1, 0)], orders[min(at + 1, len(orders) - 1)], 9)
    return best
