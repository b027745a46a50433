"""The service: routes, errors and documents put together."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import privkde
from accounting import PrivkdeError
from privkde.ledger import Ledger
from privkde.service import budget_routes as budgets
from privkde.service import planner_page
from privkde.service import planning_routes as planning
from privkde.service.problems import INVALID, MALFORMED, MEDIA_TYPE, NO_METHOD, NOT_FOUND, Kind, Problem
from privkde.service.protection import Protection
from privkde.service.settings import Settings
from privkde.service.workers import Workers

DESCRIPTION = (
    "Plan, compare, compose and keep budgets of shuffled differential privacy. Names are those of the command line."
    " Every error is a problem document (RFC 9457)."
)
READERS = 2
"""Processes that read the ledger, if there is one."""
PROVERS = 2
"""Processes that prove plans, started when the first proof is asked for; nobody waits for proofs to plan."""


def create_app(settings: Settings | None = None) -> FastAPI:
    """The service as an ASGI application; its processes and its ledger live as long as its lifespan."""
    chosen = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        workers = Workers(chosen)
        ledger = None if chosen.ledger is None else Ledger.open(chosen.ledger, key=chosen.ledger_key)
        readers = None if ledger is None else Workers(_for_reading(chosen))
        provers = Workers(dataclasses.replace(chosen, workers=PROVERS))
        app.state.settings, app.state.workers, app.state.ledger, app.state.readers = chosen, workers, ledger, readers
        app.state.large_bodies = asyncio.Lock()
        app.state.provers = provers
        for group in (workers, readers):
            if group is not None:
                group.warm()
        try:
            yield
        finally:
            workers.stop()
            provers.stop()
            if ledger is not None and readers is not None:
                readers.stop()
                ledger.close()

    app = FastAPI(
        title="privkde",
        version=privkde.__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # its page would load scripts from elsewhere; `pages` has one that does not
        redoc_url=None,
        openapi_url=None,  # its route would write the document out for each request
        separate_input_output_schemas=False,
        exception_handlers={
            Problem: _answer_error,
            PrivkdeError: _answer_error,
            RequestValidationError: _answer_invalid,
            HTTPException: _answer_http,
        },
    )
    for router in (
        planning.planning,
        planning.composition,
        planning.proofs,
        planning.facts,
        budgets.router,
        planner_page.router,
    ):
        app.include_router(router)
    app.openapi = partial(_document, app)  # type: ignore[method-assign]
    app.add_route("/openapi.json", _written_once(app), include_in_schema=False)
    app.add_middleware(Protection, settings=chosen)
    return app


def _for_reading(settings: Settings) -> Settings:
    """Of the processes that read a ledger: nobody waits for plans there, and answers are not kept."""
    return dataclasses.replace(settings, workers=READERS, time_limit=settings.short_limit, cache_bytes=0)


def _document(app: FastAPI) -> dict[str, Any]:
    """FastAPI's own document, except that it knows no media type for problems."""
    if app.openapi_schema is None:
        for operations in FastAPI.openapi(app)["paths"].values():
            for operation in operations.values():
                for status, answer in operation["responses"].items():
                    if not status.startswith("2"):
                        answer["content"] = {MEDIA_TYPE: answer["content"]["application/json"]}
    return FastAPI.openapi(app)


def _written_once(app: FastAPI) -> Callable[[Request], Response]:
    """Answers with the document, which is written out for the first request."""
    written = cache(lambda: json.dumps(app.openapi(), ensure_ascii=False).encode())
    return lambda _: Response(written(), media_type="application/json")


async def _answer_error(request: Request, error: Any) -> Response:
    return (error if isinstance(error, Problem) else Problem.of(error)).response()


async def _answer_invalid(request: Request, error: Any) -> Response:
    """The library's own words where it refused a value; only headers and missing bodies are left to pydantic."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, PrivkdeError):
        return Problem.of(cause).response()
    where = ".".join(str(part) for part in first["loc"])
    kind = MALFORMED if where == "body" else INVALID
    return Problem(kind, f"{where}: {first['msg']}; correct it.").response()


async def _answer_http(request: Request, error: Any) -> Response:
    kind = {404: NOT_FOUND, 405: NO_METHOD}.get(error.status_code, Kind(error.status_code, "http", "HTTP error"))
    return Problem(kind, f"{kind.title.lower()}; see /openapi.json.", headers=error.headers).response()
