"""Laws of counts by other means than `accounting` and `privkde` use: SciPy's masses and convolutions, no recursions.

`verification.twins` builds the counts of each mechanism from these tables, which the tests compare with 40-digit ones
(`exact.brute_force`). A table's values are lower bounds on probabilities, and the mass that they leave out (`missing`)
may lie anywhere.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import signal, special, stats

from accounting.numerics.pmf import Pmf

TAIL = 1e-22
"""Mass that a table may leave out on either side."""
DIRECT = 1 << 24
"""Most products of a convolution that is summed term by term; longer ones go through a transform."""
TRANSFORM_ERROR = 1e-12
"""Granted for the rounding of a transform, in all values together, each of which has an equal share of it. Beside this,
tables have relative errors of a few roundings, for which `goodness_of_fit` grants more."""

Tables = dict[str, Pmf]
Laws = tuple[Pmf, ...]
"""Of independent counts."""
Parts = dict[str, Laws]
"""Laws of independent counts that add up."""


def binomial_table(trials: int, probability: float) -> Pmf:
    """Bin(trials, probability), whole."""
    values = np.asarray(stats.binom.pmf(np.arange(trials + 1), trials, probability), dtype=np.float64)
    return Pmf(start=0, values=values, missing=0.0)


def point(value: int) -> Pmf:
    """A constant."""
    return Pmf(start=value, values=np.ones(1), missing=0.0)


def plus(*laws: Pmf) -> Pmf:
    """Law of a sum of independent counts.

    >>> plus(binomial_table(1, 0.5), binomial_table(1, 0.5), point(3))
    Pmf(start=3, values=array([0.25, 0.5 , 0.25]), missing=0.0)
    """
    total = laws[0]
    for law in laws[1:]:
        missing = total.missing + law.missing
        if len(total.values) * len(law.values) <= DIRECT:
            values = np.convolve(total.values, law.values)
        else:
            values = signal.fftconvolve(total.values, law.values)
            values = np.maximum(values - TRANSFORM_ERROR / len(values), 0.0)
            missing += 2.0 * TRANSFORM_ERROR
        total = Pmf(start=total.start + law.start, values=values, missing=missing)
    return total


def times(law: Pmf, factor: int) -> Pmf:
    """Law of factor·X, factor any integer but 0.

    >>> times(binomial_table(1, 0.5), -2)
    Pmf(start=-2, values=array([0.5, 0. , 0.5]), missing=0.0)
    """
    values = law.values if factor > 0 else law.values[::-1]
    spread = np.zeros((len(values) - 1) * abs(factor) + 1)
    spread[:: abs(factor)] = values
    return Pmf(start=min(factor * law.start, factor * (law.stop - 1)), values=spread, missing=law.missing)


def halves(first: Pmf, second: Pmf) -> Pmf:
    """The law that is one of two with probability 1/2 each."""
    start, stop = min(first.start, second.start), max(first.stop, second.stop)
    values = np.zeros(stop - start)
    for law in (first, second):
        values[law.start - start : law.stop - start] += law.values / 2.0
    return Pmf(start=start, values=values, missing=max(first.missing, second.missing))


def mean_radius(parts: Sequence[Pmf], n_samples: int, failure_probability: float) -> float:
    """How far the mean of independent samples may be from its expectation, but for this probability.

    A sample is the sum of independent numbers with the laws `parts`, which are never convolved: their cumulant
    generating functions ψ add. t = min over θ of (ψ(θ) + ln(2/failure)/N)/θ, centered, both sides (Chernoff): every θ
    yields a valid bound, so the search over θ need not be exact. That a sample lies outside a window is a failure, too.
    """
    outside = n_samples * sum(law.missing for law in parts)
    budget = math.log(2.0 / (failure_probability - outside)) / n_samples
    centered = [_centered(law) for law in parts]
    deviation = math.sqrt(sum(float(np.dot(x**2, law.values)) for x, law in zip(centered, parts, strict=True)))
    if deviation == 0.0:
        return 0.0
    with np.errstate(divide="ignore"):
        logs = [np.log(law.values) for law in parts]
    steps = math.sqrt(2.0 * budget) / deviation * np.geomspace(1e-4, 4.0, 80)

    def radius(theta: float) -> float:
        cumulant = sum(special.logsumexp(theta * x + log) for x, log in zip(centered, logs, strict=True))
        return float(cumulant + budget) / abs(theta)

    return float(max(min(radius(sign * theta) for theta in steps) for sign in (1.0, -1.0)))


def _centered(law: Pmf) -> NDArray[np.float64]:
    """The values of a window, as distances from its mean."""
    values = np.arange(law.start, law.stop, dtype=np.float64)
    return np.asarray(values - float(np.dot(values, law.values)) / float(np.sum(law.values)))


def window(law: stats.rv_discrete, tail: float) -> Pmf:
    """The table of a law on 0, 1, … that leaves out at most `tail` on either side.

    >>> window(stats.binom(2, 0.5), 0.3)
    Pmf(start=1, values=array([0.5]), missing=0.6)
    """
    stop = 1 + math.ceil(float(law.mean()))
    while law.sf(stop - 1) > tail:
        stop = 2 * stop
    stop = 1 + bisect.bisect_left(range(stop), True, key=lambda k: bool(law.sf(k) <= tail))
    start = bisect.bisect_left(range(stop), True, key=lambda k: bool(law.cdf(k) > tail))
    values = np.asarray(law.pmf(np.arange(start, stop)), dtype=np.float64)
    return Pmf(start=start, values=values, missing=2.0 * tail)
