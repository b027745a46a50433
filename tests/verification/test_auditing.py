"""The runner: which checks run, with which draws, in which order, and what becomes of errors."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest

from accounting import InvalidInputError, Plan
from tests.plans import plan_for
from tests.verification import stand_ins
from tests.verification.stand_ins import BROKEN, CHECKS, DRAWN, ENDLESS, FLIPS
from verification import FULL, QUICK, AuditReport, audit
from verification import auditing as runner
from verification.reporting.document import Outcome
from verification.statistical.distinguishers import arena, faithful
from verification.statistical.execution import count_checks, order
from verification.verdicts import Check, Layer

REQUEST: dict[str, Any] = {
    "users": 400,
    "dim": 4,
    "kernel": "gaussian",
    "repetitions": 4,
    "bitsum": "rr",
    "epsilon": 1.0,
    "delta": 1e-6,
    "accountant": "pld",
}

FEWER: list[tuple[Any, str, int]] = [
    (arena, "SAMPLES", 2_000),
    (faithful, "MESSAGES", 50_000),
    (order, "RELEASES", 200),
    (count_checks, "STAGE_REPETITIONS", 400),
]
REAL_LAYERS = runner.LAYER_MODULES


@pytest.fixture(autouse=True)
def stood_in() -> Iterator[None]:
    """Stand-ins instead of the checks of the four layers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "LAYER_MODULES", (stand_ins.__name__,))
        yield


def with_checks(monkeypatch: pytest.MonkeyPatch, *checks: Check) -> None:
    monkeypatch.setattr(stand_ins, "CHECKS", checks)


def tampered(plan: Plan, flip: float) -> Plan:
    document = plan.to_json()
    document["instance"]["parameters"]["flip_probability"] = flip
    return Plan.from_json(document)


def run(plan: Plan | None = None, **options: Any) -> AuditReport:
    return audit(plan or plan_for(**REQUEST), **({"workers": 1, "seed": 7} | options))


def test_an_honest_plan_is_not_refuted() -> None:
    report = run()
    assert (report.verdict, report.exit_code) == (Outcome.NOT_REFUTED, 0)
    assert [one.name for one in report.results] == ["flips", "distinguisher-drawn", "sup-rmse"]
    assert report.not_applicable == ("labels",)
    assert report.false_alarm_rate == pytest.approx(1e-8)


def test_checks_of_labels_run_where_there_are_labels() -> None:
    report = run(plan_for(**(REQUEST | {"epsilon": REQUEST["epsilon"] + 1.0}), classes=2, label_epsilon=1.0))
    assert [one.name for one in report.results] == [one.name for one in CHECKS]
    assert report.not_applicable == ()


def test_a_tampered_plan_is_audited_and_refuted() -> None:
    plan = tampered(plan_for(**REQUEST), 0.01)
    with pytest.raises(InvalidInputError):
        plan.verify()
    report = run(plan)
    assert (report.verdict, report.exit_code) == (Outcome.REFUTED, 1)
    assert [one.name for one in report.refuted] == ["flips"]


def test_workers_find_the_same_as_this_process() -> None:
    alone, together = run(), run(workers=2)
    assert together.workers == 2
    for one, other in zip(alone.results, together.results, strict=True):
        assert dataclasses.replace(one, seconds=0.0) == dataclasses.replace(other, seconds=0.0)


def test_the_draws_depend_on_the_seed_and_on_nothing_else() -> None:
    everything, alone = run(), run(only=["distinguisher-drawn"])
    assert alone.left_out == ("flips", "sup-rmse")
    (drawn,) = alone.results
    assert drawn.finding == everything.results[1].finding
    assert run(seed=8, only=["distinguisher-drawn"]).results[0].finding != drawn.finding
    assert drawn.seed == DRAWN.seed(7)


def test_a_fresh_seed_is_drawn_and_kept() -> None:
    first, second = run(seed=None, only=["distinguisher-drawn"]), run(seed=None, only=["distinguisher-drawn"])
    assert first.seed != second.seed
    assert run(seed=first.seed, only=["distinguisher-drawn"]).results[0].finding == first.results[0].finding


def test_effort_reaches_the_checks() -> None:
    quick, full = (run(effort=effort, only=["distinguisher-drawn"]).results[0].finding for effort in (QUICK, FULL))
    assert quick is not None
    assert full is not None
    assert full.statistic == 10 * quick.statistic > 0


def test_an_error_is_no_verdict_and_its_text_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with_checks(monkeypatch, FLIPS, BROKEN)
    report = run()
    assert (report.verdict, report.exit_code) == (Outcome.COULD_NOT_RUN, 2)
    assert report.results[1].error == "ZeroDivisionError"
    assert "secret" not in report.dumps()


