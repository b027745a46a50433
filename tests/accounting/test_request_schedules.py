"""Several releases under one promise: what is composed, what the documents say, and what brute force finds."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from accounting import Adjacency, InfeasibleError, InvalidInputError, Plan, PlanRequest, View, solve
from accounting.comparing import compare_labels
from accounting.composition import LADDER, Touched
from accounting.mechanisms import rebuild
from accounting.releases.composing import spent
from accounting.releases.release import Release
from accounting.request import LONGEST_SCHEDULE
from tests.plans import plan_for

DOCUMENTS = Path(__file__).parent / "documents"
WEEKLY: dict[str, Any] = {"users": 400, "dim": 4, "repetitions": 6, "epsilon": 2.0, "delta": 1e-5}
QUICK: dict[str, Any] = {**WEEKLY, "bitsum": "poisson", "accountant": "advanced"}
LABELED: dict[str, Any] = {**WEEKLY, "epsilon": 6.5, "classes": 2, "label_epsilon": 1.5}
AUTO = pytest.param("auto", marks=pytest.mark.slow)
TINY: dict[str, Any] = {"users": 4, "dim": 1, "epsilon": 2.0, "delta": 0.02, "allow_useless": True}
Laws = NDArray[np.float64]


# --- what is composed


@pytest.mark.parametrize("accountant", ["pld", "advanced", "basic"])
def test_releases_of_some_instances_need_the_noise_of_one_release_of_all(accountant: str) -> None:
    schedule = plan_for(**WEEKLY, accountant=accountant, releases=4)
    at_once = plan_for(**{**WEEKLY, "repetitions": 24}, accountant=accountant)
    assert schedule.parameters == at_once.parameters
    assert schedule.ladder == at_once.ladder
    assert schedule.instances_per_user == at_once.instances_per_user == 24
    once = plan_for(**WEEKLY, accountant=accountant)
    assert (schedule.messages_per_user, schedule.error.feature) == (once.messages_per_user, once.error.feature)


def test_squared_shifts_of_all_releases_add_up_and_their_coins_are_not_counted_on() -> None:
    once = Touched(groups=3, per_group=2, squared_shift=1.5, largest_shift=0.5, unit_ball=True)
    assert once.repeated(1) == once
    assert once.repeated(4) == Touched(groups=12, per_group=2, squared_shift=6.0, largest_shift=0.5, adaptive=True)
    assert Touched(groups=3, per_group=1).repeated(2).shift_budget == 6.0
    facts = PlanRequest(**{**TINY, "dim": 8}, kernel="inner-product", bound=1.0, releases=4).facts()
    assert facts.touched_once.unit_ball
    assert not facts.touched.unit_ball
    assert facts.touched.shift_budget == pytest.approx(4.0 * facts.touched_once.shift_budget)
    assert facts.paper_touched.total == facts.touched.total == 32


@pytest.mark.parametrize("numbers", [(1, 4, 20), pytest.param((1, 2, 5, 20), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("bitsum", ["rr", "poisson"])
def test_more_releases_never_need_less_noise(bitsum: str, numbers: tuple[int, ...]) -> None:
    plans = [plan_for(**WEEKLY, bitsum=bitsum, accountant="pld", releases=times) for times in numbers]
    for fewer, more in itertools.pairwise(plans):
        assert more.bitsum_rmse > 1.2 * fewer.bitsum_rmse
        assert more.baselines[0].predicted_rmse > fewer.baselines[0].predicted_rmse


@pytest.mark.parametrize("accountant", ["pld", AUTO])
def test_the_contract_is_for_all_releases_and_says_so(accountant: str) -> None:
    plan = plan_for(**WEEKLY, accountant=accountant, releases=4)
    local = next(promise for promise in plan.guarantees if promise.view is View.LOCAL)
    flip = plan.parameters["flip_probability"]
    assert local.epsilon == pytest.approx(4 * 6 * math.log((1 - flip) / flip))
    assert "touched by one user, in each of 4 releases" in plan.contract.component
    assert any("all 4 releases together, whose number and plan are fixed" in text for text in plan.contract.assumed)
    words = plan.explain()
    assert "features are replaced by in any or all of 4 releases" in words
    assert "= 6 bitsum instances in each of 4 releases, 24 in all." in words
    assert "out of 400 users in one release." in words
    assert "bits per user in expectation in one release" in words
    plan.verify()
    assert Plan.from_json(json.loads(plan.dumps())) == plan


@pytest.mark.parametrize("accountant", ["advanced", AUTO])
def test_the_label_is_reported_in_every_release(accountant: str) -> None:
    """T reports of pure ε_lbl: the likeliest sequence has the ratio e^{Tε_lbl}, so nothing smaller can be promised."""
    plan = plan_for(**LABELED, accountant=accountant, releases=3)
    promised = {(one.adjacency, one.view): one for one in plan.guarantees}
    response = plan.request.label_response()
    assert response is not None
    attained = 3 * math.log(response.keep_probability / response.other_probability)
    for view in View:
        assert promised[Adjacency.LABEL, view].epsilon == pytest.approx(attained, rel=1e-12)
        both = promised[Adjacency.FEATURES, view].epsilon + 4.5
        assert promised[Adjacency.RECORD, view].epsilon == pytest.approx(both)
    assert promised[Adjacency.FEATURES, View.COMMUNICATION].epsilon == 2.0
    _, joint = compare_labels(plan.request)
    assert joint.request.epsilon == 2.0 + 3 * 1.5
    _, separate = compare_labels(joint.request)
    assert separate.request.kde_epsilon + 3 * (separate.request.label_epsilon or 0.0) == pytest.approx(6.5)


@pytest.mark.parametrize("accountant", ["advanced", AUTO])
def test_nobody_is_charged_one_report_of_the_label_for_all(accountant: str) -> None:
    plan = plan_for(**LABELED, accountant=accountant, releases=3)
    release = Release.of_plan("a year", plan)
    assert len(release.parts) == 1 + 3
    assert release.collections == 3
    assert spent([release], 1e-5).basic >= 2.0 + 4.5


def test_a_schedule_is_charged_as_a_whole() -> None:
    """One charge for all releases: what it costs at the promised δ is the promised ε, not that of one release."""
    schedule = plan_for(**WEEKLY, accountant="pld", releases=4)
    assert 1.9 < spent([Release.of_plan("a year", schedule)], 1e-5).epsilon <= 2.0 + 1e-9


# --- brute force


def counted(chances: list[float]) -> Laws:
    """The law of the number of ones among independent reports."""
    law = np.ones(1)
    for chance in chances:
        law = np.convolve(law, [1.0 - chance, chance])
    return law


def adaptive_delta(first: list[tuple[Laws, Laws]], again: list[tuple[Laws, Laws]], epsilon: float) -> float:
    """The largest Σ (P − e^ε Q)₊ of two releases, the second of which is chosen after the first was seen."""
    largest = 0.0
    for upper, lower in first:
        total = 0.0
        for p, q in zip(upper, lower, strict=True):
            total += max(float(np.sum(np.maximum(p * u - math.exp(epsilon) * q * v, 0.0))) for u, v in again)
        largest = max(largest, total)
    return largest


def flip_pairs(flip: float, n_users: int) -> list[tuple[Laws, Laws]]:
    """One instance of randomized response: the target's bit flips, and any number of the others hold a one."""
    pairs = []
    for ones in range(n_users):
        others = [1.0 - flip] * ones + [flip] * (n_users - 1 - ones)
        there, away = counted([*others, 1.0 - flip]), counted([*others, flip])
        pairs += [(there, away), (away, there)]
    return pairs


