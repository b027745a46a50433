"""Spending is part of releasing: charged before anybody answers, once, and not without budget."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import Adjacency, Guarantee, InvalidInputError, Plan, View
from accounting.releases.release import Release
from privkde import Announcement, Collection, PrivateClassifier, PrivateKDE, PrivateKDEClassifier, Terms
from privkde.bitsum.execution import Tally
from privkde.engines import ANNOUNCEMENT, NAME, ThroughFiles, engine
from privkde.engines.local import LocalEngine
from privkde.ledger import (
    Account,
    BudgetExceededError,
    KeyReusedError,
    Ledger,
    ScheduleUsedUpError,
    UnknownBudgetError,
)
from privkde.ledger import account as account_module
from privkde.protocol.label_round import randomize_labels
from privkde.protocol.parties import Analyzer
from privkde.protocol.rounds import Round, WrongRoundError
from privkde.storage.report_register import ReportRegister, register_beside
from tests.plans import plan_for

USERS, DIM = 400, 3
REQUEST: dict[str, Any] = {"dim": DIM, "repetitions": 2, "epsilon": 1.0, "delta": 1e-7, "bitsum": "rr"}
SHARED = {name: REQUEST[name] for name in ("repetitions", "epsilon", "delta", "bitsum")}
ROWS = np.random.default_rng(17).normal(size=(USERS, DIM))
LABELS = np.arange(USERS) % 2


def planned(**changes: Any) -> Plan:
    return plan_for(**{"users": USERS, **REQUEST, **changes})


@pytest.fixture
def ledger(where: str) -> Iterator[Ledger]:
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=4.0, delta=1e-5)
        ledger.create("small", epsilon=0.5, delta=1e-8)
        yield ledger


def collected(plan: Plan, noise: int = 0, *, seed: str = "0" * 32) -> Collection:
    """A collection whose packets are counted; `noise` stands for what users drew."""
    terms = {name: value for name, value in plan.request.to_json().items() if name not in ("users", "classes")}
    collection = Collection(Terms(request=terms, public_seed=seed))
    collection.enroll(USERS)
    (announcement,) = collection.fix_plan(plan)
    analyzer = Analyzer(announcement)
    ones = np.full(announcement.n_instances, 100 + noise)
    analyzer.add(Tally(ones, USERS - ones), USERS, secret=True)
    collection.count(0, analyzer)
    return collection


class Untouched(LocalEngine):
    """Fails if anybody is asked."""

    def play(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("somebody answered")


class Interrupted(LocalEngine):
    """Ends while users answer."""

    def play(self, *_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt


def test_a_collection_is_charged_once_however_often_it_is_published(ledger: Ledger) -> None:
    plan = planned()
    for _ in range(3):  # the same packets, counted again by somebody who does not know whether it went through
        collected(plan).publish(private=True, budget=ledger.account("a"))
    (charge,) = ledger.history("a")
    assert charge.key == charge.name == f"collection {collected(plan).identity()}"
    assert charge.plan_sha256 == plan.sha256()
    assert charge.release.parts == Release.of_plan("any", plan).parts
    assert [use.schedule for use in ledger.uses("a")] == [charge.key]


def test_one_charge_does_not_pay_for_two_draws_of_the_noise(ledger: Ledger) -> None:
    plan = planned()
    collected(plan).publish(private=True, budget=ledger.account("a"))
    again = collected(plan, noise=1)
    with pytest.raises(ScheduleUsedUpError, match="paid for 1 results"):
        again.publish(private=True, budget=ledger.account("a"))
    assert again.round is Round.COLLECTION
    assert len(ledger.history("a")) == 1
    collected(plan, noise=1, seed="1" * 32).publish(private=True, budget=ledger.account("a"))
    assert len(ledger.history("a")) == 2


def test_without_budget_nothing_is_published(ledger: Ledger) -> None:
    collection = collected(planned())
    with pytest.raises(BudgetExceededError):
        collection.publish(private=True, budget=ledger.account("small"))
    assert collection.round is Round.COLLECTION
    assert (ledger.history("small"), ledger.uses("small")) == ((), ())


@pytest.mark.parametrize("labels", [None, "separate", "joint"])
def test_without_budget_nobody_is_asked(ledger: Ledger, labels: str | None) -> None:
    estimator: Any = PrivateKDE(**SHARED, engine=Untouched())
    if labels is not None:
        kind = PrivateKDEClassifier if labels == "separate" else PrivateClassifier
        estimator = kind(**SHARED | {"kernel": "gaussian", "engine": Untouched(), "classes": (0, 1)})
    with pytest.raises(BudgetExceededError):
        estimator.fit(ROWS, LABELS, budget=ledger.account("small"))
    assert not hasattr(estimator, "model_")
    assert ledger.history("small") == ()


def test_a_fit_is_charged_before_anybody_answers_and_a_rerun_is_not_charged_again(ledger: Ledger) -> None:
    account = ledger.account("a", key="week 1")
    with pytest.raises(KeyboardInterrupt):
        PrivateKDE(**SHARED, engine=Interrupted()).fit(ROWS, budget=account)
    assert [charge.key for charge in ledger.history("a")] == ["week 1"]
    fitted = PrivateKDE(**SHARED).fit(ROWS, budget=account)
    assert fitted.model_.private
    (charge,) = ledger.history("a")
    assert charge.plan_sha256 == fitted.plan_.sha256()
    with pytest.raises(ScheduleUsedUpError):  # fresh noise is another result
        PrivateKDE(**SHARED).fit(ROWS, budget=account)
    assert len(ledger.history("a")) == 1


def through(folder: Path, **changes: Any) -> PrivateKDE:
    """An estimator whose users' answers are kept in a folder."""
    files = ThroughFiles(engine=engine("local"), folder=folder)
    return PrivateKDE(**SHARED | {"path": "faithful", "engine": files} | changes)


