"""Routes of the budget ledger."""

from __future__ import annotations

import secrets
from typing import Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.concurrency import run_in_threadpool

from accounting import InvalidInputError, Plan
from accounting.releases import Release
from privkde.ledger import Ledger
from privkde.service.bodies import json_body
from privkde.service.jobs import release_job
from privkde.service.problems import NOT_FOUND, UNAUTHORIZED, Problem

router = APIRouter(prefix="/v1/budgets", tags=["budgets"])

BUDGET_NAMES = frozenset({"name", "epsilon", "delta", "view", "composition"})


def _ledger(request: Request) -> Ledger:
    ledger: Ledger | None = request.app.state.ledger
    if ledger is None:
        raise Problem(NOT_FOUND, "this service was started without a ledger; start it with --ledger FILE.")
    return ledger


def _require_token(request: Request) -> None:
    """Writing needs the token, if the service has one."""
    token = request.app.state.settings.token
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if token is not None and not (
        scheme.lower() == "bearer" and secrets.compare_digest(given.encode(), token.encode())
    ):
        raise Problem(UNAUTHORIZED, "send Authorization: Bearer TOKEN.", headers={"WWW-Authenticate": "Bearer"})


@router.get("", summary="All budgets")
async def listed(request: Request) -> dict[str, Any]:
    """What each may cost."""
    found = await run_in_threadpool(_ledger(request).budgets)
    return {"schema": "privkde.budgets/1", "budgets": [one.to_json() for one in found]}


@router.post("", status_code=201, summary="Create a budget")
async def created(request: Request) -> dict[str, Any]:
    """A budget never changes."""
    _require_token(request)
    ledger, body = _ledger(request), json_body(await request.body())
    if not {"name", "epsilon", "delta"} <= set(body) <= BUDGET_NAMES:
        raise InvalidInputError("a budget has name, epsilon, delta and perhaps view and composition; give those.")
    budget = await run_in_threadpool(lambda: ledger.create(body.pop("name"), **body))
    return budget.to_json()


@router.get("/{name}", summary="Where a budget stands")
async def standing(request: Request, name: str) -> dict[str, Any]:
    """What is spent and what is left."""
    return (await run_in_threadpool(_ledger(request).standing, name)).to_json()


@router.get("/{name}/charges", summary="What a budget has paid for")
async def history(request: Request, name: str) -> dict[str, Any]:
    """All charges, the oldest first."""
    found = await run_in_threadpool(_ledger(request).history, name)
    return {"schema": "privkde.charges/1", "charges": [one.to_json() for one in found]}


@router.post("/{name}/quote", summary="What a release would cost")
async def quoted(request: Request, name: str) -> dict[str, Any]:
    """Nothing is charged."""
    ledger = _ledger(request)
    release, _ = await _release(request)
    return (await run_in_threadpool(ledger.quote, name, release)).to_json()


@router.post("/{name}/charges", status_code=201, summary="Charge a release")
async def charged(
    request: Request, response: Response, name: str, idempotency_key: str = Header(min_length=1, max_length=200)
) -> dict[str, Any]:
    """Charged once, however often it is sent with the same key; refused if it does not fit."""
    _require_token(request)
    ledger = _ledger(request)
    release, digest = await _release(request)
    found = await run_in_threadpool(lambda: ledger.charge(name, release, key=idempotency_key, plan_sha256=digest))
    return found.to_json()


async def _release(request: Request) -> tuple[Release, str | None]:
    """The release in a request, computed by a worker, and its plan's hash."""
    body = json_body(await request.body())
    if "times" in body:
        raise InvalidInputError("times has no effect on one charge; charge once for each release, with its own key.")
    if "plan" not in body:  # quick: needs no worker
        return Release.from_json(release_job(body)), None
    document = await request.app.state.workers.run("release", body)
    digest = Plan.from_json(body["plan"]).sha256()
    return Release.from_json(json_body(document)), digest
