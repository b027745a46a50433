"""Every point of every curve, each in a process of its own, and the exponents fitted to them."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks.growth.curves import Curve, Expected
from benchmarks.growth.fitting import fit
from benchmarks.growth.operations import QUERIES, SEED

REPEATS = {"plan": 2, "audit": 2}
"""Others are repeated five times."""
LEAST_BYTES = 1 << 16
"""Less than this beyond an idle process cannot be told from nothing."""
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ROOT = Path(__file__).resolve().parents[2]

Row = dict[str, Any]


def run(operation: str, setting: Row, plan: Row | None, repeats: int) -> Row:
    """One job in a process of its own."""
    job = {"operation": operation, "setting": setting, "plan": plan, "repeats": repeats}
    command = [sys.executable, "-m", "benchmarks.growth.operations"]
    done = subprocess.run(
        command,
        input=json.dumps(job),
        env={**os.environ, **ONE_THREAD},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: Row = json.loads(done.stdout)
    return found


def fitted(values: Sequence[int], costs: Sequence[float], expected: Expected) -> Row:
    """The exponent beside the expected one."""
    return {
        "expected": expected.exponent,
        "reason": expected.reason,
        **dataclasses.asdict(fit(values, costs, model=expected.model)),
    }


class Measurement:
    """Runs curves one after another; plans that were measured are those that are then run and audited."""

    def __init__(self, progress: Progress, jobs: int) -> None:
        self._progress = progress
        self._task = progress.add_task("an idle process", total=jobs)
        self._plans: dict[str, Row] = {}
        self.idle_bytes: int = self._run("idle", {})["peak_bytes"]

    def curve(self, curve: Curve) -> Row:
        """Every point of a curve, and what was fitted to them."""
        points = []
        for value in curve.values:
            self._progress.update(self._task, description=f"{curve.operation}: {curve.against} = {value:,}")
            setting = curve.setting(value)
            found = self._run(curve.operation, setting, self._plan(curve.operation, setting))
            if curve.operation == "plan":
                self._plans[_key(setting)] = found["found"]
            points.append({"value": value, **found, "found": found["found"] if curve.operation == "audit" else None})
        seconds = [min(point["core_seconds"]) for point in points]
        held = [max(point["peak_bytes"] - self.idle_bytes, LEAST_BYTES) for point in points]
        return {
            "operation": curve.operation,
            "against": curve.against,
            "fixed": {name: value for name, value in curve.fixed.items() if name != curve.name},
            "points": points,
            "time": fitted(curve.values, seconds, curve.time),
            "memory": fitted(curve.values, held, curve.memory),
        }

    def audit(self, setting: Row) -> list[Row]:
        """Seconds of every check of a plan."""
        self._progress.update(self._task, description=f"audit with all checks: {setting['repetitions']:,} repetitions")
        plan = self._run("plan", setting, repeats=1)["found"]
        checks: list[Row] = self._run("audit", {"only": None}, plan, repeats=1)["found"]
        return checks

    def _plan(self, operation: str, setting: Row) -> Row | None:
        if operation == "plan":
            return None
        if operation == "audit":
            return self._plans[_key(setting)]
        return next(iter(self._plans.values()))

    def _run(self, operation: str, setting: Row, plan: Row | None = None, repeats: int | None = None) -> Row:
        found = run(operation, setting, plan, repeats or REPEATS.get(operation, 5))
        self._progress.advance(self._task)
        return found


def _key(setting: Row) -> str:
    return json.dumps({name: value for name, value in setting.items() if name != "only"}, sort_keys=True)


def measure(curves: Sequence[Curve], ends: Mapping[str, Row]) -> Row:
    """All curves, and audits with all checks."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        jobs = 1 + sum(len(curve.values) for curve in curves) + 2 * len(ends)
        measurement = Measurement(progress, jobs)
        found = [measurement.curve(curve) for curve in curves]
        audits = {name: {"request": asked, "checks": measurement.audit(asked)} for name, asked in ends.items()}
    return {
        "seed": SEED,
        "queries": QUERIES,
        "idle_bytes": measurement.idle_bytes,
        "curves": found,
        "audits": audits,
    }
