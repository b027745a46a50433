"""Budgets, charges and refusals, in a file and on a server."""

from __future__ import annotations

import dataclasses
import json
import math
import sqlite3
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Adjacency, Guarantee, InvalidInputError, UnlikeGuaranteesError, View
from accounting.releases.adaptive import AdaptiveFilter, Price
from accounting.releases.composing import Spent, basic_epsilon, spent
from accounting.releases.profile_points import Profile
from accounting.releases.release import Part, Release
from privkde.ledger import (
    Budget,
    BudgetExceededError,
    BudgetExistsError,
    Composition,
    KeyReusedError,
    Ledger,
    LedgerUnavailableError,
    ScheduleUsedUpError,
    UnknownBudgetError,
    store,
)
from privkde.ledger.ledger import composed
from tests.plans import plan_for
from tests.privkde.ledger.charging import release

SMALL: dict[str, Any] = {"users": 2000, "dim": 4, "repetitions": 8, "epsilon": 1.0, "delta": 1e-6, "accountant": "pld"}


def test_a_ledger_from_the_first_budget_to_the_last_charge(where: str) -> None:
    with Ledger.open(where) as ledger:
        assert ledger.budgets() == ()
        budget = ledger.create("telemetry", epsilon=2.0, delta=1e-6, composition="pld")
        assert ledger.budgets() == (budget,)
        empty = ledger.standing("telemetry")
        assert (empty.spent, empty.remaining, empty.n_charges) == (0.0, 2.0, 0)
        first = ledger.charge("telemetry", release(1.0, 1e-7), key="one")
        second = ledger.charge("telemetry", release(0.5), key="two")
        assert (first.number, second.number, first.spent_before) == (1, 2, 0.0)
        assert second.spent_before == first.spent_after
    with Ledger.open(where, create=False) as ledger:  # another run
        assert ledger.budgets() == (budget,)
        assert ledger.history("telemetry") == (first, second)
        standing = ledger.standing("telemetry")
        assert (standing.spent, standing.n_charges) == (second.spent_after, 2)
        assert standing.remaining == 2.0 - second.spent_after
        together = spent([release(1.0, 1e-7), release(0.5)], 1e-6)
        assert (standing.ladder.pld, standing.ladder.advanced) == (together.pld, together.advanced)


def test_what_does_not_fit_is_refused_and_leaves_nothing(where: str) -> None:
    with Ledger.open(where) as ledger:
        ledger.create("small", epsilon=1.0, delta=0.0)
        ledger.charge("small", release(0.75), key="one")
        with pytest.raises(
            BudgetExceededError, match=r"requested ε=0.5, remaining ε=0.25, difference ε=0.25"
        ) as caught:
            ledger.charge("small", release(0.5), key="two")
        error = caught.value
        assert (error.requested, error.remaining, error.difference) == (0.5, 0.25, 0.25)
        with pytest.raises(BudgetExceededError) as caught:
            ledger.charge("small", release(0.1, 1e-9), key="two")
        assert caught.value.requested == caught.value.difference == math.inf
        with pytest.raises(BudgetExceededError):  # no tolerance: one unit in the last place is too much
            ledger.charge("small", release(math.nextafter(0.25, 1.0)), key="two")
        assert len(ledger.history("small")) == 1
        assert ledger.charge("small", release(0.25), key="two").spent_after == 1.0  # the key is still free


def test_a_key_is_charged_once(where: str) -> None:
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        ledger.create("b", epsilon=1.0, delta=1e-6)
        first = ledger.charge("a", release(1.0), key="week 1")
        assert ledger.charge("a", release(1.0), key="week 1") == first  # though nothing is left
        assert ledger.charge("b", release(1.0), key="week 1").budget == "b"  # keys belong to a budget
        for other in (release(0.9), release(1.0, name="other"), release(1.0, 1e-9)):
            with pytest.raises(KeyReusedError, match="week 1"):
                ledger.charge("a", other, key="week 1")
        with pytest.raises(KeyReusedError):
            ledger.charge("a", release(1.0), key="week 1", plan_sha256="0" * 64)
        assert ledger.history("a") == (first,)


