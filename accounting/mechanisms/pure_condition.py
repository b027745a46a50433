"""The exact one-dimensional test of Pure's conditions, on parameters that are not yet a protocol.

Names and proof: docs/proofs/pure.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy

from accounting.errors import InfeasibleError
from accounting.numerics.effort import require_time
from accounting.numerics.pmf import LARGEST_WINDOW, Array
from accounting.numerics.profile import smallest_root

SAFETY = 1e-9
"""Relative margin of the exact test in double precision; it grows with windows beyond 1e4 integers."""

DYNAMIC_RANGE = 600.0  # e^600 and its inverse are doubles
TERMS_AT_ONCE = 1 << 20
"""Terms before the window that are in memory together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneDimensionalTest:
    """The exact test on a window: ln a(u) and ln(a(u) − e^{ε−ε'} a(u−1)) for u from `start` on.

    For r ≥ 1 both P_F and the weights e^{−2ε'j} are log-concave, hence so is a, and testing all u is finite:

    * from the first u with a(u) ≤ e^{ε−ε'} a(u−1) on, the left side is not positive (`log_rise` ends there);
    * a(u+s)/a(u) does not increase in u, so (1−q) a(u) ≤ (e^ε−1) q a(u+s) at the first u of the window
      settles every u to its left;
    * to the right of the window, a(k+m) ≥ max(e^{−2ε'}, p_f)^m a(k), which only lowers the right side.

    Source: docs/proofs/pure.md, Theorem 2.
    """

    epsilon: float
    start: int
    log_level: Array
    log_rise: Array
    log_decay: float

    @staticmethod
    def of(draft: Draft, *, ahead: int, largest_window: float = LARGEST_WINDOW) -> OneDimensionalTest:
        """Tabulate from a u that `draft.base` settles to `ahead` beyond the last u that has to be tested."""
        extra = math.ceil(8.0 / -math.expm1(-draft.epsilon - draft.noise_epsilon))
        while True:
            require_time()
            start, stop = draft.first_count(), draft.threshold() + extra + ahead + 64
            if stop - start > largest_window:
                raise InfeasibleError(
                    f"flood_shape={draft.shape:.6g} with base_messages={draft.base:.6g}: the exact test needs"
                    f" a window of {stop - start:,} integers, above the limit of {largest_window:,.0f};"
                    " ask for a larger epsilon or a larger excess error."
                )
            start, log_level, log_rise = _filtered(draft, start, stop)
            if len(log_rise) < len(log_level):
                break
            extra *= 2
        return OneDimensionalTest(
            epsilon=draft.epsilon,
            start=start,
            log_level=log_level,
            log_rise=log_rise,
            log_decay=max(-2.0 * draft.noise_epsilon, math.log(draft.continuing)),
        )

    @property
    def margin(self) -> float:
        """Allowance for rounding: N additions of logarithms up to 600, each within 600·2^−53."""
        return SAFETY * max(1.0, len(self.log_level) / 1e4)

    def slack(self, silence: float, base: int) -> tuple[float, int]:
        """Smallest ln(right/left) over all u, less the margin, and that u; negative: failed or undecided."""
        if len(self.log_rise) == 0:
            return -math.inf, self.start
        require_time()
        stop, end = base + len(self.log_rise), len(self.log_level)
        beyond = np.arange(max(base, end), max(stop, end)) - (end - 1)
        ahead = np.concatenate([self.log_level[base:stop], self.log_level[-1] + self.log_decay * beyond])
        require_time()
        slack = ahead - self._left() - log_odds(self.epsilon, silence)
        tightest = int(np.argmin(slack))
        return float(slack[tightest]) - self.margin, self.start + tightest

    def smallest_base(self, silence: float) -> float:
        """The smallest s that passes by ten margins, interpolated between whole numbers; inf if none does.

        For each u the s with a(u+s) above what u demands form an interval, since a is unimodal; its lower end
        is found on the rising part of ln a. The largest lower end is the answer unless it exceeds some upper
        end, and then the intervals have no point in common.
        """
        rising = self.log_level[: int(np.argmax(self.log_level)) + 1]
        wanted = self._left() + (log_odds(self.epsilon, silence) + 10.0 * self.margin)
        if len(wanted) == 0 or float(np.max(wanted)) > rising[-1]:
            return math.inf
        index = np.arange(len(self.log_level), dtype=np.float64)
        smallest = max(0.0, float(np.max(np.interp(wanted, rising, index[: len(rising)]) - index[: len(wanted)])))
        return smallest if self.slack(silence, math.ceil(smallest))[0] >= 0.0 else math.inf

    def _left(self) -> Array:
        left = self.log_rise.copy()
        if self.start > 0 and len(left):
            left[0] = self.log_level[0]
        return left


