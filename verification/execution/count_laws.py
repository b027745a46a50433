"""Laws of counts by other means than `accounting` and `privkde` use: SciPy's masses and convolutions, no recursions.

What an honest execution of a bitsum protocol makes of n users' bits, as tables: the number of ones, of zeros, and
their difference. Tables are compared with 40-digit ones (`verification.brute_force`) in the tests.
"""

from __future__ import annotations

import math

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
"""Granted for the rounding of a transform, as mass that may lie anywhere."""

Tables = dict[str, Pmf]


def negative_binomial_table(shape: float, *, stop_probability: float) -> Pmf:
    """NB(r, p) with 1 − p = `stop_probability`, which is what SciPy calls p."""
    return _table(stats.nbinom(shape, stop_probability))


def poisson_table(mean: float) -> Pmf:
    """Poisson(mean)."""
    return _table(stats.poisson(mean))


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
        direct = len(total.values) * len(law.values) <= DIRECT
        values = np.convolve(total.values, law.values) if direct else signal.fftconvolve(total.values, law.values)
        missing = total.missing + law.missing + (0.0 if direct else TRANSFORM_ERROR)
        total = Pmf(start=total.start + law.start, values=np.maximum(values, 0.0), missing=missing)
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


def noise_tables(protocol: BitsumProtocol, n_users: int) -> Tables:
    """The noise of `n_users` of the users on whom the protocol counts: ones, zeros, and their difference."""
    part = n_users / protocol.n_users
    if isinstance(protocol, RandomizedResponse):
        return {"ones": point(0), "zeros": point(0), "ones − zeros": point(0)}
    if isinstance(protocol, PoissonNoise):
        noise = poisson_table(part * protocol.total_mean)
        return {"ones": noise, "zeros": point(0), "ones − zeros": noise}
    if isinstance(protocol, NegativeBinomialNoise):
        noise = negative_binomial_table(part * protocol.shape, stop_probability=1.0 - protocol.continue_probability)
        return {"ones": noise, "zeros": point(0), "ones − zeros": noise}
    if isinstance(protocol, ThreeNegativeBinomial):
        shape, stop = part * protocol.noise_shape, 1.0 - protocol.continue_probability
    elif isinstance(protocol, Pure):
        shape, stop = part, -math.expm1(-protocol.noise_epsilon)
    else:
        raise NotImplementedError(f"no twin for the noise of {protocol.name!r}")
    single = negative_binomial_table(shape, stop_probability=stop)
    flood = negative_binomial_table(
        part * protocol.flood_shape, stop_probability=1.0 - protocol.flood_continue_probability
    )
    either = plus(single, flood)
    return {"ones": either, "zeros": either, "ones − zeros": plus(single, times(single, -1))}


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


def tally_tables(protocol: BitsumProtocol, sum_of_bits: int, n_users: int) -> Tables:
    """All messages of `n_users` users in one instance."""
    inputs, noise = input_tables(protocol, sum_of_bits, n_users), noise_tables(protocol, n_users)
    return {name: plus(inputs[name], noise[name]) for name in inputs}


def mean_radius(law: Pmf, n_samples: int, failure_probability: float) -> float:
    """How far the mean of independent samples of `law` may be from its expectation, but for this probability.

    t = min over θ of (ψ(θ) + ln(2/failure)/N)/θ with ψ the centered cumulant generating function, both sides
    (Chernoff): every θ yields a valid bound, so the search over θ need not be exact.
    """
    values = np.arange(law.start, law.stop, dtype=np.float64)
    centered = values - float(np.dot(values, law.values)) / float(np.sum(law.values))
    budget = math.log(2.0 / failure_probability) / n_samples
    with np.errstate(divide="ignore"):
        logs = np.log(law.values)
    deviation = math.sqrt(float(np.dot(centered**2, law.values)))
    if deviation == 0.0:
        return 0.0
    steps = math.sqrt(2.0 * budget) / deviation * np.geomspace(1e-2, 4.0, 60)
    sides = ((centered, logs), (-centered, logs))
    return float(max(min((_log_mean_exp(side, theta) + budget) / theta for theta in steps) for side in sides))


def _log_mean_exp(side: tuple[NDArray[np.float64], NDArray[np.float64]], theta: float) -> float:
    centered, logs = side
    exponents = theta * centered + logs
    most = float(np.max(exponents))
    return most + math.log(float(np.sum(np.exp(exponents - most))))


def _table(law: stats.rv_discrete) -> Pmf:
    """The window that leaves out at most `TAIL` on either side."""
    mean = float(law.mean())
    stop = 1 + math.ceil(mean)
    while law.sf(stop - 1) > TAIL:
        stop = 2 * stop
    low = math.floor(mean)
    while low > 0 and law.cdf(low - 1) > TAIL:
        low = low // 2
    start = low
    while start < math.floor(mean) and law.cdf(start + max(1, (stop - start) // 64)) < TAIL:
        start += max(1, (stop - start) // 64)
    values = np.asarray(law.pmf(np.arange(start, stop)), dtype=np.float64)
    return Pmf(start=start, values=values, missing=2.0 * TAIL)
