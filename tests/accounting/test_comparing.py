"""The same request met by every rung and with both kinds of labels: order, refusals, totals, advice."""

from __future__ import annotations

import dataclasses
import itertools
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from accounting import InvalidInputError, PlanRequest, comparing, plan_budget
from accounting.choosing import choose, prediction
from accounting.comparing import Outcome, compare_labels, compare_rungs, label_advice
from accounting.composition import LADDER
from accounting.mechanisms import PoissonNoise
from accounting.request import LABEL_SHARES
from privkde.display.figures import plot_comparison

SMALL: dict[str, Any] = {"users": 2_000, "dim": 16, "repetitions": 16, "epsilon": 1.0, "delta": 1e-6}
CLASSES: dict[str, Any] = {**SMALL, "kernel": "gaussian", "accountant": "advanced", "classes": 4}


@cache
def rungs() -> tuple[Outcome, ...]:
    return tuple(compare_rungs(PlanRequest(**SMALL)))


@cache
def both(**changes: Any) -> tuple[Outcome, ...]:
    return tuple(compare_labels(PlanRequest(**{**CLASSES, **changes})))


SPENDING = [name for name in LADDER if name != "shifts"]
"""Rungs for laws that spend δ."""

# --- rungs ----------------------------------------------------------------------------------------


def test_every_rung_is_calibrated_in_the_order_of_the_ladder() -> None:
    assert [one.name for one in rungs()] == SPENDING
    for one in rungs():
        assert one.request == dataclasses.replace(PlanRequest(**SMALL), accountant=one.name)
        assert one.protocol is not None
        assert one.refusal == ""
        rung, touched = LADDER[one.name], one.request.facts().touched
        assert rung.excess(one.protocol, touched, 1.0, 1e-6, certified=True) <= 0.0


def test_tighter_rungs_need_less_noise() -> None:
    """`basic` and `advanced` cross with the number of bits, and `geometric` knows nothing of Gaussian shifts."""
    noise = {one.name: one.noise for one in rungs()}
    assert noise["paper"] > max(noise["basic"], noise["advanced"])
    assert min(noise["basic"], noise["advanced"]) > noise["geometric"] > 0.999 * noise["pld"] > 0.0


def test_numbers_of_an_outcome_are_those_of_its_protocol() -> None:
    for one in rungs():
        assert one.protocol is not None
        assert one.bitsum_rmse == one.protocol.rmse(2_000)
        assert one.noise == pytest.approx(2.0 * math.sqrt(2.0) * one.protocol.rmse(2_000), rel=1e-12)
        assert one.error == prediction(one.request, one.protocol)
        assert one.error is not None
        assert one.total_error == one.error.total
        assert one.messages_per_user == 16.0


@pytest.mark.parametrize(
    ("changes", "refusing"),
    [
        ({"bitsum": "poisson", "repetitions": 2}, {"paper"}),
        ({"bitsum": "pure", "delta": 0.0, "repetitions": 2}, {"advanced", "pld", "geometric"}),
    ],
)
def test_what_is_not_possible_is_listed_with_its_reason(changes: dict[str, Any], refusing: set[str]) -> None:
    found = compare_rungs(PlanRequest(**{**SMALL, **changes}))
    assert [one.name for one in found] == (list(LADDER) if changes["bitsum"] == "pure" else SPENDING)
    assert {one.name for one in found if one.protocol is None} == refusing
    for one in found:
        assert (one.protocol is None) == (len(one.refusal) > 20)
        if one.protocol is None:
            assert (one.noise, one.total_error) == (math.inf, math.inf)
            assert (one.bitsum_rmse, one.error, one.messages_per_user) == (None, None, None)


def test_the_bound_of_the_rounding_is_that_of_the_rung() -> None:
    """R < 1 pays only where shifts count: `noise` compares them all the same. One rung is calibrated, to save time."""
    request = PlanRequest(
        users=3_000, dim=64, kernel="inner-product", epsilon=2.0, delta=1e-6, accountant="advanced", allow_useless=True
    )
    assert request.facts().bound == 1.0
    geometric = dataclasses.replace(request, accountant="geometric")
    assert 0.2 < geometric.facts().bound < 0.9
    one = Outcome.of("advanced", request, lambda _: None)
    assert one.protocol is not None
    same = dataclasses.replace(one, request=geometric)
    assert same.noise == pytest.approx(geometric.facts().bound * one.noise, rel=1e-12)


# --- labels ---------------------------------------------------------------------------------------


def test_separate_labels_are_compared_with_joint_ones_for_the_sum() -> None:
    separate, joint = both(epsilon=3.0, label_epsilon=2.0)
    assert (separate.name, joint.name) == ("separate", "joint")
    whole = {**CLASSES, "epsilon": 3.0, "allow_useless": True}
    assert separate.request == PlanRequest(**whole, label_epsilon=2.0)
    assert joint.request == PlanRequest(**whole, labels="joint")


def test_joint_labels_are_compared_with_the_best_split_of_the_same_epsilon() -> None:
    joint, separate = both(labels="joint")
    assert (joint.name, separate.name) == ("joint", "separate")
    assert joint.request == PlanRequest(**CLASSES, labels="joint", allow_useless=True)
    label_epsilon = separate.request.label_epsilon
    assert label_epsilon is not None
    assert separate.request.epsilon == 1.0
    assert separate.request.kde_epsilon + label_epsilon == pytest.approx(1.0, rel=1e-12)
    assert label_epsilon in LABEL_SHARES
    assert separate.request.labels == "separate"
    for share in LABEL_SHARES:
        other = PlanRequest(**CLASSES, label_epsilon=share, allow_useless=True)
        tried = Outcome.of("separate", other, lambda _: None, certified=False)
        assert separate.total_error <= tried.total_error
        assert (tried.total_error == separate.total_error) == (share == label_epsilon)


