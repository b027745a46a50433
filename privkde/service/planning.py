"""Routes that compute and keep nothing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import JSONResponse

import privkde
from accounting.kernels import BIASED, CLIPPED, KERNELS, kernel_facts
from accounting.mechanisms import BITSUMS
from accounting.request import ACCOUNTANTS, LABELS
from privkde.service.bodies import json_body
from privkde.service.jobs import COMPARED

router = APIRouter()

KERNEL_WORDS = {
    "gaussian": "exp(−‖x − y‖²/h²) by random Fourier features",
    "inner-product": "x·y of the coordinates themselves, rotated and clipped where that pays",
    "inner-product-signs": "x·y by random signs",
    "laplacian": "exp(−‖x − y‖₁/h) by hashing",
    "exponential": "exp(−‖x − y‖₂/h) by hashing",
}
BITSUM_WORDS = {
    "rr": "each user reports each bit, flipped with a small probability: one message per bit",
    "3nb": "each user sends its bit and a few random messages that mostly cancel",
    "poisson": "each user adds a Poisson number of messages",
    "negative-binomial": "each user adds a negative binomial number of messages",
    "pure": "the only one with δ = 0",
}


async def _ran(request: Request, job: str) -> Response:
    document = await request.app.state.workers.run(job, json_body(await request.body()))
    return Response(document, media_type="application/json")


@router.post("/v1/plan", tags=["planning"], summary="Plan the noise for a promise")
async def plan(request: Request) -> Response:
    """`plan_budget`: the same request always gives the same plan, which is what `privkde plan --json` prints."""
    return await _ran(request, "plan")


@router.post("/v1/plan/compare", tags=["planning"], summary="The same promise kept in several ways")
async def compare(request: Request) -> Response:
    """Every rung of the ladder, every bitsum protocol and both ways to protect labels, side by side."""
    body, workers = json_body(await request.body()), request.app.state.workers
    found = await asyncio.gather(*(workers.run(f"compare {group}", body) for group in COMPARED))
    groups = dict(zip(COMPARED, map(json.loads, found), strict=True))
    return JSONResponse({"schema": "privkde.comparison/1", **groups})


@router.post("/v1/plan/solve", tags=["planning"], summary="The smallest ε, number of users or repetitions")
async def solve(request: Request) -> Response:
    """`solve`: leave out what is to be found and name it as `unknown`."""
    return await _ran(request, "solve")


@router.post("/v1/plan/estimate", tags=["planning"], summary="Predicted error, without the last proof")
async def estimate(request: Request) -> Response:
    """Quick: to draw curves with, not to promise."""
    return await _ran(request, "estimate")


@router.post("/v1/plan/profile", tags=["planning"], summary="δ(ε) and the best attack")
async def profile(request: Request) -> Response:
    """The whole profile of a plan, and how often the best attack finds a person at 1 % and 10 % false positives."""
    return await _ran(request, "profile")


@router.post("/v1/compose", tags=["composition"], summary="What several releases cost together")
async def compose(request: Request) -> Response:
    """Plans and promises about the same people, composed by their privacy losses; refused beyond a budget."""
    return await _ran(request, "compose")


@router.get("/v1/kernels", tags=["facts"], summary="Kernel families")
async def kernels() -> dict[str, Any]:
    """What a request may name as `kernel`."""
    rows = [
        {
            "name": name,
            "description": KERNEL_WORDS[name],
            "takes_repetitions": name != CLIPPED,
            "takes_bias": name in BIASED,
            "takes_bound": name == CLIPPED,
            "bits_touched_at_64_dimensions": kernel_facts(name, dim=64).touched.total,
        }
        for name in KERNELS
    ]
    return {"schema": "privkde.kernels/1", "kernels": rows}


@router.get("/v1/bitsums", tags=["facts"], summary="Bitsum protocols and accountants")
async def bitsums() -> dict[str, Any]:
    """What a request may name as `bitsum`, `accountant` and `labels`."""
    return {
        "schema": "privkde.bitsums/1",
        "bitsums": [{"name": name, "description": BITSUM_WORDS[name]} for name in BITSUMS],
        "accountants": list(ACCOUNTANTS),
        "labels": list(LABELS),
    }


@router.get("/healthz", tags=["facts"], summary="Whether the service answers")
async def health(request: Request) -> dict[str, str]:
    """Ok if there are processes to plan with; else they are started anew with the next request."""
    return {"status": "ok" if request.app.state.workers.healthy else "restarting"}


@router.get("/version", tags=["facts"], summary="Which privkde answers")
async def version() -> dict[str, str]:
    """The library's version."""
    return {"name": "privkde", "version": privkde.__version__}
