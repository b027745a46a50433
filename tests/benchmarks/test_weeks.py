"""A year of weekly collections by each way to compose them, on a small plan."""

from __future__ import annotations

from benchmarks.weeks import REQUEST, costs


def test_the_default_costs_little_more_than_a_fixed_list() -> None:
    totals = costs({**REQUEST, "users": 20_000, "dim": 8, "classes": 2}, 20, 1e-8)
    assert len(totals) == 5
    adaptive = totals["adaptive: each week after seeing the last (default)"]
    fixed = min(epsilon for epsilon in totals.values() if epsilon != adaptive)
    assert fixed < adaptive <= 1.15 * fixed
    assert fixed < totals["basic: ε and δ add up"]
