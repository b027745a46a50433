"""`privkde plan`: set the noise for a promise, and explain it."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from accounting import InvalidInputError, Plan, PlanRequest, plan_budget, solve
from accounting.choosing import Progress
from accounting.comparing import compare_labels, compare_rungs
from accounting.errors import require_choice
from accounting.request import DESCRIPTIONS, read_request
from accounting.solving import MEASURES, QUESTIONS
from privkde.cli.parsing import real, whole
from privkde.datasets import read_vectors
from privkde.figures import plot_comparison, plot_profile, require_drawable
from privkde.files import require_writable, write_text, write_whole
from privkde.tables import compare_table, labels_table, ladder_table, plan_table

SAMPLE_QUERIES = 500

_KINDS: dict[str, Any] = {"int": whole, "float": real, "str": str}
"""How an option is read, by the type of the request's field."""
_OPTIONS = {field.name: field for field in dataclasses.fields(PlanRequest) if field.name != "allow_useless"}


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `plan`."""
    plan = commands.add_parser("plan", help="set the noise for a promise, and explain it", allow_abbrev=False)
    for name, field in _OPTIONS.items():
        kind = _KINDS[str(field.type).partition(" ")[0]]
        shown = "" if field.default in (dataclasses.MISSING, None) else f" (default: {field.default})"
        plan.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            type=kind,
            help=DESCRIPTIONS[name] + shown,
            metavar={whole: "N", real: "X"}.get(kind, "NAME"),
        )
    plan.add_argument("--allow-useless", action="store_true", help=DESCRIPTIONS["allow_useless"])
    plan.add_argument(
        "--solve", metavar="UNKNOWN", help=f"find the smallest {', '.join(QUESTIONS)} that meets the rest"
    )
    plan.add_argument("--target-error", type=real, help="with --solve: largest error of the density")
    plan.add_argument("--max-messages", type=real, help="with --solve: most messages per user")
    plan.add_argument("--error-measure", default="predicted", help=f"with --solve: {' or '.join(MEASURES)}")
    plan.add_argument(
        "--sample", type=Path, metavar="FILE", help=".npz with public vectors X like the users': predict with"
    )
    plan.add_argument("--compare", action="store_true", help="calibrate the request by every rung, side by side")
    plan.add_argument("--explain", action="store_true", help="print the plan in words and formulas")
    plan.add_argument("--json", action="store_true", help="print the plan as JSON (schema privkde.plan/1)")
    plan.add_argument("--output", type=Path, metavar="FILE", help="write the plan's JSON to a file")
    plan.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw δ(ε) of every rung, or what is compared (svg, png or pdf)"
    )
    plan.set_defaults(run=_plan)


def _plan(parsed: argparse.Namespace) -> None:
    request = {name: getattr(parsed, name) for name in _OPTIONS if getattr(parsed, name) is not None}
    request["allow_useless"] = parsed.allow_useless
    for path in (parsed.output, parsed.plot):
        if path is not None:
            require_writable(path)
    if parsed.plot is not None:
        require_drawable(parsed.plot)
    _refuse_ignored(parsed)
    console, notes = Console(), Console(stderr=True)
    with notes.status("planning") as status:

        def progress(text: str) -> None:
            status.update(f"planning: {text}")

        if parsed.compare:
            tables = _compared(parsed, request, progress)
            console.print(*tables, sep="\n")
            return
        plan = _solved_or_planned(parsed, request, progress)
        expected = None if parsed.sample is None else _expected(plan, parsed.sample, progress)
        if parsed.plot is not None:
            progress("drawing the privacy profile")
            write_whole(parsed.plot, lambda path: plot_profile(plan, path))
    if parsed.output is not None:
        write_text(parsed.output, plan.dumps())
    _show(plan, parsed, console)
    if expected is not None and not parsed.json:
        console.print(expected, highlight=False)


def _expected(plan: Plan, sample: Path, progress: Progress) -> str:
    """The error on data like a public sample, at up to `SAMPLE_QUERIES` of its own vectors."""
    from privkde.prediction import expected_error

    vectors = read_vectors(sample, "X")
    if vectors.shape[1] != plan.request.dim:
        raise InvalidInputError(f"{str(sample)!r} has {vectors.shape[1]} columns; the plan is for {plan.request.dim}.")
    progress("predicting the error on data like the sample")
    queries = vectors[np.arange(min(SAMPLE_QUERIES, vectors.shape[0]))]
    error = expected_error(plan, vectors, queries)
    return (
        f"expected error on data like {sample.name}: {error.total:.4g} = sqrt(bias {error.bias:.3g}² + features"
        f" {error.feature:.3g}² + rounding {error.rounding:.3g}² + privacy {error.privacy:.3g}²)"
    )


def _compared(parsed: argparse.Namespace, request: dict[str, Any], progress: Progress) -> list[Table]:
    """The ladder and, with classes, both ways to protect labels; drawn, if that is asked for."""
    _require(request, {"users", "dim", "epsilon", "delta"})
    asked = read_request(request)
    rungs, labels = compare_rungs(asked, progress), compare_labels(asked, progress)
    if parsed.plot is not None:
        progress("drawing the ladder")
        write_whole(parsed.plot, lambda path: plot_comparison(rungs, path))
    return [compare_table(rungs), *([labels_table(labels)] if labels else [])]


def _refuse_ignored(parsed: argparse.Namespace) -> None:
    """`--compare` prints tables; nothing that would be left undone may be asked for beside it."""
    others = [name for name in ("json", "explain", "output", "solve", "sample") if getattr(parsed, name)]
    if parsed.compare and others:
        raise InvalidInputError(f"--{others[0]} has no effect with --compare; run them one after the other.")


def _solved_or_planned(parsed: argparse.Namespace, request: dict[str, Any], progress: Any) -> Plan:
    if parsed.solve is None:
        _require(request, {"users", "dim", "epsilon", "delta"})
        if parsed.target_error is not None or parsed.max_messages is not None:
            raise InvalidInputError(
                "--target-error and --max-messages belong to --solve; add --solve epsilon|users|repetitions|messages."
            )
        return plan_budget(progress=progress, **request)
    require_choice("--solve", parsed.solve, QUESTIONS)
    del request["allow_useless"]
    _require(request, {"users", "dim", "epsilon", "delta"} - {parsed.solve})
    return solve(
        parsed.solve,
        target_error=parsed.target_error,
        max_messages=parsed.max_messages,
        measure=parsed.error_measure,
        progress=progress,
        **request,
    )


def _require(request: dict[str, Any], names: set[str]) -> None:
    missing = sorted(names - request.keys())
    if missing:
        raise InvalidInputError(f"--{missing[0]} is missing; give it, or let --solve find it where it can.")


def _show(plan: Plan, parsed: argparse.Namespace, console: Console) -> None:
    if parsed.json:
        sys.stdout.write(plan.dumps())
        return
    if parsed.explain:
        sys.stdout.write(plan.explain())
    else:
        console.print(plan_table(plan))
        console.print(ladder_table(plan))
        for reason in plan.reasons:
            console.print(reason, style="dim", highlight=False)
    for path in (parsed.output, parsed.plot):
        if path is not None:
            console.print(f"written: {path}", highlight=False)
