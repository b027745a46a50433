"""Routes of the budget ledger."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBearer

from accounting import Plan
from accounting.releases.release import Release
from privkde.ledger import Ledger
from privkde.service import documents, problems
from privkde.service.jobs import release_of
from privkde.service.problems import Problem, described
from privkde.service.reading import Reads, StrictRoute, example, json_object
from privkde.service.requests import RELEASE, BudgetRequest, ChargeRequest, LedgerRequest, UseRequest

TOKEN = HTTPBearer(auto_error=False, description="the token of the service, if it has one")


async def _require_token(request: Request, _described: Annotated[Any, Depends(TOKEN)]) -> None:
    """Everything about budgets needs the token, if the service has one."""
    if request.app.state.settings.token is not None and not request.state.client.has_token:
        raise Problem(
            problems.UNAUTHORIZED, "send Authorization: Bearer TOKEN.", headers={"WWW-Authenticate": "Bearer"}
        )


ALL = described(
    *problems.EVERYWHERE,
    problems.NOT_FOUND,
    problems.UNAVAILABLE,
    problems.ALTERED,
    *problems.WORK,
    problems.UNAUTHORIZED,
)
NAMED = described(problems.NOT_FOUND, problems.UNKNOWN_BUDGET)
router = APIRouter(
    prefix="/v1/budgets",
    tags=["budgets"],
    route_class=StrictRoute,
    responses=ALL,
    dependencies=[Depends(_require_token)],
)

BudgetBody = Annotated[
    BudgetRequest, Reads(BudgetRequest), example({"name": "telemetry", "epsilon": 4.0, "delta": 1e-6})
]
ReleaseBody = Annotated[ChargeRequest, Reads(ChargeRequest), example(RELEASE)]
UseBody = Annotated[UseRequest, Reads(UseRequest), example({"schedule": "example"})]


def _ledger(request: Request) -> Ledger:
    ledger: Ledger | None = request.app.state.ledger
    if ledger is None:
        raise Problem(problems.NOT_FOUND, "this service was started without a ledger; start it with --ledger FILE.")
    return ledger


AnyLedger = Annotated[Ledger, Depends(_ledger)]


async def _read(request: Request, what: str, **asked: Any) -> Response:
    """What the ledger says now, read by a process that can be stopped."""
    _ledger(request)
    settings = request.app.state.settings
    key = None if settings.ledger_key is None else settings.ledger_key.hex()
    question = LedgerRequest(ledger=settings.ledger, ledger_key=key, **asked)
    answer = await request.app.state.readers.run(what, question, request.state.client, fresh=True)
    return Response(answer, media_type="application/json")


@router.get("", response_model=documents.Budgets, summary="All budgets")
async def list_budgets(request: Request) -> Response:
    """What each may cost."""
    return await _read(request, "budgets")


@router.post(
    "",
    status_code=201,
    response_model=documents.Budget,
    responses=described(problems.EXISTS),
    summary="Create a budget",
)
async def create_budget(ledger: AnyLedger, body: BudgetBody) -> dict[str, Any]:
    """A budget never changes."""
    return (await run_in_threadpool(lambda: ledger.create(**dataclasses.asdict(body)))).to_json()


@router.get("/{name}", response_model=documents.Standing, responses=NAMED, summary="Where a budget stands")
async def standing(request: Request, name: str) -> Response:
    """What is spent and what is left."""
    return await _read(request, "standing", name=name)


@router.get("/{name}/charges", response_model=documents.Charges, responses=NAMED, summary="What a budget has paid for")
async def list_charges(request: Request, name: str) -> Response:
    """All charges, the oldest first."""
    return await _read(request, "charges", name=name)


@router.post("/{name}/quote", response_model=documents.Quote, responses=NAMED, summary="What a release would cost")
async def quote(request: Request, _exists: AnyLedger, name: str, body: ReleaseBody) -> Response:
    """Nothing is charged."""
    release, _ = await _release(request, body)
    return await _read(request, "quote", name=name, release=release.to_json(), cohort=body.cohort)


@router.post(
    "/{name}/charges",
    status_code=201,
    response_model=documents.Charge,
    responses=NAMED | described(problems.EXCEEDED, problems.KEY_REUSED),
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
async def list_uses(request: Request, name: str) -> Response:
    """Of all schedules, the oldest first."""
    return await _read(request, "uses", name=name)


@router.post(
    "/{name}/uses",
    status_code=201,
    response_model=documents.Use,
    responses=NAMED | described(problems.USED_UP),
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
    document = await request.app.state.workers.run("release", body, request.state.client)
    return Release.from_json(json_object(document)), Plan.from_json(body.plan).sha256()
