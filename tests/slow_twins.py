"""Slow twins that only tests need, on top of `verification.exact.rational_twins` and `brute_force`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np

from verification.exact.brute_force import DIGITS, Mass, Table, plane_table
from verification.exact.rational_twins import ExactPair, Law, sum_of_bits


def response_count(bits: Iterable[int], flip_probability: Fraction) -> Law:
    """Law of the shuffled output of randomized response, the number of reported ones, given all bits."""
    return sum_of_bits(1 - flip_probability if bit else flip_probability for bit in bits)


def response_pair(others: Sequence[int], flip_probability: Fraction) -> ExactPair:
    """(A_1, A_0): the shuffled output when the target's bit is 1 or 0 and the others hold `others`."""
    return ExactPair(
        upper=response_count([1, *others], flip_probability),
        lower=response_count([0, *others], flip_probability),
    )


def dominates(larger: ExactPair, smaller: ExactPair) -> bool:
    """Whether H_γ(larger) ≥ H_γ(smaller) for all γ ≥ 0, decided exactly (see `ExactPair.ratios`)."""
    kinks = {Fraction(0), *larger.ratios(), *smaller.ratios()}
    return all(larger.hockey_stick(gamma) >= smaller.hockey_stick(gamma) for gamma in kinks)


def compose(pairs: Iterable[ExactPair]) -> ExactPair:
    """The pair of product laws, by full enumeration; equal likelihood ratios are merged as they appear."""
    certain = (Fraction(1),)
    composed = ExactPair(upper=certain, lower=certain)
    for pair in pairs:
        small = pair.merged()
        composed = ExactPair(
            upper=tuple(p * x for p, x in itertools.product(composed.upper, small.upper)),
            lower=tuple(q * y for q, y in itertools.product(composed.lower, small.lower)),
        ).merged()
    return composed


def repeated_response_delta(flip_probability: Fraction, times: int, epsilon: float, *, digits: int = 60) -> Any:
    """δ(ε) of one bit sent `times` times by randomized response, as an mpmath number: the loss is binomial.

    δ(ε) = Σ_j max(P_j − e^ε P_{k−j}, 0) with P_j = C(k, j) p^{k−j}(1−p)^j, at the exact value of the float ε.
    """
    masses = _binomial_masses(flip_probability, times, digits + 20)
    with mpmath.workdps(digits + 20):
        growth = mpmath.exp(mpmath.mpf(epsilon))
        excesses = (upper - growth * lower for upper, lower in zip(masses, reversed(masses), strict=True))
        total = mpmath.fsum(excess for excess in excesses if excess > 0)
    with mpmath.workdps(digits):
        return +total


@cache
def _binomial_masses(p: Fraction, times: int, digits: int) -> tuple[Any, ...]:
    """C(k, j) p^{k−j}(1−p)^j for j = 0, …, k."""
    with mpmath.workdps(digits):
        flip = mpmath.mpf(p.numerator) / p.denominator
        return tuple(mpmath.binomial(times, j) * flip ** (times - j) * (1 - flip) ** j for j in range(times + 1))


@cache
def _masses(mass: Mass, length: int, digits: int) -> tuple[Any, ...]:
    """0, P(X = 0), …, P(X = length − 1)."""
    with mpmath.workdps(digits):
        return (mpmath.mpf(0), *(mass(j) for j in range(length)))


def shift_hockey_stick(mass: Mass, epsilon: float, length: int, *, digits: int = DIGITS) -> tuple[Any, Any]:
    """(H_{e^ε}(1 + X‖X), H_{e^ε}(X‖1 + X)) for X of law `mass`, summed over 0, …, length − 1 at `digits` digits."""
    with mpmath.workdps(digits):
        growth = mpmath.exp(mpmath.mpf(epsilon))
        pairs = list(itertools.pairwise(_masses(mass, length, digits)))  # (P(X = j − 1), P(X = j))
        up = mpmath.fsum(before - growth * here for before, here in pairs if before > growth * here)
        down = mpmath.fsum(here - growth * before for before, here in pairs if here > growth * before)
        return up, down


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneLaw:
    """Laws of (U, V) = (b + G1 + F, G2 + F) on {0, …, size − 1}², F, G1 and G2 independent, for b = 0 and b = 1."""

    zero: Table
    one: Table

    @staticmethod
    def of(noise: Table, flood: Table, size: int) -> PlaneLaw:
        """f_0 is `plane_table`, and f_1(u, v) = f_0(u−1, v)."""
        zero = plane_table(noise, flood, size)
        return PlaneLaw(zero=zero, one=np.vstack([np.zeros((1, size)), zero[:-1]]))

    def hockey_sticks(self, epsilon: float) -> tuple[float, float]:
        """H_{e^ε}(b=1‖b=0) and H_{e^ε}(b=0‖b=1) over the table: lower bounds."""
        growth = float(np.exp(epsilon))
        return (
            float(np.sum(np.maximum(self.one - growth * self.zero, 0.0))),
            float(np.sum(np.maximum(self.zero - growth * self.one, 0.0))),
        )


def missing(plane: PlaneLaw) -> float:
    """Mass that the larger of the two gaps leaves out of the tables."""
    return max(0.0, 1.0 - float(np.sum(plane.zero)), 1.0 - float(np.sum(plane.one)))


def losses(plane: PlaneLaw, difference: int) -> Table:
    """Ln f_1/f_0 along w = min(u, v) = 0, 1, … at fixed u − v = `difference`; −inf where b = 1 is impossible."""
    zero, one = np.diagonal(plane.zero, -difference), np.diagonal(plane.one, -difference)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(one) - np.log(zero))
