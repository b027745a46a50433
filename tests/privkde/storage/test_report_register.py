"""Reports are taken once: in one run, over releases, in another process, after an interruption."""

import multiprocessing
import os
import sqlite3
import stat
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from accounting.errors import InvalidInputError
from privkde.storage import report_register
from privkde.storage.container import DamagedFileError
from privkde.storage.report_register import CountedRelease, ReportRegister, register_beside
from tests.privkde.planted import FORGERIES, PLANTS, plant_as_a_stranger, planted

SHOP = b"the shop"


def report(number: int) -> bytes:
    return number.to_bytes(16, "big")


def release(number: int, n_users: int = 1, *, secret: bool = True) -> CountedRelease:
    ones, zeros = np.array([number, 2**40]), np.array([0, number])
    return CountedRelease(release_id=report(number), n_users=n_users, secret=secret, ones=ones, zeros=zeros)


def plain(counted: CountedRelease) -> tuple[bytes, int, bool, list[int], list[int]]:
    counts = counted.ones.tolist(), counted.zeros.tolist()
    return counted.release_id, counted.n_users, counted.secret, *counts


@pytest.mark.parametrize("kept", [False, True], ids=["temporary", "file"])
def test_a_report_is_taken_once_over_all_releases(tmp_path: Path, kept: bool) -> None:
    with ReportRegister(SHOP, tmp_path / "a.reports" if kept else None) as register:
        assert [register.add(report(number)) for number in (1, 2, 1)] == [True, True, False]
        register.release(release(1, 2))
        assert [register.add(report(number)) for number in (1, 2, 3)] == [False, False, True]
        assert report(1) in register
        assert report(4) not in register
        register.release(release(2, secret=False))
        assert sorted(register.reports()) == [report(1), report(2), report(3)]
        assert [plain(one) for one in register.releases()] == [plain(release(1, 2)), plain(release(2, secret=False))]
    assert [path.name for path in tmp_path.iterdir()] == (["a.reports"] if kept else [])


def test_a_restart_remembers_what_was_released_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.reports"
    with ReportRegister(SHOP, path) as register:
        register.add(report(1))
        register.release(release(1))
        register.add(report(2))  # and then the process ends
    with ReportRegister(SHOP, path) as register:
        assert [register.add(report(number)) for number in (1, 2)] == [False, True]
        register.forget()
        assert register.add(report(2))
        assert [plain(one) for one in register.releases()] == [plain(release(1))]


def test_what_is_released_stays_after_a_power_loss(tmp_path: Path) -> None:
    """A journal whose removal is not on the disk is played back, and reports that were counted are new again."""
    with ReportRegister(SHOP, tmp_path / "a.reports") as register:
        modes = [register._database.execute(f"PRAGMA {name}").fetchone() for name in ("journal_mode", "synchronous")]
    assert modes == [("delete",), (3,)]


@pytest.mark.parametrize("kind", PLANTS)
def test_a_planted_journal_is_refused_before_sqlite_obeys_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.reports"
    with ReportRegister(SHOP, path) as register:
        register.issue()
        with planted(path, kind):
            for use in (
                lambda: ReportRegister(SHOP, path),
                lambda: register.add(report(1)),
                lambda: report(1) in register,
                register.releases,
                register.issue,
            ):
                with pytest.raises(DamagedFileError, match=r"a\.reports-journal' .*; .* move it away"):
                    use()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")
@pytest.mark.parametrize("ending", FORGERIES)
def test_who_can_only_make_files_beside_a_register_does_not_replace_it(tmp_path: Path, ending: str) -> None:
    """The attack: a journal or log of an empty register, and all reports were new again."""
    folder, forged = tmp_path / "public", tmp_path / "forged"
    folder.mkdir()
    folder.chmod(0o1777)
    ReportRegister(SHOP, forged).close()
    with ReportRegister(SHOP, folder / "a.reports") as register:
        register.add(report(1))
        register.release(release(1))
    plant_as_a_stranger(folder / "a.reports", ending, FORGERIES[ending](forged))
    with pytest.raises(DamagedFileError, match="need not be allowed to write"):
        ReportRegister(SHOP, folder / "a.reports")
    (folder / f"a.reports{ending}").unlink()
    with ReportRegister(SHOP, folder / "a.reports") as register:
        assert not register.add(report(1))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as somebody else")
