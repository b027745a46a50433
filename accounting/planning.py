"""`plan_budget`: from a request to a plan."""

from __future__ import annotations

import dataclasses

from accounting.choosing import Choice, Progress, choose, silent
from accounting.comparing import label_advice
from accounting.plan import Plan, assemble
from accounting.request import PlanRequest


def plan_budget(
    *,
    users: int,
    dim: int,
    kernel: str = "gaussian",
    repetitions: int | None = None,
    bitsum: str = "rr",
    epsilon: float,
    delta: float,
    releases: int = 1,
    accountant: str = "auto",
    min_users: int | None = None,
    dropout: float = 0.0,
    colluders: float = 0.0,
    classes: int | None = None,
    label_epsilon: float | None = None,
    labels: str = "separate",
    bias: float | None = None,
    bound: float | None = None,
    noise_shape: int = 1,
    excess_error: float | None = None,
    allow_useless: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """The plan of least noise that the chosen accountant can prove.

    Args:
        users: number of users that take part
        dim: dimension of the users' vectors
        kernel: kernel family
        repetitions: independent repetitions I of the feature map; inner-product has exactly one
        bitsum: bitsum protocol
        epsilon: final ε of the features (joint labels: of features and label)
        delta: final δ; 0 for pure and auto only
        releases: how often the same people take part, with new noise each time; epsilon and delta are for all together
        accountant: rung of the ladder
        min_users: users that must at least take part (separate labels: in each class); noise counts on them
        dropout: users that may stay away: a share below 1 or a number (separate labels: of each class); instead of
            min_users
        colluders: users that may take part and tell what they sent, or add no noise: a share below 1 of users or a
            number (separate labels: of each class); instead of min_users
        classes: number of classes, at most half of users; separate labels: each runs its own protocol with an even
            share of the users
        label_epsilon: separate labels: ε of the label's randomized response, in each release
        labels: how labels are protected (joint: epsilon protects features and label)
        bias: bias β of the laplacian and exponential families
        bound: inner-product only: bound R of the rounding, after a rotation if below 1
        noise_shape: 3nb only: shape k of the noise (1 = the paper's protocol)
        excess_error: 3nb, negative-binomial, pure: extra noise accepted for fewer messages
        allow_useless: plan even if the noise drowns every density
        progress: called with a line of text now and then

    Raises:
        InvalidInputError: a value breaks a rule.
        InfeasibleError: no parameters meet the request.
    """
    values = locals().copy()  # exactly the fields of a request, and progress
    del values["progress"]
    return plan_with_advice(PlanRequest(**values), progress=progress)


def plan_with_advice(request: PlanRequest, *, progress: Progress | None = None) -> Plan:
    """`plan_budget` for a request object: with classes, the last reason compares separate and joint labels."""
    planned = plan(request, progress=progress)
    advice = label_advice(request, progress, planned=planned.protocol())
    return planned if advice is None else dataclasses.replace(planned, reasons=(*planned.reasons, advice))


def plan(request: PlanRequest, *, progress: Progress | None = None, choice: Choice | None = None) -> Plan:
    """The plan without advice on labels, for a `choice` that was made before or made now.

    The plan's request names the bound R it chose.
    """
    say = progress or silent
    request = dataclasses.replace(request, bound=request.rounding_bound)
    protocol, rung, reasons = choice or choose(request, say)
    say(f"ladder at these parameters ({protocol.name})")
    return assemble(request, protocol, rung, reasons)
