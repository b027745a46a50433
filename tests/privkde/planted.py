"""What an attacker who can write in the folder of a database puts there as its journal."""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

PAGE = 4096
LOCKED_BYTE = 0x40000000
SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")


def pipe(journal: Path, _victim: Path) -> None:
    """SQLite waits until somebody writes into it; here a test that fails does not."""
    os.mkfifo(journal)


def folder(journal: Path, _victim: Path) -> None:
    """Nothing that SQLite can write."""
    journal.mkdir()


def link(journal: Path, victim: Path) -> None:
    """Elsewhere."""
    journal.symlink_to(victim)


def order_to_delete(journal: Path, victim: Path) -> None:
    """A journal that SQLite plays back, and then deletes the file that is named at its end."""
    database = journal.with_name(journal.name.removesuffix("-journal"))
    name = str(victim).encode()
    end = struct.pack(">I", LOCKED_BYTE // PAGE + 1) + name + struct.pack(">II", len(name), sum(name)) + SUPER_JOURNAL
    journal.write_bytes(journal_of(database) + end)


def journal_of(database: Path) -> bytes:
    """The journal of somebody who writes to a copy of the database, before the end."""
    copy = database.with_name("copy")
    shutil.copy(database, copy)
    with closing(sqlite3.connect(copy, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("CREATE TABLE large AS SELECT hex(zeroblob(100000)) AS cell")
        journal = Path(f"{copy}-journal").read_bytes()
        writer.execute("ROLLBACK")
    copy.unlink()
    return journal


PLANTS: dict[str, Callable[[Path, Path], None]] = {
    "pipe": pipe,
    "folder": folder,
    "link": link,
    "order to delete": order_to_delete,
}


@contextmanager
def planted(database: Path, kind: str) -> Iterator[None]:
    """A planted journal; the file that it is aimed at must be there at the end, as it was."""
    victim, journal = database.with_name("victim"), Path(f"{database}-journal")
    victim.write_bytes(b"another file\0")
    PLANTS[kind](journal, victim)
    ends = os.open(journal, os.O_RDWR) if kind == "pipe" else None  # opening it then waits for nobody
    try:
        yield
    finally:
        if ends is not None:
            os.close(ends)
    assert victim.read_bytes() == b"another file\0"
    assert os.path.lexists(journal)
