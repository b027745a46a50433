"""Where a ledger is kept: what is opened, made and refused, and what is never shown."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from accounting import InvalidInputError, PrivkdeError
from privkde.engines import ThroughFiles, engine
from privkde.ledger import Ledger, LedgerAlteredError, LedgerUnavailableError, connecting, store
from privkde.ledger.records import Charge
from tests.privkde.ledger.charging import release
from tests.privkde.planted import FORGERIES, PLANTS, journal_of, log_to, plant_as_a_stranger, planted
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


def test_processes_that_open_a_ledger_with_a_log_at_once_all_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A regression: each kept its connection while it waited for those of the others."""
    path, together, brought_back = tmp_path / "ledger", threading.Barrier(3), connecting.leave_log
    Ledger.open(path).close()
    give_log(path)
    opened: list[bool] = []

    def wait_for_all(engine: sa.Engine) -> None:
        together.wait(30)
        brought_back(engine)

    def use() -> None:
        with Ledger.open(path, create=False) as ledger:
            opened.append(ledger.budgets() == ())

    monkeypatch.setattr(connecting, "PATIENCE", 10.0)
    monkeypatch.setattr(store, "leave_log", wait_for_all)
    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opened == [True] * 3


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
        for use in (
            lambda: ledger.charge("a", release(0.1), key="two"),
            lambda: ledger.backup(tmp_path / "backup"),
        ):
            with pytest.raises(LedgerAlteredError):
                use()
    assert [place.name for place in tmp_path.iterdir()] == ["ledger"]