def test_users_that_the_noise_counts_on_are_as_many_in_both() -> None:
    """Per class with separate labels, altogether with joint ones."""
    _, joint = both(epsilon=3.0, label_epsilon=2.0, min_users=400)
    assert (joint.request.min_users, joint.request.counted_users) == (1_600, 1_600)
    _, separate = both(labels="joint", min_users=1_600)
    assert (separate.request.min_users, separate.request.counted_users) == (400, 400)
    assert joint.protocol is not None
    assert joint.bitsum_rmse == joint.protocol.rmse(2_000) > joint.protocol.rmse(1_600), "all users make noise"
    _, least = both(labels="joint", min_users=3)
    assert least.request.min_users == 2


def test_joint_labels_serve_small_budgets_and_separate_ones_large_epsilon() -> None:
    """With ε_lbl = ½ most labels are wrong; with ε_lbl = 15 none is, and only joint labels share out the rounding."""
    separate, joint = both(epsilon=1.5, label_epsilon=0.5)
    assert joint.total_error < 0.8 * separate.total_error
    assert separate.error is not None
    assert separate.error.labels == pytest.approx(3.0 / (3.0 + math.exp(0.5)), rel=1e-12)
    joint, separate = both(labels="joint", epsilon=20.0)
    assert separate.total_error < joint.total_error
    assert joint.error is not None
    assert joint.error.labels == 0.0


def test_a_comparison_may_be_of_useless_plans() -> None:
    found = both(users=40, epsilon=0.4, label_epsilon=0.2)
    assert min(one.total_error for one in found) > 1.0
    assert all(one.protocol is not None for one in found)


def test_without_classes_there_is_nothing_to_compare() -> None:
    assert compare_labels(PlanRequest(**SMALL)) == []
    assert label_advice(PlanRequest(**SMALL)) is None


def test_a_planned_protocol_stands_for_itself() -> None:
    """Unless it is of another bitsum than the one that is compared."""
    request, (given, joint) = PlanRequest(**CLASSES, label_epsilon=0.5), both(label_epsilon=0.5)
    planned, _, _ = choose(request)
    found = compare_labels(request, planned=planned)
    assert found[0].protocol is planned
    assert found[1] == joint
    assert compare_labels(request, planned=PoissonNoise(n_users=100, total_mean=9.0)) == [given, joint]


@pytest.mark.parametrize(
    ("changes", "best"),
    [({"epsilon": 1.5, "label_epsilon": 0.5}, "joint"), ({"epsilon": 20.0, "label_epsilon": 10.0}, "separate")],
)
def test_advice_names_the_smaller_error(changes: dict[str, Any], best: str) -> None:
    outcomes = both(**changes)
    text = label_advice(PlanRequest(**{**CLASSES, **changes}))
    assert text is not None
    assert f"'{best}' has the smaller predicted error" in text
    assert min(outcomes, key=lambda one: one.total_error).name == best
    total, label = changes["epsilon"], changes["label_epsilon"]
    for words in (f"separate ε = {total - label:g} + {label:g}", f"joint ε = {total:g}"):
        assert words in text
    for one in outcomes:
        assert f"{one.total_error:.3g}" in text


@pytest.mark.parametrize("bitsum", ["poisson", pytest.param("rr", marks=pytest.mark.slow)])
def test_plans_with_classes_carry_the_advice(bitsum: str) -> None:
    asked: dict[str, Any] = {**SMALL, "kernel": "gaussian", "bitsum": bitsum, "accountant": "basic"}
    for labels in ({"label_epsilon": 0.5}, {"labels": "joint"}):
        plan = plan_budget(**asked, classes=2, **labels)
        assert plan.reasons[-1].startswith("labels: 'joint' has the smaller")
    assert not any(reason.startswith("labels") for reason in plan_budget(**asked).reasons)


def test_impossible_labels_are_told_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: PlanRequest, *_: Any, **__: Any) -> Any:
        if request.joint:
            raise InvalidInputError("no joint labels today; come back tomorrow.")
        return choose(request, certified=False)

    monkeypatch.setattr(comparing, "choose", refuse)
    _, joint = compare_labels(PlanRequest(**CLASSES, label_epsilon=0.5))
    assert joint.refusal == "no joint labels today; come back tomorrow."
    text = label_advice(PlanRequest(**CLASSES, label_epsilon=0.5))
    assert text is not None
    assert "'separate' has the smaller" in text
    assert "joint ε = 1: not possible" in text


# --- pictures -------------------------------------------------------------------------------------


def test_what_is_compared_is_drawn(tmp_path: Path) -> None:
    refused = Outcome(name="pld", request=PlanRequest(**SMALL), protocol=None, refusal="not today")
    shown = [*rungs()[:3], refused]
    for name, begin in (("ladder.svg", b"<?xml"), ("ladder.png", b"\x89PNG"), ("again.svg", b"<?xml")):
        plot_comparison(shown, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begin)
    drawing = (tmp_path / "ladder.svg").read_text()
    assert all(f">{name}<" in drawing for name in ("paper", "basic", "advanced", "messages per user"))
    assert ">pld<" not in drawing
    assert drawing == (tmp_path / "again.svg").read_text()
    with pytest.raises(InvalidInputError, match="nothing to draw"):
        plot_comparison([refused], tmp_path / "none.svg")
    with pytest.raises(InvalidInputError, match="must end in"):
        plot_comparison(shown, tmp_path / "ladder.gif")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.svg", "ladder.png", "ladder.svg"]


def test_shares_are_in_order_and_leave_something_for_both() -> None:
    assert all(0.0 < a < b < 1.0 for a, b in itertools.pairwise(LABEL_SHARES))
