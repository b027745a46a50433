"""Inverse questions: the smallest ε, n or I, or the most releases, that meet a target error or a limit on messages.

The paper's Theorem 3.3 (given α, choose I, ε₀, δ₀, δ') is `solve("repetitions", target_error=α,
measure="bound", accountant="paper", ...)` with the Gaussian kernel.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from accounting.accuracy.density_error import sup_error_bound
from accounting.choosing import Choice, Progress, choose, noise_of_a_class_mean, prediction, silent
from accounting.errors import InfeasibleError, InvalidInputError, PrivkdeError
from accounting.fields import Record, Rule, check_fields, fields_of
from accounting.kernels import MOST_REPETITIONS
from accounting.mechanisms import BITSUMS, BitsumProtocol
from accounting.numerics.calibration import TURNING_PRECISION as PRECISION
from accounting.numerics.calibration import falling_root, turning_point
from accounting.plan import Plan
from accounting.planning import plan
from accounting.request import LARGEST_EPSILON, LONGEST_SCHEDULE, MOST_USERS, PlanRequest, read_request

FIRST_EPSILON = 1.0
RELEASES = "releases"
UNKNOWNS: Mapping[str, tuple[float, float]] = {
    "epsilon": (1e-3, LARGEST_EPSILON),
    "users": (2, MOST_USERS),
    "repetitions": (1, MOST_REPETITIONS),
    RELEASES: (1, LONGEST_SCHEDULE),
}
MESSAGES = "messages"
QUESTIONS = (*UNKNOWNS, MESSAGES)
"""What can be solved for; messages fall with the repetitions, and differ between bitsum protocols."""
MEASURES = ("predicted", "bound", "mean")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a solution must meet."""

    target_error: Annotated[
        float | None,
        Rule(
            "largest error that will do, of the density unless measure says another",
            0,
            10,
            above_low=True,
            unset="none",
        ),
    ] = None
    max_messages: Annotated[
        float | None, Rule("most messages per user that will do", 0, 1e15, above_low=True, unset="none")
    ] = None
    measure: Annotated[
        str,
        Rule(
            "which error target_error limits (bound: that of Theorem 3.2; mean: the norm of the noise of a class mean,"
            " where vectors have norm 1)",
            choices=MEASURES,
        ),
    ] = "predicted"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.target_error is None and self.max_messages is None:
            raise InvalidInputError("nothing to solve for: give target_error, max_messages or both.")

    def shortfall(self, request: PlanRequest, protocol: BitsumProtocol) -> str | None:
        """What is missing, or None if everything is met."""
        error = self._error(request, protocol)
        if self.target_error is not None and error > self.target_error:
            return f"the {self.measure} error is {error:.4g}, above the target {self.target_error:g}"
        messages = _messages(request, protocol)
        if self.max_messages is not None and messages > self.max_messages:
            return f"it takes {messages:.6g} messages per user, above the limit {self.max_messages:g}"
        return None

    def excess(self, request: PlanRequest, protocol: BitsumProtocol) -> float:
        """Ln of what there is over what may be, of noise or of messages, whichever exceeds more.

        Positive if and only if the goal is missed. Of the predicted error it is the part due to privacy over what the
        other parts leave for it, which is proportional to noise.
        """
        ratios = [1e-300]
        if self.max_messages is not None:
            ratios.append(_messages(request, protocol) / self.max_messages)
        if self.target_error is not None and self.measure == "predicted":
            error = prediction(request, protocol)
            left = self.target_error**2 - dataclasses.replace(error, privacy=0.0).total ** 2
            ratios.append(error.privacy / math.sqrt(left) if left > 0.0 else math.inf)
        elif self.target_error is not None:
            ratios.append(self._error(request, protocol) / self.target_error)
        return math.log(max(ratios))

    def _error(self, request: PlanRequest, protocol: BitsumProtocol) -> float:
        """The error that the target limits."""
        if self.measure == "predicted":
            return prediction(request, protocol).total
        if self.measure == "mean":
            noise = noise_of_a_class_mean(request, protocol)
            if noise is None:
                raise InvalidInputError(
                    "measure='mean' and no class means are collected; give classes, the kernel 'inner-product' and a"
                    " model other than 'density', or choose 'predicted'."
                )
            return noise
        if request.joint:
            raise InvalidInputError("measure='bound' with labels='joint': no theorem gives one; choose 'predicted'.")
        n = request.users_per_protocol
        return sup_error_bound(request.facts(), n, protocol.rmse(n))