def test_two_releases_by_brute_force_are_within_the_promise() -> None:
    """All data of the others in the first release, and again in the second, chosen for what the first one showed."""
    schedule, once = (plan_for(**TINY, repetitions=1, accountant="pld", releases=times) for times in (2, 1))
    pairs, fewer = (flip_pairs(float(plan.parameters["flip_probability"]), 4) for plan in (schedule, once))
    exact = adaptive_delta(pairs, pairs, 2.0)
    assert 0.9 * 0.02 < exact <= 0.02
    assert adaptive_delta(fewer, fewer, 2.0) > 0.03, "the noise of one release is refuted"


def vector_pairs(flip: float, n_users: int) -> list[tuple[Laws, Laws]]:
    """Two coordinates of vectors in the unit ball, rounded and flipped: all pairs of records and data of the others."""
    vectors = [(1.0, 0.0), (-1.0, 0.0), (math.sqrt(0.5), math.sqrt(0.5))]

    def law(target: tuple[float, float], others: tuple[tuple[float, float], ...]) -> Laws:
        reports = [[flip + (1.0 - 2.0 * flip) * (1.0 + x[j]) / 2.0 for x in (target, *others)] for j in (0, 1)]
        return np.outer(*(counted(chances) for chances in reports)).ravel()

    crowds = list(itertools.combinations_with_replacement(vectors, n_users - 1))
    return [
        (law(x, others), law(other, others)) for x, other in itertools.permutations(vectors, 2) for others in crowds
    ]


def test_two_releases_of_vectors_by_brute_force_are_within_the_geometric_profile() -> None:
    request = {**TINY, "users": 3, "dim": 2, "kernel": "inner-product", "bound": 1.0, "accountant": "geometric"}
    plan = plan_for(**request, releases=2)
    protocol, touched = plan.protocol(), plan.request.facts().touched
    claimed = LADDER["geometric"].profile(protocol, touched, near_epsilon=2.0, delta=0.02)
    assert claimed is not None
    pairs = vector_pairs(float(plan.parameters["flip_probability"]), 3)
    for epsilon, seen in ((0.25, 0.1), (1.0, 0.02), (2.0, 0.0)):
        assert seen <= adaptive_delta(pairs, pairs, epsilon) <= claimed(epsilon)
    bare = vector_pairs(0.7 * float(plan.parameters["flip_probability"]), 3)
    assert adaptive_delta(bare, bare, 2.0) > 0.02, "seven tenths of the flips are refuted"


