"""Plans with joint labels: what a request may ask, the document, the promise, and how the error falls."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest

from accounting import Adjacency, InfeasibleError, InvalidInputError, Plan, PlanRequest, View, plan_budget, solve
from accounting.accuracy.density_error import predicted_error
from accounting.choosing import choose, prediction
from accounting.composition import LADDER
from accounting.kernels import KERNELS, kernel_named
from tests.plans import plan_for

SMALL: dict[str, Any] = {
    "users": 2_000, "dim": 8, "repetitions": 8, "epsilon": 2.0, "delta": 1e-6, "accountant": "advanced",
}  # fmt: skip
JOINT: dict[str, Any] = {**SMALL, "kernel": "gaussian", "labels": "joint", "classes": 3}


@pytest.mark.parametrize(
    ("changes", "model"),
    [
        ({"kernel": "gaussian", "repetitions": 8}, "density"),
        ({"kernel": "inner-product", "accountant": "pld", "epsilon": 20.0}, "mean"),
        ({"kernel": "inner-product", "bitsum": "pure", "delta": 0.0, "epsilon": 20.0}, "mean"),
    ],
)
def test_auto_says_why_where_there_is_no_discriminant(changes: dict[str, Any], model: str) -> None:
    asked: dict[str, Any] = {"users": 2_000, "dim": 2, "epsilon": 2.0, "delta": 1e-6, "classes": 3, "labels": "joint"}
    plan = plan_budget(**asked | {"allow_useless": True} | changes)
    assert plan.request.model == model
    assert plan.reasons[0].startswith(f"model {model}: a discriminant needs whole records that are rotated: kernel")
    named = plan_budget(**asked | {"allow_useless": True} | changes, model=model)
    assert not any(reason.startswith("model") for reason in named.reasons)


def test_a_linear_model_that_is_useless_is_refused_in_its_own_words() -> None:
    asked: dict[str, Any] = {"users": 60, "dim": 16, "epsilon": 0.1, "delta": 1e-6, "classes": 3, "max_messages": 300}
    with pytest.raises(InfeasibleError, match=r"noise of a class would be about .* vectors have norm 1; the smallest"):
        plan_budget(**asked, model="discriminant")
    with pytest.raises(InfeasibleError, match="above the largest kernel value; the smallest"):
        plan_budget(**asked, model="density")


# --- requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"classes": None}, r"classes=None with labels='joint'"),
        ({"label_epsilon": 1.0}, r"label_epsilon=1.0 and features_epsilon=None belong to separate labels"),
        ({"features_epsilon": 1.0}, r"label_epsilon=None and features_epsilon=1.0 belong to separate labels"),
        ({"classes": 1}, "classes=1"),
        ({"classes": 2.0}, "classes=2.0"),
        ({"classes": 1_001}, "fewer than two per class"),
        ({"labels": "both"}, "labels='both' is unknown"),
        ({"labels": "jiont"}, "Did you mean 'joint'"),
        ({"labels": None}, "labels=None"),
        ({"min_users": 2_001}, "min_users=2001"),
    ],
)
def test_what_joint_labels_refuse(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        PlanRequest(**{**JOINT, **changes})


@pytest.mark.parametrize("part", ["label_epsilon", "features_epsilon"])
def test_a_part_of_epsilon_without_classes_is_refused(part: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{part}=1.0 .*give classes and labels='separate'"):
        PlanRequest(**{**SMALL, part: 1.0})


def test_one_protocol_for_all_users_and_a_density_for_each_class() -> None:
    joint, separate = PlanRequest(**JOINT), PlanRequest(**SMALL, classes=3, label_epsilon=1.0)
    assert (joint.joint, separate.joint) == (True, False)
    assert (joint.n_protocols, joint.users_per_protocol, joint.users_per_density) == (1, 2_000, 666)
    assert (separate.n_protocols, separate.users_per_protocol, separate.users_per_density) == (3, 666, 666)
    assert joint.counted_users == 2_000
    assert PlanRequest(**JOINT, min_users=1_999).counted_users == 1_999
    assert joint.label_response() is None
    assert separate.label_response() is not None
    assert joint.facts() == kernel_named("gaussian").facts(dim=8, repetitions=8).joint(3)
    assert separate.facts() == kernel_named("gaussian").facts(dim=8, repetitions=8)


def test_the_bound_follows_the_users_that_round() -> None:
    """Rounding error of a class: R²n/n_c², with joint labels that of all n users."""
    asked: dict[str, Any] = {"kernel": "inner-product", "dim": 64, "epsilon": 1.0, "delta": 1e-6, "classes": 4}
    joint = PlanRequest(users=16_000, **asked, labels="joint", padded=0)
    alone = PlanRequest(users=1_000, **{**asked, "classes": None})
    assert joint.facts().bound == alone.facts().bound < 1.0
    assert PlanRequest(users=4_000, **asked, label_epsilon=0.5).facts().bound == alone.facts().bound


# --- facts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", [2, 7])
def test_facts_of_joint_labels(kernel: str, classes: int) -> None:
    base = kernel_named(kernel).facts(dim=5, repetitions=None if kernel == "inner-product" else 6)
    joint = base.joint(classes)
    assert joint.joint_classes == classes
    assert joint.n_instances == classes * (base.n_instances + 1)
    assert joint.touched.total == 2 * base.sparsity * base.n_repetitions + 2
    assert (joint.bound, joint.sparsity, joint.bias, joint.feature) == (
        base.bound, base.sparsity, base.bias, base.feature,
    )  # fmt: skip
    assert joint.privacy == pytest.approx(base.privacy + base.n_repetitions / joint.size_weight**2, rel=1e-12)
    moved = 2.0 * joint.bound * math.sqrt(joint.touched.shift_budget / joint.n_repetitions)
    assert joint.replaced_norm >= max(base.replaced_norm, moved * (1.0 - 1e-12))


def test_the_error_of_an_estimated_size_is_part_of_the_prediction() -> None:
    """For a density of 1 at y: Var(ñ)/n_c² = (n(1 − w²)/4 + E²)/(w n_c)², on top of the sums' own error."""
    base = kernel_named("inner-product").facts(dim=5)
    joint, n, classes, rmse = base.joint(4), 4_000, 4, 30.0
    whole, alone = predicted_error(joint, n / classes, rmse), predicted_error(base, n / classes, rmse)
    w, size = joint.size_weight, n / classes
    assert whole.privacy**2 - alone.privacy**2 == pytest.approx((rmse / (w * size)) ** 2, rel=1e-9)
    sums = classes * alone.rounding**2  # everybody rounds in the block of every class
    assert whole.rounding**2 - sums == pytest.approx(n * (1.0 - w**2) / 4.0 / (w * size) ** 2, rel=1e-9)


