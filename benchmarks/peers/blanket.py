"""The privacy blanket (Balle, Bell, Gascón, Nissim 2019): a share γ of all reports does not depend on the data.

With reports W_i of the blanket's law ω and L_i = (R_x(W_i) − e^ε R_x'(W_i))/ω(W_i), whose mean is 1 − e^ε,
δ(ε) ≤ 1/(γn) · Σ_m C(n, m) γ^m (1−γ)^{n−m} E[L_1 + … + L_m]_+ (Lemma 5.3). The expectation is bounded by a
concentration inequality, which asks for facts about L.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from accounting.mechanisms import RandomizedResponse
from accounting.numerics.pmf import binomial
from accounting.numerics.profile import smallest_epsilon
from benchmarks.peers.closed_forms import local_epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class Blanket:
    """What a concentration inequality knows of a randomizer at one ε."""

    weight: float
    """γ, or less."""
    spread: float
    """max L − min L, or more."""
    largest: float
    """max L, or more."""
    second_moment: float
    """E L², or more."""

    @staticmethod
    def of_any(protocol: RandomizedResponse, epsilon: float) -> Blanket:
        """Any ε₀-DP randomizer: γ ≥ e^{−ε₀}, and R_x/ω is between γ and γe^{ε₀}, has mean 1, and γ ≤ 1.

        Hence L ≤ e^{ε₀} − e^ε, L spreads by at most (e^ε+1)(e^{ε₀}−1), and
        E L² ≤ e^{ε₀}(1+e^{2ε}) − 2e^{ε−ε₀}. Balle et al. take R_x/ω between e^{−ε₀} and e^{ε₀}, which gives the larger
        spread (e^ε+1)(e^{ε₀}−e^{−ε₀}); the smaller one favors them.
        """
        local = local_epsilon(protocol)
        growth, most = math.exp(epsilon), math.exp(local)
        return Blanket(
            weight=1.0 / most,
            spread=(growth + 1.0) * (most - 1.0),
            largest=most - growth,
            second_moment=most * (1.0 + growth**2) - 2.0 * growth / most,
        )

    @staticmethod
    def of_randomized_response(protocol: RandomizedResponse, epsilon: float) -> Blanket:
        """Binary randomized response: γ = 2p, ω is a fair coin, L is 2(1−p) − 2pe^ε or 2p − 2(1−p)e^ε."""
        p, growth = protocol.flip_probability, math.exp(epsilon)
        high, low = 2.0 * (1.0 - p) - 2.0 * p * growth, 2.0 * p - 2.0 * (1.0 - p) * growth
        return Blanket(weight=2.0 * p, spread=high - low, largest=high, second_moment=(high**2 + low**2) / 2.0)


Kind = Callable[[RandomizedResponse, float], Blanket]


def hoeffding(protocol: RandomizedResponse, delta: float, kind: Kind) -> float:
    """ε by Hoeffding's inequality: E[ΣL]_+ ≤ b²/(4a) e^{−2ma²/b²} with a = e^ε − 1 and b the spread.

    Source: Balle et al. 2019, Lemma 5.5; the sum over m is a binomial moment in closed form.
    """

    def delta_at(epsilon: float) -> float:
        a, blanket = math.expm1(epsilon), kind(protocol, epsilon)
        if a == 0.0 or blanket.largest <= 0.0:
            return 1.0 if a == 0.0 else 0.0
        decay = math.expm1(-2.0 * (a / blanket.spread) ** 2)
        scale = blanket.spread**2 / (4.0 * a * blanket.weight * protocol.n_users)
        return min(1.0, scale * math.exp(protocol.n_users * math.log1p(blanket.weight * decay)))

    return smallest_epsilon(delta_at, delta)


def bennett(protocol: RandomizedResponse, delta: float, kind: Kind) -> float:
    """ε by Bennett's inequality: E[ΣL]_+ ≤ b/ln(1+u) · e^{−m(c/b²)φ(u)}, u = ab/c, φ(u) = (1+u)ln(1+u) − u.

    With a = e^ε − 1, L ≤ b and E L² ≤ c: the tail of ΣL beyond s is at most e^{−m(c/b²)φ(b(s/m + a)/c)}, and φ lies
    above its tangent at u. Source: Balle et al. 2019, Section 5.3.
    """
    count = binomial(protocol.n_users, kind(protocol, 0.0).weight)
    members = count.start + np.arange(len(count.values), dtype=np.float64)

    def delta_at(epsilon: float) -> float:
        a, blanket = math.expm1(epsilon), kind(protocol, epsilon)
        b, c = blanket.largest, blanket.second_moment
        if a == 0.0 or b <= 0.0:
            return 1.0 if a == 0.0 else 0.0
        u = a * b / c
        rate = c / b**2 * ((1.0 + u) * math.log1p(u) - u if u > 1e-4 else u**2 / 2.0 - u**3 / 6.0)
        expected = float(np.dot(count.values, np.exp(-rate * members))) + count.missing
        return min(1.0, b / math.log1p(u) * expected / (blanket.weight * protocol.n_users))

    return smallest_epsilon(delta_at, delta)
