"""Laws of one count of noise, Poisson or negative binomial, in every form that a check uses."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import mpmath

from accounting.numerics.pmf import Pmf
from verification.certified.noise_laws import Masses, negative_binomial, poisson
from verification.exact.brute_force import DIGITS, Mass, precise_negative_binomial, precise_poisson
from verification.statistical.execution.count_laws import negative_binomial_table, poisson_table


class NoiseCount(abc.ABC):
    """All users' noise of one kind; the shares of the users are independent and add up to it."""

    __slots__ = ()

    @abc.abstractmethod
    def table(self, share: float, tail: float) -> Pmf:
        """The noise of this share of the users, by SciPy."""

    @abc.abstractmethod
    def mass(self) -> Mass:
        """From its definition, at 40 digits."""

    @abc.abstractmethod
    def certified(self, tail: float) -> Masses:
        """With an a-priori bound on its rounding."""

    @abc.abstractmethod
    def cumulants(self) -> tuple[float, float, float]:
        """The first, the second and the fourth."""


@dataclass(frozen=True, slots=True)
class PoissonCount(NoiseCount):
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
class NegativeBinomialCount(NoiseCount):
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