def _messages(request: PlanRequest, protocol: BitsumProtocol) -> float:
    """Expected messages of a user in all instances."""
    return request.facts().n_instances * protocol.messages_per_user()


_UNKNOWN = Rule(
    "what to find the smallest value of, or the largest number of releases; leave it out of the other names"
    " (messages: repetitions are free and, with bitsum auto, so is the protocol)",
    choices=QUESTIONS,
)


def _question_fields() -> list[tuple[str, Any, Any]]:
    """The unknown, the names of a request, where what can be solved for may be missing, and the names of a goal."""
    listed: list[tuple[str, Any, Any]] = [("unknown", Annotated[str, _UNKNOWN], dataclasses.field())]
    for field in {**fields_of(PlanRequest), **fields_of(Goal)}.values():
        if field.name in UNKNOWNS and field.default is not None:
            rule = dataclasses.replace(field.rule, unset="solved for" if field.required else f"{field.default}")
            listed.append((field.name, Annotated[field.annotation | None, rule], dataclasses.field(default=None)))
        elif field.name != "allow_useless":
            default = dataclasses.field(default=field.default)
            listed.append((field.name, Annotated[field.annotation, field.rule], default))
    return listed


SolveRequest: Any = dataclasses.make_dataclass(
    "SolveRequest",
    _question_fields(),
    frozen=True,
    slots=True,
    kw_only=True,
    bases=(Record,),
    namespace={"__doc__": "What `solve` takes, made from its parts."},
)


