"""What findings drew, sorted by what it means: certified bounds, attacks with limits of their own, measured errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from accounting import Plan
from accounting.curves import Curve
from verification.certified.checks import slack
from verification.reporting.document import AuditReport
from verification.verdicts import Finding, Layer

CERTIFICATE, ERRORS = "certified-bound", "sup-rmse"
"""Names of the checks that bound ε from both sides, and that measure errors."""
ATTACKS, MIXED = "distinguisher", "distinguisher-classifier"
"""All checks that begin with the first attack; the second holds its attacks against promises of different changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """The attack of one check that came closest to the promise that it was held against."""

    check: str
    name: str
    shown: float
    """Lower bound on ε: the check's statistic."""
    limit: float
    """The promised ε for the change that was attacked, of the miniature that was attacked."""
    curve: Curve
    drawn: bool
    """Whether the limit is that of the dot in the figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What findings drew, by the name of the check: points (ε, δ) and, of a miniature, errors."""

    below: Mapping[str, Curve]
    """Certified for two records that people may hold: the true curve is not below."""
    above: Mapping[str, Curve]
    """Certified for all records: the true curve is not above."""
    attacks: tuple[Attack, ...]
    """On miniatures, whose true curves are not below."""
    errors: Mapping[str, float]
    """Bound, plan, prediction and measurement of a miniature."""


def gathered(report: AuditReport) -> Evidence:
    """What findings drew; each kind of check has its own meaning of a curve, which its note repeats."""
    drew = {one.name: one.finding for one in report.results if one.finding is not None and one.finding.curve}
    halves = {name: _halves(list(one.curve)) for name, one in drew.items() if one.layer is Layer.CERTIFIED}
    errors = list(drew[ERRORS].curve) if ERRORS in drew else []
    return Evidence(
        below={name: told for name, half in halves.items() if (told := [one for one in half[0] if one[0] > 0.0])},
        above={name: half[1] for name, half in halves.items() if half[1]},
        attacks=tuple(_attack(report.plan, one) for name, one in drew.items() if name.startswith(ATTACKS)),
        errors=_measured(errors, bounded=report.plan.sup_rmse_bound is not None),
    )


def _attack(plan: Plan, finding: Finding) -> Attack:
    """The finding's attack. At the dot's δ it shows the statistic, whose level is shared with the check's others."""
    dot = plan.guarantees[0]
    drawn = math.isclose(finding.bound, dot.epsilon) and not (finding.name == MIXED and separate_labels(plan))
    curve = [(finding.statistic if delta == dot.delta else epsilon, delta) for epsilon, delta in finding.curve]
    return Attack(
        check=finding.name,
        name=_attack_name(finding),
        shown=finding.statistic,
        limit=finding.bound,
        curve=curve,
        drawn=drawn,
    )


def _attack_name(finding: Finding) -> str:
    """The note lists what each attack shows; the finding's own is the one that shows its statistic."""
    told = f": ε ≥ {finding.statistic:.4g} of {finding.bound:.4g} promised"
    before, found, _ = finding.note.partition(told)
    return before.rpartition("; ")[2] if found else "attack"


def separate_labels(plan: Plan) -> bool:
    """Whether vector and label are protected one by one, so that a whole record costs the sum."""
    return plan.request.classes is not None and not plan.request.joint


def _halves(curve: Curve) -> tuple[Curve, Curve]:
    """Points below the true curve, then points above it. δ falls in each half; the second begins where it does not."""
    rises = [place for place in range(1, len(curve)) if curve[place][1] >= curve[place - 1][1]]
    split = rises[0] if rises else len(curve)
    return curve[:split], curve[split:]


def _measured(curve: Curve, *, bounded: bool) -> dict[str, float]:
    """(bound, planned) if there is a bound, then (predicted, measured) for each query; the worst of these is told."""
    first, queries = (curve[:1], curve[1:]) if bounded else ([], curve)
    told = {name: value for point in first for name, value in zip(("bound", "planned, at most"), point, strict=True)}
    if queries:
        predicted, seen = max(queries, key=lambda query: query[1])
        told |= {"predicted for the worst query found": predicted, "measured there": seen}
    return told


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Whether an independent upper bound confirms the promise: the answer, and its reason."""

    answer: str
    reason: str


def confirmation(report: AuditReport) -> Confirmation:
    """The certificate's answer, by the rule of its own note: an upper bound within `slack` of the claim confirms it."""
    found = next((one.finding for one in report.results if one.name == CERTIFICATE), None)
    if found is None:
        return Confirmation("not computed", f"{CERTIFICATE} did not run in this audit")
    plan, claimed = report.plan, found.bound
    delta = 0.0 if plan.bitsum == "pure" else min(float(plan.request.delta), plan.guarantees[0].delta)
    near, whose = f"{slack(delta):.1%}", " for the vector" if separate_labels(plan) else ""
    upper = next((epsilon for epsilon, at in _halves(list(found.curve))[1] if at == delta), None)
    if found.refuted:
        return Confirmation("no", f"the claim of ε = {claimed:.4g}{whose} is contradicted from below")
    if upper is None:
        return Confirmation("no upper bound", "for this law none is certified, neither for nor against the promise")
    bounds = f"an independent upper bound{whose} is ε = {upper:.4g}, claimed is {claimed:.4g}"
    if upper > claimed * (1.0 + slack(delta)):
        return Confirmation(f"no, not within {near}", f"{bounds}; the bound may be loose and contradicts nothing")
    return Confirmation(f"yes, within {near}", bounds)
