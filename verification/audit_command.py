"""`privkde audit`: try to refute a plan's promise and the program behind it, and write a report."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from accounting import InvalidInputError, PrivkdeError
from accounting.errors import printable
from privkde.cli.ledger_options import add_ledger_options, open_ledger
from privkde.cli.parsing import EXIT_BAD_INPUT, fail, read_plan, whole
from privkde.display.progress import Tracker, tracked
from privkde.protocol.model import DensityModel
from privkde.storage.files import require_own_name, require_writable, write_text
from verification.auditing import audit
from verification.commands import EXIT_REFUTED, READER_LEFT
from verification.reporting import wording
from verification.reporting.deployment import Deployment, assumptions, parties
from verification.reporting.document import AuditReport
from verification.reporting.report_writing import require_ready, write_report
from verification.sabotage import run_matrix
from verification.verdicts import FULL, QUICK, Layer

MATRIX = "saboteurs.json"
_STYLES = {"not-refuted": "green", "refuted": "bold red", "could-not-run": "yellow"}


def add_audit(parser: argparse.ArgumentParser) -> None:
    """Add the options of `audit`."""
    parser.description = "Try to refute a plan's promise. Exit code: 0 not refuted, 1 refuted, 2 could not run."
    parser.add_argument("--plan", type=Path, metavar="FILE", help="plan written by `privkde plan --output`")
    parser.add_argument("--model", type=Path, metavar="MODEL", help="model that was published with the plan")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_true", help="under a minute on two cores (default)")
    effort.add_argument("--full", action="store_true", help="ten times as many samples: under fifteen minutes")
    parser.add_argument("--seed", type=whole, metavar="N", help="the checks' draws (default: fresh ones)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these checks only")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder for report.html, report.json, registry.yaml")
    parser.add_argument(
        "--saboteurs", action="store_true", help=f"plant faults instead, show which checks find them, write {MATRIX}"
    )
    who = parser.add_argument_group("who promises", "words of the organisation, for the report; no check tests them")
    who.add_argument("--organisation", metavar="TEXT", help="who collects and publishes")
    who.add_argument("--purpose", metavar="TEXT", help="what the result is for")
    who.add_argument("--period", metavar="TEXT", help="when the collection runs")
    who.add_argument("--budget", metavar="NAME", help="say what is spent of this budget; the ledger is only read")
    add_ledger_options(who)
    parser.set_defaults(run=_audit)


def _audit(parsed: argparse.Namespace) -> int:
    """The exit code; whatever goes wrong is 2, since 1, Python's own code of an error, would say: refuted."""
    try:
        return _saboteurs(parsed) if parsed.saboteurs else _audited(parsed)
    except (PrivkdeError, OSError):  # the command line reports these in one line, with exit code 2
        raise
    except Exception as error:
        traceback.print_exc()
        fail(f"the audit could not run: {type(error).__name__}; nothing was refuted, and nothing was shown.")


def _audited(parsed: argparse.Namespace) -> int:
    if parsed.plan is None:
        raise InvalidInputError("--plan is missing; give a plan written by `privkde plan --output`, or --saboteurs.")
    if parsed.output is not None:
        require_ready(parsed.output)
    plan = read_plan(parsed.plan)  # not verified: the audit says what is wrong with it
    deployment = _deployment(parsed)
    model = None if parsed.model is None else DensityModel.load(parsed.model)
    with tracked(sys.stderr.isatty()) as tracker:
        report = audit(
            plan,
            model,
            effort=FULL if parsed.full else QUICK,
            seed=parsed.seed,
            only=parsed.only,
            progress=_Bar(tracker, "checks"),
        )
    model_path = None if model is None else str(parsed.model)
    report = replace(report, plan_path=str(parsed.plan), model_path=model_path, deployment=deployment)
    delivered = _succeeded("shown", lambda: _show(report))
    if parsed.output is not None:  # after the verdict was shown: what fails here cannot hide it
        earlier = "written (one in the folder is of an earlier audit)"
        delivered &= _succeeded(earlier, lambda: _write(report, parsed.output))
    return report.exit_code if delivered or report.refuted else EXIT_BAD_INPUT


def _deployment(parsed: argparse.Namespace) -> Deployment:
    standing = None
    if parsed.budget is not None:
        with open_ledger(parsed) as ledger:
            standing = ledger.standing(parsed.budget)
    return Deployment(organisation=parsed.organisation, purpose=parsed.purpose, period=parsed.period, standing=standing)


def _succeeded(done: str, step: Callable[[], None]) -> bool:
    """Whether the report could be shown or written; if not, say so: the verdict stands."""
    try:
        with suppress(*READER_LEFT):
            step()
    except Exception as error:
        known = isinstance(error, PrivkdeError | OSError)
        if not known:
            traceback.print_exc()
        reason = str(error) if known else type(error).__name__
        print(f"privkde: error: the report could not be {done}: {reason}", file=sys.stderr)
        return False
    return True


