"""Requests per second and slowest answers of the service on this machine: plans that are kept, and new ones.

    python -m benchmarks.service [--kept 2000] [--new 40] [--clients 8]

One process serves, this one asks over loopback. Times are of this machine, at this moment; the ratio is what to read.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
import numpy as np
from rich.console import Console
from rich.table import Table

PLAN: dict[str, Any] = {"users": 30_000, "dim": 16, "epsilon": 2.0, "delta": 1e-6, "accountant": "pld"}


@contextlib.contextmanager
def served(*options: str) -> Iterator[str]:
    """A service in a process of its own, on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "privkde.cli", "serve", "--port", str(port), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            with contextlib.suppress(httpx2.TransportError):
                httpx2.get(f"{address}/healthz")
                break
            time.sleep(0.05)
        httpx2.post(f"{address}/v1/plan", json=PLAN, timeout=60.0).raise_for_status()  # workers are awake
        yield address
    finally:
        process.terminate()
        process.wait()


async def seconds_each(address: str, bodies: Sequence[dict[str, Any]], clients: int) -> tuple[list[float], float]:
    """How long each answer took, asked by several clients at once, and how long all of them took."""
    left = iter(bodies)
    taken: list[float] = []

    async def ask(client: httpx2.AsyncClient) -> None:
        for body in left:
            started = time.perf_counter()
            (await client.post("/v1/plan", json=body)).raise_for_status()
            taken.append(time.perf_counter() - started)

    async with httpx2.AsyncClient(base_url=address, timeout=120.0) as client:
        started = time.perf_counter()
        await asyncio.gather(*(ask(client) for _ in range(clients)))
        return taken, time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=int, default=2000)
    parser.add_argument("--new", type=int, default=40)
    parser.add_argument("--clients", type=int, default=8)
    parsed = parser.parse_args()
    table = Table(title=f"POST /v1/plan over loopback, {parsed.clients} clients", title_justify="left")
    for name in ("plans", "requests", "requests/s", "median ms", "p99 ms"):
        table.add_column(name, justify="left" if name == "plans" else "right")
    kinds = {
        "kept (asked before)": [PLAN] * parsed.kept,
        "new": [PLAN | {"users": 30_001 + i} for i in range(parsed.new)],
    }
    with served() as address:
        for name, bodies in kinds.items():
            taken, total = asyncio.run(seconds_each(address, bodies, parsed.clients))
            median, slow = (1000.0 * float(x) for x in np.quantile(taken, [0.5, 0.99]))
            table.add_row(name, f"{len(taken):,}", f"{len(taken) / total:,.1f}", f"{median:,.1f}", f"{slow:,.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
