"""`privkde serve`: what it refuses before it serves; `test_page.py` and `test_packaging.py` run it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from privkde.cli import main
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


def test_a_token_that_can_be_guessed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(serving.TOKEN, "hunter2")
    told = refuse(capsys, "serve", "--port", "0")
    assert "at least 24" in told
    assert "hunter2" not in told


def test_a_proxy_is_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert "proxy.example" in refuse(capsys, "serve", "--port", "0", "--proxy", "proxy.example")


@pytest.mark.parametrize(("options", "address"), [([], "127.0.0.1"), (["--proxy", "127.0.0.1"], "203.0.113.9")])
def test_only_a_proxy_that_is_named_says_for_whom_it_asks(
    monkeypatch: pytest.MonkeyPatch, options: list[str], address: str
) -> None:
    """The application sees the address of the connection, unless a proxy that is trusted names another."""
    configured: list[uvicorn.Config] = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server, **_: configured.append(server.config))
    seen: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"][0])

    monkeypatch.setattr("privkde.service.create_app", lambda _: application)
    assert main(["serve", "--port", "0", *options]) == 0
    (config,) = configured
    config.load()
    scope = {"type": "http", "client": ("127.0.0.1", 1), "headers": [(b"x-forwarded-for", b"203.0.113.9")]}
    asyncio.run(config.loaded_app(scope, None, None))
    assert seen == [address]
