"""`make reproduce`: the paper's experiments on labeled vectors in files."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from accounting import InvalidInputError, PrivkdeError
from benchmarks.record import about
from privkde.cli.parsing import Parser, fail, real, whole
from privkde.display.progress import tracked

CHOICES = ("paper", "tight", "both")


def _parser() -> Parser:
    parser = Parser(
        prog="python -m benchmarks.paper",
        description="The paper's experiments on labeled vectors: accuracy, communication, error of a density and class"
        " decoding, in the paper's layout. An interrupted run goes on where it stopped if it is started again."
        " Seeded: NOT PRIVATE.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--data", type=Path, nargs="+", required=True, metavar="FILE", help=".npz: X_train, y_train, X_test, y_test"
    )
    parser.add_argument("--preset", choices=CHOICES, default="both", help="published calibration, ours, or both")
    parser.add_argument("--vocabulary", type=Path, metavar="FILE", help=".npz with X and words, to decode classes")
    parser.add_argument("-o", "--output", type=Path, default=Path("reproduction"), metavar="FOLDER",
                        help="folder for report, tables and figures (default: reproduction)")  # fmt: skip
    parser.add_argument("--epsilons", type=real, nargs="+", metavar="X", help="ε of the features")
    parser.add_argument("--label-epsilons", type=_label_epsilon, nargs="+", metavar="X",
                        help="ε of the labels; inf: labels as they are")  # fmt: skip
    parser.add_argument("--delta", type=real, metavar="X", help="δ of the features (default: 1e-6)")
    parser.add_argument("--seeds", type=whole, metavar="N", help="runs of each cell (default: 10)")
    parser.add_argument("--queries", type=whole, metavar="N", help="queries of the density (default: 1000)")
    parser.add_argument("--repetitions", type=whole, metavar="N", help="I of the Gaussian (default: the dimension)")
    return parser


def _label_epsilon(text: str) -> float | None:
    """An ε, or None for labels as they are."""
    value = real(text)
    return None if value == float("inf") else value


def _reproduce(parsed: argparse.Namespace, arguments: Sequence[str]) -> None:
    from benchmarks.paper.data import LabeledData, Vocabulary
    from benchmarks.paper.running import Study, run
    from benchmarks.paper.writing import write
    from privkde.display.figures import require_matplotlib

    require_matplotlib()
    settings = _settings(parsed)
    folder: Path = parsed.output
    if not folder.parent.is_dir() or (folder.exists() and not folder.is_dir()):
        raise InvalidInputError(f"{str(folder)!r} cannot be a folder; choose another --output.")
    data = tuple(LabeledData.read(path) for path in parsed.data)
    if len({labeled.name for labeled in data}) < len(data):
        raise InvalidInputError("two data files have the same name; results are told apart by it, so rename one.")
    vocabulary = None if parsed.vocabulary is None else Vocabulary.read(parsed.vocabulary)
    start = time.monotonic()
    with tracked(sys.stderr.isatty()) as tracker:
        study = Study(data=data, vocabulary=vocabulary, settings=settings, folder=folder / "cells")
        results = run(study, tracker)
    source = about("python -m benchmarks.paper", arguments, time.monotonic() - start)
    source["seconds_of_this_invocation"] = source.pop("seconds")  # an earlier one may have done most of the work
    results = dataclasses.replace(results, about=source)
    written = write(results, folder)
    message = f"{len(written)} files in {folder}; begin with {folder / 'report.md'}"
    Console().print(message, highlight=False, markup=False, soft_wrap=True)


def _settings(parsed: argparse.Namespace) -> Any:
    """Settings of the study, with defaults for what was left out."""
    from benchmarks.paper.settings import PRESETS, Settings

    given = {name: getattr(parsed, name) for name in ("delta", "seeds", "queries", "repetitions")}
    for name in ("epsilons", "label_epsilons"):
        values = getattr(parsed, name)
        given[name] = None if values is None else tuple(values)
    presets = tuple(PRESETS) if parsed.preset == "both" else (parsed.preset,)
    return Settings(presets=presets, **{name: value for name, value in given.items() if value is not None})


def main(arguments: Sequence[str]) -> None:
    """Run the experiments that the command line names."""
    try:
        _reproduce(_parser().parse_args(arguments), arguments)
    except PrivkdeError as error:
        fail(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