def test_nobody_else_makes_the_journal_of_a_register(tmp_path: Path) -> None:
    """The attack: a stranger made it after the lock was taken, and kept it open for writing."""
    folder = tmp_path / "public"
    folder.mkdir()
    folder.chmod(0o1777)
    path = folder / "a.reports"
    with ReportRegister(SHOP, path) as register:
        with register.counting(), pytest.raises(subprocess.CalledProcessError):
            plant_as_a_stranger(path, "-journal", b"")
        assert not Path(f"{path}-journal").exists()
        assert register.add(report(1))


def test_a_register_takes_no_name_that_sqlite_deletes(tmp_path: Path) -> None:
    ReportRegister(SHOP, tmp_path / "a").close()
    with pytest.raises(InvalidInputError, match="choose another name"):
        ReportRegister(SHOP, tmp_path / "a-journal")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_new_register_is_for_its_owner_and_one_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    (tmp_path / "there").chmod(0o640)
    before = os.umask(0)
    try:
        for name, mode in (("new", 0o600), ("there", 0o640)):
            ReportRegister(SHOP, tmp_path / name).close()
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
    finally:
        os.umask(before)


def interrupted(path: Path, before_release: bool) -> None:
    register = ReportRegister(SHOP, path)
    register.add(report(1))
    if not before_release:
        register.release(release(1))
    os._exit(9)


@pytest.mark.parametrize("before_release", [True, False])
def test_a_killed_process_leaves_all_of_a_release_or_nothing(tmp_path: Path, before_release: bool) -> None:
    path = tmp_path / "a.reports"
    killed = multiprocessing.get_context("fork").Process(target=interrupted, args=(path, before_release))
    killed.start()
    killed.join()
    assert killed.exitcode == 9
    with ReportRegister(SHOP, path) as register:
        assert len(register.releases()) == (0 if before_release else 1)
        assert register.add(report(1)) is before_release


def test_what_a_count_does_not_release_is_forgotten(tmp_path: Path) -> None:
    with ReportRegister(SHOP, tmp_path / "a.reports") as register:
        with register.counting():
            assert register.add(report(1))
        with register.counting():
            assert register.add(report(1))
            register.release(release(1))
        assert not register.add(report(1))


def test_one_run_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.reports"
    monkeypatch.setattr(report_register, "PATIENCE", 0.01)
    with ReportRegister(SHOP, path) as register:
        register.add(report(1))
        with pytest.raises(InvalidInputError, match=r"cannot be used .*locked.*; wait for the run that uses it"):
            ReportRegister(SHOP, path)
        register.release(release(1))
        with ReportRegister(SHOP, path) as other:
            assert report(1) in other


def test_other_files_and_other_collections_are_refused(tmp_path: Path) -> None:
    ReportRegister(SHOP, tmp_path / "a.reports").close()
    with pytest.raises(InvalidInputError, match="belongs to another collection"):
        ReportRegister(b"a market", tmp_path / "a.reports")
    (tmp_path / "text").write_text("no database\n" * 100, encoding="utf-8")
    with pytest.raises(DamagedFileError, match="is not a register of reports"):
        ReportRegister(SHOP, tmp_path / "text")
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE t (a)")
    with pytest.raises(DamagedFileError, match="is not a register of reports"):
        ReportRegister(SHOP, tmp_path / "other")
    with pytest.raises(InvalidInputError, match="choose a place that can be written"):
        ReportRegister(SHOP, tmp_path / "nowhere" / "a.reports")
    assert register_beside(tmp_path / "shop.json") == tmp_path / "shop.json.reports"


