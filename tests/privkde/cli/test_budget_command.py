"""`privkde budget` as a person or a script uses it."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent

from accounting import View
from accounting.releases.release import Release
from privkde.cli import main
from privkde.ledger import Ledger, LedgerUnavailableError
from tests.plans import plan_for
from tests.privkde.cli.test_command_line import refuse

SMALL: dict[str, Any] = {
    "users": 500, "dim": 4, "repetitions": 2, "epsilon": 1.0, "delta": 1e-6, "bitsum": "poisson", "accountant": "pld"
}  # fmt: skip
RR: dict[str, Any] = {"users": 2000, "dim": 4, "repetitions": 8, "epsilon": 1.0, "delta": 1e-6, "accountant": "pld"}
with_plans = pytest.mark.parametrize("asked", [SMALL, pytest.param(RR, marks=pytest.mark.slow)], ids=["poisson", "rr"])
CREATE = ("create", "telemetry", "--epsilon", "2", "--delta", "1e-6")
CHARGE = ("charge", "telemetry", "--epsilon", "1", "--name", "week")


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands run in an empty folder, with nothing in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("PRIVKDE_LEDGER", "PRIVKDE_LEDGER_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "privkde-ledger.sqlite"


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["budget", *arguments]) == code
    return capsys.readouterr().out


def test_create_charge_show_history(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "telemetry" in run(capsys, *CREATE, "--composition", "basic")
    assert ledger.exists()
    output = run(capsys, *CHARGE, "--delta", "1e-7", "--key", "week [1]")
    assert "week [1]" in output
    assert "ε = 1 after 1 charge" in output
    shown = json.loads(run(capsys, "show", "telemetry", "--json"))
    assert (shown["spent"], shown["remaining"], shown["n_charges"]) == (1.0, 1.0, 1)
    assert [standing["spent"] for standing in json.loads(run(capsys, "show", "--json"))] == [1.0]
    (charge,) = json.loads(run(capsys, "history", "telemetry", "--json"))
    assert (charge["schema"], charge["key"], charge["name"]) == ("privkde.charge/1", "week [1]", "week")
    assert charge["guarantee"]["delta"] == 1e-7
    table = run(capsys, "history", "telemetry")
    assert "week [1]" in table
    assert "1e-07" in table
    assert re.search(r"telemetry +1 of 2 +1e-07 of 1e-06 +1 +communication +basic", run(capsys, "show"))


def test_an_exceeded_budget_ends_with_1_and_says_by_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *CREATE, "--composition", "basic")
    run(capsys, *CHARGE)
    assert main(["budget", "charge", "telemetry", "--epsilon", "1.5", "--name", "more"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "requested ε=1.5, remaining ε=1, difference ε=0.5" in captured.err
    assert json.loads(run(capsys, "show", "telemetry", "--json"))["n_charges"] == 1


def test_a_dry_run_charges_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *CREATE, "--composition", "basic")
    assert "fits" in run(capsys, *CHARGE, "--dry-run")
    too_much = ("charge", "telemetry", "--epsilon", "2.5", "--name", "more", "--dry-run")
    assert "exceeds the budget by ε = 0.5" in run(capsys, *too_much, code=1)
    assert json.loads(run(capsys, "history", "telemetry", "--json")) == []


def test_without_a_key_every_charge_counts_and_with_one_only_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *CREATE)
    output = [run(capsys, *CHARGE[:3], "0.1", *CHARGE[4:]) for _ in range(2)]
    keys = [charge["key"] for charge in json.loads(run(capsys, "history", "telemetry", "--json"))]
    assert len(set(keys)) == 2
    assert [key in text for key, text in zip(keys, output, strict=True)] == [True, True]
    for _ in range(2):
        run(capsys, *CHARGE[:3], "0.1", *CHARGE[4:], "--key", "k")
    assert len(json.loads(run(capsys, "history", "telemetry", "--json"))) == 3
    assert "key='k' was used" in refuse(capsys, "budget", *CHARGE, "--key", "k")


@with_plans
@pytest.mark.parametrize("view", ["communication", "model"])
def test_a_plan_is_charged_with_its_profile(
    capsys: pytest.CaptureFixture[str], view: str, asked: dict[str, Any]
) -> None:
    plan = plan_for(**asked)
    Path("plan.json").write_text(plan.dumps(), encoding="utf-8")
    run(capsys, *CREATE, "--view", view)
    run(capsys, "charge", "telemetry", "--plan", "plan.json", "--name", "collection", "--key", "1")
    with Ledger.open("privkde-ledger.sqlite") as ledger:
        (charge,) = ledger.history("telemetry")
    assert charge.plan_sha256 == plan.sha256()
    assert charge.release == Release.of_plan("collection", plan, view=charge.guarantee.view)
    assert charge.guarantee.view == view


@with_plans
def test_an_altered_or_broken_plan_is_refused(capsys: pytest.CaptureFixture[str], asked: dict[str, Any]) -> None:
    run(capsys, *CREATE)
    document = plan_for(**asked).to_json()
    for name in document["instance"]["parameters"]:
        document["instance"]["parameters"][name] *= 0.5
    charge = ("budget", "charge", "telemetry", "--plan", "plan.json", "--name", "a")
    for text, message in ((json.dumps(document), "altered"), ("{", "is not JSON"), ("{}", "schema")):
        Path("plan.json").write_text(text, encoding="utf-8")
        assert message in refuse(capsys, *charge)
    Path("plan.json").unlink()
    assert "No such file" in refuse(capsys, *charge)
    assert "--delta belongs to --epsilon" in refuse(capsys, *charge, "--delta", "1e-9")


def test_only_create_makes_a_ledger(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (CHARGE, ("show",), ("history", "telemetry")):
        assert "there is no ledger at 'privkde-ledger.sqlite'" in refuse(capsys, "budget", *command)
    assert not ledger.exists()


def test_bad_input_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *CREATE)
    assert "exists" in refuse(capsys, "budget", *CREATE)
    assert "there is no budget 'other'" in refuse(capsys, "budget", "show", "other")
    assert "view='local'" in refuse(capsys, "budget", "create", "b", *CREATE[2:], "--view", "local")
    assert "Did you mean 'basic'" in refuse(capsys, "budget", "create", "b", *CREATE[2:], "--composition", "basis")
    assert "is required" in refuse(capsys, "budget", "charge", "telemetry", "--name", "a")
    assert "not allowed with" in refuse(capsys, "budget", *CHARGE, "--plan", "plan.json")
    assert "epsilon=-1.0" in refuse(capsys, "budget", "charge", "telemetry", "--epsilon", "-1", "--name", "a")


def test_the_ledger_is_named_by_option_or_environment(
    ledger: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, *CREATE, "--ledger", "other.sqlite")
    assert Path("other.sqlite").exists()
    assert not ledger.exists()
    monkeypatch.setenv("PRIVKDE_LEDGER", "other.sqlite")
    assert len(json.loads(run(capsys, "show", "--json"))) == 1
    monkeypatch.setenv("PRIVKDE_LEDGER", "")
    assert "privkde-ledger.sqlite" in refuse(capsys, "budget", "show")


def test_a_ledger_on_either_kind_of_database(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *CREATE, "--ledger", where)
    run(capsys, *CHARGE, "--ledger", where)
    assert json.loads(run(capsys, "show", "telemetry", "--json", "--ledger", where))["n_charges"] == 1


def test_a_lost_connection_leaves_the_key_to_try_again_with(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, *CREATE)
    keys = []

    def lose(ledger: Ledger, name: str, release: Release, *, key: str, **_: str | None) -> None:
        keys.append(key)
        raise LedgerUnavailableError("the line is dead; try again later.")

    monkeypatch.setattr(Ledger, "charge", lose)
    output = refuse(capsys, "budget", *CHARGE)
    assert f"The key is {keys[0]!r}" in output


def test_a_year_is_charged_at_once_and_used_week_by_week(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *CREATE)
    week = (
        "charge",
        "telemetry",
        "--epsilon",
        "0.1",
        "--name",
        "week",
        "--key",
        "year",
        "--times",
        "2",
        "--cohort",
        "eu",
    )
    assert "2 times" in run(capsys, *week)
    assert "use 1 of schedule 'year'" in run(capsys, "use", "telemetry", "year", "--key", "w1")
    run(capsys, "use", "telemetry", "year", "--key", "w2")
    assert main(["budget", "use", "telemetry", "year", "--key", "w3"]) == 1
    assert "all 2 collections of 'week' are used" in capsys.readouterr().err
    (charge,) = json.loads(run(capsys, "history", "telemetry", "--json"))
    assert (charge["times"], charge["cohort"]) == (2, "eu")
    assert json.loads(run(capsys, "show", "telemetry", "--json"))["odometer"] > 0.0
    shown = run(capsys, "show", "telemetry")
    assert re.search(r"eu +0\.2 of 2", shown)
    assert re.search(r"week +year +2 of 2", shown)
    assert re.search(r"year +2 +w2", run(capsys, "history", "telemetry"))


def test_a_release_document_is_charged_with_its_profile(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    query = Release.of_event(
        "query", GaussianDpEvent(8.0), sensitivity="replace-one", delta=1e-6, view=View.COMMUNICATION
    )
    (tmp_path / "query.json").write_text(query.dumps(), encoding="utf-8")
    run(capsys, *CREATE)
    charge = ("charge", "telemetry", "--release", "query.json", "--name", "a query", "--key", "q", "--times", "3")
    assert "3; take each with" in run(capsys, *charge)
    (charged,) = json.loads(run(capsys, "history", "telemetry", "--json"))
    assert (charged["name"], charged["times"]) == ("a query", 3)
    assert charged["spent_after"] < 3 * query.guarantee.epsilon
    (tmp_path / "query.json").write_text('{"name": "query"}', encoding="utf-8")
    assert "malformed" in refuse(capsys, "budget", *charge[:-4], "--key", "r")
    (tmp_path / "query.json").write_text('{"schema": "privkde.plan/1"}', encoding="utf-8")
    assert "is not 'privkde.release/1'" in refuse(capsys, "budget", *charge[:-4], "--key", "r")
    assert "--delta belongs to --epsilon" in refuse(capsys, "budget", *charge, "--delta", "0.1")


def test_what_pld_assumes_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert "fixed before the first" in run(capsys, *CREATE, "--composition", "pld")


def test_a_use_names_its_plan(capsys: pytest.CaptureFixture[str]) -> None:
    plans = {name: plan_for(**{**SMALL, "epsilon": epsilon}) for name, epsilon in (("ours", 0.5), ("other", 0.6))}
    for name, plan in plans.items():
        Path(name).write_text(plan.dumps(), encoding="utf-8")
    run(capsys, *CREATE)
    run(capsys, "charge", "telemetry", "--plan", "ours", "--name", "week", "--key", "year", "--times", "2")
    assert "use 1" in run(capsys, "use", "telemetry", "year", "--key", "w1", "--plan", "ours")
    assert "is not the plan" in refuse(capsys, "budget", "use", "telemetry", "year", "--key", "w2", "--plan", "other")


KEY = "0123456789abcdef" * 4


def alter(ledger: Path, statement: str) -> None:
    with sqlite3.connect(ledger) as connection:
        assert connection.execute(statement).rowcount == 1
    connection.close()


def test_an_altered_ledger_is_refused_by_every_command(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *CREATE)
    run(capsys, *CHARGE, "--key", "1")
    assert "2 rows, nothing was altered" in run(capsys, "verify")
    alter(ledger, "DELETE FROM privkde_charges")
    for command in (("verify",), ("head",), ("show",), ("history", "telemetry"), CHARGE, ("backup", "copy")):
        assert "row 2 is missing" in refuse(capsys, "budget", *command)
    assert not Path("copy").exists()


def test_an_exported_head_finds_an_old_copy(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *CREATE)
    assert "1 rows, checked" in run(capsys, "backup", "old")
    run(capsys, *CHARGE, "--key", "1")
    text = run(capsys, "head")
    Path("head.json").write_text(text, encoding="utf-8")
    head = json.loads(text)
    assert (head["schema"], head["rows"]) == ("privkde.head/1", 2)
    assert "it continues from the exported head" in run(capsys, "verify", "--head", "head.json")
    assert "exists; name a new file" in refuse(capsys, "budget", "backup", "old")
    ledger.unlink()
    Path("old").rename(ledger)
    assert "an old copy would pass" in run(capsys, "verify")
    for given in ("head.json", head["digest"]):
        assert "is not in it" in refuse(capsys, "budget", "verify", "--head", given)
    Path("head.json").write_text("[", encoding="utf-8")
    assert "is not JSON" in refuse(capsys, "budget", "verify", "--head", "head.json")


def test_a_key_from_a_file_or_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, *CREATE)
    assert "no key was given" in refuse(capsys, "budget", "seal")
    assert "can also write all of it again" in run(capsys, "verify")
    Path("key").write_text(f"{KEY}\n", encoding="utf-8")
    assert "1 rows have the key now" in run(capsys, "seal", "--ledger-key", "key")
    assert "has a key" in refuse(capsys, "budget", *CHARGE)
    run(capsys, *CHARGE, "--ledger-key", "key")
    monkeypatch.setenv("PRIVKDE_LEDGER_KEY", KEY)
    assert "all of it again" not in run(capsys, "verify")
    monkeypatch.setenv("PRIVKDE_LEDGER_KEY", "short-secret")
    assert "short-secret" not in refuse(capsys, "budget", "verify")


def test_a_key_is_any_bytes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression: bytes that are no text ended in a traceback."""
    key = bytes(range(128, 168))
    run(capsys, *CREATE)
    monkeypatch.setenv("PRIVKDE_LEDGER_KEY", os.fsdecode(key))
    run(capsys, "seal")
    monkeypatch.delenv("PRIVKDE_LEDGER_KEY")
    Path("key").write_bytes(key)
    run(capsys, *CHARGE, "--ledger-key", "key")


