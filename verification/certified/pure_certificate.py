"""The certificate of Pure: its one-dimensional condition for every count, in ball arithmetic.

With a(u) = Σ_j x^{2j} P_F(u−j), x = e^{−ε'}, an instance is ε-DP if and only if for all u ≥ 0
(1−q)[1 − c·a(u−1)/a(u)] ≤ (e^ε−1)q·a(u+s)/a(u), c = e^{ε−ε'}. Both sides do not increase in u, so an interval of counts
is settled if the left side at its beginning is at most the right side at its end.
Source: docs/proofs/certificate.md, section 5; docs/proofs/pure.md, Theorem 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from accounting.errors import require_integer, require_real
from verification.certified.balls import ONE, ZERO, Ball, NotCertifiedError, below, exact
from verification.certified.noise_laws import LossBounds

MOST_INTERVALS = 20_000
LONGEST_SERIES = 1_000_000
LARGEST_COUNT = 10**12
NEGLIGIBLE = 2.0**-200
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
    kept: dict[int, tuple[Ball, Ball]] = field(default_factory=dict)

    def series(self, u: int) -> Ball:
        """a(u)/P_F(u) = Σ_j Π x²k/((r+k−1)p), k = u, …, u−j+1: factors fall with k, so what is left is geometric."""
        square, r, p = (-2 * exact(self.noise_epsilon)).exp(), exact(self.shape), exact(self.continuing)
        value, term = ONE, ONE
        for j, k in enumerate(range(u, 0, -1)):
            factor = square * k / ((r + (k - 1)) * p)
            term *= factor
            value += term
            if factor < ONE and float(term) < NEGLIGIBLE:
                rest = (term * factor / (ONE - factor)).abs_upper()
                return value.union(value + rest)
            if j > LONGEST_SERIES:
                raise NotCertifiedError(f"the series at count {u} has more than {LONGEST_SERIES:,} terms that matter")
        return value

    def sides(self, u: int) -> tuple[Ball, Ball]:
        """(left, right) at u."""
        if u not in self.kept:
            r, s, epsilon = exact(self.shape), self.base, exact(self.epsilon)
            rise = (r + (u + s)).lgamma() - (r + u).lgamma() + s * exact(self.continuing).log()
            rise += exact(u + 1).lgamma() - exact(u + s + 1).lgamma()
            here = self.series(u)
            ahead = rise.exp() * self.series(u + s) / here  # a(u+s)/a(u)
            behind = (ONE - ONE / here) * (2 * exact(self.noise_epsilon)).exp() if u else ZERO  # a(u−1)/a(u)
            q, x = exact(self.silence), (-exact(self.noise_epsilon)).exp()
            loss = ((q * ahead + ONE - q) / (q * ahead + (ONE - q) * x * behind)).log()
            forward = ((q * ahead + (ONE - q) / x) / (q * ahead + ONE - q)).log()
            self.largest_loss = max(self.largest_loss, below(loss), below(forward))
            growth = (epsilon - exact(self.noise_epsilon)).exp()
            self.kept[u] = ((ONE - q) * (ONE - growth * behind), epsilon.expm1() * q * ahead)
        return self.kept[u]

    def settled(self, a: int, b: int) -> bool:
        """Whether the condition holds for all u in [a, b], by monotonicity alone."""
        left = self.sides(a)[0]
        return bool(left <= ZERO or left <= self.sides(b)[1])

    def holds(self) -> bool:
        """Whether it certainly holds for every u ≥ 0."""
        end = 1
        while not self.sides(end)[0] <= ZERO:
            end *= 2
            if end > LARGEST_COUNT:
                return False
        stack, visited = [(0, end)], 0
        while stack:
            a, b = stack.pop()
            visited += 1
            if self.settled(a, b):
                continue
            if a == b or visited > MOST_INTERVALS:
                return False
            stack += [(a, (a + b) // 2), ((a + b) // 2 + 1, b)]
        return True

    def bounds(self) -> LossBounds:
        """For an adversary who knows which of the others were silent.

        The upper bound is None if the condition fails or was not decided here; it bounds what every adversary learns.
        The lower one is the largest loss that was evaluated: it exceeds the target if the condition fails there.
        """
        self._require_hypotheses()
        valid = False
        try:
            valid = self.holds() and self.noise_epsilon <= self.epsilon
            note = f"the condition of Pure was evaluated at {len(self.kept)} counts"
        except NotCertifiedError as error:
            note = str(error)
        return LossBounds(
            lower=self.largest_loss,
            upper=self.epsilon if valid else None,
            notes=(note,) if valid else (note, NOT_DECIDED),
        )

    def _require_hypotheses(self) -> None:
        """Those of docs/proofs/pure.md but ε' ≤ ε, without which these are not laws, or not log-concave."""
        below_one = math.nextafter(1.0, 0.0)
        require_real("silence_probability", self.silence, low=0.0, high=below_one)
        require_real("flood_continue_probability", self.continuing, low=0.0, high=below_one)
        require_real("noise_epsilon", self.noise_epsilon, low=0.0, high=math.inf)
        require_real("flood_shape", self.shape, low=1.0, high=math.inf, low_open=False)
        require_integer("base_messages", self.base, low=0, high=LARGEST_COUNT)
