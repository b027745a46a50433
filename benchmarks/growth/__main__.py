"""How time and memory grow with users, dimension, repetitions and classes: plan, randomize, analyze, query, audit.

python -m benchmarks.growth                      fitted beside expected exponents; about 8 minutes if nothing else runs
python -m benchmarks.growth --output FILE.json   also every number, unrounded, with what it came from
python -m benchmarks.growth --tiny               one small curve for each operation: does it work at all?

docs/results/growth.json is such a file, and docs/results/growth.md is made from it.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.growth.curves import CURVES, ENDS, REPETITIONS, Curve, doubling
from benchmarks.growth.measuring import measure
from benchmarks.record import about, write
from privkde.storage.files import require_writable


def tiny() -> tuple[Curve, ...]:
    """Against repetitions only, few of them."""
    chosen = (curve for curve in CURVES if curve.against == REPETITIONS)
    return tuple(dataclasses.replace(curve, values=doubling(4, 4)) for curve in chosen)


def show(console: Console, found: dict[str, Any]) -> None:
    """Fitted beside expected exponents."""
    table = Table("operation", "against", "range", "time", "expected", "memory", "expected", title="Growth")
    for row in found["curves"]:
        values = [point["value"] for point in row["points"]]
        cells = [row["operation"], row["against"], f"{values[0]:,} … {values[-1]:,}"]
        for part in (row["time"], row["memory"]):
            cells += [f"{part['exponent']:.2f} [{part['low']:.2f}, {part['high']:.2f}]", f"{part['expected']:g}"]
        table.add_row(*cells)
    console.print(table)


def main() -> None:
    """Measure, print, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    parser.add_argument("--tiny", action="store_true")
    parsed = parser.parse_args()
    if parsed.output is not None:
        require_writable(parsed.output)
    start = time.monotonic()
    found = measure(tiny(), {}) if parsed.tiny else measure(CURVES, ENDS)
    show(Console(), found)
    if parsed.output is not None:
        source = about("python -m benchmarks.growth", sys.argv[1:], time.monotonic() - start)
        write(parsed.output, {"about": source, **found})


if __name__ == "__main__":
    main()