def test_a_link_to_itself_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("loop").symlink_to("loop")
    assert "lead nowhere" in refuse(capsys, "budget", *CREATE, "--ledger", "loop")
    assert "lead nowhere" in refuse(capsys, "budget", "show", "--ledger", "loop")


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal"])
def test_a_backup_is_not_put_where_the_next_command_deletes_it(
    ledger: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    run(capsys, *CREATE)
    assert "choose another name" in refuse(capsys, "budget", "backup", f"{ledger.name}{ending}")
    assert "choose another name" in refuse(capsys, "budget", *CREATE, "--ledger", f"{ledger.name}{ending}")
    run(capsys, "show")
    assert [path.name for path in Path().iterdir()] == [ledger.name]


@pytest.mark.parametrize("key", ["/dev/zero", "long"])
def test_a_key_without_end_is_not_read(capsys: pytest.CaptureFixture[str], key: str) -> None:
    Path("long").write_bytes(b"k" * 70_000)
    assert "more than 65,536 bytes" in refuse(capsys, "budget", *CREATE, "--ledger-key", key)
    assert not Path("privkde-ledger.sqlite").exists()


def test_names_of_files_are_not_obeyed_by_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *CREATE)
    text = run(capsys, "backup", "\x1b[31m\nred.bk")
    assert text.startswith(r"\x1b[31m\nred.bk: 1 rows")
    assert text.count("\n") == 1