def counted(folder: Path) -> int:
    """Users that were counted in a folder."""
    announcement = Announcement.from_json(json.loads((folder / "0" / ANNOUNCEMENT).read_text()))
    with ReportRegister(announcement.collection(), register_beside(folder / "0" / ANNOUNCEMENT)) as register:
        return sum(release.n_users for release in register.releases())


@pytest.mark.parametrize("seed", [None, "0" * 32])
def test_users_answer_once_for_what_is_paid_for(ledger: Ledger, tmp_path: Path, seed: str | None) -> None:
    """A regression: with a new folder they answered again, and the shuffler released, before publishing was refused."""
    account, kept, new = ledger.account("a", key="week 1"), tmp_path / "kept", tmp_path / "new"
    first = through(kept, public_seed="0" * 32).fit(ROWS, budget=account)
    for other in (through(new, public_seed=seed), PrivateKDE(**SHARED, engine=Untouched())):
        with pytest.raises(ScheduleUsedUpError, match="paid for 1 results"):
            other.fit(ROWS, budget=account)
    assert sorted(path.name for path in (new / "0").iterdir()) == sorted([ANNOUNCEMENT, NAME]), "nobody answered"
    again = through(kept, public_seed="0" * 32).fit(ROWS, budget=account)  # their answers are there
    np.testing.assert_array_equal(first.model_.sums, again.model_.sums)
    assert (len(ledger.history("a")), len(ledger.uses("a")), counted(kept)) == (1, 1, USERS)


def test_interrupted_answers_are_continued_where_they_are(ledger: Ledger, tmp_path: Path) -> None:
    """A regression: after an interruption another folder, or one with a copied announcement, began from nothing."""
    account, kept, new = ledger.account("a", key="week 1"), tmp_path / "kept", tmp_path / "new"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalEngine, "_count", Interrupted.play)
        with pytest.raises(KeyboardInterrupt):
            through(kept, public_seed="0" * 32).fit(ROWS, budget=account)
    (new / "0").mkdir(parents=True)
    shutil.copy(kept / "0" / ANNOUNCEMENT, new / "0")
    for folder, refused in ((new, "no budget has paid for"), (tmp_path / "third", "continue the one that was begun")):
        with pytest.raises((InvalidInputError, ScheduleUsedUpError), match=refused):
            through(folder, public_seed="0" * 32).fit(ROWS, budget=account)
    assert [path.name for path in (new / "0").iterdir()] == [ANNOUNCEMENT]
    assert through(kept, public_seed="0" * 32).fit(ROWS, budget=account).model_.n_users == (USERS,)
    assert (len(ledger.history("a")), len(ledger.uses("a"))) == (1, 1)


