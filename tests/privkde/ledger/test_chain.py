"""Whoever writes to the tables behind the library's back: what is found when, with and without a key."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa

from accounting import InvalidInputError
from privkde.ledger import BudgetExistsError, Head, Ledger, LedgerAlteredError, LedgerKeyError
from privkde.ledger.chain import NOTHING, Chain, Checked
from tests.privkde.ledger.charging import release
from tests.privkde.ledger.test_ledger import unchain
from tests.privkde.postgres import Server

KEY = b"a secret of thirty-two bytes or more"
CHARGES = 8
SCHEDULE = "weekly"
TABLES = ("privkde_uses", "privkde_charges", "privkde_budgets", "privkde_head")


def fill(where: str, key: bytes | None = None, *, charges: int = CHARGES) -> Head:
    """Two budgets (rows 1 and 2), the charges of the first, a schedule of the second and one of its uses."""
    with Ledger.open(where, key=key) as ledger:
        for name in ("a", "b"):
            ledger.create(name, epsilon=100.0, delta=1e-6, composition="basic")
        for number in range(charges):
            ledger.charge("a", release(0.5), key=f"key {number}")
        ledger.charge("b", release(0.1).repeated(4), key=SCHEDULE)
        ledger.use("b", SCHEDULE, key="week 1")
        return ledger.head()


def tamper(where: str, *statements: str) -> list[int]:
    """Write to the tables as anybody can who may; how many rows each statement changed."""
    url = sa.make_url(where).set(drivername="postgresql+psycopg") if "://" in where else f"sqlite:///{where}"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        changed = [connection.exec_driver_sql(statement).rowcount for statement in statements]
    engine.dispose()
    return changed


@contextmanager
def altered(where: str, *statements: str) -> Iterator[None]:
    """The tables with these changes; afterwards they are as before."""
    tamper(where, *(f"CREATE TABLE kept_{table} AS SELECT * FROM {table}" for table in TABLES))
    assert 0 not in tamper(where, *statements), "nothing was altered"
    yield
    tamper(where, *(f"DELETE FROM {table}" for table in TABLES))
    tamper(where, *(f"INSERT INTO {table} SELECT * FROM kept_{table}" for table in reversed(TABLES)))
    tamper(where, *(f"DROP TABLE kept_{table}" for table in TABLES))


def copied(target: str, origin: str, key: str) -> str:
    """A charge that looks like another one, but for its number and key."""
    names = "release, spent_before, basic, created, position, before, digest"
    return (
        f"INSERT INTO privkde_charges (budget, number, key, {names})"
        f" SELECT '{target}', 999, '{key}', {names.replace('position', 'NULL')} FROM privkde_charges"
        f" WHERE budget = '{origin}' AND number = 1"
    )


SWAP = tuple(
    f"UPDATE privkde_charges SET number = {to} WHERE budget = 'a' AND number = {number}"
    for number, to in ((3, 1000), (4, 3), (1000, 4))
)
ATTACKS: dict[str, tuple[tuple[str, ...], str]] = {
    "a charge in the middle": (("DELETE FROM privkde_charges WHERE number = 7",), "row 9 is missing, before row 10"),
    "the last row": (("DELETE FROM privkde_uses",), f"row {CHARGES + 4} is missing, and all after it"),
    "a budget and its rows": (
        ("DELETE FROM privkde_uses", "DELETE FROM privkde_charges WHERE budget = 'b'",
         "DELETE FROM privkde_budgets WHERE name = 'b'"),
        "row 2 is missing",
    ),
    "an amount": (("UPDATE privkde_charges SET spent_before = 0 WHERE number = 6",), r"row 8 \(privkde_charges"),
    "a release": (
        ("UPDATE privkde_charges SET release = replace(release, '0.5', '0.1') WHERE number = 2",), r"row 4 \("),
    "a cohort": (("UPDATE privkde_charges SET cohort = 'nobody' WHERE number = 2",), r"row 4 \("),
    "a budget's size": (("UPDATE privkde_budgets SET epsilon = 1000 WHERE name = 'b'",), r"row 2 \(privkde_budgets"),
    "a use": (("UPDATE privkde_uses SET number = 9",), rf"row {CHARGES + 4} \(privkde_uses"),
    "two rows swapped": (SWAP, r"row 5 \(privkde_charges: budget 'a', number '4'\) is not what was written"),
    "a row inserted": ((copied("a", "a", "new"),), r"row 0 \(privkde_charges.*'999'\) was inserted"),
    "a row replaced": (("DELETE FROM privkde_uses", copied("b", "a", "new")), r"row 0 \(privkde_charges.*was inserted"),
    "the head removed": (("DELETE FROM privkde_head",), "has 0 heads"),
    "the head altered": (("UPDATE privkde_head SET rows = 9",), "altered"),
}  # fmt: skip


@pytest.fixture(params=[None, KEY], ids=["without key", "with key"])
def key(request: pytest.FixtureRequest) -> bytes | None:
    chosen: bytes | None = request.param
    return chosen


def test_every_attack_is_found_on_opening_and_nothing_is_charged(where: str, key: bytes | None) -> None:
    fill(where, key)
    for name, (statements, message) in ATTACKS.items():
        with altered(where, *statements):
            for _ in range(2):  # finding it repairs nothing
                with pytest.raises(LedgerAlteredError, match=message) as caught:
                    Ledger.open(where, key=key)
            assert "Restore a backup" in str(caught.value), name
            assert "\n" not in str(caught.value)
        Ledger.open(where, key=key).close()


def test_the_last_50_charges_cannot_be_forgotten(where: str) -> None:
    fill(where, charges=53)
    assert tamper(where, "DELETE FROM privkde_charges WHERE budget = 'a' AND number > 3") == [50]
    with pytest.raises(LedgerAlteredError, match="row 6 is missing, before row 56"):
        Ledger.open(where)


def test_every_attack_on_an_open_ledger_is_found_by_whoever_reads_the_row(where: str) -> None:
    """Rows are checked when they are read; and there must be as many as there were."""
    fill(where)
    for name, (statements, _) in ATTACKS.items():
        with Ledger.open(where) as ledger, altered(where, *statements), pytest.raises(LedgerAlteredError):
            spend_everywhere(ledger, name)
    with Ledger.open(where) as ledger:
        assert ledger.charge("a", release(0.5), key="after all").number == CHARGES + 1


def spend_everywhere(ledger: Ledger, name: str) -> None:
    ledger.use("b", SCHEDULE, key=name)
    for budget in ("a", "b"):
        ledger.charge(budget, release(0.5), key=name)


def test_a_chain_is_what_it_says(tmp_path: Path) -> None:
    """Digests by the definition, from the rows as another program reads them."""
    head = fill(str(tmp_path / "ledger"))
    connection = sqlite3.connect(tmp_path / "ledger")
    connection.row_factory = sqlite3.Row
    rows = []
    for table in TABLES[:3]:
        rows += [(table, dict(row)) for row in connection.execute(f"SELECT * FROM {table}")]
    connection.close()
    last = "0" * 64
    for position, (table, row) in enumerate(sorted(rows, key=lambda pair: pair[1]["position"]), 1):
        digest = row.pop("digest")
        assert (row["position"], row["before"]) == (position, last)
        text = json.dumps({"row": row, "table": table}, sort_keys=True, separators=(",", ":"))
        assert digest == sha256(text.encode()).hexdigest()
        last = digest
    assert head == Head(rows=CHARGES + 4, digest=last)


def test_a_row_that_another_process_appends_during_a_check_is_no_alteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer on a server reads the head first and then rows, and others may write in between."""
    where = str(tmp_path / "ledger")
    before = fill(where)
    with Ledger.open(where) as ledger:
        ledger.charge("a", release(0.1), key="meanwhile")
        with ledger._store._begun(writing=True) as connection:
            monkeypatch.setattr(Chain, "_signed_head", lambda *_: before)
            assert ledger._store._chain.check(connection, NOTHING).head == before


