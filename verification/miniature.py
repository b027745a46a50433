"""Small plans of the same kind as a large one: small enough to enumerate, or to run thousands of times."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache

from accounting import Plan, PlanRequest
from accounting.planning import plan as make_plan

LARGEST_CLIPPED = 0.75
"""R of a miniature whose plan clips, at most: below 1, so that it rotates and clips, too."""


@lru_cache(maxsize=64)
def _made(request: PlanRequest) -> Plan:
    return make_plan(request)


def miniature(
    plan: Plan,
    *,
    users: int,
    dim: int,
    repetitions: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
) -> Plan:
    """The same kernel, bitsum protocol, accountant and labels for fewer users, dimensions and repetitions.

    Separate labels are left out: a miniature is one group's collection. Joint labels keep two classes. Identity
    features that are rotated and clipped stay so (`_bound`).
    """
    request = plan.request
    joint = request.joint
    small = dataclasses.replace(
        request,
        users=users,
        dim=dim,
        repetitions=None if request.kernel == "inner-product" else (repetitions or 1),
        bitsum=plan.bitsum,
        accountant=plan.accountant,
        epsilon=float(request.epsilon) if epsilon is None else epsilon,
        delta=float(request.delta) if delta is None else delta,
        min_users=None,
        classes=2 if joint else None,
        label_epsilon=None,
        bound=_bound(request, dim),
        noise_shape=int(plan.parameters.get("noise_shape", 1)),
        allow_useless=True,
    )
    return _made(small)


def _bound(request: PlanRequest, dim: int) -> float | None:
    """R of identity features in `dim` dimensions: R√d is kept, so coordinates are clipped about as often.

    At most `LARGEST_CLIPPED`, unless the plan has R = 1 or there is only one dimension, in which nothing is rotated
    and Σ t² = 1/R² cannot be reached.
    """
    if request.kernel != "inner-product":
        return None
    bound = request.facts().bound
    return 1.0 if bound >= 1.0 or dim == 1 else min(LARGEST_CLIPPED, bound * math.sqrt(request.dim / dim))
