"""Probability mass functions at full size with an a-priori bound on their rounding, for the certificate.

Nothing here comes from `accounting`. One value, at the mode, comes from mpmath at 50 digits; the others follow from it
by multiplying ratios of neighbors, so there are only products and sums of positive numbers, and the relative error of
every mass is at most (operations)·2⁻⁵³ (Higham, 2002, Lemma 3.1). Source: docs/proofs/certificate.md, section 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy import signal

Array = NDArray[np.float64]

UNIT = 2.0**-53
DIGITS = 50
PER_STEP = 8.0
"""Roundings per mass away from the mode: at most five for a ratio, one to multiply it; the rest is spare."""
MOST_MASSES = 4_000_000


class TooLargeError(ValueError):
    """A law is too wide to be certified here; nothing is said about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Masses:
    """P(start + i) = values[i]·(1 ± error); at most `missing` of the mass is not listed."""

    start: int
    values: Array
    missing: float
    error: float

    def mirrored(self, total: int) -> Masses:
        """The law of total − X."""
        stop = self.start + len(self.values)
        return Masses(start=total - stop + 1, values=self.values[::-1], missing=self.missing, error=self.error)

    def plus(self, other: Masses) -> Masses:
        """The law of the sum of two independent numbers, by direct convolution of positive terms."""
        x, y = self.values, other.values
        if len(x) * len(y) > 200_000_000:
            raise TooLargeError(f"windows of {len(x)} and {len(y)} masses are too long to convolve directly")
        return Masses(
            start=self.start + other.start,
            values=np.convolve(x, y),
            missing=self.missing + other.missing,
            error=self.error + other.error + (2.0 + min(len(x), len(y))) * UNIT,
        )


def _from_mode(
    mode: int,
    at_mode: mpmath.mpf,
    ratio: Callable[[Array], Array],
    *,
    low: int,
    high: int | None,
    spread: float,
    scale: float,
    tail: float,
) -> Masses:
    """Masses in a window around the mode of a law whose ratios P(k+1)/P(k) do not increase in k.

    `spread` (variance) and `scale` only choose the window; `missing` is a geometric series at either end.
    """
    exponent = -math.log(tail) + 2.0
    reach = math.ceil(math.sqrt(2.0 * spread * exponent) + scale * exponent) + 2
    start, stop = max(low, mode - reach), mode + reach + 1 if high is None else min(high, mode + reach) + 1
    if stop - start > MOST_MASSES:
        raise TooLargeError(f"a law of standard deviation {math.sqrt(spread):.3g} needs {stop - start:,} masses")
    ratios = ratio(np.arange(start, stop, dtype=np.float64))  # the last one leads out of the window
    up = np.cumprod(np.concatenate([[float(at_mode)], ratios[mode - start : -1]]))
    down = np.cumprod(np.concatenate([[float(at_mode)], 1.0 / ratios[: mode - start][::-1]]))[1:][::-1]
    values = np.concatenate([down, up])
    missing = 0.0
    if (high is None or stop <= high) and ratios[-1] > 0.0:
        missing += float(values[-1] * ratios[-1] / (1.0 - ratios[-1])) if ratios[-1] < 1.0 else 1.0
    if start > low:
        missing += float(values[0] / (ratios[0] - 1.0)) if ratios[0] > 1.0 else 1.0
    return Masses(start=start, values=values, missing=1.01 * missing, error=PER_STEP * (reach + 2) * UNIT)


def binomial(trials: int, probability: float, tail: float) -> Masses:
    """Bin(trials, probability), 0 < probability < 1."""
    if trials == 0:
        return Masses(start=0, values=np.ones(1), missing=0.0, error=0.0)
    mode = min(trials, int((trials + 1) * probability))
    with mpmath.workdps(DIGITS):
        p = mpmath.mpf(probability)
        logs = mpmath.loggamma(trials + 1) - mpmath.loggamma(mode + 1) - mpmath.loggamma(trials - mode + 1)
        at_mode = mpmath.exp(logs + mode * mpmath.log(p) + (trials - mode) * mpmath.log(1 - p))
        odds = float(p / (1 - p))
    return _from_mode(
        mode, at_mode, lambda k: (trials - k) / (k + 1.0) * odds,
        low=0, high=trials, spread=trials * probability * (1.0 - probability), scale=1.0, tail=tail,
    )  # fmt: skip