def _filtered(draft: Draft, start: int, stop: int) -> tuple[int, Array, Array]:
    """First u, ln a(u) and ln(a(u) − e^{ε−ε'} a(u−1)) as long as that is positive, for u in [start, stop).

    a(u) = P_F(u) + e^{−2ε'} a(u−1) is a linear filter of positive terms. The difference is filtered from
    P_F(k) − e^{ε−ε'} P_F(k−1), which has a closed form; subtracting neighbors of a would cancel. The critical
    u may lie tens of deviations below the mean of the flood, outside the window of `pmf.negative_binomial`:
    P_F is built from its ratios on this window, times a power e^{−θu}, θ ≥ 0, that levels its ends. If
    doubles still do not span it, the window ends earlier (θ = 0) or starts later.
    """
    r, p = draft.shape, draft.continuing
    gap, square = draft.epsilon - draft.noise_epsilon, math.exp(-2.0 * draft.noise_epsilon)
    k = np.arange(start, stop, dtype=np.float64)
    steps = np.log(p * (r + k[:-1]) / k[1:])
    tilt = max(0.0, float(np.mean(steps)))
    logs = np.concatenate([[0.0], np.cumsum(steps - tilt)])
    logs -= np.max(logs)
    del steps
    while min(logs[0], logs[-1]) < -DYNAMIC_RANGE:
        require_time()
        later = math.ceil(0.25 * (draft.threshold() - k[0]))
        if tilt == 0.0:
            last = int(np.flatnonzero(logs >= -DYNAMIC_RANGE)[-1])
            k, logs = k[: last + 1], logs[: last + 1]
        elif later > 0:
            k, logs = k[later:], logs[later:]
        else:  # even the critical u and u + s are too far apart for doubles: undecided
            return int(k[0]), logs, np.empty(0)
        more = max(-tilt, float(logs[-1] - logs[0]) / max(1, len(k) - 1))
        tilt += more
        logs = logs - more * (k - k[0])
        logs -= np.max(logs)
    require_time()
    values = np.exp(logs)

    def backward(k: Array) -> Array:  # P_F(k−1)/P_F(k)
        return np.asarray(k / ((r - 1.0 + k) * p))

    def growth(k: Array) -> Array:  # 1 − e^{ε−ε'} P_F(k−1)/P_F(k)
        excess = math.expm1(gap) + (1.0 - p)
        return np.where(k > 0.0, ((r - 1.0) * p - k * excess) / np.maximum((r - 1.0 + k) * p, 1e-300), 1.0)

    before_level = before_rise = 0.0
    if k[0] > 0.0:  # here P_F rises at least like e^{(ε−ε')k}: few terms before the window matter
        steepest = -math.log(square * float(backward(k[0])))
        count = min(int(k[0]), math.ceil(45.0 / steepest))
        before_level, before_rise = _sums_before(
            int(k[0]), count, float(values[0]), lambda k: square * backward(k), growth
        )
    require_time()
    factor = square * math.exp(-tilt)
    level, _ = scipy.signal.lfilter([1.0], [1.0, -factor], values, zi=[before_level])
    require_time()
    rise, _ = scipy.signal.lfilter([1.0], [1.0, -factor], values * growth(k), zi=[before_rise])
    fallen = np.flatnonzero(rise <= 0.0)
    risen = int(fallen[0]) if len(fallen) else len(rise)
    require_time()
    straight = tilt * (k - k[0])
    return int(k[0]), np.log(level) + straight, np.log(rise[:risen]) + straight[:risen]


def _sums_before(
    k: int, count: int, weight: float, ratio: Callable[[Array], Array], growth: Callable[[Array], Array]
) -> tuple[float, float]:
    """Σ w_j and Σ w_j·growth(k − j) over j = 1, …, count, where w_0 = `weight` and w_j = ratio(k − j + 1)·w_{j−1}.

    In the test ratios are at most e^{−(ε+ε')} and `count` is at most 45/(ε+ε'): less than six of its windows.
    """
    level = rise = 0.0
    for done in range(0, count, TERMS_AT_ONCE):
        require_time()
        earlier = k - np.arange(done, min(done + TERMS_AT_ONCE, count), dtype=np.float64)
        weights = np.cumprod(ratio(earlier)) * weight
        level, rise = level + float(np.sum(weights)), rise + float(np.sum(weights * growth(earlier - 1.0)))
        weight = float(weights[-1])
    return level, rise


