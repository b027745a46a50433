"""Certificates: of honest plans, of plans with less noise, and what is left of an altered one."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import tracemalloc
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest
from flint import ctx

from accounting import Contract, InvalidInputError, Plan, PlanRequest
from accounting.feature_ball import FeatureBall
from accounting.guarantee import Adjacency, Guarantee, View
from accounting.planning import plan as make_plan
from tests.plans import plan_for
from tests.verification.certified.enclosures import declaring, with_parameters
from verification.certified import noise_laws
from verification.certified.certificate import NOT_COVERED, Certificate, certify, recheck

SMALL: dict[str, Any] = {
    "users": 30, "dim": 4, "repetitions": 2, "epsilon": 2.0, "delta": 1e-2, "allow_useless": True
}  # fmt: skip
LARGE: dict[str, Any] = {"users": 30_000, "dim": 64, "repetitions": 64, "epsilon": 2.0, "delta": 1e-6}
INNER: dict[str, Any] = {"kernel": "inner-product", "bound": 0.5, "accountant": "geometric", "bitsum": "poisson"}
PLANS: dict[str, dict[str, Any]] = {
    "rr": SMALL,
    "one instance": {**SMALL, "repetitions": 1, "dim": 1},
    "poisson": {**SMALL, "bitsum": "poisson"},
    "negative-binomial": {**SMALL, "bitsum": "negative-binomial"},
    "3nb": {**SMALL, "users": 2000, "bitsum": "3nb"},
    "basic": {**SMALL, "bitsum": "poisson", "accountant": "basic"},
    "label": {**SMALL, "bitsum": "poisson", "classes": 3, "label_epsilon": 0.5},
    "shifts": {**SMALL, "users": 2000, "dim": 8, "repetitions": None, **INNER},
    "pure": {**SMALL, "users": 2000, "bitsum": "pure", "delta": 0.0, "epsilon": 4.0},
    "held": {
        **SMALL, "users": 2000, "dim": 8, "repetitions": 48, "radius": 0.4, "accountant": "geometric",
        "bitsum": "poisson",
    },
}  # fmt: skip
STUDY = {
    "large rr": LARGE,
    "large 3nb": {**LARGE, "bitsum": "3nb"},
    "hashed": {**LARGE, "kernel": "laplacian", "dim": 16},
    "ball": {**LARGE, "kernel": "inner-product", "repetitions": None, "dim": 16},
    "signs": {**LARGE, "kernel": "inner-product-signs"},
}
CASES = [*PLANS, *(pytest.param(name, marks=pytest.mark.slow) for name in STUDY)]


def planned(name: str) -> Plan:
    return plan_for(**{**PLANS, **STUDY}[name])


def altered(plan: Plan, factor: float, name: str) -> Plan:
    return with_parameters(plan, **{name: plan.parameters[name] * factor})


@pytest.mark.parametrize("name", CASES)
def test_honest_plans_are_proved_and_their_certificates_checked_again(name: str) -> None:
    plan = planned(name)
    found = certify(plan)
    assert found.proves, found.headline
    assert not found.refutes
    assert found.upper_epsilon is not None
    assert 0.0 <= found.lower_epsilon <= found.covered_epsilon <= found.upper_epsilon <= found.claimed_epsilon
    assert found.covered_epsilon >= 0.7 * found.claimed_epsilon or found.witness is None or plan.accountant == "basic"
    again = Certificate.from_json(json.loads(found.dumps()))
    assert again == found
    assert recheck(plan, again) == []


LESS = [
    ("rr", "flip_probability", 0.998),
    ("poisson", "total_mean", 0.99),
    ("negative-binomial", "shape", 0.99),
    ("3nb", "continue_probability", 0.99),
    ("shifts", "total_mean", 0.93),
    ("held", "total_mean", 0.93),
    ("pure", "silence_probability", 0.9),
    ("pure", "noise_epsilon", 1.1),
]


@pytest.mark.parametrize(("name", "parameter", "factor"), LESS)
def test_less_noise_is_not_proved(name: str, parameter: str, factor: float) -> None:
    found = certify(altered(planned(name), factor, parameter))
    assert not found.proves, found.headline


@pytest.mark.parametrize(
    ("name", "parameter", "factor"), [("rr", "flip_probability", 0.9), ("poisson", "total_mean", 0.6)]
)
def test_much_less_noise_is_refuted(name: str, parameter: str, factor: float) -> None:
    found = certify(altered(planned(name), factor, parameter))
    assert found.refutes
    assert found.headline.startswith("refuted")


def test_one_instance_too_few_is_not_proved() -> None:
    """The noise of a plan for fewer repetitions."""
    fewer = plan_for(**{**SMALL, "repetitions": 1})
    found = certify(with_parameters(planned("rr"), **fewer.parameters))
    assert not found.proves
    assert found.refutes


def test_users_who_are_not_counted_on_do_not_count() -> None:
    """A plan for 30 users of whom 20 are counted on, with the noise of one that counts on all."""
    fewer = plan_for(**{**SMALL, "min_users": 20})
    assert certify(fewer).proves
    assert not certify(with_parameters(fewer, **planned("rr").parameters)).proves


# --- altered documents ----------------------------------------------------------------------------


def leaves(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in children:
        if isinstance(value, dict | list) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


def with_leaf(document: dict[str, Any], path: tuple[Any, ...], change: Any) -> dict[str, Any]:
    found = copy.deepcopy(document)
    place: Any = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = change(place[path[-1]])
    return found


WORDS = ("made", "versions")
"""Nothing is claimed by these."""
UPPER, LOWER = ("upper_epsilon", "epsilon", "upper_curve"), ("covered_epsilon", "lower_epsilon", "lower_curve")


def falsified(path: tuple[Any, ...]) -> list[Any]:
    """Changes that make a statement false, or at least another one. A weaker statement may well be true."""

    def louder(value: Any) -> Any:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int | float):
            stronger = 0.99 if path[1] in UPPER else 1.05
            if path[1:2] == ("upper_curve",) and path[-1] == 1:
                stronger = 0.5
            return value * stronger + (0.0 if path[0] == "proved" and path[1] in UPPER else 0.01)
        return f"{value}x" if isinstance(value, str) else 0.5

    return [louder, lambda _: None, lambda _: "x", lambda _: [1], lambda _: math.nan, lambda _: -1]


@pytest.mark.parametrize(
    "name",
    ["label", "pure", *(pytest.param(name, marks=pytest.mark.slow) for name in ("rr", "shifts"))],
)
def test_every_leaf_matters(name: str) -> None:
    """One at a time: refused when it is read, or named when it is checked again. Words excepted.

    A witness is where theorems are evaluated: any other is as good if the numbers follow there too, so of a changed
    witness only that is asked. Points of curves that got weaker follow as before.
    """
    plan = planned(name)
    honest = certify(plan)
    document, seen = honest.to_json(), 0
    for path in leaves(document):
        if path[0] in WORDS or path[0] == "witness":
            continue
        for change in falsified(path):
            wrong = with_leaf(document, path, change)
            if str(wrong) == str(document):
                continue
            seen += 1
            try:
                read = Certificate.from_json(wrong)
            except InvalidInputError:
                continue
            weaker = path[:2] == ("proved", "lower_curve") and read.lower_curve != honest.lower_curve
            assert recheck(plan, read) or weaker, (path, wrong)
    assert seen > 50


def test_every_leaf_of_a_witness_is_read_or_refused() -> None:
    plan = planned("rr")
    document = certify(plan).to_json()
    for path in leaves(document["witness"]):
        for wrong in (None, "x", [1], math.nan, math.inf, -1, 10**9 if path[-1] != "cell" else 10**18):
            with pytest.raises(InvalidInputError):
                Certificate.from_json(with_leaf(document, ("witness", *path), lambda _, wrong=wrong: wrong))


def test_a_witness_that_proves_less_is_found() -> None:
    """A coarse grid, one that ends early, wide windows: theorems hold there, and the numbers do not follow."""
    plan = planned("rr")
    found = certify(plan)
    assert found.witness is not None
    assert found.witness.grid is not None
    grid = found.witness.grid
    for changes in (
        {"grid": dataclasses.replace(grid, points=3)},
        {"grid": dataclasses.replace(grid, step=8 * grid.step)},
        {"tail": 0.01},
        {"bits": 64, "grid": dataclasses.replace(grid, step=1e-12)},
    ):
        worse = dataclasses.replace(found, witness=dataclasses.replace(found.witness, **changes))
        assert recheck(plan, worse)


def test_certificates_of_other_plans_are_not_checked() -> None:
    plan, other = planned("rr"), planned("poisson")
    assert recheck(other, certify(plan)) == ["the certificate is for another plan, or the plan was altered"]
    dimmed = altered(plan, 0.999, "flip_probability")
    assert recheck(dimmed, certify(plan))
    forged = dataclasses.replace(certify(plan), plan_sha256=dimmed.sha256())
    assert recheck(dimmed, forged), "its numbers do not follow for this plan"


@pytest.mark.parametrize(("name", "value"), [("squared_shift", 1.0), ("radius", 0.1), ("center", 0.0)])
def test_contracts_that_declare_another_ball_are_not_proved(name: str, value: float) -> None:
    plan = planned("held")
    liar = dataclasses.replace(plan, contract=declaring(plan.contract, {name: value}))
    found = certify(liar)
    assert not found.proves
    assert name in found.headline


def test_a_ball_that_is_understated_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the accountant, consistently in request, contract and noise: the checker has a formula of its own."""
    monkeypatch.setattr(FeatureBall, "squared_radius", property(lambda ball: ball.n_features * ball.mean))
    less = make_plan(PlanRequest(**PLANS["held"]))
    assert less.bitsum_rmse < 0.98 * planned("held").bitsum_rmse
    found = certify(less)
    assert not found.proves
    assert found.refutes, "the bits that Δ² has room for cost more than the claim"


