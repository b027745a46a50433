"""k-fold composition by each accountant: ε, its error where it tells one, time and memory, each in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.progress import track

from benchmarks.peers.accountants import GAUSSIANS, SUMS

Row = dict[str, Any]

SUM_CASES = (
    {"users": 1_000, "flip_probability": 0.2, "times": 16, "delta": 1e-6},
    {"users": 10_000, "flip_probability": 0.0935, "times": 256, "delta": 1e-6},
    {"users": 30_000, "flip_probability": 0.0934, "times": 768, "delta": 1e-6},
)
GAUSSIAN_CASES = ({"sigma": 20.0, "times": 256, "delta": 1e-6}, {"sigma": 100.0, "times": 10_000, "delta": 1e-8})
LONG = 5.0
"""Seconds of a run that is not repeated."""
OURS_SUM, OURS_GAUSSIAN = "privkde, pld", "privkde, losses"


def sums(cases: Sequence[Mapping[str, float]] = SUM_CASES, repeats: int = 3) -> Row:
    """Shuffled sums."""
    return {"composition": {"repeats": repeats, "reference": OURS_SUM, "rows": list(_rows(SUMS, cases, repeats))}}


def gaussians(cases: Sequence[Mapping[str, float]] = GAUSSIAN_CASES, repeats: int = 3) -> Row:
    """Gaussian mechanisms, whose composition is known in closed form."""
    rows = list(_rows(GAUSSIANS, cases, repeats))
    return {"gaussian": {"repeats": repeats, "reference": OURS_GAUSSIAN, "rows": rows}}


def _rows(names: Iterable[str], cases: Sequence[Mapping[str, float]], repeats: int) -> Iterable[Row]:
    for case in cases:
        for name in track(list(names), description=f"{case['times']} compositions", transient=True):
            yield {**case, "accountant": name, **_fastest(name, case, repeats)}


def _fastest(name: str, case: Mapping[str, float], repeats: int) -> Row:
    """The run of least time, long ones being run once; if a peer raises, what it raised."""
    command = [sys.executable, "-m", "benchmarks.peers.accountants", name, json.dumps(case)]
    runs = []
    for _ in range(repeats):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return {"error": done.stderr.strip().splitlines()[-1][:200]}
        runs.append(json.loads(done.stdout.splitlines()[-1]))
        if runs[-1]["seconds"] > LONG:
            break
    fastest: Row = min(runs, key=lambda run: float(run["seconds"]))
    return fastest