def shortened(where: str, digest: str) -> tuple[str, ...]:
    """The last row goes, and the head is set back to the row before it."""
    return (
        "DELETE FROM privkde_uses",
        f"UPDATE privkde_head SET rows = {CHARGES + 3}, digest = '{digest}'",
    )


def test_a_head_that_is_set_back_is_found_with_a_key_or_an_exported_head(where: str, key: bytes | None) -> None:
    """Without either, a ledger that ends earlier is a ledger: the documentation says so."""
    exported = fill(where, key)
    with Ledger.open(where, key=key) as ledger, ledger._store.transaction() as rows:
        query = "SELECT digest FROM privkde_charges WHERE budget = 'b'"
        last = rows.connection.exec_driver_sql(query).scalar_one()
    with altered(where, *shortened(where, last)):
        if key is not None:
            with pytest.raises(LedgerAlteredError, match="the key does not fit its head"):
                Ledger.open(where, key=key)
            return
        with Ledger.open(where) as ledger:
            assert ledger.verify() == Head(rows=CHARGES + 3, digest=last)
            for known in (exported, Head(rows=None, digest=exported.digest)):
                with pytest.raises(LedgerAlteredError, match=r"exported head .* is not in it"):
                    ledger.verify(known)


def test_an_old_copy_is_found_by_an_exported_head_only(tmp_path: Path, key: bytes | None) -> None:
    where = str(tmp_path / "ledger")
    early = fill(where, key)
    shutil.copy(where, tmp_path / "old")
    with Ledger.open(where, key=key) as ledger:
        ledger.charge("a", release(0.5), key="later")
        late = ledger.head()
        assert ledger.verify(early) == ledger.verify(late) == late
        assert ledger.verify(Head(rows=0, digest="0" * 64)) == late
        with pytest.raises(LedgerAlteredError):
            ledger.verify(Head(rows=1, digest=late.digest))
    shutil.copy(tmp_path / "old", where)
    with Ledger.open(where, key=key) as ledger:
        assert ledger.verify() == early  # nothing is found
        with pytest.raises(LedgerAlteredError, match=f"of {late.rows} rows is not in it"):
            ledger.verify(late)


