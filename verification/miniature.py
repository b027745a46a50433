"""Small plans of the same kind as a large one: small enough to enumerate, or to run thousands of times."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache

from accounting import InfeasibleError, Plan, PlanRequest
from accounting.planning import plan as make_plan
from accounting.request import ALL_THERE
from verification.twins import kernel_twin

LARGEST_EPSILON = 50.0
LARGEST_CLIPPED = 0.75
"""R of a miniature whose plan clips, at most: below 1, so that it rotates and clips, too."""


_made = lru_cache(maxsize=64)(make_plan)


def miniature(
    plan: Plan,
    *,
    users: int,
    dim: int,
    repetitions: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
) -> Plan:
    """The same kernel, bitsum protocol, accountant and labels for one release of fewer users and repetitions.

    Separate labels are left out: a miniature is one group's collection. Joint labels keep two classes. Identity
    features that are rotated and clipped stay so (`_bound`).
    """
    request = plan.request
    joint = request.joint
    small = dataclasses.replace(
        request,
        users=users,
        dim=dim,
        repetitions=None if kernel_twin(plan).identity else (repetitions or 1),
        bitsum=plan.bitsum,
        accountant=plan.accountant,
        epsilon=float(request.epsilon) if epsilon is None else epsilon,
        delta=float(request.delta) if delta is None else delta,
        releases=1,
        **ALL_THERE,
        classes=2 if joint else None,
        label_epsilon=None,
        bound=_bound(request, dim) if kernel_twin(plan).identity else None,
        noise_shape=int(plan.parameters.get("noise_shape", 1)),
        allow_useless=True,
    )
    return _made(small)


def feasible_miniature(plan: Plan, *, users: int, dim: int, repetitions: int, most_loose: float) -> Plan:
    """A miniature for the plan's own ε or, where so few users cannot keep that, for 2, 4, … times as much."""
    factor = 1.0
    while True:
        epsilon = min(LARGEST_EPSILON, factor * float(plan.request.epsilon))
        try:
            return miniature(plan, users=users, dim=dim, repetitions=repetitions, epsilon=epsilon)
        except InfeasibleError:
            factor *= 2.0
            if factor > most_loose:
                raise


def _bound(request: PlanRequest, dim: int) -> float:
    """R of identity features in `dim` dimensions: R√d is kept, so coordinates are clipped about as often.

    At most `LARGEST_CLIPPED`, unless the plan has R = 1 or there is only one dimension, in which nothing is rotated
    and Σ t² = 1/R² cannot be reached.
    """
    bound = request.facts().bound
    return 1.0 if bound >= 1.0 or dim == 1 else min(LARGEST_CLIPPED, bound * math.sqrt(request.dim / dim))
