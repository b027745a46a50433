"""Work in processes of its own: bounded in time, memory and number, and remembered by content."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import signal
from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import TimeoutError as OutOfTime
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.context import BaseContext
from typing import Any

from pebble import ProcessExpired, ProcessPool

from accounting import PrivkdeError
from accounting.fields import fields_of, read
from privkde.service.costs import is_usual
from privkde.service.jobs import JOBS
from privkde.service.problems import BY_NAME, TOO_SLOW, Problem
from privkde.service.settings import Settings
from privkde.service.turns import Turns

Answer = tuple[str | None, bytes]
"""The name of a problem's kind, or None, and a document."""
READ_LATE = ("dp_accounting.pld.privacy_loss_distribution", "scipy.optimize", "scipy.signal", "scipy.stats")
"""Modules that jobs read when they need them, and that take long to read."""
SECONDS_TO_START = 60.0
"""For a worker that replaces one that was stopped, on a busy machine."""


class Workers:
    """Runs jobs; the same job on the same body is computed once and kept, refusals included."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = self._new_pool()
        self._turns = Turns(settings)
        self._kept: OrderedDict[str, Answer] = OrderedDict()
        self._kept_bytes = 0
        self._waiting: dict[tuple[str, Hashable], asyncio.Task[Answer]] = {}
        self._at_work: dict[str, asyncio.Task[Answer]] = {}

    async def run(self, job: str, request: Any, client: Hashable, *, fresh: bool = False) -> bytes:
        """The job's answer to a client's request record, as JSON; raises `Problem`.

        A `fresh` answer is neither remembered nor that of an earlier request, after which things may have changed.
        """
        body = as_text(request)
        key = secrets.token_hex() if fresh else content_key(job, body)
        answer = self._recalled(key)
        if answer is None:
            answer = await asyncio.shield(self._shared(key, job, body, client))
        problem, document = answer
        if problem is None:
            return document
        members = json.loads(document)
        raise Problem(BY_NAME[problem], members.pop("detail"), members)

    def _shared(self, key: str, job: str, body: str, client: Hashable) -> asyncio.Task[Answer]:
        """The task that answers: one that is at work on the same request, or else one that waits in the client's turn.

        The same request of another client that still waits is not joined: that client may have sent many before it.
        """
        task = self._at_work.get(key) or self._waiting.get((key, client))
        if task is not None:
            return task
        task = asyncio.create_task(self._in_turn(key, job, body, client, self._turns.ask(client)))
        self._waiting[key, client] = task
        task.add_done_callback(lambda done: self._forget_waiting(key, client, done))
        return task

    def _forget_waiting(self, key: str, client: Hashable, done: asyncio.Task[Answer]) -> None:
        del self._waiting[key, client]
        if not done.cancelled():
            done.exception()  # seen, also if the client went away

    async def _in_turn(self, key: str, job: str, body: str, client: Hashable, turn: asyncio.Future[None]) -> Answer:
        """The answer that somebody else was given meanwhile, or is given now, or a new one."""
        try:
            await turn
            answer, other = self._recalled(key), self._at_work.get(key)
            if answer is None and other is None:
                answer = await self._begun(key, job, body)
        finally:
            self._turns.end(client, turn)
        if answer is not None:
            return answer
        assert other is not None
        return await asyncio.shield(other)

    async def _begun(self, key: str, job: str, body: str) -> Answer:
        """A new answer; whoever asks the same from now on waits for it."""
        task = asyncio.current_task()
        assert task is not None
        self._at_work[key] = task
        try:
            return await self._computed(key, job, body)
        finally:
            del self._at_work[key]

    async def _computed(self, key: str, job: str, body: str) -> Answer:
        settings, sent = self._settings, body.encode()
        limit = settings.time_limit if is_usual(json.loads(body)) else min(settings.time_limit, settings.short_limit)
        if not self._pool.active:
            self._pool = self._new_pool()
        future = self._pool.schedule(_answered, args=[job, sent], timeout=limit)
        try:
            answer = await asyncio.wait_for(asyncio.wrap_future(future), limit + SECONDS_TO_START)
        except OutOfTime:
            raise Problem(TOO_SLOW, f"it took more than {limit:g} s; ask for less, or use the command line.") from None
        except (ProcessExpired, MemoryError):
            raise Problem(TOO_SLOW, "it needed more memory than a request may use; use the command line.") from None
        self._keep(key, answer)
        return answer

    def _recalled(self, key: str) -> Answer | None:
        answer = self._kept.get(key)
        if answer is not None:
            self._kept.move_to_end(key)
        return answer

    def _keep(self, key: str, answer: Answer) -> None:
        self._kept[key] = answer
        self._kept_bytes += len(answer[1])
        while self._kept_bytes > self._settings.cache_bytes and self._kept:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._kept_bytes -= len(oldest)

    def _new_pool(self) -> ProcessPool:
        return ProcessPool(
            max_workers=self._settings.workers,
            context=_quickly_replaced(),
            initializer=_set_up_worker,
            initargs=[self._settings.memory_limit],
        )

    @property
    def healthy(self) -> bool:
        """Whether there are processes to work with."""
        return bool(self._pool.active)

    def warm(self) -> None:
        """Start the processes before the first request."""
        for _ in range(self._settings.workers):
            self._pool.schedule(_answered, args=["estimate", b"{}"])

    def stop(self) -> None:
        """End all processes."""
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()


def as_text(request: Any) -> str:
    """A request record as JSON, the same whatever the order of its names; it is not copied first."""
    return json.dumps(request, sort_keys=True, separators=(",", ":"), default=_members)


def _members(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in fields_of(type(record))}


def content_key(job: str, body: str) -> str:
    """Names a request by its content."""
    return hashlib.sha256(f"{job} {body}".encode()).hexdigest()


def _answered(job: str, body: bytes) -> Answer:
    """In a worker: the answer, or the problem that it is refused with. Bodies travel as text: nothing else is safe."""
    try:
        record, compute = JOBS[job]
        document: Any = compute(read(record, json.loads(body)))
        kind = None
    except PrivkdeError as error:
        problem = Problem.of(error)
        kind, document = problem.kind.name, {"detail": problem.detail, **problem.extra}
    return kind, json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


def _quickly_replaced() -> BaseContext:
    """How workers are started: as copies of a process that has read all modules, where the system can.

    A worker that was stopped is then replaced at once. Reading modules takes seconds, in which whoever comes next
    would wait for an extreme request of somebody else.
    """
    if "forkserver" not in get_all_start_methods():  # Windows
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__, *READ_LATE])
    return context


def _set_up_worker(limit: int) -> None:
    """In a worker: it ends at once when it is stopped, also within a long step, and takes no more memory than `limit`.

    Pebble's own handler waits until the step is done, for seconds in which no other worker is given anything.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
