"""What the certificate counts again: instances and shifts of one record, in every release."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.plans import plan_for
from verification.certified.neighbors import neighbors

BASE: dict[str, Any] = {"users": 2_000, "epsilon": 2.0, "delta": 1e-5}


@pytest.mark.parametrize("bitsum", ["poisson", pytest.param("rr", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kernel",
    [
        {"dim": 4, "repetitions": 6, "accountant": "pld"},
        {"kernel": "inner-product", "dim": 40, "bound": 0.5, "accountant": "geometric"},
        {"kernel": "inner-product-signs", "dim": 8, "repetitions": 20, "accountant": "geometric"},
    ],
)
def test_a_schedule_repeats_what_one_record_does(kernel: dict[str, Any], bitsum: str) -> None:
    plan = plan_for(**BASE, **kernel, bitsum=bitsum)
    request = replace(plan.request, releases=3)
    once, schedule, touched = neighbors(plan), neighbors(replace(plan, request=request)), request.facts().touched
    assert schedule.instances == 3 * once.instances == touched.total
    assert schedule.attained.bits == 3 * once.attained.bits
    assert (schedule.squared_shift is None) == (once.squared_shift is None)
    if once.squared_shift is not None:
        assert schedule.squared_shift == pytest.approx(3.0 * once.squared_shift)
        assert schedule.squared_shift == pytest.approx(touched.shift_budget)


def test_the_coins_of_the_others_are_not_counted_on_in_a_schedule() -> None:
    tiny: dict[str, Any] = {"users": 3, "dim": 2, "epsilon": 2.0, "delta": 0.02, "allow_useless": True}
    schedule = plan_for(**tiny, kernel="inner-product", bound=1.0, accountant="geometric", releases=2)
    assert not neighbors(schedule).unit_ball
    assert neighbors(replace(schedule, request=replace(schedule.request, releases=1))).unit_ball
