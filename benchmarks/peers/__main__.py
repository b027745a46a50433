"""Measure, print, and write what was found after each part."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import benchmarks.peers
from benchmarks.peers import amplification, auditing, composition
from benchmarks.record import about, write
from privkde.storage.files import require_writable

Row = dict[str, Any]

PEERS = ("dp-accounting", "prv-accountant", "autodp", "opendp", "privacy-estimates", "jax-privacy")
PACKAGES = ("privkde", "numpy", "scipy", *PEERS)
"""What numbers may depend on."""


def measures(tiny: bool) -> list[Callable[[], Row]]:
    """What is measured, in order."""
    if tiny:
        return [
            partial(amplification.epsilons, amplification.SETTINGS[:2]),
            partial(amplification.noise, amplification.TARGETS[:1]),
            partial(amplification.growth, amplification.GROWTH[:2]),
            partial(composition.sums, composition.SUM_CASES[:1], 1),
            partial(composition.gaussians, composition.GAUSSIAN_CASES[:1], 1),
            partial(auditing.audits, auditing.TINY),
        ]
    return [
        amplification.epsilons,
        amplification.noise,
        amplification.growth,
        composition.sums,
        composition.gaussians,
        partial(auditing.audits, auditing.FULL),
    ]


def show(console: Console, found: Row) -> None:
    """Print what a measure found."""
    for title, content in found.items():
        columns = list(dict.fromkeys(name for row in content["rows"] for name in row))
        shown = Table(*columns, title=title)
        for row in content["rows"]:
            shown.add_row(*(_short(row.get(name)) for name in columns))
        console.print(shown)


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "—" if value is None else str(value)


def main() -> None:
    """Run from the root of the repository, in the environment that `make bench-peers` makes."""
    parser = argparse.ArgumentParser(
        description=benchmarks.peers.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    parser.add_argument("--tiny", action="store_true")
    parsed = parser.parse_args()
    if parsed.output is not None:
        require_writable(parsed.output)
    console, start, found = Console(width=180), time.monotonic(), Row()
    for measure in measures(parsed.tiny):
        part = measure()
        show(console, part)
        found |= part
        if parsed.output is not None:
            source = about("python -m benchmarks.peers", sys.argv[1:], time.monotonic() - start, PACKAGES)
            write(parsed.output, {"about": source, **found})


if __name__ == "__main__":
    main()
