"""The files of a report, written whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accounting import InvalidInputError
from privkde.files import whole_folder
from verification.reporting import registry
from verification.reporting.document import AuditReport
from verification.reporting.page import render
from verification.reporting.pdf import missing_packages, write_pdf

SABOTEURS = "saboteurs.json"
OWN_FILES = ("report.html", "report.json", "report.pdf", "registry.yaml", SABOTEURS)


def write_report(report: AuditReport, output: Path) -> list[str]:
    """Write the folder; returns notes on what was left out and why.

    A matrix of saboteurs that is in the folder already stays there and is shown on the page.
    """
    matrix = read_matrix(output / SABOTEURS)
    notes = []
    with whole_folder(output, OWN_FILES) as folder, tempfile.TemporaryDirectory() as scratch:
        (folder / "report.json").write_text(report.dumps(), encoding="utf-8")
        (folder / "registry.yaml").write_text(registry.dumps(report), encoding="utf-8")
        missing, figures = missing_packages(), Path(scratch)
        page = render(report, matrix=matrix, figures=None if missing else figures)
        (folder / "report.html").write_text(page, encoding="utf-8")
        if missing:
            notes.append("report.pdf was left out; it needs `pip install 'privkde[report]'`.")
        else:
            write_pdf(report, figures, folder / "report.pdf")
        if matrix is not None:
            shutil.copyfile(output / SABOTEURS, folder / SABOTEURS)
    return notes


def read_matrix(path: Path) -> Mapping[str, Any] | None:
    """The matrix that `privkde audit --saboteurs` wrote, if it is there."""
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"].startswith("privkde.saboteurs/"):
            return dict(document)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise InvalidInputError(f"{str(path)!r} is no matrix of saboteurs; move it away or choose another folder.")
