"""The figures of the page with their captions, or a sentence that says why there is none."""

from __future__ import annotations

import math
import tempfile
from importlib.util import find_spec
from pathlib import Path

from accounting import Plan, PrivkdeError
from accounting.curves import Curve, profile_curves
from privkde.demo.markup import inline_figure
from verification.reporting.document import AuditReport
from verification.reporting.evidence import Evidence, separate_labels
from verification.reporting.figures import draw_errors, draw_profile
from verification.reporting.sections import error_bars

PROFILE, ERRORS = "profile", "errors"
NO_LIBRARY = "Figures need matplotlib: <code>pip install 'privkde[report]'</code>."
NO_CURVE = "No curve of δ against ε can be computed for the plan's parameters."
NO_ERROR = "The plan tells no error that could be drawn."
_PROFILE = (
    "Curves of delta against epsilon: what each way of adding up claims, with the promise, recomputed bounds and what"
    " attacks reached; the table below has the numbers."
)
_ERRORS = "Bars of the error: bound, prediction with its parts, and measurements; the table below has the numbers."
_SQUARES = (
    "Squares: an independent computation with rigorous rounding for the plan's parameters. Full squares belong to two"
    " records that people may hold, so the true curve lies on or above them; open squares bound all records, so it lies"
    " on or below them. A full square to the right of the promised ε at the promised δ would refute the promise. Full"
    " squares may lie far to the left of the bold line: the accountant covers more than records do, and whether its own"
    " claim stands is another number, that of the check certified-bound."
)
_TRIANGLES = (
    "Triangles: what attacks on a miniature with the same promise certainly reached; one to the right of the promised ε"
    " at the promised δ would refute it. Attacks whose limit is another one are in the table only."
)
_ERROR_CAPTION = (
    "Error of one density. The prediction adds up bounds on each part and needs no data. Measured is a miniature of the"
    " same kind, whose error is larger because few take part; it is held against its own prediction."
)


def can_draw() -> bool:
    """Whether the extra is installed."""
    return find_spec("matplotlib") is not None


def figure_fields(report: AuditReport, evidence: Evidence, kept: Path | None) -> dict[str, str]:
    """Both figures; `kept` is a folder that gets those that can be drawn as PNG, too."""
    if not can_draw():
        return {"profile_figure": left_out(NO_LIBRARY), "error_figure": left_out(NO_LIBRARY)}
    curves = _curves(report.plan)
    bars = {name: value for name, value in error_bars(report.plan).items() if math.isfinite(value)}
    with tempfile.TemporaryDirectory() as scratch:
        for place, ending in ((Path(scratch), "svg"), (kept, "png")):
            if place is not None and curves:
                draw_profile(report.plan, curves, evidence, place / f"{PROFILE}.{ending}")
            if place is not None and any(bars.values()):
                draw_errors(bars, evidence.errors, place / f"{ERRORS}.{ending}")
        return {
            "profile_figure": _figure(Path(scratch), PROFILE, _PROFILE, _caption(report.plan), NO_CURVE),
            "error_figure": _figure(Path(scratch), ERRORS, _ERRORS, _ERROR_CAPTION, NO_ERROR),
        }


def left_out(why: str) -> str:
    """What stands in the place of a figure."""
    return f'<p class="left-out" role="note"><b>Figure left out.</b> {why}</p>'


def _figure(folder: Path, name: str, told: str, caption: str, missing: str) -> str:
    path = folder / f"{name}.svg"
    if not path.is_file():
        return left_out(missing)
    drawn = inline_figure(path.read_text(encoding="utf-8"), name, told)
    return f'<figure class="{name}">{drawn}\n<figcaption>{caption}</figcaption></figure>'


def _caption(plan: Plan) -> str:
    lines = "δ for every ε. Lines: upper bounds that the library's accounting computes for the plan's parameters."
    if plan.guarantees[0].delta == 0.0:
        promise = "The promise is the bold line: δ = 0 has no place on a logarithmic axis."
    else:
        whose = ", which is for the vector if the label stays" if separate_labels(plan) else ""
        promise = f"The dot is the promise{whose}: it must not lie below the bold line."
    return " ".join((lines, promise, _SQUARES, _TRIANGLES))


def _curves(plan: Plan) -> dict[str, Curve]:
    """None if the plan's parameters are so far off that no curve can be computed: the report must still be written."""
    try:
        return profile_curves(plan)
    except (PrivkdeError, ArithmeticError, ValueError):
        return {}
