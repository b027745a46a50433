"""Ball arithmetic: every number is a midpoint with a radius, and provably contains what it stands for.

The numbers are those of FLINT (Arb), through python-flint. Sums, products, functions and products of polynomials all
enlarge the radius by what they round. Nothing in this package rests on a pad.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flint import arb, arb_poly

from accounting import PrivkdeError

Ball = arb
Balls = list[arb]

ZERO, ONE = arb(0), arb(1)
MOST_COEFFICIENTS = 2_000_000
"""Of a product of polynomials."""
GUARD_BITS = 128
"""Bits beyond those that tell δ from zero: for cancellation in differences of profiles, and long products."""


class NotCertifiedError(PrivkdeError):
    """A law is too wide, or lacks what a proof needs: nothing is said about it."""


def exact(number: float) -> Ball:
    """A double, as the rational that it is."""
    return arb(number)


def above(ball: Ball) -> float:
    """A double that the number is at most."""
    return math.nextafter(float(ball.upper()), math.inf)


def below(ball: Ball) -> float:
    """A double that the number is at least."""
    return math.nextafter(float(ball.lower()), -math.inf)


def whole_below(ball: Ball) -> int:
    """An integer that the number is at least: the largest that is certain."""
    mantissa, exponent = (int(part) for part in ball.lower().man_exp())
    return mantissa << exponent if exponent >= 0 else mantissa >> -exponent  # towards minus infinity


def convolved(first: Balls, second: Balls) -> Balls:
    """Coefficients of a product of two polynomials, of full length even if the last ones vanish."""
    if len(first) + len(second) > MOST_COEFFICIENTS:
        raise NotCertifiedError(f"a composition needs more than {MOST_COEFFICIENTS:,} losses")
    if len(first) == 1:
        return [first[0] * x for x in second]
    if len(second) == 1:
        return [second[0] * x for x in first]
    product: Balls = (arb_poly(first) * arb_poly(second)).coeffs()
    return product + [ZERO] * (len(first) + len(second) - 1 - len(product))


def total(balls: Sequence[Ball]) -> Ball:
    """Their sum."""
    result = ZERO
    for ball in balls:
        result += ball
    return result
