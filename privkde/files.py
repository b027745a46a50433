"""Files that are either written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from accounting import InvalidInputError


def require_writable(path: Path) -> None:
    """Refuse a path that cannot take a file, before any work is done for it."""
    if not path.parent.is_dir():
        raise InvalidInputError(f"folder {str(path.parent)!r} does not exist; create it first or choose another path.")
    if path.is_dir():
        raise InvalidInputError(f"path {str(path)!r} is a folder; name a file inside it.")


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it into place."""
    require_writable(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".privkde-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_whole(path, write)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
