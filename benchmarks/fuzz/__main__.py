"""Send hostile documents to every reader: `python -m benchmarks.fuzz --inputs 1000000`.

Prints how many inputs of each kind were accepted and refused. Exit code: 0 if all ended in one of the two, else 1.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.fuzz.targets import Tally, Target, attack, targets
from privkde.cli.parsing import Parser, whole
from privkde.display.progress import tracked

SHOWN_FINDINGS = 5


def shares(listed: Sequence[Target], inputs: int) -> list[int]:
    """How many of all inputs each target gets, by its weight: at least one each."""
    total = sum(target.weight for target in listed)
    return [max(1, round(inputs * target.weight / total)) for target in listed]


def table_of(tallies: dict[str, Tally]) -> Table:
    """One row for each kind of document."""
    whole_run = Tally(
        inputs=sum(tally.inputs for tally in tallies.values()),
        accepted=sum(tally.accepted for tally in tallies.values()),
        findings=[finding for tally in tallies.values() for finding in tally.findings],
    )
    table = Table("document", title="Hostile documents", title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("inputs", "accepted", "refused", "findings"):
        table.add_column(name, justify="right")
    for name, tally in {**tallies, "all": whole_run}.items():
        table.add_row(name, *(f"{n:,}" for n in (tally.inputs, tally.accepted, tally.refused, len(tally.findings))))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all targets, or those that are named."""
    parser = Parser(prog="python -m benchmarks.fuzz", description=__doc__, allow_abbrev=False)
    parser.add_argument("--inputs", type=whole, default=100_000, metavar="N", help="of all kinds (default: 100000)")
    parser.add_argument("--first", type=whole, default=0, metavar="N", help="number of the first input (default: 0)")
    parser.add_argument("--only", metavar="DOCUMENT", help="this kind of document only")
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, tracked(sys.stderr.isatty()) as tracker:
        listed = targets(Path(folder))
        if parsed.only is not None:
            listed = [target for target in listed if target.name == parsed.only]
            if not listed:
                parser.error(f"there is no kind {parsed.only!r}")
        tallies = {
            target.name: attack(
                target, range(parsed.first, parsed.first + count), tracker.bar(f"{target.name:<22}", count)
            )
            for target, count in zip(listed, shares(listed, parsed.inputs), strict=True)
        }
    console = Console()
    console.print(table_of(tallies))
    for name, tally in tallies.items():
        for finding in tally.findings[:SHOWN_FINDINGS]:
            console.print(f"[red]{name}[/red] {escape(finding)}", highlight=False)
    return 1 if any(tally.findings for tally in tallies.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
