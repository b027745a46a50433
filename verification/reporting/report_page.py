"""`report.html`: one page that needs nothing but itself. Its words and tables are in `templates`."""

from __future__ import annotations

import privkde
from accounting.guarantee import View, promised
from verification.reporting import wording
from verification.reporting.document import SCHEMA, AuditReport, environment
from verification.reporting.pages import render_page
from verification.reporting.report_figures import Figures, draw_figures
from verification.reporting.shown_evidence import confirmation, measured_errors, planned_errors, shown_evidence
from verification.sabotage.matrix import MARKS, Matrix
from verification.verdicts import FALSE_ALARM_RATE


def render(report: AuditReport, *, matrix: Matrix | None = None, figures: Figures | None = None) -> str:
    """The page, with this matrix of saboteurs; figures are drawn if none are given."""
    plan, evidence = report.plan, shown_evidence(report)
    return render_page(
        "verification.reporting",
        "page.html",
        report=report,
        plan=plan,
        request=plan.request,
        label=plan.request.label_response(),
        promise=plan.guarantees[0],
        main=promised(plan.guarantees, View.COMMUNICATION),
        local=promised(plan.guarantees, View.LOCAL),
        model=report.model,
        evidence=evidence,
        confirmation=confirmation(report),
        planned_errors=planned_errors(plan),
        measured_errors=measured_errors(evidence.errors),
        allowed_false_alarms=FALSE_ALARM_RATE,
        matrix=matrix,
        marks=MARKS,
        figures=draw_figures(report) if figures is None else figures,
        machine=environment(),
        words=wording,
        version=privkde.__version__,
        schema=SCHEMA,
    )
