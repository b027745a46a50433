"""A private PostgreSQL server for the tests: own folder, a socket in it and no port, an unprivileged user."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

OWNERS = ("postgres", "nobody")
"""PostgreSQL refuses to run as root; the first of these that exists runs it then."""


class Server:
    """A running server that makes databases."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._binaries, self._folder, self._numbers = binaries, folder, count()

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"ledger{next(self._numbers)}"
        run(self._binaries / "createdb", "-h", self._folder, "-U", "tester", name)
        return f"postgresql://tester@/{name}?host={self._folder}"


def run(*command: str | Path, owner: str | None = None) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(command, user=owner, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"


def installed() -> Path:
    """The folder of the server's programs; skips the test if there is none."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = str(debian[-1]) if debian else shutil.which("initdb")
    if found is None:
        pytest.skip("PostgreSQL is not installed; `make system` does that, or `apt-get install postgresql`")
    return Path(found).parent


def unprivileged() -> str | None:
    """Who runs the server: nobody else than we, unless we are root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in OWNERS if name in known)


@contextmanager
def private_server() -> Iterator[Server]:
    """A server that is gone, with all its data, when the block ends."""
    binaries, owner = installed(), unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="privkde-pg-"))
    try:
        if owner is not None:
            shutil.chown(folder, owner)
        data = folder / "data"
        run(binaries / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync", owner=owner)
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c shared_buffers=16MB"
        control = (binaries / "pg_ctl", "-D", data, "-w", "-t", "60")
        run(*control, "-l", folder / "log", "-o", options, "start", owner=owner)
        try:
            yield Server(binaries, folder)
        finally:
            run(*control, "-m", "immediate", "stop", owner=owner)
    finally:
        shutil.rmtree(folder)
