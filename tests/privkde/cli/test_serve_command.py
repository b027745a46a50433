"""`privkde serve`: what it refuses before it serves; `test_page.py` and `test_packaging.py` run it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from privkde.cli import serve_command as serving
from tests.privkde.cli.test_command_line import refuse


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(serving.TOKEN, raising=False)


@pytest.mark.parametrize("host", [["--host", "0.0.0.0"], ["--allow-host", "*"], ["--allow-host", "plans.example"]])
def test_a_ledger_that_others_reach_needs_a_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], host: list[str]
) -> None:
    assert serving.TOKEN in refuse(capsys, "serve", "--ledger", str(tmp_path / "l.sqlite"), *host)
    assert not (tmp_path / "l.sqlite").exists()


def test_a_ledger_that_cannot_be_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "missing" in refuse(capsys, "serve", "--ledger", str(tmp_path / "missing" / "l.sqlite"))


def test_ports(capsys: pytest.CaptureFixture[str]) -> None:
    assert "port=99999" in refuse(capsys, "serve", "--port", "99999")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"cannot listen on 127.0.0.1 port {port}" in refuse(capsys, "serve", "--port", port)


def test_the_address_is_the_real_one() -> None:
    with serving._listening("127.0.0.1", 0) as listener:
        assert serving._address(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}/"
    with serving._listening("::1", 0) as listener:
        assert serving._address(listener) == f"http://[::1]:{listener.getsockname()[1]}/"
