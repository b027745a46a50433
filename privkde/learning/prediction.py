"""The error of a planned density on data like a public sample, where the plan bounds it for any data.

How far f·g spreads over the draws depends on the data; a sample of public vectors that resemble the users' vectors
shows it. Source: docs/proofs/error.md.
"""

from __future__ import annotations

import math

import numpy as np

from accounting import Plan
from accounting.accuracy.density_error import PredictedError
from privkde.draws.randomness import new_public_seed
from privkde.kernels import KernelChoice, LsqFamily
from privkde.learning.baselines import admitted, exact_densities
from privkde.protocol.inputs import Rows
from privkde.protocol.model import Floats
from privkde.storage.user_blocks import Index, in_blocks


def expected_error(
    plan: Plan,
    sample: Rows,
    queries: Rows,
    *,
    bandwidth: float = 1.0,
    projection: int | None = None,
    public_seed: str | None = None,
) -> PredictedError:
    """Root-mean-square error of K̃(y) over the queries, for users who are distributed like the public `sample`.

    The maps are drawn as a collection draws them. With a_i(y) = f̄_i·g_i(y), where f̄ is the mean over the sample: the
    bias is that of ā; the variance of the features is Var_i(a)/I, that of rounding Σ_ij g_ij²(R² − mean f_ij²)/(nI²),
    that of privacy 4R²E²Σ_ij g_ij²/(nI)². With joint labels the sample stands for one class, everybody rounds in the
    instances of that class, and its estimated size adds its own error.
    """
    request = plan.request
    family = KernelChoice.planned(request, bandwidth=bandwidth, projection=projection).build(
        public_seed or new_public_seed()
    )
    everybody = np.arange(sample.shape[0])
    exact = exact_densities(family, sample, [everybody], queries)[:, 0]
    first, second = _moments(family, sample)
    features = family.query_features(admitted(family, queries, np.arange(queries.shape[0])))
    squares = np.square(features, dtype=np.float64)
    facts = request.facts()
    i, bound, n, size = facts.n_repetitions, facts.bound, request.users_per_protocol, request.users_per_density
    each = (features * first).reshape(len(features), i, -1).sum(axis=2)
    variance = plan.protocol().variance(n)
    rounding = squares @ (n * bound**2 - size * second) / (size * i) ** 2
    privacy = 4.0 * bound**2 * variance * np.sum(squares, axis=1) / (size * i) ** 2
    if request.joint:
        w = facts.size_weight
        rounding = rounding + exact**2 * n * (1.0 - w**2) / (4.0 * w**2 * size**2)
        privacy = privacy + exact**2 * variance / (w * size) ** 2
    spread = np.var(each, axis=1, ddof=1) / i if i > 1 else np.zeros(len(each))
    bias = (np.mean(each, axis=1) - exact) ** 2 if i == 1 else np.full(len(each), facts.bias**2)
    return PredictedError(bias=_root(bias), feature=_root(spread), rounding=_root(rounding), privacy=_root(privacy))


def _root(squared: Floats) -> float:
    return math.sqrt(float(np.mean(squared)))


def _moments(family: LsqFamily, sample: Rows) -> tuple[Floats, Floats]:
    """Mean and mean square of f_ij over the sample."""
    bound, n_instances = family.facts.bound, family.facts.n_instances

    def work(part: Index, start: int) -> Floats:
        scaled = family.scaled_features(admitted(family, sample, part)).astype(np.float64)
        return np.stack([bound * np.sum(scaled, axis=0), bound**2 * np.sum(scaled**2, axis=0)])

    first, second = np.sum(in_blocks(work, np.arange(sample.shape[0]), n_instances), axis=0) / sample.shape[0]
    return first, second
