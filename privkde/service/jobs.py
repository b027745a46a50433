"""What the service computes, each in a worker process: a checked request in, plain JSON values out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from accounting import Guarantee, InvalidInputError, Plan, PlanRequest, View, solve
from accounting.choosing import silent
from accounting.comparing import Outcome, compare_bitsums, compare_labels, compare_rungs, rung_names
from accounting.mechanisms import BITSUMS
from accounting.planning import plan_with_advice
from accounting.releases.composing import finite, joint_profile, profile_of
from accounting.releases.plan_curves import profile_curves
from accounting.releases.release import Release
from accounting.solving import SolveRequest
from privkde.ledger import Ledger
from privkde.ledger.ledger import composed
from privkde.ledger.records import LARGEST_BUDGET, Budget, Quote
from privkde.service.requests import (
    CertifyRequest,
    ChargeRequest,
    ComposeRequest,
    LedgerRequest,
    ProfileRequest,
    ReleaseRequest,
)

MOST_INSTANCES = 1_000_000
"""Bitsum instances of a plan that the service makes."""

FALSE_POSITIVE_RATES = (0.01, 0.1)
"""At which the best attack's true positive rate is stated."""


def compare_job(compare: Callable[[PlanRequest], list[Outcome]], request: PlanRequest) -> list[dict[str, Any]]:
    """The same promise by a rung, if it applies, by a bitsum protocol or, with classes, with both kinds of labels."""
    return [outcome.to_json() for outcome in compare(_bounded(request))]


def estimate_job(request: PlanRequest) -> dict[str, Any]:
    """Noise and predicted error of a request without the last proof: to draw curves with, not to promise."""
    request = dataclasses.replace(_bounded(request), allow_useless=True)
    return {"schema": "privkde.estimate/1", **Outcome.of("estimate", request, silent, certified=False).to_json()}


def profile_job(request: ProfileRequest) -> dict[str, Any]:
    """δ(ε) at a plan's parameters: by every rung, and as promised for features, with the best attack's success.

    Risks are those of the whole record and, where the label is protected by itself, of the vector and of the label.
    """
    plan = Plan.from_json(request.plan)
    parts = [part.profile for part in Release.of_plan("profile", plan).parts]
    named = {"record": profile_of(plan)}
    if len(parts) > 1:  # a schedule reports the label in each of its releases
        named |= {"vector": parts[0], "label": joint_profile(parts[1:])}
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


def certify_job(request: CertifyRequest) -> dict[str, Any]:
    """A certificate of a plan, which need not be believed."""
    plan = Plan.from_json(request.plan)
    _bounded(plan.request)
    return plan.certified().to_json()


def release_of(request: ReleaseRequest) -> Release:
    """The release that a request describes, by its plan or by its guarantee."""
    if request.plan is not None:
        plan, view = Plan.from_json(request.plan), View(request.view or "communication")
        return Release.of_plan(request.name, plan, view=view, times=request.times)
    if request.release is not None:
        return dataclasses.replace(Release.from_json(request.release), name=request.name).repeated(request.times)
    assert request.guarantee is not None
    promise = Guarantee(**dataclasses.asdict(request.guarantee))
    return Release.of_guarantee(request.name, promise, times=request.times)


def compose_job(request: ComposeRequest) -> dict[str, Any]:
    """What `releases` cost at `delta` after those `charged` before; refused if a budget `epsilon` does not allow it."""
    budget = Budget(
        name="composition",
        epsilon=LARGEST_BUDGET if request.epsilon is None else request.epsilon,
        delta=request.delta,
        composition=request.composition or ("pld" if request.epsilon is None else "adaptive"),  # type: ignore[arg-type]
        created="",
    )
    delta = budget.delta
    charged, added = (tuple(map(release_of, releases)) for releases in (request.charged, request.releases))
    before, after = (composed(budget, releases) for releases in (charged, charged + added))
    if request.epsilon is None:
        before, after = (dataclasses.replace(costs, at_budget=None) for costs in (before, after))
    if not math.isfinite(before.epsilon):
        raise InvalidInputError(f"what was charged before promises nothing at delta={delta:g} any more; raise delta.")
    requested = after.epsilon - before.epsilon
    answer = {
        "schema": "privkde.composition/1",
        "composition": str(budget.composition),
        "delta": delta,
        "spent_before": before.to_json(),
        "spent_after": after.to_json(),
        "requested": finite(requested),
    }
    if request.epsilon is None:
        return answer
    if after.epsilon > request.epsilon:
        Quote(budget=budget, before=before, after=after).refuse_excess()
    return answer | {"epsilon": request.epsilon, "remaining": request.epsilon - after.epsilon}


def reading_job(read: Callable[[Ledger, LedgerRequest], dict[str, Any]], request: LedgerRequest) -> dict[str, Any]:
    """What a ledger says; each worker opens it once."""
    return read(_opened(request.ledger, request.ledger_key), request)


@lru_cache
def _opened(where: str, key: str | None) -> Ledger:
    return Ledger.open(where, key=None if key is None else bytes.fromhex(key))


def _listed(name: str, rows: Sequence[Any]) -> dict[str, Any]:
    return {"schema": f"privkde.{name}/1", name: [row.to_json() for row in rows]}


def _quoted(ledger: Ledger, request: LedgerRequest) -> dict[str, Any]:
    assert request.release is not None
    release = Release.from_json(request.release)
    return ledger.quote(request.name or "", release, cohort=request.cohort).to_json()


def _bounded(request: PlanRequest) -> PlanRequest:
    """The request, unless its instances alone would take too long."""
    instances = request.facts().n_instances
    if instances > MOST_INSTANCES:
        raise InvalidInputError(
            f"the request has {instances:,} bitsum instances; the service plans for {MOST_INSTANCES:,} at most: reduce"
            " dim, repetitions or classes, or use the command line."
        )
    return request


COMPARED: dict[str, dict[str, Callable[[PlanRequest], list[Outcome]]]] = {
    "rungs": {name: partial(compare_rungs, certified=False, only=name) for name in rung_names()},
    "bitsums": {name: partial(compare_bitsums, only=name) for name in BITSUMS},
    "labels": {"both": compare_labels},
}
"""What a comparison holds, and the jobs of its rows."""
READ: dict[str, Callable[[Ledger, LedgerRequest], dict[str, Any]]] = {
    "budgets": lambda ledger, _: _listed("budgets", ledger.budgets()),
    "standing": lambda ledger, request: ledger.standing(request.name or "").to_json(),
    "charges": lambda ledger, request: _listed("charges", ledger.history(request.name or "")),
    "uses": lambda ledger, request: _listed("uses", ledger.uses(request.name or "")),
    "quote": _quoted,
}
Job = tuple[Any, Callable[[Any], Any]]
JOBS: dict[str, Job] = {
    "plan": (PlanRequest, lambda request: plan_with_advice(_bounded(request)).to_json()),
    **{
        f"compare {group} {name}": (PlanRequest, partial(compare_job, compare))
        for group, rows in COMPARED.items()
        for name, compare in rows.items()
    },
    "estimate": (PlanRequest, estimate_job),
    "solve": (SolveRequest, lambda question: solve(**dataclasses.asdict(question)).to_json()),
    "profile": (ProfileRequest, profile_job),
    "certify": (CertifyRequest, certify_job),
    "release": (ChargeRequest, lambda request: release_of(request).to_json()),
    "compose": (ComposeRequest, compose_job),
    **{name: (LedgerRequest, partial(reading_job, read)) for name, read in READ.items()},
}
"""What each job takes, and the job."""
