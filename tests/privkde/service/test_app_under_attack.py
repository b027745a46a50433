"""One client asks for too much: it is refused, or stopped early, and the others are answered."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient, Response

from accounting.releases.composing import MOST_RELEASES
from privkde.service import Settings, create_app
from privkde.service.planning_routes import SMALL
from privkde.service.problems import INVALID, TOO_LARGE, TOO_MANY, Kind
from privkde.service.reading import FEW_BYTES, FEW_VALUES, MOST_VALUES, json_object
from privkde.service.workers import READ_LATE, Answer, Workers

pytestmark = pytest.mark.anyio
ATTACKER, HONEST, THIRD = "203.0.113.1", "203.0.113.2", "203.0.113.3"
TOKEN = "a-token-that-nobody-guesses-0123"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Work:
    """What workers are asked to do, and with which limit of time; it is done when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float | None]] = []
        self.at_once = False
        self._open: list[Future[Answer]] = []

    def schedule(self, *_: Any, args: list[Any], timeout: float | None = None) -> Future[Answer]:
        """In place of a pool of processes."""
        future: Future[Answer] = Future()
        if timeout is not None:  # else it warms a worker
            self.asked.append((args[0], timeout))
        self._open.append(future)
        if self.at_once:
            self.finish()
        return future

    def finish(self) -> None:
        """Everything that was asked for is done, and what is asked for from now on is done at once."""
        self.at_once = True
        while self._open:
            self._open.pop().set_result((None, b"{}"))


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    found = Work()
    monkeypatch.setattr("pebble.ProcessPool.schedule", found.schedule)
    return found


@asynccontextmanager
async def service(settings: Settings, *addresses: str) -> AsyncIterator[list[AsyncClient]]:
    """Clients of one service, each with an address of its own."""
    app = create_app(settings)
    async with app.router.lifespan_context(app), AsyncExitStack() as stack:
        transports = (ASGITransport(app, client=(address, 1)) for address in addresses)
        opened = (AsyncClient(transport=transport, base_url="http://127.0.0.1") for transport in transports)
        yield [await stack.enter_async_context(client) for client in opened]


def plans(client: AsyncClient, number: int, **request: Any) -> list[asyncio.Task[Response]]:
    """So many different plans that a client asks for, all at once."""
    bodies = [SMALL | {"users": 3_000 + i} for i in range(number)]
    return [asyncio.create_task(client.post("/v1/plan", json=body, **request)) for body in bodies]


def app_of(client: AsyncClient) -> FastAPI:
    app: FastAPI = client._transport.app  # type: ignore[attr-defined]
    return app


def workers_of(client: AsyncClient) -> Workers:
    found: Workers = app_of(client).state.workers
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60.0):  # a test that hangs fails
        while not condition():
            await asyncio.sleep(0.001)


def require_refused(answer: Response, kind: Kind) -> None:
    assert answer.status_code == kind.status, answer.text
    assert answer.json()["type"] == kind.uri


async def test_a_client_over_its_share_of_work_is_refused_and_another_is_answered(work: Work) -> None:
    settings = Settings(workers=2, queue=6, client_requests=100)
    async with service(settings, ATTACKER, HONEST) as (attacker, honest):
        sent = plans(attacker, settings.client_jobs + 1)
        await until(lambda: any(task.done() for task in sent))
        refused = [task.result() for task in sent if task.done()]
        assert len(refused) == 1
        require_refused(refused[0], TOO_MANY)
        assert int(refused[0].headers["Retry-After"]) >= 1
        assert len(work.asked) == 1  # of two workers
        waiting = asyncio.create_task(honest.post("/v1/plan", json=SMALL))
        await until(lambda: len(work.asked) == 2)  # it has the other one, before all that the attacker asked for
        work.finish()
        assert (await waiting).status_code == 200
        assert [task.status_code for task in await asyncio.gather(*sent)].count(200) == settings.client_jobs


async def test_a_client_with_too_many_requests_is_refused_and_others_are_answered(work: Work) -> None:
    """The holder of the token is another client, also at the same address."""
    settings = Settings(workers=1, client_requests=2, token=TOKEN)
    async with service(settings, ATTACKER, HONEST) as (attacker, honest):
        sent = plans(attacker, 2)
        await until(lambda: len(work.asked) == 1)
        require_refused(await attacker.get("/version"), TOO_MANY)
        assert (await honest.get("/version")).status_code == 200
        assert (await attacker.get("/version", headers=BEARER)).status_code == 200
        work.finish()
        await asyncio.gather(*sent)
        assert (await attacker.get("/version")).status_code == 200


async def test_a_client_cannot_choose_whom_it_is_taken_for(work: Work) -> None:
    settings = Settings(workers=1, client_requests=1)
    async with service(settings, ATTACKER) as (attacker,):
        sent = plans(attacker, 1)
        await until(lambda: len(work.asked) == 1)
        for headers in ({"X-Forwarded-For": HONEST}, {"Forwarded": f"for={HONEST}"}, {"X-Real-IP": HONEST}):
            require_refused(await attacker.get("/version", headers=headers), TOO_MANY)
        work.finish()
        await asyncio.gather(*sent)


