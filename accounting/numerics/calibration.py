"""Safe-side root finding: the least noise that still keeps the promise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from accounting.errors import InfeasibleError, InvalidInputError

SEARCH_TOLERANCE = 2e-4
"""The search stops when a noise level that holds and one that fails are this close, relatively."""
CERTIFIED_TOLERANCE = 9e-4
"""The same for the certified refinement: inside the promised 0.1 %."""
TURNING_PRECISION = 2e-3
"""How closely a turning point is found, relatively."""
FIRST_SLOPE = 10.0
"""−d excess/d ln noise where nothing better is known."""

_SMALLEST, _LARGEST = 1e-7, 1e13
_LONGEST_FIRST_STEP = math.log(1.5)

P = TypeVar("P")
Point = tuple[float, float]
"""ln noise and the excess there."""


def least_noise(
    build: Callable[[float], P],
    likely_excess: Callable[[P], float],
    certified_excess: Callable[[P], float] | None,
    *,
    guess: float,
    slope: float = FIRST_SLOPE,
    margin: Callable[[P], float] = lambda _: 0.0,
    tolerance: float = SEARCH_TOLERANCE,
) -> P:
    """The protocol of least noise that holds: certified_excess(build(noise)) ≤ 0, and 0.1 % less noise fails.

    `likely_excess` is a cheap lower bound on `certified_excess`; both decrease in the noise. The search
    runs on the cheap one; the certified one then moves the result up, never below what the search found to fail.
    Good guesses only save time: of the noise, of how fast the excess falls with ln noise (`slope`), and of how much
    more noise, relatively, the certified excess needs than the cheap one (`margin`). Without a certified excess what
    the search found is returned.
    """
    low, high, slope = _bracketed_root(partial(_guarded, build, likely_excess), guess, slope, tolerance)
    if certified_excess is None:
        return build(high)
    certified = partial(_guarded, build, certified_excess)
    high *= math.exp(margin(build(high)))
    excess = certified(high)
    while excess > 0.0:
        low = high
        high *= math.exp(min(0.7, 1.05 * excess / slope + 5e-5))
        if high > _LARGEST:
            raise InfeasibleError("no amount of noise passes the certificate; ask for a larger epsilon or delta.")
        excess = certified(high)
    while high / low > 1.0 + max(CERTIFIED_TOLERANCE, 2.0 * tolerance):
        middle = math.sqrt(low * high)
        if certified(middle) <= 0.0:
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


def _bracketed_root(  # noqa: PLR0917
    excess: Callable[[float], float],
    guess: float,
    slope: float,
    tolerance: float,
    smallest: float = _SMALLEST,
    largest: float = _LARGEST,
) -> tuple[float, float, float]:
    """(low, high, slope): excess(low) > 0 ≥ excess(high), within `tolerance`; slope = −d excess/d ln noise > 0.

    Works on ln(noise): one step by the given slope, one along the secant, then longer and longer ones until the sign
    changes; then `_narrowed`.
    """
    x = math.log(min(max(guess, smallest), largest))
    here = x, excess(math.exp(x))
    fails = here[1] > 0.0
    limit = math.log(largest if fails else smallest)
    step = _towards(here[1], slope, tolerance, longest=_LONGEST_FIRST_STEP)
    for count in itertools.count(1):
        if here[0] == limit:
            if not fails:
                return math.exp(limit), math.exp(limit), 1.0
            raise InfeasibleError("no amount of noise meets the request; ask for a larger epsilon or delta.")
        ahead, step = _step(excess, here[0], step, limit, tolerance)
        if (ahead[1] > 0.0) != fails:
            break
        secant = _slope(here, ahead)
        wanted = _towards(ahead[1], secant, tolerance, longest=4.0 * abs(step))
        step = wanted if count == 1 else math.copysign(max(abs(wanted), 2.0 * abs(step)), step)
        here = ahead
    below, above = sorted([here, ahead])
    return _narrowed(excess, below, above, tolerance)


def _slope(one: Point, other: Point) -> float:
    """−d excess/d ln noise between two points, never too flat to step along; steep if nothing is known."""
    if not (math.isfinite(one[1]) and math.isfinite(other[1])):
        return FIRST_SLOPE
    return max((one[1] - other[1]) / (other[0] - one[0]), 1e-2)


def _towards(value: float, slope: float, tolerance: float, *, longest: float) -> float:
    """The step to where a line of this slope has its root, and a little further; up if the excess is positive."""
    length = abs(value) / slope + 0.4 * tolerance if math.isfinite(value) else math.log(1.1)
    return min(length, longest) if value > 0.0 else -min(length, longest)


def _step(
    excess: Callable[[float], float], x: float, step: float, limit: float, tolerance: float
) -> tuple[Point, float]:
    """The next point of the bracket and the step to it; shorter where the law ahead is refused."""
    while True:
        ahead = min(limit, x + step) if step > 0 else max(limit, x + step)
        try:
            return (ahead, excess(math.exp(ahead))), step
        except InfeasibleError:
            if abs(step) <= tolerance:
                raise
            step /= 4.0


def _narrowed(
    excess: Callable[[float], float], below: Point, above: Point, tolerance: float
) -> tuple[float, float, float]:
    """The bracket made as narrow as the tolerance, and the slope of the last secant that was long enough.

    Regula falsi, aimed a little past the root as seen from the nearer end, so that the farther end moves up to it.
    An end that stays twice counts half (Illinois); every fourth step is a bisection, for excesses without a slope.
    """
    weight_low, weight_high = below[1], above[1]
    slope, kept = _slope(below, above), 0
    for count in itertools.count(1):
        (low, _), (high, _) = below, above
        if high - low <= tolerance:
            break
        x = 0.5 * (low + high)
        if count % 4 and math.isfinite(weight_low) and math.isfinite(weight_high):
            root = (low * weight_high - high * weight_low) / (weight_high - weight_low)
            past = 0.4 * tolerance if root - low < high - root else -0.4 * tolerance
            x = min(max(root + past, low + 0.2 * tolerance), high - 0.2 * tolerance)
        point = x, excess(math.exp(x))
        if high - low > 10.0 * tolerance:
            slope = _slope(*sorted([point, below if x - low > high - x else above]))
        if point[1] > 0.0:
            below, weight_low = point, point[1]
            weight_high *= 0.5 if kept > 0 else 1.0
            kept = 1
        else:
            above, weight_high = point, point[1]
            weight_low *= 0.5 if kept < 0 else 1.0
            kept = -1
    return math.exp(below[0]), math.exp(above[0]), slope


def falling_root(
    excess: Callable[[float], float], low: float, high: float, *, guess: float, precision: float = TURNING_PRECISION
) -> float | None:
    """A value in [low, high] with excess ≤ 0, and at most `precision` above one that fails, or `low`; None: none has.

    For an excess that falls with ln value, with a slope of about −1; by secants, which takes fewer values than
    `turning_point` does. Infinite where nothing better is known.
    """
    try:
        _, enough, _ = _bracketed_root(excess, guess, 1.0, precision, low, high)
    except InfeasibleError:
        return None
    return min(max(enough, low), high)


def turning_point(
    turned: Callable[[float], bool],
    low: float,
    high: float,
    *,
    whole: bool,
    growth: float = 8.0,
    precision: float = TURNING_PRECISION,
) -> tuple[float, float | None]:
    """Where `turned` becomes true: the last value at which it was not yet, and the first at which it was, or None.

    Grows geometrically from the low end, then bisects on a logarithmic scale, to a relative `precision` or to the next
    `whole` number. Both values are `low` if it is true from the beginning.
    """
    if turned(low):
        return low, low
    reach = low
    while True:
        if reach >= high:
            return high, None
        low, reach = reach, min(high, max(growth * reach, reach + 1.0))
        if turned(reach):
            break
    high = reach
    while high - low > max(precision * low, 1.0 if whole else 0.0):
        middle = math.sqrt(low * high)
        if whole:
            middle = float(min(max(round(middle), low + 1), high - 1))
        if turned(middle):
            high = middle
        else:
            low = middle
    return low, high