def test_a_plan_decides_whether_two_charges_are_the_same(where: str) -> None:
    """Profiles of one plan may differ in the last digit between machines."""
    promise, digest = release(1.0, 1e-6).guarantee, "0" * 64
    release_of_plan, other = (
        Release(name="a", guarantee=promise, parts=(Part(profile=Profile(points=((0.0, height), (1.0, 1e-6)))),))
        for height in (0.4, math.nextafter(0.4, 1.0))
    )
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=9.0, delta=1e-5)
        first = ledger.charge("a", release_of_plan, key="1", plan_sha256=digest)
        assert ledger.charge("a", other, key="1", plan_sha256=digest) == first
        with pytest.raises(KeyReusedError):
            ledger.charge("a", release_of_plan, key="1", plan_sha256="1" * 64)
        ledger.charge("a", release_of_plan, key="2")
        with pytest.raises(KeyReusedError):
            ledger.charge("a", other, key="2")


def test_ten_collections_by_a_plan_cost_far_less_than_ten_times_its_epsilon(where: str) -> None:
    plan = plan_for(**SMALL)
    collected = Release.of_plan("collection", plan)
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=4.0, delta=1e-5)
        for i in range(10):
            charge = ledger.charge("a", collected, key=str(i), plan_sha256=plan.sha256())
        assert charge.release == collected  # every digit of the profiles
        assert charge.spent_after < 0.4 * 10
        assert ledger.history("a")[-1] == charge
        ledger.create("adaptive", epsilon=4.0, delta=1e-5, composition="basic")
        for i in range(4):
            charge = ledger.charge("adaptive", collected, key=str(i))
        assert charge.spent_after == 4.0
        with pytest.raises(BudgetExceededError):
            ledger.charge("adaptive", release(1e-6), key="more")


def test_a_quote_writes_nothing_and_is_what_a_charge_then_costs(where: str) -> None:
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        ledger.charge("a", release(0.25), key="one")
        quote = ledger.quote("a", release(0.5))
        assert quote.fits
        assert len(ledger.history("a")) == 1
        charge = ledger.charge("a", release(0.5), key="two")
        assert (charge.spent_before, charge.spent_after) == (quote.before.epsilon, quote.after.epsilon)
        assert quote.difference == quote.requested - quote.remaining < 0.0
        refused = ledger.quote("a", release(0.5, 1e-5))
        assert not refused.fits
        document = json.loads(json.dumps(refused.to_json(), allow_nan=False))
        assert document["requested"] is document["difference"] is document["spent_after"] is None


def test_names_and_what_there_is_already(where: str) -> None:
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        with pytest.raises(BudgetExistsError, match="'a' exists"):
            ledger.create("a", epsilon=2.0, delta=1e-6)
        assert ledger.standing("a").budget.epsilon == 1.0
        for ask in (ledger.standing, ledger.history):
            with pytest.raises(UnknownBudgetError, match="'b'"):
                ask("b")
        with pytest.raises(UnknownBudgetError):
            ledger.charge("b", release(0.1), key="k")
        for bad in ("", "a b", "ä", "-a", "a" * 101, "a\n", "a'; DROP TABLE privkde_budgets; --"):
            with pytest.raises(InvalidInputError, match="letters, digits"):
                ledger.create(bad, epsilon=1.0, delta=1e-6)
            with pytest.raises(InvalidInputError, match="letters, digits"):
                ledger.standing(bad)
        for bad in ("", "ä", "k" * 201, "a\nb", "\0"):
            with pytest.raises(InvalidInputError, match="printable ASCII"):
                ledger.charge("a", release(0.1), key=bad)
        with pytest.raises(InvalidInputError, match="hexadecimal"):
            ledger.charge("a", release(0.1), key="k", plan_sha256="F" * 64)


