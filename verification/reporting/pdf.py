"""`report.pdf`: a printable summary of the report (extra `report`: fpdf2, and matplotlib for its letters and figures).

The page prints well from any browser; this is for whoever needs a file to sign, and has no browser at hand.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accounting import View
from verification.reporting.document import AuditReport, Result, environment
from verification.reporting.evidence import confirmation
from verification.reporting.sections import error_bars
from verification.reporting.trials import TITLES, limits, verdict_text
from verification.reporting.wording import (
    ADJACENCIES,
    MECHANISMS,
    VERDICTS,
    VIEWS,
    counted,
    in_words,
    number,
    numbers,
    ordered,
    promised,
    promised_parts,
    small,
)
from verification.verdicts import NotRefuted, Refuted

NEEDED = ("fpdf", "matplotlib")
FIGURE_WIDTH = 125.0
INKS = {"not-refuted": (0, 99, 156), "refuted": (178, 58, 0), "could-not-run": (122, 82, 0)}
BLACK, SOFT = (27, 31, 36), (87, 96, 106)


def missing_packages() -> list[str]:
    """What has to be installed before a PDF can be written."""
    return [name for name in NEEDED if find_spec(name) is None]


def write_pdf(report: AuditReport, figures: Path, path: Path) -> None:
    """The summary, with `profile.png` from `figures` if it could be drawn."""
    sheet = _blank()
    _opening(sheet, report)
    _promises(sheet, report)
    _accounts(sheet, report, figures)
    _checks(sheet, report)
    _ending(sheet, report)
    sheet.output(str(path))


def _blank() -> Any:
    import fpdf
    import matplotlib as mpl

    logging.getLogger("fontTools").setLevel(logging.ERROR)  # subsetting tells every step
    letters = Path(mpl.get_data_path()) / "fonts" / "ttf"
    sheet = fpdf.FPDF(format="A4")
    sheet.set_auto_page_break(True, margin=18)
    for style, file in (("", "DejaVuSans.ttf"), ("B", "DejaVuSans-Bold.ttf")):
        sheet.add_font("DejaVu", style, str(letters / file))
    sheet.set_title("Privacy audit")
    sheet.set_lang("en")
    sheet.add_page()
    return sheet


def _opening(sheet: Any, report: AuditReport) -> None:
    _line(sheet, "Privacy audit of a shuffled collection", size=18, bold=True)
    if report.model is not None and not report.model.private:
        _line(
            sheet,
            "This model is not private: its noise was drawn from a seed.",
            size=11,
            bold=True,
            ink=INKS["refuted"],
        )
    _line(sheet, TITLES[report.verdict], size=15, bold=True, ink=INKS[report.verdict])
    _line(sheet, verdict_text(report))
    facts = f"Plan {report.plan_sha256}. {report.effort.name.capitalize()} audit, seed {report.seed}, {report.started}."
    _line(sheet, facts, size=8, ink=SOFT)


def _promises(sheet: Any, report: AuditReport) -> None:
    plan = report.plan
    main, parts = promised(plan, View.COMMUNICATION), promised_parts(plan)
    _line(sheet, "What is promised, to whom, against whom", size=13, bold=True)
    _line(sheet, f"{numbers(main)}, if {ADJACENCIES[main.adjacency]}.", size=11, bold=True)
    if parts:
        _line(sheet, f"Of it: {parts}.")
    rows = [[ADJACENCIES[one.adjacency], VIEWS[one.view], numbers(one), in_words(one)] for one in ordered(plan)]
    _table(sheet, ["if …", "then for …", "ε and δ", "in words"], rows, (30, 30, 18, 30))
    local, request = promised(plan, View.LOCAL), plan.request
    _line(sheet, f"If the shuffler colludes: {numbers(local)}. {in_words(local)}")
    needed = counted(request.counted_users, "honest participant")
    each = " in every class" if request.n_protocols > 1 else ""
    _line(sheet, f"The noise counts on {needed}{each}; with fewer, do not publish.")
    _line(sheet, "Mechanism", size=13, bold=True)
    _line(sheet, MECHANISMS.get(plan.bitsum, plan.bitsum))
    _line(sheet, ", ".join(f"{name} = {value:.8g}" for name, value in plan.parameters.items()), size=8, ink=SOFT)


def _accounts(sheet: Any, report: AuditReport, figures: Path) -> None:
    plan = report.plan
    _line(sheet, "How the promises add up", size=13, bold=True)
    ways = [
        [f"{name} (used)" if name == plan.accountant else name, "does not apply" if value is None else f"{value:.6g}"]
        for name, value in plan.ladder.items()
    ]
    _table(sheet, ["way of adding up", f"ε at δ = {small(plan.guarantees[0].delta)}"], ways, (30, 30))
    if (figures / "profile.png").is_file():
        sheet.image(str(figures / "profile.png"), w=FIGURE_WIDTH, alt_text="Curves of delta against epsilon", x="C")
    else:
        _line(sheet, "Figure left out: no curve of δ against ε can be computed for the plan's parameters.", ink=SOFT)
    _line(sheet, "What privacy costs", size=13, bold=True)
    errors = [[name.removeprefix("part:").strip(), number(value)] for name, value in error_bars(plan).items()]
    _table(sheet, ["error of a density (RMSE)", "value"], errors, (50, 20))
    _line(
        sheet,
        f"Every person sends {counted(plan.messages_per_user, 'message')}, {counted(plan.bits_per_user, 'bit')}, on"
        " average.",
    )


def _checks(sheet: Any, report: AuditReport) -> None:
    confirmed = confirmation(report)
    _line(sheet, "Every attempt to refute", size=13, bold=True)
    _line(sheet, f"Confirmed from above: {confirmed.answer} ({confirmed.reason}).")
    header = ["check", "depth", "verdict", "found", "limit", "false alarm ≤", "power"]
    _table(sheet, header, [_row(one) for one in report.results], (52, 17, 22, 15, 15, 15, 12), size=7)
    _line(sheet, "Power —: not known, as for a search, or not needed, as the claim was refuted.", size=8, ink=SOFT)
    for result in report.results:
        if result.finding is not None and isinstance(result.finding.verdict, Refuted):
            _line(sheet, f"{result.name}: {result.finding.verdict.witness.found}", bold=True, ink=INKS["refuted"])
            _line(sheet, report.replay(result), size=8, ink=SOFT)


def _row(result: Result) -> list[str]:
    found = result.finding
    named = [f"{result.about} ({result.name})", str(result.layer), VERDICTS[result.verdict]]
    if found is None:
        return [*named, result.error or "", "", "", ""]
    power = number(found.verdict.power) if isinstance(found.verdict, NotRefuted) else "—"
    return [*named, number(found.statistic), number(found.bound), number(found.alpha), power]


def _ending(sheet: Any, report: AuditReport) -> None:
    _line(sheet, "Limits of the evidence", size=13, bold=True)
    for one in limits(report):
        _line(sheet, f"• {one}")
    machine = environment()
    packages = ", ".join(f"{name} {value}" for name, value in machine["packages"].items() if value)
    _line(sheet, "Repeat this audit", size=13, bold=True)
    _line(sheet, report.command())
    _line(
        sheet,
        f"privkde {machine['privkde']}, Python {machine['python']}, {packages}, {machine['platform']}.",
        size=8,
        ink=SOFT,
    )


def _line(sheet: Any, text: str, *, size: float = 9.5, bold: bool = False, ink: tuple[int, int, int] = BLACK) -> None:
    if bold and size > 12:
        sheet.ln(3)
    sheet.set_font("DejaVu", "B" if bold else "", size)
    sheet.set_text_color(*ink)
    sheet.multi_cell(0, size * 0.5, text, new_x="LMARGIN", new_y="NEXT", align="L")
    sheet.ln(1.2)


def _table(
    sheet: Any, header: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], *, size: float = 8
) -> None:
    sheet.set_font("DejaVu", "", size)
    sheet.set_text_color(*BLACK)
    sheet.set_draw_color(*SOFT)
    with sheet.table(
        col_widths=tuple(widths),
        line_height=size * 0.5,
        text_align="LEFT",
        borders_layout="HORIZONTAL_LINES",
        padding=1,
    ) as grid:
        for row in (header, *rows):
            grid.row(list(row))
    sheet.ln(2)