def test_threads_share_a_register() -> None:
    taken: list[int] = []
    with ReportRegister(SHOP) as register:

        def send() -> None:
            taken.append(sum(register.add(report(number)) for number in range(200)))

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sum(taken) == 200


# A file that somebody altered -----------------------------------------------------------------------------------------

OTHER = "its tables, indexes or triggers are not those of a register"
MORE = "it does not hold as many reports as its releases have users"


@pytest.mark.parametrize(
    ("attack", "found"),
    [
        ("DELETE FROM reports", MORE),
        ("DELETE FROM reports WHERE release = 2", MORE),
        ("DELETE FROM releases", MORE),
        ("DELETE FROM releases WHERE number = 2", MORE),
        ("DELETE FROM releases WHERE number = 1", "a release is missing"),
        ("DELETE FROM reports WHERE release = 1; DELETE FROM releases WHERE number = 1", "a release is missing"),
        ("UPDATE reports SET release = 2", MORE),
        ("UPDATE releases SET users = 0", MORE),
        ("UPDATE releases SET users = 'a\n\x1b[31m'", MORE),
        ("UPDATE releases SET users = -1", MORE),
        ("INSERT INTO reports VALUES (x'00', 3)", MORE),
        ("UPDATE releases SET id = 1 << 40 WHERE number = 1", "some ids are not bytes"),  # bytes(1 << 40) takes a TB
        ("UPDATE reports SET id = 1 << 40 WHERE release = 2", "some ids are not bytes"),
        ("CREATE TRIGGER t AFTER INSERT ON reports BEGIN DELETE FROM reports; END", OTHER),
        ("CREATE VIEW v AS SELECT * FROM reports", OTHER),
        ("CREATE UNIQUE INDEX i ON reports(release, id)", OTHER),
        (
            "ALTER TABLE reports RENAME TO old; CREATE TABLE reports (id BLOB, release INTEGER NOT NULL);"
            "INSERT INTO reports SELECT * FROM old; DROP TABLE old",  # each report could be added again
            OTHER,
        ),
    ],
)
def test_a_file_that_was_made_to_forget_is_refused_in_one_line(tmp_path: Path, attack: str, found: str) -> None:
    path = tmp_path / "a.reports"
    with ReportRegister(SHOP, path) as register:
        for number, reports in ((1, (1, 2)), (2, (3,))):
            assert all(register.add(report(one)) for one in reports)
            register.release(release(number, len(reports)))
    ReportRegister(SHOP, path).close()
    with sqlite3.connect(path) as altered:
        altered.executescript(attack)
    altered.close()
    with pytest.raises(DamagedFileError, match=f"was altered: {found}; restore a copy") as caught:
        ReportRegister(SHOP, path)
    assert str(caught.value).isprintable()


def test_a_release_of_other_reports_is_not_kept(tmp_path: Path) -> None:
    """It could not be opened again."""
    path = tmp_path / "a.reports"
    with ReportRegister(SHOP, path) as register:
        register.add(report(1))
        with pytest.raises(InvalidInputError, match="1 reports were added and counts of 2 users are released"):
            register.release(release(1, 2))
    with ReportRegister(SHOP, path) as register:
        assert not register.releases()
        assert register.add(report(1))


# Enrollment -----------------------------------------------------------------------------------------------------------


def test_a_token_is_spent_once_and_kept_as_a_hash(tmp_path: Path) -> None:
    path = tmp_path / "a.reports"
    with ReportRegister(SHOP, path) as register:
        first, second = register.issue(), register.issue()
        assert [register.spend(token) for token in (first, first, b"forged", None)] == [True, False, False, False]
        with pytest.raises(InvalidInputError, match="issue all tokens before the first report"):
            register.issue()
        register.add(report(1))
        register.release(release(1))
        assert register.spend(second)  # and then the process ends before it releases
    assert first not in path.read_bytes()
    with ReportRegister(SHOP, path) as register:
        assert [register.spend(token) for token in (first, second)] == [False, True]
