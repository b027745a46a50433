"""The results of an audit as one record; `to_json` is the `privkde.audit/1` document."""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from importlib.metadata import version
from typing import Any

import privkde
from accounting import Contract, Plan
from privkde.protocol.model import DensityModel
from verification.reporting.deployment import Deployment, assumptions, parties
from verification.reporting.proof import ProofSummary
from verification.verdicts import Check, Effort, Finding, Layer

SCHEMA = "privkde.audit/1"
PACKAGES = ("numpy", "scipy", "dp-accounting", "mpmath", "python-flint", "cryptography")


class Outcome(StrEnum):
    """What one check, or a whole audit, says about one system."""

    REFUTED = "refuted"
    NOT_REFUTED = "not-refuted"
    NOT_APPLICABLE = "not-applicable"
    COULD_NOT_RUN = "could-not-run"
    """The check, or the planner before it, raised: that refutes nothing."""


EXIT_CODES = {Outcome.NOT_REFUTED: 0, Outcome.REFUTED: 1, Outcome.COULD_NOT_RUN: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One check: its finding, or the kind of error that kept it from running."""

    name: str
    layer: Layer
    about: str
    seed: int
    seconds: float
    finding: Finding | None = None
    error: str | None = None
    """The type of the error, never its text: a message may quote data."""

    @staticmethod
    def of(check: Check, base: int, outcome: Finding | Exception, *, seconds: float = 0.0) -> Result:
        """What came of a check in an audit with the seed `base`."""
        return Result(
            name=check.name,
            layer=check.layer,
            about=check.about,
            seed=check.seed(base),
            seconds=seconds,
            finding=None if isinstance(outcome, Exception) else outcome,
            error=type(outcome).__name__ if isinstance(outcome, Exception) else None,
        )

    @property
    def verdict(self) -> Outcome:
        """Not refuted, refuted, or could not run."""
        if self.finding is None:
            return Outcome.COULD_NOT_RUN
        return Outcome.REFUTED if self.finding.refuted else Outcome.NOT_REFUTED


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
    missing: Mapping[str, str] = field(default_factory=dict)
    """Of these, checks that something is missing for, and what that is."""
    left_out: tuple[str, ...] = ()
    """Checks that apply and were not asked for."""
    workers: int
    started: str
    seconds: float
    plan_path: str = "plan.json"
    """The files' names, for the commands that repeat the audit."""
    model_path: str | None = None
    deployment: Deployment = field(default_factory=Deployment)
    """Who promises, as the organisation says."""

    @property
    def verdict(self) -> Outcome:
        """Refuted if any claim is; a refutation stands even if another check could not run."""
        verdicts = {result.verdict for result in self.results} or {Outcome.COULD_NOT_RUN}
        worst_first = (Outcome.REFUTED, Outcome.COULD_NOT_RUN, Outcome.NOT_REFUTED)
        return next(outcome for outcome in worst_first if outcome in verdicts)

    @property
    def exit_code(self) -> int:
        """0 not refuted, 1 refuted, 2 could not run."""
        return EXIT_CODES[self.verdict]

    @property
    def refuted(self) -> tuple[Result, ...]:
        """The results that refute a claim."""
        return tuple(result for result in self.results if result.verdict is Outcome.REFUTED)

    @property
    def false_alarm_rate(self) -> float:
        """Bound on the probability that an honest system is refuted: a union bound over the findings."""
        return math.fsum(result.finding.alpha for result in self.results if result.finding is not None)

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
            "verdict": str(self.verdict),
            "proof": self.proof.to_json(),
            "deployment": self.deployment.to_json(),
            "plan_sha256": self.plan_sha256,
            "checks": [self._check(result) for result in self.results],
            "not_applicable": list(self.not_applicable),
            **({"missing": dict(self.missing)} if self.missing else {}),
            "left_out": list(self.left_out),
            "false_alarm_rate": self.false_alarm_rate,
            "effort": {"name": self.effort.name, "scale": self.effort.scale},
            "seed": self.seed,
            "started": self.started,
            "seconds": self.seconds,
            "environment": environment() | {"workers": self.workers},
            "model": None if self.model is None else model_facts(self.model),
            "assumed": list(assumptions(self.contract)),
            "trust": [asdict(party) for party in parties(self.plan)],
            "contract": self.contract.tree().splitlines(),
            "plan": self.plan.to_json(),
        }
        finite: dict[str, Any] = _finite(document)
        return finite

    @cached_property
    def proof(self) -> ProofSummary:
        """What is proved of the promise, whether or not a check refutes anything."""
        return ProofSummary.of(self.plan, [result.finding for result in self.results if result.finding is not None])

    @property
    def contract(self) -> Contract:
        """What is promised: by the published model, if there is one, else by the plan."""
        return self.plan.contract if self.model is None else self.model.contract

    def dumps(self) -> str:
        """The document as text."""
        return json.dumps(self.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"

    def _check(self, result: Result) -> dict[str, Any]:
        empty = dict.fromkeys(("claim", "alpha", "power", "smallest_detectable_defect", "statistic", "bound"))
        return {
            "name": result.name,
            "layer": str(result.layer),
            "about": result.about,
            "verdict": str(result.verdict),
            **(empty if result.finding is None else result.finding.to_json()),
            "seed": result.seed,
            "seconds": round(result.seconds, 3),
            "replay": self.replay(result),
            **({} if result.error is None else {"error": result.error}),
        }


def environment() -> dict[str, Any]:
    """Versions and machine: what is needed to repeat the audit elsewhere."""
    return {
        "privkde": privkde.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def model_facts(model: DensityModel) -> dict[str, Any]:
    """What a report says of a published model; nothing of it is secret."""
    return {
        "private": model.private,
        "users": list(model.n_users),
        "classes": len(model.labels) or None,
        "sums": list(model.sums.shape),
        "guarantees": [guarantee.to_json() for guarantee in model.contract.guarantees],
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
