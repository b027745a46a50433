"""What the certificate counts again: instances and shifts of one record, in every release."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from accounting import InvalidInputError, Plan, PlanRequest
from tests.plans import plan_for
from verification.certified.neighbors import Moves, neighbors

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
        assert schedule.squared_shift is not None
        assert schedule.squared_shift.overlaps(3 * once.squared_shift)
        assert float(schedule.squared_shift) == pytest.approx(touched.shift_budget)


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
    assert squared(plan) == pytest.approx(distance * 1.0001**2, rel=1e-12)
    assert squared(plan) == pytest.approx(plan.request.facts().touched.shift_budget, rel=1e-12)
    loud = replace(plan.contract, parameters={**plan.contract.parameters, "size_weight": 2.0})
    assert squared(replace(plan, contract=loud)) == pytest.approx((10.0 + 2.0 * weight) * 1.0001**2)
    schedule = replace(plan, request=replace(plan.request, releases=3))
    assert squared(schedule) == pytest.approx(3.0 * distance * 1.0001**2)


def squared(plan: Plan) -> float:
    found = neighbors(plan).squared_shift
    assert found is not None
    return float(found)


KERNELS: dict[str, tuple[dict[str, Any], Moves]] = {
    "gaussian": ({"dim": 64, "repetitions": 64}, Moves(64)),
    "few dimensions": ({"dim": 4, "repetitions": 64}, Moves(4)),
    "hashed": ({"kernel": "laplacian", "dim": 16, "repetitions": 64}, Moves(64, half=True)),
    "identity": ({"kernel": "inner-product", "dim": 16}, Moves(1)),
    "signs": ({"kernel": "inner-product-signs", "dim": 64, "repetitions": 64}, Moves(1)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_what_records_attain_does_not_depend_on_the_rung(name: str) -> None:
    changes, attained = KERNELS[name]
    plan = plan_for(**BASE, **changes, accountant="pld", bitsum="poisson", allow_useless=True)
    found = neighbors(plan)
    assert found.attained == attained
    assert found.covered == Moves(found.instances) == Moves(plan.instances_per_user)
    assert found.squared_shift is None


JOINT: dict[str, Any] = {"kernel": "inner-product", "dim": 16, "classes": 3, "labels": "joint", "padded": 0}
RECORD: dict[str, Any] = {
    **JOINT,
    "model": "discriminant",
    "moment_weight": 1.0,
    "padded": 256,
    "accountant": "geometric",
}


def test_joint_labels_in_blocks_move_features_in_both_classes_and_two_sizes() -> None:
    plan = plan_for(**BASE, **JOINT, bitsum="poisson", allow_useless=True)
    assert neighbors(plan).instances == 2 * 16 + 2 == plan.instances_per_user
    plan = plan_for(**BASE, **JOINT, bitsum="poisson", accountant="geometric", allow_useless=True)
    loud = replace(plan.contract, parameters={**plan.contract.parameters, "size_weight": 2.0})
    assert squared(replace(plan, contract=loud)) == pytest.approx(squared(plan) / 2 + 2 * 2.0**2)


@pytest.mark.parametrize("changes", [JOINT, RECORD], ids=["joint", "record"])
def test_the_accountants_facts_are_not_read(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for(**BASE, **changes, bitsum="poisson", allow_useless=True)
    expected = str(neighbors(plan))

    def unread(_: PlanRequest) -> None:
        raise AssertionError("the certificate read what the accountant derived")

    monkeypatch.setattr(PlanRequest, "facts", unread)
    monkeypatch.setattr(PlanRequest, "rounding_bound", property(unread))
    assert str(neighbors(plan)) == expected


@pytest.mark.parametrize("radius", [0.01, 0.3, 1.0, 20.0])
@pytest.mark.parametrize("repetitions", [1, 7, 300])
def test_the_ball_of_features_is_computed_again(
    radius: float, repetitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_for(
        **BASE, dim=4, repetitions=repetitions, radius=radius, accountant="geometric", bitsum="poisson",
        allow_useless=True,
    )  # fmt: skip
    shift = plan.request.facts().touched.shift_budget
    monkeypatch.setattr(PlanRequest, "facts", None)
    found = neighbors(plan)
    assert (found.instances, found.attained.bits) == (repetitions, 0)
    assert squared(plan) == pytest.approx(shift, rel=1e-12)
    assert squared(replace(plan, request=replace_radius(plan.request, None))) == repetitions


def replace_radius(request: PlanRequest, radius: float | None) -> PlanRequest:
    """The request with another radius, unchecked: its facts are not to be read."""
    other = copy.copy(request)
    object.__setattr__(other, "radius", radius)
    return other


def test_what_is_not_declared_is_not_guessed() -> None:
    plan = plan_for(**BASE, **JOINT, bitsum="poisson", allow_useless=True)
    silent = replace(plan.contract, parameters={})
    with pytest.raises(InvalidInputError, match="size_weight"):
        neighbors(replace(plan, contract=silent))


def test_moves_in_words() -> None:
    assert str(Moves(1)) == "one complete flip"
    assert str(Moves(3, half=True)) == "3 bits that move by one half"
