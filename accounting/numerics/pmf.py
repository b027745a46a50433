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


def _from_ratios(
    *,
    mode: int,
    lowest: int,
    highest: int | None,
    spread: float,
    scale: float,
    ratio: Callable[[NDArray[np.longdouble]], NDArray[Any]],
    tail: float = TAIL_MASS,
) -> Pmf:
    """Build a log-concave pmf from ratio(k) = P(k+1)/P(k), decreasing in k.

    `spread` (variance) and `scale` (exponential scale of the tail) only choose the window, by
    Bernstein's inequality; `missing` is bounded afterwards by geometric series at its two ends.
    """
    exponent = -math.log(tail)
    reach = math.ceil(scale * (exponent + 1.0) + math.sqrt(2.0 * spread * exponent)) + 2
    start = max(lowest, mode - reach)
    stop = mode + reach + 1 if highest is None else min(mode + reach, highest) + 1
    if stop - start > LARGEST_WINDOW:
        raise InfeasibleError(
            f"a noise law with standard deviation {math.sqrt(spread):.3g} needs a window of {stop - start:,} integers,"
            f" above the limit of {LARGEST_WINDOW:,}; ask for a larger epsilon or fewer repetitions."
        )
    ratios = ratio(np.arange(start, stop - 1, dtype=np.longdouble))
    steps = np.log(ratios)
    at_mode = mode - start
    logs = np.zeros(stop - start, dtype=np.longdouble)
    logs[at_mode + 1 :] = np.cumsum(steps[at_mode:])
    logs[:at_mode] = -np.cumsum(steps[:at_mode][::-1])[::-1]
    values = np.exp(logs)
    values = (values / np.sum(values)).astype(np.float64)
    missing = 0.0
    if highest is None or stop <= highest:
        missing += float(values[-1] * ratios[-1] / (1.0 - ratios[-1]))
    if start > lowest:
        missing += float(values[0] / (ratios[0] - 1.0))
    return Pmf(start=start, values=values, missing=missing)


def binomial(trials: int, probability: float) -> Pmf:
    """Bin(trials, probability), any probability in [0, 1]."""
    if trials == 0 or probability in (0.0, 1.0):
        return Pmf(start=trials if probability == 1.0 else 0, values=np.ones(1), missing=0.0)
    odds = np.longdouble(probability) / (1 - np.longdouble(probability))
    return _from_ratios(
        mode=min(trials, int((trials + 1) * probability)),
        lowest=0,
        highest=trials,
        spread=trials * probability * (1.0 - probability),
        scale=1.0 / 3.0,
        ratio=lambda k: (trials - k) / (k + 1) * odds,
    )


def mirrored(pmf: Pmf, total: int) -> Pmf:
    """The law of total − X."""
    return Pmf(start=total - pmf.stop + 1, values=pmf.values[::-1], missing=pmf.missing)


def poisson(mean: float) -> Pmf:
    """Poisson(mean)."""
    return _from_ratios(
        mode=int(mean),
        lowest=0,
        highest=None,
        spread=mean + 1.0,
        scale=1.0 / 3.0,
        ratio=lambda k: np.longdouble(mean) / (k + 1),
    )


def negative_binomial(shape: float, continue_probability: float, *, tail: float = TAIL_MASS) -> Pmf:
    """NB(shape, p): P(k) = C(k+shape−1, k) (1−p)^shape p^k, with p the probability to continue.

    Log-concave, and accepted here, for shape ≥ 1 only.
    """
    if shape < 1.0:
        raise ValueError(f"shape={shape} < 1: the law is not log-concave")
    stop_probability = 1.0 - continue_probability
    return _from_ratios(
        mode=int((shape - 1.0) * continue_probability / stop_probability),
        lowest=0,
        highest=None,
        spread=shape * continue_probability / stop_probability**2 + 1.0,
        scale=1.0 / stop_probability,
        ratio=lambda k: (k + shape) / (k + 1) * np.longdouble(continue_probability),
        tail=tail,
    )
