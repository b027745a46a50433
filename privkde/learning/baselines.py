"""What the shuffled protocol is compared with.

Exact densities protect nobody, `central` trusts the analyzer with the raw data. The plan calibrates it for its own
(ε, δ) (`accounting.accuracy.baselines`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from accounting import InfeasibleError, InvalidInputError, Plan
from accounting.accuracy.baselines import Baseline
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import normals
from privkde.kernels import LsqFamily
from privkde.protocol.inputs import Rows, checked_vectors
from privkde.protocol.model import FeatureSums, Floats
from privkde.storage.user_blocks import Index, in_blocks


def exact_densities(family: LsqFamily, rows: Rows, groups: Sequence[Index], y: Rows) -> Floats:
    """Without privacy: the mean of k(x_u, y) over each group, from the raw data (columns are groups)."""
    queries = admitted_queries(family, y)
    columns = []
    for index, n in zip(groups, nonempty_sizes(groups), strict=True):

        def work(part: Index, start: int) -> Floats:
            return np.asarray(family.kernel(queries, admitted(family, rows, part)).sum(axis=1))

        columns.append(np.sum(in_blocks(work, index, len(queries)), axis=0) / n)
    return np.stack(columns, axis=1)


def central_sums(
    family: LsqFamily, plans: Sequence[Plan], rows: Rows, groups: Sequence[Index], *, stream: ByteStream
) -> FeatureSums:
    """Σ f(x_u) with Gaussian noise: the analyzer sees everything, only what it publishes is protected.

    The noise is drawn in floating point: this is for comparison, not for deployment.
    """
    sums, n_users = [], nonempty_sizes(groups)
    for number, (plan, index) in enumerate(zip(plans, groups, strict=True)):

        def work(part: Index, start: int) -> Floats:
            features = family.scaled_features(admitted(family, rows, part))
            return np.asarray(features.sum(axis=0, dtype=np.float64))

        exact = family.facts.bound * np.sum(in_blocks(work, index, family.facts.n_instances), axis=0)
        deviation = planned_parameter(family, plan, "central", "standard_deviation")
        sums.append(exact + deviation * normals(exact.shape, stream.child("central", number)))
    return FeatureSums(family=family, sums=np.stack(sums), n_users=n_users)


def baseline(plan: Plan, name: str) -> Baseline:
    """The plan's baseline of this name, or `InfeasibleError`."""
    for planned in plan.baselines:
        if planned.name == name:
            return planned
    raise InfeasibleError(
        f"the plan has no {name} baseline: none exists for delta={plan.request.delta:g}; raise delta."
    )


def planned_parameter(family: LsqFamily, plan: Plan, name: str, parameter: str) -> float:
    """A parameter of the plan's baseline of this name; the plan must be for the family's kernel."""
    if plan.request.facts() != family.facts:
        raise InvalidInputError("the plan is for another kernel than the family; use the family of the plan's kernel.")
    return float(baseline(plan, name).contract.parameters[parameter])


def nonempty_sizes(groups: Sequence[Index]) -> tuple[int, ...]:
    """The number of users of each group; none may be empty."""
    sizes = tuple(len(index) for index in groups)
    if 0 in sizes:
        raise InvalidInputError(f"group {sizes.index(0)} has no users, hence no density; leave it out.")
    return sizes


def admitted(family: LsqFamily, rows: Rows, part: Index) -> NDArray[np.float32]:
    """These records, projected onto the kernel's domain."""
    return checked_vectors(rows[part], family.facts.dim, longest=family.largest_norm, outside="project", numbers=part)


def admitted_queries(family: LsqFamily, y: Rows) -> NDArray[np.float32]:
    """Queries, projected onto the kernel's domain."""
    every = np.arange(y.shape[0])
    return checked_vectors(y[every], family.facts.dim, longest=family.largest_query, outside="project", numbers=every)
