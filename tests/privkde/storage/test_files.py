"""Files of users' data end with their block, or before a process that does not end it."""

import stat
from pathlib import Path

import pytest

from accounting import InvalidInputError
from privkde.storage.files import delete_private_files, kept_by_sqlite, private_file, require_apart, require_outside


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


@pytest.mark.parametrize(
    "name", ["sent/model", "sent/0/announcement.json", "sent", ".", "linked/model", "other/../sent/m"]
)
def test_a_folder_of_answers_takes_no_other_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(tmp_path / "sent")
    for kept in ("sent", "linked"):
        with pytest.raises(InvalidInputError, match="holds answers only"):
            require_outside(tmp_path / name, tmp_path / kept)
    require_outside(tmp_path / "sent.model", tmp_path / "sent")