def test_any_name_of_a_release_comes_back(where: str) -> None:
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=9.0, delta=1e-6, composition="basic")
        names = ("ε 'quoted' \"twice\" %s :x", "🂡" * 200)
        for i, name in enumerate(names):
            ledger.charge("a", release(0.5, name=name), key=str(i))
        assert tuple(charge.name for charge in ledger.history("a")) == names
    for bad in ("\0", "\ud800", "a\nb", "", "x" * 201):
        with pytest.raises(InvalidInputError, match="printable"):
            release(0.5, name=bad)


def test_unlike_releases_are_refused(where: str) -> None:
    label = Guarantee(epsilon=0.1, delta=0.0, adjacency=Adjacency.LABEL, view=View.MODEL)
    with Ledger.open(where) as ledger:
        ledger.create("model", epsilon=1.0, delta=1e-6, view="model")
        for unlike in (release(0.1), Release.of_guarantee("label", label)):
            with pytest.raises(UnlikeGuaranteesError, match="'model' counts replace-one in the model view"):
                ledger.charge("model", unlike, key="k")
        ledger.charge("model", release(0.1, view=View.MODEL), key="k")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"delta": -1e-9}, "delta"),
        ({"delta": 1.0}, "promises nothing"),
        ({"view": "local"}, "view='local'"),
        ({"composition": "advanced"}, "composition='advanced'"),
    ],
)
def test_bad_budgets(wrong: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {"name": "a", "epsilon": 1.0, "delta": 1e-6, "created": ""}
    with pytest.raises(InvalidInputError, match=message):
        Budget(**(right | wrong))


def test_documents_name_their_schemas(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger") as ledger:
        budget = ledger.create("a", epsilon=1.0, delta=0.0, composition=Composition.BASIC)
        charge = ledger.charge("a", release(0.5), key="k")
        standing = ledger.standing("a").to_json()
    assert budget.to_json() | {"created": ""} == {
        "schema": "privkde.budget/1",
        "name": "a",
        "epsilon": 1.0,
        "delta": 0.0,
        "adjacency": "replace-one",
        "view": "communication",
        "composition": "basic",
        "order": None,
        "created": "",
    }
    document = charge.to_json()
    assert (document["schema"], document["spent_before"], document["spent_after"]) == ("privkde.charge/1", 0.0, 0.5)
    assert document["guarantee"]["epsilon"] == 0.5
    others = dict.fromkeys(("advanced", "pld", "renyi", "adaptive"))
    assert standing["ladder"] == {"basic": 0.5, **others, "epsilon": 0.5, "delta_at_budget": 0.0}
    assert (standing["delta_spent"], standing["delta_remaining"], standing["odometer"]) == (0.0, 0.0, 0.5)
    json.dumps([standing, document], allow_nan=False)


@given(st.lists(st.decimals("0.001", 3, places=3), min_size=1, max_size=30), st.integers(-1, 1))
def test_basic_composition_is_exact_in_decimals(epsilons: list[Any], off: int) -> None:
    """The sum fits into itself, as a person writes it, and never into anything less."""
    budget = float(sum(epsilons)) if off == 0 else math.nextafter(float(sum(epsilons)), off * math.inf)
    total = basic_epsilon([release(float(epsilon)) for epsilon in epsilons], 0.0)
    assert (total <= budget) == (off >= 0)
    assert Fraction(repr(total)) >= sum(Fraction(epsilon) for epsilon in epsilons)


def test_ten_times_a_tenth_is_one() -> None:
    tenths = [release(0.1, 1e-7)] * 10
    assert basic_epsilon(tenths, 1e-6) == 1.0
    assert basic_epsilon(tenths, math.nextafter(1e-6, 0.0)) == math.inf
    assert basic_epsilon([release(0.1)] * 3, 0.0) == 0.3 < 0.1 + 0.1 + 0.1


def test_the_smallest_of_all_ways_counts_unless_releases_are_chosen_adaptively() -> None:
    many = (release(0.1, 1e-9),) * 60

    def total(composition: Composition) -> Spent:
        budget = Budget(name="a", epsilon=6.0, delta=1e-6, composition=composition, created="")
        return composed(budget, many)

    together = total(Composition.PLD)
    assert together.epsilon == together.pld < 0.8 * together.basic
    assert total(Composition.BASIC).epsilon == together.basic == 6.0
    assert together.pld < total(Composition.ADAPTIVE).epsilon < 6.0


def test_a_budget_is_adaptive_unless_it_says_otherwise(where: str) -> None:
    """A list that a fixed schedule may hold is refused where the next release may depend on the last result."""
    tenths = [release(0.1, 1e-9, name=str(i)) for i in range(60)]
    fixed = spent(tenths, 1e-6).epsilon
    with Ledger.open(where) as ledger:
        budget = ledger.create("default", epsilon=fixed, delta=1e-6)
        assert budget.composition is Composition.ADAPTIVE
        assert budget.order is not None
        ledger.create("fixed", epsilon=fixed, delta=1e-6, composition="pld")
        for i, each in enumerate(tenths[:-20]):
            ledger.charge("default", each, key=str(i))
        schedule = Release.of_guarantee("all", tenths[0].guarantee, times=60)
        assert ledger.quote("fixed", schedule).fits
        with pytest.raises(BudgetExceededError):
            ledger.charge("default", Release.of_guarantee("rest", tenths[0].guarantee, times=20), key="rest")
        standing = ledger.standing("default")
        assert 0.0 < standing.spent < fixed
        assert standing.odometer == standing.spent
        assert ledger.standing("fixed").odometer is None
        assert standing.delta_spent is not None
        assert 0.0 < standing.delta_spent <= 1e-6


def test_a_schedule_is_charged_at_once_and_used_time_by_time(where: str) -> None:
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=4.0, delta=1e-6)
        charge = ledger.charge("a", Release.of_guarantee("week", release(0.1).guarantee, times=3), key="year")
        first = ledger.use("a", "year", key="week 1")
        assert ledger.use("a", "year", key="week 1") == first
        assert [ledger.use("a", "year", key=f"week {i}").number for i in (2, 3)] == [2, 3]
        with pytest.raises(ScheduleUsedUpError, match="all 3 collections"):
            ledger.use("a", "year", key="week 4")
        with pytest.raises(InvalidInputError, match="no charge with key 'month'"):
            ledger.use("a", "month", key="week 4")
        assert ledger.history("a") == (charge,)
        assert charge.to_json()["times"] == 3
        (schedule,) = ledger.standing("a").schedules
        assert (schedule.name, schedule.key, schedule.used, schedule.times) == ("week", "year", 3, 3)


def test_a_schedule_is_used_for_the_plan_that_was_charged(where: str) -> None:
    ours, other = "a" * 64, "b" * 64
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=4.0, delta=1e-6)
        ledger.charge("a", release(0.1).repeated(3), key="year", plan_sha256=ours)
        assert ledger.use("a", "year", key="week 1", plan_sha256=ours).number == 1
        with pytest.raises(InvalidInputError, match="is not the plan that 'year' was charged for"):
            ledger.use("a", "year", key="week 2", plan_sha256=other)
        with pytest.raises(InvalidInputError, match="must run that plan"):
            ledger.use("a", "year", key="week 2")
        ledger.use("a", "year", key="week 2", plan_sha256=ours)
        assert [(use.schedule, use.number, use.key) for use in ledger.uses("a")] == [
            ("year", 1, "week 1"),
            ("year", 2, "week 2"),
        ]


