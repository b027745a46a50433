"""The table of tightness, on small plans whose values are known."""

from __future__ import annotations

from typing import Any

import pytest

from accounting import PlanRequest
from benchmarks.tightness import CASES, PROMISE, excess_noise, neighbors_epsilon

SMALL: dict[str, Any] = {"users": 300, "dim": 4, "epsilon": 2.0, "delta": 1e-5, "allow_useless": True}


def test_a_single_sum_is_planned_with_the_noise_that_its_neighbors_need() -> None:
    """One bit that may flip: the exact law decides, up to the planner's 0.1 %."""
    first, ratio = excess_noise(PlanRequest(**SMALL, kernel="gaussian", repetitions=1, bitsum="poisson"))
    assert 1.0 <= ratio < 1.003
    assert neighbors_epsilon(first) == pytest.approx(2.0, rel=5e-3)


def test_a_loose_accountant_shows() -> None:
    """The negative control: by `basic`, 8 sums have far more noise than their neighbors need."""
    asked = PlanRequest(**SMALL, kernel="gaussian", repetitions=8, bitsum="poisson", accountant="basic")
    assert excess_noise(asked)[1] > 1.5


def test_every_case_is_a_request() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        PlanRequest(**{**PROMISE, **case.request})
