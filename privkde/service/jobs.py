"""What the service computes: plain JSON values in, plain JSON values out. Each runs in a worker process."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from accounting import InvalidInputError, Plan, View, plan_budget, solve
from accounting.choosing import silent
from accounting.comparing import Outcome, compare_bitsums, compare_labels, compare_rungs
from accounting.curves import profile_curves
from accounting.errors import require_choice, require_integer, require_real
from accounting.guarantee import Guarantee
from accounting.releases import MOST_RELEASES, Release, finite, joint_profile
from accounting.request import PlanRequest, read_request
from privkde.ledger.composing import composed
from privkde.ledger.errors import BudgetExceededError
from privkde.ledger.records import LARGEST_BUDGET, Composition

Body = Mapping[str, Any]

MOST_INSTANCES = 1_000_000
"""Bitsum instances of a plan that the service makes."""

FALSE_POSITIVE_RATES = (0.01, 0.1)
"""At which the best attack's true positive rate is told."""


def plan_job(body: Body) -> dict[str, Any]:
    """`plan_budget`."""
    return plan_budget(**_bounded(_names(body))).to_json()


def compare_job(compared: Callable[[PlanRequest], list[Outcome]], body: Body) -> list[dict[str, Any]]:
    """The same promise by every rung, by every bitsum protocol or, with classes, with both ways to protect labels."""
    return [one.to_json() for one in compared(read_request(_bounded(_names(body))))]


def estimate_job(body: Body) -> dict[str, Any]:
    """Noise and predicted error of a request without the last proof: to draw curves with, not to promise."""
    request = read_request({**_bounded(_names(body)), "allow_useless": True})
    return {"schema": "privkde.estimate/1", **Outcome.of("estimate", request, silent, certified=False).to_json()}


def solve_job(body: Body) -> dict[str, Any]:
    """`solve`: `unknown`, `target_error`, `max_messages` and `measure` beside the names of a request."""
    names = _names(body)
    if not isinstance(names.get("unknown"), str):
        raise InvalidInputError(f"unknown={names.get('unknown')!r} must name what to solve for, such as 'epsilon'.")
    return solve(names.pop("unknown"), **names).to_json()


def profile_job(body: Body) -> dict[str, Any]:
    """δ(ε) at a plan's parameters: by every rung, and as promised for features, with the best attack's success.

    Risks are those of the whole record and, where the label is protected by itself, of the vector and of the label.
    """
    plan = _plan(body)
    parts = Release.of_plan("profile", plan).profiles
    named = {"record": joint_profile(parts)}
    if len(parts) > 1:
        named |= dict(zip(("vector", "label"), parts, strict=True))
    return {
        "schema": "privkde.profile/1",
        "curves": {name: [list(point) for point in curve] for name, curve in profile_curves(plan).items()},
        "promised": [list(point) for point in parts[0].points],
        "risk": [
            {"of": of, "false_positive_rate": rate, "true_positive_rate": profile.true_positive_rate(rate)}
            for of, profile in named.items()
            for rate in FALSE_POSITIVE_RATES
        ],
    }


def release_job(body: Body) -> dict[str, Any]:
    """A release of a ledger or a composition: `name`, and a `plan` or a `guarantee`."""
    unknown = sorted(set(body) - {"name", "plan", "guarantee", "times", "view"})
    if unknown:
        raise InvalidInputError(f"{unknown[0]!r} is no part of a release; give name, plan or guarantee, times, view.")
    name = body.get("name")
    if not isinstance(name, str):
        raise InvalidInputError(f"name={name!r} of a release must be a text.")
    if ("plan" in body) == ("guarantee" in body):
        raise InvalidInputError(f"release {name!r} must have either a plan or a guarantee; give one of them.")
    if "view" in body and "guarantee" in body:
        raise InvalidInputError("view beside a guarantee: a guarantee names its own view; put it there.")
    if "plan" in body:
        return Release.of_plan(name, _plan(body), view=_view(body)).to_json()
    return Release.of_guarantee(name, _guarantee(body["guarantee"])).to_json()