def test_a_ledger_set_back_under_an_open_process_is_found(tmp_path: Path, key: bytes | None) -> None:
    """Whoever has it open remembers how far it was."""
    fill(str(tmp_path / "ledger"), key)
    with Ledger.open(tmp_path / "ledger", key=key) as ledger:
        ledger.backup(tmp_path / "old")
        ledger.charge("a", release(0.5), key="later")
        old, now = sqlite3.connect(tmp_path / "old"), sqlite3.connect(tmp_path / "ledger")
        old.backup(now)
        old.close()
        now.close()
        with pytest.raises(LedgerAlteredError, match="rows and had"):
            ledger.charge("a", release(0.5), key="last")


def test_with_a_key_nobody_else_can_write_rows(where: str) -> None:
    fill(where, KEY)
    for wrong, error, message in (
        (None, LedgerKeyError, "has a key"),
        (KEY[::-1], LedgerAlteredError, "the key of another ledger"),
        (b"short", InvalidInputError, "at least 32 bytes"),
    ):
        with pytest.raises(error, match=message) as caught:
            Ledger.open(where, key=wrong)
        assert str(wrong) not in str(caught.value)
    with altered(where, "UPDATE privkde_head SET signature = NULL"):
        with pytest.raises(LedgerKeyError, match="it was replaced"):
            Ledger.open(where, key=KEY)
        with pytest.raises(LedgerAlteredError, match=r"row 1 \("):
            Ledger.open(where)


def test_a_key_is_given_once_and_after_a_check(where: str) -> None:
    fill(where)
    with pytest.raises(LedgerKeyError, match="`privkde budget seal` gives it one"):
        Ledger.open(where, key=KEY)
    with Ledger.open(where) as ledger:
        for budget in "aba":  # rows of two budgets take turns
            ledger.charge(budget, release(0.5), key=f"charge {len(ledger.history(budget))}")
        ledger.create("c", epsilon=1.0, delta=0.0)
        head = ledger.head()
        change = "UPDATE privkde_charges SET spent_before = 0 WHERE number = 6"
        with altered(where, change), pytest.raises(LedgerAlteredError):
            ledger.seal(KEY)
        with pytest.raises(InvalidInputError, match="at least 32 bytes"):
            ledger.seal(b"short")
        assert ledger.verify() == head
        sealed = ledger.seal(KEY)
        assert (sealed.rows, sealed.digest != head.digest) == (head.rows, True)
        ledger.charge("a", release(0.5), key="with the key")
        with pytest.raises(LedgerKeyError, match="has a key already"):
            ledger.seal(KEY)
    with Ledger.open(where, key=KEY) as ledger:
        assert ledger.verify(sealed).rows == CHARGES + 9


