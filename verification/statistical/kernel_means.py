"""Try to refute that a family's feature products average to the kernel: E[f(x)·g(y)] = k, or k + (1−k)/Q if hashed.

The products of independent repetitions are bounded, so their mean is within an explicit distance of its expectation,
with a probability that holds for every number of samples. No normal approximation, no unknown variance.

Source: A. Maurer and M. Pontil, "Empirical Bernstein bounds and sample variance penalization", COLT 2009, Theorem 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from accounting.errors import InvalidInputError, require_real
from privkde.kernels import LsqFamily
from privkde.kernels.lsq_family import Float64

ROUNDING = 1e-5
"""Allowed for single precision, in units of the largest product: well above what features lose to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanCheck:
    """One claim "these samples lie in [low, high] and have this mean", held against the samples."""

    claimed: float
    estimate: float
    bound: float
    """If the claim is true, |estimate − claimed| exceeds this with probability at most `false_alarm_rate`."""
    samples: int
    outside: int
    """Samples outside [low, high]: one is enough to refute."""
    false_alarm_rate: float

    @property
    def deviation(self) -> float:
        """|estimate − claimed|."""
        return abs(self.estimate - self.claimed)

    @property
    def ratio(self) -> float:
        """The deviation over the bound; inf if a sample is out of range."""
        return math.inf if self.outside else self.deviation / self.bound

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted; if not, it is *not refuted*, which proves nothing."""
        return not self.ratio <= 1.0

    @property
    def smallest_defect(self) -> float:
        """A true mean farther than this from the claimed one is missed with probability at most `false_alarm_rate`.

        The estimate is within `bound` of the true mean whatever that is; so at twice the bound it is beyond it.
        """
        return 2.0 * self.bound


def empirical_bernstein(samples: Float64, *, width: float, failure_probability: float) -> float:
    """How far the mean of independent samples from an interval of this width may be from its expectation.

    √(2 V L/N) + 7 L width/(3(N−1)) with V the sample variance and L = ln(4/failure_probability), both sides together.
    """
    count = len(samples)
    if count < 2:
        raise InvalidInputError(f"samples={count} is too few for a variance; draw at least 2.")
    scale = math.log(4.0 / require_real("failure_probability", failure_probability, low=0.0, high=1.0))
    variance = float(np.var(samples, ddof=1))
    return math.sqrt(2.0 * variance * scale / count) + 7.0 * width * scale / (3.0 * (count - 1))


def check_mean(
    samples: Float64, *, claimed: float, low: float, high: float, false_alarm_rate: float, rounding: float = 0.0
) -> MeanCheck:
    """Hold independent samples against a claimed mean and range; `rounding` is added to the bound and the range."""
    bound = empirical_bernstein(samples, width=high - low, failure_probability=false_alarm_rate)
    inside = (samples >= low - rounding) & (samples <= high + rounding)
    return MeanCheck(
        claimed=claimed,
        estimate=float(np.mean(samples)),
        bound=bound + rounding,
        samples=len(samples),
        outside=int(np.count_nonzero(~inside)),
        false_alarm_rate=false_alarm_rate,
    )


def feature_products(family: LsqFamily, x: Float64, y: Float64) -> Float64:
    """f_i(x)·g_i(y) for each pair of rows and each repetition i: shape (pairs, I)."""
    facts = family.facts
    left = family.scaled_features(x).astype(np.float64) * facts.bound
    right = family.query_features(y)
    products: Float64 = (left * right).reshape(len(x), facts.n_repetitions, facts.n_coordinates).sum(axis=2)
    return products


def claimed_means(family: LsqFamily, x: Float64, y: Float64) -> Float64:
    """What E[f(x)·g(y)] is claimed to be for each pair of rows: k, or k + (1−k)/Q for hashed kernels."""
    kernel = np.diagonal(family.kernel(x, y))
    return kernel + (1.0 - kernel) / family.facts.n_coordinates if _hashed(family) else kernel


def _hashed(family: LsqFamily) -> bool:
    """Whether features are indicators of buckets. Linear features that are clipped have a bias, too."""
    return family.facts.bias > 0.0 and not family.facts.linear


def check_kernel_means(
    families: Iterable[LsqFamily],
    x: Float64,
    y: Float64,
    *,
    false_alarm_rate: float = 1e-9,
    largest: float | None = None,
) -> tuple[MeanCheck, ...]:
    """Check every pair of rows (x, y) on all repetitions of families that differ in their public seed only.

    Together the checks raise a false alarm at most at the stated rate. No product is beyond `largest` (default: R²S).

    Requires: independent seeds (assumed); no projection, whose repetitions are not independent (checked).
    """
    drawn = list(families)
    if len({family.choice for family in drawn}) != 1:
        raise InvalidInputError("the families must share one KernelChoice and differ in their public seed only.")
    family = drawn[0]
    if family.choice.projection is not None:
        raise InvalidInputError(
            f"projection={family.choice.projection}: its repetitions share one projection and are not independent;"
            " check the family without projection; the projection has a bound of its own (distortion_bound)."
        )
    products = np.concatenate([feature_products(member, x, y) for member in drawn], axis=1)
    most = family.facts.sparsity * family.facts.bound**2 if largest is None else largest
    return tuple(
        check_mean(
            samples,
            claimed=float(claimed),
            low=0.0 if _hashed(family) else -most,  # products of indicators are never negative
            high=most,
            false_alarm_rate=false_alarm_rate / len(x),
            rounding=ROUNDING * most,
        )
        for samples, claimed in zip(products, claimed_means(family, x, y), strict=True)
    )
