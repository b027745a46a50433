"""Where a ledger is kept: what is opened, made and refused, and what is never shown."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from accounting import InvalidInputError, PrivkdeError
from privkde.ledger import Ledger, LedgerAlteredError, LedgerUnavailableError, connecting, store
from privkde.ledger.records import Charge
from tests.privkde.ledger.charging import release
from tests.privkde.planted import PLANTS, journal_of, planted
from tests.privkde.postgres import Server


def test_a_newer_format_is_refused(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store, "VERSION", 4)
        Ledger.open(where).close()
    with pytest.raises(LedgerUnavailableError, match="format 4, but this privkde knows only 3"):
        Ledger.open(where)


def test_a_missing_ledger_is_made_only_if_asked_for(where: str) -> None:
    with pytest.raises(LedgerUnavailableError, match="no ledger"):
        Ledger.open(where, create=False)
    Ledger.open(where).close()
    Ledger.open(where, create=False).close()


def test_places_that_hold_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is a folder"):
        Ledger.open(tmp_path)
    with pytest.raises(InvalidInputError, match="does not exist"):
        Ledger.open(tmp_path / "none" / "ledger")
    (tmp_path / "text").write_text("no database, but long enough to be read as one" * 100)
    with pytest.raises(LedgerUnavailableError, match="not a database"):
        Ledger.open(tmp_path / "text")
    connection = sqlite3.connect(tmp_path / "other")
    connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()
    before = (tmp_path / "other").read_bytes()
    with pytest.raises(LedgerUnavailableError, match="holds 'songs'"):
        Ledger.open(tmp_path / "other")
    assert (tmp_path / "other").read_bytes() == before


def test_a_file_is_kept_as_promised(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger") as ledger, ledger._store.transaction() as rows:
        modes = [rows.connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
    assert modes == ["delete", 3]
    assert [path.name for path in tmp_path.iterdir()] == ["ledger"]


@pytest.mark.parametrize("key", [None, b"k" * 32])
def test_a_ledger_with_a_log_is_brought_back_when_it_is_opened(tmp_path: Path, key: bytes | None) -> None:
    path = tmp_path / "ledger"
    with Ledger.open(path, key=key) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        ledger.charge("a", release(0.1), key="one")
    give_log(path)
    with Ledger.open(path, create=False, key=key) as ledger:
        assert ledger.standing("a").n_charges == 1
        assert [path.name for path in tmp_path.iterdir()] == ["ledger"]


def test_a_ledger_with_a_log_that_is_in_use_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "PATIENCE", 0.05)
    path = tmp_path / "ledger"
    Ledger.open(path).close()
    give_log(path)
    other = sqlite3.connect(path)
    other.execute("SELECT * FROM privkde_head").fetchall()
    with pytest.raises(LedgerUnavailableError, match="locked; try again"):
        Ledger.open(path)
    other.close()
    Ledger.open(path).close()


def give_log(path: Path) -> None:
    """As any tool can, while nobody reads or writes."""
    tool = sqlite3.connect(path)
    assert tool.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    tool.close()


@pytest.mark.parametrize("change", ["replaced", "removed", "linked", "given a log", "pointed elsewhere"])
@pytest.mark.parametrize("key", [None, b"k" * 32])
def test_a_file_that_is_replaced_while_it_is_open_is_found(tmp_path: Path, change: str, key: bytes | None) -> None:
    """The attack: an old copy in its place. The open process went on with the file that had lost its name."""
    path, small = tmp_path / "ledger", release(0.1)
    if change == "pointed elsewhere":
        (tmp_path / "first").touch()
        path.symlink_to(tmp_path / "first")
    with Ledger.open(path, key=key) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        ledger.backup(tmp_path / "old")
        ledger.charge("a", small, key="one")
        if change == "linked":
            os.link(path, tmp_path / "other")
        elif change == "pointed elsewhere":
            path.unlink()
            path.symlink_to(tmp_path / "old")
        elif change == "given a log":
            give_log(path)
        else:
            path.unlink()
        if change == "replaced":
            shutil.copy(tmp_path / "old", path)
        for use in (lambda: ledger.charge("a", small, key="two"), lambda: ledger.standing("a"), ledger.verify):
            with pytest.raises(LedgerAlteredError, match="replaced, removed, given a second name"):
                use()
    if change == "linked":
        for name in (path, tmp_path / "other"):
            with pytest.raises(LedgerAlteredError, match="second name"):
                Ledger.open(name, key=key)


def test_older_bytes_in_the_same_file_are_found_by_whoever_saw_more(tmp_path: Path) -> None:
    """The attack: the file keeps its name and its identity, and its content goes back to before a charge."""
    path = tmp_path / "ledger"
    with Ledger.open(path) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        older = path.read_bytes()
        ledger.charge("a", release(0.1), key="one")
        path.write_bytes(older)
        with pytest.raises(LedgerAlteredError):
            ledger.charge("a", release(0.1), key="two")


@pytest.mark.parametrize("kind", PLANTS)
def test_a_planted_journal_is_refused_before_sqlite_obeys_it(tmp_path: Path, kind: str) -> None:
    """The attack: SQLite deleted the file that a journal named, whoever owned it, or waited at a pipe forever."""
    path = tmp_path / "ledger"
    (tmp_path / "linked").symlink_to(path)
    with Ledger.open(path) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        with planted(path, kind):
            for use in (
                lambda: Ledger.open(path, create=False),
                lambda: Ledger.open(tmp_path / "linked", create=False),
                lambda: ledger.charge("a", release(0.1), key="one"),
                lambda: ledger.standing("a"),
                lambda: ledger.backup(tmp_path / "backup"),
            ):
                with pytest.raises(
                    LedgerAlteredError, match=r"ledger-journal' .*; nothing was charged\. .* move it away"
                ):
                    use()
        journal = Path(f"{path}-journal")
        journal.rmdir() if kind == "folder" else journal.unlink()
        assert ledger.charge("a", release(0.1), key="one").number == 1


def test_the_journal_of_an_interrupted_charge_is_played_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger.open(path) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        Path(f"{path}-journal").write_bytes(journal_of(path))
        assert ledger.standing("a").n_charges == 0
        assert [place.name for place in tmp_path.iterdir()] == ["ledger"]


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("no_umask")
def test_a_new_ledger_is_for_its_owner_from_its_first_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: whoever may read the file reads without end, and every charge waits for that."""
    for change in ("chmod", "fchmod", "lchmod"):
        monkeypatch.delattr(os, change, raising=False)  # nothing is made wider first
    (tmp_path / "linked").symlink_to(tmp_path / "new")
    for place, made in (("ledger", "ledger"), ("linked", "new")):
        with Ledger.open(tmp_path / place) as ledger:
            ledger.backup(tmp_path / f"{made} again")
            with ledger._store.transaction(writing=True) as rows:
                rows.connection.exec_driver_sql("CREATE TABLE t (a)")
                assert mode(tmp_path / f"{made}-journal") == 0o600
                rows.connection.exec_driver_sql("DROP TABLE t")
        assert mode(tmp_path / made) == mode(tmp_path / f"{made} again") == 0o600


