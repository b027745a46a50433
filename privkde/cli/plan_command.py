"""`privkde plan`: set the noise for a promise, and explain it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from accounting import InvalidInputError, Plan, PlanRequest, solve
from accounting.choosing import Progress
from accounting.comparing import Outcome, compare_kernels, compare_labels, compare_models, compare_rungs
from accounting.errors import printable, require_choice
from accounting.fields import Field, fields_of
from accounting.planning import plan_with_advice
from accounting.request import read_request
from accounting.solving import QUESTIONS, SolveRequest
from privkde.cli.parsing import real, share, whole
from privkde.display.figures import plot_comparison, plot_profile, require_drawable
from privkde.display.progress import working
from privkde.display.tables import (
    compare_table,
    kernels_table,
    labels_table,
    ladder_table,
    models_table,
    plan_table,
)
from privkde.storage.datasets import StoredRows, holds, read_array, read_vectors
from privkde.storage.files import require_apart, require_writable, whole_file, write_text

RUNGS, KERNELS = COMPARISONS = ("rungs", "kernels")
"""What `--compare` shows."""
SAMPLE_QUERIES = 500
EXIT_REFUTED = 1
"""The checker contradicts the planner."""

_READERS: dict[type, tuple[Callable[[str], Any], str]] = {int: (whole, "N"), float: (real, "X"), str: (str, "NAME")}
"""How a flag is read and what its value is called, by the type of its field."""
_SOLVE_FLAGS = {
    "--solve": "unknown",
    "--target-error": "target_error",
    "--error-measure": "measure",
}


def add_plan(plan: argparse.ArgumentParser) -> None:
    """Add the options of `plan`."""
    for name, field in fields_of(PlanRequest).items():
        add_field(plan, f"--{name.replace('_', '-')}", field)
    for flag, name in _SOLVE_FLAGS.items():
        add_field(plan, flag, fields_of(SolveRequest)[name], prefix="" if flag == "--solve" else "with --solve: ")
    plan.add_argument(
        "--sample",
        type=Path,
        metavar="FILE",
        help=".npz with public vectors X like the users': predict the error for such data; with --compare kernels:"
        " what each kernel finds in it; with --compare and --classes, and labels y: the accuracy of each model",
    )
    plan.add_argument(
        "--compare",
        nargs="?",
        const=RUNGS,
        metavar="WHAT",
        help="calibrate the request in several ways, side by side: by every rung (rungs, if nothing is named; with"
        " --classes, also labels and models), or with every kernel (kernels)",
    )
    plan.add_argument("--explain", action="store_true", help="print the plan in words and formulas")
    plan.add_argument("--json", action="store_true", help="print the plan as JSON (schema privkde.plan/1)")
    plan.add_argument("--output", type=Path, metavar="FILE", help="write the plan's JSON to a file")
    plan.add_argument(
        "--certify",
        type=Path,
        metavar="FILE",
        help="also prove the plan in ball arithmetic, and write the certificate (schema privkde.certificate/1); with"
        " --output or --json",
    )
    plan.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw δ(ε) of every rung, or what is compared (svg, png or pdf)"
    )
    plan.set_defaults(run=_plan)


def add_field(parser: argparse.ArgumentParser, flag: str, field: Field, prefix: str = "") -> None:
    """Add the flag of a declared field; the library checks its value, so that its error is the same everywhere."""
    choices = f"; one of {', '.join(field.rule.choices)}" if field.rule.choices else ""
    default = f" (default: {field.default_in_words})" if field.default_in_words else ""
    if field.kind is bool:
        parser.add_argument(flag, dest=field.name, action="store_true", help=field.rule.description)
        return
    reader, metavar = (share, "SHARE") if field.rule.share else _READERS[field.kind]
    text = f"{prefix}{field.rule.description}{choices}{default}"
    parser.add_argument(flag, dest=field.name, type=reader, metavar=metavar, help=text)


def _plan(parsed: argparse.Namespace) -> int:
    """Returns the exit code: 1 if the plan is contradicted by its own certificate."""
    require_apart([parsed.output, parsed.plot, parsed.certify], [parsed.sample])
    for path in (parsed.output, parsed.plot, parsed.certify):
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
            console.print(*_compared(parsed, progress), sep="\n")
            return 0
        plan = _solved_or_planned(parsed, progress)
        expected = None if parsed.sample is None else _expected(plan, parsed.sample, progress)
        if parsed.plot is not None:
            progress("drawing the privacy profile")
            with whole_file(parsed.plot) as temporary:
                plot_profile(plan, temporary)
    if parsed.output is not None:
        write_text(parsed.output, plan.dumps())
    _show(plan, parsed, console)
    if expected is not None and not parsed.json:
        console.print(expected, highlight=False)
    return 0 if parsed.certify is None else _certify(plan, parsed.certify, notes if parsed.json else console)


def _certify(plan: Plan, path: Path, console: Console) -> int:
    """Prove the plan, write its certificate, and say what came out."""
    with working("proving the plan in ball arithmetic"):
        proof = plan.certified()
    write_text(path, proof.dumps())
    console.print(proof.headline, style=None if proof.proves else "bold red", highlight=False, markup=False)
    console.print(f"written: {printable(str(path))}", highlight=False, markup=False, soft_wrap=True)
    return EXIT_REFUTED if proof.refutes else 0


def _expected(plan: Plan, sample: Path, progress: Progress) -> str:
    """The error on data like a public sample, at up to `SAMPLE_QUERIES` of its own vectors."""
    from privkde.learning.prediction import expected_error

    if plan.request.joint and plan.request.record is not None:
        further = "; --compare predicts the accuracy of each model, if the sample has labels y"
    else:
        further = ""
    vectors = _sampled(sample, plan.request.dim)
    progress("predicting the error on data like the sample")
    queries = vectors[np.arange(min(SAMPLE_QUERIES, vectors.shape[0]))]
    error = expected_error(plan, vectors, queries)
    return (
        f"expected error on data like {sample.name}: {error.total:.4g} = sqrt(bias {error.bias:.3g}² + features"
        f" {error.feature:.3g}² + rounding {error.rounding:.3g}² + privacy {error.privacy:.3g}²){further}"
    )


def _sampled(sample: Path, dim: int) -> StoredRows | NDArray[np.floating]:
    vectors = read_vectors(sample, _name_in(sample, "X"))
    if vectors.shape[1] != dim:
        raise InvalidInputError(f"{str(sample)!r} has {vectors.shape[1]} columns; the plan is for {dim}.")
    return vectors


def _name_in(sample: Path, name: str) -> str:
    """The array to read for `name`: where it is absent, that of a training set."""
    training = f"{name}_train"
    return training if not holds(sample, name) and holds(sample, training) else name


def _compared(parsed: argparse.Namespace, progress: Progress) -> list[Table | str]:
    """All kernels; or the ladder and, with classes, ways to protect labels and models; `--plot` draws the ladder.

    The last is a caution where a sample is too small to compare models by.
    """
    request = read_request(_values(parsed, PlanRequest))
    if parsed.compare == KERNELS:
        return [_kernels(request, parsed, progress)]
    if parsed.sample is not None and not (request.joint and request.record):
        raise InvalidInputError(
            "--sample with --compare predicts the accuracy of models, and here are none to choose from; add --classes"
            " for joint labels of the inner product, or leave out --compare."
        )
    rungs, labels = compare_rungs(request, progress), compare_labels(request, progress)
    if parsed.plot is not None:
        progress("drawing the ladder")
        with whole_file(parsed.plot) as temporary:
            plot_comparison(rungs, temporary)
    models = compare_models(request, progress)
    shown: list[Table | str] = [compare_table(rungs), *([labels_table(labels)] if labels else [])]
    if models:
        accuracies, caution = _accuracies(models, parsed, progress)
        shown += [models_table(models, accuracies), *([caution] if caution else [])]
    return shown


def _kernels(request: PlanRequest, parsed: argparse.Namespace, progress: Progress) -> Table:
    """Every kernel and, with a public sample, what users can judge it by."""
    outcomes = compare_kernels(request, progress)
    merits = {}
    if parsed.sample is not None:
        from privkde.learning.kernel_merits import kernel_merits

        vectors = _sampled(parsed.sample, request.dim)
        for outcome in outcomes:
            if outcome.protocol is not None:
                progress(f"looking for outliers with kernel {outcome.name}")
                merits[outcome.name] = kernel_merits(outcome.request, outcome.protocol, vectors)
    return kernels_table(outcomes, merits)


def _accuracies(
    models: Sequence[Outcome], parsed: argparse.Namespace, progress: Progress
) -> tuple[dict[str, float], str | None]:
    """Expected accuracy of each model on data like a public sample with labels `y`, if one is given, and a caution."""
    if parsed.sample is None:
        return {}, None
    from privkde.learning.prediction import expected_accuracy, small_sample

    vectors, labels = (
        _sampled(parsed.sample, models[0].request.dim),
        read_array(parsed.sample, _name_in(parsed.sample, "y")),
    )
    found = {}
    for outcome in models:
        if outcome.protocol is not None:
            progress(f"predicting the accuracy of model {outcome.name}")
            found[outcome.name] = expected_accuracy(outcome.request, outcome.protocol, vectors, labels)
    return found, small_sample(vectors.shape[0], models[0].request.dim)


def _refuse_ignored(parsed: argparse.Namespace) -> None:
    """`--compare` prints tables only: refuse options that it would ignore, and certificates without a plan."""
    others = {"json": "json", "explain": "explain", "output": "output", "certify": "certify", "unknown": "solve"}
    ignored = [flag for name, flag in others.items() if getattr(parsed, name)]
    if parsed.compare:
        require_choice("--compare", parsed.compare, COMPARISONS)
    if parsed.compare == KERNELS and parsed.plot is not None:
        raise InvalidInputError("--plot has no effect with --compare kernels; leave it out.")
    if parsed.compare and ignored:
        raise InvalidInputError(f"--{ignored[0]} has no effect with --compare; run them one after the other.")
    if parsed.certify is not None and parsed.output is None and not parsed.json:
        raise InvalidInputError("--certify proves a plan that nobody would have; add --output FILE.")


def _solved_or_planned(parsed: argparse.Namespace, progress: Progress) -> Plan:
    if parsed.unknown is not None:
        require_choice("--solve", parsed.unknown, QUESTIONS)
        return solve(**_values(parsed, SolveRequest), progress=progress)
    if parsed.target_error is not None:
        raise InvalidInputError(f"--target-error belongs to --solve; add --solve {'|'.join(QUESTIONS)}.")
    return plan_with_advice(read_request(_values(parsed, PlanRequest)), progress=progress)


def _values(parsed: argparse.Namespace, record: type) -> dict[str, Any]:
    """The values of a record's fields that were given; an error if one is missing that cannot be left out."""
    fields = fields_of(record)
    values = {name: getattr(parsed, name) for name in fields if getattr(parsed, name) is not None}
    needed = {name for name, field in fields_of(PlanRequest).items() if field.required} - {parsed.unknown}
    missing = sorted(needed - values.keys())
    if missing:
        raise InvalidInputError(f"--{missing[0]} is missing; give it, or let --solve find it where it can.")
    return values


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
            console.print(f"written: {printable(str(path))}", highlight=False, markup=False, soft_wrap=True)
