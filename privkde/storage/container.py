"""Files with a JSON document and arrays: an uncompressed `.npz` that ends in a SHA-256 of all its other bytes.

The digest finds damage and careless edits before anything is parsed. It is not a signature: whoever rewrites the file
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
from privkde.storage.files import whole_file

Arrays = dict[str, NDArray[Any]]
DIGEST_BYTES = 32


class DamagedFileError(InvalidInputError):
    """A file that is truncated, was altered, or was never written by this library."""


def write_container(path: Path, document: Mapping[str, Any], arrays: Arrays) -> None:
    """Write the document and the arrays, whole or not at all."""
    content = sealed(document, arrays)
    with whole_file(path) as temporary:
        temporary.write_bytes(content)


def read_container(path: Path, *schemas: str) -> tuple[dict[str, Any], Arrays]:
    """The document, which has one of these schemas, and the arrays, or `DamagedFileError`."""
    return unsealed(path.read_bytes(), str(path), *schemas)


def sealed(document: Mapping[str, Any], arrays: Arrays) -> bytes:
    """The bytes of such a file."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, document=np.frombuffer(text, np.uint8), **arrays)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = bytes(DIGEST_BYTES)  # the very last bytes of a zip file; NumPy ignores them
    body = buffer.getvalue()[:-DIGEST_BYTES]
    return body + hashlib.sha256(body).digest()


def unsealed(content: bytes, name: str, *schemas: str) -> tuple[dict[str, Any], Arrays]:
    """The document and the arrays of these bytes, which a file of this name held, or `DamagedFileError`."""
    body, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise DamagedFileError(f"{name!r} is truncated, was altered or is not a privkde file; write it again.")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            held = {member: stored[member] for member in stored.files}
        document = json.loads(held.pop("document").tobytes())
    except Exception as error:  # a forgery: zipfile, NumPy and json have a dozen ways to choke on one
        raise DamagedFileError(f"{name!r} is not a privkde file; write it again.") from error
    held_schema = document.get("schema") if isinstance(document, dict) else None
    if held_schema not in schemas:
        expected = " or ".join(map(repr, schemas))
        raise DamagedFileError(f"{name!r} has schema {held_schema!r} where {expected} is expected.")
    return document, held