@pytest.mark.usefixtures("no_umask")
def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.touch(0o640)
    for _ in range(2):
        Ledger.open(path).close()
        assert mode(path) == 0o640


@pytest.mark.parametrize("step", ["_prepare", "verify"])
def test_a_file_that_is_replaced_while_it_is_being_opened_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The attack: what was opened had lost its name before anybody looked at the name, and charges were lost."""
    path = tmp_path / "ledger"
    with Ledger.open(path) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        ledger.backup(tmp_path / "copy")
    done: Any = getattr(store.Store, step)

    def replaced(*of: Any, **asked: Any) -> Any:
        result = done(*of, **asked)
        os.replace(tmp_path / "copy", path)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(store.Store, step, replaced)
        with pytest.raises(LedgerAlteredError):
            Ledger.open(path, create=False).standing("a")
    Ledger.open(path, create=False).close()


def test_a_new_ledger_that_is_replaced_while_it_is_being_made_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, made = tmp_path / "ledger", connecting.leave_log
    Ledger.open(tmp_path / "other").close()

    def replaced(engine: sa.Engine) -> None:
        made(engine)
        os.replace(tmp_path / "other", path)

    monkeypatch.setattr(store, "leave_log", replaced)
    with pytest.raises(LedgerAlteredError):
        Ledger.open(path)


def test_a_ledger_that_cannot_be_made_is_told_of_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("privkde.storage.files.os.open", denied)
    with pytest.raises(LedgerUnavailableError, match="cannot be made: Permission denied"):
        Ledger.open(tmp_path / "ledger")


def test_a_file_that_is_replaced_during_a_charge_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, append = tmp_path / "ledger", store.Rows.add_charge
    with Ledger.open(path) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        ledger.backup(tmp_path / "old")

        def replaced(rows: store.Rows, charge: Charge) -> None:
            append(rows, charge)
            os.replace(tmp_path / "old", path)

        monkeypatch.setattr(store.Rows, "add_charge", replaced)
        with pytest.raises(LedgerAlteredError, match="may be lost"):
            ledger.charge("a", release(0.1), key="one")


def test_a_locked_file_is_told_of_and_reading_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "PATIENCE", 0.05)
    with Ledger.open(tmp_path / "ledger") as ledger, Ledger.open(tmp_path / "ledger") as other:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        with other._store.transaction(writing=True):
            assert ledger.standing("a").spent == 0.0
            with pytest.raises(LedgerUnavailableError, match="locked; try again"):
                ledger.charge("a", release(0.1), key="k")
        ledger.charge("a", release(0.1), key="k")


@pytest.mark.extras
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://somebody:hunter2@127.0.0.1:1/db",
        "postgres://somebody:hunter2@127.0.0.1:1/db?connect_timeout=1",
        "postgresql://somebody@127.0.0.1:1/db?password=hunter2",
        "postgresql://somebody@127.0.0.1:hunter2/db",
        "mysql://somebody:hunter2@127.0.0.1/db",
    ],
)
def test_passwords_are_never_shown(url: str) -> None:
    with pytest.raises(PrivkdeError) as caught:
        Ledger.open(url)
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in str(error) + repr(error)
        error = error.__cause__ or error.__context__


def test_a_ledger_shows_where_it_is(where: str) -> None:
    with Ledger.open(where) as ledger:
        assert repr(ledger).startswith("Ledger(")
        assert where.partition("?")[0] in repr(ledger)
        assert "?" not in repr(ledger)


def test_missing_extras_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "privkde.ledger.store")
        patch.setitem(sys.modules, "sqlalchemy", None)
        with pytest.raises(InvalidInputError, match=r"privkde\[ledger\]"):
            Ledger.open(tmp_path / "ledger")

    def missing(*_: Any, **__: Any) -> Any:
        raise ModuleNotFoundError(name="psycopg")

    monkeypatch.setattr(sa, "create_engine", missing)
    with pytest.raises(InvalidInputError, match=r"privkde\[postgres\]"):
        Ledger.open("postgresql://localhost/db")


@pytest.mark.extras
def test_a_role_that_may_only_charge(postgres: Server) -> None:
    """What docs/reference/ledger.md asks for is enough to charge, and not enough to change what was charged."""
    url = postgres.database()
    role = f"charger_of_{sa.make_url(url).database}"
    Ledger.open(url).close()
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        for statement in (
            f"CREATE ROLE {role} LOGIN",
            f"GRANT SELECT ON privkde_ledger, privkde_head, privkde_budgets, privkde_charges, privkde_uses TO {role}",
            f"GRANT INSERT ON privkde_budgets, privkde_charges, privkde_uses TO {role}",
            f"GRANT UPDATE (created) ON privkde_budgets TO {role}",
            f"GRANT UPDATE ON privkde_head TO {role}",
        ):
            connection.exec_driver_sql(statement)
    engine.dispose()
    with Ledger.open(url.replace("tester@", f"{role}@"), create=False) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        ledger.charge("a", release(0.5), key="k")
        for statement in ("UPDATE privkde_budgets SET epsilon = 9", "DELETE FROM privkde_charges"):
            denied = pytest.raises(LedgerUnavailableError, match="permission denied")
            with denied, ledger._store.transaction(writing=True) as rows:
                rows.connection.exec_driver_sql(statement)
        assert ledger.standing("a").n_charges == 1


def _ask_everything(place: Path) -> None:
    with Ledger.open(place, create=False) as ledger:
        ledger.standing("a")
        ledger.uses("a")


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("privkde_charges", "pld", "secret"),
        ("privkde_charges", "basic", -1.0),
        ("privkde_charges", "adaptive", None),
        ("privkde_charges", "rho", None),
        ("privkde_charges", "created", b"secret"),
        ("privkde_charges", "release", "[" * 100_000),
        ("privkde_charges", "release", '{"name": ' + "9" * 5_000 + "}"),
        ("privkde_charges", "cohort", "secret\x1b[31m"),
        ("privkde_budgets", "epsilon", "secret"),
        ("privkde_uses", "number", "one"),
    ],
)
def test_a_cell_of_another_kind_is_refused_in_one_line(tmp_path: Path, table: str, column: str, value: object) -> None:
    """SQLite keeps anything in any column."""
    place = tmp_path / "ledger"
    with Ledger.open(place) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        ledger.charge("a", release(0.1).repeated(2), key="k", cohort="north")
        ledger.use("a", "k", key="first")
    connection = sqlite3.connect(place)
    connection.execute(f'UPDATE "{table}" SET "{column}" = ?', (value,))
    connection.commit()
    connection.close()
    with pytest.raises(PrivkdeError) as caught:
        _ask_everything(place)
    assert str(caught.value).isprintable()
    assert "secret" not in str(caught.value)
