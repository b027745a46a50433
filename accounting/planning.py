"""`plan_budget`: from a request to a plan."""

from __future__ import annotations

import dataclasses
import math

from accounting.choosing import Choice, Progress, choose, noise_of_a_class_mean, prediction, silent, smallest_class
from accounting.classifier_model import TELLING_DEVIATIONS
from accounting.comparing import label_advice
from accounting.kernels import kernel_named
from accounting.mechanisms import BitsumProtocol
from accounting.plan import Plan, assemble
from accounting.registry import AUTO
from accounting.request import PlanRequest


def plan_budget(
    *,
    users: int,
    dim: int,
    kernel: str = "auto",
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
    features_epsilon: float | None = None,
    labels: str = "auto",
    bias: float | None = None,
    bound: float | None = None,
    radius: float | None = None,
    model: str = "auto",
    moment_weight: float | None = None,
    padded: int | None = None,
    max_messages: float | None = None,
    noise_shape: int | None = None,
    excess_error: float | None = None,
    allow_useless: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """The plan of least noise that the chosen accountant can prove.

    Args:
        users: number of users that take part
        dim: dimension of the users' vectors
        kernel: kernel family (auto: inner-product for joint labels, else gaussian)
        repetitions: independent repetitions I of the feature map; inner-product has exactly one
        bitsum: bitsum protocol
        epsilon: ε that is promised for a whole record: features and label, if any
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
        label_epsilon: separate labels: part of epsilon for the label's randomized response, in each release
        features_epsilon: separate labels: part of epsilon for the features
        labels: how labels are protected: by one collection with the features, or by a response of their own (auto:
            joint, unless a part of epsilon is given for labels or features)
        bias: bias β of the laplacian and exponential families
        bound: inner-product only: bound R of the rounding, after a rotation if below 1
        radius: gaussian only: largest norm of a user's vector in bandwidths; features are held in a ball for it
        model: joint labels: how classes are ranked (auto: the best that messages and noise allow)
        moment_weight: discriminant only: weight β² of the second moments
        padded: joint labels: coordinates of a record's rotated vector, zeros included; 0: a block for each class
        max_messages: joint labels: most coordinates of a record's rotated vector, one message each
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
    """`plan_budget` for a request object: with classes, the last reason compares separate and joint labels.

    With separate labels the one before names the smallest class that can be released.
    """
    planned = plan(request, progress=progress)
    further = [*_smallest_class(planned), label_advice(request, progress, planned=planned.protocol())]
    return dataclasses.replace(planned, reasons=(*planned.reasons, *(text for text in further if text is not None)))


def _smallest_class(planned: Plan) -> list[str]:
    """Separate labels: how many users have to report a class; each is planned for those who do."""
    least = smallest_class(planned.request, planned.protocol()) if planned.request.separate else None
    if least is None:
        return []
    return [f"a class that fewer than about {least:,} users report cannot be released"]


def plan(request: PlanRequest, *, progress: Progress | None = None, choice: Choice | None = None) -> Plan:
    """The plan without advice on labels, for a `choice` that was made before or made now.

    The plan's request names the bound R it chose.
    """
    say = progress or silent
    why = _model_reason(request)
    request = request.decided()
    protocol, rung, reasons = choice or choose(request, say)
    reasons = (*why, *reasons)
    if request.joint:
        reasons = (*reasons, *_linear_noise(request, protocol))
        deviation = request.facts().size_deviation(request.users, protocol.variance(request.users))
        least = math.ceil(TELLING_DEVIATIONS * deviation)
        reasons = (*reasons, f"a class of fewer than {least:,} users does not stand out from the noise of its size")
    reasons = (*reasons, *_few_maps(request, protocol))
    say(f"ladder at these parameters ({protocol.name})")
    return assemble(request, protocol, rung, reasons)


def _model_reason(request: PlanRequest) -> list[str]:
    """Why classes are ranked as they are, where the planner chose it or was told."""
    choice = request.model_choice()
    if choice is not None:
        return [choice.reason]
    if not request.joint or request.model != AUTO:
        return []
    return [
        f"model {request.decided().model}: a discriminant needs whole records that are rotated: kernel 'inner-product',"
        " a bitsum that spends delta > 0, accountant 'auto' or 'geometric', and no padded=0"
    ]


def _few_maps(request: PlanRequest, protocol: BitsumProtocol) -> list[str]:
    """That more maps would help, where their number was not given and they make most of the error."""
    if request.repetitions is not None or not kernel_named(request.kernel).takes_repetitions:
        return []
    error = prediction(request, protocol)
    if error.feature <= error.privacy:
        return []
    return [
        f"repetitions: {request.facts().n_repetitions}, one for each dimension; they make {error.feature:.3g} of the"
        f" error {error.total:.3g}, and four times as many make half of that, with four times the messages and no more"
        " error due to privacy"
    ]


def _linear_noise(request: PlanRequest, protocol: BitsumProtocol) -> list[str]:
    """How noisy is what a linear model is made from, for an even share of the users; nothing for densities."""
    record, mean, n = request.record, noise_of_a_class_mean(request, protocol), request.users
    if record is None or mean is None:
        return []
    moments = record.noise_of_moments(record.noise_deviation(request.facts().bound, n, protocol.variance(n)), n)
    and_moments = f", of second moments {moments:.2g} times their mean eigenvalue" if moments else ""
    return [f"noise of a class mean (even classes) {mean:.2g}{and_moments}; vectors have norm 1"]