def test_a_key_is_not_shown() -> None:
    shown = repr(Chain(shown="ledger", tables=(), head=sa.Table("head", sa.MetaData()), key=KEY))
    assert "ledger" in shown
    assert KEY.decode() not in shown


def test_a_format_that_was_set_back_is_not_signed(tmp_path: Path) -> None:
    fill(str(tmp_path / "ledger"), KEY)
    with sqlite3.connect(tmp_path / "ledger") as connection:
        unchain(connection)
        connection.execute("DELETE FROM privkde_charges WHERE budget = 'a'")
        connection.execute("UPDATE privkde_ledger SET version = 2")
    connection.close()
    with pytest.raises(LedgerKeyError, match="format 2, which has no key"):
        Ledger.open(tmp_path / "ledger", key=KEY)


def test_a_missing_chain_is_not_made_again(where: str) -> None:
    fill(where)
    tamper(where, "DROP TABLE privkde_head")
    with pytest.raises(LedgerAlteredError, match="'privkde_head' is missing"):
        Ledger.open(where)


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("privkde_charges", "position", ["'text'", "x'00ff'", "9e999", "-1", "NULL"]),
        ("privkde_charges", "basic", ["'text'", "x'00ff'", "9e999", "-1", "NULL"]),
        ("privkde_head", "rows", ["-1", "1"]),
        ("privkde_head", "digest", ["'text'", "x'00ff'", "9e999", "-1"]),
    ],
)
def test_values_of_another_kind_are_altered_rows(tmp_path: Path, table: str, column: str, values: list[str]) -> None:
    """SQLite stores anything in most columns."""
    where = str(tmp_path / "ledger")
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=1.0, delta=0.0, composition="basic")
        ledger.charge("a", release(0.5), key="k")
    for value in values:
        assert tamper(where, f"UPDATE {table} SET {column} = {value}") == [1]
        with pytest.raises(LedgerAlteredError):
            Ledger.open(where)


def test_a_backup_is_whole_and_checked(tmp_path: Path, key: bytes | None) -> None:
    head = fill(str(tmp_path / "ledger"), key)
    with Ledger.open(tmp_path / "ledger", key=key) as ledger:
        assert ledger.backup(tmp_path / "copy") == head
        ledger.charge("a", release(0.5), key="later")
        with pytest.raises(InvalidInputError, match="exists; name a new file"):
            ledger.backup(tmp_path / "copy")
        tamper(str(tmp_path / "ledger"), "DELETE FROM privkde_uses")
        with pytest.raises(LedgerAlteredError):
            ledger.backup(tmp_path / "of-an-altered-one")
    with Ledger.open(tmp_path / "copy", key=key) as copy:
        assert copy.verify(head) == head
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "ledger"]


@pytest.mark.extras
def test_a_server_is_backed_up_by_its_own_tools(postgres: Server, tmp_path: Path) -> None:
    with Ledger.open(postgres.database()) as ledger, pytest.raises(InvalidInputError, match="pg_dump"):
        ledger.backup(tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"schema": "privkde.head/1"},
        {"schema": "privkde.head/2", "rows": 1, "digest": "0" * 64},
        {"schema": "privkde.head/1", "rows": True, "digest": "0" * 64},
        {"schema": "privkde.head/1", "rows": -1, "digest": "0" * 64},
        {"schema": "privkde.head/1", "rows": 1, "digest": "0" * 63},
        {"schema": "privkde.head/1", "rows": 1, "digest": 7},
        {"schema": "privkde.head/1", "rows": 1, "digest": "0" * 64, "more": 1},
    ],
)
def test_a_head_is_read_strictly(document: object) -> None:
    with pytest.raises(InvalidInputError):
        Head.from_json(document)


