"""Which planted faults the checks find: the release's matrix, or a newer one from the report's folder."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from pathlib import Path

import privkde
from accounting import InvalidInputError
from verification.reporting.markup import Markup, table
from verification.reporting.wording import counted
from verification.sabotage.matrix import MARKS, Matrix, Row

SABOTEURS = "saboteurs.json"
"""In this package, the matrix of the release; in a report's folder, what `privkde audit --saboteurs` wrote there."""
CAPTION = "Systems and checks. ✗ refuted, · not refuted, ! could not run, empty: does not apply"
_HOW = (
    "<code>privkde audit --saboteurs</code> plants each of them in a fresh copy of the system and shows which check"
    " finds it; run it with this report's folder as <code>--output</code> before the audit, and the matrix is shown"
    " here."
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
    return Matrix.from_json(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def read_matrix(path: Path) -> Matrix | None:
    """The matrix that `privkde audit --saboteurs` wrote, if it is there."""
    if not path.is_file():
        return None
    try:
        return Matrix.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError, InvalidInputError) as error:
        raise InvalidInputError(
            f"{str(path)!r} is no whole matrix of saboteurs; write it anew with `privkde audit --saboteurs`, delete it"
            " or choose another folder."
        ) from error


def saboteur_fields(matrix: Matrix | None) -> dict[str, str]:
    """The matrix with its origin: a check that never fails would be worth nothing."""
    if matrix is None:
        return {"saboteurs": f"<p>No matrix of planted faults was shipped with this version. {_HOW}</p>"}
    header = ["system", "plan", *(str(place) for place in range(1, len(matrix.checks) + 1))]
    lines = [_line(row, matrix.checks) for row in matrix.rows]
    legend = "; ".join(f"{place} {name}" for place, name in enumerate(matrix.checks, 1))
    return {
        "saboteurs": f"{_lead(matrix)}{_warning(matrix)}"
        f'<div class="scroll">{table(CAPTION, header, lines, kind="matrix")}</div>'
        f'<p class="soft">Checks: {escape(legend)}.</p>'
    }


def _lead(matrix: Matrix) -> str:
    faults = sum(not row.honest for row in matrix.rows)
    found = faults - len(matrix.survivors)
    fails = f" <b>The honest system fails {escape(', '.join(matrix.false_alarms))}.</b>" if matrix.false_alarms else ""
    return (
        f"<p><b>{found} of {counted(faults, 'planted fault')} refuted.</b>{fails} Each was planted in a fresh system"
        " with a plan of its own and put before all checks, as was the honest system. Nothing of the plan in this"
        " report was altered.</p>"
        f'<p class="soft">Made by privkde {escape(matrix.version)} on {escape(matrix.date)}: {escape(matrix.effort)}'
        f" effort, seed {matrix.seed}, Python {escape(str(matrix.environment.get('python')))},"
        f" {escape(str(matrix.environment.get('platform')))}.</p>"
    )


def _warning(matrix: Matrix) -> str:
    if matrix.version == privkde.__version__:
        return ""
    return (
        f'<p class="banner"><b>This matrix is of privkde {escape(matrix.version)}.</b> Installed is privkde'
        f" {escape(privkde.__version__)}, whose checks may find more or less. {_HOW}</p>"
    )


def _line(row: Row, checks: tuple[str, ...]) -> list[str]:
    return [
        Markup(f"<b>{escape(row.name)}</b><br>{escape(row.story)}"),
        row.plan,
        *(MARKS[row.outcomes[name]][0].strip() for name in checks),
        "good" if row.honest or row.refuted_by else "bad",
    ]
