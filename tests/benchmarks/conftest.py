"""Tests in this folder are about the programs beside the library: only `make test-extras` runs them."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them; pytest hands over the tests of other folders, too."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.programs)
