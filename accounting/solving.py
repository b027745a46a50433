"""Inverse questions: the smallest ε, n or I that meets a target error or a limit on messages.

The paper's Theorem 3.3 (given α, choose I, ε₀, δ₀, δ') is `solve("repetitions", target_error=α,
measure="bound", accountant="paper", ...)` with the Gaussian kernel.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from accounting.choosing import Progress, choose, prediction, silent
from accounting.error import BitsumError, sup_error_bound
from accounting.errors import InfeasibleError, InvalidInputError, PrivkdeError, require_choice, require_real
from accounting.kernels import MOST_REPETITIONS
from accounting.mechanisms import BITSUMS, BitsumProtocol
from accounting.planning import Plan, plan
from accounting.request import MOST_USERS, PlanRequest, read_request

UNKNOWNS: Mapping[str, tuple[float, float]] = {
    "epsilon": (1e-3, 100.0),
    "users": (2, MOST_USERS),
    "repetitions": (1, MOST_REPETITIONS),
}
MESSAGES = "messages"
QUESTIONS = (*UNKNOWNS, MESSAGES)
"""What can be asked for; messages fall with the repetitions, and differ between bitsum protocols."""
MEASURES = ("predicted", "bound")
_PRECISION = 2e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a solution must meet: `predicted` is the predicted RMSE, `bound` that of Theorem 3.2."""

    target_error: float | None
    max_messages: float | None
    measure: str

    def __post_init__(self) -> None:
        require_choice("error measure", self.measure, MEASURES)
        if self.target_error is None and self.max_messages is None:
            raise InvalidInputError("nothing to solve for: give target_error, max_messages or both.")
        if self.target_error is not None:
            require_real("target_error", self.target_error, low=0.0, high=10.0)
        if self.max_messages is not None:
            require_real("max_messages", self.max_messages, low=0.0, high=1e15)

    def shortfall(self, request: PlanRequest, protocol: BitsumProtocol) -> str | None:
        """What is missing, or None if everything is met."""
        n, facts = request.users_per_protocol, request.facts()
        if self.measure == "bound" and request.joint:
            raise InvalidInputError("measure='bound' with labels='joint': no theorem gives one; choose 'predicted'.")
        error = (
            prediction(request, protocol).total
            if self.measure == "predicted"
            else sup_error_bound(facts, n, BitsumError(value=protocol.rmse(n)))
        )
        if self.target_error is not None and error > self.target_error:
            return f"the {self.measure} error is {error:.4g}, above the target {self.target_error:g}"
        messages = facts.n_instances * protocol.messages_per_user()
        if self.max_messages is not None and messages > self.max_messages:
            return f"it takes {messages:.6g} messages per user, above the limit {self.max_messages:g}"
        return None


def solve(
    unknown: str,
    *,
    target_error: float | None = None,
    max_messages: float | None = None,
    measure: str = "predicted",
    progress: Progress | None = None,
    **request: Any,
) -> Plan:
    """The plan with the smallest `unknown` ("epsilon", "users", "repetitions" or "messages") that meets the rest.

    For "messages" the repetitions are free and, with bitsum "auto", so is the protocol.
    """
    require_choice("unknown", unknown, QUESTIONS)
    if unknown == MESSAGES:
        return _fewest_messages(target_error, max_messages, measure, progress, request)
    wanted = Wanted(target_error=target_error, max_messages=max_messages, measure=measure)
    say = progress or silent
    if request.get(unknown) is not None:
        raise InvalidInputError(
            f"{unknown}={request[unknown]!r} was given, but {unknown} is to be solved for; leave it out."
        )
    low, high = UNKNOWNS[unknown]

    def asked(value: float) -> PlanRequest:
        number = value if unknown == "epsilon" else round(value)
        return read_request({**request, unknown: number, "allow_useless": True})

    def shortfall(value: float, *, certified: bool) -> str | None:
        say(f"trying {unknown} = {value:.6g}")
        wish = asked(value)
        try:
            protocol, _, _ = choose(wish, certified=certified)
        except InfeasibleError as error:
            return str(error)
        return wanted.shortfall(wish, protocol)

    asked(high)  # validates everything else
    if request.get("classes") is not None and unknown == "users":
        low = max(low, 2 * int(request["classes"]))
    if unknown == "users" and request.get("min_users") is not None:
        low = max(low, int(request["min_users"]) * asked(high).n_protocols)
    best = _smallest(
        lambda value: shortfall(value, certified=False), low, high, whole=unknown != "epsilon", name=unknown
    )
    while (missing := shortfall(best, certified=True)) is not None:
        if best >= high:
            raise InfeasibleError(f"no {unknown} up to {high:g} is enough: {missing}; relax the target.")
        best = min(high, best * (1.0 + _PRECISION) if unknown == "epsilon" else math.ceil(best * (1.0 + _PRECISION)))
    solved = plan(asked(best), progress=progress)
    shown = solved.request.epsilon if unknown == "epsilon" else getattr(solved.request, unknown)
    why = f"solved for the smallest {unknown}: {shown:g} (to {_PRECISION:.1%})"
    return dataclasses.replace(solved, reasons=(why, *solved.reasons))


def _fewest_messages(
    target_error: float | None,
    max_messages: float | None,
    measure: str,
    progress: Progress | None,
    request: Mapping[str, Any],
) -> Plan:
    """The plan of fewest messages per user among the protocols that may be used, each with the fewest repetitions."""
    if target_error is None:
        raise InvalidInputError("target_error=None: without a target no messages are needed at all; give one.")
    chosen = request.get("bitsum", PlanRequest.__dataclass_fields__["bitsum"].default)
    found, refusals = [], []
    for name in BITSUMS if chosen == "auto" else (chosen,):
        try:
            found.append(
                solve(
                    "repetitions",
                    target_error=target_error,
                    max_messages=max_messages,
                    measure=measure,
                    progress=progress,
                    **{**request, "bitsum": name},
                )
            )
        except PrivkdeError as error:  # also an accountant that does not suit this protocol
            if chosen != "auto":
                raise
            refusals.append(f"{name}: {error}")
    if not found:
        raise InfeasibleError("; ".join(refusals))
    best = min(found, key=lambda one: one.messages_per_user)
    why = f"solved for the fewest messages per user: {best.messages_per_user:.6g} with {best.bitsum}"
    return dataclasses.replace(best, reasons=(why, *best.reasons))


def _smallest(missing_at: Callable[[float], str | None], low: float, high: float, *, whole: bool, name: str) -> float:
    """Bisection on a logarithmic scale, growing geometrically from the low end."""
    if missing_at(low) is None:
        return low
    reach = low
    while True:
        previous, reach = reach, min(high, max(reach * 8.0, reach + 1.0))
        missing = missing_at(reach)
        if missing is None:
            break
        if reach >= high:
            raise InfeasibleError(f"no {name} up to {high:g} is enough: {missing}; relax the target.")
    low, high = previous, reach
    while high - low > max(_PRECISION * low, 1.0 if whole else 0.0):
        middle = math.sqrt(low * high)
        if whole:
            middle = float(min(max(round(middle), low + 1), high - 1))
        if missing_at(middle) is None:
            high = middle
        else:
            low = middle
    return high
