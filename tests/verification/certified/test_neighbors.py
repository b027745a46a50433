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


@pytest.mark.parametrize(("weight", "distance"), [(0.0, 4.0), (0.5, 4.0), (1.0, 4.5), (2.0, 6.25)])
def test_shifts_of_a_rotated_record_are_counted_again(weight: float, distance: float) -> None:
    """Against the accountant's, and against a contract that declares a louder size: 2 + 2β² + 2γ²."""
    model = "discriminant" if weight else "mean"
    plan = plan_for(
        **BASE, dim=4, classes=2, model=model, moment_weight=weight, padded=64, bound=0.5, accountant="geometric",
        bitsum="poisson",
    )  # fmt: skip
    found = neighbors(plan)
    assert (found.instances, found.attained.bits, found.unit_ball) == (64, 0, False)
    assert found.squared_shift == pytest.approx(distance * 1.0001**2, rel=1e-12)
    assert found.squared_shift == pytest.approx(plan.request.facts().touched.shift_budget, rel=1e-12)
    loud = replace(plan.contract, parameters={**plan.contract.parameters, "size_weight": 2.0})
    assert neighbors(replace(plan, contract=loud)).squared_shift == pytest.approx((10.0 + 2.0 * weight) * 1.0001**2)
    assert neighbors(replace(plan, request=replace(plan.request, releases=3))).squared_shift == pytest.approx(
        3.0 * distance * 1.0001**2
    )
