"""Small plans of the same kind as a large one: small enough to enumerate, or to run thousands of times."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from accounting import InfeasibleError, Plan, PlanRequest
from accounting.planning import plan as make_plan
from accounting.record_vector import RecordVector
from accounting.registry import AUTO
from accounting.request import ALL_THERE, ONE_PART
from verification.twins import kernel_twin

LARGEST_EPSILON = 50.0
LARGEST_CLIPPED = 0.75
"""R of a miniature whose plan clips, at most: below 1, so that it rotates and clips, too."""
LEAST_PADDED = 16
"""Coordinates of the rotated record of a miniature, at least."""
LEAST_RADIUS = 0.5
"""Where a radius is declared, in bandwidths: in a smaller ball a few bits hardly move, and nothing is seen."""
WITHOUT_LABELS: Mapping[str, Any] = {
    **ONE_PART, "classes": None, "labels": AUTO, "model": AUTO, "moment_weight": None, "padded": None,
}  # fmt: skip
"""What a request says of labels if there are none."""


_made = lru_cache(maxsize=64)(make_plan)


def miniature(
    plan: Plan,
    *,
    users: int,
    dim: int,
    repetitions: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    padded: int = LEAST_PADDED,
) -> Plan:
    """The same kernel, bitsum protocol, accountant and labels for one release of fewer users and repetitions.

    Separate labels are left out: a miniature is one group's collection. Joint labels keep two classes. Identity
    features that are rotated and clipped stay so (`_bound`). Records that are rotated as one vector keep their β² and,
    if the miniature is not too small for it, the share that is clipped; they have `padded` coordinates or more.
    """
    request = plan.request
    labels = {**WITHOUT_LABELS, "bound": _bound(request, dim) if kernel_twin(plan).identity else None}
    labels["radius"] = None if request.radius is None else max(request.radius, LEAST_RADIUS)
    if request.joint:
        labels |= _joint(request, dim, padded)
    small = dataclasses.replace(
        request,
        users=users,
        dim=dim,
        repetitions=None if kernel_twin(plan).identity else (repetitions or 1),
        bitsum=plan.bitsum,
        accountant=plan.accountant,
        epsilon=request.kde_epsilon if epsilon is None else epsilon,
        delta=float(request.delta) if delta is None else delta,
        releases=1,
        **ALL_THERE,
        **labels,
        noise_shape=int(plan.parameters.get("noise_shape", 1)),
        allow_useless=True,
    )
    return _made(small)


def feasible_miniature(
    plan: Plan, *, users: int, dim: int, repetitions: int, most_loose: float, padded: int = LEAST_PADDED
) -> Plan:
    """A miniature for the plan's own ε or, where so few users cannot keep that, for 2, 4, … times as much."""
    factor = 1.0
    while True:
        epsilon = min(LARGEST_EPSILON, factor * plan.request.kde_epsilon)
        try:
            return miniature(plan, users=users, dim=dim, repetitions=repetitions, epsilon=epsilon, padded=padded)
        except InfeasibleError:
            factor *= 2.0
            if factor > most_loose:
                raise


def _bound(request: PlanRequest, dim: int) -> float:
    """R of identity features in `dim` dimensions: R√d is kept, so coordinates are clipped about as often.

    At most `LARGEST_CLIPPED`, unless the plan has R = 1 or there is only one dimension, in which nothing is rotated
    and Σ t² = 1/R² cannot be reached.
    """
    bound, record = request.facts().bound, request.record
    coordinates = request.dim if record is None else record.padded
    return 1.0 if bound >= 1.0 or dim == 1 else min(LARGEST_CLIPPED, bound * math.sqrt(coordinates / dim))


def _joint(request: PlanRequest, dim: int, padded: int) -> dict[str, Any]:
    """What a request for two joint classes says of them: a block for each, or records rotated as one vector."""
    joint = {"classes": 2, "labels": request.labels, "model": request.model}
    record = request.record
    if record is None:
        return {**joint, "padded": 0}
    return {**joint, **smaller_record(record, request.facts().bound, dim=dim, n_classes=2, padded=padded)}


def smaller_record(record: RecordVector, bound: float, *, dim: int, n_classes: int, padded: int) -> dict[str, Any]:
    """What a request says of the vector of a smaller record: β² and R√D' are kept, R is at most `LARGEST_CLIPPED`."""
    fewest = n_classes * (dim + 1) + (dim * (dim + 1) // 2 if record.moment_weight else 0)
    length = max(padded, 2 ** math.ceil(math.log2(fewest)))
    return {
        "moment_weight": record.moment_weight,
        "padded": length,
        "bound": min(LARGEST_CLIPPED, bound * math.sqrt(record.padded / length)),
    }
