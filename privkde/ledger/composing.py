"""What the releases of one budget cost together."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

from accounting.releases import Release, Spent, spent
from privkde.ledger.records import Composition

REMEMBERED = 16


@lru_cache(maxsize=REMEMBERED)
def composed(releases: tuple[Release, ...], delta: float, composition: Composition) -> Spent:
    """ε of all releases together at δ; with `basic`, nothing else is claimed: the other ways are infinite.

    Remembered, so that a charge can compose before it locks the budget and need not do so again.
    """
    basic = basic_epsilon(releases, delta)
    if composition is Composition.BASIC:
        return Spent(delta=delta, basic=basic, advanced=math.inf, pld=math.inf)
    return dataclasses.replace(spent(releases, delta), basic=basic)


def basic_epsilon(releases: Sequence[Release], delta: float) -> float:
    """The sum of all ε if all δ together are at most `delta`, else infinite.

    Exact in the decimals that the numbers are printed as, so that ten times 0.1 is 1; only the result is rounded, up.
    """
    if sum((_decimal(one.guarantee.delta) for one in releases), Fraction()) > _decimal(delta):
        return math.inf
    total = sum((_decimal(one.guarantee.epsilon) for one in releases), Fraction())
    nearest = float(total)
    return nearest if _decimal(nearest) >= total else math.nextafter(nearest, math.inf)


def _decimal(value: float) -> Fraction:
    return Fraction(repr(float(value)))
