"""Inverse questions: the answer meets the target and a little less does not."""

from __future__ import annotations

from typing import Any

import pytest

from accounting import InfeasibleError, InvalidInputError, PlanRequest, solve, solving
from accounting.accuracy.density_error import sup_error_bound
from accounting.choosing import choose, noise_of_a_class_mean, prediction

BASE: dict[str, Any] = {"dim": 8, "kernel": "gaussian", "bitsum": "rr", "delta": 1e-6, "accountant": "pld"}
QUICK: dict[str, Any] = {**BASE, "bitsum": "poisson", "accountant": "advanced"}


def predicted(**request: Any) -> float:
    asked = PlanRequest(**{**BASE, "allow_useless": True, **request})
    return prediction(asked, choose(asked)[0]).total


def test_smallest_epsilon() -> None:
    request = {**QUICK, "accountant": "basic", "users": 300, "repetitions": 16}
    plan = solve("epsilon", target_error=0.3, **request)
    assert plan.error.total <= 0.3
    assert predicted(**request, epsilon=0.99 * plan.request.epsilon) > 0.3
    assert "smallest epsilon" in plan.reasons[0]
    again, rung, reasons = choose(plan.request)
    assert (plan.protocol(), plan.accountant, plan.reasons[1:]) == (again, rung.name, reasons)


def test_smallest_users() -> None:
    """Of randomized response, whose noise depends on the users."""
    request = {**BASE, "accountant": "basic", "repetitions": 16, "epsilon": 1.0}
    plan = solve("users", target_error=0.3, **request)
    assert plan.error.total <= 0.3
    assert predicted(**{**request, "users": round(0.99 * plan.request.users)}) > 0.3


def test_smallest_users_of_a_classifier() -> None:
    """Until the noise of class means is as small as asked for."""
    request: dict[str, Any] = {"dim": 4, "classes": 3, "epsilon": 2.0, "delta": 1e-5, "max_messages": 200}
    plan = solve("users", target_error=0.1, measure="mean", **request)
    fewer = PlanRequest(**request, users=round(0.98 * plan.request.users))
    enough, short = (
        noise_of_a_class_mean(asked, law) for asked, law in ((plan.request, plan.protocol()), (fewer, choose(fewer)[0]))
    )
    assert enough is not None
    assert short is not None
    assert enough <= 0.1 < short
    assert "noise of a class mean (even classes) 0.1" in " ".join(plan.reasons)
    for other in ({"kernel": "gaussian", "repetitions": 4}, {"model": "density"}, {"classes": None}):
        with pytest.raises(InvalidInputError, match="measure='mean' and no class means are collected"):
            solve("users", target_error=0.1, measure="mean", **{**request, **other})


def test_smallest_repetitions() -> None:
    plan = solve("repetitions", target_error=0.2, epsilon=1.0, users=5_000, **QUICK)
    assert plan.error.total <= 0.2
    assert plan.request.repetitions is not None
    assert predicted(**QUICK, users=5_000, epsilon=1.0, repetitions=plan.request.repetitions - 1) > 0.2


@pytest.mark.parametrize(("alpha", "epsilon"), [(0.8, 20.0), pytest.param(0.5, 8.0, marks=pytest.mark.slow)])
def test_theorem_3_3_is_a_special_case(alpha: float, epsilon: float) -> None:
    """Given α, I = O(1/α²) repetitions reach supRMSE α by Theorem 3.2's own bound and the published 3NB."""
    request = {**BASE, "bitsum": "3nb", "accountant": "paper"}
    plan = solve("repetitions", target_error=alpha, measure="bound", epsilon=epsilon, users=100_000, **request)
    assert plan.sup_rmse_bound is not None
    assert plan.sup_rmse_bound <= alpha
    repetitions = plan.request.repetitions
    assert repetitions is not None
    assert 64 / alpha**2 <= repetitions <= 1.05 * 64 / alpha**2
    assert plan.delta_0 == pytest.approx(1e-6 / (2 * repetitions))
    facts = plan.request.facts()
    assert plan.sup_rmse_bound == sup_error_bound(facts, 100_000, plan.bitsum_rmse)


@pytest.mark.parametrize("repetitions", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_message_limit_alone(repetitions: int) -> None:
    plan = solve("epsilon", max_messages=40.0, users=1_000, repetitions=repetitions, **{**QUICK, "accountant": "basic"})
    assert plan.messages_per_user <= 40.0
    assert plan.request.epsilon > 0.01


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"unknown": "delta", "target_error": 0.1}, "unknown='delta'"),
        ({"unknown": "epsilon"}, "nothing to solve for"),
        ({"unknown": "epsilon", "target_error": 0.1, "classes": "two", "label_epsilon": 1.0}, "classes='two'"),
        ({"unknown": "epsilon", "target_error": 0.1, "epsilon": 1.0}, "leave it out"),
        ({"unknown": "epsilon", "target_error": -1.0}, "target_error"),
        ({"unknown": "epsilon", "target_error": 0.1, "measure": "worst"}, "measure='worst'"),
    ],
)
def test_bad_questions(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        solve(arguments.pop("unknown"), users=1_000, repetitions=16, **BASE, **arguments)


def test_the_smallest_epsilon_takes_few_calibrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """11, where bisection took 14, two of them with a proof; an ε that is 0.5 % smaller is not enough."""
    asked: dict[str, Any] = {"users": 30_000, "dim": 384, "kernel": "inner-product", "delta": 1e-6}
    tried: list[bool] = []

    def counted(request: PlanRequest, *say: Any, certified: bool = True) -> Any:
        tried.append(certified)
        return choose(request, *say, certified=certified)

    monkeypatch.setattr(solving, "choose", counted)
    found = solve("epsilon", target_error=0.02, **asked)
    assert found.error.total <= 0.02
    assert len(tried) <= 12
    assert tried.count(True) == 1
    less = PlanRequest(**asked, epsilon=0.995 * found.request.epsilon, allow_useless=True)
    assert prediction(less, choose(less, certified=False)[0]).total > 0.02


def test_unreachable_targets_say_what_is_missing() -> None:
    with pytest.raises(InfeasibleError, match=r"the predicted error is 0\.2"):
        solve("epsilon", target_error=0.1, users=1_000, repetitions=16, **BASE)


MANY: dict[str, Any] = {"users": 30_000, "dim": 8, "epsilon": 4.0, "delta": 1e-6, "accountant": "pld"}


def test_fewest_messages_are_those_of_the_fewest_repetitions() -> None:
    request = {**MANY, "users": 5_000, "target_error": 0.4, "accountant": "basic"}
    found = solve("messages", **request)
    assert found.messages_per_user == solve("repetitions", **request).messages_per_user
    assert found.reasons[0].startswith("solved for the fewest messages")


@pytest.mark.slow
def test_fewest_messages_of_any_protocol() -> None:
    best = solve("messages", target_error=0.2, **MANY, bitsum="auto")
    assert best.error.total <= 0.2
    assert best.messages_per_user < solve("messages", target_error=0.2, **MANY).messages_per_user


def test_fewest_messages_need_a_target_and_a_way() -> None:
    with pytest.raises(InvalidInputError, match="target_error"):
        solve("messages", max_messages=10.0, **MANY)
    with pytest.raises(InvalidInputError, match="'pure'"):
        solve("messages", target_error=0.2, **MANY, bitsum="pure")
