"""δ(ε) of bits that move by t_i with Σ t_i² = Δ², by an integral over complex orders: Theorem 3.

A real order says how large the composed likelihood ratio may be; the orders α + iω also say how it is spread, and
what the conversion of a single moment gives away. Proofs: docs/proofs/geometric.md, whose names are used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from accounting.composition.rung import Touched
from accounting.composition.shifted import Cut, Remainders, conversion, remainders
from accounting.numerics.effort import require_time
from accounting.numerics.losses import DominatingLoss
from accounting.numerics.pmf import Array
from accounting.numerics.profile import RELATIVE_PAD, UNIT_ROUNDOFF

Complex = NDArray[np.complex128]

SMALLEST_SHIFT, GROWTH, WIDEST = 0.02, 1.2, 0.08
"""Intervals of shifts: the end of the lowest one, their ratio, and the widest one, as shares of T."""
PARTS = 16
"""Parts of each interval, in which the interpolated moment is bounded."""
RANGES = ((0.2, 6.0), (1.2, 30.0), (4.0, 150.0))
"""Steps of the frequencies and how far they go, in deviations of the composed loss."""
SMOOTHING = 0.04
"""Deviation of the additional Gaussian loss, as a share of the composed loss's."""
LOWEST_LOG = -700.0
"""Stands for ln 0."""
LEAST_GAIN, SMOOTH_POWER = -0.9, 6.0
"""For *toward* and powers below the second, gains below the first are raised to it."""
LADDER = 1.02
"""Ratio of neighboring α − 1 that are tried."""
ROUGH_SHIFTS: Array = np.geomspace(0.03, 1.0, 8)
"""Shares of T at which an order is chosen."""
ROUGH_ORDERS: Array = np.geomspace(0.5, 4000.0, 28)
"""The α − 1 among which one is chosen."""
EPSILON_ROUNDS = 8
"""How often an order may give an ε and that another order."""


@dataclass(frozen=True, slots=True)
class Frequencies:
    """ω_j from 0 on: small steps where the integrand is decided, larger ones beyond. `ranges` are steps and counts."""

    ranges: tuple[tuple[float, int], ...]

    @staticmethod
    def of(deviation: float, ranges: Sequence[tuple[float, float]] = RANGES) -> Frequencies:
        """For a composed loss of about this deviation."""
        ends = [0.0, *(end for _, end in ranges)]
        counts = [
            round((end - start) / step)
            for (step, _), (start, end) in zip(ranges, itertools.pairwise(ends), strict=True)
        ]
        return Frequencies(tuple((step / deviation, count) for (step, _), count in zip(ranges, counts, strict=True)))

    @property
    def values(self) -> Array:
        """The ω_j."""
        steps = np.concatenate([np.full(count, step) for step, count in self.ranges])
        return np.concatenate([[0.0], np.cumsum(steps)])

    def waves(self, logs: Array) -> Complex:
        """e^{iω_j·log}: a column for each frequency. Powers by repeated multiplication."""
        table = np.ones((len(logs), 1 + sum(count for _, count in self.ranges)), dtype=np.complex128)
        first = 0
        for step, count in self.ranges:
            power, done = np.exp(1j * step * logs)[:, None], 1
            while done <= count:
                some = min(done, count + 1 - done)
                np.multiply(table[:, first : first + some], power, out=table[:, first + done : first + done + some])
                done, power = done + some, power * power
            first += count
        return table


