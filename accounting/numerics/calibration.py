"""Safe-side root finding: the least noise that still keeps the promise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from accounting.errors import InfeasibleError, InvalidInputError

SEARCH_TOLERANCE = 2e-4
"""The search stops when a noise level that holds and one that fails are this close, relatively."""
CERTIFIED_TOLERANCE = 6e-4
"""The same for the certified refinement: well inside the promised 0.1 %."""

_SMALLEST, _LARGEST = 1e-7, 1e13

P = TypeVar("P")


def least_noise(
    build: Callable[[float], P],
    likely_excess: Callable[[P], float],
    certified_excess: Callable[[P], float],
    *,
    guess: float,
    tolerance: float = SEARCH_TOLERANCE,
) -> P:
    """The protocol of least noise that holds: certified_excess(build(noise)) ≤ 0, and 0.1 % less noise fails.

    `likely_excess` is a cheap lower bound on `certified_excess`; both decrease in the noise. The search
    runs on the cheap one; the certified one then moves the result up, never down.
    """

    def searched(noise: float) -> float:
        return _guarded(build, likely_excess, noise)

    low, high, slope = _bracketed_root(searched, guess, tolerance)
    excess = _guarded(build, certified_excess, high)
    while excess > 0.0:
        low = high
        high *= math.exp(min(0.7, 1.05 * excess / slope + 5e-5))
        if high > _LARGEST:
            raise InfeasibleError("no amount of noise passes the certificate; ask for a larger epsilon or delta.")
        excess = _guarded(build, certified_excess, high)
    while high / low > 1.0 + max(CERTIFIED_TOLERANCE, 2.0 * tolerance):
        middle = math.sqrt(low * high)
        if _guarded(build, certified_excess, middle) <= 0.0:
            high = middle
        else:
            low = middle
    return build(high)


def _guarded(build: Callable[[float], P], excess: Callable[[P], float], noise: float) -> float:
    """Excess at a noise level; levels outside the law's domain fail."""
    try:
        protocol = build(noise)
    except InvalidInputError:
        return math.inf
    value = excess(protocol)
    return math.inf if math.isnan(value) else value


def _bracketed_root(excess: Callable[[float], float], guess: float, tolerance: float) -> tuple[float, float, float]:
    """(low, high, slope): excess(low) > 0 ≥ excess(high), within `tolerance`; slope = −d excess/d ln noise > 0.

    Works on ln(noise): doubling steps to bracket, then regula falsi with the Illinois correction.
    """
    x = math.log(min(max(guess, _SMALLEST), _LARGEST))
    value = excess(math.exp(x))
    step = math.log(1.1) if value > 0.0 else -math.log(1.1)
    limit = math.log(_LARGEST) if value > 0.0 else math.log(_SMALLEST)
    other_x, other = x, value
    while (other > 0.0) == (value > 0.0):
        if other_x == limit:
            if value <= 0.0:
                return math.exp(limit), math.exp(limit), 1.0
            raise InfeasibleError("no amount of noise meets the request; ask for a larger epsilon or delta.")
        x, value = other_x, other
        other_x, other, step = _step(excess, x, step, limit, tolerance)
    (low, f_low), (high, f_high) = sorted([(x, value), (other_x, other)])
    return _illinois(excess, (low, f_low), (high, f_high), tolerance)


def _step(
    excess: Callable[[float], float], x: float, step: float, limit: float, tolerance: float
) -> tuple[float, float, float]:
    """The next point of the bracket, its excess and the next step; shorter where the law ahead is refused."""
    while True:
        ahead = min(limit, x + step) if step > 0 else max(limit, x + step)
        try:
            return ahead, excess(math.exp(ahead)), 2.0 * step
        except InfeasibleError:
            if abs(step) <= tolerance:
                raise
            step /= 4.0


def _illinois(
    excess: Callable[[float], float], below: tuple[float, float], above: tuple[float, float], tolerance: float
) -> tuple[float, float, float]:
    (low, f_low), (high, f_high) = below, above
    weight_low, weight_high = f_low, f_high
    slope = 1.0
    while high - low > tolerance:
        if math.isfinite(weight_low) and math.isfinite(weight_high):
            x = (low * weight_high - high * weight_low) / (weight_high - weight_low)
            margin = 0.4 * tolerance
            x = min(max(x, low + margin), high - margin)
            if math.isfinite(f_low):
                slope = max((f_low - f_high) / (high - low), 1e-2)
        else:
            x = 0.5 * (low + high)
        value = excess(math.exp(x))
        if value > 0.0:
            low, f_low, weight_low = x, value, value
            weight_high *= 0.5
        else:
            high, f_high, weight_high = x, value, value
            weight_low *= 0.5
    return math.exp(low), math.exp(high), slope