@pytest.mark.parametrize("change", ["replaced", "a log is planted"])
def test_a_backup_is_not_of_another_file(tmp_path: Path, change: str) -> None:
    """The attack: what was not there any more was not in the backup, and that was called checked."""
    path = tmp_path / "ledger"
    with Ledger.open(path) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        ledger.backup(tmp_path / "old")
        ledger.charge("a", release(0.1), key="one")
        if change == "replaced":
            shutil.copy(tmp_path / "old", tmp_path / "put there")
            os.replace(tmp_path / "put there", path)
        else:
            Path(f"{path}-wal").write_bytes(log_to(tmp_path / "old"))
        with pytest.raises(LedgerAlteredError, match="replaced, removed, given a second name"):
            ledger.backup(tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_backup_holds_all_that_its_process_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if older bytes are there only while it is copied; what is charged after that need not be in it."""
    path, copy = tmp_path / "ledger", connecting.copy_file
    with Ledger.open(path) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        ledger.backup(tmp_path / "old")
        ledger.charge("a", release(0.1), key="one")

        def copied_early(engine: sa.Engine, temporary: Path) -> None:
            copy(engine, temporary)
            ledger.charge("a", release(0.1), key="two")

        def copied_another(_: sa.Engine, temporary: Path) -> None:
            shutil.copy(tmp_path / "old", temporary)

        monkeypatch.setattr(store, "copy_file", copied_early)
        assert ledger.backup(tmp_path / "early").rows == 2
        monkeypatch.setattr(store, "copy_file", copied_another)
        with pytest.raises(LedgerAlteredError, match="is not in it"):
            ledger.backup(tmp_path / "another")


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_nothing_takes_a_name_that_sqlite_deletes(tmp_path: Path, ending: str) -> None:
    """The attack: a backup, or another ledger, was deleted when the ledger was opened next."""
    path = tmp_path / "ledger"
    beside = Path(f"{path}{ending}")
    with Ledger.open(path) as ledger, Ledger.open(tmp_path / "other") as other:
        for use in (
            lambda: ledger.backup(beside),
            lambda: other.backup(beside),
            lambda: Ledger.open(beside),
            lambda: ThroughFiles(engine=engine("local"), folder=beside),
        ):
            with pytest.raises(InvalidInputError, match="choose another name"):
                use()
        Path(f"{tmp_path / 'copy'}{ending}").touch()
        with pytest.raises(InvalidInputError, match=f"copy{ending}' exists"):
            ledger.backup(tmp_path / "copy")
    assert sorted(place.name for place in tmp_path.iterdir()) == [f"copy{ending}", "ledger", "other"]


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """A folder as the system's temporary one: everybody makes files, and nobody touches those of others."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as somebody else")
    folder = tmp_path / "public"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.mark.parametrize("ending", FORGERIES)
@pytest.mark.parametrize("key", [None, b"k" * 32])
def test_who_can_only_make_files_beside_a_ledger_does_not_replace_it(
    tmp_path: Path, open_to_all: Path, ending: str, key: bytes | None
) -> None:
    """The attack: a journal or log of a ledger of one's own, with which SQLite overwrote all of another person's."""
    path, forged = open_to_all / "ledger", tmp_path / "forged"
    with Ledger.open(forged, key=key) as mine:
        mine.create("a", epsilon=100.0, delta=1e-6)
    with Ledger.open(path, key=key) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        ledger.charge("a", release(0.1), key="one")
        kept = path.read_bytes()
        plant_as_a_stranger(path, ending, FORGERIES[ending](forged))
        for use in (
            lambda: Ledger.open(path, create=False, key=key),
            lambda: ledger.charge("a", release(0.1), key="two"),
            lambda: ledger.backup(tmp_path / "backup"),
        ):
            with pytest.raises(LedgerAlteredError, match="need not be allowed to write"):
                use()
    assert path.read_bytes() == kept
    Path(f"{path}{ending}").unlink()
    with Ledger.open(path, create=False, key=key) as ledger:
        assert (ledger.standing("a").budget.epsilon, ledger.standing("a").n_charges) == (1.0, 1)


def test_nobody_else_makes_the_journal_of_a_transaction(open_to_all: Path) -> None:
    """The attack: a stranger made it once the lock was taken and kept a link; as root, SQLite gave it to the owner."""
    path = open_to_all / "ledger"
    journal = Path(f"{path}-journal")
    with Ledger.open(path) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        with ledger._store.transaction(writing=True):
            assert journal.stat().st_uid == path.stat().st_uid
            with pytest.raises(subprocess.CalledProcessError):
                plant_as_a_stranger(path, "-journal", b"")
        assert not journal.exists()


def test_a_journal_made_between_the_look_and_the_lock_is_refused(
    open_to_all: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = open_to_all / "ledger"
    with Ledger.open(path) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        monkeypatch.setattr(connecting, "take_journal", lambda _: plant_as_a_stranger(path, "-journal", b""))
        with pytest.raises(LedgerAlteredError, match="need not be allowed to write"):
            ledger.charge("a", release(0.1), key="one")
        monkeypatch.undo()
        Path(f"{path}-journal").unlink(missing_ok=True)
        assert ledger.standing("a").n_charges == 0


@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
def test_a_file_that_sqlite_would_delete_is_not_taken_for_a_part_of_a_new_ledger(tmp_path: Path, ending: str) -> None:
    precious = tmp_path / f"ledger{ending}"
    precious.write_text("kept", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="SQLite would delete it"):
        Ledger.open(tmp_path / "ledger")
    assert precious.read_text(encoding="utf-8") == "kept"
    assert not (tmp_path / "ledger").exists()


@pytest.mark.parametrize("ending", FORGERIES)
def test_the_forged_journal_and_log_are_obeyed_if_they_are_the_owners(tmp_path: Path, ending: str) -> None:
    """So the tests above test something; and what docs/reference/ledger.md says of the owner's own files."""
    for name, epsilon in (("ledger", 1.0), ("forged", 100.0)):
        with Ledger.open(tmp_path / name) as ledger:
            ledger.create("a", epsilon=epsilon, delta=1e-6)
    Path(f"{tmp_path / 'ledger'}{ending}").write_bytes(FORGERIES[ending](tmp_path / "forged"))
    with Ledger.open(tmp_path / "ledger", create=False) as ledger:
        assert ledger.standing("a").budget.epsilon == 100.0


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
