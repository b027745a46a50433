"""`python -m verification.saboteurs`: print the matrix saboteur × check and write `saboteurs.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console

from verification.sabotage import Matrix, Saboteur, run_matrix, saboteurs
from verification.verdicts import QUICK

__all__ = ["Matrix", "Saboteur", "run_matrix", "saboteurs"]


def main(output: str = "saboteurs.json") -> int:
    """0 if the matrix is complete, 1 if not."""
    console = Console()
    matrix = run_matrix(QUICK, lambda done, total, name: console.print(f"{done}/{total} {name}", style="dim"))
    console.print(matrix.table())
    Path(output).write_text(json.dumps(matrix.to_json(), indent=2, ensure_ascii=False) + "\n")
    return 0 if matrix.complete else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
