"""Published shuffle bounds in closed form: ε at δ of n shuffled reports, for replacing one user's input.

All but `cheu` know of the randomizer only that one report is ε₀-DP by itself, ε₀ = ln((1−p)/p).
"""

from __future__ import annotations

import math

from accounting.errors import InvalidInputError
from accounting.mechanisms import RandomizedResponse
from accounting.mechanisms.randomized_response import lemma_4_8_epsilon

MOST_ORDERS = 2_000
"""Rényi orders 2, 3, … that are tried."""


class OutsideDomainError(InvalidInputError):
    """The theorem says nothing about these parameters."""


def require_hypothesis(holds: bool, theorem: str, hypothesis: str) -> None:
    """Raise unless a hypothesis of a published theorem holds."""
    if not holds:
        raise OutsideDomainError(f"{theorem} asks for {hypothesis}, which fails here; use another bound.")


def local_epsilon(protocol: RandomizedResponse) -> float:
    """ε₀ of one report without a shuffler."""
    return protocol.local_guarantee().epsilon


def erlingsson(protocol: RandomizedResponse, delta: float) -> float:
    """12 ε₀ sqrt(ln(1/δ)/n).

    Source: Erlingsson, Feldman, Mironov, Raghunathan, Talwar, Thakurta 2019, the simplified form of Theorem 7.
    Requires: ε₀ < 1/2, n ≥ 1000, δ < 1/100.
    """
    name, users = "Erlingsson et al. 2019", protocol.n_users
    local = local_epsilon(protocol)
    require_hypothesis(local < 0.5, name, "a local ε below 1/2")
    require_hypothesis(users >= 1000 and delta < 0.01, name, "1000 users and δ < 1/100")
    return 12.0 * local * math.sqrt(math.log(1.0 / delta) / users)


def cheu(protocol: RandomizedResponse, delta: float) -> float:
    """The ε for which the published calibration prescribes this flip probability: binary randomized response only.

    The lemma goes from ε to p; this is its inverse, not a bound that the authors state.
    Source: Cheu, Smith, Ullman, Zeber, Zhilyaev 2019, Lemma 4.8; see `accounting.composition.paper`.
    Requires: 2np ≥ 14 ln(4/δ), the side condition of the theorem behind the lemma.
    """
    users, flip = protocol.n_users, protocol.flip_probability
    enough = 2.0 * users * flip >= 14.0 * math.log(4.0 / delta)
    require_hypothesis(enough, "Cheu et al. 2019", "2np ≥ 14 ln(4/δ)")
    return lemma_4_8_epsilon(flip, delta, users)


def clones_closed(protocol: RandomizedResponse, delta: float) -> float:
    """ln(1 + (e^{ε₀}−1)/(e^{ε₀}+1) · (8 sqrt(e^{ε₀} ln(4/δ)/n) + 8e^{ε₀}/n)).

    Source: Feldman, McMillan, Talwar 2021 (Hiding among the clones), Theorem 3.1.
    Requires: ε₀ ≤ ln(n/(16 ln(2/δ))): 2 here and 4 in the bound; the authors' code asks for 4 in both.
    """
    users, local = protocol.n_users, local_epsilon(protocol)
    enough = math.exp(local) <= users / (16.0 * math.log(2.0 / delta))
    require_hypothesis(enough, "clones 2021", "ε₀ ≤ ln(n/(16 ln(2/δ)))")
    spread = 8.0 * math.sqrt(math.exp(local) * math.log(4.0 / delta) / users) + 8.0 * math.exp(local) / users
    return math.log1p(math.tanh(local / 2.0) * spread)


def stronger_closed(protocol: RandomizedResponse, delta: float) -> float:
    """ln(1 + (e^{ε₀}−1)(4 sqrt(2 ln(4/δ)/((e^{ε₀}+1)n)) + 4/n)).

    Source: Feldman, McMillan, Talwar 2023 (Stronger privacy amplification by shuffling), Theorem 3.2. The errata in
    arXiv:2208.04591 restrict it to a class of randomizers; `clones.stronger_clones` says why it holds for binary ones.
    Requires: ε₀ ≤ ln(n/(8 ln(2/δ)) − 1).
    """
    users, local = protocol.n_users, local_epsilon(protocol)
    larger = math.exp(local) + 1.0
    require_hypothesis(larger <= users / (8.0 * math.log(2.0 / delta)), "clones 2023", "ε₀ ≤ ln(n/(8 ln(2/δ)) − 1)")
    spread = 4.0 * math.sqrt(2.0 * math.log(4.0 / delta) / (larger * users)) + 4.0 / users
    return math.log1p(math.expm1(local) * spread)


def girgis(protocol: RandomizedResponse, delta: float) -> float:
    """ε from `renyi_bound` at the best order λ: ε(λ) + ln((λ−1)/λ) − ln(δλ)/(λ−1).

    Source of the conversion: Canonne, Kamath, Steinke 2020, Proposition 12.
    """
    converted = (
        renyi_bound(protocol, order) + math.log1p(-1.0 / order) - math.log(delta * order) / (order - 1)
        for order in range(2, MOST_ORDERS)
    )
    return max(min(converted), 0.0)


def renyi_bound(protocol: RandomizedResponse, order: int) -> float:
    """Rényi divergence of order λ: ln(e^{λ²(e^{ε₀}−1)²/n̄} + e^{ε₀λ−(n−1)/(8e^{ε₀})})/(λ−1), n̄ = ⌊(n−1)/(2e^{ε₀})⌋ + 1.

    Why: except with probability e^{−(n−1)/(8e^{ε₀})} there are n̄ reports of one law, of which one user moves one; the
    likelihood ratio is then a mean of n̄ terms in [e^{−ε₀}, e^{ε₀}], whose moments Hoeffding's lemma bounds.
    Source: Girgis, Data, Diggavi, Suresh, Kairouz 2021 (On the Rényi DP of the shuffle model), their simplified
    bound. The longer one, a sum over moments, can be tighter and is not used here.
    """
    users, local = protocol.n_users, local_epsilon(protocol)
    alike = math.floor((users - 1) / (2.0 * math.exp(local))) + 1
    usual = order**2 * math.expm1(local) ** 2 / alike
    unlucky = local * order - (users - 1) / (8.0 * math.exp(local))
    larger, smaller = max(usual, unlucky), min(usual, unlucky)
    return (larger + math.log1p(math.exp(smaller - larger))) / (order - 1)
