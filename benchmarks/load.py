"""How long honest users of the service wait while somebody attacks it, beside how long they wait in quiet.

    python -m benchmarks.load [--seconds 10] [--users 4] [ATTACK ...]

For each attack a service is started. One process serves, one attacks from an address of its own, and this one plays the
honest users, each from another address (Linux: all of 127.0.0.0/8 is this machine). Before the attack there is a quiet
time, so that both are measured in the same minute. All of them share the processors: on a small machine the attacker's
own work counts too. A ratio of 1 is no effect; the aim is at most 5, and no honest request that fails.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import numpy as np

from benchmarks.service import PLAN, served

ATTACKER = "127.0.0.66"
MANY_CONNECTIONS = 300
MANY_REQUESTS = 18
WARM_UP = 3.0
"""Seconds in which every process is used once."""
QUICK: dict[str, Any] = PLAN | {"accountant": "basic", "bitsum": "poisson"}
EXTREME: dict[str, Any] = {"users": 2_000, "dim": 8, "epsilon": 2.0, "delta": 1e-299}
BUDGET = {"name": "year", "epsilon": 4.0, "delta": 1e-6}
BODY = b'{"users": [' + b"[]," * 340_000 + b"[]]}"
CHUNKED = b"POST /v1/plan HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"1\r\n \r\n" * 9_000
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
BLANKS = HEALTH + b"a:" + b" " * 15_900 + b"\x00\r\n\r\n"
PROMISE: dict[str, Any] = {"guarantee": {"epsilon": 1.0}}
RELEASES = {"releases": [{"name": "a", **PROMISE}] * 1_000, "delta": 1e-5}
JSON = {"Content-Type": "application/json"}
numbers = itertools.count()


@dataclass
class Waits:
    """Seconds that honest users waited, and what they got."""

    seconds: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    def slowest(self) -> float:
        """The 99th percentile in milliseconds."""
        return 1000.0 * float(np.quantile(self.seconds, 0.99)) if self.seconds else float("nan")


def client(address: str, source: str) -> httpx2.AsyncClient:
    """A client with an address of its own."""
    transport = httpx2.AsyncHTTPTransport(local_address=source)
    return httpx2.AsyncClient(base_url=address, transport=transport, timeout=60.0)


async def honest(address: str, users: int, seconds: float) -> Waits:
    """Users who plan, ask for what was planned before, and look at their budgets, until the time is over."""
    waits, end = Waits(), time.perf_counter() + seconds

    async def use(number: int) -> None:
        async with client(address, f"127.0.0.{10 + number}") as mine:
            while time.perf_counter() < end:
                for method, path, body in (
                    ("POST", "/v1/plan", PLAN),
                    ("GET", "/v1/budgets", None),
                    ("POST", "/v1/plan", QUICK | {"users": 40_000 + next(numbers)}),
                    ("GET", "/v1/kernels", None),
                ):
                    started = time.perf_counter()
                    try:
                        answer = await mine.request(method, path, json=body)
                        if answer.status_code != 200:
                            waits.failures[str(answer.status_code)] += 1
                    except httpx2.TransportError as error:
                        waits.failures[type(error).__name__] += 1
                    waits.seconds.append(time.perf_counter() - started)
                    await asyncio.sleep(0.02)

    await asyncio.gather(*map(use, range(users)))
    return waits


async def open_connections(address: str, every: float | None) -> None:
    """Open connections and send nothing, or one byte of a head `every` so many seconds; open closed ones again."""
    url = urlsplit(address)

    async def hold() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(url.hostname, url.port, local_addr=(ATTACKER, 0))
                if every is None:
                    await reader.read()
                else:
                    for byte in itertools.chain(b"GET / HTTP/1.1\r\nX-Slow: ", itertools.repeat(ord("x"))):
                        writer.write(bytes([byte]))
                        await writer.drain()
                        await asyncio.sleep(every)
                writer.close()
            await asyncio.sleep(0.1)

    await asyncio.gather(*(hold() for _ in range(MANY_CONNECTIONS)))


async def send(address: str, method: str, path: str, content: Callable[[], Any]) -> None:
    """Send requests without a pause, several at once, whatever is answered."""

    async def repeat(mine: httpx2.AsyncClient) -> None:
        while True:
            with contextlib.suppress(httpx2.TransportError):
                given = content()
                kind = "content" if isinstance(given, bytes) else "json"
                await mine.request(method, path, headers=JSON, **{kind: given})

    async with client(address, ATTACKER) as mine:
        await asyncio.gather(*(repeat(mine) for _ in range(MANY_REQUESTS)))


async def write(address: str, head: bytes, repeated: bytes, times: int, pause: float = 0.0) -> None:
    """Send the same bytes over several connections as quickly as they are taken; open closed ones again.

    With a `pause` after the head, the server has answered the first request in it before more arrives.
    """
    url = urlsplit(address)

    async def flood() -> None:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(url.hostname, url.port, local_addr=(ATTACKER, 0))
                writer.write(head)
                await asyncio.sleep(pause)
                for _ in range(times):
                    writer.write(repeated)
                    await writer.drain()
                writer.close()
            await asyncio.sleep(0.01)

    await asyncio.gather(*(flood() for _ in range(MANY_REQUESTS)))


ATTACKS: dict[str, Callable[[str], Awaitable[None]]] = {
    "idle": lambda address: open_connections(address, None),
    "slow-heads": lambda address: open_connections(address, 1.0),
    "extreme-plans": lambda address: send(
        address, "POST", "/v1/plan/compare", lambda: EXTREME | {"users": 2_000 + next(numbers)}
    ),
    "large-bodies": lambda address: send(address, "POST", "/v1/plan", lambda: BODY),
    "tiny-chunks": lambda address: write(address, CHUNKED, CHUNKS, 20),
    "later-chunks": lambda address: write(address, HEALTH + b"\r\n" + CHUNKED, CHUNKS, 20, pause=0.02),
    "long-blanks": lambda address: write(address, b"", BLANKS, 20),
    "many-releases": lambda address: send(
        address, "POST", "/v1/compose", lambda: RELEASES | {"charged": [{"name": str(next(numbers)), **PROMISE}]}
    ),
    "api-document": lambda address: send(address, "GET", "/openapi.json", lambda: None),
    "many-headers": lambda address: write(address, b"", b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 11_000 + b"\r\n", 20),
    "listings": lambda address: send(address, "GET", "/v1/budgets/year/charges", lambda: None),
}


def attack(name: str, address: str) -> None:
    """One attacker, until the process is ended."""
    asyncio.run(ATTACKS[name](address))  # type: ignore[arg-type]


@contextlib.contextmanager
def served_with_a_budget() -> Iterator[str]:
    """A service without a token, so that the attacker may read its ledger."""
    with tempfile.TemporaryDirectory() as folder, served("--ledger", str(Path(folder) / "ledger.sqlite")) as address:
        httpx2.post(f"{address}/v1/budgets", json=BUDGET, timeout=60.0).raise_for_status()
        yield address


@contextlib.contextmanager
def attacked(name: str, address: str) -> Iterator[None]:
    """Meanwhile, somebody attacks; it has a few seconds to begin."""
    process = multiprocessing.get_context("spawn").Process(target=attack, args=(name, address))
    process.start()
    time.sleep(5.0)
    try:
        yield
    finally:
        process.kill()
        process.join()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"of {', '.join(ATTACKS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--users", type=int, default=4)
    parsed = parser.parse_args()
    print(f"{parsed.users} honest users beside one attacker\n")
    print(f"{'attack':<14}{'requests':>10}{'quiet p99 ms':>14}{'p99 ms':>10}{'ratio':>7}  failed")
    for name in parsed.attacks or ATTACKS:
        with served_with_a_budget() as address:
            asyncio.run(honest(address, parsed.users, WARM_UP))
            quiet = asyncio.run(honest(address, parsed.users, parsed.seconds))
            with attacked(name, address):
                beside = asyncio.run(honest(address, parsed.users, parsed.seconds))
        before, after = quiet.slowest(), beside.slowest()
        failed = ", ".join(f"{count} × {kind}" for kind, count in (quiet.failures + beside.failures).items()) or "none"
        row = f"{name:<14}{len(beside.seconds):>10,}{before:>14,.0f}{after:>10,.0f}{after / before:>7.1f}  {failed}"
        print(row, flush=True)


if __name__ == "__main__":
    main()