# --- the document ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bitsum", ["rr", "pure"])
def test_json_round_trip_and_verification(bitsum: str) -> None:
    accountant = "basic" if bitsum == "pure" else "advanced"
    plan = plan_for(**{**JOINT, "accountant": accountant}, bitsum=bitsum)
    document = json.loads(plan.dumps())
    again = Plan.from_json(document)
    assert again == plan
    again.verify()
    assert plan.sup_rmse_bound is None
    assert document["error"]["sup_rmse_bound"] is None
    assert document["request"]["labels"] == "joint"
    assert document["request"]["label_epsilon"] is None
    assert plan.instances_per_user == 2 * 8 + 2
    assert set(plan.ladder) == set(LADDER)


def test_plans_written_before_joint_labels_are_read() -> None:
    plan = plan_for(**SMALL)
    document = json.loads(plan.dumps())
    del document["request"]["labels"]
    del document["error"]["parts"]["labels"]
    assert Plan.from_json(document) == plan


def test_the_promise_is_for_the_whole_record() -> None:
    plan = plan_for(**JOINT)
    found = {(g.adjacency, g.view): (g.epsilon, g.delta) for g in plan.guarantees}
    assert {adjacency for adjacency, _ in found} == {Adjacency.RECORD}
    assert found[Adjacency.RECORD, View.COMMUNICATION] == found[Adjacency.RECORD, View.MODEL] == (2.0, 1e-6)
    assert plan.contract.guarantees == plan.guarantees
    assert "label_epsilon" not in json.dumps(plan.contract.to_json())
    assert "3 joint labels" in plan.contract.component
    rounding, _ = plan.contract.parts
    assert "in the block of the label" in rounding.component
    assert rounding.checked == ("2·1·8 + 2 = 18 touched instances",)
    assert any("nothing else is published that depends on the labels" in one for one in plan.contract.assumed)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("request", "classes", 2),
        ("request", "labels", "separate"),
        ("request", "epsilon", 1.0),
        ("", "accountant", "pld"),
    ],
)
def test_an_altered_plan_is_found(part: str, name: str, value: Any) -> None:
    document = json.loads(plan_for(**JOINT).dumps())
    (document[part] if part else document)[name] = value
    if value == "separate":
        document["request"]["classes"] = None  # a density of features: the contract promises more
        del document["request"]["model"], document["request"]["padded"]
    with pytest.raises(InvalidInputError, match=r"altered|do not keep"):
        Plan.from_json(document).verify()