def compose_job(body: Body) -> dict[str, Any]:
    """What `releases` cost at `delta` after those `charged` before; refused if a budget `epsilon` does not allow it."""
    unknown = sorted(set(body) - {"releases", "charged", "delta", "epsilon", "composition"})
    if unknown:
        raise InvalidInputError(f"{unknown[0]!r} is no part of a composition; leave it out.")
    delta = require_real("delta", body.get("delta"), low=0.0, high=0.5, low_open=False)
    composition = Composition(require_choice("composition", body.get("composition", "pld"), list(Composition)))
    charged, requested = _releases(body, "charged"), _releases(body, "releases")
    if not requested:
        raise InvalidInputError("releases=[] cannot be composed; give at least one.")
    before, after = (composed(tuple(some), delta, composition) for some in (charged, charged + requested))
    if not math.isfinite(before.epsilon):
        raise InvalidInputError(f"what was charged before promises nothing at delta={delta:g} any more; raise delta.")
    answer = {
        "schema": "privkde.composition/1",
        "composition": str(composition),
        "delta": delta,
        "spent_before": before.to_json(),
        "spent_after": after.to_json(),
        "requested": finite(after.epsilon - before.epsilon),
    }
    if body.get("epsilon") is None:
        return answer
    budget = require_real("epsilon", body["epsilon"], low=0.0, high=LARGEST_BUDGET)
    left = budget - before.epsilon
    if after.epsilon > budget:
        raise BudgetExceededError("composition", requested=after.epsilon - before.epsilon, remaining=left, delta=delta)
    return answer | {"epsilon": budget, "remaining": budget - after.epsilon}


def _releases(body: Body, name: str) -> list[Release]:
    listed = body.get(name, [])
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise InvalidInputError(f"{name} must be a list of releases; each has a name and a plan or a guarantee.")
    found: list[Release] = []
    for one in listed:
        times = require_integer("times", one.get("times", 1), low=1, high=MOST_RELEASES)
        found += [Release.from_json(release_job(one))] * times
    return found


def _names(body: Body) -> dict[str, Any]:
    """A request's names; null means that it was not given."""
    return {name: value for name, value in body.items() if value is not None}


def _bounded(names: dict[str, Any]) -> dict[str, Any]:
    """Refuse a request whose instances alone would take too long."""
    instances = read_request(names).facts().n_instances
    if instances > MOST_INSTANCES:
        raise InvalidInputError(
            f"the request has {instances:,} bitsum instances; the service plans for {MOST_INSTANCES:,} at most: reduce"
            " dim, repetitions or classes, or use the command line."
        )
    return names


def _plan(body: Body) -> Plan:
    document = body.get("plan")
    if not isinstance(document, dict):
        raise InvalidInputError("plan is missing; give a document that POST /v1/plan answered.")
    return Plan.from_json(document)


def _view(body: Body) -> View:
    return View(require_choice("view", body.get("view", "communication"), ("communication", "model")))


def _guarantee(values: Any) -> Guarantee:
    """(ε, δ) for a whole record in the communication view, unless it says otherwise."""
    if not isinstance(values, dict) or not set(values) <= {"epsilon", "delta", "adjacency", "view"}:
        raise InvalidInputError("a guarantee has epsilon, delta and perhaps adjacency and view; give those.")
    told: dict[str, Any] = {"delta": 0.0, "adjacency": "replace-one", "view": "communication"} | values
    if "epsilon" not in values:
        raise InvalidInputError("a guarantee has epsilon, which is missing; give it.")
    return Guarantee(**told)


COMPARED: dict[str, Callable[[PlanRequest], list[Outcome]]] = {
    "rungs": compare_rungs,
    "bitsums": compare_bitsums,
    "labels": compare_labels,
}
JOBS: dict[str, Callable[[Body], Any]] = {
    "plan": plan_job,
    **{f"compare {group}": partial(compare_job, compared) for group, compared in COMPARED.items()},
    "estimate": estimate_job,
    "solve": solve_job,
    "profile": profile_job,
    "release": release_job,
    "compose": compose_job,
}
