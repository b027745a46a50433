"""Tables of a ledger and transactions on them, the same for SQLite and PostgreSQL. No rules, only rows."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from accounting.releases.adaptive import Price
from accounting.releases.composing import WAYS, Spent, finite
from accounting.releases.release import Release
from privkde.ledger.connecting import READING, engine_for, lock_creation, prepare_creation, reason
from privkde.ledger.records import Budget, Charge, Use, require_name
from privkde.ledger.refusals import BudgetExistsError, LedgerUnavailableError, UnknownBudgetError
from privkde.storage.json_text import parsed_json

VERSION = 3
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
    sa.UniqueConstraint("budget", "schedule", "key"),
)
_SINCE = {
    2: (_budgets.c.order, _charges.c.cohort, _charges.c.renyi, _charges.c.adaptive, _charges.c.at_budget),
    3: (_charges.c.cut, _charges.c.rho, _charges.c.largest_loss),
}
"""Columns that each version added; empty in older rows. The table of uses came with version 2."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows as one transaction sees them."""

    connection: sa.Connection

    def budgets(self) -> tuple[Budget, ...]:
        """All budgets, by name."""
        return tuple(_budget(row) for row in self.connection.execute(sa.select(_budgets).order_by(_budgets.c.name)))

    def budget(self, name: str, *, lock: bool = False) -> Budget:
        """The budget of this name; with `lock`, nobody else can charge it until this transaction ends."""
        query = sa.select(_budgets).where(_budgets.c.name == require_name(name))
        row = self.connection.execute(query.with_for_update() if lock else query).one_or_none()
        if row is None:
            raise UnknownBudgetError(f"there is no budget {name!r}; create it first, or list the budgets.")
        return _budget(row)

    def charges(self, budget: Budget, *, after: int = 0) -> tuple[Charge, ...]:
        """The budget's charges in order, from the one after number `after` on."""
        query = sa.select(_charges).where(_charges.c.budget == budget.name, _charges.c.number > after)
        return tuple(_charge(row, budget) for row in self.connection.execute(query.order_by(_charges.c.number)))

    def uses(self, charge: Charge) -> tuple[Use, ...]:
        """The times of a schedule that were used, in order."""
        query = sa.select(_uses).where(_uses.c.budget == charge.budget, _uses.c.schedule == charge.key)
        return tuple(Use(**_intact(row, _uses)) for row in self.connection.execute(query.order_by(_uses.c.number)))

    def add_use(self, use: Use) -> None:
        """Insert a use; the caller holds the lock of its budget."""
        self.connection.execute(sa.insert(_uses).values(use.to_json()))

    def add_budget(self, budget: Budget) -> None:
        """Insert a budget, or raise `BudgetExistsError`."""
        row = {column.name: getattr(budget, column.name) for column in _budgets.columns}
        row |= {"view": str(budget.view), "composition": str(budget.composition)}
        try:
            self.connection.execute(sa.insert(_budgets).values(row))
        except IntegrityError as error:
            message = f"budget {budget.name!r} exists and cannot be changed; choose another name."
            raise BudgetExistsError(message) from error

    def add_charge(self, charge: Charge) -> None:
        """Insert a charge; the caller holds the lock of its budget."""
        row: dict[str, Any] = {
            name: getattr(charge, name)
            for name in ("budget", "number", "key", "cohort", "plan_sha256", "spent_before", "created")
        }
        row["release"] = json.dumps(charge.release.to_json(), allow_nan=False)
        row |= {way: finite(getattr(charge.after, way)) for way in WAYS} | {"at_budget": charge.after.at_budget}
        row |= {} if charge.price is None else charge.price.to_json()
        self.connection.execute(sa.insert(_charges).values(row))


class Store:
    """An open database."""

    def __init__(self, where: str | Path, *, create: bool) -> None:
        self._engine, self.shown = engine_for(where, create=create)
        try:
            self._prepare(create=create)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def transaction(self, *, writing: bool = False) -> Iterator[Rows]:
        """One transaction: all of it is on the disk when the block has ended, or none of it ever is."""
        with self._translated(), self._engine.connect() as connection:
            connection.execution_options(**{READING: not writing})
            with connection.begin():
                yield Rows(connection)

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
        with self.transaction() as rows:
            version = _stored_version(rows.connection)
            if version is None:
                self._refuse_creation(rows.connection, create=create)
        if version is None:
            with self._translated():
                prepare_creation(self._engine)
            with self.transaction(writing=True) as rows:
                lock_creation(rows.connection)
                version = _stored_version(rows.connection)  # another process may have been faster
                if version is None:
                    _tables.create_all(rows.connection)
                    rows.connection.execute(sa.insert(_version).values(version=VERSION))
                    version = VERSION
        if version < VERSION:
            self._bring_up_to_date()
        elif version != VERSION:
            raise LedgerUnavailableError(
                f"ledger {self.shown!r} has format {version}, but this privkde knows only {VERSION}; update privkde."
            )

    def _bring_up_to_date(self) -> None:
        """Add what later versions have: all at once, and never twice."""
        with self.transaction(writing=True) as rows:
            lock_creation(rows.connection)
            version = _stored_version(rows.connection)
            if version is None or version >= VERSION:  # another process may have been faster
                return
            quote = rows.connection.dialect.identifier_preparer.quote
            for column in (column for since, added in _SINCE.items() if since > version for column in added):
                table, name, kind = (
                    quote(column.table.name),
                    quote(column.name),
                    column.type.compile(rows.connection.dialect),
                )
                rows.connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
            _uses.create(rows.connection, checkfirst=True)
            rows.connection.execute(sa.update(_version).values(version=VERSION))

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


def _intact(row: sa.Row[Any], table: sa.Table) -> dict[str, Any]:
    """The cells of a row by name: texts and numbers, as declared. SQLite keeps anything in any column."""
    cells = dict(row._mapping)
    for column in table.columns:
        value, kind = cells[column.name], column.type.python_type
        if value is None and column.nullable:
            continue
        fits = isinstance(value, kind) and (kind is not float or 0.0 <= value < math.inf)
        if not fits or (kind is str and not value.isprintable()):
            raise _altered(f"column {column.name!r} of {table.name!r} holds")
    return cells


def _altered(what: str) -> LedgerUnavailableError:
    return LedgerUnavailableError(
        f"{what} something that was never written there; the ledger was altered or is damaged: restore a copy of it."
    )


def _budget(row: sa.Row[Any]) -> Budget:
    return Budget(**_intact(row, _budgets))


def _charge(row: sa.Row[Any], budget: Budget) -> Charge:
    _intact(row, _charges)
    ways = {way: math.inf if getattr(row, way) is None else getattr(row, way) for way in WAYS}
    after = Spent(delta=budget.delta, at_budget=row.at_budget, **ways)
    if not math.isfinite(after.epsilon):  # no such charge was ever accepted
        raise _altered(f"the costs in {_charges.name!r} hold")
    return Charge(
        budget=row.budget,
        number=row.number,
        key=row.key,
        release=Release.from_json(parsed_json(row.release.encode())),
        price=_stored_price(row),
        cohort=row.cohort,
        plan_sha256=row.plan_sha256,
        spent_before=row.spent_before,
        after=after,
        created=row.created,
    )


def _stored_price(row: sa.Row[Any]) -> Price | None:
    if row.cut is None:
        return None
    if row.rho is None:
        raise _altered(f"the price in {_charges.name!r} holds")
    return Price(cut=row.cut, rho=row.rho, largest_loss=math.inf if row.largest_loss is None else row.largest_loss)
