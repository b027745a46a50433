"""What a year of weekly collections costs: the same 52 joint plans by each way to compose them.

Run with `make bench`, or `python -m benchmarks.weeks`. Nothing is timed; the numbers are ε at the budget's δ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from accounting import plan_budget
from accounting.releases.adaptive import AdaptiveFilter
from accounting.releases.composing import spent
from accounting.releases.release import Release

WEEKS, DELTA = 52, 1e-8
REQUEST: dict[str, Any] = {
    "users": 2_000_000,
    "dim": 64,
    "kernel": "inner-product",
    "classes": 12,
    "labels": "joint",
    "epsilon": 0.4,
    "delta": 1e-10,
}


def costs(request: Mapping[str, Any], weeks: int, delta: float) -> dict[str, float]:
    """ε of all weeks together; the adaptive budget is 5 % larger than what a fixed list costs."""
    week = Release.of_plan("week", plan_budget(**request))
    fixed = spent([week] * weeks, delta)
    budget = AdaptiveFilter.for_budget(1.05 * fixed.epsilon, delta)
    return {
        "basic: ε and δ add up": fixed.basic,
        "advanced": fixed.advanced,
        "pld: profiles, fixed beforehand": fixed.pld,
        "renyi: cut curves, fixed beforehand": fixed.renyi,
        "adaptive: each week after seeing the last (default)": budget.spent([week] * weeks),
    }


def main() -> None:
    """Compute and print."""
    table = Table(
        "composition",
        "ε",
        "ratio",
        title=f"{WEEKS} weekly joint plans at δ = {DELTA:g}; adaptive: in a budget 5 % above the least",
    )
    totals = costs(REQUEST, WEEKS, DELTA)
    least = min(totals.values())
    for name, epsilon in totals.items():
        table.add_row(name, f"{epsilon:.3f}", f"{epsilon / least:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
