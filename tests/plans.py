"""Plans take a moment to make and depend on nothing but their request: the tests make each of them once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from accounting import Plan, PlanRequest
from accounting.planning import plan
from privkde import rounds


@cache
def _made(request: PlanRequest) -> Plan:
    return plan(request)


def plan_for(**request: Any) -> Plan:
    """`plan_budget`, once for each request."""
    return _made(PlanRequest(**request))


@contextmanager
def made_once() -> Iterator[None]:
    """Collections that ask for the same plan share one."""

    def remembered(request: PlanRequest, *, progress: Any = None) -> Plan:
        return _made(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "plan", remembered)
        yield
