"""Witnesses: what a document may ask the checker to do, and that nothing else is computed."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest

from accounting import InvalidInputError
from verification.certified.witness import Cutting, Grid, Witness

CUTTING = {"orders": [2.0, 30.5], "square": 1e-9, "linear": 0.0}
WHOLE: dict[str, Any] = {
    "bits": 168,
    "tail": 1e-14,
    "grid": {"step": 0.01, "points": 400},
    "cell": 29,
    "cutting": CUTTING,
    "coin_grid": {"step": 0.02, "points": 100},
    "coin_cutting": CUTTING,
    "contour": {"order": 11.5, "square": 1e-9, "linear": 0.0, "deviation": 0.4},
    "moved_grid": {"step": 0.005, "points": 300},
}


def test_documents_come_back() -> None:
    found = Witness.from_json(json.loads(json.dumps(WHOLE)))
    assert found.to_json() == WHOLE
    assert found.grid == Grid(step=0.01, points=400)
    assert found.cutting == Cutting(orders=(2.0, 30.5), square=1e-9, linear=0.0)
    small = {"bits": 200, "tail": 0.1, "cell": 0}
    assert Witness.from_json(small) == Witness(bits=200, tail=0.1)
    assert Witness.from_json(small).to_json() == small


def replaced(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    document: Any = copy.deepcopy(WHOLE)
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return dict(document)


NUMBERS = [
    ("bits",), ("tail",), ("cell",), ("grid", "step"), ("grid", "points"), ("coin_grid", "points"),
    ("cutting", "orders", 0), ("cutting", "square"), ("coin_cutting", "linear"),
    ("contour", "order"), ("contour", "deviation"), ("moved_grid", "step"),
]  # fmt: skip
NEVER = [math.nan, math.inf, -math.inf, -1, 10**400, "12", None, [], {}, [1.0], True]


@pytest.mark.parametrize("path", NUMBERS, ids=str)
def test_what_is_no_number_in_range_is_refused(path: tuple[Any, ...]) -> None:
    for value in NEVER:
        with pytest.raises((InvalidInputError, TypeError, ValueError)):
            Witness.from_json(replaced(path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("bits",), 10**9), (("bits",), 63), (("bits",), 8193), (("bits",), 128.5),
        (("tail",), 0.0), (("tail",), 1.5),
        (("cell",), 10**13), (("cell",), 0.5),
        (("grid", "points"), 10**9), (("grid", "points"), 0), (("coin_grid", "points"), 20_001),
        (("grid", "step"), 0.0), (("grid", "step"), 1e7),
        (("cutting", "orders"), []), (("cutting", "orders"), [2.0] * 65), (("cutting", "orders"), [1.0]),
        (("cutting", "orders"), [1e7]), (("cutting", "orders"), 2.0), (("cutting", "square"), 1.5),
        (("grid",), []), (("grid",), "fine"), (("grid",), {"step": 1.0}), (("cutting",), 3),
        (("grid", "more"), 1), (("more",), 1),
    ],
    ids=str,
)  # fmt: skip
def test_hostile_witnesses_are_refused(path: tuple[Any, ...], value: Any) -> None:
    with pytest.raises((InvalidInputError, TypeError, ValueError, LookupError)):
        Witness.from_json(replaced(path, value))
