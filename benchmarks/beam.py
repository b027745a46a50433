"""Collections by Apache Beam on one and two workers, beside the local engine, in one run.

python -m benchmarks.beam                      a table
python -m benchmarks.beam --output FILE.json   also every number, with what it came from
python -m benchmarks.beam --tiny               few users: does it work at all?

Two things are measured for each of two plans: *count*, packets in files to counts, which is a deployment's work; and
*play*, vectors to counts on the aggregated path, which is a simulation. Every measurement is a process of its own. Beam
takes seconds to start its workers whatever they do, so each is made with few and with many users, twice, and the speed
is that of the users in between, from the shorter times; the tiny run is too short for that if the machine is busy.
docs/results/beam.json is such a file; docs/tutorials/beam.md computes with it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from accounting import Plan, plan_budget
from benchmarks.record import about, write
from privkde.draws.randomness import new_public_seed, private_randomness
from privkde.engines import Engine, engine
from privkde.engines.users import Users
from privkde.protocol.announcement import Announcement
from privkde.storage.datasets import read_vectors
from privkde.storage.files import require_writable

PLANS: dict[str, dict[str, Any]] = {
    "gaussian": {"kernel": "gaussian", "dim": 384, "repetitions": 768},
    "inner product": {"kernel": "inner-product", "dim": 768, "accountant": "geometric"},
}
PROMISE: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "bitsum": "rr"}
ENGINES = ("local", "beam 1", "beam 2")
"""The local engine uses all cores to play and one to count; Beam runs as many worker processes as stand there."""
REPEATS = 2
PACKAGES = ("privkde", "apache-beam", "numpy", "pyarrow", "fastavro")
"""Packages that numbers may depend on."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Size:
    """Users of a measurement: the few, and the many."""

    few: int
    count: int
    play: int
    files: int

    def many(self, what: str) -> int:
        """The larger number for counting or playing."""
        return self.count if what == "count" else self.play


FULL = Size(few=4_000, count=300_000, play=600_000, files=16)
TINY = Size(few=500, count=30_000, play=30_000, files=4)


def planned(name: str, users: int) -> Plan:
    """One of the two plans for this many users."""
    return plan_budget(**PLANS[name], **PROMISE, users=users)


def prepared(folder: Path, name: str, size: Size) -> None:
    """Vectors, an announcement, and packets of the first users in several files."""
    dim, users = PLANS[name]["dim"], max(size.count, size.play)
    x = np.random.default_rng(0).standard_normal((users, dim), dtype=np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True) * 1.001
    np.savez(folder / "users.npz", X=x)
    announcement = Announcement(plan=planned(name, size.few), public_seed=new_public_seed())
    (folder / "announcement.json").write_text(json.dumps(announcement.to_json()), encoding="utf-8")
    for what, count in (("few", size.few), ("many", size.count)):
        for number, part in enumerate(np.array_split(np.arange(count), size.files)):
            target = folder / what / str(number)
            target.mkdir(parents=True)
            clients = Users(announcement=announcement, rows=x, index=part)
            engine("local").randomize(clients, target, stream=private_randomness())


def chosen(name: str) -> Engine:
    """One of `ENGINES`; Beam's workers are processes even if there is only one, to compare like with like."""
    if name == "local":
        return engine("local")
    workers = name.split()[1]
    processes = ("--direct_running_mode=multi_processing", f"--direct_num_workers={workers}")
    return engine("beam", options=processes)


def worked(folder: Path, what: str, how_many: str, users: int, run: Engine) -> None:
    """One piece of work."""
    document = json.loads((folder / "announcement.json").read_text(encoding="utf-8"))
    announcement = Announcement.from_json(document)
    if what == "count":
        found = run.count(announcement, sorted(map(str, (folder / how_many).glob("*/part-*"))))
    else:
        rows = read_vectors(folder / "users.npz", "X")
        everybody = Users(announcement=announcement, rows=rows, index=np.arange(users))
        found = run.play(everybody, stream=private_randomness())
    assert found.n_users == users, (found.n_users, users)


@contextmanager
def combined_bytes() -> Iterator[list[int]]:
    """Bytes that go into groupings while this is open: what combiners send on, and names of files or blocks."""
    from apache_beam.runners.portability.fn_api_runner.execution import GroupingBuffer

    append, seen = GroupingBuffer.append, [0]

    def counted(self: Any, data: bytes) -> None:
        seen[0] += len(data)
        append(self, data)

    with mock.patch.object(GroupingBuffer, "append", counted):
        yield seen