def test_answers_that_were_counted_and_deleted_are_not_given_again(ledger: Ledger, tmp_path: Path) -> None:
    account, kept = ledger.account("a", key="week 1"), tmp_path / "kept"
    through(kept, public_seed="0" * 32).fit(ROWS, budget=account)
    for part in (kept / "0").glob("part-*"):
        part.unlink()
    for budget, refused in ((account, "were counted, and some are missing now"), (None, "give the same budget")):
        with pytest.raises(InvalidInputError, match=refused):
            through(kept, public_seed="0" * 32).fit(ROWS, budget=budget)
    assert list((kept / "0").glob("part-*")) == []
    assert counted(kept) == USERS


@pytest.mark.parametrize("lost", ["all but the name", "register and answers"])
def test_a_folder_leads_to_one_result(ledger: Ledger, tmp_path: Path, lost: str) -> None:
    """The attack: what was counted is deleted, all users draw again, and another model is published for one charge."""
    account, kept = ledger.account("a", key="week 1"), tmp_path / "kept"
    through(kept, public_seed="0" * 32).fit(ROWS, budget=account)
    for path in (kept / "0").iterdir():
        if path.name != NAME and (lost == "all but the name" or path.name != ANNOUNCEMENT):
            path.unlink()
    with pytest.raises(ScheduleUsedUpError, match="paid for 1 results"):
        through(kept, public_seed="0" * 32).fit(ROWS, budget=account)
    shutil.rmtree(kept / "0")
    with pytest.raises(ScheduleUsedUpError, match="paid for 1 results"):
        through(kept, public_seed="0" * 32).fit(ROWS, budget=account)
    assert (len(ledger.history("a")), len(ledger.uses("a"))) == (1, 1)
    ledger.verify()


def test_a_use_that_is_begun_has_one_result(ledger: Ledger) -> None:
    ledger.charge("a", Release.of_plan("k", planned()), key="k", plan_sha256=planned().sha256())
    begun = ledger.use("a", "k", key="answers 1", plan_sha256=planned().sha256())
    for _ in range(2):
        ledger.finish(begun, result="one")
    with pytest.raises(ScheduleUsedUpError, match="has led to another result"):
        ledger.finish(begun, result="two")
    with pytest.raises(InvalidInputError, match="'answers 2' is no use of budget 'a'"):
        ledger.finish(dataclasses.replace(begun, key="answers 2"), result="one")
    assert ledger.uses("a") == (begun,)
    ledger.verify()


