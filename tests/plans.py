"""Plans take a moment to make and depend on nothing but their request: the tests make each of them once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from accounting import Plan, PlanRequest
from accounting.planning import plan, plan_with_advice
from privkde.cli import plan_command
from privkde.protocol import rounds


@cache
def shared_plan(request: PlanRequest) -> Plan:
    """The plan for a request object, without advice on labels, made once."""
    return plan(request)


@cache
def _advised(request: PlanRequest) -> Plan:
    return plan_with_advice(request)


def plan_for(**request: Any) -> Plan:
    """`plan_budget` without its advice on labels, once for each request."""
    return shared_plan(PlanRequest(**request))


@contextmanager
def made_once() -> Iterator[None]:
    """Collections and commands that ask for the same plan share one."""

    def remembered(request: PlanRequest, *, progress: Any = None) -> Plan:
        return shared_plan(request)

    def advised(request: PlanRequest, *, progress: Any = None) -> Plan:
        return _advised(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "plan", remembered)
        patch.setattr(plan_command, "plan_with_advice", advised)
        yield
