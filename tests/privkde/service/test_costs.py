"""Which requests are outside of the usual range."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from accounting import PlanRequest
from accounting.fields import fields_of
from privkde.service.costs import USUAL, is_usual
from privkde.service.planning_routes import SMALL

EXTREME = [
    {"delta": 1e-299},
    {"delta": 1e-16},
    {"epsilon": 1e-8},
    {"epsilon": 60.0},
    {"users": 10**9},
    {"releases": 10_000},
    {"repetitions": 100_000},
    {"dim": 100_000},
]


def asked(**changes: Any) -> dict[str, Any]:
    return dataclasses.asdict(PlanRequest(**SMALL | changes))


def test_the_range_is_one_of_requests_and_smaller_than_what_is_allowed() -> None:
    fields = fields_of(PlanRequest)
    for name, (low, high) in USUAL.items():
        rule = fields[name].rule
        assert rule.low is not None
        assert rule.high is not None
        assert rule.low <= low < high <= rule.high


@pytest.mark.parametrize("changes", [{}, {"delta": 0.0, "bitsum": "pure"}, {"releases": 52}, {"users": 1_000_000}])
def test_usual_requests(changes: dict[str, Any]) -> None:
    assert is_usual(asked(**changes))


@pytest.mark.parametrize("changes", EXTREME)
def test_extreme_requests_and_plans_for_them(changes: dict[str, Any]) -> None:
    request = asked(**changes)
    plan = {"plan": {"request": request}}
    assert not is_usual(request)
    assert not is_usual(plan)
    assert not is_usual({"releases": (plan,), "delta": 1e-6})
    assert not is_usual({"releases": (), "charged": (plan,), "delta": 1e-6})


@pytest.mark.parametrize("body", [{"plan": None}, {"plan": {"request": 3}}, {"releases": 3, "charged": [4]}, {}])
def test_what_is_no_request_is_left_to_those_who_read_it(body: dict[str, Any]) -> None:
    assert is_usual(body)
