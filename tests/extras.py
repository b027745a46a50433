"""Tests marked `extras`: left out by `make test`, and whatever they lack is a failure where they were asked for."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path

import pytest

PACKAGES = (
    "apache_beam",
    "distributed",
    "fastavro",
    "playwright",
    "psycopg",
    "pyarrow",
    "sentence_transformers",
    "torch",
)
"""What `make test` does not install."""

IMPORTED = re.compile(rf"^(?:import|from) (?:{'|'.join(PACKAGES)})\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that import one of these packages at their top are not opened unless extras are wanted."""
    if collection_path.suffix != ".py" or "not extras" not in config.getoption("markexpr"):
        return None
    return True if IMPORTED.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test of an extra that is skipped has failed: somebody wanted to know."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and item.get_closest_marker("extras"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"{reason} (tests marked `extras` must not be skipped)"
    return report
