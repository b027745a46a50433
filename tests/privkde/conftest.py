"""Where ledgers are kept, for every test that takes `where`: a file, and a server among the extras."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.privkde.postgres import Server, private_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """One server for all tests of a session."""
    with private_server() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.extras)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place without a ledger."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.sqlite")
    server: Server = request.getfixturevalue("postgres")
    return server.database()
