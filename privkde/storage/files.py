"""Files and folders that are written whole or not at all, private files, and what lies beside a database."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path

from accounting import InvalidInputError

TEMPORARY = ".privkde-"
"""How the names of files and folders that are being written begin."""
_BESIDE = ("-wal", "-shm", "-journal")
"""How the names of what SQLite keeps beside a database end: log, index of the log, journal."""
_DATABASE = b"SQLite format 3\0"
_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""The end of a journal that names another one; SQLite writes such only where databases are attached to each other."""
_private: set[Path] = set()


@contextmanager
def reading(refused: Callable[[Exception], InvalidInputError]) -> Iterator[None]:
    """Whatever a damaged file makes of its reader, which has a dozen errors for it, as the error of ours."""
    try:
        yield
    except (InvalidInputError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:
        raise refused(error) from error


def refuse_device(path: Path) -> None:
    """Refuse to read a device, which may never end."""
    if path.is_char_device() or path.is_block_device():
        raise InvalidInputError(f"{str(path)!r} is a device, not a file; name a file.")


def require_writable(path: Path) -> None:
    """Refuse a path that cannot take a file, before any work is done for it."""
    require_own_name(path)
    if not path.parent.is_dir():
        raise InvalidInputError(f"folder {str(path.parent)!r} does not exist; create it first or choose another path.")
    if path.is_dir():
        raise InvalidInputError(f"path {str(path)!r} is a folder; name a file inside it.")
    try:
        probe = _temporary(path)
        probe.touch(exist_ok=False)
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"folder {str(path.parent)!r} takes no new files ({error.strerror}); choose another path."
        ) from error


