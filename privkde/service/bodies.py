"""Reading requests."""

from __future__ import annotations

import json
from typing import Any

from privkde.service.problems import MALFORMED, Problem


def json_body(body: bytes) -> dict[str, Any]:
    """The JSON object in a request, or a `Problem`."""
    try:
        found = json.loads(body, parse_constant=_refuse_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError):  # also text that is no UTF-8
        raise Problem(MALFORMED, "send one JSON object in UTF-8, each name once, without NaN or Infinity.") from None
    if not isinstance(found, dict):
        raise Problem(MALFORMED, f"a JSON object is needed, not {type(found).__name__}.")
    return found


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found