def test_only_a_plan_holds_more_collections_than_times(where: str) -> None:
    many = dataclasses.replace(release(0.1), collections=1000)
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=4.0, delta=1e-6)
        with pytest.raises(InvalidInputError, match="counts 1000 collections"):
            ledger.charge("a", many, key="1")
        assert ledger.charge("a", many, key="1", plan_sha256="a" * 64).to_json()["collections"] == 1000


def test_cohorts_are_charged_in_parallel(where: str) -> None:
    """What is about one cohort costs another nothing; what is about everybody costs all."""
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=1.0, delta=0.0)
        for cohort in ("north", "south"):
            assert ledger.charge("a", release(0.6), key=cohort, cohort=cohort).spent_after == 0.6
        assert ledger.standing("a").spent == 0.6
        with pytest.raises(BudgetExceededError):
            ledger.charge("a", release(0.5), key="2", cohort="north")
        ledger.charge("a", release(0.3), key="3", cohort="north")
        with pytest.raises(BudgetExceededError):  # for the north it would be 1.1
            ledger.charge("a", release(0.2), key="4")
        assert ledger.charge("a", release(0.1), key="5").spent_after == 1.0
        assert ledger.charge("a", release(0.3), key="6", cohort="south").spent_after == 1.0
        assert ledger.charge("a", release(0.9), key="7", cohort="west").spent_after == 1.0
        assert ledger.standing("a").cohorts == {"north": 1.0, "south": 1.0, "west": 1.0}
        with pytest.raises(KeyReusedError):
            ledger.charge("a", release(0.3), key="6", cohort="north")
        with pytest.raises(InvalidInputError, match="cohort"):
            ledger.charge("a", release(0.1), key="8", cohort="no such\nname")


