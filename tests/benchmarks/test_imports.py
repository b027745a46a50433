"""The benchmark of starts measures what it says."""

import pytest

from benchmarks.imports import BASE, cpu_seconds, rows


def test_work_counts_and_waiting_does_not() -> None:
    idle = cpu_seconds("import time; time.sleep(0.3)")
    assert idle < cpu_seconds("sum(i * i for i in range(10_000_000))")


def test_a_program_that_fails_is_not_measured() -> None:
    with pytest.raises(RuntimeError, match="ended with 3"):
        cpu_seconds("raise SystemExit(3)")


def test_ratios_are_to_the_base() -> None:
    assert rows({BASE: 0.5, "x": 0.75}) == [(BASE, "0.50", "1.00"), ("x", "0.75", "1.50")]
