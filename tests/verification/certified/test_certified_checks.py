"""The checks of the certified layer: what they refute, and what they say of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from accounting import Plan
from tests.plans import plan_for
from tests.verification.certified.enclosures import with_parameters
from verification.certified.certificate import certify
from verification.certified.certified_checks import CHECKS, certified_bound, one_promise
from verification.verdicts import QUICK, Finding, Subject

SMALL: dict[str, Any] = {
    "users": 300, "dim": 4, "repetitions": 4, "epsilon": 2.0, "delta": 1e-3, "bitsum": "poisson", "allow_useless": True,
}  # fmt: skip


def small(**changes: Any) -> Plan:
    return plan_for(**{**SMALL, **changes})


def altered(plan: Plan, name: str, factor: float) -> Plan:
    return with_parameters(plan, **{name: plan.parameters[name] * factor})


def verdict(plan: Plan) -> Finding:
    return certified_bound.run(Subject(plan=plan), QUICK, 0)


@pytest.mark.parametrize(
    "changes", [{}, {"bitsum": "rr", "users": 30}, {"bitsum": "pure", "delta": 0.0, "epsilon": 4.0}], ids=str
)
def test_honest_plans_are_not_refuted(changes: dict[str, Any]) -> None:
    plan = small(**changes)
    found, certificate = verdict(plan), certify(plan)
    assert not found.refuted, found.note
    assert certificate.upper_epsilon is not None
    assert found.power == 1.0
    gap = certificate.upper_epsilon / certificate.covered_epsilon - 1.0
    assert found.smallest_detectable_defect == pytest.approx(gap)
    assert certificate.headline in found.note


@pytest.mark.parametrize(
    ("changes", "name", "factor"),
    [({}, "total_mean", 0.9), ({"bitsum": "rr", "users": 30}, "flip_probability", 0.8),
     ({"bitsum": "pure", "delta": 0.0, "epsilon": 4.0}, "silence_probability", 0.5)],
)  # fmt: skip
def test_less_noise_is_refuted(changes: dict[str, Any], name: str, factor: float) -> None:
    assert verdict(altered(small(**changes), name, factor)).refuted


def test_the_witness_says_whether_the_promise_or_its_proof_is_false() -> None:
    hashed = verdict(altered(small(kernel="laplacian", dim=16, accountant="pld"), "total_mean", 0.9))
    assert hashed.witness is not None
    assert "the contract's claim for the touched bits is false" in hashed.witness.found
    assert hashed.witness.numbers["lower"] < 2.0 < hashed.witness.numbers["covered"]
    gaussian = verdict(altered(small(), "total_mean", 0.9))
    assert gaussian.witness is not None
    assert "the promise to people is false" in gaussian.witness.found
    assert gaussian.witness.numbers["lower"] > 2.0


def test_pure_says_nothing_of_people_from_below() -> None:
    found = certify(small(bitsum="pure", delta=0.0, epsilon=4.0))
    assert found.lower_epsilon == 0.0
    assert any("silent" in note for note in found.notes)


def test_plan_verifies_refutes_an_altered_plan() -> None:
    check = next(one for one in CHECKS if one.name == "plan-verifies")
    assert not check.run(Subject(plan=small()), QUICK, 0).refuted
    assert check.run(Subject(plan=altered(small(), "total_mean", 0.9)), QUICK, 0).refuted


@pytest.mark.parametrize("total", [3.0, 1.0], ids=["whole", "features alone"])
def test_the_parts_of_a_record_may_not_exceed_what_was_asked_for(total: float) -> None:
    """A plan for 1 + 2; as if somebody had asked for 1 and got the label's response on top."""
    plan = plan_for(users=6_000, dim=4, repetitions=4, classes=3, label_epsilon=2.0, epsilon=3.0, delta=1e-5,
                    accountant="pld", bitsum="poisson")  # fmt: skip
    object.__setattr__(request := dataclasses.replace(plan.request), "epsilon", total)
    found = one_promise.run(Subject(plan=dataclasses.replace(plan, request=request)), QUICK, 0)
    assert found.refuted == (total < 3.0)
    assert found.statistic == pytest.approx(3.0 / total)
