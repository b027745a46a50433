"""Routes of the budget ledger."""

from __future__ import annotations

import dataclasses
import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from accounting import Plan
from accounting.releases.release import Release
from privkde.ledger import Ledger
from privkde.service import documents, problems
from privkde.service.jobs import release_of
from privkde.service.problems import Problem, described
from privkde.service.reading import Reads, StrictRoute, example, json_object
from privkde.service.requests import RELEASE, BudgetRequest, ChargeRequest, UseRequest

ALL = described(*problems.EVERYWHERE, problems.NOT_FOUND, problems.UNAVAILABLE, problems.ALTERED, problems.INVALID)
NAMED = described(problems.NOT_FOUND, problems.UNKNOWN_BUDGET)
COMPUTED = described(*problems.WORK, problems.UNAVAILABLE, problems.ALTERED)
router = APIRouter(prefix="/v1/budgets", tags=["budgets"], route_class=StrictRoute, responses=ALL)

BudgetBody = Annotated[
    BudgetRequest, Reads(BudgetRequest), example({"name": "telemetry", "epsilon": 4.0, "delta": 1e-6})
]
ReleaseBody = Annotated[ChargeRequest, Reads(ChargeRequest), example(RELEASE)]
UseBody = Annotated[UseRequest, Reads(UseRequest), example({"schedule": "example"})]
Credentials = Annotated[
    HTTPAuthorizationCredentials | None,
    Depends(HTTPBearer(auto_error=False, description="the token of the service, if it has one")),
]


def _ledger(request: Request) -> Ledger:
    ledger: Ledger | None = request.app.state.ledger
    if ledger is None:
        raise Problem(problems.NOT_FOUND, "this service was started without a ledger; start it with --ledger FILE.")
    return ledger


async def _require_token(request: Request, credentials: Credentials) -> None:
    """Writing needs the token, if the service has one."""
    token = request.app.state.settings.token
    given = None if credentials is None else credentials.credentials.encode()
    if token is not None and (given is None or not secrets.compare_digest(given, token.encode())):
        raise Problem(
            problems.UNAUTHORIZED, "send Authorization: Bearer TOKEN.", headers={"WWW-Authenticate": "Bearer"}
        )


WRITING = [Depends(_require_token)]
AnyLedger = Annotated[Ledger, Depends(_ledger)]


@router.get("", response_model=documents.Budgets, summary="All budgets")
async def list_budgets(ledger: AnyLedger) -> dict[str, Any]:
    """What each may cost."""
    budgets = await run_in_threadpool(ledger.budgets)
    return {"schema": "privkde.budgets/1", "budgets": [budget.to_json() for budget in budgets]}


@router.post(
    "",
    status_code=201,
    response_model=documents.Budget,
    responses=described(problems.UNAUTHORIZED, problems.EXISTS),
    dependencies=WRITING,
    summary="Create a budget",
)
async def create_budget(ledger: AnyLedger, body: BudgetBody) -> dict[str, Any]:
    """A budget never changes."""
    return (await run_in_threadpool(lambda: ledger.create(**dataclasses.asdict(body)))).to_json()


@router.get("/{name}", response_model=documents.Standing, responses=NAMED, summary="Where a budget stands")
async def standing(ledger: AnyLedger, name: str) -> dict[str, Any]:
    """What is spent and what is left."""
    return (await run_in_threadpool(ledger.standing, name)).to_json()


@router.get("/{name}/charges", response_model=documents.Charges, responses=NAMED, summary="What a budget has paid for")
async def list_charges(ledger: AnyLedger, name: str) -> dict[str, Any]:
    """All charges, the oldest first."""
    charges = await run_in_threadpool(ledger.history, name)
    return {"schema": "privkde.charges/1", "charges": [charge.to_json() for charge in charges]}


@router.post(
    "/{name}/quote", response_model=documents.Quote, responses=NAMED | COMPUTED, summary="What a release would cost"
)
async def quote(request: Request, ledger: AnyLedger, name: str, body: ReleaseBody) -> dict[str, Any]:
    """Nothing is charged."""
    release, _ = await _release(request, body)
    return (await run_in_threadpool(lambda: ledger.quote(name, release, cohort=body.cohort))).to_json()


@router.post(
    "/{name}/charges",
    status_code=201,
    response_model=documents.Charge,
    responses=NAMED | COMPUTED | described(problems.UNAUTHORIZED, problems.EXCEEDED, problems.KEY_REUSED),
    dependencies=WRITING,
    summary="Charge a release",
)
async def charge(
    request: Request,
    ledger: AnyLedger,
    name: str,
    idempotency_key: Annotated[str, Header(min_length=1, max_length=200)],
    body: ReleaseBody,
) -> dict[str, Any]:
    """Charged once, however often it is sent with the same key; refused if it does not fit."""
    release, digest = await _release(request, body)
    paid = await run_in_threadpool(
        lambda: ledger.charge(name, release, key=idempotency_key, plan_sha256=digest, cohort=body.cohort)
    )
    return paid.to_json()


@router.get("/{name}/uses", response_model=documents.Uses, responses=NAMED, summary="Which collections were used")
async def list_uses(ledger: AnyLedger, name: str) -> dict[str, Any]:
    """Of all schedules, the oldest first."""
    uses = await run_in_threadpool(ledger.uses, name)
    return {"schema": "privkde.uses/1", "uses": [use.to_json() for use in uses]}


@router.post(
    "/{name}/uses",
    status_code=201,
    response_model=documents.Use,
    responses=NAMED | described(problems.UNAUTHORIZED, problems.USED_UP),
    dependencies=WRITING,
    summary="Take one of the times of a schedule",
)
async def use(
    ledger: AnyLedger,
    name: str,
    idempotency_key: Annotated[str, Header(min_length=1, max_length=200)],
    body: UseBody,
) -> dict[str, Any]:
    """Counted once, however often it is sent with the same key."""
    taken = await run_in_threadpool(
        lambda: ledger.use(name, body.schedule, key=idempotency_key, plan_sha256=body.plan_sha256)
    )
    return taken.to_json()


async def _release(request: Request, body: ChargeRequest) -> tuple[Release, str | None]:
    """The release in a request, and its plan's hash; a worker computes the profile of a plan."""
    if body.plan is None:
        return release_of(body), None
    document = await request.app.state.workers.run("release", body)
    return Release.from_json(json_object(document)), Plan.from_json(body.plan).sha256()