def test_less_noise_than_joint_labels_need_is_found() -> None:
    """The noise of a density with the same ε is not enough: 18 bits are touched and not 8."""
    document = json.loads(plan_for(**JOINT).dumps())
    alone = plan_for(**SMALL)
    assert alone.parameters["flip_probability"] < document["instance"]["parameters"]["flip_probability"]
    document["instance"]["parameters"]["flip_probability"] = alone.parameters["flip_probability"]
    with pytest.raises(InvalidInputError, match="do not keep"):
        Plan.from_json(document).verify()


def test_explain_tells_of_features_and_label() -> None:
    plan = plan_for(**JOINT)
    text = plan.explain()
    assert "Whatever one person's features and label are replaced by" in text
    assert "2SI + 2 = 2·1·8 + 2 = 18 bitsum instances" in text
    assert "Theorem 3.2 guarantees" not in text
    assert f"{plan.error.labels:.3g}" in text
    assert not any(reason.startswith("labels") for reason in plan.reasons), "advice is for people: `plan_budget`"
    assert "Whatever one person's features are replaced by" in plan_for(**SMALL).explain()
    assert "Theorem 3.2 guarantees" in plan_for(**SMALL).explain()


def test_a_linear_model_says_how_noisy_its_means_and_moments_are() -> None:
    asked: dict[str, Any] = {"users": 3000, "dim": 6, "classes": 2, "epsilon": 1.0, "delta": 1e-6, "max_messages": 40.0}
    for model, moments in (("mean", False), ("discriminant", True)):
        plan = plan_for(**asked, model=model)
        (reason,) = [reason for reason in plan.reasons if "noise of a class mean" in reason]
        privacy, rounding = ((plan.request.facts().bound * x) ** 2 for x in (2.0 * plan.bitsum_rmse, math.sqrt(3000)))
        least, most = (math.sqrt(6 * square) / 1500 for square in (privacy, privacy + rounding))
        found = float(reason.split("(even classes) ")[1].split(";")[0].split(",")[0])
        assert least < found < 1.02 * most, "the last digit and what is given back for clipping are up to 2 %"
        assert ("of second moments" in reason) is moments
    assert not any("class mean" in reason for reason in plan_for(**asked, model="density").reasons)


# --- laws -----------------------------------------------------------------------------------------


def total(**changes: Any) -> float:
    request = PlanRequest(**{**JOINT, "allow_useless": True, **changes})
    return prediction(request, choose(request, certified=False)[0]).total


