"""What the releases of one budget cost together."""

from __future__ import annotations

import math
from functools import lru_cache

from accounting.releases import Release, Spent, basic_epsilon, spent
from privkde.ledger.records import Composition

REMEMBERED = 16


@lru_cache(maxsize=REMEMBERED)
def composed(releases: tuple[Release, ...], delta: float, composition: Composition) -> Spent:
    """ε of all releases together at δ; with `basic`, nothing else is claimed: the other ways are infinite.

    Remembered, so that a charge can compose before it locks the budget and need not do so again.
    """
    if composition is Composition.BASIC:
        return Spent(delta=delta, basic=basic_epsilon(releases, delta), advanced=math.inf, pld=math.inf)
    return spent(releases, delta)
