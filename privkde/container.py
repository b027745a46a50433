"""Files with a JSON document and arrays: an uncompressed `.npz` that ends in a SHA-256 of all its other bytes.

The digest finds damage and careless edits before anything is parsed. It is no signature: whoever rewrites the file
can rewrite the digest, so readers validate what they find. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from privkde.files import write_whole

Arrays = dict[str, NDArray[Any]]
DIGEST_BYTES = 32


class DamagedFileError(InvalidInputError):
    """A file that is truncated, was altered, or was never written by this library."""


def write_container(path: Path, document: Mapping[str, Any], arrays: Arrays) -> None:
    """Write the document and the arrays, whole or not at all."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, document=np.frombuffer(text, np.uint8), **arrays)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = bytes(DIGEST_BYTES)  # the very last bytes of a zip file; NumPy ignores them
    body = buffer.getvalue()[:-DIGEST_BYTES]
    sealed = body + hashlib.sha256(body).digest()

    def write(temporary: Path) -> None:
        temporary.write_bytes(sealed)

    write_whole(path, write)


def read_container(path: Path, schema: str) -> tuple[dict[str, Any], Arrays]:
    """The document and the arrays, or `DamagedFileError`."""
    sealed = path.read_bytes()
    body, digest = sealed[:-DIGEST_BYTES], sealed[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise DamagedFileError(f"{str(path)!r} is truncated, was altered or is no privkde file; write it anew.")
    try:
        with np.load(io.BytesIO(sealed), allow_pickle=False) as stored:
            content = {name: stored[name] for name in stored.files}
        document = json.loads(content.pop("document").tobytes())
    except Exception as error:  # a forgery: zipfile, NumPy and json have a dozen ways to choke on one
        raise DamagedFileError(f"{str(path)!r} is no privkde file; write it anew.") from error
    found = document.get("schema") if isinstance(document, dict) else None
    if found != schema:
        raise DamagedFileError(f"{str(path)!r} has schema {found!r} where {schema!r} is expected.")
    return document, content
