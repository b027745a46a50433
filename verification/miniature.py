"""Small plans of the same kind as a large one: small enough to enumerate, or to run thousands of times."""

from __future__ import annotations

import dataclasses
from functools import lru_cache

from accounting import Plan, PlanRequest
from accounting.planning import plan as make_plan


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

    Separate labels are left out: a miniature is one group's collection. Joint labels keep two classes.
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
        bound=1.0 if request.kernel == "inner-product" else None,
        noise_shape=int(plan.parameters.get("noise_shape", 1)),
        allow_useless=True,
    )
    return _made(small)
