"""How many messages one user can send, up to a probability that no number of a promise can show.

Chernoff: if E[e^{tX}] = e^{Λ(t)} in one instance, X summed over k instances is more than (kΛ(t) + a)/t with probability
at most e^{−a}, for every t > 0. Any t proves a bound, so that the search for a good one need not be exact.
Source: docs/proofs/limits.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

OVERLONG_EXPONENT = 900.0
"""An honest user's packet is too long with probability at most e^−900.

For all users, releases and ε that a request admits, n·releases·(1 + e^ε)·e^−900 is below 2^−1075: added to a δ, or to
0, it changes no bit of a float."""

_RATES = tuple(40.0 * 1.05**-step for step in range(880))
"""From 40 to 9e-18: the laws of all plans have their best t between, and moments that are finite at the last."""
_NEAREST = 0.999
"""How near t may come to where moments become infinite: rounding errors grow by 1/(1 − this)."""
_ROUNDING = 1e-9
"""Relative; a sum of a few positive terms, each computed to 1e-12."""


def most_messages(n_instances: int, log_moment: Callable[[float], float]) -> int:
    """A number that the messages of one user exceed with probability at most e^−900, where ln E[e^{tX}] is given.

    Requires: independent instances, and that `log_moment` is not below that of any bit (assumed).
    """
    bound = min((n_instances * log_moment(rate) + OVERLONG_EXPONENT) / rate for rate in _RATES)
    return math.ceil(bound * (1.0 + _ROUNDING))


def negative_binomial_moment(shape: float, odds: float, rate: float) -> float:
    """Ln E[e^{tX}] = −r ln(1 − (e^t − 1) p/(1−p)) of X ~ NB(r, p), by the odds p/(1−p); inf where it is, or nearly."""
    share = odds * math.expm1(rate)
    return -shape * math.log1p(-share) if share <= _NEAREST else math.inf


def poisson_moment(mean: float, rate: float) -> float:
    """Ln E[e^{tX}] = λ(e^t − 1) of X ~ Poisson(λ)."""
    return mean * math.expm1(rate)
