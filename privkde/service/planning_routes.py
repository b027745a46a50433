"""Routes that compute and keep nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response
from starlette.responses import StreamingResponse

import privkde
from accounting import PlanRequest
from accounting.comparing import Outcome
from accounting.kernels import KERNELS
from accounting.mechanisms import BITSUMS
from accounting.request import ACCOUNTANTS, LABELS
from accounting.solving import SolveRequest
from privkde.service import documents
from privkde.service.jobs import COMPARED
from privkde.service.problems import EVERYWHERE, EXCEEDED, INFEASIBLE, UNLIKE, WORK, Problem, described
from privkde.service.reading import Reads, StrictRoute, example
from privkde.service.requests import RELEASE, CertifyRequest, ComposeRequest, ProfileRequest

COMPARED_AT_ONCE = 3
"""Jobs of one comparison at work or waiting."""
PLANNED = (*EVERYWHERE, *WORK, INFEASIBLE)
planning = APIRouter(prefix="/v1/plan", tags=["planning"], route_class=StrictRoute, responses=described(*PLANNED))
composition = APIRouter(tags=["composition"], route_class=StrictRoute, responses=described(*PLANNED, UNLIKE, EXCEEDED))
proofs = APIRouter(tags=["proofs"], route_class=StrictRoute, responses=described(*EVERYWHERE, *WORK))
facts = APIRouter(tags=["facts"], responses=described(*EVERYWHERE))


SMALL: dict[str, Any] = {"users": 2_000, "dim": 8, "epsilon": 2.0, "delta": 1e-6, "accountant": "pld"}
TARGET = {"unknown": "epsilon", "target_error": 0.3, "users": 30_000, "dim": 16, "delta": 1e-6}
SEVERAL = {"releases": [{**RELEASE, "times": 10}], "delta": 1e-5, "epsilon": 5.0}

PlanBody = Annotated[PlanRequest, Reads(PlanRequest), example(SMALL)]
SolveBody = Annotated[Any, Reads(SolveRequest), example(TARGET)]
ProfileBody = Annotated[ProfileRequest, Reads(ProfileRequest), Body()]
CertifyBody = Annotated[CertifyRequest, Reads(CertifyRequest), Body()]
ComposeBody = Annotated[ComposeRequest, Reads(ComposeRequest), example(SEVERAL)]


async def _computed(request: Request, job: str, body: Any) -> Response:
    """A worker's answer as it is: its shape is declared, and tests hold it to that."""
    return Response(await request.app.state.workers.run(job, body, request.state.client), media_type="application/json")


@planning.post("", response_model=documents.Plan, summary="Plan the noise for a promise")
async def plan(request: Request, body: PlanBody) -> Response:
    """`plan_budget`: the same request always gives the same plan, which is what `privkde plan --json` prints."""
    return await _computed(request, "plan", body)


@planning.post("/compare", response_model=documents.Comparison, summary="The same promise kept in several ways")
async def compare(request: Request, body: PlanBody) -> Response:
    """Every rung of the ladder, every bitsum protocol and both ways to protect labels, without the last proof.

    Rows are sent as they are ready, each group on lines of its own. One that takes too long is listed with that reason.
    """
    rows = _Rows(request, body)
    try:
        await rows.first()
    except BaseException:
        rows.stop()
        raise
    return StreamingResponse(rows.document(), media_type="application/json")