def test_a_charge_keeps_the_certificate_of_its_plan(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_for(**SMALL)
    (tmp_path / "plan.json").write_text(plan.dumps(), encoding="utf-8")
    (tmp_path / "certificate.json").write_text(plan.certified().dumps(), encoding="utf-8")
    run(capsys, *CREATE)
    charge = ("charge", "telemetry", "--plan", "plan.json", "--name", "week")
    assert "proved: ε ≤ " in run(capsys, *charge, "--certificate", "certificate.json")
    assert re.search(r"certificate\W+none", run(capsys, *charge))
    kept, none = json.loads(run(capsys, "history", "telemetry", "--json"))
    assert kept["certificate"]["document"] == json.loads((tmp_path / "certificate.json").read_text(encoding="utf-8"))
    assert none["certificate"] is None
    assert "proved: ε" in run(capsys, "history", "telemetry")
    assert run(capsys, "verify")


def test_a_certificate_that_does_not_prove_the_plan_is_refused(
    ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, file = plan_for(**SMALL), tmp_path / "certificate.json"
    (tmp_path / "plan.json").write_text(plan.dumps(), encoding="utf-8")
    run(capsys, *CREATE)
    honest = plan.certified().to_json()
    lower = {**honest["proved"], "upper_epsilon": 0.5, "epsilon": 0.5}
    for document, said in (
        ({**honest, "plan_sha256": "0" * 64}, "the certificate is for plan 000000000000"),
        ({**honest, "proved": lower}, "is false: ε ≤ 0.5 does not follow"),
        ({**honest, "schema": "privkde.plan/1"}, "schema="),
    ):
        file.write_text(json.dumps(document), encoding="utf-8")
        charge = ("charge", "telemetry", "--plan", "plan.json", "--name", "week", "--certificate", str(file))
        assert said in refuse(capsys, "budget", *charge)
    assert "belongs to --plan" in refuse(capsys, "budget", *CHARGE, "--certificate", str(file))
    assert json.loads(run(capsys, "history", "telemetry", "--json")) == []
