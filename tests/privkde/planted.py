"""What an attacker who can write in the folder of a database puts there as its journal or log."""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

PAGE = 4096
LOCKED_BYTE = 0x40000000
SECTOR = 512
MAGIC = SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
STRANGER = 61001
"""A user, and a group, that own nothing."""


def pipe(journal: Path, _victim: Path) -> None:
    """SQLite waits until somebody writes into it; here a test that fails does not."""
    os.mkfifo(journal)


def folder(journal: Path, _victim: Path) -> None:
    """Nothing that SQLite can write."""
    journal.mkdir()


def link(journal: Path, victim: Path) -> None:
    """Elsewhere."""
    journal.symlink_to(victim)


def second_name(journal: Path, victim: Path) -> None:
    """Of a file that belongs to whom the database belongs to."""
    os.link(victim, journal)


def another_database(journal: Path, victim: Path) -> None:
    """SQLite takes it for a journal without pages, and deletes it."""
    other = victim.with_name("other")
    with closing(sqlite3.connect(other)) as writer:
        writer.execute("CREATE TABLE kept (cell)")
    other.rename(journal)


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


def journal_to(database: Path) -> bytes:
    """A journal that turns any database into this one."""
    content = database.read_bytes()
    pages = [content[start : start + PAGE] for start in range(0, len(content), PAGE)]
    journal = struct.pack(">8s5I", MAGIC, len(pages), 0, len(pages), SECTOR, PAGE).ljust(SECTOR, b"\0")
    for number, page in enumerate(pages, 1):
        checksum = sum(page[place] for place in range(PAGE - 200, 0, -200))
        journal += struct.pack(">I", number) + page + struct.pack(">I", checksum)
    return journal


def log_to(database: Path) -> bytes:
    """A write-ahead log that turns any database into this one."""
    scratch = database.with_name("scratch")
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(scratch)) as copy:
        for statement in ("CREATE TABLE t (a)", "PRAGMA journal_mode = WAL", "PRAGMA wal_autocheckpoint = 0"):
            copy.execute(statement)
        source.backup(copy)
        log = Path(f"{scratch}-wal").read_bytes()
    scratch.unlink()
    return log


FORGERIES: dict[str, Callable[[Path], bytes]] = {"-journal": journal_to, "-wal": log_to}


def plant_as_a_stranger(database: Path, ending: str, content: bytes) -> None:
    """Somebody who may not read the database, and may make files in its folder; needs a test that is run by root."""
    command = 'umask 0; ! cat "$1" 2>&- && cat > "$1$2"'
    subprocess.run(
        ["sh", "-c", command, "sh", database.name, ending],
        input=content,
        cwd=database.parent,
        user=STRANGER,
        group=STRANGER,
        extra_groups=[],
        check=True,
    )
    assert Path(f"{database}{ending}").stat().st_uid == STRANGER


PLANTS: dict[str, Callable[[Path, Path], None]] = {
    "pipe": pipe,
    "folder": folder,
    "link": link,
    "second name": second_name,
    "another database": another_database,
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
