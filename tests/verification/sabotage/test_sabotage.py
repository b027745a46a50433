"""The matrix: its machinery with tiny checks, each saboteur with one real check, and all with all (slow)."""

from __future__ import annotations

import inspect
import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from accounting import InvalidInputError, Plan, PlanRequest, planning
from tests.plans import shared_plan
from verification import miniature
from verification.exact import adaptive_strategies, budget_checks
from verification.sabotage import Matrix, Outcome, Row, Saboteur, run_matrix, saboteurs
from verification.sabotage import saboteur as at_work
from verification.sabotage.plans import HONEST_PLANS
from verification.sabotage.saboteur import forget
from verification.verdicts import QUICK

HERE = "tests.verification.sabotage.tiny_checks"
CHEAP = ("rr without correction", "labels: uniform over all", "shuffler keeps the order", "plan altered by hand")


def _library(*packages: str) -> dict[tuple[str, str], Any]:
    """Every attribute of every module and class of these packages, by identity."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in packages:
            continue
        for key, value in vars(module).items():
            found[name, key] = value
            if inspect.isclass(value) and value.__module__ == name:
                found.update({(f"{name}.{key}", inner): one for inner, one in vars(value).items()})
    return found


@pytest.fixture(scope="module", autouse=True)
def plans_shared_while_accounting_is_honest() -> Iterator[None]:
    """Plans are made by `accounting` alone: as long as nothing in it is replaced, each request is planned once."""
    honest = _library("accounting")

    def made(request: PlanRequest) -> Plan:
        now = _library("accounting")
        untouched = all(now[key] is value for key, value in honest.items())
        return shared_plan(request) if untouched else planning.plan(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at_work, "make_plan", made)
        yield


@pytest.fixture(scope="module")
def tiny() -> Matrix:
    return run_matrix(QUICK, only=CHEAP, plans=("rr", "labels"), check_modules=(HERE,), workers=1)


def test_there_are_enough_saboteurs_and_all_have_a_story() -> None:
    found = saboteurs()
    assert len(found) >= 16
    assert len({one.name for one in found}) == len(found)
    assert all(one.story.endswith(".") for one in found)


def test_tiny_checks_refute_what_they_can_see_and_nothing_else(tiny: Matrix) -> None:
    refuted = {row.name: row.refuted_by for row in tiny.rows if not row.honest}
    assert refuted == {
        "rr without correction": ("correction",),
        "labels: uniform over all": ("keeping",),
        "shuffler keeps the order": ("order",),
        "plan altered by hand": (),
    }
    assert tiny.survivors == ("plan altered by hand",)
    assert tiny.false_alarms == ()
    assert not tiny.complete


def test_an_error_refutes_nothing(tiny: Matrix) -> None:
    row = next(row for row in tiny.rows if row.name == "plan altered by hand")
    assert row.outcomes["fragile"] is Outcome.COULD_NOT_RUN
    assert row.errors == {"fragile": "ArithmeticError"}


def test_what_does_not_apply_is_not_run(tiny: Matrix) -> None:
    labeled = next(row for row in tiny.rows if row.honest and row.plan == "labels")
    assert labeled.outcomes["correction"] is Outcome.NOT_APPLICABLE
    assert labeled.outcomes["keeping"] is Outcome.NOT_REFUTED


@pytest.mark.slow
def test_workers_find_the_same() -> None:
    """By default an audit has workers (`test_auditing`), by the same `spread`."""
    seen: list[tuple[int, int, str]] = []
    asked: dict[str, Any] = {"only": ("tail dropped",), "plans": ("poisson",), "check_modules": (HERE,)}
    there = run_matrix(QUICK, lambda *news: seen.append(news), ("noise",), **asked, workers=2)
    here = run_matrix(QUICK, None, ("noise",), **asked, workers=1)
    assert [row.outcomes["noise"] for row in here.rows] == [Outcome.NOT_REFUTED, Outcome.REFUTED]
    assert [row.outcomes for row in there.rows] == [row.outcomes for row in here.rows]
    assert sorted(news[:2] for news in seen) == [(1, 2), (2, 2)]


def test_documents(tiny: Matrix) -> None:
    document = json.loads(json.dumps(tiny.to_json()))
    assert document["schema"] == "privkde.saboteurs/1"
    assert document["complete"] is False
    assert document["survivors"] == ["plan altered by hand"]
    assert {row["name"] for row in document["rows"]} >= set(CHEAP)
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(tiny.table())
    text = captured.get()
    assert all(name in text for name in CHEAP)
    assert "3 of 4 saboteurs refuted" in text


def _row(honest: bool, outcome: Outcome) -> Row:
    return Row(name=f"{honest}", story="", plan="rr", honest=honest, outcomes={"c": outcome}, errors={}, seconds=0.0)


@pytest.mark.parametrize(
    ("fault", "honest", "complete"),
    [
        (Outcome.REFUTED, Outcome.NOT_REFUTED, True),
        (Outcome.REFUTED, Outcome.REFUTED, False),
        (Outcome.REFUTED, Outcome.COULD_NOT_RUN, False),
        (Outcome.COULD_NOT_RUN, Outcome.NOT_REFUTED, False),
        (Outcome.NOT_REFUTED, Outcome.NOT_REFUTED, False),
    ],
)
def test_complete(fault: Outcome, honest: Outcome, complete: bool) -> None:
    matrix = Matrix(checks=("c",), rows=(_row(True, honest), _row(False, fault)), effort="quick", seed=1, seconds=0.0)
    assert matrix.complete is complete


def test_half_a_matrix_is_not_complete() -> None:
    for row in (_row(True, Outcome.NOT_REFUTED), _row(False, Outcome.REFUTED)):
        assert not Matrix(checks=("c",), rows=(row,), effort="quick", seed=1, seconds=0.0).complete


def test_unknown_names() -> None:
    for names in ({"only": ("nobody",)}, {"plans": ("none",)}, {"checks": ("nothing",)}):
        with pytest.raises(InvalidInputError, match="choose one of"):
            run_matrix(check_modules=(HERE,), **names)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def before() -> dict[tuple[str, str], Any]:
    return _library("accounting", "privkde")


@pytest.mark.parametrize("saboteur", saboteurs(), ids=lambda one: one.name)
def test_exactly_one_thing_is_wrong_and_nothing_afterwards(
    saboteur: Saboteur, before: dict[tuple[str, str], Any]
) -> None:
    with saboteur.plant():
        during = _library("accounting", "privkde")
    after = _library("accounting", "privkde")
    changed = [key for key in before if during[key] is not before[key]]
    assert len(changed) == (0 if saboteur.name == "plan altered by hand" else 1)
    assert all(after[key] is before[key] for key in before)


def test_caches_are_forgotten() -> None:
    request = HONEST_PLANS["poisson"]
    miniature._made(request)
    assert miniature._made.cache_info().currsize
    forget()
    assert not miniature._made.cache_info().currsize


def test_plans_are_made_with_the_fault_planted() -> None:
    forgets = next(one for one in saboteurs() if one.name == "tail dropped")
    with forgets.at_work() as faulty:
        pass
    with Saboteur(name="honest", story="", request=forgets.request).at_work() as honest:
        pass
    assert float(faulty.parameters["total_mean"]) < 0.5 * float(honest.parameters["total_mean"])


FOUND_BY = {
    "forecast charged": "charged-classes",
    "pld under adaptive choice": "adaptive-budget",
    "cut mass forgotten in the filter": "adaptive-budget",
    "rr without correction": "bitsum-unbiased",
    "flips 10 % too rare": "bitsum-counts",
    "numpy's negative binomial": "samplers",
    "whole flood by everybody": "samplers",
    "noise shares 1/(2n)": "samplers",
    "no flood": "samplers",
    "pure with ρ = 1": "aggregated-equals-faithful",
    "pure without 1/(1−q)": "density-unbiased",
    "labels: uniform over all": "label-response",
    "labels: e^ε/(e^ε + m)": "label-response",
    "private draws from public seed": "private-randomness",
    "two instances, one coin": "independent-draws",
    "two instances, one noise": "independent-draws",
    "shuffler keeps the order": "shuffler-order",
    "packets held twice": "users-counted-once",
    "users counted twice": "users-counted-once",
    "any vector is taken": "client-domain",
    "features without √2": "kernel-means",
    "second moments too loud": "squared-shift",
    "second moments without 1/β": "density-unbiased",
    "rotation of each block": "density-unbiased",
    "noise of means forgotten": "linear-rule",
    "S instead of min(2S, Q)": "touched-instances",
    "central baseline, half sensitivity": "central-sensitivity",
    "composition forgets the count": "exact-composition",
    "Δ² halved": "certified-bound",
    "Δ² of a ball halved": "certified-bound",
    "features not held": "squared-shift",
    "shifts without the square root": "certified-bound",
    "joint sizes too loud": "squared-shift",
    "record for the larger ε alone": "exact-classifier",
    "label ε on top of the total": "one-promise",
    "one direction only": "exact-composition",
    "one direction of one instance": "exact-instance",
    "tail dropped": "exact-composition",
    "plan altered by hand": "plan-verifies",
}


PLANTED_ELSEWHERE = {
    "rr without correction": "test_count_checks: test_bias_is_refuted",
    "flips 10 % too rare": "test_count_checks: test_faults_of_the_randomizer_are_refuted",
    "numpy's negative binomial": "test_count_checks: test_faults_of_the_randomizer_are_refuted",
    "whole flood by everybody": "test_count_checks: test_faults_of_the_randomizer_are_refuted",
    "noise shares 1/(2n)": "test_count_checks: test_faults_of_the_randomizer_are_refuted",
    "no flood": "test_count_checks: test_faults_of_the_randomizer_are_refuted",
    "shuffler keeps the order": "test_count_checks: test_a_shuffler_with_an_order_is_refuted",
    "any vector is taken": "test_domain_checks: test_a_client_that_finds_every_vector_short_is_refuted",
    "S instead of min(2S, Q)": "test_domain_checks: test_s_instead_of_2s_is_refuted",
    "central baseline, half sensitivity": "test_domain_checks: test_half_the_sensitivity_is_refuted",
    "joint sizes too loud": "test_domain_checks: test_sizes_told_too_loudly_are_refuted",
    "Δ² halved": "test_enumeration_checks: test_half_the_squared_shift_is_refuted",
    "one direction only": "test_enumeration_checks: test_a_composition_in_one_direction_is_refuted",
    "composition forgets the count": "test_enumeration_checks: test_composition_that_forgets_the_count_is_refuted",
}
"""Tests of the checks that plant the same fault and run by default; here these saboteurs are slow."""


def test_one_real_check_is_named_for_every_saboteur() -> None:
    assert set(FOUND_BY) == {one.name for one in saboteurs()}
    assert set(PLANTED_ELSEWHERE) < set(FOUND_BY)


@pytest.fixture
def fewer_strategies(monkeypatch: pytest.MonkeyPatch) -> None:
    """One menu, 8 releases from it: as many as these faults need to show."""
    monkeypatch.setattr(budget_checks, "MENUS", budget_checks.MENUS[1:])
    monkeypatch.setattr(adaptive_strategies, "MOST_RELEASES", 8)


@pytest.mark.usefixtures("fewer_strategies")
@pytest.mark.parametrize(
    ("saboteur", "check"),
    [
        *(
            pytest.param(
                one, FOUND_BY[one.name], id=one.name, marks=pytest.mark.slow if one.name in PLANTED_ELSEWHERE else ()
            )
            for one in saboteurs()
        ),
        *(
            pytest.param(one, "bitsum-unbiased", id=f"{one.name}, by its counts", marks=pytest.mark.slow)
            for one in saboteurs()
            if one.name.startswith("pure")
        ),
    ],
)
def test_a_real_check_refutes_the_saboteur(saboteur: Saboteur, check: str) -> None:
    (row,) = run_matrix(QUICK, only=[saboteur.name], plans=(), checks=[check], workers=1).rows
    assert row.refuted_by == (check,)


def controls() -> dict[str, list[str]]:
    """For every plan that saboteurs are tried on (or the nearest honest one): the checks that must find them there."""
    found: dict[str, set[str]] = {}
    for one in saboteurs():
        kind = next((name for name, asked in HONEST_PLANS.items() if asked == one.request), one.request.bitsum)
        found.setdefault(kind, set()).add(FOUND_BY[one.name])
    return {kind: sorted(names) for kind, names in found.items()}


@pytest.mark.usefixtures("fewer_strategies")
@pytest.mark.parametrize(
    ("kind", "checks"),
    [
        pytest.param("rr", ["adaptive-budget"], id="budgets"),
        pytest.param("few instances", ["charged-classes"], id="charges"),
        *(pytest.param(kind, checks, id=kind, marks=pytest.mark.slow) for kind, checks in controls().items()),
    ],
)
def test_the_same_checks_do_not_refute_the_honest_system(kind: str, checks: list[str]) -> None:
    """The same plan without the fault; by default for checks that have no tests of their own, which try it, too.

    Seeded, so never flaky; by chance a check refutes it with probability 1e-8.
    """
    (row,) = run_matrix(QUICK, only=(), plans=[kind], checks=checks, workers=1).rows
    assert row.outcomes == dict.fromkeys(checks, Outcome.NOT_REFUTED)


@pytest.mark.slow
def test_every_saboteur_is_refuted_and_the_honest_system_is_not() -> None:
    matrix = run_matrix(QUICK)
    assert matrix.survivors == ()
    assert matrix.false_alarms == ()
    assert matrix.complete
