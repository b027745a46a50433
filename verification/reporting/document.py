"""What an audit found, as one record; `to_json` is the `privkde.audit/1` document."""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import privkde
from accounting import Plan
from privkde.model import DensityModel
from verification.verdicts import Effort, Finding, Layer

SCHEMA = "privkde.audit/1"
NOT_REFUTED, REFUTED, COULD_NOT_RUN = "not-refuted", "refuted", "could-not-run"
EXIT_CODES = {NOT_REFUTED: 0, REFUTED: 1, COULD_NOT_RUN: 2}
PACKAGES = ("numpy", "scipy", "dp-accounting", "mpmath", "cryptography")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One check: what it found, or the kind of error that kept it from running."""

    name: str
    layer: Layer
    about: str
    seed: int
    seconds: float
    finding: Finding | None = None
    error: str | None = None
    """The type of the error, never its text: a message may quote data."""

    @property
    def verdict(self) -> str:
        """`not-refuted`, `refuted` or `could-not-run`."""
        if self.finding is None:
            return COULD_NOT_RUN
        return REFUTED if self.finding.refuted else NOT_REFUTED


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """Everything that one audit tried, in the order of the checks, and with what."""

    plan: Plan
    model: DensityModel | None
    effort: Effort
    seed: int
    results: tuple[Result, ...]
    not_applicable: tuple[str, ...]
    """Checks that have nothing to say about a plan of this kind."""
    left_out: tuple[str, ...] = ()
    """Checks that apply and were not asked for."""
    workers: int
    started: str
    seconds: float
    plan_path: str = "plan.json"
    model_path: str | None = None

    def told_of(self, *, plan_path: str, model_path: str | None) -> AuditReport:
        """The same report with the files' names, for the commands that repeat it."""
        return replace(self, plan_path=plan_path, model_path=model_path)

    @property
    def verdict(self) -> str:
        """Refuted if any claim is; a refutation stands even if another check could not run."""
        verdicts = {one.verdict for one in self.results}
        if REFUTED in verdicts:
            return REFUTED
        return COULD_NOT_RUN if COULD_NOT_RUN in verdicts or not verdicts else NOT_REFUTED

    @property
    def exit_code(self) -> int:
        """0 not refuted, 1 refuted, 2 could not run."""
        return EXIT_CODES[self.verdict]

    @property
    def refuted(self) -> tuple[Result, ...]:
        """The results that refute a claim."""
        return tuple(one for one in self.results if one.verdict == REFUTED)

    @property
    def false_alarm_rate(self) -> float:
        """Bound on the probability that an honest system is refuted: a union bound over the findings."""
        return math.fsum(one.finding.alpha for one in self.results if one.finding is not None)

    @cached_property
    def plan_sha256(self) -> str:
        """Hash of the plan's document."""
        return self.plan.sha256()

    def replay(self, result: Result) -> str:
        """The command that repeats one check with the same draws."""
        return self.command("--only", result.name)

    def command(self, *more: str) -> str:
        """The command that repeats the audit with the same draws."""
        words = ["privkde", "audit", "--plan", self.plan_path]
        if self.model_path is not None:
            words += ["--model", self.model_path]
        return shlex.join([*words, *more, "--seed", str(self.seed), f"--{self.effort.name}"])

    def to_json(self) -> dict[str, Any]:
        """The `privkde.audit/1` document; a number that is not finite is written as a text, such as "inf"."""
        document = {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "plan_sha256": self.plan_sha256,
            "checks": [self._check(one) for one in self.results],
            "not_applicable": list(self.not_applicable),
            "left_out": list(self.left_out),
            "false_alarm_rate": self.false_alarm_rate,
            "effort": {"name": self.effort.name, "scale": self.effort.scale},
            "seed": self.seed,
            "started": self.started,
            "seconds": self.seconds,
            "environment": environment() | {"workers": self.workers},
            "model": None if self.model is None else model_facts(self.model),
            "contract": self.contract_tree().splitlines(),
            "plan": self.plan.to_json(),
        }
        finite: dict[str, Any] = _finite(document)
        return finite

    def contract_tree(self) -> str:
        """What is promised: by the published model, if there is one, else by the plan."""
        return (self.plan.contract if self.model is None else self.model.contract).tree()

    def dumps(self) -> str:
        """The document as text."""
        return json.dumps(self.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    def _check(self, result: Result) -> dict[str, Any]:
        named = {"name": result.name, "layer": str(result.layer), "about": result.about, "verdict": result.verdict}
        empty = dict.fromkeys(("claim", "alpha", "power", "smallest_detectable_defect", "statistic", "bound"))
        found = empty if result.finding is None else result.finding.to_json()
        own = {"seed": result.seed, "seconds": round(result.seconds, 3), "replay": self.replay(result)}
        if result.error is not None:
            own["error"] = result.error
        return named | found | named | own


def environment() -> dict[str, Any]:
    """Versions and machine: what is needed to repeat the audit elsewhere."""
    return {
        "privkde": privkde.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def model_facts(model: DensityModel) -> dict[str, Any]:
    """What a report says of a published model; nothing of it is secret."""
    return {
        "private": model.private,
        "users": list(model.n_users),
        "classes": len(model.labels) or None,
        "sums": list(model.sums.shape),
        "guarantees": [one.to_json() for one in model.contract.guarantees],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
