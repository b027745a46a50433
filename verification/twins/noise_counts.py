"""Laws of one count of noise, Poisson or negative binomial, in every form that a check uses.

A count is all users' noise of one kind; the shares of the users are independent and add up to it. `law` is the noise
of a share of the users by SciPy, `mass` the definition at 40 digits, `certified` is in ball arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import mpmath
from scipy import stats

from accounting.errors import require_real
from verification.certified.balls import exact
from verification.certified.noise_laws import Masses, negative_binomial, poisson
from verification.exact.brute_force import DIGITS, Mass, precise_negative_binomial, precise_poisson


@dataclass(frozen=True, slots=True)
class PoissonCount:
    """Poisson(λ)."""

    mean: float

    def law(self, share: float) -> stats.rv_discrete:
        """Poisson(share·λ)."""
        return stats.poisson(share * self.mean)

    def mass(self) -> Mass:
        """e^{−λ} λ^j/j!."""
        return precise_poisson(self.mean)

    def certified(self, tail: float) -> Masses:
        """By the ratios λ/(j+1)."""
        return poisson(exact(self.mean), tail)


@dataclass(frozen=True, slots=True)
class NegativeBinomialCount:
    """NB(r, p), p the probability to continue; SciPy calls 1 − p by that letter."""

    shape: float
    p: Any
    """A double, or a number of mpmath."""

    def law(self, share: float) -> stats.rv_discrete:
        """NB(share·r, p)."""
        with mpmath.workdps(DIGITS):
            stop = float(1 - mpmath.mpf(self.p))
        return stats.nbinom(share * self.shape, stop)

    def mass(self) -> Mass:
        """C(j+r−1, j) (1−p)^r p^j."""
        return precise_negative_binomial(self.shape, self.p)

    def certified(self, tail: float) -> Masses:
        """By the ratios (j+r)p/(j+1)."""
        require_real("continue_probability", float(self.p), low=0.0, high=math.nextafter(1.0, 0.0))
        return negative_binomial(exact(self.shape), exact(float(self.p)), tail)


NoiseCount = PoissonCount | NegativeBinomialCount
