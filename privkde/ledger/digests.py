"""Digests that chain the rows of a ledger, and the head that stands for all of them."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accounting import InvalidInputError

HEAD_SCHEMA = "privkde.head/1"
START = "0" * 64
"""The predecessor of the first row."""
SHORTEST_KEY = 32
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """How many rows a ledger has, and the digest of the last, which depends on all of them.

    Keep one where the ledger's owner cannot write: `Ledger.verify` then finds a ledger that forgot what it held.
    """

    rows: int | None
    """None if only the digest was kept."""
    digest: str

    def __post_init__(self) -> None:
        if not isinstance(self.digest, str) or not _DIGEST.fullmatch(self.digest):
            raise InvalidInputError("the digest of a head must be 64 hexadecimal digits; use `privkde budget head`.")
        if self.rows is not None and (type(self.rows) is not int or self.rows < 0):
            raise InvalidInputError("the rows of a head must be a whole number, 0 or more; use `privkde budget head`.")

    def to_json(self) -> dict[str, Any]:
        """The `privkde.head/1` document."""
        return {"schema": HEAD_SCHEMA, "rows": self.rows, "digest": self.digest}

    @staticmethod
    def from_json(data: Any) -> Head:
        """Inverse of `to_json`; raises `InvalidInputError` on anything else."""
        if (
            not isinstance(data, Mapping)
            or data.get("schema") != HEAD_SCHEMA
            or {*data} != {"schema", "rows", "digest"}
        ):
            raise InvalidInputError(f"this is not a {HEAD_SCHEMA!r} document; write it with `privkde budget head`.")
        return Head(rows=data["rows"], digest=data["digest"])


EMPTY = Head(rows=0, digest=START)


def digest(content: Mapping[str, Any], key: bytes | None) -> str:
    """SHA-256 of the canonical content; HMAC-SHA-256 with a key, which nobody can compute who does not hold it."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=repr).encode()
    return (hashlib.sha256(text) if key is None else hmac.new(key, text, hashlib.sha256)).hexdigest()


def signature(rows: int, last: str, key: bytes) -> str:
    """Of the head: the digest of an earlier row does not give away the signature of a shorter ledger."""
    return digest({"head": last, "rows": rows}, key)


def require_ledger_key(key: object) -> bytes | None:
    """Return the key of a ledger, or None for none, or raise without showing it."""
    if key is None or (isinstance(key, bytes) and len(key) >= SHORTEST_KEY):
        return key
    raise InvalidInputError(
        f"the key of a ledger must be at least {SHORTEST_KEY} bytes; make one with `openssl rand -hex 32`."
    )
