"""Reading requests."""

from __future__ import annotations

import json
from typing import Any

from privkde.service.problems import MALFORMED, Problem

DEEPEST = 24
"""Levels of nesting; a plan's tree of contracts has about ten."""


def json_body(body: bytes) -> dict[str, Any]:
    """The JSON object in a request, or a `Problem`."""
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_once)
        json.dumps(found, ensure_ascii=False).encode("utf-8")  # half a surrogate pair is no text
        _refuse_deep(found, DEEPEST)
    except (ValueError, RecursionError):
        raise Problem(
            MALFORMED, f"send one JSON object in UTF-8: each name once, no NaN, nested at most {DEEPEST} deep."
        ) from None
    if not isinstance(found, dict):
        raise Problem(MALFORMED, f"a JSON object is needed, not {type(found).__name__}.")
    return found


def _refuse_deep(value: Any, left: int) -> None:
    if left == 0:
        raise ValueError("nested too deep")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            _refuse_deep(one, left - 1)


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found
