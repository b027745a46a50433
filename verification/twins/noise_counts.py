"""Laws of one count of noise, Poisson or negative binomial, in every form that a check uses.

A count is all users' noise of one kind; the shares of the users are independent and add up to it. `table` is the noise
of a share of the users by SciPy, `mass` the definition at 40 digits, `certified` has an a-priori bound on its rounding,
and `cumulants` are the first, the second and the fourth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mpmath

from accounting.numerics.pmf import Pmf
from verification.certified.noise_laws import Masses, negative_binomial, poisson
from verification.exact.brute_force import DIGITS, Mass, precise_negative_binomial, precise_poisson
from verification.statistical.execution.count_laws import negative_binomial_table, poisson_table


@dataclass(frozen=True, slots=True)
class PoissonCount:
    """Poisson(λ). All its cumulants are λ."""

    mean: float

    def table(self, share: float, tail: float) -> Pmf:
        """Poisson(share·λ)."""
        return poisson_table(share * self.mean, tail=tail)

    def mass(self) -> Mass:
        """e^{−λ} λ^j/j!."""
        return precise_poisson(self.mean)

    def certified(self, tail: float) -> Masses:
        """By the ratios λ/(j+1)."""
        return poisson(self.mean, tail)

    def cumulants(self) -> tuple[float, float, float]:
        """λ each."""
        return self.mean, self.mean, self.mean


@dataclass(frozen=True, slots=True)
class NegativeBinomialCount:
    """NB(r, p), p the probability to continue; SciPy calls 1 − p by that letter."""

    shape: float
    p: Any
    """A double, or a number of mpmath."""

    def table(self, share: float, tail: float) -> Pmf:
        """NB(share·r, p)."""
        with mpmath.workdps(DIGITS):
            stop = float(1 - mpmath.mpf(self.p))
        return negative_binomial_table(share * self.shape, stop_probability=stop, tail=tail)

    def mass(self) -> Mass:
        """C(j+r−1, j) (1−p)^r p^j."""
        return precise_negative_binomial(self.shape, self.p)

    def certified(self, tail: float) -> Masses:
        """By the ratios (j+r)p/(j+1)."""
        return negative_binomial(float(self.shape), float(self.p), tail)

    def cumulants(self) -> tuple[float, float, float]:
        """rp/(1−p), rp/(1−p)² and rp(1+4p+p²)/(1−p)⁴."""
        r, p = self.shape, float(self.p)
        q = 1.0 - p
        return r * p / q, r * p / q**2, r * p * (1.0 + 4.0 * p + p * p) / q**4


NoiseCount = PoissonCount | NegativeBinomialCount