@dataclass(frozen=True, slots=True)
class Spectrum:
    """What all shifts t ≤ T reveal at the orders α + iω_j: |M_t| ≤ exp(rates[j]·t² + units[j]·t).

    `spread` bounds the second derivative of M_t in ω, but for a factor e^{iωc}, per t².
    """

    order: float
    frequencies: Frequencies
    rates: Array
    units: Array
    spread: float
    largest_shift: float
    smoothing: float

    def log_integral(self, budget: float, n_instances: int) -> float:
        """Ln of (1/π)∫ Π|M| e^{η²(s² − s)/2}/|s(s−1)| dω at most, for Σ t² = budget."""
        a, omega, smooth = self.order, self.frequencies.values, self.smoothing**2 / 2.0
        root = math.sqrt(n_instances * budget)
        widths = np.diff(omega)
        kernel = -0.5 * (np.log(a**2 + omega**2) + np.log((a - 1.0) ** 2 + omega**2)) - smooth * omega**2
        peak = budget * self.rates[0] + root * float(self.units[0]) + smooth * (a**2 - a)
        if not math.isfinite(peak):
            return math.inf
        ends = budget * (self.rates - self.rates[0]) + root * (self.units - self.units[0]) + kernel
        bulge = widths**2 / 8.0 * (1.0 / a**2 + 1.0 / (a - 1.0) ** 2 + 2.0 * smooth) + budget * self._between(widths)
        with np.errstate(invalid="ignore"):
            inside = _log_linear(ends[:-1], ends[1:]) + bulge
        inside = np.minimum(np.where(np.isnan(inside), math.inf, inside), kernel[:-1])  # |M| is largest at ω = 0
        total = float(np.sum(widths * np.exp(inside)))
        total += math.exp(-smooth * omega[-1] ** 2) / omega[-1]
        return float(peak + math.log(total / math.pi))

    def _between(self, widths: Array) -> Array:
        """How far ln|M_t|/t² may rise above the line between neighboring frequencies."""
        t, rises = self.largest_shift, np.diff(self.rates)
        lowest = np.minimum(np.minimum(self.rates[1:], self.rates[:-1]), 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            bulge = (t * np.abs(rises) + np.abs(np.diff(self.units))) ** 2 / 8.0
            bulge += widths**2 / 8.0 * self.spread * np.exp(-lowest * t**2)
        return np.where(np.isnan(bulge), math.inf, bulge)


def _log_linear(left: Array, right: Array) -> Array:
    """Ln of the mean of e^x over x from left to right."""
    drop = np.abs(right - left)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.log(-np.expm1(-drop) / drop)
    return np.maximum(left, right) + np.where(drop < 1e-6, 0.0, mean)


@dataclass(frozen=True, slots=True)
class Interval:
    """One corner's cut atoms for shifts in [below, above]: ĝ and Q's masses, and what cutting costs per shift."""

    below: float
    above: float
    gains: Array
    lower: Array
    allowed: float
    raised: float = 0.0
    """How much gains were raised, on average."""

    @staticmethod
    def of(corner: Remainders, below: float, above: float, cut: Cut, power: float) -> Interval:
        """With as much cut off as may be; small gains are raised where derivatives of powers would not exist."""
        allowed = cut.per_unit(below)
        (kept,), (cap,) = corner.threshold(above, np.array([allowed]))
        gains = np.append(corner.gains[:kept], cap)
        lower = np.append(corner.lower[:kept], corner.tails[kept])
        floored = np.maximum(gains, LEAST_GAIN) if 0.0 < power < SMOOTH_POWER else gains
        return Interval(below, above, floored, lower, allowed, float(lower @ (floored - gains)))

    def unit(self, powers: Complex, infinite: float) -> Array:
        """What the linear term, cutting and raising add to |M_t| at most, per unit of shift."""
        unit = np.abs(powers) * (infinite + self.allowed + 2.0 * self.raised)
        power = float(powers[0].real)
        if power > 0.0 or self.allowed == 0.0:
            return np.asarray(unit)
        least = np.maximum(1.0 + self.above * self.gains[-1], 0.0)
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(unit + self.allowed * np.maximum(1.0, np.power(least, power)))

    def logs(self, shift: float) -> Array:
        """ln(1 + tĝ)."""
        return np.maximum(np.log1p(shift * self.gains), LOWEST_LOG)

    def spread(self, power: float) -> float:
        """A bound on E_Q[(1 + tĝ)^ρ (ln(1 + tĝ) − ct)²]/t² for all t inside, with the c that suits it."""
        ends = [(self.gains if t == 0.0 else self.logs(t) / t, self.logs(t)) for t in (self.below, self.above)]
        masses = self.lower * np.exp(np.maximum(power * ends[0][1], power * ends[1][1]))
        center = masses @ ends[1][0] / np.sum(masses)  # nan if there is none
        return float(masses @ np.maximum((ends[0][0] - center) ** 2, (ends[1][0] - center) ** 2))

    def derivative(self, power: float, order: int) -> float:
        """A bound on the derivative of m of this order inside, but for the factor |a(a−1)…(a−order−1)|."""
        total = float(
            self.lower
            @ (self.gains ** (order + 2) * np.exp(np.maximum(0.0, (power - order - 2) * self.logs(self.above))))
        )
        return total / ((order + 1) * (order + 2))


def edges(largest_shift: float) -> list[float]:
    """Ends of intervals that cover all shifts up to the largest."""
    ends = [0.0, SMALLEST_SHIFT]
    while ends[-1] < 1.0:
        ends.append(min(1.0, GROWTH * ends[-1], ends[-1] + WIDEST))
    return [largest_shift * end for end in ends]


def spectrum(
    corners: tuple[Remainders, Remainders], infinite: float, touched: Touched, cut: Cut, order: float
) -> Spectrum:
    """Bounds for all shifts t ≤ T at the orders α + iω; Δ² only sets the scale of the frequencies."""
    variance = float(corners[0].lower @ corners[0].gains ** 2)
    deviation = math.sqrt(touched.shift_budget * variance)
    frequencies, largest_shift = Frequencies.of(deviation), touched.largest_shift
    complex_order = np.asarray(order + 1j * frequencies.values, dtype=np.complex128)
    rates, units, spread = np.full(len(complex_order), -math.inf), np.zeros(len(complex_order)), 0.0
    with np.errstate(all="ignore"):
        for corner, powers in zip(corners, (complex_order, np.asarray(1.0 - complex_order)), strict=True):
            power = float(powers[0].real)
            intervals = [Interval.of(corner, u, v, cut, power) for u, v in itertools.pairwise(edges(largest_shift))]
            for interval, moments in zip(intervals, _moments(intervals, powers, frequencies), strict=True):
                require_time()
                unit = interval.unit(powers, infinite)
                spread = float(np.maximum(spread, interval.spread(power)))  # nan stays
                if interval.below == 0.0:
                    rates = np.maximum(rates, _lowest(interval, moments, powers, unit))
                    units = np.maximum(units, unit)
                else:
                    rates = np.maximum(rates, _inside(interval, moments, powers, unit))
    rates = np.where(np.isnan(rates), math.inf, rates)
    spread = math.inf if math.isnan(spread) else spread
    return Spectrum(order, frequencies, rates, units, spread, largest_shift, SMOOTHING * deviation)


@dataclass(frozen=True, slots=True)
class Ends:
    """m and its derivative at both ends of an interval, and a bound on what rounding did to each m."""

    values: tuple[Complex, Complex]
    slopes: tuple[Complex, Complex]
    rounding: tuple[Array, Array]


def _moments(intervals: Sequence[Interval], powers: Complex, frequencies: Frequencies) -> list[Ends]:
    """m(t) = E_Q[((1 + tĝ)^a − 1 − atĝ)/t²] at the ends of all intervals: each end's waves are computed once."""
    ends: list[list[tuple[Complex, Complex, Array]]] = [[] for _ in intervals]
    points = [intervals[0].below, *(interval.above for interval in intervals)]
    for number, t in enumerate(points):
        users = [i for i in (number - 1, number) if 0 <= i < len(intervals)]
        longest = max(users, key=lambda i: len(intervals[i].gains))
        if t == 0.0:
            square, cube = (float(intervals[0].lower @ intervals[0].gains ** k) for k in (2, 3))
            second = powers * (powers - 1.0) / 2.0
            ends[0].append((second * square, second * (powers - 2.0) / 3.0 * cube, np.zeros(len(powers))))
            continue
        caps = [intervals[i].gains[-1] for i in users]
        gains = np.append(intervals[longest].gains[:-1], caps)
        logs = np.maximum(np.log1p(t * gains), LOWEST_LOG)
        size = np.exp(powers[0].real * logs)
        if powers[0].real < 0.0:
            size[logs <= LOWEST_LOG] = math.inf
        weights = np.zeros((len(gains), 2 * len(users)))
        for column, i in enumerate(users):
            kept = len(intervals[i].gains) - 1
            mass = np.zeros(len(gains))
            mass[:kept], mass[len(gains) - len(users) + column] = intervals[i].lower[:-1], intervals[i].lower[-1]
            weights[:, 2 * column] = mass * size
            weights[:, 2 * column + 1] = np.where(mass > 0.0, mass * size * gains * np.exp(-logs), 0.0)
        waves = frequencies.waves(logs if powers[0].real > 0.0 else -logs)
        sums = (weights.T @ waves.view(np.float64)).view(np.complex128)
        for column, i in enumerate(users):
            own = intervals[i]
            total, mean = float(np.sum(own.lower)), float(own.lower @ own.gains)
            value = (sums[2 * column] - total - powers * t * mean) / t**2
            slope = (powers * (sums[2 * column + 1] - mean) / t - 2.0 * value) / t
            scale = 1.0 + float(np.sum(weights[:, 2 * column]) + t * np.sum(np.abs(weights[:, 2 * column + 1])))
            lost = UNIT_ROUNDOFF * (200.0 + 8.0 * np.abs(powers)) * scale / t**2
            ends[i].append((value, slope, lost))
    return [Ends((a[0], b[0]), (a[1], b[1]), (a[2], b[2])) for a, b in ends]


def _falling(powers: Complex, count: int) -> Array:
    """|a(a−1)…(a−count+1)|."""
    return np.asarray(np.prod([np.abs(powers - k) for k in range(count)], axis=0))


def _lowest(interval: Interval, ends: Ends, powers: Complex, unit: Array) -> Array:
    """For t in (0, v]: ln|1 + z| ≤ Re z + |z|²/2, and m lies near its chord."""
    v = interval.above
    error = v**2 / 8.0 * _falling(powers, 4) * interval.derivative(float(powers[0].real), 2) + ends.rounding[1]
    first, second = ends.values
    size = np.maximum(np.abs(first), np.abs(second)) + error
    return np.asarray(np.maximum(first.real, second.real) + error + 0.5 * (v * size + unit) ** 2)


def _inside(interval: Interval, ends: Ends, powers: Complex, unit: Array) -> Array:
    """For t in [u, v], u > 0: m lies near a cubic H, and F(t)e^{−κt²}, F = 1 + t²H, near its chord in each part."""
    u, v = interval.below, interval.above
    width = v - u
    error = width**4 / 384.0 * _falling(powers, 6) * interval.derivative(float(powers[0].real), 4)
    # What rounding does to the slopes is at most 4 times what it does to the values, by the width of an interval.
    error = error + 4.0 * (ends.rounding[0] + ends.rounding[1])
    share = np.linspace(0.0, 1.0, PARTS + 1)[:, None]
    (p, q), (dp, dq) = ends.values, (width * ends.slopes[0], width * ends.slopes[1])
    second, third = 3.0 * (q - p) - 2.0 * dp - dq, 2.0 * (p - q) + dp + dq
    cubic = p + share * (dp + share * (second + share * third))
    slope = np.abs(dp + share * (2.0 * second + share * 3.0 * third)) / width
    bend = np.abs(2.0 * second + share * 6.0 * third) / width**2
    step, t = width / PARTS, u + width * share
    bent = _larger(bend)
    slopes = _larger(slope) + step / 2.0 * bent
    sizes = _larger(np.abs(cubic)) + step / 2.0 * slopes
    x, y = t[:-1], t[1:]
    rates = _larger(np.log(np.maximum(np.abs(1.0 + t**2 * cubic), 1e-9)) / t**2)
    first = 2.0 * y * sizes + y**2 * slopes
    curvature = 2.0 * sizes + 4.0 * y * slopes + y**2 * bent
    curvature += 4.0 * np.abs(rates) * y * first
    curvature += (4.0 * rates**2 * y**2 + 2.0 * np.abs(rates)) * (1.0 + y**2 * sizes)
    growth = np.exp(np.maximum(-rates * x**2, -rates * y**2))
    rest = growth * (step**2 / 8.0 * curvature + y**2 * error + v * unit)
    return np.asarray(np.max(rates + np.log1p(rest) / x**2, axis=0))


def _larger(table: Array) -> Array:
    """The larger of neighboring rows."""
    return np.asarray(np.maximum(table[1:], table[:-1]))


@dataclass(frozen=True, slots=True)
class Choice:
    """A cut and an order, about what Theorem 3 gives there, and about the least that Theorem 1 gives for the cut."""

    cut: Cut
    order: float
    contour: float
    moments: float


@dataclass(frozen=True, slots=True)
class Contour:
    """Theorem 3: δ(ε) of at most `n_instances` instances with Σ t² = `budget`, each dominated by one pair."""

    corners: tuple[Remainders, Remainders]
    infinite: float
    touched: Touched
    cuts: tuple[Cut, ...]
    integrals: dict[tuple[Cut, float], float] = field(default_factory=dict, compare=False)
    """What was computed; nothing depends on what was computed before."""

    @staticmethod
    def of(loss: DominatingLoss, touched: Touched, cuts: tuple[Cut, ...]) -> Contour:
        """For instances that this pair dominates if they flip completely."""
        return Contour(remainders(loss), loss.infinite, touched, cuts)

    def delta(self, epsilon: float) -> tuple[float, float]:
        """The bound, and about the least that Theorem 1 gives."""
        choices = [self.choice(cut, epsilon) for cut in self.cuts]
        best = min(choices, key=lambda choice: choice.contour)
        exponent = self.log_integral(best.cut, best.order) - (best.order - 1.0) * epsilon
        bound = min(1.0, self.spent(best.cut) + math.exp(min(0.0, exponent)))
        return bound, min(choice.moments for choice in choices)

    def epsilon(self, delta: float) -> float:
        """About the least ε that the bound has at δ: the order for one ε gives the next; inf if there is none."""
        variance = float(self.corners[0].lower @ self.corners[0].gains ** 2)
        near = math.sqrt(-2.0 * math.log(delta) * self.touched.shift_budget * variance)
        for _ in range(EPSILON_ROUNDS):
            best = min((self.choice(cut, near) for cut in self.cuts), key=lambda choice: choice.contour)
            left = delta / (1.0 + RELATIVE_PAD) - self.spent(best.cut)
            if left <= 0.0:
                return math.inf
            last, near = near, (self.log_integral(best.cut, best.order) - math.log(left)) / (best.order - 1.0)
            if not 0.0 < near < math.inf or abs(near - last) <= 1e-6 * near:
                break
        return near if near > 0.0 else math.inf

    def spent(self, cut: Cut) -> float:
        """What is cut off, and P's mass at infinite loss."""
        budget, k = self.touched.shift_budget, self.touched.total
        return cut.total(budget, k) + math.sqrt(k * budget) * self.infinite

    def log_integral(self, cut: Cut, order: float) -> float:
        """Ln of the integral without e^{−(α−1)ε}."""
        if (cut, order) not in self.integrals:
            touched = self.touched
            found = spectrum(self.corners, self.infinite, touched, cut, order)
            self.integrals[cut, order] = found.log_integral(touched.shift_budget, touched.total)
        return self.integrals[cut, order]

    def choice(self, cut: Cut, epsilon: float) -> Choice:
        """About the best order for a cut, by the integral of a Gaussian; a few shifts stand for all."""
        budget, spent = self.touched.shift_budget, self.spent(cut)
        shifts = (self.touched.largest_shift * ROUGH_SHIFTS).tolist()
        intervals = [[Interval.of(corner, t, t, cut, -1.0) for t in shifts] for corner in self.corners]

        def exponents(excess: Array) -> Array:
            """K(α)Δ² − (α − 1)ε for α − 1 = `excess`."""
            rates = np.full(len(excess), -math.inf)
            for corner, powers in zip(intervals, (1.0 + excess, -excess), strict=True):
                for interval in corner:
                    t = interval.above
                    moment = interval.lower @ np.expm1(interval.logs(t)[:, None] * powers)
                    rates = np.maximum(rates, np.log1p(moment) / t**2)
            found = budget * rates - excess * epsilon
            return np.asarray(np.where(np.isnan(found), math.inf, found))

        with np.errstate(all="ignore"):
            coarse = exponents(ROUGH_ORDERS) - np.log(ROUGH_ORDERS * (1.0 + ROUGH_ORDERS))
            at = int(np.argmin(coarse))
            ends = ROUGH_ORDERS[[max(at - 1, 0), min(at + 1, len(ROUGH_ORDERS) - 1)]]
            first, last = (round(math.log(end) / math.log(LADDER)) for end in ends.tolist())
            excess = LADDER ** np.arange(first, last + 1, 2.0)
            found = exponents(excess)
            integrals = found - np.log(excess * (1.0 + excess))
            moments = float(np.min(found + conversion(1.0 + excess)))
        at = int(np.argmin(integrals))
        values = [spent + math.exp(min(0.0, x)) for x in (float(integrals[at]), moments)]
        return Choice(cut, 1.0 + float(excess[at]), *values)