def test_more_users_fewer_classes_or_more_epsilon_never_hurt() -> None:
    for errors in (
        [total(users=n) for n in (200, 1_000, 5_000, 100_000)],
        [total(classes=m) for m in (20, 7, 3, 2)],
        [total(epsilon=e) for e in (0.25, 1.0, 4.0)],
    ):
        assert all(a > b > 0.0 for a, b in itertools.pairwise(errors))


def test_joint_labels_need_more_noise_than_one_density_and_no_more_for_many_classes() -> None:
    noise = [choose(PlanRequest(**{**JOINT, "classes": m}, allow_useless=True))[0].rmse() for m in (2, 50)]
    assert noise[0] == noise[1] > choose(PlanRequest(**SMALL))[0].rmse()


def test_mislabeled_users_are_a_bias_of_separate_labels_only() -> None:
    request = PlanRequest(**SMALL, classes=3, label_epsilon=1.0)
    found = prediction(request, choose(request)[0])
    assert found.labels == pytest.approx(2.0 / (2.0 + math.e), rel=1e-12)
    assert found.total == pytest.approx(
        math.sqrt((found.bias + found.labels) ** 2 + found.feature**2 + found.rounding**2 + found.privacy**2), rel=1e-12
    )
    assert plan_for(**JOINT).error.labels == plan_for(**SMALL).error.labels == 0.0


def test_baselines_of_joint_labels_are_for_a_class() -> None:
    whole, third = plan_for(**SMALL), plan_for(**JOINT)
    assert [one.name for one in whole.baselines] == [one.name for one in third.baselines] == ["central", "local"]
    for one, other in zip(whole.baselines, third.baselines, strict=True):
        assert other.predicted_rmse > one.predicted_rmse


def test_solving_with_joint_labels() -> None:
    asked = {name: value for name, value in JOINT.items() if name != "users"}
    found = solve("users", target_error=0.5, **asked)
    assert found.error.total <= 0.5
    assert total(users=round(0.98 * found.request.users)) > 0.5
    with pytest.raises(InvalidInputError, match=r"measure='bound' with labels='joint'"):
        solve("users", target_error=0.5, measure="bound", **asked)
    least = solve("users", target_error=5.0, min_users=30, **asked)
    assert least.request.users >= 30
    assert least.request.counted_users == 30


def test_a_bound_below_one_is_biased_by_no_more_than_what_is_clipped() -> None:
    """Theorem 3.2 is for all x: clipping may take away all but R, whatever is likely."""
    facts = kernel_named("inner-product").facts(dim=64, bound=0.4)
    assert 0.0 < facts.bias < 0.01
    assert facts.largest_bias == pytest.approx(0.6)
    assert kernel_named("inner-product").facts(dim=64).largest_bias == 0.0
    assert kernel_named("laplacian").facts(dim=4, bias=0.1).largest_bias == 0.1


def test_the_planner_bounds_the_rounding_only_where_shifts_count() -> None:
    asked: dict[str, Any] = {"users": 3_000, "kernel": "inner-product", "epsilon": 1.0, "delta": 1e-6}
    for accountant in (*LADDER, "auto"):
        wide = PlanRequest(**asked, dim=64, accountant=accountant).facts().bound
        assert (wide < 1.0) == (accountant in ("geometric", "shifts", "auto"))
        assert PlanRequest(**asked, dim=31, accountant=accountant).facts().bound == 1.0
        assert PlanRequest(**asked, dim=64, accountant=accountant, bound=0.9).facts().bound == 0.9
    assert PlanRequest(**asked, dim=64, bitsum="pure").facts().bound == 1.0


def test_infeasible_joint_plans_name_the_smallest_number_of_users() -> None:
    with pytest.raises(InvalidInputError, match="labels"):
        plan_budget(**{**JOINT, "labels": 7})
    with pytest.raises(
        InfeasibleError, match=r"with 60 users no rr parameters .* smallest feasible n is about [\d,]+;"
    ):
        plan_budget(**{**JOINT, "users": 60, "epsilon": 0.2})
