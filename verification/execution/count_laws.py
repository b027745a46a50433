"""Laws of counts by other means than `accounting` and `privkde` use: SciPy's masses and convolutions, no recursions.

What an honest execution of a bitsum protocol makes of n users' bits, as tables: the number of ones, of zeros, and
their difference. Tables are compared with 40-digit ones (`verification.brute_force`) in the tests. A table's values are
lower bounds on probabilities, and the mass that they leave out (`missing`) may lie anywhere.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import signal, stats

from accounting.mechanisms import (
    BitsumProtocol,
    NegativeBinomialNoise,
    PoissonNoise,
    Pure,
    RandomizedResponse,
    ThreeNegativeBinomial,
)
from accounting.pmf import Pmf

TAIL = 1e-22
"""Mass that a table may leave out on either side."""
DIRECT = 1 << 24
"""Most products of a convolution that is summed term by term; longer ones go through a transform."""
TRANSFORM_ERROR = 1e-12
"""Granted for the rounding of a transform, in all values together, each of which has an equal share of it. Beside this,
tables have relative errors of a few roundings, for which `goodness_of_fit` grants more."""

Tables = dict[str, Pmf]
Parts = dict[str, tuple[Pmf, ...]]
"""Laws of independent counts that add up."""


class Noise(NamedTuple):
    """Independent parts of the noise: added to the ones, to the zeros, and to both (the flood)."""

    ones: Pmf
    zeros: Pmf
    both: Pmf


def negative_binomial_table(shape: float, *, stop_probability: float, tail: float = TAIL) -> Pmf:
    """NB(r, p) with 1 − p = `stop_probability`, which is what SciPy calls p."""
    return window(stats.nbinom(shape, stop_probability), tail)


def poisson_table(mean: float, *, tail: float = TAIL) -> Pmf:
    """Poisson(mean)."""
    return window(stats.poisson(mean), tail)


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


def noise_of(protocol: BitsumProtocol, n_users: int, *, tail: float = TAIL) -> Noise:
    """The noise of `n_users` of the users on whom the protocol counts."""
    part, nothing = n_users / protocol.n_users, point(0)
    if isinstance(protocol, RandomizedResponse):
        return Noise(nothing, nothing, nothing)
    if isinstance(protocol, PoissonNoise):
        return Noise(poisson_table(part * protocol.total_mean, tail=tail), nothing, nothing)

    def shared(shape: float, stop_probability: float) -> Pmf:
        return negative_binomial_table(part * shape, stop_probability=stop_probability, tail=tail)

    if isinstance(protocol, NegativeBinomialNoise):
        return Noise(shared(protocol.shape, 1.0 - protocol.continue_probability), nothing, nothing)
    if isinstance(protocol, ThreeNegativeBinomial):
        single = shared(protocol.noise_shape, 1.0 - protocol.continue_probability)
    elif isinstance(protocol, Pure):
        single = shared(1.0, -math.expm1(-protocol.noise_epsilon))
    else:
        raise NotImplementedError(f"no twin for the noise of {protocol.name!r}")
    return Noise(single, single, shared(protocol.flood_shape, 1.0 - protocol.flood_continue_probability))


def noise_parts(protocol: BitsumProtocol, n_users: int) -> Parts:
    """What the noise adds to the ones, to the zeros, and to their difference."""
    ones, zeros, both = noise_of(protocol, n_users)
    return {"ones": (ones, both), "zeros": (zeros, both), "ones − zeros": (ones, times(zeros, -1))}


def noise_tables(protocol: BitsumProtocol, n_users: int) -> Tables:
    """The noise in the ones, in the zeros, and in their difference."""
    return {name: plus(*parts) for name, parts in noise_parts(protocol, n_users).items()}


def input_tables(protocol: BitsumProtocol, sum_of_bits: int, n_users: int) -> Tables:
    """The messages that carry the bits of `n_users` users, `sum_of_bits` of which are 1."""
    high, low = sum_of_bits, n_users - sum_of_bits
    if isinstance(protocol, RandomizedResponse):
        p = protocol.flip_probability
        ones = plus(binomial_table(high, 1.0 - p), binomial_table(low, p))
        zeros = plus(point(n_users), times(ones, -1))
        return {"ones": ones, "zeros": zeros, "ones − zeros": plus(times(ones, 2), point(-n_users))}
    if isinstance(protocol, Pure):
        speaking, s = 1.0 - protocol.silence_probability, protocol.base_messages
        with_one, with_zero = binomial_table(high, speaking), binomial_table(low, speaking)
        everybody = binomial_table(n_users, speaking)
        return {
            "ones": plus(times(with_one, s + 1), times(with_zero, s) if s else point(0)),
            "zeros": times(everybody, s) if s else point(0),
            "ones − zeros": with_one,
        }
    return {"ones": point(high), "zeros": point(0), "ones − zeros": point(high)}


def tally_parts(protocol: BitsumProtocol, sum_of_bits: int, n_users: int) -> Parts:
    """All messages of `n_users` users in one instance, as independent parts."""
    inputs, noise = input_tables(protocol, sum_of_bits, n_users), noise_parts(protocol, n_users)
    return {name: (inputs[name], *noise[name]) for name in inputs}


def tally_tables(protocol: BitsumProtocol, sum_of_bits: int, n_users: int) -> Tables:
    """All messages of `n_users` users in one instance."""
    return {name: plus(*parts) for name, parts in tally_parts(protocol, sum_of_bits, n_users).items()}


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
        cumulant = sum(_log_sum_exp(theta * x + log) for x, log in zip(centered, logs, strict=True))
        return (cumulant + budget) / abs(theta)

    return float(max(min(radius(sign * theta) for theta in steps) for sign in (1.0, -1.0)))


def _centered(law: Pmf) -> NDArray[np.float64]:
    """The values of a window, as distances from its mean."""
    values = np.arange(law.start, law.stop, dtype=np.float64)
    return np.asarray(values - float(np.dot(values, law.values)) / float(np.sum(law.values)))


def _log_sum_exp(exponents: NDArray[np.float64]) -> float:
    most = float(np.max(exponents))
    return most + math.log(float(np.sum(np.exp(exponents - most))))


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
