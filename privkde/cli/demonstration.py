"""`privkde demo`: the whole story on handwritten digits."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from privkde.cli.parsing import whole

DEFAULT_OUTPUT = Path("demo-output")


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `demo`."""
    demo = commands.add_parser(
        "demo", help="20,000 simulated users, from the promise to a page with the results", allow_abbrev=False
    )
    demo.add_argument(
        "--output",
        type=Path,
        default=DEFAULT_OUTPUT,
        metavar="DIR",
        help=f"folder to write (default: {DEFAULT_OUTPUT})",
    )
    demo.add_argument("--insecure-seed", type=whole, metavar="N", help="the same every time, and NOT PRIVATE")
    demo.set_defaults(run=_demo)


def _demo(parsed: argparse.Namespace) -> None:
    from privkde.demo import DemoSettings, run_demo

    run_demo(DemoSettings(insecure_seed=parsed.insecure_seed), parsed.output)
