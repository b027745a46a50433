"""Which reports of one collection were counted, and in which release: a small SQLite file, or a temporary one.

The shuffler keeps it from the first report to the end of the collection. Opening it finds other tables, and reports or
releases that were deleted or added one without the other. Whoever can write the file and deletes both, or changes ids,
is not found; whoever reads it learns ids, which only those who saw packets can tell anything about, and counts that
were released.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from privkde.storage.container import DamagedFileError
from privkde.storage.files import leave_journal, make_for_owner, planted_journal, resolved, take_journal

TOKEN_BYTES = 32
PATIENCE = 5.0
"""Seconds to wait for another run that uses the file."""
_FORMAT = 0x706B7231  # "pkr1"
_TABLES = """
    CREATE TABLE collection (id BLOB NOT NULL);
    CREATE TABLE releases (number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, users INTEGER NOT NULL,
        secret INTEGER NOT NULL, ones BLOB NOT NULL, zeros BLOB NOT NULL);
    CREATE TABLE reports (id BLOB PRIMARY KEY, release INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE tokens (hash BLOB PRIMARY KEY, spent INTEGER NOT NULL) WITHOUT ROWID;
"""


def register_beside(announcement: Path) -> Path:
    """Where the register of a collection is kept, unless somebody says otherwise: beside the announcement."""
    return announcement.parent / f"{announcement.name}.reports"  # also of a folder without a name, such as `/`


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedRelease:
    """What left the shuffler once: counts of ones and zeros in each instance, and of how many users."""

    release_id: bytes
    n_users: int
    secret: bool
    ones: NDArray[np.int64]
    zeros: NDArray[np.int64]


class ReportRegister:
    """Takes each report once. What was added since the last release is kept by `release`, or forgotten.

    Reports and counts of a release are kept in one transaction: after an interruption either both are there or neither.
    From the first report that is added to its release nobody else can write the file. Memory does not grow with the
    number of reports; without a `path` they are in a file of the system that ends with the process. A register serves
    one shuffler at a time, whose threads may share it.
    """

    def __init__(self, collection: bytes, path: str | Path | None = None) -> None:
        self._shown = "the register of reports" if path is None else repr(str(path))
        self._file = None if path is None else resolved(Path(path))
        self.collection = collection
        self._lock = threading.RLock()
        self._database = self._connected()
        try:
            with self._errors():
                self._prepare()
        except BaseException:
            self._database.close()
            raise

    def _connected(self) -> sqlite3.Connection:
        """A connection to the file, which is made for its owner alone, or to a temporary one."""
        with self._translated():
            if self._file is not None:
                make_for_owner(self._file)
            return sqlite3.connect(
                "" if self._file is None else self._file,
                timeout=PATIENCE,
                isolation_level=None,
                check_same_thread=False,
            )

    def _prepare(self) -> None:
        """Create the tables in an empty file; refuse another kind of file, and another collection."""
        self._database.execute("PRAGMA synchronous = EXTRA")  # that its journal is gone is on the disk, too
        self._begin()
        empty = not self._number("SELECT COUNT(*) FROM sqlite_master")
        if empty:
            for statement in _TABLES.split(";")[:-1]:
                self._database.execute(statement)
            self._database.execute("INSERT INTO collection VALUES (?)", [self.collection])
            self._database.execute(f"PRAGMA application_id = {_FORMAT}")
        elif self._number("PRAGMA application_id") != _FORMAT:
            raise DamagedFileError(f"{self._shown} is not a register of reports; name another file.")
        elif self._database.execute("SELECT id FROM collection").fetchall() != [(self.collection,)]:
            raise InvalidInputError(f"{self._shown} belongs to another collection; each has a register of its own.")
        else:
            self._require_whole()
        self._end("COMMIT")

    def _require_whole(self) -> None:
        """Refuse a file with other tables, indexes, triggers or views, or other reports than those of its releases.

        Nothing is pending here: reports are written with their release.
        """
        with closing(sqlite3.connect(":memory:")) as new:
            new.executescript(_TABLES)
            if _schema(self._database) != _schema(new):
                raise self._altered("its tables, indexes or triggers are not those of a register")
        ids = "SELECT id FROM reports UNION ALL SELECT id FROM releases UNION ALL SELECT hash FROM tokens"
        if self._number(f"SELECT COUNT(*) FROM ({ids}) WHERE typeof(id) != 'blob'"):
            raise self._altered("some ids are not bytes")
        users = dict(self._database.execute("SELECT number, users FROM releases"))
        if sorted(users) != list(range(1, len(users) + 1)):
            raise self._altered("a release is missing")
        reports = dict(self._database.execute("SELECT release, COUNT(*) FROM reports GROUP BY release"))
        if reports != {number: count for number, count in users.items() if count != 0}:
            raise self._altered("it does not hold as many reports as its releases have users")

    def _altered(self, what: str) -> DamagedFileError:
        return DamagedFileError(
            f"{self._shown} was altered: {what}; restore a copy of it, and count nothing until then."
        )

    # Reports ----------------------------------------------------------------------------------------------------------

    def __contains__(self, report: bytes) -> bool:
        with self._errors():
            return bool(self._number("SELECT COUNT(*) FROM reports WHERE id = ?", report))

    def begin(self) -> None:
        """From here on nobody else writes the file, until the next release or until what was added is forgotten."""
        with self._errors():
            self._begin()

    def add(self, report: bytes) -> bool:
        """Take a report for the next release; False if there was one with this id."""
        with self._errors():
            self._begin()
            release = "(SELECT COUNT(*) + 1 FROM releases)"
            added = self._database.execute(f"INSERT OR IGNORE INTO reports VALUES (?, {release})", [report])
            return added.rowcount == 1

    def reports(self) -> Iterator[bytes]:
        """The ids of all reports."""
        with self._errors():
            for (report,) in self._database.execute("SELECT id FROM reports"):
                yield bytes(report)

    # Releases ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Nobody else writes the file meanwhile; what is not released at the end is forgotten."""
        self.begin()
        try:
            yield
        finally:
            self.forget()

    def release(self, counted: CountedRelease) -> None:
        """Keep the reports that were added, with what is released about them, before anything leaves the shuffler.

        In a file there must be as many as users: it could not be opened again.
        """
        blobs = (np.asarray(part, "<i8").tobytes() for part in (counted.ones, counted.zeros))
        with self._errors():
            self._begin()
            added = self._number("SELECT COUNT(*) FROM reports WHERE release = (SELECT COUNT(*) + 1 FROM releases)")
            if self._file is not None and added != counted.n_users:
                raise InvalidInputError(
                    f"{added} reports were added and counts of {counted.n_users} users are released; count packets with"
                    " the register that keeps them."
                )
            row = (counted.release_id, counted.n_users, counted.secret, *blobs)
            self._database.execute(
                "INSERT INTO releases VALUES ((SELECT COUNT(*) + 1 FROM releases), ?, ?, ?, ?, ?)", row
            )
            self._end("COMMIT")

    def releases(self) -> list[CountedRelease]:
        """Everything that was released, in order."""
        with self._errors():
            rows = self._database.execute(
                "SELECT id, users, secret, ones, zeros FROM releases ORDER BY number"
            ).fetchall()
        if any(not isinstance(cell, bytes) or len(cell) % 8 for row in rows for cell in row[3:]):
            raise DamagedFileError(f"{self._shown} holds counts that are none; restore a copy of it.")
        return [
            CountedRelease(
                release_id=bytes(release_id),
                n_users=n_users,
                secret=bool(secret),
                ones=np.frombuffer(ones, "<i8").astype(np.int64),
                zeros=np.frombuffer(zeros, "<i8").astype(np.int64),
            )
            for release_id, n_users, secret, ones, zeros in rows
        ]

    def forget(self) -> None:
        """Forget the reports that were added, and the tokens that were spent, since the last release."""
        with self._errors():
            if self._database.in_transaction:
                self._end("ROLLBACK")

    # Enrollment -------------------------------------------------------------------------------------------------------

    def issue(self) -> bytes:
        """A new token, to be given to one person who enrolls, over a channel that knows the person.

        With `Shuffler(announcement, register=register, admit=register.spend)` every report then costs a token: as many
        reports as persons, whatever ids they choose. Only a hash is kept. The token is not part of a packet, and no
        row ties it to a report, so nothing that leaves the shuffler holds it. Not given: secrecy from whoever issues
        tokens *and* sees them spent, which is whom the shuffler's users trust anyway; blind signatures would give it.
        Nor does it stop a person who enrolls under two names.
        """
        token = secrets.token_bytes(TOKEN_BYTES)
        with self._errors():
            if self._database.in_transaction:
                raise InvalidInputError("reports are being taken; issue all tokens before the first report.")
            self._begin()
            self._database.execute("INSERT INTO tokens VALUES (?, 0)", [_hashed(token)])
            self._end("COMMIT")
        return token

    @property
    def issues_tokens(self) -> bool:
        """Whether reports cost a token."""
        with self._errors():
            return self._database.execute("SELECT 1 FROM tokens LIMIT 1").fetchone() is not None

    def spend(self, token: bytes | None) -> bool:
        """Whether a token was issued and not spent; it then is, once the report that it came with is released."""
        if not isinstance(token, bytes):
            return False
        with self._errors():
            self._begin()
            spent = self._database.execute("UPDATE tokens SET spent = 1 WHERE hash = ? AND spent = 0", [_hashed(token)])
            return spent.rowcount == 1

    # The database -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Forget what was not released, and close the file."""
        self._database.close()

    def __enter__(self) -> ReportRegister:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> None:
        if not self._database.in_transaction:
            self._database.execute("BEGIN IMMEDIATE")
            if self._file is not None:
                take_journal(self._file)
                self._require_own_journal()

    def _end(self, how: str) -> None:
        if self._file is not None:
            leave_journal(self._file)
        self._database.execute(how)

    def _number(self, query: str, *given: bytes) -> int:
        return int(self._database.execute(query, given).fetchone()[0])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """One thread at a time, no journal of somebody else, and errors of the database as ours."""
        with self._lock, self._translated():
            if not self._database.in_transaction:
                self._require_own_journal()
            yield

    def _require_own_journal(self) -> None:
        """Refuse a journal or log that somebody planted. Looked at before SQLite reads, since it would obey it."""
        if self._file is not None and (planted := planted_journal(self._file)):
            raise DamagedFileError(
                f"{planted}; find out who put it there, and count nothing until then. A colleague's, whose run ended in"
                " the middle, is needed to undo it: give it to the register's owner (chown). Another one: move it away."
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidInputError(
                f"{self._shown} cannot be used ({reason}); wait for the run that uses it, or choose a place that can"
                " be written."
            ) from error
        except sqlite3.DatabaseError as error:
            raise DamagedFileError(f"{self._shown} is not a register of reports ({error}); name another.") from error


def _schema(database: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Everything that a file declares, as it was written."""
    return database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def _hashed(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
