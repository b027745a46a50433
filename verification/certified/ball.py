"""Upper bound where the others' vectors lie in the unit ball: in all instances but one, their roundings are fair coins.

Source: docs/proofs/geometric.md, Theorem 2 (the statement); docs/proofs/certificate.md, section 4 (this computation).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from verification.certified import renyi
from verification.certified.noise_laws import Array, TwoLaws, binomial, shifted

SHARE, SHORTFALL = 0.501, 0.13
ORDERS: Array = np.concatenate([np.arange(1.5, 10.0, 0.5), np.geomspace(10.0, 400.0, 24)])
CONVERSION: Array = (ORDERS - 1.0) * np.log(ORDERS - 1.0) - ORDERS * np.log(ORDERS)
INTERVALS = 24
PAD = 1.0 + 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class Ball:
    """What the instances full of coins add, and the probability that some of them lack coins."""

    rates: Array
    bias: float
    """What rounding and missing mass may add to an exponent, for each unit of α."""
    spent: float
    """δ spent on cutting, on missing mass, and on too few coins."""
    squared_shift: float

    @staticmethod
    def of(n_users: int, instances: int, squared_shift: float, delta: float, tail: float) -> Ball:
        """At least N = ⌊0.87μ⌋ of the others toss fair coins in an instance, except with probability e^{−0.13²μ/2}."""
        mean = (n_users - 1) * (1.0 - math.sqrt(SHARE))
        coins = math.floor((1.0 - SHORTFALL) * mean)
        too_few = instances * math.exp(-(SHORTFALL**2) * mean / 2.0)
        if coins < 1:
            return Ball(rates=np.zeros(len(ORDERS)), bias=0.0, spent=1.0, squared_shift=squared_shift)
        pair = shifted(binomial(coins, 0.5, tail))
        linear = math.sqrt(instances * squared_shift)
        corners = renyi.corners(pair, largest=1.0, spare=renyi.CUT_SHARES[0] * delta / linear)[
            :2
        ]  # the law is symmetric
        edges = renyi.shift_edges(1.0)
        rates = np.max(np.stack([corner.rates(edges, ORDERS) for corner in corners]), axis=0)
        bias = instances * (pair.missing + 8.0 * pair.error)
        spent = too_few + linear * max(corner.lost for corner in corners) + bias
        return Ball(rates=rates, bias=4.0 * bias, spent=1.01 * spent, squared_shift=squared_shift)

    def rest(self, epsilon: Array, budget: float) -> Array:
        """δ(ε) of all instances with coins, for squared shifts up to `budget`."""
        exponents = (budget * self.rates + CONVERSION + self.bias * ORDERS)[:, None] - np.outer(ORDERS - 1.0, epsilon)
        return np.asarray(np.exp(np.minimum(0.0, np.min(exponents, axis=0))))

    def delta(self, pair: TwoLaws, epsilon: float) -> float:
        """A bound on δ(ε) for the data of the others that `pair` belongs to, over all shifts of the one instance."""
        edges = np.linspace(0.0, 1.0, INTERVALS + 1).tolist()
        worst = 0.0
        for x, y in ((pair.one, pair.zero), (pair.zero, pair.one)):
            seen = y > 0.0
            ratio, weights, infinite = x[seen] / y[seen], y[seen], float(np.sum(x[~seen]))
            for u, v in itertools.pairwise(edges):
                budget = max(0.0, self.squared_shift - u * u)
                grown = (1.0 - v) + v * ratio
                with np.errstate(divide="ignore"):
                    losses = np.log(grown)
                toward = v * infinite + float((weights * grown) @ self.rest(epsilon - losses, budget))
                away = float(weights @ self.rest(epsilon + losses, budget))
                worst = max(worst, toward, away)
        return min(1.0, PAD * (worst + pair.missing) + self.spent)
