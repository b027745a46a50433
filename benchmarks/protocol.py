"""Speed and memory of the protocol, as ratios measured in one run: one pass over the users, and queries.

python -m benchmarks.protocol            all of it
python -m benchmarks.protocol memory     only the pass over a million users, in this process
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.fft import dct

from accounting import plan_budget
from benchmarks.memory import RepeatedRows, peak_memory
from privkde.bitsum.randomized_response import RandomizedResponseBitsum
from privkde.draws.randomness import new_public_seed, private_randomness
from privkde.draws.sampling import column_sums
from privkde.engines.local import collect
from privkde.kernels import LsqFamily
from privkde.protocol.announcement import Announcement
from privkde.protocol.model import FeatureSums
from privkde.storage.user_blocks import BLOCK_ENTRIES, Index, in_blocks, rows_per_block

USERS, DIM, REPETITIONS = 20_000, 768, 768
RECORDS, RECORD_DIM = 2_000, 384
MANY_USERS = 1_000_000
BLOCK = BLOCK_ENTRIES // REPETITIONS
REPEATS = 5


def best_of(*works: Callable[[], object]) -> list[float]:
    """Shortest time of each, in seconds, taken in turns so that a slow moment hits all of them."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(REPEATS):
        for work, taken in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


def unit_vectors(count: int) -> NDArray[np.float32]:
    """Random directions."""
    x = np.random.default_rng(0).standard_normal((count, DIM), dtype=np.float32)
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def announced(users: int) -> Announcement:
    """The standard plan for this many users."""
    plan = plan_budget(users=users, dim=DIM, repetitions=REPETITIONS, epsilon=2.0, delta=1e-6)
    return Announcement(plan=plan, public_seed=new_public_seed())


def rounding(table: Table, family: LsqFamily, flip: float) -> None:
    """Rounding, flips and counts against NumPy's way, which uses one thread."""
    features = family.scaled_features(unit_vectors(BLOCK))
    probabilities = (0.5 + (0.5 - flip) * features).astype(np.float32)
    response, stream = RandomizedResponseBitsum(flip=flip), private_randomness()
    rng = np.random.default_rng(0)
    blocks = range(40)

    def work(_part: Index, start: int) -> NDArray[np.int64]:
        return column_sums(response.respond(features, stream.child(start)))

    everybody = np.arange(BLOCK * len(blocks))
    plain, single, ours = best_of(
        lambda: [(rng.random(probabilities.shape) < probabilities).sum(0) for _ in blocks],
        lambda: [work(everybody[:BLOCK], start) for start in blocks],
        lambda: in_blocks(work, everybody, family.facts.n_instances),
    )
    per_bit = 1e9 / (features.size * len(blocks))
    table.add_row("(rng.random(F.shape) < prob).sum(0)", f"{plain * per_bit:.2f} ns per bit")
    table.add_row("rounding + flips + counts, one thread", f"{single * per_bit:.2f} ns per bit")
    table.add_row("rounding + flips + counts, all cores", f"{ours * per_bit:.2f} ns per bit")
    table.add_row("times faster per bit, one thread", f"{plain / single:.2f}")
    table.add_row("[bold]times faster per bit, all cores (goal: 3)", f"[bold]{plain / ours:.2f}")


def whole_pass(table: Table, announcement: Announcement) -> None:
    """The whole Gaussian pass against the matrix product alone."""
    x, index = unit_vectors(USERS), np.arange(USERS)
    family, stream = announcement.family(), private_randomness()
    weights = np.random.default_rng(1).standard_normal((DIM, REPETITIONS), dtype=np.float32)
    ours, product = best_of(lambda: collect(announcement, x, index, stream=stream), lambda: x @ weights)
    bits = USERS * family.facts.n_instances
    table.add_row("whole Gaussian pass, all cores", f"{1e9 * ours / bits:.2f} ns per bit")
    table.add_row("the matrix product alone, all cores", f"{1e9 * product / bits:.2f} ns per bit")
    table.add_row("[bold]pass / product (goal: at most 2)", f"[bold]{ours / product:.2f}")


def records(table: Table) -> None:
    """One pass over records that are rotated as one vector, against their transforms and as many random bytes."""
    plan = plan_budget(users=RECORDS, dim=RECORD_DIM, classes=4, epsilon=1.0, delta=1e-6, model="discriminant")
    announcement, stream = Announcement(plan=plan, public_seed=new_public_seed()), private_randomness()
    x, index = unit_vectors(RECORDS)[:, :RECORD_DIM], np.arange(RECORDS)
    classes, n_bits = index % 4, announcement.n_instances
    rows = np.random.default_rng(3).standard_normal((rows_per_block(n_bits), n_bits), dtype=np.float32)

    def floor(part: Index, start: int) -> None:
        dct(rows[: len(part)], type=2, norm="ortho", axis=1)
        stream.child("bytes", start).take(len(part) * n_bits)

    ours, least = best_of(
        lambda: collect(announcement, x, index, classes=classes, stream=stream),
        lambda: in_blocks(floor, index, n_bits),
    )
    bits = RECORDS * n_bits
    table.add_row(f"pass over records of {n_bits:,} bits, all cores", f"{1e9 * ours / bits:.2f} ns per bit")
    table.add_row("their transforms and random bytes alone", f"{1e9 * least / bits:.2f} ns per bit")
    table.add_row("[bold]records / transforms and bytes (goal: at most 2)", f"[bold]{ours / least:.2f}")


def queries(table: Table, announcement: Announcement) -> None:
    """Densities of ten classes against the matrix product alone."""
    y = unit_vectors(USERS)
    sums = FeatureSums(
        family=announcement.family(),
        sums=np.random.default_rng(2).standard_normal((10, REPETITIONS)),
        n_users=(1000,) * 10,
    )
    weights = np.random.default_rng(1).standard_normal((DIM, REPETITIONS), dtype=np.float32)
    ours, product = best_of(lambda: sums.densities(y), lambda: y @ weights)
    table.add_row(f"{USERS:,} queries, ten classes", f"{1e6 * ours / USERS:.2f} µs per query")
    table.add_row("the matrix product alone", f"{1e6 * product / USERS:.2f} µs per query")
    table.add_row("[bold]query / product (goal: at most 1.3)", f"[bold]{ours / product:.2f}")


def many_users() -> None:
    """One pass over a million users; prints the largest resident memory of this process in MB."""
    rows = RepeatedRows(unit_vectors(1000), (MANY_USERS, DIM))
    collect(announced(MANY_USERS), rows, np.arange(MANY_USERS), stream=private_randomness())
    print(peak_memory() >> 20)


def main() -> None:
    """Print one table."""
    if sys.argv[1:] == ["memory"]:
        many_users()
        return
    console, announcement = Console(), announced(USERS)
    table = Table(title=f"Protocol: {USERS:,} users, d = {DIM}, I = {REPETITIONS}, rr", title_justify="left")
    table.add_column("what")
    table.add_column("measured", justify="right")
    flip = float(announcement.plan.parameters["flip_probability"])
    with console.status("measuring"):
        rounding(table, announcement.family(), flip)
        whole_pass(table, announcement)
        records(table)
        queries(table, announcement)
        memory = subprocess.run(
            [sys.executable, "-m", "benchmarks.protocol", "memory"], capture_output=True, text=True, check=True
        )
    table.add_row(f"[bold]memory, {MANY_USERS:,} users × {DIM} (goal: 2000 MB)", f"[bold]{memory.stdout.strip()} MB")
    console.print(table)


if __name__ == "__main__":
    main()