@pytest.mark.parametrize(("name", "value"), [("bound", 1.0), ("squared_shift", 1.0)])
def test_contracts_that_declare_less_than_parties_use_are_not_proved(name: str, value: float) -> None:
    """R = 1 for features that are rounded with R = ½ would quarter Δ²."""
    plan = planned("shifts")
    liar = dataclasses.replace(plan, contract=declaring(plan.contract, {name: value}))
    assert liar != plan
    found = certify(liar)
    assert not found.proves
    assert name in found.headline


def promising(plan: Plan, promise: Guarantee) -> list[Plan]:
    """The plan with one more promise, in its own list or in its contract."""
    longer = dataclasses.replace(plan.contract, guarantees=(*plan.contract.guarantees, promise))
    part = dataclasses.replace(plan.contract, parts=(*plan.contract.parts, longer))
    return [
        dataclasses.replace(plan, guarantees=(*plan.guarantees, promise)),
        dataclasses.replace(plan, contract=longer),
        dataclasses.replace(plan, contract=part),
    ]


STRONGER = [
    ("rr", Guarantee(epsilon=0.001, delta=1e-2, adjacency=Adjacency.FEATURES, view=View.COMMUNICATION)),
    ("rr", Guarantee(epsilon=2.0, delta=0.0, adjacency=Adjacency.FEATURES, view=View.MODEL)),
    ("rr", Guarantee(epsilon=0.001, delta=1e-2, adjacency=Adjacency.LABEL, view=View.MODEL)),
    ("label", Guarantee(epsilon=2.0, delta=0.0, adjacency=Adjacency.RECORD, view=View.COMMUNICATION)),
    ("label", Guarantee(epsilon=1.9, delta=1e-2, adjacency=Adjacency.RECORD, view=View.MODEL)),
    ("label", Guarantee(epsilon=0.01, delta=0.0, adjacency=Adjacency.LABEL, view=View.COMMUNICATION)),
]


