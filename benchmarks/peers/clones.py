"""Shuffle bounds by clones, evaluated numerically: the pair of laws to which the theorems reduce any data.

Each of the n − 1 others sends, with some chance, a fair coin that could as well be the target's report. Let C of them
do so, A ~ Bin(C, 1/2), and D = 1 with probability e^{ε₀}/(e^{ε₀}+1). What is seen is no more telling than
(A + D, C − A + 1 − D) for one input of the target and (A + 1 − D, C − A + D) for the other.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from accounting.mechanisms import RandomizedResponse
from accounting.numerics.pmf import Array, Pmf, binomial
from accounting.numerics.profile import RELATIVE_PAD, smallest_epsilon
from benchmarks.peers.closed_forms import local_epsilon


def clones(protocol: RandomizedResponse, delta: float) -> float:
    """ε of the clone pair for any ε₀-DP randomizer: C ~ Bin(n−1, e^{−ε₀}).

    Source: Feldman, McMillan, Talwar 2021, Theorem 3.2.
    """
    return _epsilon(protocol, math.exp(-local_epsilon(protocol)), delta)


def stronger_clones(protocol: RandomizedResponse, delta: float) -> float:
    """ε of the clone pair with C ~ Bin(n−1, 2/(e^{ε₀}+1)): a report is a fair coin with probability 2p.

    Source: Feldman, McMillan, Talwar 2023, which the errata in arXiv:2208.04591 restrict to a class of randomizers. For
    binary randomized response it needs no theorem: tell the adversary who sent no coin, and what. The same pair is the
    blanket of Balle et al. 2019 with its expectation exact, and the variation-ratio reduction of Wang et al. 2023.
    """
    return _epsilon(protocol, 2.0 * protocol.flip_probability, delta)


def clone_delta(clone_count: Pmf, likely: float, epsilon: float) -> float:
    """H_{e^ε} of the clone pair, rounded up; either direction, by symmetry. `likely` is the probability that D = 1.

    Given C = c the ratio of the two laws of the first count a increases in a and exceeds e^ε from
    a > (c+1)(e^ε·likely − (1−likely))/((1+e^ε)(2·likely−1)) on.
    """
    unlikely, growth = 1.0 - likely, math.exp(epsilon)
    count = clone_count.start + np.arange(len(clone_count.values), dtype=np.float64)
    edge = (count + 1.0) * (growth * likely - unlikely) / ((1.0 + growth) * (likely - unlikely))
    first = np.floor(edge) + 1.0
    with_one, without = _coins_at_least(count, first - 1.0), _coins_at_least(count, first)
    upper = likely * with_one + unlikely * without
    excess = upper - growth * (unlikely * with_one + likely * without)
    found = float(np.dot(clone_count.values, np.maximum(excess, 0.0))) * (1.0 + RELATIVE_PAD)
    return min(1.0, found + clone_count.missing)


def _coins_at_least(count: Array, least: Array) -> Array:
    """P(Bin(count, 1/2) ≥ least)."""
    inside = (least >= 1.0) & (least <= count)
    low, high = np.where(inside, least, 1.0), np.where(inside, count - least + 1.0, 1.0)
    return np.where(inside, special.betainc(low, high, 0.5), np.where(least < 1.0, 1.0, 0.0))


def _epsilon(protocol: RandomizedResponse, clone_probability: float, delta: float) -> float:
    clone_count = binomial(protocol.n_users - 1, clone_probability)
    likely = 1.0 - protocol.flip_probability
    return smallest_epsilon(lambda epsilon: clone_delta(clone_count, likely, epsilon), delta)
