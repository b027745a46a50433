"""The files of a report, written whole or not at all. Words and tables of `report.html` are in `templates`."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path

from accounting import InvalidInputError
from privkde.storage.files import require_replaceable, resolved, whole_folder
from privkde.storage.json_text import parsed_json, read_json
from verification.reporting import deployment_registry
from verification.reporting.document import SCHEMA, AuditReport, environment
from verification.reporting.report_figures import Figures, draw_figures
from verification.reporting.shown_evidence import planned_errors, shown_evidence
from verification.sabotage.matrix import MARKS, Matrix
from verification.verdicts import FALSE_ALARM_RATE

SABOTEURS = "saboteurs.json"
"""In this package, the matrix of the release; in a report's folder, what `privkde audit --saboteurs` wrote there."""
FILES = ("report.html", "report.json", "registry.yaml", SABOTEURS)
EARLIER_FILES = ("report.pdf",)
"""Written by version 0.1; one in the folder goes, since it is of an earlier audit."""
PRINT = "for a PDF, print report.html."


def require_ready(output: Path) -> None:
    """Raise `InvalidInputError` if no report could be written there; call it before an audit begins."""
    require_replaceable(resolved(output), FILES + EARLIER_FILES)
    shown_matrix(output)


def write_report(report: AuditReport, output: Path) -> list[str]:
    """Write the folder; returns notes on what was left out and why, and how to get a PDF.

    A matrix of saboteurs that is in the folder already stays there, and is shown on the page if it is newer than the
    release's own.
    """
    matrix, figures = shown_matrix(output), draw_figures(report)
    with whole_folder(output, FILES + EARLIER_FILES) as folder:
        (folder / "report.json").write_text(report.dumps(), encoding="utf-8")
        (folder / "registry.yaml").write_text(deployment_registry.dumps(report), encoding="utf-8")
        (folder / "report.html").write_text(render(report, matrix=matrix, figures=figures), encoding="utf-8")
        if (output / SABOTEURS).is_file():
            shutil.copyfile(output / SABOTEURS, folder / SABOTEURS)
    if not figures.drawable:
        return ["report.html has no figures; they need `pip install 'privkde[report]'`.", PRINT]
    if figures.profile is None:
        return ["the figure of δ(ε) was left out: no curve can be computed for the plan's parameters.", PRINT]
    return [PRINT]


def render(report: AuditReport, *, matrix: Matrix | None = None, figures: Figures | None = None) -> str:
    """One page that needs nothing but itself, with this matrix of saboteurs; figures are drawn if none are given."""
    plan, evidence = report.plan, shown_evidence(report)
    return deployment_registry.filled(
        "page.html",
        report,
        label=plan.request.label_response(),
        promise=plan.guarantees[0],
        model=report.model,
        evidence=evidence,
        planned_errors=planned_errors(plan),
        allowed_false_alarms=FALSE_ALARM_RATE,
        matrix=matrix,
        marks=MARKS,
        figures=draw_figures(report) if figures is None else figures,
        machine=environment(),
        schema=SCHEMA,
    )


def shown_matrix(folder: Path) -> Matrix | None:
    """The newer of the release's matrix and the one in the folder; None if there is neither."""
    own, released = read_matrix(folder / SABOTEURS), released_matrix()
    if own is None or released is None:
        return own or released
    return own if own.made > released.made else released


def released_matrix() -> Matrix | None:
    """The matrix that came with this release; None if it was not shipped."""
    path = files("verification.reporting").joinpath(SABOTEURS)
    return Matrix.from_json(parsed_json(path.read_bytes())) if path.is_file() else None


def read_matrix(path: Path) -> Matrix | None:
    """The matrix that `privkde audit --saboteurs` wrote, if it is there."""
    if not path.is_file():
        return None
    try:
        return Matrix.from_json(read_json(path, "write it again."))
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{str(path)!r} is not a whole matrix of saboteurs; write it again with `privkde audit --saboteurs`, delete"
            " it or choose another folder."
        ) from error