def test_what_is_refused_before_anybody_answers_costs_no_use(ledger: Ledger, tmp_path: Path) -> None:
    account = ledger.account("a", key="week 1")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    (tmp_path / "file").touch()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalEngine, "_write_packets", Interrupted.play)
        with pytest.raises(KeyboardInterrupt):
            through(tmp_path / "begun", public_seed="0" * 32).fit(ROWS, budget=ledger.account("a", key="week 0"))
    (use,) = ledger.uses("a")
    for folder, changes, told in (
        ("new", {"path": "aggregated"}, "use 'faithful'"),
        ("full", {}, "holds 'notes.txt'"),
        ("file", {}, "is not a folder"),
        ("begun", {"public_seed": "1" * 32}, "holds answers to another announcement"),
        ("begun", {"public_seed": "0" * 32, "bandwidth": 2.0}, "holds answers to another announcement"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            through(tmp_path / folder, **changes).fit(ROWS, budget=account)
    assert ([charge.key for charge in ledger.history("a")], ledger.uses("a")) == (["week 0"], (use,))
    assert through(tmp_path / "new").fit(ROWS, budget=account).model_.private


def test_separate_labels_that_cannot_be_kept_are_not_drawn_or_paid_for(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "full" / "0").mkdir(parents=True)
    (tmp_path / "file").touch()
    for name, path, told in (
        ("new", "aggregated", "use 'faithful'"),
        ("full", "faithful", "holds '0'"),
        ("file", "faithful", "is not a folder"),
        ("file/below", "faithful", "does not exist"),
        ("x" * 300, "faithful", "cannot be made"),
    ):
        files = ThroughFiles(engine=engine("local"), folder=tmp_path / name)
        estimator = PrivateKDEClassifier(**SHARED, classes=(0, 1), path=path, engine=files)
        with pytest.raises(InvalidInputError, match=told):
            estimator.fit(ROWS, LABELS, budget=ledger.account("a"))
    files = ThroughFiles(engine=engine("local"), folder=tmp_path / "used")
    files._groups["0"] = tmp_path / "used" / "0"
    with pytest.raises(InvalidInputError, match="another collection is in this folder"):
        files.require_empty("faithful")
    assert ledger.history("a") == ()


def test_a_collector_that_was_paid_once_is_not_paid_for_ever(ledger: Ledger, tmp_path: Path) -> None:
    """The attack: the same object, a second time without a budget, drew another result."""
    estimator = through(tmp_path / "kept", public_seed="0" * 32)
    estimator.fit(ROWS, budget=ledger.account("a"))
    for path in (tmp_path / "kept" / "0").iterdir():
        if path.name != NAME:
            path.unlink()
    with pytest.raises(InvalidInputError, match="give the same budget"):
        estimator.fit(ROWS)


def test_publishing_is_one_step_also_among_threads(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: while one result is paid for, a packet is counted, and another thread publishes for one charge."""
    collection, account, refused = collected(planned(dropout=1)), ledger.account("a"), []
    pay = Account.pay

    def publish_again() -> None:
        try:
            collection.publish(private=True, budget=account)
        except WrongRoundError as error:
            refused.append(str(error))

    other = threading.Thread(target=publish_again)

    def paid(self: Account, *given: Any) -> Any:
        if not other.ident:
            other.start()
            other.join(0.3)  # it waits for its turn
            collection.analyzers[0].add(Tally(np.ones(2, np.int64), np.zeros(2, np.int64)), 1, secret=True)
        return pay(self, *given)

    monkeypatch.setattr(Account, "pay", paid)
    model = collection.publish(private=True, budget=account)
    other.join()
    assert refused == ["this belongs to the collection round; the collection is in the publication round."]
    (use,) = ledger.uses("a")
    assert use.key == account_module._outcome(collection, model), "of what was published, and not of what came later"
    assert model.n_users == (USERS,)


def test_results_are_listed_under_names_that_no_charge_has(ledger: Ledger) -> None:
    """A regression: the result of use "b" of schedule "a" was taken for a use of the charge "b"."""
    release = Release.of_plan("k", planned())
    for key in ("one", "two", "use"):
        ledger.charge("a", release, key=key, plan_sha256=planned().sha256())
    for key in ("one", "two"):
        ledger.finish(ledger.use("a", key, key="use", plan_sha256=planned().sha256()), result=f"of {key}")
    assert ledger.use("a", "use", key="mine", plan_sha256=planned().sha256()).number == 1
    ledger.verify()


def test_a_name_that_was_altered_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "kept" / "0").mkdir(parents=True)
    for junk in (b"", b"x" * 32, b"\xff" * 32, b"0" * 33):
        (tmp_path / "kept" / "0" / NAME).write_bytes(junk)
        with pytest.raises(InvalidInputError, match="does not hold 32 hexadecimal digits"):
            through(tmp_path / "kept").fit(ROWS, budget=ledger.account("a"))


def test_a_forked_process_does_not_publish(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: both processes publish for one charge. Another identity stands for the child's, whatever its pid."""
    collection = collected(planned())
    monkeypatch.setattr("privkde.protocol.rounds.process_identity", lambda: (1, os.getpid()))
    with pytest.raises(InvalidInputError, match="a copy of the one that began the collection"):
        collection.publish(private=True, budget=ledger.account("a"))
    assert ledger.history("a") == ()


def test_fits_without_a_key_are_charged_each(ledger: Ledger) -> None:
    for _ in range(2):
        PrivateKDE(**SHARED).fit(ROWS, budget=ledger.account("a"))
    assert len(ledger.history("a")) == len(ledger.uses("a")) == 2


def test_separate_labels_are_charged_like_their_forecast(ledger: Ledger) -> None:
    account = ledger.account("a", key="classes")
    parameters = SHARED | {"epsilon": 2.0, "label_epsilon": 1.0, "classes": (0, 1)}
    PrivateKDEClassifier(**parameters).fit(ROWS, LABELS, budget=account)
    (charge,) = ledger.history("a")
    forecast = Release.of_plan("classes", planned(epsilon=2.0, classes=2, label_epsilon=1.0, labels="separate"))
    assert charge.release == forecast
    assert charge.plan_sha256 is None
    assert len(ledger.uses("a")) == 1


def test_a_plan_for_several_releases_is_charged_once_for_all(ledger: Ledger) -> None:
    plan = planned(releases=2, epsilon=2.0)
    for week in range(2):
        collected(plan, week, seed=f"{week:032x}").publish(private=True, budget=ledger.account("a"))
    (charge,) = ledger.history("a")
    assert (charge.key, charge.release.collections) == (f"plan {plan.sha256()}", 2)
    with pytest.raises(ScheduleUsedUpError, match="paid for 2 results"):
        collected(plan, 2, seed=f"{2:032x}").publish(private=True, budget=ledger.account("a"))
    assert len(ledger.uses("a")) == 2


def test_a_schedule_that_was_charged_beforehand_pays(ledger: Ledger) -> None:
    plan = planned()
    ledger.charge("a", Release.of_plan("weekly", plan, times=2), key="2026", plan_sha256=plan.sha256())
    for week in range(2):
        collected(plan, week).publish(private=True, budget=ledger.account("a", key="2026"))
    assert (len(ledger.history("a")), len(ledger.uses("a"))) == (1, 2)
    for account, other in (
        (ledger.account("a", key="2026"), planned(epsilon=0.5)),
        (ledger.account("a", key="2026", cohort="north"), plan),
    ):
        with pytest.raises(KeyReusedError):
            collected(other).publish(private=True, budget=account)


def test_a_charge_that_only_names_a_plan_does_not_pay_for_it(ledger: Ledger) -> None:
    """A regression: a plan of ε = 1 was published five times for a charge of 0.001 that bore its hash."""
    plan, known = planned(), Release.of_plan("k", planned())
    cheap = Guarantee(epsilon=0.001, delta=0.0, adjacency=Adjacency.RECORD, view=View.COMMUNICATION)
    parts = Release.of_guarantee("x", cheap).parts
    for key, release in {
        "another promise": Release.of_guarantee("x", cheap, times=5),
        "the same promise at another price": dataclasses.replace(known, parts=parts),
        "k": dataclasses.replace(known, parts=parts),  # named as the account would
        "more collections": dataclasses.replace(known, collections=5),
    }.items():
        ledger.charge("a", release, key=key, plan_sha256=plan.sha256())
        with pytest.raises(KeyReusedError, match="was charged as something else"):
            PrivateKDE(engine=Untouched()).fit(ROWS, plan=plan, budget=ledger.account("a", key=key))
        with pytest.raises(KeyReusedError, match="was charged as something else"):
            collected(plan).publish(private=True, budget=ledger.account("a", key=key))
    assert ledger.uses("a") == ()


def test_the_budget_decides_the_view(ledger: Ledger) -> None:
    ledger.create("published", epsilon=4.0, delta=1e-5, view="model")
    collected(planned()).publish(private=True, budget=ledger.account("published", cohort="north"))
    (charge,) = ledger.history("published")
    assert (charge.guarantee.view, charge.cohort) == (View.MODEL, "north")


def test_what_is_not_private_is_not_paid_for(ledger: Ledger) -> None:
    with pytest.raises(InvalidInputError, match="NOT PRIVATE"):
        collected(planned()).publish(private=False, budget=ledger.account("a"))
    with pytest.raises(InvalidInputError, match="NOT PRIVATE"):
        PrivateKDE(**SHARED, insecure_seed=1, engine=Untouched()).fit(ROWS, budget=ledger.account("a"))
    assert ledger.history("a") == ()


def test_an_account_is_of_a_budget_that_exists(ledger: Ledger) -> None:
    assert ledger.account("a") == Account(ledger=ledger, budget="a")
    with pytest.raises(UnknownBudgetError):
        ledger.account("b")
    with pytest.raises(InvalidInputError, match="key="):
        ledger.account("a", key="")
    with pytest.raises(InvalidInputError, match="cohort="):
        ledger.account("a", cohort="")


def test_separate_labels_cost_what_the_forecast_does() -> None:
    forecast = planned(epsilon=2.0, classes=2, label_epsilon=1.0, labels="separate")
    label = forecast.request.label_response()
    assert label is not None
    promise = Guarantee(epsilon=1.0, delta=1e-7, adjacency=Adjacency.FEATURES, view=View.COMMUNICATION)
    charged = Release.of_separate_labels("classes", promise, label)
    known = Release.of_plan("classes", forecast)
    assert (charged.guarantee, charged.parts) == (known.guarantee, known.parts)


@pytest.mark.parametrize(("bitsum", "delta"), [("rr", 1e-7), ("auto", 1e-7), ("pure", 0.0)])
def test_features_promise_what_is_known_before_classes_are_planned(bitsum: str, delta: float) -> None:
    terms = Terms(request={**REQUEST, "bitsum": bitsum}, labels=(0, 1), label_epsilon=1.0)
    assert terms.features_guarantee(View.MODEL).delta == delta


def test_labels_are_paid_for_before_anybody_reports_one(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression: how many users reported a class was told for nothing, and anew at each try."""
    labels = np.arange(len(ROWS)) % 2
    drawn: list[int] = []

    def spied(numbers: Any, *_: Any, **__: Any) -> Any:
        drawn.append(len(ledger.history("a")))
        return numbers

    monkeypatch.setattr("privkde.learning.estimators.randomize_labels", spied)
    classifier = PrivateKDEClassifier(**SHARED, classes=[0, 1], label_epsilon=0.5, min_users=len(ROWS) - 1)
    ledger.create("little", epsilon=0.1, delta=1e-5)
    with pytest.raises(BudgetExceededError):
        classifier.fit(ROWS, labels, budget=ledger.account("little"))
    assert drawn == []
    with pytest.raises(InvalidInputError, match="the charge for them is spent"):
        classifier.fit(ROWS, labels, budget=ledger.account("a"))
    assert drawn == [1]


@pytest.mark.parametrize("ended", ["refused", "interrupted", "published"])
def test_labels_are_drawn_once_for_a_charge(ledger: Ledger, monkeypatch: pytest.MonkeyPatch, ended: str) -> None:
    """A regression: a class below `min_users` ended each fit after its reports were told, 40 rounds for one charge."""
    drawn: list[int] = []

    def spied(numbers: Any, *given: Any, **named: Any) -> Any:
        drawn.append(len(ledger.uses("a")))
        return randomize_labels(numbers, *given, **named)

    monkeypatch.setattr("privkde.learning.estimators.randomize_labels", spied)
    options = SHARED | {"kernel": "gaussian", "classes": [0, 1], "label_epsilon": 0.5}
    ends: dict[str, dict[str, Any]] = {
        "refused": {"min_users": len(ROWS) - 1},
        "interrupted": {"engine": Interrupted()},
        "published": {},
    }
    options |= ends[ended]
    account = ledger.account("a", key="week 1")
    with nullcontext() if ended == "published" else pytest.raises((InvalidInputError, KeyboardInterrupt)):
        PrivateKDEClassifier(**options).fit(ROWS, LABELS, budget=account)
    for _ in range(3):
        with pytest.raises(ScheduleUsedUpError, match="has spent its charge"):
            PrivateKDEClassifier(**options | {"engine": None}).fit(ROWS, LABELS, budget=account)
    assert drawn == [1]
    assert (len(ledger.history("a")), len(ledger.uses("a"))) == (1, 1)


def test_a_refused_charge_leaves_no_way_around_it(ledger: Ledger, tmp_path: Path) -> None:
    """The attack: after the refusal the same collector published without a budget, as if the folder had been paid."""
    account, files = ledger.account("a", key="week 1"), ThroughFiles(engine=engine("local"), folder=tmp_path / "kept")
    PrivateKDE(**SHARED).fit(ROWS, budget=account)

    def fit(budget: Account | None) -> PrivateKDE:
        return through(tmp_path, engine=files, public_seed="0" * 32).fit(ROWS, budget=budget)

    with pytest.raises(ScheduleUsedUpError):
        fit(account)
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="give the same budget"):
            fit(None)
    assert list((tmp_path / "kept" / "0").glob("part-*")) == [], "nobody answered"
    assert fit(ledger.account("a", key="week 2")).model_.private
    with pytest.raises(InvalidInputError, match="give the same budget"):
        fit(None)


def test_a_bandwidth_is_one_number_however_it_is_written(ledger: Ledger, tmp_path: Path) -> None:
    """The attack: the folder took both for one collection, and the budget for two."""
    sums = []
    for bandwidth in (1, 1.0):
        estimator = through(tmp_path / "kept", public_seed="0" * 32, bandwidth=bandwidth)
        sums.append(estimator.fit(ROWS, budget=ledger.account("a")).model_.sums)
    np.testing.assert_array_equal(sums[0], sums[1])
    assert (len(ledger.history("a")), len(ledger.uses("a"))) == (1, 1)
