"""`report.html`: one page that needs nothing but itself. Its words are in `templates`, its numbers are made here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import privkde
from accounting import Plan, View
from privkde.display.pages import render_page
from verification.evidence import Curve
from verification.reporting import wording
from verification.reporting.document import SCHEMA, AuditReport, environment
from verification.reporting.report_figures import Figures, draw_figures
from verification.reporting.shown_evidence import (
    ShownAttack,
    ShownEvidence,
    confirmation,
    measured_errors,
    planned_errors,
    shown_evidence,
)
from verification.reporting.wording import number, small, whole
from verification.sabotage.matrix import MARKS, Matrix
from verification.verdicts import FALSE_ALARM_RATE

Row = tuple[str, ...]


def render(report: AuditReport, *, matrix: Matrix | None = None, figures: Figures | None = None) -> str:
    """The page, with this matrix of saboteurs; figures are drawn if none are given."""
    return render_page(
        "verification.reporting",
        "page.html",
        report=report,
        model=report.model,
        matrix=matrix,
        figures=draw_figures(report) if figures is None else figures,
        words=wording,
        version=privkde.__version__,
        schema=SCHEMA,
        **_plan_values(report.plan),
        **_audit_values(report),
    )


def _plan_values(plan: Plan) -> dict[str, Any]:
    """Of the sections on promise, trust, mechanism, composition and utility."""
    return {
        "plan": plan,
        "request": plan.request,
        "label": plan.request.label_response(),
        "promise": plan.guarantees[0],
        "main": wording.promised(plan, View.COMMUNICATION),
        "main_parts": wording.promised_parts(plan),
        "local": wording.promised(plan, View.LOCAL),
        "settings": _settings(plan),
        "ladder": [
            (
                f"{name} (used)" if name == plan.accountant else name,
                "does not apply" if value is None else f"{value:.6g}",
            )
            for name, value in plan.ladder.items()
        ],
        "used_rung": next((place for place, name in enumerate(plan.ladder) if name == plan.accountant), None),
        "errors": [
            *((bar.name, number(bar.value)) for bar in planned_errors(plan)),
            *(
                (f"{baseline.name} privacy, for comparison: predicted", number(baseline.predicted_rmse))
                for baseline in plan.baselines
            ),
        ],
    }


def _audit_values(report: AuditReport) -> dict[str, Any]:
    """Of the sections on checks, saboteurs and limits."""
    evidence = shown_evidence(report)
    return {
        "confirmation": confirmation(report),
        "points": list(_points(report.plan, evidence)),
        "measured": [(bar.name, number(bar.value)) for bar in measured_errors(evidence.errors)],
        "allowed_false_alarms": FALSE_ALARM_RATE,
        "marks": MARKS,
        "machine": environment(),
    }


def _settings(plan: Plan) -> list[Row]:
    request, facts = plan.request, plan.request.facts()
    settings: list[Row] = [
        ("kernel", f"{facts.name}, dimension {whole(facts.dim)}"),
        ("repetitions of the feature map", whole(facts.n_repetitions)),
        ("bits that every person sends", whole(facts.n_instances)),
        ("bits that one person's record can change", whole(plan.instances_per_user)),
        ("one bit alone", f"ε₀ = {plan.epsilon_0:.4g}, δ₀ = {small(plan.delta_0)}"),
        *((name.replace("_", " "), f"{value:.8g}") for name, value in plan.parameters.items()),
    ]
    if request.classes is not None:
        kind = "protected together with the vector" if request.joint else "by randomized response, once per person"
        settings.append(("labels", f"{request.classes} classes, {kind}"))
    return settings


def _points(plan: Plan, evidence: ShownEvidence) -> Iterator[Row]:
    """The points in the figure, and attacks on other promises."""
    promise = number(plan.guarantees[0].epsilon)
    for name, curve in evidence.below.items():
        yield name, "at least (certified for two records)", promise, _listed(curve)
    for name, curve in evidence.above.items():
        yield name, "at most (certified for all records)", "—", _listed(curve)
    for shown in evidence.attacks:
        yield _attack_row(shown)


def _attack_row(shown: ShownAttack) -> Row:
    attack = shown.attack
    reached = f"ε\u00a0=\u00a0{number(attack.epsilon)}; not in the figure"
    return (
        shown.check,
        f"at least (attack on a miniature: {attack.name})",
        number(attack.promise.epsilon),
        _listed(shown.curve) if shown.drawn else reached,
    )


def _listed(curve: Curve) -> str:
    return "; ".join(f"ε\u00a0=\u00a0{number(epsilon)} at\u00a0{number(delta)}" for epsilon, delta in curve)