def poisson(mean: float, tail: float) -> Masses:
    """Poisson(mean)."""
    mode = int(mean)
    with mpmath.workdps(DIGITS):
        rate = mpmath.mpf(mean)
        at_mode = mpmath.exp(mode * mpmath.log(rate) - rate - mpmath.loggamma(mode + 1))
    return _from_mode(
        mode, at_mode, lambda k: mean / (k + 1.0), low=0, high=None, spread=mean + 1.0, scale=1.0, tail=tail
    )


def negative_binomial(shape: float, continuing: float, tail: float) -> Masses:
    """NB(r, p), p the probability to continue: C(j+r−1, j)(1−p)^r p^j. Requires r ≥ 1, else ratios may increase."""
    if shape < 1.0:
        raise ValueError(f"shape={shape} is below 1: the law is not log-concave; nothing is certified")
    with mpmath.workdps(DIGITS):
        r, p = mpmath.mpf(shape), mpmath.mpf(continuing)
        mode = int(mpmath.floor((r - 1) * p / (1 - p)))
        logs = mpmath.loggamma(mode + r) - mpmath.loggamma(r) - mpmath.loggamma(mode + 1)
        at_mode = mpmath.exp(logs + r * mpmath.log(1 - p) + mode * mpmath.log(p))
        spread, scale = float(r * p / (1 - p) ** 2), float(1 / (1 - p))
    return _from_mode(
        mode, at_mode, lambda k: (k + shape) / (k + 1.0) * continuing,
        low=0, high=None, spread=spread, scale=scale, tail=tail,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLaws:
    """Output of one instance for the target's bit 1 (`one`) and 0 (`zero`), each mass to a relative `error`.

    At most `missing` of either law is not listed.
    """

    one: Array
    zero: Array
    missing: float
    error: float

    def reversed(self) -> TwoLaws:
        """The other direction."""
        return TwoLaws(one=self.zero, zero=self.one, missing=self.missing, error=self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBounds:
    """Bounds on the largest loss of one instance, of a mechanism that spends no δ."""

    lower: float
    upper: float | None
    """None if nothing is certified."""
    notes: tuple[str, ...]


def shifted(noise: Masses) -> TwoLaws:
    """(1 + X, X): a bit hidden by one count of noise."""
    return TwoLaws(
        one=np.concatenate([[0.0], noise.values]),
        zero=np.concatenate([noise.values, [0.0]]),
        # what one law lacks at the edges of the window, where the other law is listed
        missing=noise.missing + float(noise.values[-1]) + (float(noise.values[0]) if noise.start else 0.0),
        error=noise.error,
    )


def response(n_users: int, flip: float, ones: int, dropped: int, tail: float) -> TwoLaws:
    """Randomized response with `ones` of the others at 1 after `dropped` others' reports were given away."""
    zeros = n_users - 1 - dropped - ones
    rest = binomial(zeros, flip, tail)
    if ones:
        rest = rest.plus(binomial(ones, flip, tail).mirrored(ones))
    stay, move = np.concatenate([rest.values, [0.0]]), np.concatenate([[0.0], rest.values])
    return TwoLaws(
        one=flip * stay + (1.0 - flip) * move,
        zero=(1.0 - flip) * stay + flip * move,
        missing=rest.missing,
        error=rest.error + 4.0 * UNIT,
    )


def three_negative_binomials(continuing: float, flood: Masses, tail: float) -> TwoLaws:
    """The loss of 3NB with geometric noise: {U > V} is one outcome, {U = u ≤ V} one for each u.

    With a(u) = Σ_z P_F(z) p^{2(u−z)}: P_0(U > V) = p/(1+p), P_1(U > V) = 1/(1+p), P_0(U = u ≤ V) = (1−p)a(u) and
    P_1(U = u ≤ V) = (1−p)p·a(u−1). Source: docs/proofs/certificate.md, section 1.
    """
    p = continuing
    more = math.ceil(-math.log(tail) / (-2.0 * math.log(p))) + 2
    a: Array = signal.lfilter([1.0], [1.0, -p * p], np.concatenate([flood.values, np.zeros(more)]))
    lost = flood.missing + float(a[-1]) / (1.0 - p * p)
    if flood.start:
        lost += float(flood.values[0])
    return TwoLaws(
        one=np.concatenate([[1.0 / (1.0 + p)], (1.0 - p) * p * np.concatenate([[0.0], a[:-1]])]),
        zero=np.concatenate([[p / (1.0 + p)], (1.0 - p) * a]),
        missing=2.0 * lost,
        error=flood.error + 4.0 * len(a) * UNIT,
    )
