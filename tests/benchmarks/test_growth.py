"""The benchmark of growth: its table of curves, each operation once in this process, a small run from end to end."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from accounting import plan_budget
from benchmarks.growth import measuring
from benchmarks.growth.curves import CURVES, SIZED_CHECKS, Curve, Expected, doubling
from benchmarks.growth.operations import OPERATIONS, measured
from benchmarks.memory import peak_memory
from verification.auditing import LAYER_MODULES, collected

SMALL: dict[str, Any] = {"users": 2000, "dim": 2, "repetitions": 2, "epsilon": 2.0, "delta": 1e-6}


@cache
def document() -> dict[str, Any]:
    return plan_budget(**SMALL, accountant="basic").to_json()


def test_every_operation_is_measured_against_every_size() -> None:
    found = {(curve.operation, curve.name) for curve in CURVES}
    operations = OPERATIONS.keys() - {"idle"}
    assert found == {(one, size) for one in operations for size in ("users", "dim", "repetitions", "classes")}


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: f"{curve.operation}-{curve.against}")
def test_curves_can_be_fitted(curve: Curve) -> None:
    ratios = {high / low for low, high in zip(curve.values, curve.values[1:], strict=False)}
    assert len(ratios) == 1  # geometric
    assert len(curve.values) > (3 if "overhead" in (curve.time.model, curve.memory.model) else 2)


def test_audits_are_of_plans_that_were_measured() -> None:
    settings = {
        operation: {
            str({k: v for k, v in curve.setting(value).items() if k != "only"})
            for curve in CURVES
            if curve.operation == operation
            for value in curve.values
        }
        for operation in ("plan", "audit")
    }
    assert settings["audit"] <= settings["plan"]


def test_checks_at_full_size_exist() -> None:
    assert set(SIZED_CHECKS) <= {check.name for _, check in collected(LAYER_MODULES)}


JOINT = {"kernel": "inner-product", "repetitions": None, "labels": "joint"}


@pytest.mark.parametrize(
    ("operation", "setting"),
    [
        ("idle", {}),
        ("plan", {**SMALL, "accountant": "basic"}),
        ("randomize", {"users": 64, "dim": 3, "repetitions": 2}),
        ("randomize", {"users": 64, "dim": 3, "repetitions": 2, "classes": 4}),
        ("randomize", {"users": 64, "dim": 3, "classes": 4, **JOINT}),
        ("analyze", {"users": 64, "dim": 3, "repetitions": 2}),
        ("analyze", {"users": 64, "dim": 3, "repetitions": 2, "classes": 4}),
        ("analyze", {"users": 64, "dim": 3, "classes": 4, **JOINT}),
        ("query", {"users": 64, "dim": 3, "repetitions": 2, "classes": 4}),
        ("audit", {"only": ["touched-instances", "label-response"]}),
    ],
)
def test_operations_run(operation: str, setting: dict[str, Any]) -> None:
    found = measured({"operation": operation, "setting": setting, "plan": document(), "repeats": 2})
    assert len(found["core_seconds"]) == len(found["clock_seconds"]) == 2
    assert min(found["clock_seconds"]) >= 0.0
    if operation == "plan":
        assert found["found"]["request"]["users"] == SMALL["users"]
    if operation == "audit":  # label-response does not apply
        assert [one["check"] for one in found["found"]] == ["touched-instances"]


def in_this_process(operation: str, setting: dict[str, Any], plan: dict[str, Any] | None, repeats: int) -> Any:
    """What `measuring.run` does, without the process."""
    job = {"operation": operation, "setting": setting, "plan": plan, "repeats": repeats}
    return json.loads(json.dumps(measured(json.loads(json.dumps(job)))))


def test_a_job_in_its_own_process() -> None:
    asked = ("query", {"users": 64, "dim": 2, "repetitions": 2}, document(), 1)
    found, here = measuring.run(*asked), in_this_process(*asked)
    assert found.keys() == here.keys()
    assert len(found["core_seconds"]) == 1
    assert 1 << 20 < found["peak_bytes"] != here["peak_bytes"]


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_measured_from_end_to_end(processes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few points, each in its own process or all in this one."""
    if not processes:
        monkeypatch.setattr(measuring, "run", in_this_process)
    flat = Expected(0, "made for a test")
    planned = Curve(
        operation="plan",
        against="users",
        name="users",
        values=doubling(2000, 3),
        fixed={**SMALL, "accountant": "basic"},
        time=flat,
        memory=flat,
    )
    run = dataclasses.replace(planned, operation="query", fixed={"dim": 2, "repetitions": 2})
    found = measuring.measure([planned, run], {})
    assert [row["operation"] for row in found["curves"]] == ["plan", "query"]
    for row in found["curves"]:
        assert [point["value"] for point in row["points"]] == [2000, 4000, 8000]
        assert all(min(point["core_seconds"]) > 0.0 for point in row["points"])
        assert row["time"]["low"] <= row["time"]["exponent"] <= row["time"]["high"]
        assert row["memory"]["model"] == "line"


def test_a_process_does_not_inherit_the_peak_of_another() -> None:
    """Which `ru_maxrss` does on Linux."""
    held = bytearray(64 << 20)
    assert peak_memory() > len(held)
    program = "from benchmarks.memory import peak_memory; print(peak_memory())"
    path = {"PYTHONPATH": ":".join(sys.path)}
    own = int(subprocess.run([sys.executable, "-c", program], env=path, capture_output=True, check=True).stdout)
    held[:] = b"1" * len(held)
    more = f"held = b'1' * {len(held)}; {program}"
    larger = int(subprocess.run([sys.executable, "-c", more], env=path, capture_output=True, check=True).stdout)
    assert own + len(held) / 2 < larger < own + 2 * len(held)
