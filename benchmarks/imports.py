"""How fast the door opens: CPU time of a start, as a ratio to that of importing NumPy and SciPy's special functions.

Run with `make bench`. Starts take turns, so that a busy machine slows all of them; the smallest of each counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import track
from rich.table import Table

ROUNDS = 7
CLI = "from privkde.cli import main; main([{!r}])"
BASE = "import numpy, scipy.special"
STARTS = {
    BASE: BASE,
    "import accounting": "import accounting",
    "privkde --version": CLI.format("--version"),
    "privkde --help": CLI.format("--help"),
    "an empty program": "",
}


def cpu_seconds(program: str) -> float:
    """User and system time of a fresh interpreter that runs this program, and of nothing else."""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{program!r} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def measured(programs: Mapping[str, str], rounds: int) -> dict[str, float]:
    """The least CPU time of each program."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in track(range(rounds), "starting", console=Console(stderr=True), transient=True):
        for name, program in programs.items():
            times[name].append(cpu_seconds(program))
    return {name: min(seconds) for name, seconds in times.items()}


def rows(times: Mapping[str, float]) -> list[Sequence[str]]:
    """One row for each start: seconds, and the ratio to the base."""
    return [(name, f"{seconds:.2f}", f"{seconds / times[BASE]:.2f}") for name, seconds in times.items()]


def main() -> None:
    """Measure and print."""
    table = Table("start", "CPU seconds", "ratio", title="Starts")
    for row in rows(measured(STARTS, ROUNDS)):
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
