"""Is the mean of samples what was claimed, given only a bound on their variances? Exact level, any tails.

With ψ(x) = sign(x) ln(1 + |x| + x²/2) both e^{ψ(x)} ≤ 1 + x + x²/2 and e^{−ψ(x)} ≤ 1 − x + x²/2 hold. So for
independent X_i of mean m_i and variance at most v_i, E exp(±Σψ(s(X_i − m_i))) ≤ exp(s²Σv_i/2), and by Markov's
inequality |Σψ| exceeds s²Σv_i/2 + ln(2/α) with probability at most α. With s² = 2 ln(2/α)/Σv_i the limit is 2 ln(2/α).

Source: O. Catoni, "Challenging the empirical mean and empirical variance", 2012, whose estimator rests on the same ψ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidInputError, require_real

Floats = NDArray[np.float64]

MISSED = 0.01
"""Chance with which a defect called detectable may still be missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanTest:
    """Outcome of one test. If the claim is true, `ratio` exceeds 1 with probability at most alpha."""

    what: str
    ratio: float
    deviation: float
    """Mean of the samples minus the claimed mean, for the reader; the test does not use it."""
    smallest_defect: float
    """A common shift of all means by this much (variances unchanged) is missed with a chance of at most `MISSED`."""


def influence(x: Floats) -> Floats:
    """ψ(x) = sign(x) ln(1 + |x| + x²/2).

    >>> influence(np.array([0.0, 1.0, -1.0])).round(4).tolist()
    [0.0, 0.9163, -0.9163]
    """
    size = np.abs(x)
    return np.sign(x) * np.log1p(size + 0.5 * size * size)


def mean_test(
    what: str, samples: Floats, means: Floats | float, variances: Floats | float, alpha: float, *, slack: float = 0.0
) -> MeanTest:
    """Hold independent samples against claimed means, with bounds on their variances.

    True means may be off by up to `slack`: Σψ falls with the claimed mean, so it is tested at both ends.
    A variance of 0 is a claim of certainty: any deviation beyond rounding refutes.
    """
    limit = math.log(2.0 / require_real("alpha", alpha, low=0.0, high=1.0))
    deviations = (samples - means).reshape(-1)
    total = float(np.sum(np.broadcast_to(variances, samples.shape)))
    if len(deviations) == 0:
        raise InvalidInputError("no samples were given; draw some.")
    mean = float(np.mean(deviations))
    if total <= 0.0:
        return MeanTest(what=what, ratio=0.0 if abs(mean) < 1e-6 else math.inf, deviation=mean, smallest_defect=1e-6)
    scale = math.sqrt(2.0 * limit / total)
    above, below = (float(np.sum(influence(scale * (sign * deviations - slack)))) for sign in (1.0, -1.0))
    shown = max(above, below, 0.0)
    return MeanTest(
        what=what,
        ratio=shown / (2.0 * limit) if math.isfinite(shown) else math.inf,
        deviation=mean,
        smallest_defect=slack + _smallest_defect(len(deviations), scale, limit),
    )


def _smallest_defect(count: int, scale: float, limit: float) -> float:
    """Shift b with N(sb − s²b²/2) ≥ 3L + L', L' = ln(1/MISSED): then Σψ exceeds 2L but with probability `MISSED`.

    From E exp(−Σψ) ≤ exp(−N(sb − s²(v + b²)/2)) for samples of mean m + b; inf if there are too few samples.
    """
    needed = 2.0 * (3.0 * limit - math.log(MISSED)) / count
    return (1.0 - math.sqrt(1.0 - needed)) / scale if needed < 1.0 else math.inf


def smallest_stretch(count: int, mean_variance: float, alpha: float) -> float:
    """Relative increase d of a variance that a test of squares finds but with probability `MISSED`; inf if none.

    The samples are squares with the claimed mean 1 and variances v_i, `mean_variance` on average. If all errors are
    stretched so that the mean becomes 1 + d, their variances become (1+d)²v_i, and as in `_smallest_defect`
    Nsd − L(1+d)² − Ns²d²/2 ≥ 2L + L' suffices. The smallest such d is returned; it holds for larger ones as well, since
    ψ increases and so does every stretched square.
    """
    limit = math.log(2.0 / alpha)
    square = limit * (1.0 + 1.0 / mean_variance)
    linear = math.sqrt(2.0 * limit * count / mean_variance) - 2.0 * limit
    discriminant = linear**2 - 4.0 * square * (3.0 * limit - math.log(MISSED))
    return (linear - math.sqrt(discriminant)) / (2.0 * square) if linear > 0.0 and discriminant >= 0.0 else math.inf