def solve(  # noqa: D417 (plan_budget describes the others)
    unknown: str,
    *,
    users: int | None = None,
    dim: int,
    kernel: str = "auto",
    repetitions: int | None = None,
    bitsum: str = "rr",
    epsilon: float | None = None,
    delta: float,
    releases: int | None = None,
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
    target_error: float | None = None,
    measure: str = "predicted",
    progress: Progress | None = None,
) -> Plan:
    """The plan with the smallest `unknown`, or the most releases, that meets the rest.

    All other names are those of `plan_budget`.

    Args:
        unknown: what to find the smallest value of, or the largest number of releases; leave it out of the other names
            (messages: repetitions are free and, with bitsum auto, so is the protocol)
        target_error: largest error that will do, of the density unless measure says another
        max_messages: most messages per user that will do
        measure: which error target_error limits (bound: that of Theorem 3.2; mean: the norm of the noise of a class
            mean, where vectors have norm 1)
        progress: called with a line of text now and then

    Raises:
        InvalidInputError: a value breaks a rule.
        InfeasibleError: no value of the unknown is enough.
    """
    values = locals().copy()  # exactly the fields of a question, and progress
    del values["progress"]
    question = SolveRequest(**values)
    names = fields_of(PlanRequest).keys() & fields_of(SolveRequest).keys()
    known = {name: getattr(question, name) for name in names}
    if unknown == MESSAGES and target_error is None:
        raise InvalidInputError("target_error=None: without a target no messages are needed at all; give one.")
    goal = Goal(**{name: getattr(question, name) for name in fields_of(Goal)})
    if unknown == MESSAGES:
        return _fewest_messages(goal, known, progress)
    search = _Search(unknown=unknown, goal=goal, known=known, progress=progress)
    return _most_releases(search) if unknown == RELEASES else _smallest_unknown(search)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Values of the unknown, tried without proofs and then certified."""

    unknown: str
    goal: Goal
    known: Mapping[str, Any]
    progress: Progress | None

    def __post_init__(self) -> None:
        given = self.known[self.unknown]
        if given is not None:
            raise InvalidInputError(
                f"{self.unknown}={given!r} was given, but {self.unknown} is to be solved for; leave it out."
            )

    def request(self, value: float) -> PlanRequest:
        """The request with this value."""
        number = value if self.unknown == "epsilon" else round(value)
        return read_request({**self.known, self.unknown: number, "allow_useless": True})

    def attempt(self, value: float, *, certified: bool) -> Choice | str:
        """What meets the goal with this value, or what is missing."""
        say = self.progress or silent
        say(f"trying {self.unknown} = {value:.6g}")
        try:
            request = self.request(value)
        except PrivkdeError as error:  # another value is possible: this one leaves too few users, or is too large
            return str(error)
        try:
            choice = choose(request, certified=certified)
        except InfeasibleError as error:
            return str(error)
        return self.goal.shortfall(request, choice[0]) or choice

    def meets(self, value: float) -> bool:
        """Whether this value meets the goal, without a proof."""
        return not isinstance(self.attempt(value, certified=False), str)

    def excess(self, value: float) -> float:
        """How far this value is from the goal, as a logarithm, without a proof; infinite where nothing can be said."""
        (self.progress or silent)(f"trying {self.unknown} = {value:.6g}")
        try:
            request = self.request(value)
            return self.goal.excess(request, choose(request, certified=False)[0])
        except PrivkdeError:
            return math.inf

    def solved(self, value: float, which: str, choice: Choice) -> Plan:
        """The plan with this value, which is the smallest or the largest."""
        solved = plan(self.request(value), progress=self.progress, choice=choice)
        why = f"solved for the {which} {self.unknown}: {getattr(solved.request, self.unknown):g} (to {PRECISION:.1%})"
        return dataclasses.replace(solved, reasons=(why, *solved.reasons))


def _smallest_unknown(search: _Search) -> Plan:
    """The plan with the smallest ε, number of users or repetitions."""
    unknown = search.unknown
    low, high = UNKNOWNS[unknown]
    largest = search.request(high)  # validates everything else
    if unknown == "users":
        low = max(low, 2 * (largest.classes or 1), (largest.min_users or 0) * largest.n_protocols)
    whole = unknown != "epsilon"
    if whole:
        _, enough = turning_point(search.meets, low, high, whole=True)
    else:  # half of the precision is for the search, half for the proof
        enough = falling_root(search.excess, low, high, guess=FIRST_EPSILON, precision=PRECISION / 2.0)
        enough = enough and min(high, enough * (1.0 + PRECISION / 2.0))
    best = high if enough is None else enough
    while isinstance(choice := search.attempt(best, certified=True), str):
        if best >= high:
            raise InfeasibleError(f"no {unknown} up to {high:g} is enough: {choice}; relax the target.")
        best = min(high, math.ceil(best * (1.0 + PRECISION)) if whole else best * (1.0 + PRECISION))
    return search.solved(best, "smallest", choice)


def _most_releases(search: _Search) -> Plan:
    """The plan with the most releases."""
    search.request(1)  # validates everything else
    best, _ = turning_point(lambda releases: not search.meets(releases), 1, LONGEST_SCHEDULE, whole=True)
    while isinstance(choice := search.attempt(best, certified=True), str):
        if best <= 1:
            raise InfeasibleError(f"not even one release is possible: {choice}; relax the target.")
        best = math.floor(best / (1.0 + PRECISION))
    return search.solved(best, "largest number of", choice)


def _fewest_messages(goal: Goal, known: Mapping[str, Any], progress: Progress | None) -> Plan:
    """The plan of fewest messages per user among the protocols that may be used, each with the fewest repetitions."""
    chosen = known["bitsum"]
    plans, refusals = [], []
    for name in BITSUMS if chosen == "auto" else (chosen,):
        try:
            search = _Search(unknown="repetitions", goal=goal, known={**known, "bitsum": name}, progress=progress)
            plans.append(_smallest_unknown(search))
        except PrivkdeError as error:  # also an accountant that does not suit this protocol
            if chosen != "auto":
                raise
            refusals.append(f"{name}: {error}")
    if not plans:
        raise InfeasibleError("; ".join(refusals))
    best = min(plans, key=lambda solved: solved.messages_per_user)
    why = f"solved for the fewest messages per user: {best.messages_per_user:.6g} with {best.bitsum}"
    return dataclasses.replace(best, reasons=(why, *best.reasons))