@pytest.mark.parametrize(
    ("path", "changes", "limit"),
    [
        ("/v1/plan", {}, 60.0),
        ("/v1/plan", {"delta": 1e-299}, 10.0),
        ("/v1/plan/estimate", {"epsilon": 1e-8}, 10.0),
        ("/v1/plan/compare", {"users": 10**9}, 10.0),
    ],
)
async def test_extreme_requests_are_stopped_early(work: Work, path: str, changes: dict[str, Any], limit: float) -> None:
    work.at_once = True
    async with service(Settings(workers=2), HONEST) as (client,):
        await client.post(path, json=SMALL | changes)
    assert {seconds for _, seconds in work.asked} == {limit}


async def test_a_short_limit_does_not_prolong_a_shorter_one(work: Work) -> None:
    work.at_once = True
    async with service(Settings(workers=1, time_limit=2.0), HONEST) as (client,):
        await client.post("/v1/plan", json=SMALL | {"delta": 1e-299})
    assert work.asked == [("plan", 2.0)]


async def test_reading_a_ledger_is_limited_in_time_and_does_not_wait_for_plans(work: Work, tmp_path: Path) -> None:
    settings = Settings(workers=1, ledger=str(tmp_path / "ledger.sqlite"), short_limit=3.0)
    async with service(settings, ATTACKER, HONEST) as (attacker, honest):
        sent = plans(attacker, 2)
        await until(lambda: len(work.asked) == 1)
        quote = {"name": "a", "guarantee": {"epsilon": 1.0}}
        asked = [honest.get(f"/v1/budgets{path}") for path in ("", "/x", "/x/charges", "/x/uses")]
        reading = [asyncio.create_task(one) for one in (*asked, honest.post("/v1/budgets/x/quote", json=quote))]
        await until(lambda: len(work.asked) == 2)
        work.finish()
        await asyncio.gather(*reading, *sent)
    limits = {job: seconds for job, seconds in work.asked if job != "plan"}
    assert limits == dict.fromkeys(("budgets", "standing", "charges", "uses", "quote"), 3.0)


async def test_a_question_does_not_wait_in_the_turn_of_somebody_who_asked_it_first(work: Work) -> None:
    """The attack: ask for much slow work and then for what others will ask, so that they wait behind all of it."""
    settings = Settings(workers=2, queue=16)
    popular = SMALL | {"users": 2_999}
    async with service(settings, ATTACKER, HONEST) as (attacker, honest):
        slow = plans(attacker, 3)
        await until(lambda: len(work.asked) == 1)
        copy = asyncio.create_task(attacker.post("/v1/plan", json=popular))
        await until(lambda: len(workers_of(attacker)._waiting) == 4)
        asked = asyncio.create_task(honest.post("/v1/plan", json=popular))
        await until(lambda: len(work.asked) == 2)  # in its own turn, while all that waits still waits
        again = asyncio.create_task(honest.post("/v1/plan", json=popular))
        work.finish()
        answers = await asyncio.gather(asked, again, copy, *slow)
    assert [answer.status_code for answer in answers] == [200] * 6
    assert len(work.asked) == 4  # and once for all who asked it


async def test_a_question_that_is_at_work_needs_no_turn(work: Work) -> None:
    """Nor does it take one from others: as many may ask it as like."""
    settings = Settings(workers=1, queue=0)
    async with service(settings, ATTACKER, HONEST) as (attacker, honest):
        first = plans(attacker, 1)
        await until(lambda: len(work.asked) == 1)
        joined = [*plans(honest, 1), *plans(honest, 1), *plans(attacker, 1)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in joined)
        work.finish()
        assert {answer.status_code for answer in await asyncio.gather(*first, *joined)} == {200}
        assert len(work.asked) == 1
        assert not workers_of(honest)._waiting
        assert not workers_of(honest)._at_work


async def test_somebody_whose_turn_comes_while_the_same_is_at_work_gives_it_on(work: Work) -> None:
    settings = Settings(workers=3, queue=16)
    async with service(settings, ATTACKER, HONEST, THIRD) as (attacker, honest, third):
        started = plans(attacker, 3)  # two of three workers
        await until(lambda: len(work.asked) == 2)
        asked = SMALL | {"users": 9_000}
        busy = asyncio.create_task(third.post("/v1/plan", json=asked | {"users": 9_001}))
        await until(lambda: len(work.asked) == 3)
        same = [asyncio.create_task(client.post("/v1/plan", json=asked)) for client in (honest, third)]
        await until(lambda: len(workers_of(honest)._waiting) == 6)
        work.finish()
        assert {answer.status_code for answer in await asyncio.gather(busy, *started, *same)} == {200}
        assert len(work.asked) == 5
        assert workers_of(honest)._turns._free == 3


