"""A filter for releases that are chosen after seeing all earlier ones, and what they have spent so far.

The filter fixes one order α and a split of δ when a budget is made. A release has a cut β, a log-moment ρ and a largest
loss λ after the cut. As long as, on every path of choices and outcomes,

    Σ β ≤ δ/2   and   (Σ ρ ≤ K  or  Σ λ ≤ ε),      K = (α−1)ε + ln(δ/2) − ln((α−1)^{α−1}/α^α),

everything that was shown is (ε, δ)-DP. Source: docs/proofs/releases.md, Theorems 3 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

from accounting.composition.shifted import conversion
from accounting.errors import require_real
from accounting.numerics.pmf import Array
from accounting.numerics.profile import RELATIVE_PAD
from accounting.releases.composing import basic_delta, basic_epsilon, exact_sum, finite
from accounting.releases.cut_curve import Ratios
from accounting.releases.release import Part, Release
from accounting.request import LEAST_DELTA

CUT_SHARE = 0.5
"""The part of δ that pays for cuts; the rest pays for the tail beyond ε at the order α."""
LARGEST_ORDER = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a release takes from a filter: mass cut off, ρ at the filter's order, the largest loss that is left."""

    cut: float = 0.0
    rho: float = 0.0
    largest_loss: float = 0.0

    @staticmethod
    def total(prices: Iterable[tuple[Price, int]]) -> Price:
        """All together, each so many times; sums are exact and rounded up."""
        known = list(prices)
        return Price(
            cut=exact_sum((price.cut, times) for price, times in known),
            rho=exact_sum((price.rho, times) for price, times in known),
            largest_loss=exact_sum((price.largest_loss, times) for price, times in known),
        )

    def to_json(self) -> dict[str, float | None]:
        """As plain JSON values; None for a loss without a bound."""
        return {"cut": self.cut, "rho": self.rho, "largest_loss": finite(self.largest_loss)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveFilter:
    """Which releases a promise of (ε, δ) still admits, if each may depend on the outcomes of all earlier ones.

    A first release that the rule above would not admit, but whose own ε and δ fit, is admitted with them. From then on
    ε and δ just add up: the *sum rule*. It was chosen before anything was seen, and so was the rule.
    """

    epsilon: float
    delta: float
    order: float

    def __post_init__(self) -> None:
        require_real("order", self.order, low=1.0, high=LARGEST_ORDER)

    @staticmethod
    def for_budget(epsilon: float, delta: float) -> AdaptiveFilter:
        """With the order that admits most of releases whose losses are close to normal: ρ = α(α−1)s/2, s largest."""
        if not AdaptiveFilter(epsilon=epsilon, delta=delta, order=2.0).has_tail:
            return AdaptiveFilter(epsilon=epsilon, delta=delta, order=2.0)  # only largest losses count

        def admitted(log_excess: float) -> float:
            order = 1.0 + math.exp(log_excess)
            return AdaptiveFilter(epsilon=epsilon, delta=delta, order=order).allowance / (order * (order - 1.0))

        ends = (math.log(1e-3), math.log(LARGEST_ORDER / 2.0))
        best = scipy.optimize.minimize_scalar(lambda x: -admitted(x), bounds=ends, method="bounded")
        return AdaptiveFilter(epsilon=epsilon, delta=delta, order=round(1.0 + math.exp(float(best.x)), 6))

    @property
    def cut_allowance(self) -> float:
        """What all cuts together may take."""
        return CUT_SHARE * self.delta

    @property
    def allowance(self) -> float:
        """K: what all ρ together may take."""
        return (self.order - 1.0) * self.epsilon + self._tail - float(conversion(np.array([self.order]))[0])

    @property
    def _tail(self) -> float:
        """Ln of the part of δ that pays for the tail beyond ε."""
        return math.log((1.0 - CUT_SHARE) * self.delta) if self.has_tail else -math.inf

    @property
    def has_tail(self) -> bool:
        """Whether a part of δ is left for a tail; if not, only releases with δ = 0 are admitted."""
        return self.delta >= LEAST_DELTA

    def price(self, release: Release) -> Price:
        """Of all parts and times of a release."""
        return Price.total((_price(self, part), release.times) for part in release.parts)

    def _total(self, releases: Sequence[Release], paid: Sequence[Price]) -> Price:
        return Price.total((price, 1) for price in (*paid, *map(self.price, releases[len(paid) :])))

    def by_sums(self, releases: Sequence[Release], paid: Sequence[Price] = ()) -> bool:
        """Whether the first release brought in the sum rule."""
        first = releases[:1]
        return self._by_price(first, paid[:1]) > self.epsilon and basic_epsilon(first, self.delta) <= self.epsilon

    def spent(self, releases: Sequence[Release], paid: Sequence[Price] = ()) -> float:
        """The ε for which these releases would have been admitted; infinite if δ does not suffice for any.

        It is an odometer: it holds with δ whenever one stops to read it. `paid` are prices of the first releases that
        were fixed when they were charged; the others are priced now. Source: docs/proofs/releases.md, Theorem 4.
        """
        if self.by_sums(releases, paid):
            return basic_epsilon(releases, self.delta)
        return self._by_price(releases, paid)

    def _by_price(self, releases: Sequence[Release], paid: Sequence[Price]) -> float:
        total = self._total(releases, paid)
        if total.cut > self.cut_allowance:
            return math.inf
        needed = self.epsilon + (total.rho - self.allowance) / (self.order - 1.0)
        return min(total.largest_loss, max(0.0, math.nextafter(needed, math.inf)))

    def delta_spent(self, releases: Sequence[Release], paid: Sequence[Price] = ()) -> float:
        """δ at the whole ε: what is cut off, and the tail beyond ε; at most 1."""
        if self.by_sums(releases, paid):
            return basic_delta(releases) if basic_epsilon(releases, 1.0) <= self.epsilon else 1.0
        total = self._total(releases, paid)
        tail = 0.0
        if total.largest_loss > self.epsilon:
            tail = math.exp(min(0.0, total.rho - self.allowance + self._tail)) if self.has_tail else 1.0
        return min(1.0, total.cut + tail)


@lru_cache(maxsize=256)
def _price(rule: AdaptiveFilter, part: Part) -> Price:
    """The cheapest cut of a part: the one that takes the smallest share of both allowances together."""
    cuts, rhos, largest = _profile_cuts(rule, part)
    curved = np.array([[curve.cut, float(curve.at(np.array([rule.order]))[0])] for curve in part.curves]).reshape(-1, 2)
    cuts, rhos = np.append(cuts, curved[:, 0]), np.append(rhos, curved[:, 1])
    largest = np.append(largest, np.full(len(curved), math.inf))
    if not rule.has_tail:
        best = int(np.argmin(np.where(cuts == 0.0, largest, math.inf)))
    elif rule.allowance <= 0.0:  # no ρ is admitted
        best = int(np.argmin(cuts / rule.cut_allowance + largest / rule.epsilon))
    else:
        best = int(np.argmin(cuts / rule.cut_allowance + rhos / rule.allowance))
    return Price(cut=float(cuts[best]), rho=float(rhos[best]), largest_loss=float(largest[best]))


def _profile_cuts(rule: AdaptiveFilter, part: Part) -> tuple[Array, Array, Array]:
    """For a cut at each point of the profile: the mass cut off, ρ at the filter's order, and the largest loss left.

    ρ is at most α − 1 times the largest loss.
    """
    epsilons, deltas = part.profile.columns()
    ratios, order = Ratios.of(part.profile), np.array([rule.order])
    rhos = np.array([float(ratios.log_moments(order, epsilon)[0]) for epsilon in epsilons])
    most = (rule.order - 1.0) * epsilons * (1.0 + RELATIVE_PAD)
    return deltas, np.clip(rhos, 0.0, most), epsilons
