"""What a plan promises as a whole profile, here and in dp-accounting."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from dp_accounting.pld import privacy_loss_distribution

from accounting import InvalidInputError, Plan, PlanRequest, PrivkdeError
from accounting.composition import LADDER
from accounting.releases.composing import joint_profile
from accounting.releases.release import plan_parts
from tests.plans import plan_for

SMALL: dict[str, Any] = {"users": 2000, "dim": 4, "repetitions": 8, "epsilon": 1.0, "delta": 1e-6, "accountant": "pld"}
LABELED = SMALL | {"classes": 2, "epsilon": 2.0, "label_epsilon": 1.0}


def test_the_profile_passes_through_the_promise() -> None:
    profile = plan_for(**SMALL).profile
    assert profile.delta(1.0) <= 1e-6 * (1.0 + 1e-8)
    assert profile.epsilon(1e-6) == pytest.approx(1.0, rel=2e-3)
    assert 0.01 < profile.true_positive_rate(0.01) < 0.01 * 2.72
    assert [rate for rate, _ in profile.tradeoff(3)] == [0.0, 0.5, 1.0]


def test_the_profile_is_that_of_the_whole_record() -> None:
    plan = plan_for(**LABELED)
    joint = joint_profile([part.profile for part in plan_parts(plan)])
    assert all(plan.profile.delta(0.1 * step) <= joint.delta(0.1 * step) for step in range(20))
    features, label = (part.profile for part in plan_parts(plan))
    assert plan.profile.delta(0.5) > max(features.delta(0.5), label.delta(0.5))
    assert plan.profile.delta(2.0) <= 1e-6 * (1.0 + 1e-3)


def test_the_profile_is_computed_once() -> None:
    plan = plan_for(**SMALL)
    assert plan.profile is plan.profile


def test_an_altered_plan_has_no_profile() -> None:
    document = plan_for(**SMALL).to_json()
    document["instance"]["parameters"]["flip_probability"] *= 0.9
    with pytest.raises(InvalidInputError, match="altered"):
        _ = Plan.from_json(document).profile


@pytest.mark.parametrize("request_", [SMALL, LABELED])
def test_in_dp_accounting_a_plan_is_never_below_its_profile(request_: dict[str, Any]) -> None:
    plan = plan_for(**request_)
    exported = plan.to_pld(1e-3)
    for epsilon in (0.0, 0.2, 0.7, 1.0, 1.5):
        assert plan.profile.delta(epsilon) <= exported.get_delta_for_epsilon(epsilon)
    for delta in (1e-2, 1e-4, 1.001e-6):
        assert exported.get_epsilon_for_delta(delta) == pytest.approx(plan.profile.epsilon(delta), abs=2e-3)


def test_in_dp_accounting_a_plan_composes() -> None:
    """Twice the plan beside the composition that releases use, and with a mechanism of theirs."""
    plan = plan_for(**SMALL)
    exported = plan.to_pld()
    twice = joint_profile([plan.profile, plan.profile])
    for composed in (exported.self_compose(2), exported.compose(exported)):
        assert composed.get_epsilon_for_delta(1e-6) == pytest.approx(twice.epsilon(1e-6), rel=1e-2)
    noise = privacy_loss_distribution.from_gaussian_mechanism(10.0)
    assert 1.0 < exported.compose(noise).get_epsilon_for_delta(2e-6) < 1.0 + noise.get_epsilon_for_delta(1e-6)


CHEAP: dict[str, Any] = {"users": 40, "dim": 2, "repetitions": 3, "epsilon": 4.0, "delta": 1e-3, "bitsum": "poisson"}
CHEAP |= {"accountant": "basic", "allow_useless": True}
STRANGE: tuple[Any, ...] = (
    "text",
    "\x1b[31m",
    "\ud800",
    [],
    [1],
    {},
    {"a": 1},
    True,
    math.inf,
    math.nan,
    -1.0,
    10**400,
)
NUMBERS = (
    ("instance", "epsilon_0"), ("instance", "delta_0"), ("composition", "instances_per_user"),
    ("composition", "ladder", "basic"), ("error", "bitsum_rmse"), ("error", "sup_rmse_bound"),
    ("error", "parts", "rounding"), ("communication", "messages_per_user"), ("communication", "bits_per_user"),
    ("baselines", 0, "predicted_rmse"), ("contracts", 0, "guarantees", 0, "epsilon"),
)  # fmt: skip
TEXTS = (
    ("reasons", 0), ("contracts", 0, "component"), ("contracts", 0, "assumed", 0), ("baselines", 0, "name"),
    ("contracts", 0, "evidence", "method"), ("accountant",), ("bitsum",),
)  # fmt: skip


@pytest.mark.parametrize("strange", STRANGE, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("path", [*NUMBERS, *TEXTS], ids=lambda path: path[-1])
def test_a_value_of_another_kind_is_refused_in_one_line(path: tuple[Any, ...], strange: Any) -> None:
    """Each of them could be read before; explaining, printing, hashing or writing such a plan raised anything."""
    if path in TEXTS and strange == "text" and path not in (("accountant",), ("bitsum",)):
        strange = 7  # a text is what belongs there
    document = json.loads(plan_for(**CHEAP).dumps())
    *outer, last = path
    holder = document
    for step in outer:
        holder = holder[step]
    holder[last] = strange
    with pytest.raises(InvalidInputError) as caught:
        Plan.from_json(document)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("accountant", sorted(set(LADDER) - {"basic", "paper", "shifts"}))
def test_a_rung_that_cannot_account_for_the_protocol_is_refused(accountant: str) -> None:
    """A regression: δ = 0 of `pure` under advanced composition ended in a division by zero."""
    plan = plan_for(users=50, dim=2, repetitions=2, kernel="gaussian", epsilon=20.0, delta=0.0, bitsum="pure")
    with pytest.raises(InvalidInputError, match="only adding up losses keeps delta = 0"):
        dataclasses.replace(plan, accountant=accountant).verify()


def test_infinite_messages_are_no_plan() -> None:
    """Such a plan passed `verify`, which proved the promise and did not look at messages."""
    plan = plan_for(**CHEAP)
    plan.verify()
    with pytest.raises(InvalidInputError, match=r"messages_per_user=inf is outside"):
        dataclasses.replace(plan, messages_per_user=math.inf)


def numbers_in(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], float]]:
    """Every number of a document, and where it is."""
    if isinstance(part, (dict, list)):
        for name, value in part.items() if isinstance(part, dict) else enumerate(part):
            yield from numbers_in(value, (*path, name))
    elif isinstance(part, (int, float)) and not isinstance(part, bool):
        yield path, part


def refusal(document: dict[str, Any]) -> str:
    """Why a document is refused."""
    with pytest.raises(PrivkdeError) as caught:
        Plan.from_json(document).verify()
    return str(caught.value)


def require_all_numbers_checked(document: dict[str, Any]) -> None:
    """What a request asks for is given, not derived, but no other request may have this plan either.

    There is one exception: the features of the Gaussian kernel are as many in every dimension from 2 on.
    """
    tried = 0
    for path, number in numbers_in(document):
        for wrong in (2 * number, 1e300, -number or -1.0, 0, math.inf, math.nan):
            if wrong == number or (path == ("request", "dim") and wrong == 2 * number):
                continue
            altered = copy.deepcopy(document)
            holder = altered
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = wrong
            if "parts" in path:  # an attacker adds up, too
                altered["error"]["predicted_rmse"] = math.hypot(*altered["error"]["parts"].values())
            assert refusal(altered).isprintable(), (path, wrong)
            tried += 1
    assert tried > 300


def test_every_number_of_a_document_is_checked() -> None:
    require_all_numbers_checked(json.loads(plan_for(**CHEAP).dumps()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"classes": 2, "label_epsilon": 3.0},
        {"classes": 2, "labels": "joint", "kernel": "gaussian", "users": 100},
        {"bitsum": "pure", "users": 2_000, "delta": 0.0},
        {"bitsum": "rr", "accountant": "pld"},
    ],
)
def test_every_number_of_other_documents_is_checked(changes: dict[str, Any]) -> None:
    require_all_numbers_checked(json.loads(plan_for(**CHEAP | changes).dumps()))


def test_a_plan_from_before_a_rung_verifies() -> None:
    plan = plan_for(**CHEAP)
    dataclasses.replace(plan, ladder={name: plan.ladder[name] for name in ("basic", "pld")}).verify()
    with pytest.raises(InvalidInputError, match=r"the ladder lacks 'basic', the plan's accountant"):
        dataclasses.replace(plan, ladder={}).verify()


@pytest.mark.parametrize("delta", [5e-324, 1e-310, 9.9e-301])
def test_a_delta_whose_shares_vanish_is_refused(delta: float) -> None:
    with pytest.raises(InvalidInputError, match=r"is positive and below 1e-300; choose a larger one, or 0\.$"):
        PlanRequest(**CHEAP | {"delta": delta})


@pytest.mark.parametrize("bitsum", ["poisson", "negative-binomial", "3nb"])
def test_a_promise_beyond_all_noise_is_infeasible(bitsum: str) -> None:
    with pytest.raises(PrivkdeError) as caught:
        plan_for(**CHEAP | {"epsilon": 1e-8, "delta": 1e-300, "bitsum": bitsum})
    assert "ask for a larger epsilon" in str(caught.value)
