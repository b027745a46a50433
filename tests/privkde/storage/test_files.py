"""Files of users' data end with their block, or before a process that does not end it."""

import stat

from privkde.storage.files import delete_private_files, private_file


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
