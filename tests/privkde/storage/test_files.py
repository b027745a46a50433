"""Files of users' data end with their block, or before a process that does not end it."""

import os
import stat
from pathlib import Path

import pytest

from accounting import InvalidInputError
from privkde.storage.files import (
    delete_private_files,
    kept_by_sqlite,
    planted_journal,
    private_file,
    require_apart,
    require_outside,
    require_own_name,
    require_replaceable,
    require_writable,
)


def test_a_private_file_is_for_this_user_and_does_not_outlast_its_block() -> None:
    with private_file("users.npz") as path:
        assert (path.name, stat.S_IMODE(path.stat().st_mode)) == ("users.npz", 0o600)
        path.write_bytes(b"a vector")
    assert not path.parent.exists()


def test_all_private_files_can_be_deleted_early() -> None:
    with private_file("a") as first, private_file("b") as second:
        delete_private_files()
        assert not first.exists()
        assert not second.exists()
        assert first.parent.is_dir()
    assert not first.parent.exists()


def test_a_file_is_written_over_nothing_that_is_named(tmp_path: Path) -> None:
    place = tmp_path / "linked"
    place.symlink_to(tmp_path / "file")
    require_apart([tmp_path / "file", None], [tmp_path / "other", None])
    for written, others in (([place], [tmp_path / "file"]), ([place, tmp_path / "file"], [])):
        with pytest.raises(InvalidInputError, match="is named for something else"):
            require_apart(written, others)


def test_a_link_that_leads_to_itself_is_refused_in_one_line(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(InvalidInputError, match="lead nowhere; choose another path"):
        require_apart([loop], [])


def test_what_sqlite_keeps_is_beside_the_file_and_not_beside_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "folder" / "ledger")
    kept = [tmp_path / "folder" / f"ledger{ending}" for ending in ("", "-wal", "-shm", "-journal")]
    assert kept_by_sqlite(tmp_path / "linked") == kept_by_sqlite(kept[0]) == kept


@pytest.mark.parametrize("name", ["file-wal", "file-shm", "file-journal", "folder/../file-wal", "linked", "points"])
def test_no_output_has_a_name_that_sqlite_deletes(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "file-journal")
    (tmp_path / "points").symlink_to(tmp_path / "folder" / ".." / "file-shm")
    for refuse in (require_own_name, require_writable, lambda place: require_replaceable(place, [])):
        with pytest.raises(InvalidInputError, match="choose another name"):
            refuse(tmp_path / name)
        for other in ("folder-wal", "none-wal", "-wal", "file-wall"):
            refuse(tmp_path / other)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(
    ("owner", "mode", "folder_mode", "folder_group", "obeyed"),
    [
        (1, 0o600, 0o1777, 9, True),  # the owner of the file
        (0, 0o600, 0o1777, 9, True),
        (2, 0o600, 0o700, 9, False),
        (2, 0o644, 0o2770, 9, False),
        (2, 0o660, 0o2770, 9, True),  # only the group that may write the file makes files in the folder
        (2, 0o660, 0o755, 8, True),
        (2, 0o660, 0o2770, 8, False),
        (2, 0o660, 0o1777, 9, False),
        (2, 0o660, 0o1773, 9, False),
        (2, 0o606, 0o1777, 8, True),  # everybody may write the file
    ],
)
@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
def test_a_journal_or_log_is_from_somebody_who_may_write_the_file(
    *, tmp_path: Path, ending: str, owner: int, mode: int, folder_mode: int, folder_group: int, obeyed: bool
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, user in (("ledger", 1), (f"ledger{ending}", owner)):
        (folder / name).touch()
        os.chown(folder / name, user, 9)
    os.chown(folder, 1, folder_group)
    (folder / "ledger").chmod(mode)
    folder.chmod(folder_mode)
    assert (planted_journal(folder / "ledger") is None) is obeyed


@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
def test_what_is_not_a_file_with_one_name_is_not_a_journal_or_log(tmp_path: Path, ending: str) -> None:
    (tmp_path / "ledger").touch()
    beside = tmp_path / f"ledger{ending}"
    beside.touch()
    assert planted_journal(tmp_path / "ledger") is None
    os.link(beside, tmp_path / "other")
    assert "has a second name" in str(planted_journal(tmp_path / "ledger"))
    beside.unlink()
    os.mkfifo(beside)
    assert "is not a regular file" in str(planted_journal(tmp_path / "ledger"))


@pytest.mark.parametrize(
    "name", ["sent/model", "sent/0/announcement.json", "sent", ".", "linked/model", "other/../sent/m"]
)
def test_a_folder_of_answers_takes_no_other_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(tmp_path / "sent")
    for kept in ("sent", "linked"):
        with pytest.raises(InvalidInputError, match="holds answers only"):
            require_outside(tmp_path / name, tmp_path / kept)
    require_outside(tmp_path / "sent.model", tmp_path / "sent")
