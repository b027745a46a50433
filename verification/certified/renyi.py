"""Upper bounds on ε by Rényi moments: positive sums only, no grid of losses, no transforms.

`flipped_moments` is for bits that flip completely, `shift_rates` for bits whose probability moves by t with Σt² ≤ Δ².
Source: docs/proofs/certificate.md, sections 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath
import numpy as np

from verification.certified.noise_laws import UNIT, Array, TwoLaws

ORDERS: Array = np.arange(3, 130) / 2.0
"""α = 1.5, 2, …, 64.5: powers of half-integer order are square roots and repeated products."""
SETTLED = 1.005
CUT_SHARES = (0.003, 0.03, 0.3, 0.9)
"""Shares of δ that may be spent on leaving out the rarest outcomes; the one that serves best at m = 0 is taken."""
FIRST_SHIFT, SHIFT_STEPS = 0.02, 24


def flipped_moments(pair: TwoLaws, spare: float) -> tuple[Array, float]:
    """(ln Σ p̂^α q^{1−α} for every order, mass that p̂ lacks), outcomes of largest ratio cut off up to mass `spare`."""
    p, q = pair.one, pair.zero
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(p > 0.0, p / q, 0.0)
    order = np.argsort(-ratio)
    cut = int(np.searchsorted(np.cumsum(p[order]), spare))
    kept = order[cut:][ratio[order[cut:]] > 0.0]
    lost = float(np.sum(p[order[:cut]])) * (1.0 + 1e-9) + pair.missing
    if not np.all(np.isfinite(ratio[kept])):
        return np.full(len(ORDERS), np.inf), lost
    root, term = np.sqrt(ratio[kept]), p[kept].copy()
    log_moments = np.empty(len(ORDERS))
    with np.errstate(over="ignore"):
        for i in range(len(ORDERS)):
            term *= root
            log_moments[i] = np.log(np.sum(term))
    return log_moments + _relative(pair, len(p)), lost


def stick_above(pair: TwoLaws, epsilon: float) -> float:
    """H_{e^ε}(one‖zero), rounded up."""
    growth = math.exp(epsilon) * (1.0 - 1e-14)
    excess = pair.one * (1.0 + 2.0 * pair.error + 1e-15) - growth * pair.zero * (1.0 - 2.0 * pair.error - 1e-15)
    return float(np.sum(np.maximum(excess, 0.0))) * (1.0 + len(pair.one) * UNIT) + pair.missing


def _relative(pair: TwoLaws, n_terms: int) -> Array:
    """What rounding can have taken from the logarithm of a moment, for each order."""
    return 2.0 * ORDERS * (2.0 * pair.error + 4.0 * UNIT) + (n_terms + 8.0) * UNIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Corner:
    """((1−t)Y + tX, Y), or its reversal (`away`): g = X/Y − 1 under Y, with a cut at G."""

    g: Array
    weights: Array
    away: bool
    lost: float
    """Mass lost by cutting, per unit of t."""
    bias: float
    """Bound on |Σ X − Σ Y| over what is listed."""

    @staticmethod
    def of(x: Array, y: Array, *, away: bool, largest: float, spare: float, bias: float) -> Corner:
        """Cut so that at most t·`spare` is lost at every shift t ≤ `largest`."""
        seen = y > 0.0
        g, weights = x[seen] / y[seen] - 1.0, y[seen]
        infinite = float(np.sum(x[~seen]))  # for `toward`: X where Y is impossible; for `away` it only helps
        order = np.argsort(g if away else -g)
        tail, mass = np.cumsum(weights[order]), np.cumsum((weights * np.abs(g))[order])
        size = np.abs(g[order])
        shed = mass - size * tail  # E[(|g| − G)₊] if G is the size at this outcome
        if away:
            shed = shed / np.maximum(1.0 - largest * size, 1e-300)
        right_sign = g[order] < 0.0 if away else g[order] > 0.0
        fits = right_sign & (shed + infinite * (not away) <= spare)
        if away:
            fits &= largest * size < 1.0
        at = int(np.flatnonzero(fits)[-1]) if np.any(fits) else 0
        limit = float(g[order][at])
        cut = np.maximum(g, limit) if away else np.minimum(g, limit)
        lost = float(max(shed[at], 0.0)) * (1.0 + 1e-9) + (0.0 if away else infinite)
        return Corner(g=cut, weights=weights, away=away, lost=lost, bias=bias)

    def rates(self, edges: Array, orders: Array) -> Array:
        """The supremum over t in (0, T] of ln M(α; t)/t², by intervals of shifts, for each order."""
        best = np.zeros(len(orders))
        for i, order in enumerate(orders.tolist()):
            power = 1.0 - order if self.away else order
            remainders = [_remainder(power, t, self.g) for t in edges.tolist()]
            for u, low, high in zip(edges.tolist(), remainders, remainders[1:], strict=False):
                m = float(self.weights @ np.maximum(low, high)) * (1.0 + 1e-9)
                best[i] = max(best[i], m if u == 0.0 else math.log1p(u * u * m) / (u * u))
        return best


def _remainder(power: float, t: float, g: Array) -> Array:
    """((1+tg)^a − 1 − atg)/t², rounded up; ½a(a−1)g² at t = 0."""
    if t == 0.0:
        return np.asarray(0.5 * power * (power - 1.0) * g * g)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        grown = np.exp(power * np.log1p(t * g))
        rounding = 16.0 * UNIT * (1.0 + np.abs(power)) * (1.0 + grown)
        return np.asarray((grown - 1.0 - power * t * g + rounding) / (t * t))


def shift_edges(largest: float) -> Array:
    """Ends of the intervals that cover (0, largest]."""
    return np.concatenate([[0.0], np.geomspace(FIRST_SHIFT * largest, largest, SHIFT_STEPS)])


def corners(pair: TwoLaws, *, largest: float, spare: float) -> list[Corner]:
    """The four corners of one pair: from either law towards the other, and back."""
    bias = pair.missing + 4.0 * pair.error
    return [
        Corner.of(x, y, away=away, largest=largest, spare=spare, bias=bias)
        for x, y in ((pair.one, pair.zero), (pair.zero, pair.one))
        for away in (False, True)
    ]


def converted(log_moments: Array, orders: Array, delta: float) -> float:
    """The smallest ε over the orders with e^{ln M − (α−1)ε}(α−1)^{α−1}/α^α ≤ delta, in interval arithmetic."""
    finite = np.isfinite(log_moments)
    if delta <= 0.0 or not np.any(finite):
        return math.inf
    a, logs = orders[finite], log_moments[finite]
    best = int(np.argmin((logs + (a - 1.0) * np.log(a - 1.0) - a * np.log(a) - math.log(delta)) / (a - 1.0)))
    iv = mpmath.iv
    alpha, log_moment = iv.mpf(float(a[best])), iv.mpf(float(logs[best]))
    value = log_moment + (alpha - 1) * iv.log(alpha - 1) - alpha * iv.log(alpha) - iv.log(iv.mpf(delta))
    return max(0.0, math.nextafter(float((value / (alpha - 1)).b), math.inf))


def supremum(evaluate: Callable[[int, int], Array], highest: int, *, deciding: Sequence[int], finest: int) -> Array:
    """A bound for all m in [0, highest]; cells that matter at the `deciding` orders are split down to `finest`.

    `evaluate(a, b)` bounds every m of [a, b] (data processing: the b − a ambiguous reports are given away). A cell is
    settled if it is within 0.5 % of the value at m = 0; whatever it says is part of the bound in any case.
    """
    first = evaluate(0, 0)
    best = first.copy()
    stack = [(highest * i // 16 + (i > 0), highest * (i + 1) // 16) for i in range(16)] if highest else []
    while stack:
        a, b = stack.pop()
        if a > b:
            continue
        bound = evaluate(a, b)
        if np.all(bound[deciding] <= first[deciding] * SETTLED) or b - a <= finest:
            best = np.maximum(best, bound)
        else:
            stack += [(a, (a + b) // 2), ((a + b) // 2 + 1, b)]
    return best