def exact_base(draft: Draft, largest_window: float) -> float:
    """Smallest s that passes the exact test, as a real number; inf if none does or the window is too long."""
    likely = replace(draft, base=draft.least_base())
    try:
        test = OneDimensionalTest.of(likely, ahead=math.ceil(4.0 * likely.base), largest_window=largest_window)
    except InfeasibleError:
        return math.inf
    return test.smallest_base(draft.silence)


def conditions_base(draft: Draft) -> float:
    """Smallest s that meets (i)–(iii), as a real number, in closed form; inf if there is none."""
    z, demand = draft.threshold() + 1, log_odds(draft.epsilon, draft.silence) + SAFETY
    high = max(0.0, (draft.shape - 1.0) * draft.continuing / (1.0 - draft.continuing) - z)
    if demand <= 0.0:
        return 0.0
    if draft.log_ratio(z, high) < demand:
        return math.inf
    return smallest_root(lambda s: draft.log_ratio(z, s) >= demand, 0.0, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Parameters on trial, in double precision; `base` may be fractional."""

    epsilon: float
    noise_epsilon: float
    silence: float
    shape: float
    continuing: float
    base: float = math.inf

    def messages(self, n_users: int, mean_bit: float = 0.5) -> float:
        """Expected messages of one user."""
        noise = 1.0 / math.expm1(self.noise_epsilon)
        flood = self.shape * self.continuing / (1.0 - self.continuing)
        return (1.0 - self.silence) * (2.0 * self.base + mean_bit) + 2.0 / n_users * (noise + flood)

    def threshold(self) -> int:
        """The smallest z* that meets (ii), up to rounding."""
        p, c = self.continuing, math.exp(self.epsilon - self.noise_epsilon)
        return max(0, math.ceil((p * self.shape - c) / (c - p)))

    def log_ratio(self, z: float, s: float) -> float:
        """Natural logarithm of P_F(z+s)/P_F(z)."""
        return log_gamma_ratio(z + self.shape, s) - log_gamma_ratio(z + 1.0, s) + s * math.log(self.continuing)

    def first_count(self) -> int:
        """Where the window of the exact test begins.

        That is a u with P_F(u+s)/P_F(u) ≥ 9(1−q)/((e^ε−1)q), if there is one, which settles everything to its
        left; but at most 70 deviations of the tilted flood below z*, since doubles reach no further.
        """
        demand = log_odds(self.epsilon, self.silence) + 2.2
        high = self.threshold()
        tilted = math.log(self.continuing) - self.epsilon + self.noise_epsilon
        deviation = math.sqrt(self.shape * math.exp(tilted)) / -math.expm1(tilted)
        low = max(0, high - math.ceil(70.0 * deviation))
        failing = bisect_left(range(low, high), True, key=lambda u: self.log_ratio(u, self.base) < demand)
        return low + max(0, failing - 1)

    def least_base(self) -> float:
        """About the s that an endless flood would need: (ε−ε')s + ln s + 1 = ln((1−q)/((e^ε−1)q))."""
        gap, demand = self.epsilon - self.noise_epsilon, log_odds(self.epsilon, self.silence) - 1.0
        low, high = -2.0, max(-2.0, demand)  # ln s
        while high - low > 1e-3:
            middle = 0.5 * (low + high)
            low, high = (low, middle) if gap * math.exp(middle) + middle >= demand else (middle, high)
        return math.exp(high)


def log_odds(epsilon: float, silence: float) -> float:
    """Logarithm of (1−q)/((e^ε−1) q)."""
    return math.log1p(-silence) - math.log(silence) - math.log(math.expm1(epsilon))


def log_gamma_ratio(x: float, s: float) -> float:
    """Natural logarithm of Γ(x+s)/Γ(x), by Stirling's series where `lgamma` would cancel."""
    if x < 1e4:
        return math.lgamma(x + s) - math.lgamma(x)
    return (x - 0.5) * math.log1p(s / x) + s * math.log(x + s) - s + (1.0 / (x + s) - 1.0 / x) / 12.0


def laplace_variance(epsilon: float) -> float:
    """2e^{−ε}/(1−e^{−ε})², the variance of discrete Laplace noise."""
    return 2.0 * math.exp(-epsilon) / math.expm1(-epsilon) ** 2
