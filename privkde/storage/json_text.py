"""JSON that somebody else wrote: the only place that reads it, strictly and within limits.

Every document of the library passes. Refused are texts that are not UTF-8 or not JSON, a name that is given twice (two
readers may disagree on what it means), NaN and infinite numbers (`1e999` included), integers of many digits, deep
nesting, half a surrogate pair, and too many bytes.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from accounting.errors import InvalidInputError

DEEPEST = 24
"""Levels of nesting; a model of several classes, which holds their plans, has about twenty."""
MOST_DIGITS = 40
"""Of an integer: those of a seed of 128 bits."""
MOST_BYTES = 16 << 20
"""Of a document; the largest are those in models of thousands of classes."""
LARGEST_FILE = 1 << 20
"""Bytes of a document that is a file of its own: a plan, an announcement, a release."""


class MalformedJsonError(InvalidInputError):
    """A text that is not JSON, or not JSON that is read here."""


def parsed_json(text: bytes, *, most_bytes: int = MOST_BYTES) -> Any:
    """The value in a text, or `MalformedJsonError`."""
    if len(text) > most_bytes:
        raise MalformedJsonError(f"it has more than {most_bytes:,} bytes.")
    try:
        value = json.loads(
            text.decode("utf-8"),
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_constant,
            object_pairs_hook=_each_once,
        )
        _refuse_deep(value, DEEPEST)
    except MalformedJsonError:
        raise
    except RecursionError:
        raise MalformedJsonError(_TOO_DEEP) from None
    except UnicodeDecodeError:
        raise MalformedJsonError("it is not text in UTF-8.") from None
    except json.JSONDecodeError as error:  # its message is made of fixed words and places, never of the text
        raise MalformedJsonError(f"{error.msg} in line {error.lineno}, column {error.colno}.") from None
    return value


def read_json(path: Path, remedy: str) -> Any:
    """The JSON document in a file; the error names the file and ends with `remedy`."""
    with path.open("rb") as file:
        text = file.read(LARGEST_FILE + 1)
    try:
        return parsed_json(text, most_bytes=LARGEST_FILE)
    except MalformedJsonError as error:
        reason = str(error).removesuffix(".")
        raise MalformedJsonError(f"{str(path)!r} is not JSON that is read here: {reason}; {remedy}") from None


_TOO_DEEP = f"it is nested more than {DEEPEST} deep."


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise MalformedJsonError(f"an integer has {len(digits)} digits, and {MOST_DIGITS} are the most.")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise MalformedJsonError("a number is too large for floating point.")
    return number


def _constant(name: str) -> float:
    raise MalformedJsonError(f"{name} is not a number of JSON.")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise MalformedJsonError("an object has the same name twice.")
    return members


def _refuse_deep(value: Any, left: int) -> None:
    """Also refuses text that cannot be written: half a surrogate pair."""
    if left == 0:
        raise MalformedJsonError(_TOO_DEEP)
    if isinstance(value, dict):
        for name, item in value.items():
            _refuse_deep(name, left)
            _refuse_deep(item, left - 1)
    elif isinstance(value, list):
        for item in value:
            _refuse_deep(item, left - 1)
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise MalformedJsonError("a text holds half a surrogate pair.") from None
