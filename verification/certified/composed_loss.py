"""A lower bound on δ(ε) of k independent copies of one pair: a test, and what it achieves for certain.

Each loss is rounded to a grid, which is a function of the outcome, and so is the sum of k rounded losses. Whatever set
S of sums is taken, δ(ε) ≥ P(S) − e^ε Q(S). Masses that are not listed never help. Source: docs/proofs/certificate.md,
section 4.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verification.certified.balls import ZERO, Ball, Balls, convolved, exact
from verification.certified.noise_laws import TwoLaws

Floats = NDArray[np.float64]

POINTS_PER_DEVIATION = 12
REACH = 9.0
"""Standard deviations of the sum, besides its mean, that are kept."""
LEAST_REACH = 330.0
"""Standard deviations of one copy up to which its losses are told apart, at least."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Masses of both laws at the sums first, first + 1, … of rounded losses; what is left out is `one` less than 1."""

    first: int
    one: Balls
    zero: Balls

    def plus(self, other: Sums, low: int, high: int) -> Sums:
        """The sum of two independent ones, as far as it lies in [low, high]."""
        first = self.first + other.first
        one, zero = convolved(self.one, other.one), convolved(self.zero, other.zero)
        start, stop = max(0, low - first), max(1, high + 1 - first)
        return Sums(first + start, one[start:stop], zero[start:stop])


@dataclass(frozen=True, slots=True)
class LowerProfile:
    """P and Q of the sets "the sum is at least this", in descending order of the sum."""

    above_one: Balls
    above_zero: Balls
    rough: tuple[Floats, Floats]
    """The same as doubles, to choose a set by."""
    unlisted: Ball
    """Mass of the lower law that is not listed."""

    @staticmethod
    def of(laws: TwoLaws, times: int) -> LowerProfile:
        """For `times` copies of the pair. What one copy leaves out of `zero` may all lie in the test's set."""
        single = _rounded(laws, times)
        sums = _power(single, times) if times > 1 else single
        one, zero = (list(itertools.accumulate(reversed(side))) for side in (sums.one, sums.zero))
        rough = np.array([float(p) for p in one]), np.array([float(q) for q in zero])
        return LowerProfile(one, zero, rough, laws.reversed().missing * times)

    def delta(self, epsilon: float) -> Ball:
        """A number that δ(ε) is not below."""
        growth = exact(epsilon).exp()
        at = int(np.argmax(self.rough[0] - float(growth) * self.rough[1]))
        return self.above_one[at] - growth * (self.above_zero[at] + self.unlisted)

    def epsilon(self, delta: float) -> float:
        """About the largest ε whose δ(ε) is surely above `delta`; 0 if there is none."""
        if not self.delta(0.0) > exact(delta):
            return 0.0
        low, high = 0.0, 1.0
        while self.delta(high) > exact(delta) and high < 1e3:
            low, high = high, 2.0 * high
        while high - low > 1e-7 * high:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.delta(middle) > exact(delta) else (low, middle)
        return low


def _rounded(laws: TwoLaws, times: int) -> Sums:
    """Losses of outcomes that both laws list, rounded to the nearest point of a grid that suits their deviation.

    Losses beyond what a sum of so many may reach count as the largest or smallest one within.
    """
    losses, weights = [], []
    for p, q in zip(laws.one, laws.zero, strict=True):
        one, zero = float(p), float(q)
        losses.append(math.log(one / zero) if one > 0.0 and zero > 0.0 else math.copysign(math.inf, one - zero))
        weights.append(min(one, zero))
    square = sum(w * x * x for w, x in zip(weights, losses, strict=True) if w > 0.0)
    step = max(math.sqrt(square / sum(weights)) / POINTS_PER_DEVIATION, 1e-12)
    furthest = step * POINTS_PER_DEVIATION * max(LEAST_REACH, REACH * math.sqrt(times))
    finite = [x for x in losses if math.isfinite(x)]
    low, high = max(min(finite), -furthest), min(max(finite), furthest)
    places = [round(min(max(x, low), high) / step) for x in losses]
    first, length = min(places), max(places) - min(places) + 1
    sums = Sums(first, [ZERO] * length, [ZERO] * length)
    for place, p, q in zip(places, laws.one, laws.zero, strict=True):
        sums.one[place - first] += p
        sums.zero[place - first] += q
    return sums


def _power(single: Sums, times: int) -> Sums:
    """The sum of `times` copies, each partial sum kept within a window around its mean."""
    total = sum(float(p) for p in single.one)
    moments = [sum((single.first + i) ** j * float(p) for i, p in enumerate(single.one)) / total for j in (1, 2)]
    mean, deviation = moments[0], math.sqrt(max(moments[1] - moments[0] ** 2, 1e-12))
    widest = max(abs(single.first), abs(single.first + len(single.one)))

    def window(count: int) -> tuple[int, int]:
        reach = REACH * deviation * math.sqrt(count) + widest
        return math.floor(count * mean - reach - abs(mean) * 2), math.ceil(count * mean + 2.0 * reach + abs(mean) * 2)

    result: Sums | None = None
    done, square, size, left = 0, single, 1, times
    while True:
        if left & 1:
            result = square if result is None else result.plus(square, *window(done + size))
            done += size
        left >>= 1
        if not left:
            assert result is not None
            return result
        square, size = square.plus(square, *window(2 * size)), 2 * size
