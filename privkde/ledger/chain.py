"""The chain of a ledger's rows: what is altered, removed, inserted or moved no longer fits.

Every row holds its position in the ledger, its predecessor's digest, and a digest over both and its own content. The
head holds the number of rows and the last digest and, with a key, a signature.

A database finds rows through indexes, which are not chained. So a check remembers the digests of all rows that it read,
and whoever looks rows up later must find the same ones.
"""

from __future__ import annotations

import heapq
import hmac
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from accounting import InvalidInputError
from privkde.ledger.digests import EMPTY, START, Head, digest, signature
from privkde.ledger.refusals import LedgerAlteredError, LedgerKeyError

LINKS = ("position", "before", "digest")
_BLOCK = 100
_SHOWN = 60

Row = Mapping[str, Any]
Group = tuple[str, ...]
"""A table's name and what rows of one history share: a budget's name, or also the key of a charge."""


@dataclass(frozen=True, slots=True)
class Checked:
    """How far a chain was checked, and the digests that it holds up to there, in order."""

    head: Head
    digests: Mapping[Group, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def extended(self, head: Head, rows: Mapping[Group, Sequence[str]]) -> Checked:
        """With the rows after it."""
        longer = {group: (*self.digests.get(group, ()), *added) for group, added in rows.items()}
        return Checked(head, {**self.digests, **longer})


NOTHING = Checked(EMPTY)


def group_of(table: sa.Table, row: Row) -> Group:
    """Which history a row belongs to: its primary key but the number."""
    shared = [str(row[column.name]) for column in table.primary_key.columns if column.name != "number"]
    return (table.name, *shared)


def link_columns() -> tuple[sa.Column[Any], ...]:
    """What a table needs so that its rows can be chained."""
    position, *digests = LINKS
    return (sa.Column(position, sa.Integer), *(sa.Column(name, sa.String(64)) for name in digests))


def head_columns() -> tuple[sa.Column[Any], ...]:
    """The table of the head has one row."""
    return (
        sa.Column("rows", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("signature", sa.String(64)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The chained tables of one ledger, its head, and its key if it has one."""

    shown: str
    tables: tuple[sa.Table, ...]
    head: sa.Table
    key: bytes | None = field(repr=False)

    def start(self, connection: sa.Connection) -> None:
        """Write the head, and chain the rows that are there: by position or, without one, by table and primary key."""
        there = []
        for table in self.tables:
            query = sa.select(table).order_by(*table.primary_key.columns)
            there += [(table, row._asdict()) for row in connection.execute(query)]
        last = START
        for position, (table, row) in enumerate(sorted(there, key=lambda pair: _place(pair[1])), 1):
            links = self._linked(table, row, position, last)
            same = sa.and_(*(column == row[column.name] for column in table.primary_key.columns))
            connection.execute(sa.update(table).where(same).values(links))
            last = links["digest"]
        connection.execute(sa.delete(self.head))
        connection.execute(sa.insert(self.head).values(self._head_row(len(there), last)))

    def append(self, connection: sa.Connection, table: sa.Table, row: Row, since: Checked) -> Checked:
        """Insert a row at the end, and return the longer chain.

        Others wait from here on; what they added after `since` is checked first.
        """
        connection.execute(sa.select(self.head).with_for_update())
        if self._signed_head(connection) != since.head:
            since = self.check(connection, since)
        head = since.head
        position = (head.rows or 0) + 1
        complete = {column.name: row.get(column.name) for column in table.columns}
        links = self._linked(table, complete, position, head.digest)
        connection.execute(sa.insert(table).values(complete | links))
        connection.execute(sa.update(self.head).values(self._head_row(position, links["digest"])))
        new = Head(rows=position, digest=links["digest"])
        stored = connection.execute(sa.select(table).where(table.c.position == position)).one_or_none()
        if self._signed_head(connection) != new or stored is None or stored._asdict() != complete | links:
            raise self.altered("a row was not kept as it was written; the database acts by itself (a trigger)")
        return since.extended(new, {group_of(table, complete): [new.digest]})

    def check(self, connection: sa.Connection, since: Checked) -> Checked:
        """The chain, if it still continues from `since`: as many rows as there must be, the new ones in order.

        Rows before `since` are not read again. From the start (`NOTHING`) everything is checked.
        """
        head, added = self._signed_head(connection), defaultdict[Group, list[str]](list)
        position, last = since.head.rows or 0, since.head.digest
        if head.rows is None or head.rows < position:
            raise self.altered(f"it has {head.rows} rows and had {position}")
        with self._rows(connection, position, head.rows) as rows:
            if position:
                kept = next(rows, None)
                if kept is None or self.require(*kept)["digest"] != last:
                    raise self.altered(f"row {position} is not the one that was there before")
            for table, row in rows:
                position += 1
                if row["position"] != position:
                    raise self.altered(_misplaced(table, row, position))
                if self.require(table, row)["before"] != last:
                    raise self.altered(f"{_named(table, row)} does not follow the row before it")
                last = row["digest"]
                added[group_of(table, row)].append(last)
        if (position, last) != (head.rows, head.digest):
            raise self.altered("its last row is not the one that its head names")
        return since.extended(head, added) if added else since

    def require(self, table: sa.Table, row: Row) -> Row:
        """Return the row if its digest is that of its content, or raise."""
        content = {name: value for name, value in row.items() if name != "digest"}
        if not _equal(row["digest"], self._digest(table, content)):
            raise self.altered(f"{_named(table, row)} is not what was written")
        return row

    def require_found(self, table: sa.Table, found: Sequence[Row], expected: Sequence[str]) -> None:
        """Raise unless rows that were looked up are those that the chain holds."""
        if [row["digest"] for row in found] != list(expected):
            raise self.altered(
                f"table {table.name!r} shows other rows when they are looked up than its chain holds (by an index)"
            )

    def find(self, connection: sa.Connection, known: Head, checked: Checked) -> None:
        """Raise unless the chain, which was checked, contains a head that was exported earlier."""
        if known in (EMPTY, Head(rows=None, digest=START)):
            return
        if any(known.digest in digests for digests in checked.digests.values()):
            for table in self.tables:
                same = table.c.digest == known.digest
                found = connection.execute(sa.select(table).where(same)).one_or_none()
                if found is not None and known.rows in (None, self.require(table, found._asdict())["position"]):
                    return
        rows = "" if known.rows is None else f" of {known.rows} rows"
        raise self.altered(f"the exported head {known.digest[:12]}…{rows} is not in it; rows were removed or replaced")

    def altered(self, what: str) -> LedgerAlteredError:
        """The error that says what does not fit."""
        return LedgerAlteredError(
            f"ledger {self.shown!r} was altered: {what}; nothing was charged. Restore a backup, check it with"
            " `privkde budget verify --head`, and charge again what was charged since."
        )

    def _signed_head(self, connection: sa.Connection) -> Head:
        """The head, with a valid signature and for as many rows as there are."""
        counts = [sa.select(sa.func.count()).select_from(table).scalar_subquery() for table in self.tables]
        found = connection.execute(sa.select(self.head, sum(counts, sa.literal(0)))).all()
        if len(found) != 1:
            raise self.altered(f"it has {len(found)} heads and must have one")
        rows, last, signed, there = found[0]
        try:
            head = Head(rows=rows, digest=last)
        except InvalidInputError as error:
            raise self.altered("its head is not a number of rows and a digest") from error
        if signed is None and self.key is not None:
            raise LedgerKeyError(
                f"a key was given and ledger {self.shown!r} has none; `privkde budget seal` gives it one."
                " If it had one, it was replaced: restore a backup."
            )
        if signed is not None and self.key is None:
            raise LedgerKeyError(
                f"ledger {self.shown!r} has a key, without which it cannot be checked; give it (PRIVKDE_LEDGER_KEY)."
            )
        if self.key is not None and not _equal(signed, signature(rows, last, self.key)):
            raise self.altered("the key does not fit its head, or is the key of another ledger")
        if there != rows:
            raise self.altered(self._first_misfit(connection, rows))
        return head

    def _first_misfit(self, connection: sa.Connection, rows: int) -> str:
        """Which row is missing or too many, where there are not as many as the head counts."""
        position = 0
        with self._rows(connection, 0, None) as found:
            for table, row in found:
                position += 1
                if row["position"] != position:
                    return _misplaced(table, row, position)
                if position > rows:
                    return f"{_named(table, row)} comes after the last that its head counts"
        return f"row {position + 1} is missing, and all after it, of {rows}"

    @contextmanager
    def _rows(
        self, connection: sa.Connection, first: int, last: int | None
    ) -> Iterator[Iterator[tuple[sa.Table, Row]]]:
        """Rows of all tables by position; from 0 on also those without one.

        A writer on a server sees what others append meanwhile; it is after `last`, and not looked at.
        """
        with ExitStack() as results:
            sorted_rows = []
            for table in self.tables:
                place = table.c.position
                query = sa.select(table).order_by(place.nulls_first())
                if first:
                    query = query.where(place >= first)
                if last is not None:
                    query = query.where(sa.or_(place.is_(None), place <= last))
                result = connection.execute(query.execution_options(yield_per=_BLOCK))
                sorted_rows.append(_of_table(table, results.enter_context(result)))
            yield heapq.merge(*sorted_rows, key=lambda pair: _place(pair[1]))

    def _linked(self, table: sa.Table, row: Row, position: int, before: str) -> dict[str, Any]:
        links = {"position": position, "before": before}
        return links | {"digest": self._digest(table, {**row, **links})}

    def _digest(self, table: sa.Table, row: Row) -> str:
        """Over the table's name and all columns but the digest itself; integers in columns of reals are reals."""
        values = {
            name: float(value) if type(value) is int and isinstance(table.c[name].type, sa.Double) else value
            for name, value in row.items()
            if name != "digest"
        }
        return digest({"table": table.name, "row": values}, self.key)

    def _head_row(self, rows: int, last: str) -> dict[str, Any]:
        return {
            "rows": rows,
            "digest": last,
            "signature": None if self.key is None else signature(rows, last, self.key),
        }


def _of_table(table: sa.Table, result: sa.CursorResult[Any]) -> Iterator[tuple[sa.Table, Row]]:
    for row in result:
        yield table, row._asdict()


def _equal(stored: object, computed: str) -> bool:
    return isinstance(stored, str) and hmac.compare_digest(stored.encode(), computed.encode())


def _place(row: Row) -> int:
    position = row["position"]
    return position if isinstance(position, int) else 0


def _misplaced(table: sa.Table, row: Row, expected: int) -> str:
    place = row["position"]
    if isinstance(place, int) and place > expected:
        return f"row {expected} is missing, before {_named(table, row)}"
    return f"{_named(table, row)} was inserted or moved"


def _named(table: sa.Table, row: Row) -> str:
    """Which row it is, for people."""
    keys = ", ".join(f"{column.name} {str(row[column.name])[:_SHOWN]!r}" for column in table.primary_key.columns)
    return f"row {_place(row)} ({table.name}: {keys})"
