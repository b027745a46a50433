"""The paper under test: six small programs, each about one place in the paper that needs care.

`python -m benchmarks.paper_under_test` prints what they find; docs/paper-under-test.md runs them while the guide is
built. Each program computes exactly where it can, and otherwise draws with a fixed seed.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from types import ModuleType

from benchmarks.paper_under_test import (
    central_baseline,
    class_counts,
    debiasing,
    flood_share,
    repeated_rows,
    touched_instances,
)

WIDTH = 84


def _program(module: ModuleType) -> Callable[[], list[str]]:
    def output() -> list[str]:
        return [part for line in module.lines() for part in textwrap.wrap(line, WIDTH, subsequent_indent="    ")]

    return output


PROGRAMS: dict[str, Callable[[], list[str]]] = {
    module.__name__.rpartition(".")[2]: _program(module)
    for module in (debiasing, touched_instances, flood_share, class_counts, central_baseline, repeated_rows)
}
"""Every program by the name of its module: its lines, wrapped to the width of a page."""

__all__ = ["PROGRAMS"]
