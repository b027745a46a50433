"""The service: routes, errors and documents put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import privkde
from accounting import PrivkdeError
from privkde.ledger import Ledger
from privkde.service import budgets, pages, planning
from privkde.service.openapi import documented
from privkde.service.problems import INVALID, NO_METHOD, NOT_FOUND, Kind, Problem
from privkde.service.protection import Protection
from privkde.service.settings import Settings
from privkde.service.workers import Workers

DESCRIPTION = (
    "Plan, compare, compose and keep budgets of shuffled differential privacy. Names are those of the command line."
    " Every error is a problem document (RFC 9457)."
)


def create_app(settings: Settings | None = None) -> FastAPI:
    """The service as an ASGI application; its processes and its ledger live as long as its lifespan."""
    chosen = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        workers = Workers(chosen)
        ledger = None if chosen.ledger is None else Ledger.open(chosen.ledger)
        app.state.settings, app.state.workers, app.state.ledger = chosen, workers, ledger
        workers.warm()
        try:
            yield
        finally:
            workers.stop()
            if ledger is not None:
                ledger.close()

    app = FastAPI(
        title="privkde",
        version=privkde.__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        openapi_url="/openapi.json",
        exception_handlers={
            Problem: _told,
            PrivkdeError: _refused,
            RequestValidationError: _invalid,
            HTTPException: _http,
        },
    )
    app.include_router(planning.router)
    app.include_router(budgets.router)
    app.include_router(pages.router)
    documented(app)
    app.add_middleware(Protection, settings=chosen)
    return app


async def _told(request: Request, error: Any) -> Response:
    response: Response = error.response()
    return response


async def _refused(request: Request, error: Any) -> Response:
    return Problem.of(error).response()


async def _invalid(request: Request, error: Any) -> Response:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return Problem(INVALID, f"{where}: {first['msg']}; correct it.").response()


async def _http(request: Request, error: Any) -> Response:
    kind = {404: NOT_FOUND, 405: NO_METHOD}.get(error.status_code, Kind(error.status_code, "http", "HTTP error"))
    return Problem(kind, f"{kind.title.lower()}; see /openapi.json.", headers=error.headers or {}).response()