def _write(report: AuditReport, output: Path) -> None:
    notes = write_report(report, output)
    console = Console()
    for note in notes:
        console.print(note, style="dim", highlight=False, markup=False)
    console.print(f"written: {printable(str(output))}", highlight=False, markup=False, soft_wrap=True)


class _Bar:
    """Shows what has ended."""

    def __init__(self, tracker: Tracker, what: str) -> None:
        self._tracker, self._what = tracker, what
        self._advance: Callable[[int], None] | None = None

    def __call__(self, done: int, total: int, name: str) -> None:
        if self._advance is None:
            self._advance = self._tracker.bar(self._what, total)
        if done and self._advance is not None:
            self._advance(1)
            self._tracker.step(f"done: {name}")


def _show(report: AuditReport) -> None:
    console = Console()
    console.print(_table(report))
    for result in report.results:
        if result.verdict != "not-refuted":
            witness = None if result.finding is None else result.finding.witness
            reason = f"stopped: {result.error}" if witness is None else witness.found
            console.print(f"[{_STYLES[result.verdict]}]{escape(result.name)}[/]: {escape(reason)}")
            console.print(f"  see it again: {report.replay(result)}", highlight=False, markup=False, soft_wrap=True)
    if report.not_applicable:
        console.print(f"not applicable: {', '.join(report.not_applicable)}", style="dim", highlight=False)
    for reason in dict.fromkeys(report.missing.values()):
        console.print(f"  some because {reason}", style="dim", highlight=False, markup=False)
    _show_promise(console, report)
    checks, honest = wording.counted(len(report.results), "check"), wording.false_alarms(report.false_alarm_rate)
    console.print(
        f"[{_STYLES[report.verdict]}]{report.verdict}[/]: {checks} in {report.seconds:.1f} s, seed {report.seed};"
        f" {honest}",
        highlight=False,
    )


def _show_promise(console: Console, report: AuditReport) -> None:
    """What is assumed, who promises, and which ε is proved: the last lines are what stays on the screen."""
    print_plain = partial(console.print, highlight=False, markup=False)
    print_plain("assumed, and not checked:", style="dim")
    for text in assumptions(report.contract):
        print_plain(f"  {text}", style="dim")
    print_plain("who is trusted, and what is left if they misbehave:", style="dim")
    for party in parties(report.plan):
        print_plain(f"  {party.who}: {party.misbehaves}", style="dim")
    for name, text in report.deployment.told.items():
        print_plain(f"{name}: {text}")
    if report.deployment.spent is not None:
        print_plain(f"spent by all releases: {report.deployment.spent}")
    print_plain(report.proof.headline)


def _table(report: AuditReport) -> Table:
    """Fits 80 columns: the depth has a line of its own, and errors stand below."""
    table = Table(
        title=f"Audit of plan {report.plan_sha256[:12]}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for name in ("check", "verdict"):
        table.add_column(name, no_wrap=True)
    for name in ("found", "limit", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for layer in Layer:
        results = [result for result in report.results if result.layer is layer]
        if results:
            table.add_row(f"[dim]{layer}[/]")
        for result in results:
            finding = result.finding
            numbers = ("—", "—") if finding is None else (f"{finding.statistic:.4g}", f"{finding.bound:.4g}")
            verdict = f"[{_STYLES[result.verdict]}]{result.verdict}[/]"
            table.add_row(f"  {escape(result.name)}", verdict, *numbers, f"{result.seconds:.1f}")
    return table


def _saboteurs(parsed: argparse.Namespace) -> int:
    """Plant every fault; 0 if each of them is found and the honest system is not refuted, else 1."""
    mine = ("plan", "model", "only", "seed", "organisation", "purpose", "period", "budget")
    ignored = [name for name in mine if getattr(parsed, name) is not None]
    if ignored:
        raise InvalidInputError(f"--{ignored[0]} has no effect with --saboteurs, which brings its own; leave it out.")
    path = (parsed.output or Path()) / MATRIX
    if parsed.output is not None:
        require_own_name(parsed.output)
        parsed.output.mkdir(exist_ok=True)
    require_writable(path)
    with tracked(sys.stderr.isatty()) as tracker:
        matrix = run_matrix(FULL if parsed.full else QUICK, progress=_Bar(tracker, "saboteurs"))
    document = json.dumps(matrix.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    write_text(path, document)
    with suppress(*READER_LEFT):
        Console().print(matrix.table())
        Console().print(f"written: {printable(str(path))}", highlight=False, markup=False, soft_wrap=True)
    return 0 if matrix.complete else EXIT_REFUTED
