"""Files with a JSON document and arrays: an uncompressed `.npz` that ends in a SHA-256 of all its other bytes.

The digest finds damage and careless edits before anything is parsed. It is not a signature: whoever rewrites the file
can rewrite the digest, so readers validate what they find. Nothing is ever unpickled. Members are stored as they are
and exactly as long as they say, so that no array takes more memory than the file has bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from privkde.storage.arrays import read_plain
from privkde.storage.files import refuse_device, whole_file
from privkde.storage.json_text import parsed_json

Arrays = dict[str, NDArray[Any]]
Schema = str | tuple[str, ...]
"""The schema of a document, or all that it may have."""
DIGEST_BYTES = 32
LARGEST_DOCUMENT = 16 << 20
"""Bytes of the JSON document of a file: those of models with thousands of classes."""
_DOCUMENT = "document"
_LONGEST_HEADER = 256
"""Bytes before the numbers of an array of one dimension."""


class DamagedFileError(InvalidInputError):
    """A file that is truncated, was altered, or was never written by this library."""


def write_container(path: Path, document: Mapping[str, Any], arrays: Arrays) -> None:
    """Write the document and the arrays, whole or not at all."""
    content = sealed(document, arrays)
    with whole_file(path) as temporary:
        temporary.write_bytes(content)


def read_container(
    path: Path, schema: Schema, names: Iterable[str], optional: Iterable[str] = ()
) -> tuple[dict[str, Any], Arrays]:
    """The document, which has one of these schemas, and the arrays of these names, or `DamagedFileError`."""
    refuse_device(path)
    return unsealed(path.read_bytes(), str(path), schema, names, optional)


def sealed(document: Mapping[str, Any], arrays: Arrays) -> bytes:
    """The bytes of such a file."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    if len(text) > LARGEST_DOCUMENT:
        raise InvalidInputError(f"the document has {len(text)} bytes, more than {LARGEST_DOCUMENT}; use fewer classes.")
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{_DOCUMENT: np.frombuffer(text, np.uint8)}, **arrays)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = bytes(DIGEST_BYTES)  # the very last bytes of a zip file; NumPy ignores them
    body = buffer.getvalue()[:-DIGEST_BYTES]
    return body + hashlib.sha256(body).digest()


def unsealed(
    content: bytes, name: str, schema: Schema, names: Iterable[str], optional: Iterable[str] = ()
) -> tuple[dict[str, Any], Arrays]:
    """The document and the arrays of these bytes, which a file of this name held, or `DamagedFileError`.

    Members are the document, the arrays `names` and perhaps `optional` ones; any other is refused.
    """
    body, digest = memoryview(content)[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise DamagedFileError(f"{name!r} is truncated, was altered or is not a privkde file; write it again.")
    try:
        held = _members(content, {_DOCUMENT, *names}, {*optional})
        document = parsed_json(held.pop(_DOCUMENT).tobytes())
    except Exception as error:  # a forgery: zipfile, NumPy and json have a dozen ways to choke on one
        raise DamagedFileError(f"{name!r} is not a privkde file; write it again.") from error
    held_schema = document.get("schema") if isinstance(document, dict) else None
    schemas = (schema,) if isinstance(schema, str) else schema
    if held_schema not in schemas:
        expected = " or ".join(map(repr, schemas))
        raise DamagedFileError(f"{name!r} has schema {held_schema!r} where {expected} is expected.")
    return document, held


def _members(content: bytes, names: set[str], optional: set[str]) -> Arrays:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        stored = {info.compress_type for info in members.values()} == {zipfile.ZIP_STORED}
        if not stored or members.keys() - optional != names or len(archive.infolist()) != len(members):
            raise InvalidInputError("members are compressed, missing or do not belong.")
        if members[_DOCUMENT].file_size > LARGEST_DOCUMENT + _LONGEST_HEADER:
            raise InvalidInputError("the document is too long.")
        return {name: read_plain(archive, info) for name, info in members.items()}