@pytest.mark.parametrize(("name", "promise"), STRONGER, ids=str)
def test_documents_that_promise_more_than_was_planned_are_not_proved(name: str, promise: Guarantee) -> None:
    for plan in promising(planned(name), promise):
        found = certify(plan)
        assert not found.proves
        assert not found.refutes
        assert "and its request asks for" in found.headline
        honest = certify(planned(name))
        forged = dataclasses.replace(honest, plan_sha256=plan.sha256())
        assert any("its request asks for" in sentence for sentence in recheck(plan, forged))


def test_empty_and_weaker_promises_change_nothing() -> None:
    for promise in (
        Guarantee(epsilon=0.0, delta=1.0, adjacency=Adjacency.FEATURES, view=View.COMMUNICATION),
        Guarantee(epsilon=3.0, delta=0.1, adjacency=Adjacency.FEATURES, view=View.COMMUNICATION),
    ):
        for plan in promising(planned("rr"), promise)[:2]:  # the third has one more part, which nobody planned
            assert certify(plan).proves


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("poisson", "mean_per_user", 1e-9),
        ("negative-binomial", "shape_per_user", 1e-9),
        ("3nb", "flood_shape_per_user", 1e-9),
        ("pure", "n_users", 10**6),
        ("rr", "n_users", 10**6),
        ("rr", "temperature", 1.0),
    ],
)
def test_parameters_that_do_not_follow_are_not_proved(name: str, parameter: str, value: float) -> None:
    """A contract tells users to draw by `mean_per_user`: with 1e-9 that is almost no noise."""
    plan = planned(name)
    found = certify(dataclasses.replace(plan, parameters={**plan.parameters, parameter: value}))
    assert not found.proves
    assert parameter in found.headline


