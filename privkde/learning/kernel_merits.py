"""What users can judge kernels by, on data like a public sample: order of densities, outliers found.

Errors of densities of different kernels measure different things: 0.01 is little for a kernel whose densities are
about 0.3, and all there is to know for one whose densities differ by 0.01. An order, and whether what does not belong
is seen, mean the same for all. Source: docs/concepts/error.md, "Which kernel".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.kernels import kernel_named
from accounting.mechanisms import BitsumProtocol
from accounting.request import PlanRequest
from privkde.kernels import KernelChoice, LsqFamily
from privkde.kernels.lsq_family import LEAST_BANDWIDTH
from privkde.learning.baselines import exact_densities
from privkde.learning.prediction import feature_moments
from privkde.protocol.inputs import Rows
from privkde.protocol.model import FeatureSums, Floats

DRAWS = 5
"""Times that public maps and noise are drawn; merits are means over them."""
MOST_QUERIES, LEAST_ROWS = 500, 20
PAIRS_FOR_SCALE = 2_000
"""Pairs of rows whose median distance is the bandwidth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelMerits:
    """How well a kernel serves, as planned and, beside it, with exact densities."""

    bandwidth: float | None
    """Median distance of two rows, in the kernel's own norm; None for inner products."""
    wrong_order: float
    """Share of pairs of held-out rows of which not the one with the larger exact density is said to have it."""
    outliers_found: float
    """Chance that a held-out row has a larger published density than a vector mixed of the coordinates of many rows."""
    outliers_found_exactly: float
    """The same without privacy and without maps: what the kernel itself can see."""


def kernel_merits(request: PlanRequest, protocol: BitsumProtocol, sample: Rows, *, seed: int = 0) -> KernelMerits:
    """By simulation: one half of the sample stands for the users, rows of the other half and outliers are queries.

    The sums of n users like these get normal noise of the planned size, for rounding and for privacy.
    """
    if request.classes is not None:
        raise InvalidInputError(f"classes={request.classes}: kernels are compared for densities; leave classes out.")
    if sample.shape[0] < LEAST_ROWS:
        raise InvalidInputError(f"the sample has {sample.shape[0]} rows; give at least {LEAST_ROWS} to judge by.")
    random = np.random.default_rng(seed)
    order = random.permutation(sample.shape[0])
    known, asked = np.array_split(order, 2)
    asked = np.sort(asked[:MOST_QUERIES])
    rows = np.asarray(sample[asked], dtype=np.float32)
    queries = np.concatenate([rows, _outliers(rows, random)])
    bandwidth = _median_distance(request.kernel, rows, random)
    choice = KernelChoice.planned(request, bandwidth=1.0 if bandwidth is None else bandwidth)
    wrong, found, exact = 0.0, 0.0, np.zeros(0)
    for _ in range(DRAWS):
        family = choice.build(random.bytes(16).hex())
        if not len(exact):
            exact = exact_densities(family, sample, [np.sort(known)], queries)[:, 0]
        published = _published(family, request, protocol, sample, np.sort(known), random).densities(queries)[:, 0]
        wrong += _wrong_order(exact[: len(rows)], published[: len(rows)]) / DRAWS
        found += _found(published, len(rows)) / DRAWS
    return KernelMerits(
        bandwidth=bandwidth,
        wrong_order=wrong,
        outliers_found=found,
        outliers_found_exactly=_found(exact, len(rows)),
    )


def _published(  # noqa: PLR0917
    family: LsqFamily, request: PlanRequest, protocol: BitsumProtocol, sample: Rows, known: NDArray[np.intp],
    random: np.random.Generator,
) -> FeatureSums:  # fmt: skip
    """What n users like the known rows would publish."""
    n, bound = request.users, request.facts().bound
    first, second = feature_moments(family, sample, known)
    variance = n * np.maximum(bound**2 - second, 0.0) + 4.0 * bound**2 * protocol.variance(n)
    sums = n * first + random.normal(size=first.shape) * np.sqrt(variance)
    return FeatureSums(family=family, sums=sums[None, :], n_users=(float(n),))


def _outliers(rows: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """Vectors as long as the rows are, each of whose coordinates is that of some row: likely one by one, not together.

    A linear statistic sees coordinates one by one, so it cannot tell them from rows.
    """
    mixed = random.permuted(rows, axis=0).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True) / np.maximum(
        np.linalg.norm(mixed, axis=1, keepdims=True), 1e-30
    )
    return np.asarray(mixed * lengths, dtype=np.float32)


def _median_distance(kernel: str, rows: NDArray[np.float32], random: np.random.Generator) -> float | None:
    """Of two different rows, in the 1-norm for the Laplacian kernel and in the 2-norm for the others."""
    if not kernel_named(kernel).takes_bandwidth:
        return None
    one, other = random.integers(0, len(rows), (2, PAIRS_FOR_SCALE))
    norm = 1 if kernel == "laplacian" else 2
    distances = np.linalg.norm(rows[one] - rows[other], ord=norm, axis=1)[one != other]
    return max(float(np.median(distances)), LEAST_BANDWIDTH)


def _wrong_order(exact: Floats, published: Floats) -> float:
    """Share of pairs with different exact values that are ordered otherwise; equal published values count half."""
    signs = np.sign(np.subtract.outer(exact, exact)) * np.sign(np.subtract.outer(published, published))
    pairs = np.triu(np.not_equal.outer(exact, exact), 1)
    return float(np.mean((1.0 - signs[pairs]) / 2.0)) if np.any(pairs) else 0.5


def _found(densities: Floats, n_rows: int) -> float:
    """Share of pairs of a row and an outlier in which the row has the larger density; equal ones count half."""
    differences = np.subtract.outer(densities[:n_rows], densities[n_rows:])
    return float(np.mean((1.0 + np.sign(differences)) / 2.0))
