"""What a report lists and draws: certified bounds, attacks, and errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from accounting import Plan
from verification.evidence import AttackBound, AttackBounds, CertifiedBounds, Curve
from verification.reporting.document import AuditReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAttack:
    """The attack of one check that came closest to the promise that it was held against, on a miniature."""

    check: str
    attack: AttackBound
    curve: Curve
    drawn: bool
    """Whether its promise is that of the dot in the figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEvidence:
    """The evidence of all findings, by its type and by the name of the check."""

    certified: Mapping[str, CertifiedBounds]
    attacks: tuple[ShownAttack, ...]

    @property
    def below(self) -> dict[str, Curve]:
        """Certified points that the true curve is not below; those with ε = 0 say nothing."""
        points = {
            name: tuple((epsilon, delta) for epsilon, delta in bounds.below if epsilon > 0.0)
            for name, bounds in self.certified.items()
        }
        return {name: curve for name, curve in points.items() if curve}

    @property
    def above(self) -> dict[str, Curve]:
        """Certified points that the true curve is not above."""
        return {name: bounds.above for name, bounds in self.certified.items() if bounds.above}


def shown_evidence(report: AuditReport) -> ShownEvidence:
    """The evidence of the report's findings."""
    findings = {result.name: result.finding for result in report.results if result.finding is not None}
    given = {name: finding.evidence for name, finding in findings.items() if finding.evidence is not None}
    return ShownEvidence(
        certified={name: bounds for name, bounds in given.items() if isinstance(bounds, CertifiedBounds)},
        attacks=tuple(
            _shown_attack(report.plan, name, bounds)
            for name, bounds in given.items()
            if isinstance(bounds, AttackBounds)
        ),
    )


def _shown_attack(plan: Plan, check: str, bounds: AttackBounds) -> ShownAttack:
    """The closest attack. At the promise's δ its bound is the one that was held against the promise."""
    dot, attack = plan.guarantees[0], bounds.closest
    promise = attack.promise
    return ShownAttack(
        check=check,
        attack=attack,
        curve=tuple((attack.epsilon if delta == promise.delta else epsilon, delta) for epsilon, delta in bounds.curve),
        drawn=promise.adjacency is dot.adjacency and math.isclose(promise.epsilon, dot.epsilon),
    )


class Kind(Enum):
    """What an error is known from."""

    CLAIMED = auto()
    PART = auto()
    """Of the prediction."""


@dataclass(frozen=True, slots=True)
class ErrorBar:
    """One error and its name."""

    name: str
    value: float
    kind: Kind = Kind.CLAIMED


def planned_errors(plan: Plan) -> list[ErrorBar]:
    """Bound, prediction and its parts."""
    error, bound = plan.error, plan.sup_rmse_bound
    parts = {
        "bias": error.bias,
        "random features": error.feature,
        "rounding": error.rounding,
        "privacy": error.privacy,
        "labels": error.labels,
    }
    return [
        *([] if bound is None else [ErrorBar("bound for every density (Theorem 3.2)", bound)]),
        ErrorBar("predicted, at most", error.total),
        *(ErrorBar(f"of it, {name}", value, Kind.PART) for name, value in parts.items() if value > 0.0),
    ]