def test_a_refusal_names_delta_where_delta_is_the_cause(where: str) -> None:
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=9.0, delta=1e-6)
        ledger.charge("a", release(0.1, 4e-7), key="1")
        with pytest.raises(BudgetExceededError, match=r"add up to 5e-07, and 4e-07 of it is spent; plan"):
            ledger.charge("a", release(0.1, 4e-7), key="2")
        ledger.create("pure", epsilon=1.0, delta=0.0)
        with pytest.raises(BudgetExceededError, match=r"add up to 0, and 0 of it is spent; release what has δ = 0"):
            ledger.charge("pure", release(0.1, 1e-9), key="1")
        ledger.charge("pure", release(1.0), key="1")
        with pytest.raises(BudgetExceededError, match="it is used up: open another one"):
            ledger.charge("pure", release(0.1), key="2")


def test_prices_are_kept_with_their_charges(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=4.0, delta=1e-6)
        charge = ledger.charge("a", release(0.5, 1e-9), key="1")
        assert charge.price is not None
        assert charge.price.cut == 1e-9
        assert ledger.history("a") == (charge,)
        monkeypatch.setattr(AdaptiveFilter, "price", lambda *_: Price(rho=1.0, largest_loss=math.inf))
        assert ledger.standing("a").spent == charge.spent_after
        second = ledger.charge("a", release(0.5), key="2")
        assert second.spent_before == charge.spent_after
        assert second.price == Price(rho=1.0, largest_loss=math.inf)
        assert ledger.history("a") == (charge, second)
        assert second.to_json()["price"] == {"cut": 0.0, "rho": 1.0, "largest_loss": None}


def test_a_standing_says_when_sums_count(where: str) -> None:
    with Ledger.open(where) as ledger:
        for name, epsilon in (("whole", 4.0), ("part", 0.1)):
            ledger.create(name, epsilon=4.0, delta=1e-6)
            assert not ledger.standing(name).by_sums
            ledger.charge(name, release(epsilon, 1e-6 if name == "whole" else 0.0), key="1")
        assert ledger.standing("whole").by_sums
        assert not ledger.standing("part").by_sums