def test_a_head_is_read_as_it_was_written() -> None:
    head = Head(rows=3, digest="a" * 64)
    assert Head.from_json(json.loads(json.dumps(head.to_json()))) == head


def test_a_trigger_that_undoes_charges_is_found_when_one_is_made(tmp_path: Path) -> None:
    """A regression: charges were acknowledged, deleted by the database itself, and nothing was spent."""
    where = str(tmp_path / "ledger")
    fill(where, KEY)
    tamper(
        where,
        "CREATE TABLE saved AS SELECT * FROM privkde_head",
        "CREATE TRIGGER undo AFTER UPDATE ON privkde_head BEGIN"
        " DELETE FROM privkde_charges WHERE position > (SELECT rows FROM saved);"
        " DELETE FROM privkde_head; INSERT INTO privkde_head SELECT * FROM saved; END",
    )
    with Ledger.open(where, key=KEY) as ledger, pytest.raises(LedgerAlteredError, match="trigger"):
        ledger.charge("a", release(0.1), key="new")


def misled(where: str, table: str, columns: str, index: str) -> None:
    """An index of a table with this name finds nothing any more; no row is touched."""
    database = sqlite3.connect(where, isolation_level=None)
    database.execute(f"CREATE UNIQUE INDEX hides ON {table}({columns}) WHERE position > 1000000")
    (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'hides'").fetchone()
    database.execute("PRAGMA writable_schema = ON")
    database.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", [page, index])
    database.execute("DELETE FROM sqlite_master WHERE name = 'hides'")
    database.execute("PRAGMA writable_schema = RESET")
    database.close()


MISLED = [
    ("privkde_charges", "budget, number"),
    ("privkde_uses", "budget, schedule, number"),
    ("privkde_budgets", "name"),
]


@pytest.mark.parametrize(("table", "columns"), MISLED)
def test_an_index_that_hides_rows_is_found_on_opening_and_where_rows_are_looked_up(
    tmp_path: Path, table: str, columns: str
) -> None:
    """A regression: the chain was whole, key and exported head fit, and a budget was spent twice or made anew."""
    where = str(tmp_path / "ledger")
    head = fill(where, KEY)
    with Ledger.open(where, key=KEY) as ledger:
        misled(where, table, columns, f"sqlite_autoindex_{table}_1")
        attempts: list[Callable[[], object]] = [
            lambda: ledger.use("b", SCHEDULE, key="week 2"),
            lambda: ledger.standing("b"),
        ]
        if table != "privkde_uses":
            attempts += [lambda: ledger.charge("b", release(0.5), key="again"), lambda: ledger.history("b")]
        for attempt in attempts:
            with pytest.raises(LedgerAlteredError, match=f"{table!r} shows other rows"):
                attempt()
        with pytest.raises(BudgetExistsError):
            ledger.create("b", epsilon=1000.0, delta=1e-6)
        assert ledger.head() == head
        with pytest.raises(LedgerAlteredError, match="its rows fit, and its file does not"):
            ledger.verify(head)
    with pytest.raises(LedgerAlteredError, match="its rows fit, and its file does not"):
        Ledger.open(where, key=KEY)


def test_a_row_that_only_a_scan_shows_does_not_make_an_exported_head_true(tmp_path: Path) -> None:
    """The check saw a ledger that was set back; a search of the table shows the row that was hidden from it."""
    where = str(tmp_path / "ledger")
    fill(where, KEY)
    with Ledger.open(where, key=KEY) as ledger:
        ledger.charge("a", release(0.5), key="later")
        late = ledger.head()
        with ledger._store.transaction() as rows:
            shorter = {group: digests[:-1] for group, digests in rows.checked.digests.items()}
            with pytest.raises(LedgerAlteredError, match="is not in it"):
                rows.chain.find(rows.connection, late, Checked(rows.checked.head, shorter))


def test_a_format_that_is_set_back_does_not_chain_altered_rows(where: str) -> None:
    """A regression: rows were deleted, the version lowered, and what was left was chained anew."""
    fill(where)
    tamper(where, "DELETE FROM privkde_uses", "UPDATE privkde_ledger SET version = version - 1")
    with pytest.raises(LedgerAlteredError, match="says that its format is 2"):
        Ledger.open(where)
