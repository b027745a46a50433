"""Exact moments of published sums given the maps, and of densities over the maps: written down anew.

Given the maps, F̃ = (2B̃ − n)R is a constant plus (2R/gain)(Σ_u Bern(π_u) + noise), independent over instances and users,
with π = speaks·½(1 + (1−2p)F) for the scaled feature F. Cumulants of independent numbers add: the second and fourth
of a bit are π(1−π) and π(1−π)(1 − 6π(1−π)), of Poisson noise λ and λ, of NB(r, p) rp/(1−p)² and
rp(1+4p+p²)/(1−p)⁴. Source: docs/proofs/error.md for what is claimed; nothing is shared with its code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from accounting import Plan

Floats = NDArray[np.float64]

FEATURE_VARIANCE = {
    "gaussian": 1.0,
    "inner-product": 0.0,
    "inner-product-signs": 2.0,
    "laplacian": 0.25,
    "exponential": 0.25,
}
"""Bounds on the variance of f(x)·g(y) over draws of one repetition (docs/proofs/error.md, "Data-free constants")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SumMoments:
    """Mean, variance and fourth cumulant of F̃ in every instance, given the maps."""

    mean: Floats
    variance: Floats
    fourth: Floats


def _negative_binomial(shape: float, p: float) -> tuple[float, float]:
    q = 1.0 - p
    return shape * p / q**2, shape * p * (1.0 + 4.0 * p + p * p) / q**4


def noise_cumulants(plan: Plan) -> tuple[float, float]:
    """Second and fourth cumulants of all users' noise in ones − zeros, or in the ones where zeros are not sent."""
    told = {name: float(value) for name, value in plan.parameters.items()}
    if plan.bitsum == "poisson":
        return told["total_mean"], told["total_mean"]
    if plan.bitsum == "negative-binomial":
        return _negative_binomial(told["shape"], told["continue_probability"])
    if plan.bitsum == "3nb":
        second, fourth = _negative_binomial(told["noise_shape"], told["continue_probability"])
        return 2.0 * second, 2.0 * fourth
    if plan.bitsum == "pure":
        second, fourth = _negative_binomial(1.0, math.exp(-told["noise_epsilon"]))
        return 2.0 * second, 2.0 * fourth
    return 0.0, 0.0


def sum_moments(plan: Plan, rows: NDArray[np.float32]) -> SumMoments:
    """Moments of F̃ for users (rows) with these scaled features f/R in all instances (columns)."""
    flip, silent = (float(plan.parameters.get(name, 0.0)) for name in ("flip_probability", "silence_probability"))
    gain, bound = (1.0 - 2.0 * flip) * (1.0 - silent), plan.request.facts().bound
    scaled = rows.astype(np.float64)
    reported = (1.0 - silent) * 0.5 * (1.0 + (1.0 - 2.0 * flip) * scaled)
    spread = reported * (1.0 - reported)
    second, fourth = noise_cumulants(plan)
    return SumMoments(
        mean=bound * scaled.sum(axis=0),
        variance=(2.0 * bound / gain) ** 2 * (spread.sum(axis=0) + second),
        fourth=(2.0 * bound / gain) ** 4 * ((spread * (1.0 - 6.0 * spread)).sum(axis=0) + fourth),
    )


def widest_variance(plan: Plan) -> float:
    """Bound on the variance of any F̃, whatever the features: a report varies by ¼ at most."""
    flip, silent = (float(plan.parameters.get(name, 0.0)) for name in ("flip_probability", "silence_probability"))
    factor = 2.0 * plan.request.facts().bound / ((1.0 - 2.0 * flip) * (1.0 - silent))
    return float(factor**2 * (plan.request.users / 4.0 + noise_cumulants(plan)[0]))


def kernel_values(name: str, x: Floats, y: Floats) -> Floats:
    """k(x, y) for every record (rows) and query (columns), at bandwidth 1.

    >>> kernel_values("gaussian", np.zeros((1, 2)), np.ones((1, 2))).round(4).tolist()
    [[0.1353]]
    """
    if name.startswith("inner-product"):
        return np.asarray(x @ y.T)
    distance = {"gaussian": "sqeuclidean", "laplacian": "cityblock", "exponential": "euclidean"}[name]
    return np.asarray(np.exp(-cdist(x, y, distance)))


def expected_density(plan: Plan, x: Floats, y: Floats) -> Floats:
    """E K̃(y): the mean of k over the records; of k + (1−k)/Q for a hashed kernel, whose buckets collide by chance."""
    name = plan.request.kernel
    density = np.asarray(np.mean(kernel_values(name, x, y), axis=0), dtype=np.float64)
    if name in ("laplacian", "exponential"):
        return np.asarray(density + (1.0 - density) / plan.request.facts().n_coordinates)
    return density