async def test_more_releases_than_can_be_composed_are_refused_before_records_are_made(
    monkeypatch: pytest.MonkeyPatch, work: Work
) -> None:
    """The attack: a body within its limits became thousands of records, while everybody waited."""
    monkeypatch.setattr("privkde.service.requests.ReleaseRequest.__post_init__", None)
    release = {"name": "a", "guarantee": {"epsilon": 1}}
    async with service(Settings(workers=1), ATTACKER) as (client,):
        for name in ("releases", "charged"):
            body = {"releases": [], "delta": 1e-5} | {name: [release] * (MOST_RELEASES + 1)}
            refused = await client.post("/v1/compose", json=body)
            require_refused(refused, INVALID)
            assert f"give {MOST_RELEASES:,} at most" in refused.json()["detail"]
    assert not work.asked


async def test_large_bodies_are_read_one_after_the_other_with_everybody_else_between(
    monkeypatch: pytest.MonkeyPatch, work: Work
) -> None:
    """The attack: many large bodies at once, all read before anybody else was looked at."""
    work.at_once, rounds, read_in = True, 0, []
    read = json_object

    def recorded(body: bytes) -> dict[str, Any]:
        read_in.append(rounds)
        return read(body)

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    monkeypatch.setattr("privkde.service.reading.json_object", recorded)
    release = {"name": "a", "guarantee": {"epsilon": 1}}
    body = {"releases": [release] * (FEW_VALUES // 3), "delta": 1e-5}
    async with service(Settings(workers=1), ATTACKER) as (client,):
        counting = asyncio.create_task(count())
        await asyncio.gather(*(client.post("/v1/compose", json=body) for _ in range(10)))
        counting.cancel()
    assert len(read_in) == len(set(read_in)) == 10


async def test_what_follows_a_question_mark_is_not_read(monkeypatch: pytest.MonkeyPatch, work: Work) -> None:
    """The attack: a head full of parameters takes forty times as long as one without."""
    read: list[Any] = []

    def recorded(text: Any, **_: Any) -> list[Any]:
        read.append(text)
        return []

    monkeypatch.setattr("starlette.datastructures.parse_qsl", recorded)
    async with service(Settings(workers=1), ATTACKER) as (client,):
        assert (await client.get("/version?" + "a&" * 7_000)).status_code == 200
    assert not any(read)


async def test_small_bodies_do_not_wait_for_large_ones(work: Work) -> None:
    work.at_once = True
    many = {"releases": [{"name": "a", "guarantee": {"epsilon": 1}}] * (FEW_VALUES // 3), "delta": 1e-5}
    long = {"releases": [{"name": "a" * FEW_BYTES, "guarantee": {"epsilon": 1}}], "delta": 1e-5}
    async with service(Settings(workers=2), ATTACKER, HONEST) as (attacker, honest):
        async with app_of(attacker).state.large_bodies:
            held = [asyncio.create_task(attacker.post("/v1/compose", json=body)) for body in (many, long)]
            assert (await honest.post("/v1/plan", json=SMALL)).status_code == 200
            assert not any(task.done() for task in held)
        assert {answer.status_code for answer in await asyncio.gather(*held)} == {200}


async def test_the_document_of_the_api_is_written_out_once(monkeypatch: pytest.MonkeyPatch, work: Work) -> None:
    async with service(Settings(workers=1), ATTACKER) as (client,):
        first = await client.get("/openapi.json")
        monkeypatch.setattr(app_of(client), "openapi", None)
        again = await client.get("/openapi.json")
    assert first.json()["info"]["title"] == "privkde"
    assert again.content == first.content


@pytest.mark.parametrize("item", [b"[]", b"1", b"{}", b'"a"'])
async def test_a_body_of_too_many_values_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, work: Work, item: bytes
) -> None:
    monkeypatch.setattr("privkde.service.reading.json_object", None)
    body = b'{"users": [' + b",".join([item] * (MOST_VALUES + 1)) + b"]}"
    async with service(Settings(workers=1), ATTACKER) as (client,):
        refused = await client.post("/v1/plan", content=body, headers={"Content-Type": "application/json"})
    require_refused(refused, TOO_LARGE)
    assert not work.asked


def _as_it_is() -> tuple[bool, set[str]]:
    """In a worker: whether it ends at once when it is stopped, and which modules were read before its first job."""
    return signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, set(sys.modules)


@pytest.mark.skipif(os.name == "nt", reason="workers are started from nothing there")
def test_a_stopped_worker_is_replaced_at_once() -> None:
    """The attack: plans with δ = 1e-299 were stopped after their short limit, and others waited for new workers.

    A worker went on to the end of its step meanwhile, and its successor read modules for seconds.
    """
    workers = Workers(Settings(workers=1))
    try:
        ends, known = workers._pool.schedule(_as_it_is).result(60.0)
    finally:
        workers.stop()
    assert ends
    assert known >= {"privkde.service.jobs", *READ_LATE}