def resolved(path: Path) -> Path:
    """The file that a path leads to, through all links."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise InvalidInputError(f"the links of {str(path)!r} lead nowhere; choose another path.") from error


def kept_by_sqlite(path: Path) -> list[Path]:
    """A database and what SQLite keeps beside it while it is used."""
    return [Path(f"{resolved(path)}{ending}") for ending in ("", *_BESIDE)]


def require_own_name(path: Path) -> None:
    """Refuse a name that SQLite uses beside a file that is there: what has it is deleted if that is a database.

    Whether it is one is not read: closing a database that this process has open would drop SQLite's locks on it.
    """
    for place in (path.absolute(), resolved(path)):
        for ending in _BESIDE:
            database = Path(str(place).removesuffix(ending))
            if database != place and database.is_file():
                raise InvalidInputError(
                    f"{str(path)!r} has a name that SQLite uses beside {str(database)!r} if that is a database, and it"
                    " deletes what is there; choose another name."
                )


def planted_journal(database: Path) -> str | None:
    """What is wrong with the journal or the log beside a database (without links); None if nothing is."""
    for beside in (Path(f"{database}{ending}") for ending in _BESIDE):
        with suppress(OSError):  # it is not there, too short, or SQLite cannot read it either
            if wrong := _planted(beside, database):
                return f"{str(beside)!r} {wrong}"
    return None


def _planted(beside: Path, database: Path) -> str | None:
    """SQLite makes the pages in a journal or a log those of the database, whoever wrote them.

    It waits forever for a pipe to be filled, and deletes the other journal that a journal names at its end, whatever
    file that is, and a database that has the name of a journal.
    """
    found = beside.lstat()
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file, which the journal or log of a database is"
    if found.st_nlink > 1:
        return "has a second name (a hard link), which the journal or log of a database has not"
    if not _is_from_a_writer(found.st_uid, database):
        return f"belongs to somebody who need not be allowed to write {str(database)!r}"
    if beside.name.endswith("-shm"):
        return None  # not read: closing it would drop SQLite's locks
    with beside.open("rb") as file:
        if file.read(len(_DATABASE)) == _DATABASE:
            return "is a database itself, which SQLite would delete"
        file.seek(-len(_SUPER_JOURNAL), os.SEEK_END)
        names_another = file.read() == _SUPER_JOURNAL
    return "names a file for SQLite to delete, which privkde never does" if names_another else None


def _is_from_a_writer(owner: int, database: Path) -> bool:
    """Whether only somebody who may write a database can have made a file of this owner beside it.

    If a group may write the database, its members are believed where nobody else can make files in the folder.
    """
    kept, folder = database.stat(), database.parent.stat()
    one_group = folder.st_gid == kept.st_gid or not folder.st_mode & stat.S_IWGRP
    groups_own = kept.st_mode & stat.S_IWGRP and one_group and not folder.st_mode & stat.S_IWOTH
    return owner in (kept.st_uid, 0) or bool(groups_own or kept.st_mode & stat.S_IWOTH)


def take_journal(database: Path) -> None:
    """Make the empty journal of a transaction that has the lock for writing, before a stranger can.

    SQLite would write the pages of the database into one that is there and, as root, give it to the database's owner.
    """
    with suppress(OSError):  # it is there, and is looked at; or SQLite cannot make one either
        kept = database.stat()
        made = os.open(f"{database}-journal", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if stat.S_IMODE(kept.st_mode) != 0o600:
                os.fchmod(made, stat.S_IMODE(kept.st_mode))
            if os.geteuid() == 0:
                os.fchown(made, kept.st_uid, kept.st_gid)
        finally:
            os.close(made)


def leave_journal(database: Path) -> None:
    """Remove a journal that nothing was written to, before the lock is given back."""
    with suppress(OSError):
        if os.lstat(f"{database}-journal").st_size == 0:
            os.unlink(f"{database}-journal")


def make_for_owner(path: Path) -> None:
    """Make an empty file that nobody but its owner ever could read; one that is there stays as it is."""
    if not path.exists():
        require_own_name(path)
        for beside in kept_by_sqlite(path)[1:]:
            if os.path.lexists(beside):
                raise InvalidInputError(
                    f"{str(beside)!r} is there, and SQLite would delete it as a part of {str(path)!r}; choose another"
                    " name, or move it away."
                )
    with suppress(FileExistsError):
        os.close(os.open(resolved(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def require_apart(written: Iterable[Path | None], others: Iterable[Path | None]) -> None:
    """Refuse a command that would write one of its files over another one that it names."""
    targets = [resolved(path) for path in written if path is not None]
    named = targets + [resolved(path) for path in others if path is not None]
    for target in targets:
        if named.count(target) > 1:
            raise InvalidInputError(
                f"{str(target)!r} would be written and is named for something else; choose another."
            )


def require_outside(path: Path, folder: Path) -> None:
    """Refuse a file that would be written into a folder, or in its place."""
    target, kept = resolved(path), resolved(folder)
    if kept in (target, *target.parents) or target in kept.parents:
        raise InvalidInputError(
            f"{str(target)!r} would be written into folder {str(kept)!r}, which holds answers only; choose another."
        )


def _temporary(path: Path) -> Path:
    """A new name beside `path`."""
    return path.parent / f"{TEMPORARY}{secrets.token_hex(8)}{path.suffix}"


@contextmanager
def whole_file(path: Path, *, once: bool = False, private: bool = False) -> Iterator[Path]:
    """A temporary file to fill; it takes the place of `path` if the block ends without an error.

    With `once` a file that is there already stays as it is, and `FileExistsError` is raised. With `private` only its
    owner may read it. A process that is killed leaves its temporary file.
    """
    require_writable(path)
    temporary = _temporary(path)
    temporary.touch(0o600 if private else 0o666, exist_ok=False)
    try:
        yield temporary
        _put(temporary, path, once=once)
    finally:
        temporary.unlink(missing_ok=True)


def _put(temporary: Path, path: Path, *, once: bool) -> None:
    try:
        if once:
            os.link(temporary, path)
        else:
            os.replace(temporary, path)
    except FileNotFoundError as error:
        raise InvalidInputError(
            f"what was to become {str(path)!r} was deleted before it was whole: does another process work in its"
            " folder? Wait until that has ended, and repeat the command."
        ) from error


def write_text(path: Path, text: str, *, once: bool = False) -> None:
    """Write `text` whole or not at all; see `whole_file`."""
    with whole_file(path, once=once) as temporary:
        temporary.write_text(text, encoding="utf-8")


def require_replaceable(path: Path, own: Sequence[str]) -> None:
    """Refuse a place that cannot take a folder, or holds files that match none of the patterns `own`."""
    require_own_name(path)
    if not path.parent.is_dir():
        raise InvalidInputError(f"folder {str(path.parent)!r} does not exist; create it first or choose another path.")
    if not path.exists():
        return
    if not path.is_dir():
        raise InvalidInputError(f"path {str(path)!r} is a file; name a folder.")
    names = [entry.name for entry in path.iterdir()]
    foreign = sorted(name for name in names if not any(fnmatch(name, pattern) for pattern in own))
    if foreign:
        raise InvalidInputError(
            f"folder {str(path)!r} holds {foreign[0]!r}, which would be lost; choose another folder."
        )


@contextmanager
def whole_folder(path: Path, own: Sequence[str]) -> Iterator[Path]:
    """A temporary folder to fill; it takes the place of `path` if the block ends without an error.

    A folder that is there already is replaced if all its files match the patterns `own`.
    """
    target = resolved(path)
    require_replaceable(target, own)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=TEMPORARY))
    try:
        filled = temporary / target.name
        filled.mkdir()
        yield filled
        if target.exists():
            require_replaceable(target, own)
            os.replace(target, temporary / "old")
        os.replace(filled, target)
    except BaseException:
        if (temporary / "old").exists():
            os.replace(temporary / "old", target)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def private_file(name: str) -> Iterator[Path]:
    """A temporary file for users' data, which only this user may read; it does not outlast the block.

    A process that ends inside of it without cleaning up calls `delete_private_files`. One that is killed leaves it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        _private.add(path)
        try:
            path.touch(mode=0o600)
            yield path
        finally:
            path.unlink(missing_ok=True)
            _private.discard(path)


def delete_private_files() -> None:
    """Delete every `private_file` that there is, as far as the system allows."""
    for path in tuple(_private):
        with suppress(OSError):
            path.unlink(missing_ok=True)