def test_a_refutation_stands_beside_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with_checks(monkeypatch, BROKEN, FLIPS)
    assert run(tampered(plan_for(**REQUEST), 0.01)).exit_code == 1


def test_a_worker_that_dies_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look checks up by name and do not know this one, which is as good as dying."""
    with_checks(monkeypatch, dataclasses.replace(ENDLESS, name="unknown to workers"), FLIPS)
    report = run(workers=2)
    assert [one.verdict for one in report.results] == [Outcome.COULD_NOT_RUN, Outcome.NOT_REFUTED]


def test_a_check_that_cannot_tell_whether_it_applies_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with_checks(monkeypatch, dataclasses.replace(BROKEN, applies=lambda subject: bool(1 // 0)))
    assert run().exit_code == 2


def test_no_check_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    with_checks(monkeypatch)
    assert run().exit_code == 2


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (["distinguisher-drwan"], "Did you mean 'distinguisher-drawn'"),
        (["labels"], "does not apply"),
        (["nothing like it"], "choose one of flips"),
    ],
)
def test_unknown_names_are_refused(only: list[str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        run(only=only)


def test_two_checks_of_one_name_are_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    with_checks(monkeypatch, FLIPS, FLIPS)
    with pytest.raises(RuntimeError, match="'flips'"):
        run()


@pytest.mark.parametrize("seed", [-1, 2**53, 1.5, True])
def test_seeds_are_whole_numbers(seed: Any) -> None:
    with pytest.raises(InvalidInputError, match="seed"):
        run(seed=seed)


def test_progress_is_told() -> None:
    told: list[tuple[int, int, str]] = []
    run(progress=lambda *news: told.append(news))
    assert told == [(0, 3, ""), (1, 3, "flips"), (2, 3, "distinguisher-drawn"), (3, 3, "sup-rmse")]


def test_a_replay_is_one_command() -> None:
    report = dataclasses.replace(run(), plan_path="my plan.json", model_path="model")
    assert report.replay(report.results[1]) == (
        "privkde audit --plan 'my plan.json' --model model --only distinguisher-drawn --seed 7 --quick"
    )


def test_the_hash_is_of_the_plan_and_not_of_its_spelling() -> None:
    plan = plan_for(**REQUEST)
    assert re.fullmatch("[0-9a-f]{64}", plan.sha256())
    assert Plan.from_json(dict(reversed(plan.to_json().items()))).sha256() == plan.sha256()
    assert tampered(plan, 0.01).sha256() != plan.sha256()


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LAYER_MODULES", REAL_LAYERS)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("bitsum", ["poisson", pytest.param("rr", marks=pytest.mark.slow)])
def test_all_layers_on_an_honest_plan(bitsum: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded, so never flaky; by chance an honest plan is refuted with probability `false_alarm_rate` at most.

    By default with fewer samples than an audit draws, at the same level.
    """
    if bitsum == "poisson":
        for module, name, value in FEWER:
            monkeypatch.setattr(module, name, value)
    report = run(plan_for(**REQUEST | {"bitsum": bitsum}))
    assert [one.name for one in report.refuted] == []
    assert (report.verdict, report.exit_code) == (Outcome.NOT_REFUTED, 0)
    assert {one.layer for one in report.results} == set(Layer)
    assert report.false_alarm_rate <= 1e-6


@pytest.mark.usefixtures("real")
def test_a_flip_lowered_by_hand_is_refuted_by_the_certificate() -> None:
    honest = plan_for(**REQUEST)
    plan = tampered(honest, 0.9 * float(honest.parameters["flip_probability"]))
    report = run(plan, only=["plan-verifies", "certified-bound"])
    assert (report.verdict, report.exit_code) == (Outcome.REFUTED, 1)
    assert [one.name for one in report.refuted] == ["plan-verifies", "certified-bound"]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("flip", [0.0, 0.5, 0.7])
def test_a_plan_that_no_protocol_has_is_refuted_by_what_runs_nothing(flip: float) -> None:
    report = run(tampered(plan_for(**REQUEST), flip))
    assert (report.verdict, report.exit_code) == (Outcome.REFUTED, 1)
    assert [one.name for one in report.results] == ["plan-verifies"]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("composition", "instances_per_user", 1),
        ("communication", "messages_per_user", 1.0),
        ("error", "sup_rmse_bound", 1e-6),
        ("instance", "epsilon_0", 1e-3),
    ],
)
def test_numbers_that_do_not_follow_from_the_parameters_are_refuted(section: str, name: str, value: float) -> None:
    document = plan_for(**REQUEST).to_json()
    document[section][name] = value
    report = run(Plan.from_json(document), only=["plan-verifies"])
    (found,) = report.refuted
    assert found.finding is not None
    assert found.finding.witness is not None
    assert f"plan.{section}.{name} is {value!r}" in found.finding.witness.found
