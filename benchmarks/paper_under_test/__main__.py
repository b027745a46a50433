"""Print what every program, or the ones named on the command line, finds."""

from __future__ import annotations

import sys

from benchmarks.paper_under_test import PROGRAMS


def main(names: list[str]) -> None:
    """Run the programs of these names; all of them if none is given."""
    for name in names or list(PROGRAMS):
        print(f"== {name}")
        print("\n".join(PROGRAMS[name]()))


if __name__ == "__main__":
    main(sys.argv[1:])
