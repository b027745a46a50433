"""Database engines for a ledger in a file (SQLite) or on a server (PostgreSQL); all that differs between the two."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from accounting import InvalidInputError
from privkde.ledger.refusals import LedgerUnavailableError
from privkde.storage.files import leave_journal, make_for_owner, planted_journal, resolved, take_journal

PATIENCE = 60.0
"""Seconds that a transaction waits for others, which may be composing many different releases."""
CONNECT_TIMEOUT = 10
_READING = "privkde_reading"
_JOURNAL = "delete"
_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
_CREATION_LOCK = 0x707269766B6465  # an arbitrary number: "privkde"


def engine_for(where: str | Path, *, create: bool) -> tuple[sa.Engine, str]:
    """An engine, and the location as it may be shown: without a password."""
    if isinstance(where, str) and "://" in where:
        return _server(where)
    return _file(Path(where), create=create)


def file_at(engine: sa.Engine, place: Path) -> tuple[int, ...] | None:
    """Which file is at `place`; None if it is gone, or has a second name. On a server all is always the same.

    SQLite finds the journal of an interrupted charge by the file's name, so a file has one name.
    """
    if engine.dialect.name != "sqlite":
        return ()
    try:
        found = os.stat(place)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if found.st_nlink == 1 else None


def foreign_journal(engine: sa.Engine) -> str | None:
    """What is wrong with the journal or log that lies beside a file, before SQLite obeys it; None if nothing is."""
    if engine.dialect.name != "sqlite":
        return None
    return planted_journal(Path(str(engine.url.database)))


@contextmanager
def own_journal(engine: sa.Engine) -> Iterator[None]:
    """In a file, the journal of a transaction for writing is made by us before anything is written."""
    if engine.dialect.name != "sqlite":
        yield
        return
    database = Path(str(engine.url.database))
    take_journal(database)
    try:
        yield
    finally:
        leave_journal(database)


def leave_log(engine: sa.Engine) -> None:
    """Bring a file that keeps a write-ahead log back to a rollback journal, once no other process has it open.

    With a log a ledger is three files, one of them memory that processes share, and whoever can write any of them makes
    charges vanish for all. With a journal it is the file itself between two transactions.
    """
    if engine.dialect.name != "sqlite":
        return
    deadline = time.monotonic() + PATIENCE
    while True:  # SQLite does not wait for other processes here
        connection = engine.raw_connection()
        try:
            connection.cursor().execute(f"PRAGMA journal_mode = {_JOURNAL}")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        finally:
            connection.close()
        engine.dispose()  # others who do the same wait for this connection, as this one waits for theirs
        time.sleep(random.uniform(0.0, 0.1))


def keeps_log(connection: sa.Connection) -> bool:
    """Whether somebody gave the file a write-ahead log, as this transaction sees it."""
    if connection.dialect.name != "sqlite":
        return False
    connection.exec_driver_sql("PRAGMA schema_version").scalar_one()  # reads the file, and so how it is kept
    return bool(connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() != _JOURNAL)


def set_up_transaction(connection: sa.Connection, *, writing: bool) -> None:
    """Whoever only reads sees one moment, and on a file waits only while a charge is being put on the disk."""
    connection.execution_options(**{_READING: not writing})
    if not writing and connection.dialect.name == "postgresql":
        connection.execution_options(isolation_level="REPEATABLE READ")


def copy_file(engine: sa.Engine, path: Path) -> None:
    """Copy a ledger in a file, as it is at one moment, into an empty file; on the disk when this returns."""
    if engine.dialect.name != "sqlite":
        raise InvalidInputError("a ledger on a server is backed up by the server's own tools; use pg_dump.")
    connection, copy = engine.raw_connection(), sqlite3.connect(path)
    try:
        copy.execute("PRAGMA synchronous = FULL")
        connection.driver_connection.backup(copy)  # type: ignore[union-attr] # sqlite3's own
    finally:
        copy.close()
        connection.close()


def damage(connection: sa.Connection) -> str | None:
    """What does not fit in the structure of a file, such as an index without some rows; None if all does.

    A server looks after its own.
    """
    if connection.dialect.name != "sqlite":
        return None
    found = str(connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one())
    return None if found == "ok" else " ".join(found.split())


def lock_creation(connection: sa.Connection) -> None:
    """Keep others from creating tables until this transaction ends. SQLite's transactions exclude each other anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))


def _file(path: Path, *, create: bool) -> tuple[sa.Engine, str]:
    shown, place = str(path), resolved(path)
    if path.is_dir():
        raise InvalidInputError(f"path {shown!r} is a folder; name a file inside it.")
    if not path.exists():
        if not create:
            raise LedgerUnavailableError(f"there is no ledger at {shown!r}; `privkde budget create` makes one.")
        if not path.parent.is_dir():
            raise InvalidInputError(f"folder {str(path.parent)!r} does not exist; create it first.")
        _make_empty(path)
    url = sa.URL.create("sqlite+pysqlite", database=str(place))
    engine = sa.create_engine(url, hide_parameters=True, pool_timeout=PATIENCE, connect_args={"timeout": PATIENCE})
    sa.event.listen(engine, "connect", _set_up_file)
    sa.event.listen(engine, "begin", _begin_file)
    return engine, shown


def _make_empty(path: Path) -> None:
    """Make the file before it is opened: it is known then which one it is, and only its owner may read it.

    Whoever may read it can hold a lock of readers, for which every charge waits.
    """
    try:
        make_for_owner(path)
    except OSError as error:
        raise LedgerUnavailableError(f"ledger {str(path)!r} cannot be made: {error.strerror}.") from error


def _set_up_file(connection: Any, _record: Any) -> None:
    """Commits return when they are on the disk; transactions begin where this library begins them."""
    connection.isolation_level = None  # the driver begins nothing by itself
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_file(connection: sa.Connection) -> None:
    reading = connection.get_execution_options().get(_READING, False)
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _server(where: str) -> tuple[sa.Engine, str]:
    if where.partition("://")[0] not in _SCHEMES:
        raise InvalidInputError(
            f"{where.partition('://')[0]!r} is not a kind of ledger; give a file's path or postgresql://…."
        )
    try:
        url = sa.make_url(where).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        url = None
    if url is None:  # raised here, so that no traceback shows the URL: it may hold a password
        raise InvalidInputError("the ledger's URL cannot be read; write postgresql://user:password@host:port/database.")
    shown = sa.URL.create(
        "postgresql", username=url.username, host=url.host, port=url.port, database=url.database
    ).render_as_string()
    try:
        engine = sa.create_engine(
            url,
            hide_parameters=True,
            isolation_level="READ COMMITTED",  # after a lock is granted, what others committed must be seen
            pool_pre_ping=True,
            pool_timeout=PATIENCE,
            connect_args={"connect_timeout": CONNECT_TIMEOUT} if "connect_timeout" not in url.query else {},
        )
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            "a ledger on a server needs psycopg; install the extra with `pip install 'privkde[postgres]'`."
        ) from error
    sa.event.listen(engine, "begin", _begin_server)
    return engine, shown


def _begin_server(connection: sa.Connection) -> None:
    """Wait for locks as long as for a file; commits return when they are on the disk, however configured."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{PATIENCE:g}s'")
    connection.exec_driver_sql("SET LOCAL synchronous_commit = on")


def reason(error: Exception) -> str:
    """The first line of the driver's error, without statements and parameters."""
    original = getattr(error, "orig", None) or error
    return (str(original).strip().splitlines() or [type(original).__name__])[0]