class _Rows:
    """The rows of a comparison, so many at a time computed as a comparison counts for."""

    def __init__(self, request: Request, body: PlanRequest) -> None:
        self._request, self._body = request, body
        self._turns = asyncio.Semaphore(COMPARED_AT_ONCE)
        self._tasks = {
            group: {name: asyncio.create_task(self._row(group, name)) for name in names}
            for group, names in COMPARED.items()
        }

    async def _row(self, group: str, name: str) -> list[dict[str, Any]]:
        async with self._turns:
            answer = await self._request.app.state.workers.run(
                f"compare {group} {name}", self._body, self._request.state.client
            )
        found: list[dict[str, Any]] = json.loads(answer)
        return found

    async def first(self) -> None:
        """Wait for the first row; a problem with it is one with the request."""
        await next(iter(next(iter(self._tasks.values())).values()))

    async def document(self) -> AsyncIterator[str]:
        """The document, one line for each row."""
        try:
            yield '{"schema": "privkde.comparison/1"'
            for group, tasks in self._tasks.items():
                yield f',\n"{group}": ['
                between = "\n"
                for name, task in tasks.items():
                    for row in await self._known(name, task):
                        yield between + json.dumps(row, ensure_ascii=False, allow_nan=False)
                        between = ",\n"
                yield "\n]"
            yield "}\n"
        finally:
            self.stop()

    async def _known(self, name: str, task: asyncio.Task[list[dict[str, Any]]]) -> list[dict[str, Any]]:
        try:
            return await task
        except Problem as problem:
            return [Outcome(name=name, request=self._body, protocol=None, refusal=problem.detail).to_json()]

    def stop(self) -> None:
        """Ask for no more rows."""
        for tasks in self._tasks.values():
            for task in tasks.values():
                task.cancel()


@planning.post("/solve", response_model=documents.Plan, summary="The smallest ε, n or I, or the most releases")
async def solve(request: Request, body: SolveBody) -> Response:
    """`solve`: leave out what is to be found and name it as `unknown`."""
    return await _computed(request, "solve", body)


@planning.post("/estimate", response_model=documents.Estimate, summary="Predicted error, without the last proof")
async def estimate(request: Request, body: PlanBody) -> Response:
    """Quick: to draw curves with, not to promise."""
    return await _computed(request, "estimate", body)


@planning.post("/profile", response_model=documents.Profile, summary="δ(ε) and the best attack")
async def profile(request: Request, body: ProfileBody) -> Response:
    """The whole profile of a plan, and how often the best attack finds a person at 1 % and 10 % false positives."""
    return await _computed(request, "profile", body)


@composition.post("/v1/compose", response_model=documents.Composition, summary="What several releases cost together")
async def compose(request: Request, body: ComposeBody) -> Response:
    """Plans and promises about the same people, composed by their privacy losses; refused beyond a budget."""
    return await _computed(request, "compose", body)


@proofs.post("/v1/certify", response_model=documents.Certificate, summary="Prove a plan in ball arithmetic")
async def certify(request: Request, body: CertifyBody) -> Response:
    """What `privkde verify` writes, also of a plan that is not proved; it takes seconds, in processes of its own."""
    provers = request.app.state.provers
    return Response(await provers.run("certify", body, request.state.client), media_type="application/json")


@facts.get("/v1/kernels", response_model=documents.Kernels, summary="Kernel families")
async def kernels() -> dict[str, Any]:
    """What a request may name as `kernel`."""
    rows = [
        {
            "name": kernel.name,
            "description": kernel.summary,
            **{name: getattr(kernel, name) for name in ("takes_repetitions", "takes_bias", "takes_bound")},
            "bits_touched_at_64_dimensions": kernel.facts(dim=64).touched.total,
        }
        for kernel in KERNELS.values()
    ]
    return {"schema": "privkde.kernels/1", "kernels": rows}


@facts.get("/v1/bitsums", response_model=documents.Bitsums, summary="Bitsum protocols and accountants")
async def bitsums() -> dict[str, Any]:
    """What a request may name as `bitsum`, `accountant` and `labels`."""
    return {
        "schema": "privkde.bitsums/1",
        "bitsums": [{"name": name, "description": law.summary} for name, law in BITSUMS.items()],
        "accountants": list(ACCOUNTANTS),
        "labels": list(LABELS),
    }


@facts.get("/healthz", response_model=documents.Health, summary="Whether the service answers")
async def health(request: Request) -> dict[str, str]:
    """Ok if there are processes to plan with; else the next request starts them again."""
    return {"status": "ok" if request.app.state.workers.healthy else "restarting"}


@facts.get("/version", response_model=documents.Version, summary="Which privkde answers")
async def version() -> dict[str, str]:
    """The library's version."""
    return {"name": "privkde", "version": privkde.__version__}
