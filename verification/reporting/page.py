"""`report.html`: one page that needs nothing but itself."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from accounting.curves import Curve, profile_curves
from accounting.errors import PrivkdeError
from privkde.demo.markup import inline_figure
from verification.reporting import sections, trials
from verification.reporting.document import AuditReport
from verification.reporting.figures import Evidence, draw_errors, draw_profile
from verification.reporting.markup import table
from verification.reporting.wording import number
from verification.verdicts import Layer

NO_FIGURES = "<p class=\"soft\">Figures need matplotlib: <code>pip install 'privkde[report]'</code>.</p>"
ATTACKS, ERRORS = "distinguisher", "sup-rmse"
"""Names of the checks that draw: all that begin with the first bound (ε, δ) from below, the second measures errors."""
_PROFILE = (
    "Curves of delta against epsilon: what each way of adding up claims, with the promise, recomputed bounds and what"
    " attacks reached; the table below has the numbers."
)
_ERRORS = "Bars of the error: bound, prediction with its parts, and measurements; the table below has the numbers."


def render(report: AuditReport, *, matrix: Mapping[str, Any] | None = None, figures: Path | None = None) -> str:
    """The page. With `figures`, a folder that keeps `profile` and `errors` as PNG, too."""
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
        | trials.saboteur_fields(matrix)
        | trials.ending_fields(report)
        | {"evidence_table": _evidence_table(evidence), "measured_table": _measured_table(evidence)}
        | _figures(report, evidence, figures)
    )
    return Template(template).substitute(fields)


def gathered(report: AuditReport) -> Evidence:
    """What findings drew; each kind of check has its own meaning of a curve, which its note repeats."""
    curves = {one.name: list(one.finding.curve) for one in report.results if one.finding and one.finding.curve}
    halves = {one.name: _halves(curves.get(one.name, [])) for one in report.results if one.layer is Layer.CERTIFIED}
    return Evidence(
        below={name: half[0] for name, half in halves.items() if half[0]},
        above={name: half[1] for name, half in halves.items() if half[1]},
        attacked={name: curve for name, curve in curves.items() if name.startswith(ATTACKS)},
        errors=_measured(curves.get(ERRORS, []), bounded=report.plan.sup_rmse_bound is not None),
    )


def _halves(curve: Curve) -> tuple[Curve, Curve]:
    """Points below the true curve, then points above it: the second half begins where δ is the first δ again."""
    again = [place for place, (_, delta) in enumerate(curve) if place and delta == curve[0][1]]
    split = again[0] if again else len(curve)
    return curve[:split], curve[split:]


def _measured(curve: Curve, *, bounded: bool) -> dict[str, float]:
    """(bound, planned) if there is a bound, then (predicted, measured) for each query; the worst of these is told."""
    first, queries = (curve[:1], curve[1:]) if bounded else ([], curve)
    told = {name: value for point in first for name, value in zip(("bound", "planned, at most"), point, strict=True)}
    if queries:
        predicted, seen = max(queries, key=lambda query: query[1])
        told |= {"predicted for the worst query found": predicted, "measured there": seen}
    return told


def _evidence_table(evidence: Evidence) -> str:
    kinds = {
        "at least (certified)": evidence.below,
        "at most (certified)": evidence.above,
        "at least (attack on a miniature)": evidence.attacked,
    }
    rows = [
        [name, kind, "; ".join(f"ε\u00a0=\u00a0{number(epsilon)} at\u00a0{number(delta)}" for epsilon, delta in curve)]
        for kind, curves in kinds.items()
        for name, curve in curves.items()
    ]
    if not rows:
        return '<p class="soft">No check of this audit drew points of its own.</p>'
    return table("The points in the figure", ["check", "the true ε is", "ε at δ"], rows, kind="words")


def _measured_table(evidence: Evidence) -> str:
    if not evidence.errors:
        return '<p class="soft">This audit measured no error.</p>'
    rows = [[name, number(value)] for name, value in evidence.errors.items()]
    return table("A miniature of the same kind, measured", ["what", "error"], rows, kind="short")


def _figures(report: AuditReport, evidence: Evidence, kept: Path | None) -> dict[str, str]:
    if find_spec("matplotlib") is None:
        return {"profile_figure": NO_FIGURES, "error_figure": NO_FIGURES}
    curves, bars = _curves(report), sections.error_bars(report.plan)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        places = [folder, *([] if kept is None else [kept])]
        for place, ending in zip(places, ("svg", "png"), strict=False):
            draw_profile(report.plan, curves, evidence, place / f"profile.{ending}")
            draw_errors(bars, evidence.errors, place / f"errors.{ending}")
        return {
            "profile_figure": inline_figure((folder / "profile.svg").read_text(encoding="utf-8"), "profile", _PROFILE),
            "error_figure": inline_figure((folder / "errors.svg").read_text(encoding="utf-8"), "errors", _ERRORS),
        }


def _curves(report: AuditReport) -> dict[str, Curve]:
    """None if the plan's parameters are so far off that no curve can be computed: the report must still be written."""
    try:
        return profile_curves(report.plan)
    except (PrivkdeError, ArithmeticError, ValueError):
        return {}