def measure(arguments: list[str]) -> None:
    """In a process of its own: seconds, peak memory, bytes through groupings; printed as JSON."""
    folder, what, how_many, users, name = arguments
    with combined_bytes() as seen:
        start = time.perf_counter()
        worked(Path(folder), what, how_many, int(users), chosen(name))
        seconds = time.perf_counter() - start
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = max(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1024
    print(json.dumps({"seconds": seconds, "peak_mb": peak, "grouped_bytes": seen[0]}))


def measured(folder: Path, what: str, how_many: str, users: int, name: str) -> Row:
    """The same, from outside."""
    return in_process("measure", str(folder), what, how_many, str(users), name)


def in_process(*arguments: str) -> Row:
    """What this module prints last, run on its own: a process starts with the peak memory of its parent."""
    command = [sys.executable, "-m", "benchmarks.beam", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def row(folder: Path, plan: str, what: str, name: str, size: Size) -> Row:
    """Few users, many users, and the speed in between."""
    many = size.many(what)
    small, large = (
        min((measured(folder, what, *which, name) for _ in range(REPEATS)), key=lambda one: float(one["seconds"]))
        for which in (("few", size.few), ("many", many))
    )
    between = large["seconds"] - small["seconds"]
    kind, _, workers = name.partition(" ")
    return {
        "plan": plan,
        "what": what,
        "engine": kind,
        "workers": int(workers) if workers else os.cpu_count() if what == "play" else 1,
        "users": many,
        "few_users": size.few,
        "seconds": large["seconds"],
        "few_seconds": small["seconds"],
        "users_per_second": (many - size.few) / between if between > 0 else None,
        "peak_mb": large["peak_mb"],
        "grouped_bytes": large["grouped_bytes"] if name != "local" else 0,
        "packet_bytes": sum(one.stat().st_size for one in (folder / "many").glob("*/part-*")) * (what == "count"),
    }


def all_rows(size: Size) -> list[Row]:
    """Every plan, work and engine."""
    rows = []
    for plan in PLANS:
        with tempfile.TemporaryDirectory() as scratch:
            in_process("prepare", scratch, plan, *(["tiny"] if size == TINY else []))
            cells = [(what, name) for what in ("count", "play") for name in ENGINES]
            for what, name in track(cells, plan, console=Console(stderr=True), transient=True):
                rows.append(row(Path(scratch), plan, what, name, size))
    return rows


def printed(rows: list[Row]) -> Table:
    """As a table; ratios are to one worker of Beam."""
    table = Table(title="Collections by Beam", title_justify="left")
    for title in ("plan", "work", "engine", "workers", "users/s", "× 1 worker", "start, s", "peak MB", "grouped kB"):
        table.add_column(title, justify="left" if title in ("plan", "work", "engine") else "right")
    for one in rows:
        alike = [other for other in rows if (other["plan"], other["what"]) == (one["plan"], one["what"])]
        base = next(other for other in alike if (other["engine"], other["workers"]) == ("beam", 1))
        speed, slower = one["users_per_second"] or math.nan, base["users_per_second"] or math.nan
        table.add_row(
            one["plan"],
            one["what"],
            one["engine"],
            str(one["workers"]),
            f"{speed:,.0f}",
            f"{speed / slower:.2f}",
            f"{one['few_seconds'] - one['few_users'] / speed:.1f}",
            f"{one['peak_mb']:.0f}",
            f"{one['grouped_bytes'] / 1000:.0f}",
        )
    return table


def main() -> None:
    """Measure, print, and write."""
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2:])
        return
    if sys.argv[1:2] == ["prepare"]:
        folder, plan, *tiny = sys.argv[2:]
        prepared(Path(folder), plan, TINY if tiny else FULL)
        print(json.dumps({}))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, metavar="FILE", help="file for all numbers (.json)")
    parser.add_argument("--tiny", action="store_true", help="few users")
    parsed = parser.parse_args()
    if parsed.output is not None:
        require_writable(parsed.output)
    start = time.perf_counter()
    rows = all_rows(TINY if parsed.tiny else FULL)
    Console().print(printed(rows))
    if parsed.output is None:
        return
    source = about("python -m benchmarks.beam", sys.argv[1:], time.perf_counter() - start, PACKAGES)
    write(parsed.output, {"about": {**source, "tiny": parsed.tiny}, "rows": rows})


if __name__ == "__main__":
    main()
