"""Mutations of honest documents that keep most of their structure, so that they get past the first check.

Whatever is drawn comes from one generator: the same seed gives the same document.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from typing import Any

STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 2**31, 2**63, 10**30, 10**400, -0.0, 0.5, -0.5, 1e-8, 1e-300, 5e-324, 1e308,
    math.inf, -math.inf, math.nan, "", "0", "x", "x" * 300, "auto", "\x1b[31mred", "a\nb", "\x9b2J", "\u202e", "\ud800",
    "0" * 32, [], {}, [[]], [1, 2], {"a": 1}, [None] * 3,
)  # fmt: skip
"""Values of the wrong type, size or sign, and text that a terminal would obey."""
FACTORS = (-1, 0.5, 2, 10, 1e9, 1e-9, 1 + 1e-9)
WHOLE_FACTORS = (-1, 2, 10, 10**9)
TEXTS = (
    b"[" * 100_000,
    b'{"a":' * 30,
    b"9" * 5_000,
    b"NaN",
    b"1e999",
    b"-Infinity",
    b'{"a":1,"a":2}',
    b"\xff",
    b"\x00",
)
"""What a JSON text should never hold."""
DAMAGED_TEXT = 0.1
Place = tuple[Any, Any]
"""A dictionary or list, and a key or index in it."""


def mutated_json(honest: bytes, chance: random.Random) -> bytes:
    """A JSON document with one to three values altered, removed, renamed, copied or scaled; or a damaged text."""
    if chance.random() < DAMAGED_TEXT:
        return mutated_bytes(honest, chance, TEXTS)
    document = json.loads(honest)
    alter_values(document, chance)
    return json.dumps(document).encode()


def alter_values(document: Any, chance: random.Random) -> None:
    """One to three changes, in place."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        places = list(_places(document))
        if places:
            _alter(*chance.choice(places), chance, places)


def mutated_bytes(
    honest: bytes, chance: random.Random, pieces: tuple[bytes, ...] = (b"\x00" * 8, b"\xff" * 8)
) -> bytes:
    """Bytes with some of them flipped, cut off, left out, repeated or replaced by one of these pieces."""
    content = bytearray(honest)
    for _ in range(chance.choice((1, 1, 2, 4))):
        start = chance.randrange(len(content) + 1)
        end = min(len(content), start + chance.choice((1, 2, 4, 8, 64)))
        what = chance.randrange(5)
        if what == 0 and start < len(content):
            content[start] ^= 1 << chance.randrange(8)
        elif what == 1:
            del content[start:]
        elif what == 2:
            del content[start:end]
        elif what == 3:
            content[start:start] = content[start:end]
        else:
            content[start:end] = chance.choice(pieces)
    return bytes(content)


def _places(value: Any) -> Iterator[Place]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from _places(item)


def _alter(holder: Any, key: Any, chance: random.Random, places: list[Place]) -> None:
    value, what = holder[key], chance.random()
    if what < 0.15:
        del holder[key]
    elif what < 0.25 and isinstance(holder, dict):
        holder[chance.choice(("x", "name", "\x1b[0m"))] = holder.pop(key)
    elif what < 0.35:
        other, place = chance.choice(places)
        holder[key] = json.loads(json.dumps(other[place]))
    elif what < 0.5 and isinstance(value, float):
        holder[key] = value * chance.choice(FACTORS)
    elif what < 0.5 and isinstance(value, int):
        holder[key] = value * chance.choice(WHOLE_FACTORS)
    elif what < 0.6 and isinstance(holder, list):
        holder.append(json.loads(json.dumps(value)))
    else:
        holder[key] = json.loads(json.dumps(chance.choice(STRANGE)))
