"""Requests with classes: one promise for a whole record, the model that is collected for, and documents that say so."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accounting import InfeasibleError, InvalidInputError, Plan, PlanRequest
from accounting.request import MOST_MESSAGES
from tests.plans import plan_for

ASKED: dict[str, Any] = {"users": 20_000, "dim": 24, "classes": 4, "epsilon": 1.0, "delta": 1e-6}
FEW: dict[str, Any] = {"users": 400, "dim": 4, "repetitions": 4, "classes": 2, "delta": 1e-5}
NAMED: dict[str, Any] = {**ASKED, "model": "discriminant", "padded": 1_000, "moment_weight": 0.5, "bound": 0.2}


# --- what is filled in


def test_classes_alone_are_joint_and_rotated_as_one_vector() -> None:
    request = PlanRequest(**ASKED)
    assert (request.labels, request.kernel) == ("joint", "inner-product")
    assert (request.joint, request.separate, request.kde_epsilon) == (True, False, 1.0)
    assert (request.n_protocols, request.label_epsilon, request.features_epsilon) == (1, None, None)
    choice, record, facts = request.model_choice(), request.record, request.facts()
    assert choice is not None
    assert record is not None
    assert (choice.model, choice.vector) == ("discriminant", record)
    assert record.padded <= MOST_MESSAGES
    assert (facts.record, facts.n_instances, facts.bound) == (record, record.padded, record.planned_bound)


def test_a_density_has_no_labels_and_the_paper_s_kernel() -> None:
    request = PlanRequest(users=100, dim=4, epsilon=1.0, delta=1e-6)
    assert (request.kernel, request.joint, request.separate) == ("gaussian", False, False)
    assert (request.kde_epsilon, request.record, request.model_choice()) == (1.0, None, None)


@pytest.mark.parametrize("parts", [{"label_epsilon": 0.75}, {"features_epsilon": 0.25}, {"labels": "separate"}])
def test_a_part_of_epsilon_means_separate_labels(parts: dict[str, Any]) -> None:
    request = PlanRequest(**ASKED, **parts)
    assert (request.labels, request.kernel, request.n_protocols) == ("separate", "gaussian", 4)
    assert request.label_epsilon is not None
    assert request.label_response() is not None, "no label goes out unprotected"
    assert request.kde_epsilon + request.label_epsilon == pytest.approx(1.0, rel=1e-12)
    if "labels" not in parts:
        assert (request.label_epsilon, request.kde_epsilon) == (0.75, 0.25)


@pytest.mark.parametrize(
    "blocks",
    [
        {"kernel": "gaussian"}, {"kernel": "inner-product-signs"}, {"accountant": "pld"}, {"padded": 0},
        {"delta": 0.0, "bitsum": "pure"}, {"bitsum": "pure"},
    ],
)  # fmt: skip
def test_where_shifts_do_not_count_each_class_has_a_block(blocks: dict[str, Any]) -> None:
    request = PlanRequest(**{**ASKED, **blocks})
    assert (request.record, request.model_choice()) == (None, None)
    assert request.facts().joint_classes == 4
    decided = request.decided()
    assert (decided.padded, decided.moment_weight) == (0, None)
    assert decided.model == ("mean" if request.facts().linear else "density")
    assert decided.facts() == request.facts()


# --- decided


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"model": "mean"}, {"model": "density"}, {"model": "discriminant"}, {"max_messages": 200.0},
        {"kernel": "gaussian"}, {"padded": 0}, {"label_epsilon": 0.3}, {"labels": "separate", "releases": 3},
        {"features_epsilon": 0.4}, {"releases": 5}, {"classes": None}, {"classes": None, "kernel": "inner-product"},
        {"delta": 0.0, "bitsum": "pure"}, NAMED,
    ],
)  # fmt: skip
def test_what_is_decided_stays_decided(changes: dict[str, Any]) -> None:
    request = PlanRequest(**{**ASKED, **changes})
    decided = request.decided()
    assert decided.decided() == decided
    assert decided.model_choice() is None
    assert (decided.facts(), decided.kde_epsilon) == (request.facts(), request.kde_epsilon)
    assert PlanRequest(**decided.to_json()) == decided
    for name in ("users", "dim", "classes", "epsilon", "delta", "labels", "kernel", "releases"):
        assert getattr(decided, name) == getattr(request, name)


def test_what_is_decided_names_the_model_and_its_vector() -> None:
    decided = PlanRequest(**ASKED, max_messages=200.0).decided()
    assert (decided.model, decided.moment_weight, decided.padded) == ("mean", 0.0, 200)
    assert decided.bound == pytest.approx(3.0 * math.sqrt(2.0 / 200.0))
    free = PlanRequest(**ASKED).decided()
    assert free.model == "discriminant"
    assert free.moment_weight in (0.5, 1.0)


# --- what is refused


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"classes": None, "model": "mean"}, "model='mean' without joint labels"),
        ({"model": "mean", "label_epsilon": 0.5}, "model='mean' without joint labels"),
        (
            {"model": "discriminant", "kernel": "gaussian"},
            "model='discriminant' needs one rotated vector .* 'inner-product'",
        ),
        (
            {"model": "discriminant", "accountant": "pld"},
            "model='discriminant' needs one rotated vector .* 'inner-product'",
        ),
        ({"model": "discriminant", "delta": 0.0, "bitsum": "pure"}, "model='discriminant' needs .* delta > 0"),
        ({"model": "discriminant", "padded": 0}, "model='discriminant' needs .* no padded=0"),
        ({"model": "linear"}, "model='linear' is unknown"),
        ({"padded": 1_000}, "padded=1000 and moment_weight=None with model='auto'"),
        ({"moment_weight": 0.5}, "padded=None and moment_weight=0.5 with model='auto'"),
        ({"padded": 0, "moment_weight": 0.5}, "padded=0 and moment_weight=0.5"),
        ({**NAMED, "model": "auto"}, "with model='auto': a plan names them together"),
        ({**NAMED, "model": "mean"}, "moment_weight=0.5 with model='mean'"),
        ({**NAMED, "moment_weight": 0.0}, "moment_weight=0.0 with model='discriminant'"),
        ({**NAMED, "kernel": "gaussian", "bound": None}, "model='discriminant' needs"),
        ({**NAMED, "padded": 399}, "padded=399"),
        ({**NAMED, "moment_weight": 4.5}, "moment_weight=4.5"),
        ({"labels": "joint", "features_epsilon": 0.5}, "features_epsilon=0.5 belong to separate labels"),
        ({"label_epsilon": 1.0}, "^label_epsilon=1.0 leaves nothing of epsilon=1.0"),
        ({"features_epsilon": 1.0}, "^features_epsilon=1.0 leaves nothing of epsilon=1.0"),
        ({"features_epsilon": 2.0}, "^features_epsilon=2.0 leaves nothing of epsilon=1.0"),
        ({"label_epsilon": 0.4, "releases": 3}, "label_epsilon=0.4 in each of 3 releases"),
        ({"label_epsilon": 0.6, "features_epsilon": 0.6}, "are more than epsilon=1.0"),
    ],
)
def test_requests_that_contradict_themselves_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInputError, match=told) as caught:
        PlanRequest(**{**ASKED, **changes})
    assert "\n" not in str(caught.value)


def test_too_few_messages_for_any_model_are_refused_with_a_remedy() -> None:
    with pytest.raises(InfeasibleError, match=r"model='mean' takes 100 messages .* raise max_messages"):
        PlanRequest(**ASKED, max_messages=99)


# --- one promise


@given(
    epsilon=st.floats(1e-3, 100.0),
    share=st.none() | st.floats(1e-6, 1.0 - 1e-6),
    of_labels=st.booleans(),
    releases=st.integers(1, 400),
)
@example(epsilon=0.3, share=0.1, of_labels=True, releases=3)
@example(epsilon=1.1, share=1.0 / 3.0, of_labels=False, releases=7)
def test_parts_never_exceed_the_total(epsilon: float, share: float | None, of_labels: bool, releases: int) -> None:
    """Added up as the contract does, whichever part is given; and what is left unused is rounding."""
    given_part: dict[str, float] = {}
    if share is not None:
        given_part = (
            {"label_epsilon": share * epsilon / releases} if of_labels else {"features_epsilon": share * epsilon}
        )
    asked = {**FEW, "epsilon": epsilon, "releases": releases, "labels": "separate", **given_part}
    request = PlanRequest(**asked)
    assert request.label_epsilon is not None
    labels = math.fsum([request.label_epsilon] * releases)
    assert min(request.kde_epsilon, labels) > 0.0
    assert math.fsum([request.kde_epsilon, labels]) <= epsilon
    assert request.kde_epsilon + labels == pytest.approx(epsilon, rel=1e-9)
    assert request.decided().kde_epsilon == request.kde_epsilon


@pytest.mark.parametrize(("releases", "label_epsilon"), [(1, None), (1, 1.2), (3, None), (3, 0.7)])
def test_a_plan_promises_the_total_for_a_whole_record(releases: int, label_epsilon: float | None) -> None:
    plan = plan_for(
        **FEW, epsilon=3.0, releases=releases, labels="separate", label_epsilon=label_epsilon, bitsum="poisson",
        accountant="advanced", allow_useless=True,
    )  # fmt: skip
    central = [one.epsilon for one in plan.guarantees if one.view != "local"]
    assert max(central) <= 3.0
    assert max(central) == pytest.approx(3.0, rel=1e-12)
    plan.verify()


# --- documents

SMALL_RECORD: dict[str, Any] = {
    "users": 500, "dim": 2, "classes": 2, "epsilon": 2.0, "delta": 1e-5, "allow_useless": True, "max_messages": 40.0,
}  # fmt: skip


@pytest.mark.parametrize("model", ["auto", "mean"])
def test_a_plan_for_whole_records_keeps_its_hash(model: str) -> None:
    plan = plan_for(**SMALL_RECORD, model=model)
    assert plan.accountant == "geometric"
    again = Plan.from_json(json.loads(plan.dumps()))
    assert again == plan
    assert again.sha256() == plan.sha256()
    again.verify()
    assert again.request == again.request.decided()
    assert max(one.epsilon for one in plan.guarantees if one.view != "local") == 2.0
    assert {one.adjacency for one in plan.guarantees} == {"replace-one"}


def test_the_contract_of_whole_records_says_what_it_rests_on() -> None:
    plan = plan_for(**SMALL_RECORD, model="discriminant")
    rounding, _ = plan.contract.parts
    assert "block" not in json.dumps(plan.contract.to_json())
    assert "one rotated vector for features, second moments of weight" in rounding.component
    assert rounding.evidence.source == "docs/proofs/moments.md, Propositions 1 and 2"
    assert rounding.parameters["squared_distance"] in (4.0, 4.5)
    (hypothesis,) = (one for one in plan.contract.assumed if "cosine transform" in one)
    assert "off by at most 3e-05 of a vector's length" in hypothesis
    means = plan_for(**SMALL_RECORD, model="mean").contract.parts[0]
    assert "second moments" not in means.component


@pytest.mark.parametrize(
    ("name", "value"), [("moment_weight", 1.0), ("moment_weight", 0.25), ("bound", 0.9), ("padded", 80), ("dim", 3)]
)
def test_an_altered_record_is_found(name: str, value: float) -> None:
    document = json.loads(plan_for(**SMALL_RECORD, model="discriminant").dumps())
    assert document["request"][name] != value
    document["request"][name] = value
    with pytest.raises(InvalidInputError, match=r"altered|do not keep"):
        Plan.from_json(document).verify()


def old(plan: Plan, **request: Any) -> dict[str, Any]:
    """A document as it was written before ε was for the whole record."""
    document: dict[str, Any] = json.loads(plan.dumps())
    for name in ("features_epsilon", "model", "padded", "moment_weight", "max_messages"):
        document["request"].pop(name, None)
    document["request"].update(request)
    return document


def test_old_documents_with_joint_labels_have_blocks() -> None:
    plan = plan_for(**FEW, epsilon=2.0, kernel="gaussian", labels="joint", accountant="advanced", allow_useless=True)
    read = Plan.from_json(old(plan))
    assert read == plan
    assert (read.request.padded, read.request.model, read.request.epsilon) == (0, "density", 2.0)
    read.verify()


@pytest.mark.parametrize("releases", [1, 3])
def test_old_documents_with_separate_labels_had_an_epsilon_of_the_features(releases: int) -> None:
    label_epsilon = 0.3
    total = math.fsum([2.0, math.fsum([label_epsilon] * releases)])
    plan = plan_for(
        **FEW, epsilon=total, features_epsilon=2.0, label_epsilon=label_epsilon, releases=releases, bitsum="poisson",
        accountant="advanced", allow_useless=True,
    )  # fmt: skip
    read = Plan.from_json(old(plan, epsilon=2.0))
    assert read == plan
    assert (read.request.epsilon, read.request.kde_epsilon) == (total, 2.0)
    read.verify()
    unlabeled = old(plan, epsilon=2.0)
    del unlabeled["request"]["labels"]
    assert Plan.from_json(unlabeled) == plan, "as before there were joint labels"


def test_labels_of_more_classes_than_users_are_refused_before_epsilon_is_divided() -> None:
    with pytest.raises(InvalidInputError, match="fewer than two per class"):
        PlanRequest(users=2, dim=64, epsilon=20.0, delta=0.01, classes=3, labels="separate")
