"""The certificate of Pure: its one-dimensional condition for every count, and the largest loss that was evaluated.

With a(u) = Σ_j x^{2j} P_F(u−j), x = e^{−ε'}, an instance is ε-DP if and only if for all u ≥ 0
(1−q)[1 − c·a(u−1)/a(u)] ≤ (e^ε−1)q·a(u+s)/a(u), c = e^{ε−ε'}. Both sides do not increase in u, so an interval of counts
is settled if the left side at its beginning is at most the right side at its end.
Source: docs/proofs/certificate.md, section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import mpmath
import numpy as np

from verification.certified.noise_laws import LossBounds, TooLargeError

MARGIN = 1e-9
"""Relative error of the quotients below: series of at most 10⁶ positive terms in double precision."""
MOST_INTERVALS = 20_000
LONGEST_SERIES = 1_000_000
NOT_DECIDED = "the condition of Pure was not found to hold everywhere: no upper bound is certified"


@dataclass
class Condition:
    """The two sides of the condition, and the largest loss seen on the way."""

    epsilon: float
    noise_epsilon: float
    silence: float
    base: int
    shape: float
    continuing: float
    largest_loss: float = 0.0
    kept: dict[int, tuple[float, float]] = field(default_factory=dict)

    def series(self, u: int) -> float:
        """a(u)/P_F(u) = Σ_j Π x²k/((r+k−1)p), k = u, …, u−j+1; the terms decrease."""
        length = min(u, LONGEST_SERIES)
        k = np.arange(u, u - length, -1.0)
        steps = math.exp(-2.0 * self.noise_epsilon) * k / ((self.shape + k - 1.0) * self.continuing)
        terms = np.cumprod(steps)
        if length < u and terms[-1] > MARGIN * 1e-9:
            raise TooLargeError(f"the series at count {u} has more than {LONGEST_SERIES:,} terms that matter")
        return 1.0 + float(np.sum(terms))

    def sides(self, u: int) -> tuple[float, float]:
        """(left, right) at u, without the margin."""
        if u not in self.kept:
            with mpmath.workdps(40):
                r, s = mpmath.mpf(self.shape), self.base
                rise = mpmath.loggamma(u + s + r) - mpmath.loggamma(u + r)
                rise += mpmath.loggamma(u + 1) - mpmath.loggamma(u + s + 1) + s * mpmath.log(self.continuing)
                ahead = float(mpmath.exp(rise))
            here = self.series(u)
            ahead *= self.series(u + s) / here  # a(u+s)/a(u)
            behind = (1.0 - 1.0 / here) * math.exp(2.0 * self.noise_epsilon)  # a(u−1)/a(u)
            q, x = self.silence, math.exp(-self.noise_epsilon)
            loss = math.log((q * ahead + 1.0 - q) / (q * ahead + (1.0 - q) * x * behind)) if behind or ahead else 0.0
            forward = math.log((q * ahead + (1.0 - q) / x) / (q * ahead + 1.0 - q))
            self.largest_loss = max(self.largest_loss, loss - 4.0 * MARGIN, forward - 4.0 * MARGIN)
            growth = math.exp(self.epsilon - self.noise_epsilon)
            self.kept[u] = ((1.0 - q) * (1.0 - growth * behind), math.expm1(self.epsilon) * q * ahead)
        return self.kept[u]

    def settled(self, a: int, b: int) -> bool:
        """Whether the condition holds for all u in [a, b], by monotonicity alone."""
        return self.sides(a)[0] + 4.0 * MARGIN <= self.sides(b)[1] * (1.0 - 4.0 * MARGIN)

    def holds(self) -> bool:
        """Whether it certainly holds for every u ≥ 0. If it fails by more than the margin, `largest_loss` shows it."""
        end = 1
        while self.sides(end)[0] > -4.0 * MARGIN:
            end *= 2
            if end > 10**12:
                return False
        stack, visited = [(0, end)], 0
        while stack:
            a, b = stack.pop()
            visited += 1
            if self.sides(a)[0] <= -4.0 * MARGIN or self.settled(a, b):
                continue
            if a == b or visited > MOST_INTERVALS:
                return False
            stack += [(a, (a + b) // 2), ((a + b) // 2 + 1, b)]
        return True

    def bounds(self) -> LossBounds:
        """For an adversary who knows which of the others were silent.

        The upper bound is None if the condition fails or was not decided here; it bounds what every adversary learns.
        The lower one is the largest loss that was evaluated: it exceeds the target if the condition fails by more than
        the margin.
        """
        valid = False
        try:
            valid = self.holds() and self.noise_epsilon <= self.epsilon and self.shape >= 1.0
            note = f"the condition of Pure was evaluated at {len(self.kept)} counts"
        except TooLargeError as error:
            note = str(error)
        return LossBounds(
            lower=self.largest_loss,
            upper=self.epsilon * (1.0 + 1e-12) if valid else None,
            notes=(note,) if valid else (note, NOT_DECIDED),
        )
