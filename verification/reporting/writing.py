"""The files of a report, written whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from privkde.files import require_replaceable, whole_folder
from verification.reporting import drawing, registry
from verification.reporting.document import AuditReport
from verification.reporting.page import render
from verification.reporting.pdf import missing_packages, write_pdf
from verification.reporting.saboteurs import SABOTEURS, shown_matrix

OWN_FILES = ("report.html", "report.json", "report.pdf", "registry.yaml", SABOTEURS)
EXTRA = "`pip install 'privkde[report]'`"


def require_ready(output: Path) -> None:
    """Raise `InvalidInputError` if no report could be written there: to be asked before an audit begins."""
    require_replaceable(output.resolve(), OWN_FILES)
    shown_matrix(output)


def write_report(report: AuditReport, output: Path) -> list[str]:
    """Write the folder; returns notes on what was left out and why.

    A matrix of saboteurs that is in the folder already stays there, and is shown on the page if it is newer than the
    release's own.
    """
    matrix, missing = shown_matrix(output), missing_packages()
    with whole_folder(output, OWN_FILES) as folder, tempfile.TemporaryDirectory() as scratch:
        figures = Path(scratch)
        (folder / "report.json").write_text(report.dumps(), encoding="utf-8")
        (folder / "registry.yaml").write_text(registry.dumps(report), encoding="utf-8")
        page = render(report, matrix=matrix, figures=figures)
        (folder / "report.html").write_text(page, encoding="utf-8")
        if not missing:
            write_pdf(report, figures, folder / "report.pdf")
        if (output / SABOTEURS).is_file():
            shutil.copyfile(output / SABOTEURS, folder / SABOTEURS)
        return _notes(figures, missing)


def _notes(figures: Path, missing: list[str]) -> list[str]:
    notes = []
    if not drawing.can_draw():
        notes.append(f"report.html has no figures; they need {EXTRA}.")
    elif not (figures / f"{drawing.PROFILE}.png").is_file():
        notes.append("the figure of δ(ε) was left out: no curve can be computed for the plan's parameters.")
    if missing:
        notes.append(f"report.pdf was left out; it needs {EXTRA}.")
    return notes
