"""`make demo`: the whole story on handwritten digits."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.demo.data import DemoSettings
from benchmarks.demo.run import run_demo
from privkde.cli import exit_code
from privkde.cli.parsing import Parser, whole

DEFAULT_OUTPUT = Path("demo-output")


def _parser() -> Parser:
    parser = Parser(
        prog="python -m benchmarks.demo",
        description="20,000 simulated users, from the promise to a page.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=DEFAULT_OUTPUT,
        metavar="DIR",
        help=f"folder to write (default: {DEFAULT_OUTPUT})",
    )
    parser.add_argument("--insecure-seed", type=whole, metavar="N", help="the same every time, and NOT PRIVATE")
    parser.set_defaults(run=_demo)
    return parser


def _demo(parsed: argparse.Namespace) -> None:
    run_demo(DemoSettings(insecure_seed=parsed.insecure_seed), parsed.output)


def main(arguments: Sequence[str]) -> int:
    """Run the demonstration and return its exit code."""
    return exit_code(_parser().parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