def unchain(connection: sqlite3.Connection) -> None:
    """Take away what format 2 did not have."""
    connection.execute("DROP TABLE privkde_head")
    for table in ("privkde_budgets", "privkde_charges", "privkde_uses"):
        connection.execute(f"DROP INDEX {table}_position")
        for column in ("position", "before", "digest"):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")


def test_a_ledger_of_version_2_has_no_prices_and_gets_them_now(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    with Ledger.open(path) as ledger:
        ledger.create("a", epsilon=2.0, delta=1e-6)
        charge = ledger.charge("a", release(0.5), key="1")
    with sqlite3.connect(path) as connection:
        unchain(connection)
        for column in ("cut", "rho", "largest_loss"):
            connection.execute(f"ALTER TABLE privkde_charges DROP COLUMN {column}")
        connection.execute("UPDATE privkde_ledger SET version = 2")
    connection.close()
    with Ledger.open(path) as ledger:
        (old,) = ledger.history("a")
        assert old.price is None
        assert ledger.charge("a", release(0.25), key="2").spent_before == charge.spent_after
        assert [charge.price is None for charge in ledger.history("a")] == [True, False]


def test_a_ledger_of_version_1_is_brought_up_to_date(tmp_path: Path) -> None:
    """Budgets keep their composition; what was not recorded is said to be so."""
    path = tmp_path / "old.sqlite"
    with Ledger.open(path) as ledger:
        ledger.create("a", epsilon=2.0, delta=1e-6, composition="pld")
        ledger.charge("a", release(0.5), key="1")
    with sqlite3.connect(path) as connection:
        unchain(connection)
        connection.execute("DROP TABLE privkde_uses")
        connection.execute('ALTER TABLE privkde_budgets DROP COLUMN "order"')
        for column in ("cohort", "renyi", "adaptive", "at_budget", "cut", "rho", "largest_loss"):
            connection.execute(f"ALTER TABLE privkde_charges DROP COLUMN {column}")
        connection.execute("UPDATE privkde_ledger SET version = 1")
    connection.close()
    with Ledger.open(path) as ledger:
        standing = ledger.standing("a")
        assert (standing.spent, standing.delta_spent, standing.n_charges) == (0.5, None, 1)
        assert standing.budget.composition is Composition.PLD
        assert ledger.charge("a", release(0.25), key="2").spent_after == 0.75


def test_threads_share_a_ledger(where: str) -> None:
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=1.0, delta=0.0, composition="basic")
        refused: list[str] = []

        def pay(key: str) -> None:
            try:
                ledger.charge("a", release(0.1), key=key)
            except BudgetExceededError:
                refused.append(key)

        threads = [threading.Thread(target=pay, args=(str(i % 15),)) for i in range(30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        charges = ledger.history("a")
        assert [charge.number for charge in charges] == list(range(1, 11))
        assert {charge.key for charge in charges} | set(refused) == {str(i) for i in range(15)}
        assert ledger.standing("a").remaining == 0.0


def test_a_failure_in_the_middle_of_a_charge_leaves_nothing(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    insert = store.Rows.add_charge

    def fail(rows: store.Rows, charge: Any) -> None:
        insert(rows, charge)
        raise KeyboardInterrupt

    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        with monkeypatch.context() as patch:
            patch.setattr(store.Rows, "add_charge", fail)
            with pytest.raises(KeyboardInterrupt):
                ledger.charge("a", release(0.1), key="k")
        assert ledger.history("a") == ()
        assert ledger.charge("a", release(0.1), key="k").number == 1


def test_the_second_lock_holds_if_the_first_fails(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A charge that saw an old history cannot be written."""
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=1.0, delta=1e-6)
        ledger.charge("a", release(0.9), key="one")
        monkeypatch.setattr(store.Rows, "charges", lambda rows, budget, after=0: ())
        with pytest.raises(LedgerUnavailableError, match="cannot be used"):
            ledger.charge("a", release(0.9), key="two")
