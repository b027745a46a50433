"""Tables of a ledger and transactions on them, the same for SQLite and PostgreSQL. No rules, only rows."""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from accounting import InvalidInputError
from accounting.releases.adaptive import Price
from accounting.releases.composing import WAYS, Spent, finite
from accounting.releases.release import Release
from privkde.ledger.chain import LINKS, NOTHING, Chain, Checked, Group, Row, group_of, head_columns, link_columns
from privkde.ledger.connecting import (
    copy_file,
    damage,
    engine_for,
    file_at,
    foreign_journal,
    keeps_log,
    leave_log,
    lock_creation,
    own_journal,
    reason,
    set_up_transaction,
)
from privkde.ledger.digests import Head, require_ledger_key
from privkde.ledger.kept_proof import KeptProof
from privkde.ledger.records import Budget, Charge, Use, require_name
from privkde.ledger.refusals import (
    BudgetExistsError,
    LedgerAlteredError,
    LedgerKeyError,
    LedgerUnavailableError,
    UnknownBudgetError,
)
from privkde.storage.files import kept_by_sqlite, whole_file
from privkde.storage.json_text import parsed_json

VERSION = 3
CERTIFICATE = "certificate"
"""A member of a charge's release beside those of the release: a column would change the digests of all rows."""
_tables = sa.MetaData()
_version = sa.Table("privkde_ledger", _tables, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
_budgets = sa.Table(
    "privkde_budgets",
    _tables,
    sa.Column("name", sa.String(100), primary_key=True),
    sa.Column("epsilon", sa.Double, nullable=False),
    sa.Column("delta", sa.Double, nullable=False),
    sa.Column("view", sa.String(20), nullable=False),
    sa.Column("composition", sa.String(20), nullable=False),
    sa.Column("created", sa.String(40), nullable=False),
    sa.Column("order", sa.Double),
    *link_columns(),
)
# Numbers have no gaps, which is a second lock: two charges that saw the same history cannot both be written.
_charges = sa.Table(
    "privkde_charges",
    _tables,
    sa.Column("budget", sa.ForeignKey(_budgets.c.name), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("key", sa.String(200), nullable=False),
    sa.Column("release", sa.Text, nullable=False),
    sa.Column("plan_sha256", sa.String(64)),
    sa.Column("spent_before", sa.Double, nullable=False),
    sa.Column("basic", sa.Double),
    sa.Column("advanced", sa.Double),
    sa.Column("pld", sa.Double),
    sa.Column("created", sa.String(40), nullable=False),
    sa.Column("cohort", sa.String(100)),
    sa.Column("renyi", sa.Double),
    sa.Column("adaptive", sa.Double),
    sa.Column("at_budget", sa.Double),
    sa.Column("cut", sa.Double),
    sa.Column("rho", sa.Double),
    sa.Column("largest_loss", sa.Double),
    *link_columns(),
    sa.UniqueConstraint("budget", "key"),
)
_uses = sa.Table(
    "privkde_uses",
    _tables,
    sa.Column("budget", sa.ForeignKey(_budgets.c.name), primary_key=True),
    sa.Column("schedule", sa.String(200), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("key", sa.String(200), nullable=False),
    sa.Column("created", sa.String(40), nullable=False),
    *link_columns(),
    sa.UniqueConstraint("budget", "schedule", "key"),
)
_head = sa.Table("privkde_head", _tables, *head_columns())
_CHAINED = (_budgets, _charges, _uses)
_PLACES = tuple(sa.Index(f"{table.name}_position", table.c.position, unique=True) for table in _CHAINED)


@dataclass(slots=True)
class Rows:
    """The rows as one transaction sees them."""

    connection: sa.Connection
    chain: Chain
    checked: Checked
    """Up to here the chain was checked; rows are believed if they are in it, and if none of it is missing."""

    def budgets(self) -> tuple[Budget, ...]:
        """All budgets, by name."""
        groups = [group for group in self.checked.digests if group[0] == _budgets.name]
        return tuple(_budget(row) for row in self._read(_budgets, sa.select(_budgets), groups))

    def budget(self, name: str, *, lock: bool = False) -> Budget:
        """The budget of this name; with `lock`, nobody else can charge it until this transaction ends."""
        query = sa.select(_budgets).where(_budgets.c.name == require_name(name))
        if lock:
            self.connection.execute(query.with_for_update())
            self.checked = self.chain.check(self.connection, self.checked)  # others charged it while this one waited
        found = self._read(_budgets, query, [(_budgets.name, name)])
        if not found:
            raise UnknownBudgetError(f"there is no budget {name!r}; create it first, or list the budgets.")
        return _budget(found[0])

    def charges(self, budget: Budget, *, after: int = 0) -> tuple[Charge, ...]:
        """The budget's charges in order, from the one after number `after` on."""
        query = sa.select(_charges).where(_charges.c.budget == budget.name, _charges.c.number > after)
        found = self._read(_charges, query.order_by(_charges.c.number), [(_charges.name, budget.name)], after=after)
        return tuple(_charge(row, budget) for row in found)

    def uses(self, charge: Charge) -> tuple[Use, ...]:
        """The times of a schedule that were used, in order."""
        return self.uses_of(charge.budget, charge.key)

    def uses_of(self, budget: str, schedule: str) -> tuple[Use, ...]:
        """The uses of a schedule by its key. A use that was begun is itself a schedule, of one result."""
        query = sa.select(_uses).where(_uses.c.budget == budget, _uses.c.schedule == schedule)
        found = self._read(_uses, query.order_by(_uses.c.number), [(_uses.name, budget, schedule)])
        return tuple(Use(**_intact(row, _uses)) for row in found)

    def add_use(self, use: Use) -> None:
        """Insert a use; the caller holds the lock of its budget."""
        self._append(_uses, use.to_json())

    def add_budget(self, budget: Budget) -> None:
        """Insert a budget, or raise `BudgetExistsError`."""
        row = {name: getattr(budget, name) for name in ("name", "epsilon", "delta", "order", "created")}
        row |= {"view": str(budget.view), "composition": str(budget.composition)}
        exists = BudgetExistsError(f"budget {budget.name!r} exists and cannot be changed; choose another name.")
        if group_of(_budgets, row) in self.checked.digests:
            raise exists
        try:
            self._append(_budgets, row)
        except IntegrityError as error:  # another process on a server was faster
            raise exists from error

    def add_charge(self, charge: Charge) -> None:
        """Insert a charge; the caller holds the lock of its budget."""
        row: dict[str, Any] = {
            name: getattr(charge, name)
            for name in ("budget", "number", "key", "cohort", "plan_sha256", "spent_before", "created")
        }
        kept = {} if charge.certificate is None else {CERTIFICATE: charge.certificate.to_json()}
        row["release"] = json.dumps(charge.release.to_json() | kept, allow_nan=False)
        row |= {way: finite(getattr(charge.after, way)) for way in WAYS} | {"at_budget": charge.after.at_budget}
        row |= {} if charge.price is None else charge.price.to_json()
        self._append(_charges, row)

    def _read(self, table: sa.Table, query: sa.Select[Any], groups: Sequence[Group], *, after: int = 0) -> list[Row]:
        """All rows of these groups but the first `after` of each, by group; believed if the chain holds the same."""
        rows = [self.chain.require(table, row._asdict()) for row in self.connection.execute(query)]
        rows.sort(key=lambda row: group_of(table, row))
        held = [digest for group in sorted(groups) for digest in self.checked.digests.get(group, ())[after:]]
        self.chain.require_found(table, rows, held)
        return rows

    def _append(self, table: sa.Table, row: Row) -> None:
        self.checked = self.chain.append(self.connection, table, row, self.checked)


class Store:
    """An open database. Its whole chain is checked when it is opened, and what changed since in every transaction."""

    def __init__(self, where: str | Path, *, create: bool, key: bytes | None = None) -> None:
        self._key = require_ledger_key(key)
        self._engine, self.shown = engine_for(where, create=create)
        self._checked, self._place = NOTHING, Path(where).absolute()
        self._file = file_at(self._engine, self._place)  # before a connection opens it: no other is opened unnoticed
        try:
            self._require_own_journal()
            self._prepare(create=create)
            self.verify()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def transaction(self, *, writing: bool = False) -> Iterator[Rows]:
        """One transaction: all of it is on the disk when the block has ended, or none of it ever is."""
        since = self._checked  # before the transaction begins: what it sees is never older
        with self._begun(writing=writing) as connection:
            rows = Rows(connection, self._chain, self._chain.check(connection, since))
            yield rows
        self._checked = rows.checked

    def verify(self, known: Head | None = None) -> Head:
        """Check all rows, and a file's indexes; with an exported head, also that the ledger continues from there."""
        with self._begun(writing=False) as connection:
            checked = self._chain.check(connection, NOTHING)
            if damaged := damage(connection):
                raise self._chain.altered(f"its rows fit, and its file does not ({damaged})")
            if known is not None:
                self._chain.find(connection, known, checked)
        self._checked = checked
        return checked.head

    def seal(self, key: bytes) -> Head:
        """Check a chain without a key, and write it again with one."""
        if self._key is not None:
            raise LedgerKeyError(f"ledger {self.shown!r} has a key already, which cannot be changed.")
        with self._begun(writing=True) as connection:
            connection.execute(sa.select(_head).with_for_update())
            self._chain.check(connection, NOTHING)
            sealed = self._chain_with(require_ledger_key(key))
            sealed.start(connection)
        self._key, self._checked = key, NOTHING
        return self.verify()

    def backup(self, path: Path) -> Head:
        """Copy the ledger of a file to a new file and check the copy; whole or not at all.

        A journal that lies beside the new name would be played back over the backup.
        """
        for place in (path, *kept_by_sqlite(path)):
            if os.path.lexists(place):
                raise InvalidInputError(f"file {str(place)!r} exists; name a new file for the backup.")
        with whole_file(path, once=True, private=True) as temporary:
            with self.transaction():  # what this process saw must be there
                pass
            since = self._checked.head  # before the copy begins: what it holds is never older
            with self._translated():
                copy_file(self._engine, temporary)
            copy = Store(temporary, create=False, key=self._key)
            try:
                return copy.verify(since)
            finally:
                copy.close()

    @property
    def _chain(self) -> Chain:
        return self._chain_with(self._key)

    def _chain_with(self, key: bytes | None) -> Chain:
        return Chain(shown=self.shown, tables=_CHAINED, head=_head, key=key)

    @contextmanager
    def _begun(self, *, writing: bool) -> Iterator[sa.Connection]:
        self._require_same_file("nothing was charged")
        self._require_own_journal()
        with self._translated(), self._engine.connect() as connection:
            set_up_transaction(connection, writing=writing)
            with connection.begin():
                if keeps_log(connection):
                    raise self._replaced("nothing was charged")
                with own_journal(self._engine) if writing else nullcontext():
                    self._require_own_journal()
                    yield connection
        self._require_same_file("what was just written may be lost")

    def _require_same_file(self, outcome: str) -> None:
        """Refuse a file that was put in the place of the one that was opened: what is written would be lost.

        An open file is still read and written after it lost its name, so this is looked at before and after.
        """
        if self._file is None or file_at(self._engine, self._place) != self._file:
            raise self._replaced(outcome)

    def _require_own_journal(self) -> None:
        """Refuse a journal or log that somebody planted. Looked at before SQLite reads, since it would obey it."""
        if planted := foreign_journal(self._engine):
            raise LedgerAlteredError(
                f"{planted}; nothing was charged. Find out who put it there. A colleague's, whose process ended in the"
                " middle of a charge, is needed to undo it: copy both files, and give the journal to the ledger's owner"
                " (chown). Another one: move it away, and look at the ledger with `privkde budget verify --head`."
            )

    def _replaced(self, outcome: str) -> LedgerAlteredError:
        return LedgerAlteredError(
            f"the file of ledger {self.shown!r} was replaced, removed, given a second name (a hard link) or a"
            f" write-ahead log while it was open; {outcome}, and so may be what was charged since. Stop all that use"
            " it, look at what is there with `privkde budget verify --head`, and charge again what is missing."
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """The driver's errors as `LedgerUnavailableError`."""
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as error:  # sqlite3's own while a connection is set up
            raise LedgerUnavailableError(
                f"ledger {self.shown!r} cannot be used: {reason(error)};"
                " try again later, and repeat a charge with the same key."
            ) from error

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _prepare(self, *, create: bool) -> None:
        """Create the tables if they are missing, and refuse those of another version."""
        with self._translated():
            with self._engine.connect() as connection, connection.begin():
                version = _stored_version(connection)
                if version is None:
                    self._refuse_creation(connection, create=create)
                elif version == VERSION and not sa.inspect(connection).has_table(_head.name):
                    raise self._chain.altered(f"its table {_head.name!r} is missing")
            leave_log(self._engine)
        if version is None:
            with self._begun(writing=True) as connection:
                lock_creation(connection)
                version = _stored_version(connection)  # another process may have been faster
                if version is None:
                    _tables.create_all(connection)
                    connection.execute(sa.insert(_version).values(version=VERSION))
                    self._chain.start(connection)
                    version = VERSION
        if version < VERSION:
            self._bring_up_to_date(version)
        elif version != VERSION:
            raise LedgerUnavailableError(
                f"ledger {self.shown!r} has format {version}, but this privkde knows only {VERSION}; update privkde."
            )

    def _bring_up_to_date(self, old: int) -> None:
        """Add what later versions have, and chain the rows: all at once, and never twice."""
        if self._key is not None:  # or whoever sets the version back has altered rows signed
            raise LedgerKeyError(
                f"ledger {self.shown!r} has format {old}, which has no key; open it once without a key, look at what it"
                " holds, then `privkde budget seal`."
            )
        with self._begun(writing=True) as connection:
            lock_creation(connection)
            version = _stored_version(connection)
            if version is None or version >= VERSION:  # another process may have been faster
                return
            if sa.inspect(connection).has_table(_head.name):  # only this format has one
                raise self._chain.altered(f"it says that its format is {version}, and its rows are of format {VERSION}")
            _tables.create_all(connection, tables=[_uses, _head])
            quote = connection.dialect.identifier_preparer.quote
            for table in _CHAINED:
                stored = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
                for column in (column for column in table.columns if column.name not in stored):
                    kind = column.type.compile(connection.dialect)
                    connection.exec_driver_sql(
                        f"ALTER TABLE {quote(table.name)} ADD COLUMN {quote(column.name)} {kind}"
                    )
            for index in _PLACES:
                index.create(connection, checkfirst=True)
            self._chain.start(connection)
            connection.execute(sa.update(_version).values(version=VERSION))

    def _refuse_creation(self, connection: sa.Connection, *, create: bool) -> None:
        """Tables are made only with `create`, and never in a file of another program."""
        foreign = connection.dialect.name == "sqlite" and sa.inspect(connection).get_table_names()
        if foreign:
            raise LedgerUnavailableError(f"{self.shown!r} is not a ledger: it holds {foreign[0]!r}; choose another.")
        if not create:
            raise LedgerUnavailableError(f"{self.shown!r} holds no ledger; `privkde budget create` makes one.")


def _stored_version(connection: sa.Connection) -> int | None:
    if not sa.inspect(connection).has_table(_version.name):
        return None
    return int(connection.execute(sa.select(_version.c.version)).scalar_one())


def _intact(row: Row, table: sa.Table) -> dict[str, Any]:
    """The cells of a row by name: texts and numbers, as declared. SQLite keeps anything in any column."""
    cells = {column: row[column.name] for column in table.columns if column.name not in LINKS}
    for column, value in cells.items():
        kind = column.type.python_type
        if value is None and column.nullable:
            continue
        fits = isinstance(value, kind) and (kind is not float or 0.0 <= value < math.inf)
        if not fits or (kind is str and not value.isprintable()):
            raise _altered(f"column {column.name!r} of {table.name!r} holds")
    return {column.name: value for column, value in cells.items()}


def _altered(what: str) -> LedgerUnavailableError:
    return LedgerUnavailableError(
        f"{what} something that was never written there; the ledger was altered or is damaged: restore a copy of it."
    )


def _budget(row: Row) -> Budget:
    return Budget(**_intact(row, _budgets))


def _charge(row: Row, budget: Budget) -> Charge:
    cells = _intact(row, _charges)
    ways = {way: math.inf if cells[way] is None else cells[way] for way in WAYS}
    after = Spent(delta=budget.delta, at_budget=cells["at_budget"], **ways)
    if not math.isfinite(after.epsilon):  # no such charge was ever accepted
        raise _altered(f"the costs in {_charges.name!r} hold")
    document = parsed_json(cells["release"].encode())
    release = Release.from_json(document)
    kept = document.get(CERTIFICATE)
    return Charge(
        budget=cells["budget"],
        number=cells["number"],
        key=cells["key"],
        release=release,
        price=_stored_price(cells),
        cohort=cells["cohort"],
        plan_sha256=cells["plan_sha256"],
        spent_before=cells["spent_before"],
        after=after,
        created=cells["created"],
        certificate=None if kept is None else KeptProof.from_json(kept),
    )


def _stored_price(row: Row) -> Price | None:
    if row["cut"] is None:
        return None
    if row["rho"] is None:
        raise _altered(f"the price in {_charges.name!r} holds")
    largest = math.inf if row["largest_loss"] is None else row["largest_loss"]
    return Price(cut=row["cut"], rho=row["rho"], largest_loss=largest)
