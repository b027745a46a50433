"""Slow twins: exact laws by enumeration, in rational arithmetic.

Nothing here shares code with `accounting`: no floating point, no grids, no windows, no transforms. A law is a
tuple of `Fraction`s that sum to exactly 1; a hockey stick is a finite sum of `Fraction`s. The price is time:
all of this is meant for a handful of users, outcomes and instances. Where a number is irrational (e^ε), the
caller passes a rational γ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

Law = tuple[Fraction, ...]
"""`law[i]` is the probability of outcome i."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactPair:
    """Two laws on the same outcomes.

    Requires: equally many outcomes, no negative mass, each law sums to exactly 1 (checked).
    """

    upper: Law
    lower: Law

    def __post_init__(self) -> None:
        if len(self.upper) != len(self.lower):
            raise ValueError(f"{len(self.upper)} outcomes above, {len(self.lower)} below: list the same outcomes")
        for law in (self.upper, self.lower):
            if sum(law) != 1 or min(law) < 0:
                raise ValueError(f"{law} is not a law: masses must be non-negative and sum to exactly 1")

    def reversed(self) -> ExactPair:
        """The same two laws in the other direction."""
        return ExactPair(upper=self.lower, lower=self.upper)

    def hockey_stick(self, gamma: Fraction) -> Fraction:
        """H_γ(upper‖lower) = Σ max(upper − γ·lower, 0).

        >>> quarter = Fraction(1, 4)
        >>> ExactPair(upper=(1 - quarter, quarter), lower=(quarter, 1 - quarter)).hockey_stick(Fraction(2))
        Fraction(1, 4)
        """
        return sum(
            (max(p - gamma * q, Fraction(0)) for p, q in zip(self.upper, self.lower, strict=True)),
            Fraction(0),
        )

    def ratios(self) -> tuple[Fraction, ...]:
        """The distinct finite likelihood ratios upper/lower in increasing order.

        γ ↦ H_γ is piecewise linear with kinks exactly here, so one pair dominates another for *every* γ if it
        does at 0 and at the ratios of both.
        """
        return tuple(sorted({p / q for p, q in zip(self.upper, self.lower, strict=True) if q}))

    def merged(self) -> ExactPair:
        """The pair after merging outcomes of equal likelihood ratio, which changes no hockey stick."""
        masses: dict[Fraction | None, tuple[Fraction, Fraction]] = {}
        for p, q in zip(self.upper, self.lower, strict=True):
            if p or q:
                ratio = p / q if q else None
                above, below = masses.get(ratio, (Fraction(0), Fraction(0)))
                masses[ratio] = (above + p, below + q)
        return ExactPair(upper=tuple(p for p, _ in masses.values()), lower=tuple(q for _, q in masses.values()))


def symmetric_hockey_stick(pairs: Iterable[ExactPair], gamma: Fraction) -> Fraction:
    """The largest H_γ over all pairs and both directions."""
    return max(max(pair.hockey_stick(gamma), pair.reversed().hockey_stick(gamma)) for pair in pairs)


def adaptive_hockey_stick(kinds: Sequence[ExactPair], times: int, gamma: Fraction) -> Fraction:
    """The largest H_γ of `times` instances, each one's kind and direction chosen after earlier outputs.

    φ_0(γ) = (1 − γ)₊ and φ_{j+1}(γ) = max over kinds and directions of Σ_x P(x) φ_j(γ Q(x)/P(x)).
    """
    directed = [
        [(p, q / p) for p, q in zip(pair.upper, pair.lower, strict=True) if p]
        for kind in kinds
        for pair in (kind.merged(), kind.reversed().merged())
    ]

    @cache
    def phi(left: int, at: Fraction) -> Fraction:
        if left == 0:
            return max(1 - at, Fraction(0))
        return max(sum((p * phi(left - 1, at * shrink) for p, shrink in pair), Fraction(0)) for pair in directed)

    return phi(times, gamma)


def sum_of_bits(probabilities: Iterable[Fraction]) -> Law:
    """Law of a sum of independent bits, by multiplying their generating polynomials (1 − q + q·x).

    >>> sum_of_bits([Fraction(1, 2), Fraction(1, 3)])
    (Fraction(1, 3), Fraction(1, 2), Fraction(1, 6))
    """
    law: list[Fraction] = [Fraction(1)]
    for q in probabilities:
        stay = [(1 - q) * mass for mass in law] + [Fraction(0)]
        move = [Fraction(0)] + [q * mass for mass in law]
        law = [a + b for a, b in zip(stay, move, strict=True)]
    return tuple(law)


def response_pairs(n_users: int, flip_probability: Fraction) -> list[ExactPair]:
    """(A_1, A_0), the reported ones when the target's bit is 1 or 0, for m = 0, …, n − 1 ones among the others."""
    stay = 1 - flip_probability
    counts = [sum_of_bits([stay] * m + [flip_probability] * (n_users - m)) for m in range(n_users + 1)]
    return [ExactPair(upper=counts[m + 1], lower=counts[m]) for m in range(n_users)]
