"""Probability mass functions on a window of integers, with the mass outside the window bounded.

Every law used here has consecutive ratios P(k+1)/P(k) in closed form. Starting from the mode and
multiplying ratios (in extended precision, where the machine has it) keeps a *relative* accuracy of
about 1e-15 in both tails, where `gammaln` loses ten digits. The window is wide enough that what lies
outside is below `TAIL_MASS`, and that bound is carried along as `missing`: an accountant charges it to
infinite privacy loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InfeasibleError
from accounting.numerics.effort import require_time

Array = NDArray[np.float64]

TAIL_MASS = 1e-32
"""Probability that a window may leave out, unless a caller says otherwise."""

LARGEST_WINDOW = 8_000_000
"""Longest window, in integers; beyond it a law is refused rather than allowed to fill the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pmf:
    """P(start + i) = values[i]; at most `missing` of the mass lies outside the window."""

    start: int
    values: Array
    missing: float

    @property
    def stop(self) -> int:
        """First integer above the window."""
        return self.start + len(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extent:
    """Where the mass of a log-concave law is: `spread` is a variance, `scale` the exponential scale of its tail."""

    mode: int
    lowest: int = 0
    highest: int | None = None
    spread: float
    scale: float
    tail: float = TAIL_MASS

    def window(self) -> range:
        """Integers that leave out `tail`, by Bernstein's inequality; refused if there are too many."""
        exponent = -math.log(self.tail)
        reach = math.ceil(self.scale * (exponent + 1.0) + math.sqrt(2.0 * self.spread * exponent)) + 2
        start = max(self.lowest, self.mode - reach)
        stop = self.mode + reach + 1 if self.highest is None else min(self.mode + reach, self.highest) + 1
        if stop - start > LARGEST_WINDOW:
            raise InfeasibleError(
                f"a noise law with standard deviation {math.sqrt(self.spread):.3g} needs a window of"
                f" {stop - start:,} integers, above the limit of {LARGEST_WINDOW:,}; ask for a larger epsilon or"
                " fewer repetitions."
            )
        return range(start, stop)


def _from_ratios(extent: _Extent, ratio: Callable[[NDArray[np.longdouble]], NDArray[Any]]) -> Pmf:
    """Build a log-concave pmf from ratio(k) = P(k+1)/P(k), decreasing in k.

    The extent only chooses the window; `missing` is bounded afterwards by geometric series at its two ends.
    """
    window = extent.window()
    require_time()
    steps = ratio(np.arange(window.start, window.stop - 1, dtype=np.longdouble))
    first, last = steps[0], steps[-1]
    require_time()
    np.log(steps, out=steps)
    at_mode = extent.mode - window.start
    masses = np.zeros(len(window), dtype=np.longdouble)
    np.cumsum(steps[at_mode:], out=masses[at_mode + 1 :])
    masses[:at_mode] = -np.cumsum(steps[:at_mode][::-1])[::-1]
    del steps
    require_time()
    np.exp(masses, out=masses)
    masses /= np.sum(masses)
    values = masses.astype(np.float64)
    missing = 0.0
    if extent.highest is None or window.stop <= extent.highest:
        missing += float(values[-1] * last / (1.0 - last))
    if window.start > extent.lowest:
        missing += float(values[0] / (first - 1.0))
    return Pmf(start=window.start, values=values, missing=missing)


def binomial(trials: int, probability: float) -> Pmf:
    """Bin(trials, probability), any probability in [0, 1]."""
    if trials == 0 or probability in (0.0, 1.0):
        return Pmf(start=trials if probability == 1.0 else 0, values=np.ones(1), missing=0.0)
    odds = np.longdouble(probability) / (1 - np.longdouble(probability))
    extent = _Extent(
        mode=min(trials, int((trials + 1) * probability)),
        highest=trials,
        spread=trials * probability * (1.0 - probability),
        scale=1.0 / 3.0,
    )
    return _from_ratios(extent, lambda k: (trials - k) / (k + 1) * odds)


def mirrored(pmf: Pmf, total: int) -> Pmf:
    """The law of total − X."""
    return Pmf(start=total - pmf.stop + 1, values=pmf.values[::-1], missing=pmf.missing)


def poisson(mean: float) -> Pmf:
    """Poisson(mean)."""
    extent = _Extent(mode=int(mean), spread=mean + 1.0, scale=1.0 / 3.0)
    return _from_ratios(extent, lambda k: np.longdouble(mean) / (k + 1))


def negative_binomial(shape: float, continue_probability: float, *, tail: float = TAIL_MASS) -> Pmf:
    """NB(shape, p): P(k) = C(k+shape−1, k) (1−p)^shape p^k, with p the probability to continue.

    Log-concave, and accepted here, for shape ≥ 1 only.
    """
    extent = _negative_binomial_extent(shape, continue_probability, tail)
    return _from_ratios(extent, lambda k: (k + shape) / (k + 1) * np.longdouble(continue_probability))


def negative_binomial_window(shape: float, continue_probability: float, *, tail: float = TAIL_MASS) -> range:
    """The integers that `negative_binomial` would tabulate."""
    return _negative_binomial_extent(shape, continue_probability, tail).window()


def _negative_binomial_extent(shape: float, continue_probability: float, tail: float) -> _Extent:
    if shape < 1.0:
        raise ValueError(f"shape={shape} < 1: the law is not log-concave")
    stop_probability = 1.0 - continue_probability
    return _Extent(
        mode=int((shape - 1.0) * continue_probability / stop_probability),
        spread=shape * continue_probability / stop_probability**2 + 1.0,
        scale=1.0 / stop_probability,
        tail=tail,
    )