def restated(contract: Contract, change: Callable[[Contract], Contract]) -> Contract:
    """The contract and its parts, each changed."""
    return change(dataclasses.replace(contract, parts=tuple(restated(part, change) for part in contract.parts)))


OTHERWISE: dict[str, tuple[str, Callable[[Contract], Contract]]] = {
    "other noise": ("flip_probability", lambda one: declaring(one, {"flip_probability": 0.4})),
    "fewer instances": ("instances_touched", lambda one: declaring(one, {"instances_touched": 1})),
    "another rung": ("accountant", lambda one: declaring(one, {"accountant": "basic"})),
    "fewer users": (
        "assumed",
        lambda one: dataclasses.replace(one, assumed=tuple(text.replace("30", "20") for text in one.assumed)),
    ),
    "nothing assumed": ("assumed", lambda one: dataclasses.replace(one, assumed=())),
    "no parts": ("contract", lambda one: dataclasses.replace(one, parts=())),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_contracts_that_say_otherwise_are_not_proved(name: str) -> None:
    """All that is proved rests on what the contract assumes."""
    plan, (said, change) = planned("rr"), OTHERWISE[name]
    liar = dataclasses.replace(plan, contract=restated(plan.contract, change))
    assert liar != plan
    found = certify(liar)
    assert not found.proves
    assert not found.refutes
    assert said in found.headline
    forged = dataclasses.replace(certify(plan), plan_sha256=liar.sha256())
    assert any(said in sentence for sentence in recheck(liar, forged))


def test_requests_for_another_protocol_are_not_proved() -> None:
    plan = planned("rr")
    found = certify(dataclasses.replace(plan, request=dataclasses.replace(plan.request, bitsum="poisson")))
    assert not found.proves
    assert "plan.bitsum is 'rr' and should be 'poisson'" in found.headline


def test_numbers_of_instances_that_do_not_follow_are_not_proved() -> None:
    found = certify(dataclasses.replace(planned("rr"), instances_per_user=1))
    assert not found.proves
    assert "instances_per_user" in found.headline


NARROW = [(Adjacency.FEATURES, View.LOCAL), (Adjacency.BIT, View.COMMUNICATION), (Adjacency.LABEL, View.LOCAL)]


@pytest.mark.parametrize(("adjacency", "view"), NARROW)
def test_made_up_promises_about_local_views_and_single_bits_void_the_proof(adjacency: Adjacency, view: View) -> None:
    """They are not proved, but who reads "proved" reads them in the same document."""
    plan = planned("label" if adjacency is Adjacency.LABEL else "rr")
    honest = certify(plan)
    assert honest.proves
    for liar in promising(plan, Guarantee(epsilon=1e-9, delta=0.0, adjacency=adjacency, view=view)):
        found = certify(liar)
        assert not found.proves
        assert not found.refutes
        assert recheck(liar, found)
        forged = dataclasses.replace(honest, plan_sha256=liar.sha256())
        assert recheck(liar, forged)


@pytest.mark.parametrize("factor", [0.999, 1.001])
def test_promises_about_local_views_and_single_bits_may_be_weaker_and_not_stronger(factor: float) -> None:
    def changed(promises: tuple[Guarantee, ...]) -> tuple[Guarantee, ...]:
        return tuple(
            dataclasses.replace(one, epsilon=one.epsilon * factor)
            if one.view is View.LOCAL or one.adjacency is Adjacency.BIT
            else one
            for one in promises
        )

    plan = planned("rr")
    contract = restated(plan.contract, lambda one: dataclasses.replace(one, guarantees=changed(one.guarantees)))
    for other in (
        dataclasses.replace(plan, guarantees=changed(plan.guarantees)),
        dataclasses.replace(plan, contract=contract),
    ):
        assert other != plan
        found = certify(other)
        assert found.proves is (factor > 1.0)
        assert ("its parameters do not" in found.headline) is (factor < 1.0)
        forged = dataclasses.replace(certify(plan), plan_sha256=other.sha256())
        assert (recheck(other, forged) == []) is (factor > 1.0)


def test_promises_that_are_not_covered_are_named() -> None:
    silent = plan_for(**SMALL | {"bitsum": "poisson", "accountant": "pld"})
    silent = dataclasses.replace(
        silent,
        contract=restated(silent.contract, lambda one: dataclasses.replace(one, guarantees=())),
        guarantees=tuple(one for one in silent.guarantees if one.view is not View.LOCAL),
    )
    assert certify(silent).notes == ()
    plan = planned("rr")
    found = certify(plan)
    assert found.notes == (NOT_COVERED,)
    assert recheck(plan, dataclasses.replace(found, notes=())) == ["the notes are not what the checker says"]


def test_headlines_round_against_the_proof() -> None:
    """To nearest, 4.122898041 would be shown as 4.122898, and 0.0010000004 as 0.001."""
    found = dataclasses.replace(
        certify(planned("rr")), upper_epsilon=4.122898041, claimed_epsilon=4.2, total_epsilon=4.2, delta=1.0000004e-3
    )
    assert found.headline == "proved: ε ≤ 4.1228985 at δ = 0.0010000004, in ball arithmetic"
    less = dataclasses.replace(found, claimed_epsilon=4.12289804, total_epsilon=4.12289804)
    assert less.headline.startswith("not proved: ε ≤ 4.1228985 at δ = 0.0010000004, in ball arithmetic, and the plan")
    assert less.headline.endswith("claims 4.12289804")
    labels = dataclasses.replace(found, label_epsilon=0.5)
    assert (
        labels.headline == "not proved: ε ≤ 4.6228985 at δ = 0.0010000004, in ball arithmetic, and the plan claims 4.2"
    )
    parts = dataclasses.replace(found, upper_epsilon=0.7, label_epsilon=0.1)
    assert parts.proved_epsilon is not None
    assert 0.7 + 0.1 < Fraction(0.7) + Fraction(0.1) <= Fraction(parts.proved_epsilon)
    pure = dataclasses.replace(found, upper_epsilon=1.0000000449, delta=0.0)
    assert pure.headline == "proved: ε ≤ 1.0000001 at δ = 0, in ball arithmetic"
    false = dataclasses.replace(found, covered_epsilon=4.2000000049)
    assert false.headline.endswith("cost at least ε = 4.2000000049")


def test_checking_again_leaves_the_precision_alone() -> None:
    """As a generator it would yield inside of its own precision."""
    plan = planned("poisson")
    found = dataclasses.replace(certify(plan), upper_epsilon=1.0)
    before = ctx.prec
    sentences = iter(recheck(plan, found))
    assert "does not follow" in next(sentences)
    assert ctx.prec == before


def test_lower_ends_reach_as_far_as_the_claim() -> None:
    """Flips of 1e-60 cost 138: differences of masses are multiplied by e^ε, and need as many bits more."""
    plan = plan_for(users=3, dim=1, repetitions=1, epsilon=100.0, delta=0.1, accountant="pld", allow_useless=True)
    found = certify(with_parameters(plan, flip_probability=1e-60))
    assert found.refutes
    assert found.upper_epsilon is not None
    assert 100.0 < found.covered_epsilon <= found.upper_epsilon < 1.01 * found.covered_epsilon


@pytest.mark.parametrize("path", [("covered", "half"), ("attained", "half"), ("unit_ball",)])
def test_flags_are_true_or_false(path: tuple[str, ...]) -> None:
    """In Python 1 == True, so comparing documents is not enough."""
    document = certify(planned("poisson")).to_json()
    with pytest.raises(InvalidInputError, match="true or false"):
        Certificate.from_json(with_leaf(document, ("neighbors", *path), int))


def test_the_forecast_size_of_a_class_does_not_count() -> None:
    """Separate labels: 30 users in 3 classes, 10 in each if they are even; the noise counts on 6 in each.

    Laws of the forecast size hide more than those of 6 users do.
    """
    classes = {**SMALL, "classes": 3, "label_epsilon": 0.5, "bitsum": "rr", "accountant": "pld"}
    plan, forecast = plan_for(**classes, min_users=6), plan_for(**classes)
    assert (plan.request.counted_users, forecast.request.counted_users) == (6, 10)
    assert certify(plan).proves
    liar = with_parameters(plan, **forecast.parameters)
    assert not certify(liar).proves
    believed = certify(forecast)
    assert believed.proves
    forged = dataclasses.replace(believed, plan_sha256=liar.sha256())
    assert any("does not follow" in sentence for sentence in recheck(liar, forged))


def test_notes_are_what_the_checker_says() -> None:
    plan = planned("pure")
    loud = dataclasses.replace(certify(plan), notes=("proved: ε ≤ 0.001 for everybody",))
    assert recheck(plan, loud) == ["the notes are not what the checker says"]


def test_promises_without_delta_need_a_protocol_that_spends_none() -> None:
    plan = planned("rr")
    request = copy.copy(plan.request)
    object.__setattr__(request, "delta", 0.0)
    with pytest.raises(InvalidInputError, match="delta=0"):
        certify(dataclasses.replace(plan, request=request))


def test_small_claims_are_proved() -> None:
    """ε = 4·10⁻⁴: the search for the least ε begins at the claim."""
    found = certify(plan_for(**{**SMALL, "users": 3_000, "epsilon": 4e-4, "delta": 1e-3}))
    assert found.proves, found.headline


@pytest.mark.parametrize(
    "changes",
    [
        {"continue_probability": 0.9999999},
        {"continue_probability": 1.0 - 1e-15},
        {"noise_shape": 8, "continue_probability": 0.9999, "flood_shape": 2.0},
    ],
    ids=str,
)
def test_laws_that_would_fill_the_memory_are_refused_before_they_are_made(changes: dict[str, float]) -> None:
    tracemalloc.start()
    found = certify(with_parameters(planned("3nb"), **changes))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.upper_epsilon is None
    assert any("needs more than" in note for note in found.notes)
    assert most < 5e8


@pytest.mark.parametrize("grid", [{"step": 1e6, "points": 1_500}, {"step": 0.01, "points": 4_000}], ids=str)
def test_grids_that_take_minutes_are_refused(grid: dict[str, float]) -> None:
    document = certify(planned("poisson")).to_json()
    with pytest.raises(InvalidInputError, match="points"):
        Certificate.from_json(with_leaf(document, ("witness", "grid"), lambda _: grid))


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (("versions",), lambda versions: {**versions, "\u009b31mRED\u202e": "1"}),
        (("versions", "FLINT"), lambda _: "1\u009b31m"),
        (("versions", "FLINT"), lambda _: "1" * 101),
        (("made",), lambda _: "2" * 200_000),
    ],
)
def test_words_of_certificates_are_short_and_printable(path: tuple[str, ...], change: Any) -> None:
    document = certify(planned("rr")).to_json()
    with pytest.raises(InvalidInputError):
        Certificate.from_json(with_leaf(document, path, change))