# --- documents


def test_a_document_from_before_there_were_schedules_loads_with_its_hash() -> None:
    document = json.loads((DOCUMENTS / "plan-0.2.0.json").read_text(encoding="utf-8"))
    assert not {"releases", "dropout", "colluders"} & document["request"].keys()
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    plan = Plan.from_json(document)
    assert plan.sha256() == hashlib.sha256(canonical.encode()).hexdigest()
    assert plan.to_json() == document
    plan.verify()
    assert plan.bits_per_user == 3 * plan.messages_per_user, "messages named their instances, and may have"
    other = dataclasses.replace(plan, bits_per_user=2 * plan.messages_per_user)
    assert other.recomputed().bits_per_user == plan.messages_per_user
    assert (plan.request.releases, plan.request.dropout, plan.request.colluders) == (1, 0.0, 0.0)


def test_a_document_with_separate_labels_loads_with_the_total_epsilon() -> None:
    """Its ε was that of the features. It says the same in today's words, so its hash is another."""
    document = json.loads((DOCUMENTS / "plan-0.2.0-labels.json").read_text(encoding="utf-8"))
    assert (document["request"]["epsilon"], document["request"]["label_epsilon"]) == (2.0, 1.5)
    plan = Plan.from_json(document)
    plan.verify()
    assert (plan.request.epsilon, plan.request.features_epsilon, plan.request.label_epsilon) == (3.5, 2.0, 1.5)
    assert plan.request.kde_epsilon == 2.0
    today = plan.to_json()
    assert today["request"] == {**document["request"], "epsilon": 3.5, "features_epsilon": 2.0}
    assert {**today, "request": document["request"]} == document, "guarantees, contract and numbers are the same"
    assert max(one.epsilon for one in plan.guarantees if one.view is not View.LOCAL) == 3.5
    again = Plan.from_json(json.loads(plan.dumps()))
    assert again == plan
    assert again.sha256() == plan.sha256()


@pytest.mark.parametrize("asked", [QUICK, pytest.param(WEEKLY, marks=pytest.mark.slow)], ids=["quick", "auto"])
def test_one_release_is_what_a_request_without_the_field_says(asked: dict[str, Any]) -> None:
    assert PlanRequest(**WEEKLY, releases=1) == PlanRequest(**WEEKLY)
    assert "releases" not in PlanRequest(**WEEKLY, releases=1).to_json()
    several = PlanRequest(**WEEKLY, releases=2)
    assert several.to_json()["releases"] == 2
    assert PlanRequest(**several.to_json()) == several
    altered = {**plan_for(**asked, releases=2).to_json(), "request": PlanRequest(**asked, releases=3).to_json()}
    with pytest.raises(InvalidInputError, match="was altered"):
        Plan.from_json(altered).verify()


# --- inverse questions


@pytest.mark.parametrize(
    "asked", [QUICK, pytest.param({**WEEKLY, "accountant": "pld"}, marks=pytest.mark.slow)], ids=["quick", "pld"]
)
def test_the_most_releases_for_a_target_error(asked: dict[str, Any]) -> None:
    plan = plan_for(**asked, releases=5)
    wanted = {**asked, "target_error": plan.error.total * 1.0001}
    solved = solve("releases", **wanted)
    assert solved.request.releases == 5
    assert solved.parameters == plan.parameters
    assert solved.reasons[0].startswith("solved for the largest number of releases: 5")
    with pytest.raises(InvalidInputError, match="releases=5 was given"):
        solve("releases", **wanted, releases=5)
    with pytest.raises(InfeasibleError, match="not even one release is possible"):
        solve("releases", **{**wanted, "target_error": 1e-3})
    assert LONGEST_SCHEDULE > 24 * 366


@pytest.mark.parametrize("times", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_other_questions_hold_the_number_of_releases(times: int) -> None:
    plan = plan_for(**WEEKLY, accountant="pld", releases=times)
    wanted = {name: value for name, value in WEEKLY.items() if name != "epsilon"}
    solved = solve("epsilon", **wanted, accountant="pld", releases=times, target_error=plan.error.total)
    assert solved.request.releases == times
    assert solved.request.epsilon == pytest.approx(2.0, rel=5e-3)
    assert rebuild("rr", 400, solved.parameters).rmse() == pytest.approx(plan.bitsum_rmse, rel=1e-2)


def test_more_instances_than_can_be_composed_are_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="repetitions of all releases="):
        PlanRequest(**{**WEEKLY, "repetitions": 10**6}, releases=11)
    assert Fraction(PlanRequest(**{**WEEKLY, "repetitions": 10**6}, releases=10).facts().touched.total) == 10**7
