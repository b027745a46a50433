"""The error of a planned density on data like a public sample, where the plan bounds it for any data.

How far f·g spreads over the draws depends on the data; a sample of public vectors that resemble the users' vectors
shows it. Source: docs/proofs/error.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError, Plan
from accounting.accuracy.density_error import PredictedError
from accounting.classifier_model import DENSITY
from accounting.mechanisms import BitsumProtocol
from accounting.record_vector import RecordVector
from accounting.request import PlanRequest
from privkde.draws.randomness import new_public_seed
from privkde.kernels import KernelChoice, LsqFamily
from privkde.learning.baselines import admitted, admitted_queries, exact_densities
from privkde.protocol.inputs import Rows
from privkde.protocol.linear_rule import LinearRule, Published
from privkde.protocol.model import Floats
from privkde.storage.user_blocks import Index, in_blocks

ACCURACY_DRAWS = 5
"""Parts of a labeled sample, each of which is classified once."""
FEW_ROWS = 10
"""Second moments in d dimensions are known badly from fewer rows than this times d."""


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
    instances of that class, and its estimated size adds its own error; where whole records are rotated, sums and sizes
    are off by `RecordLayout.noise_deviation`.
    """
    request = plan.request
    if request.record is not None:
        return _record_error(plan, request.record, sample, queries)
    family = KernelChoice.planned(request, bandwidth=bandwidth, projection=projection).build(
        public_seed or new_public_seed()
    )
    everybody = np.arange(sample.shape[0])
    exact = exact_densities(family, sample, [everybody], queries)[:, 0]
    first, second = feature_moments(family, sample, everybody)
    features = family.query_features(admitted_queries(family, queries))
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


def _record_error(plan: Plan, record: RecordVector, sample: Rows, queries: Rows) -> PredictedError:
    """x·y of a class with an even share of the users: sums are off by s, sizes by s/γ, in each coordinate."""
    family, bound = KernelChoice.planned(plan.request).build(new_public_seed()), plan.request.facts().bound
    n, size = plan.request.users, plan.request.users_per_density
    exact = exact_densities(family, sample, [np.arange(sample.shape[0])], queries)[:, 0]
    vectors = admitted_queries(family, queries).astype(np.float64)
    spread = (np.sum(vectors**2, axis=1) + exact**2 / record.size_weight) / size**2
    rounding = spread * record.noise_deviation(bound, n, 0.0) ** 2
    privacy = spread * record.noise_deviation(bound, n, plan.protocol().variance(n)) ** 2 - rounding
    return PredictedError(bias=0.0, feature=0.0, rounding=_root(rounding), privacy=_root(privacy))


def expected_accuracy(
    request: PlanRequest, protocol: BitsumProtocol, sample: Rows, labels: NDArray[Any], *, seed: int = 0
) -> float:
    """How often a planned classifier would be right, for users who are distributed like a public, labeled sample.

    Each fifth of the sample is classified in turn. The rest stands for the users: its class sums, sizes and second
    moments are scaled to their number, and get normal noise of the planned size. Where the rest has few rows
    (`small_sample`), its moments are far from those of more users, and the discriminant's accuracy is expected too low.
    """
    record, n = request.record, request.users
    if record is None:
        raise InvalidInputError("the plan does not rotate whole records; plan joint labels with 'inner-product'.")
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) != request.classes or numbers.shape != (sample.shape[0],):
        raise InvalidInputError(
            f"the sample has {sample.shape[0]} rows and labels of shape {numbers.shape} with {len(classes)} classes;"
            f" give one label for each row, and vectors of all {request.classes} classes."
        )
    family = KernelChoice.planned(request).build(new_public_seed())
    vectors = admitted(family, sample, np.arange(sample.shape[0])).astype(np.float64)
    deviation = record.noise_deviation(request.facts().bound, n, protocol.variance(n))
    random, right = np.random.default_rng(seed), []
    order = random.permutation(len(vectors))
    for asked in np.array_split(order, min(ACCURACY_DRAWS, len(order))):
        known = np.setdiff1d(order, asked)
        published = _forecast(record, n, deviation, vectors[known], numbers[known], random)
        if request.model == DENSITY:
            scores = vectors[asked] @ (published.sums / np.maximum(published.sizes, 1.0)[:, None]).T
        else:
            scores = LinearRule.of(published).scores(vectors[asked])
        right.append(np.argmax(scores, axis=1) == numbers[asked])
    return float(np.mean(np.concatenate(right)))


def small_sample(n_rows: int, dim: int) -> str | None:
    """A caution if `expected_accuracy` knows second moments from too few rows to compare models; None if it does not.

    With fewer rows than about ten for each dimension the order of the models may be wrong.
    """
    known = n_rows - math.ceil(n_rows / ACCURACY_DRAWS)
    if known >= FEW_ROWS * dim:
        return None
    needed = math.ceil(FEW_ROWS * dim * ACCURACY_DRAWS / (ACCURACY_DRAWS - 1))
    return (
        f"caution: {n_rows:,} public rows are few for {dim} dimensions. The discriminant's accuracy is expected too"
        f" low, and the order of the models may be wrong; about {needed:,} rows are enough."
    )


def _forecast(  # noqa: PLR0917
    record: RecordVector, n: int, deviation: float, x: Floats, numbers: NDArray[np.intp], random: np.random.Generator
) -> Published:
    """What n users like these would publish."""
    scale, m, d = n / len(x), record.n_classes, record.dim
    sums = np.zeros((m, d))
    np.add.at(sums, numbers, scale * x)
    of_sizes, of_moments = (
        deviation / math.sqrt(weight or 1.0) for weight in (record.size_weight, record.moment_weight)
    )
    upper = np.triu(random.normal(0.0, of_moments / math.sqrt(2.0), (d, d)), 1)
    moments = scale * x.T @ x + upper + upper.T + np.diag(random.normal(0.0, of_moments, d))
    return Published(
        n_users=n,
        sizes=scale * np.bincount(numbers, minlength=m) + random.normal(0.0, of_sizes, m),
        size_deviation=of_sizes,
        sums=sums + random.normal(0.0, deviation, (m, d)),
        deviation=deviation,
        moments=moments if record.moment_weight else None,
        moment_deviation=of_moments,
    )


def _root(squared: Floats) -> float:
    return math.sqrt(float(np.mean(squared)))


def feature_moments(family: LsqFamily, sample: Rows, index: Index) -> tuple[Floats, Floats]:
    """Mean and mean square of f_ij over these rows of the sample."""
    bound, n_instances = family.facts.bound, family.facts.n_instances

    def work(part: Index, start: int) -> Floats:
        scaled = family.scaled_features(admitted(family, sample, part)).astype(np.float64)
        return np.stack([bound * np.sum(scaled, axis=0), bound**2 * np.sum(scaled**2, axis=0)])

    first, second = np.sum(in_blocks(work, index, n_instances), axis=0) / len(index)
    return first, second
