"""`report.html`: one page that needs nothing but itself."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from string import Template

from accounting.curves import Curve
from verification.reporting import drawing, saboteurs, sections, trials
from verification.reporting.document import AuditReport
from verification.reporting.evidence import Attack, Evidence, gathered
from verification.reporting.markup import table
from verification.reporting.wording import number
from verification.sabotage.matrix import Matrix


def render(report: AuditReport, *, matrix: Matrix | None = None, figures: Path | None = None) -> str:
    """The page, with this matrix of saboteurs. With `figures`, a folder that keeps what is drawn as PNG, too."""
    template = files("verification.reporting").joinpath("page.html").read_text(encoding="utf-8")
    evidence = gathered(report)
    fields = (
        sections.promise_fields(report)
        | sections.trust_fields(report)
        | sections.mechanism_fields(report)
        | sections.composition_fields(report)
        | sections.utility_fields(report)
        | sections.model_fields(report)
        | trials.verdict_fields(report)
        | trials.check_fields(report)
        | saboteurs.saboteur_fields(matrix)
        | trials.ending_fields(report)
        | {"evidence_table": _evidence_table(report, evidence), "measured_table": _measured_table(evidence)}
        | drawing.figure_fields(report, evidence, figures)
    )
    return Template(template).substitute(fields)


def _evidence_table(report: AuditReport, evidence: Evidence) -> str:
    promise = number(report.plan.guarantees[0].epsilon)
    rows = [
        *(
            [name, "at least (certified for two records)", promise, _points(one)]
            for name, one in evidence.below.items()
        ),
        *([name, "at most (certified for all records)", "—", _points(one)] for name, one in evidence.above.items()),
        *(_attack_row(one) for one in evidence.attacks),
    ]
    if not rows:
        return '<p class="soft">No check of this audit drew points of its own.</p>'
    header = ["check", "the true ε is", "refuted if ε is beyond", "ε at δ"]
    return table("The points in the figure, and attacks on other promises", header, rows, kind="words")


def _attack_row(attack: Attack) -> list[str]:
    kind = f"at least (attack on a miniature: {attack.name})"
    shown = _points(attack.curve) if attack.drawn else f"ε\u00a0=\u00a0{number(attack.shown)}; not in the figure"
    return [attack.check, kind, number(attack.limit), shown]


def _points(curve: Curve) -> str:
    return "; ".join(f"ε\u00a0=\u00a0{number(epsilon)} at\u00a0{number(delta)}" for epsilon, delta in curve)


def _measured_table(evidence: Evidence) -> str:
    if not evidence.errors:
        return '<p class="soft">This audit measured no error.</p>'
    rows = [[name, number(value)] for name, value in evidence.errors.items()]
    return table("A miniature of the same kind, measured", ["what", "error"], rows, kind="short")
