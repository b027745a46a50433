"""Does every plan that the planner returns certify, and how long does it take? A grid of requests, planned and proved.

python -m benchmarks.certificates                     all requests, on two processes
python -m benchmarks.certificates --every 10          one of ten
python -m benchmarks.certificates --speed             three large plans, one after the other, with times
python -m benchmarks.certificates --output FILE.json  also every row; docs/results/certificates.json is such a file
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from accounting import InfeasibleError, InvalidInputError, plan_budget
from benchmarks.record import about, write
from privkde.storage.files import require_writable
from verification.certified.certificate import certify

Row = dict[str, Any]

SCALES: tuple[Row, ...] = (
    {"users": 2, "epsilon": 20.0, "delta": 1e-2},
    {"users": 30, "epsilon": 8.0, "delta": 1e-3},
    {"users": 1_000, "epsilon": 2.0, "delta": 1e-5},
    {"users": 30_000, "epsilon": 1.0, "delta": 1e-6},
    {"users": 1_000_000, "epsilon": 0.1, "delta": 1e-9},
    {"users": 1_000_000_000, "epsilon": 0.01, "delta": 1e-12},
)
KERNELS: tuple[Row, ...] = (
    {"kernel": "gaussian", "dim": 16, "repetitions": 1},
    {"kernel": "gaussian", "dim": 64, "repetitions": 200},
    {"kernel": "inner-product", "dim": 48},
    {"kernel": "inner-product", "dim": 48, "bound": 1.0},
    {"kernel": "inner-product-signs", "dim": 16, "repetitions": 64},
    {"kernel": "laplacian", "dim": 8, "repetitions": 25},
    {"kernel": "exponential", "dim": 8, "repetitions": 3},
)
PROTOCOLS: tuple[Row, ...] = (
    {"bitsum": "rr"},
    {"bitsum": "poisson"},
    {"bitsum": "negative-binomial"},
    {"bitsum": "3nb"},
    {"bitsum": "3nb", "noise_shape": 4},
)
OTHERS: tuple[Row, ...] = (
    *({"accountant": rung} for rung in ("basic", "advanced", "paper")),
    {"classes": 3, "labels": "joint"},
    {"classes": 3, "labels": "separate"},
    {"classes": 3, "model": "discriminant", "kernel": "inner-product", "repetitions": None},
    {"releases": 7},
    {"colluders": 0.1},
    {"bitsum": "pure", "delta": 0.0},
)


LARGE: tuple[tuple[str, int, Row], ...] = (
    ("README's plan", 10, {"users": 30_000, "dim": 768, "repetitions": 768, "epsilon": 2.0, "delta": 1e-6}),
    ("joint labels, 10⁵ coordinates", 20, {"users": 30_000, "dim": 430, "classes": 10, "epsilon": 1.0, "delta": 1e-6}),
    ("10⁹ users", 60, {"users": 10**9, "dim": 768, "repetitions": 768, "epsilon": 2.0, "delta": 1e-6}),
)
"""Name, the seconds of one core that a proof should take at most, and the request."""


def requests() -> Iterator[Row]:
    """All kernels with all protocols at all scales, then other rungs, labels, schedules and colluders at each scale."""
    for scale, kernel, protocol in itertools.product(SCALES, KERNELS, PROTOCOLS):
        yield scale | kernel | protocol
    for scale, kernel, other in itertools.product(SCALES, KERNELS[1:3], OTHERS):
        asked = scale | kernel | {"bitsum": "rr"} | other
        yield {name: value for name, value in asked.items() if value is not None}


def tried(request: Row) -> Row:
    """What became of one request."""
    start = time.thread_time()
    try:
        plan = plan_budget(**request)
    except (InfeasibleError, InvalidInputError) as error:
        return {"request": request, "outcome": "no plan", "reason": str(error)}
    planned, start = time.thread_time() - start, time.thread_time()
    found = certify(plan)
    return {
        "request": request,
        "outcome": "proved" if found.proves else "refuted" if found.refutes else "not proved",
        "reason": "" if found.proves else found.headline,
        "accountant": plan.accountant,
        "claimed": found.claimed_epsilon,
        "upper": found.upper_epsilon,
        "lower": found.covered_epsilon,
        "seconds": {"plan": planned, "certificate": time.thread_time() - start},
    }


def main() -> None:
    """Try, print what failed, and write every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th request")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--speed", action="store_true", help="three large plans, with times")
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    parsed = parser.parse_args()
    if parsed.speed:
        speed()
        return
    if parsed.output is not None:
        require_writable(parsed.output)
    asked, rows, start = list(requests())[:: parsed.every], [], time.monotonic()
    with Progress() as progress, ProcessPoolExecutor(parsed.processes) as pool:
        task = progress.add_task(f"{len(asked)} requests", total=len(asked))
        for done in as_completed([pool.submit(tried, request) for request in asked]):
            rows.append(done.result())
            progress.advance(task)
    rows.sort(key=lambda row: asked.index(row["request"]))
    show(rows)
    if parsed.output is not None:
        origin = about("python -m benchmarks.certificates", [], time.monotonic() - start)
        write(parsed.output, {"about": [origin], "rows": rows})


def speed() -> None:
    """Processor time of the proofs of large plans."""
    table = Table("plan", "ε at least", "proved ε", "claimed", "seconds", "goal", title="Proofs, one core")
    for name, goal, request in LARGE:
        row = tried(request)
        numbers = (f"{row[which]:.6g}" for which in ("lower", "upper", "claimed"))
        table.add_row(name, *numbers, f"{row['seconds']['certificate']:.1f}", str(goal))
    Console().print(table)


def show(rows: list[Row]) -> None:
    """Counts for each accountant, then every plan that was not proved."""
    console, counts = Console(), Counter((row.get("accountant", "—"), row["outcome"]) for row in rows)
    table = Table("accountant", "proved", "not proved", "refuted", "no plan", title="Plans and their proofs")
    for accountant in sorted({name for name, _ in counts}):
        outcomes = ("proved", "not proved", "refuted", "no plan")
        table.add_row(accountant, *(str(counts[accountant, outcome]) for outcome in outcomes))
    console.print(table)
    for row in rows:
        if row["outcome"] in {"not proved", "refuted"}:
            console.print(f"{json.dumps(row['request'])}: {row['reason']}", highlight=False)
    seconds = [row["seconds"]["certificate"] for row in rows if "seconds" in row]
    if seconds:
        console.print(f"certificates took {sum(seconds) / len(seconds):.1f} s on average, {max(seconds):.1f} s at most")


if __name__ == "__main__":
    main()