@pytest.mark.parametrize(
    "data",
    [None, [], "x", {}, {"schema": "privkde.certificate/1"}, {"schema": "privkde.plan/1"}, {"schema": ["x"]}],
    ids=str,
)
def test_what_is_no_certificate_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInputError):
        Certificate.from_json(data)


def test_a_law_that_is_too_wide_is_not_proved_and_nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither from above nor from below."""
    plan = planned("3nb")
    monkeypatch.setattr(noise_laws, "MOST_MASSES", 1000)
    found = certify(with_parameters(plan, flood_shape=1e9))
    assert found.upper_epsilon is None
    assert (found.covered_epsilon, found.lower_epsilon) == (0.0, 0.0)
    assert "not proved" in found.headline


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("rr", "flip_probability", 1.0),
        ("rr", "flip_probability", None),
        ("3nb", "noise_shape", 2.5),
        ("3nb", "continue_probability", 0.0),
        ("3nb", "flood_continue_probability", 1.0),
        ("negative-binomial", "continue_probability", 1.0),
        ("pure", "silence_probability", 0.0),
    ],
)
def test_parameters_of_no_law_are_refused(name: str, parameter: str, value: float | None) -> None:
    plan = planned(name)
    parameters = {key: number for key, number in plan.parameters.items() if key != parameter}
    wrong = dataclasses.replace(plan, parameters=parameters if value is None else {**parameters, parameter: value})
    with pytest.raises(InvalidInputError, match=r"probability|shape"):
        certify(wrong)


@pytest.mark.parametrize(("name", "rung"), [("shifts", "shifts"), ("pure", "pld"), ("pure", "geometric")])
def test_a_rung_that_cannot_account_for_the_law_proves_nothing(name: str, rung: str) -> None:
    """The attack: another rung's name and contract on a plan, whose evidence is then a theorem that does not apply."""
    plan = dataclasses.replace(planned(name), accountant=rung)
    plan = dataclasses.replace(plan, contract=declaring(plan.contract, {"accountant": rung}))
    found = certify(plan)
    assert not found.proves
    assert any("accountant=" in note for note in found.notes)


def test_bounds_from_below_do_not_follow_a_contract_that_lies() -> None:
    """The attack: with a smaller R in the contract alone, two records were said to cost more than they can."""
    plan = planned("shifts")
    honest = certify(plan)
    lying = dataclasses.replace(plan, contract=declaring(plan.contract, {"bound": 0.2}))
    found = certify(lying)
    assert not found.proves
    assert (found.lower_epsilon, found.covered_epsilon) == (honest.lower_epsilon, honest.covered_epsilon)
    assert honest.lower_epsilon > 0.0
