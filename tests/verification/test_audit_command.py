"""`privkde audit` as a person or a script uses it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import Plan
from privkde import PrivateKDE
from privkde.cli import main
from privkde.ledger import Ledger
from tests.plans import plan_for
from tests.privkde.cli.test_command_line import refuse
from tests.verification import stand_ins
from tests.verification.test_auditing import REQUEST, tampered
from verification import audit_command as auditing
from verification import auditing as runner
from verification import verdicts
from verification.verdicts import Layer


@pytest.fixture(autouse=True)
def stood_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins instead of real checks, one core: no test here waits for a process to start."""
    monkeypatch.setattr(runner, "LAYER_MODULES", (stand_ins.__name__,))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    # figures take a second each and are tested elsewhere
    monkeypatch.setattr("verification.reporting.report_figures.find_spec", lambda package: None)


def written(path: Path, plan: Plan | None = None) -> Path:
    path.write_text((plan or plan_for(**REQUEST)).dumps(), encoding="utf-8")
    return path


def altered(path: Path, **values: Any) -> Path:
    """The honest plan's file with numbers of the instance changed by hand."""
    document = json.loads(written(path).read_text(encoding="utf-8"))
    document["instance"]["parameters"] |= values
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def document(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def test_an_honest_plan_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, folder = written(tmp_path / "plan.json"), tmp_path / "report"
    assert main(["audit", "--plan", str(plan), "--output", str(folder), "--seed", "3"]) == 0
    report = document(folder)
    assert (report["schema"], report["verdict"], report["seed"]) == ("privkde.audit/1", "not-refuted", 3)
    assert report["effort"]["name"] == "quick"
    assert (folder / "report.html").is_file()
    out = capsys.readouterr().out
    assert "not-refuted" in out
    assert "flips" in out


def test_the_organisation_and_its_ledger_are_told_and_the_ledger_is_only_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where, folder = tmp_path / "ledger.sqlite", tmp_path / "report"
    with Ledger.open(where) as ledger:
        ledger.create("telemetry", epsilon=4.0, delta=1e-6, composition="basic")
        head = ledger.head()
    plan = str(written(tmp_path / "plan.json"))
    asked = ["audit", "--plan", plan, "--output", str(folder), "--organisation", "Health", "--purpose", "open data"]
    assert main([*asked, "--budget", "telemetry", "--ledger", str(where)]) == 0
    told = document(folder)["deployment"]
    assert (told["organisation"], told["purpose"], told["period"]) == ("Health", "open data", None)
    assert told["standing"]["budget"]["name"] == "telemetry"
    out = " ".join(capsys.readouterr().out.split())
    assert "organisation: Health" in out
    assert "spent by all releases: ε = 0 of 4 at δ = 10⁻⁶, by 0 charges" in out
    assert "assumed, and not checked: " in out
    assert "Shuffler: If it colludes with the analyzer, each person is left with the local view" in out
    with Ledger.open(where) as ledger:
        assert ledger.head() == head
    assert main(["audit", "--plan", plan, "--output", str(folder)]) == 0
    assert set(document(folder)["deployment"].values()) == {None}


def test_a_budget_or_words_that_cannot_be_told_end_with_2_before_the_audit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, where = str(written(tmp_path / "plan.json")), tmp_path / "ledger.sqlite"
    assert "ledger.sqlite" in refuse(capsys, "audit", "--plan", plan, "--budget", "x", "--ledger", str(where))
    assert not where.exists()
    assert "purpose" in refuse(capsys, "audit", "--plan", plan, "--purpose", "two\nlines")


def test_a_plan_altered_by_hand_ends_with_1_and_can_be_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, folder = altered(tmp_path / "plan.json", flip_probability=0.01), tmp_path / "report"
    assert main(["audit", "--plan", str(plan), "--output", str(folder)]) == 1
    report = document(folder)
    assert report["verdict"] == "refuted"
    (check,) = [one for one in report["checks"] if one["verdict"] == "refuted"]
    assert check["replay"] in capsys.readouterr().out
    assert check["replay"].startswith("privkde audit ")
    assert main(check["replay"].split()[1:]) == 1
    assert "bits flip with probability 0.01" in capsys.readouterr().out


def test_a_check_that_cannot_run_ends_with_2_and_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_ins, "CHECKS", (stand_ins.FLIPS, stand_ins.BROKEN))
    folder = tmp_path / "report"
    assert main(["audit", "--plan", str(written(tmp_path / "plan.json")), "--output", str(folder)]) == 2
    assert document(folder)["verdict"] == "could-not-run"
    assert document(folder)["checks"][1]["error"] == "ZeroDivisionError"


def test_full_and_only(tmp_path: Path) -> None:
    plan, folder = written(tmp_path / "plan.json"), tmp_path / "report"
    assert (
        main(
            ["audit", "--plan", str(plan), "--full", "--only", "distinguisher-drawn", "flips", "--output", str(folder)]
        )
        == 0
    )
    report = document(folder)
    assert report["effort"] == {"name": "full", "scale": 10}
    assert [one["name"] for one in report["checks"]] == ["flips", "distinguisher-drawn"]
    assert report["left_out"] == ["sup-rmse"]


def test_a_model_is_audited_with_its_plan(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(REQUEST["users"], REQUEST["dim"])) / 10.0
    model = tmp_path / "model"
    PrivateKDE(insecure_seed=1).fit(rows, plan=plan_for(**REQUEST)).save(model)
    plan, folder = written(tmp_path / "plan.json"), tmp_path / "report"
    assert main(["audit", "--plan", str(plan), "--model", str(model), "--output", str(folder)]) == 0
    report = document(folder)
    assert report["model"]["private"] is False
    assert f"--model {model}" in report["checks"][0]["replay"]
    assert "This model is not private" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_model_of_another_request_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.zeros((REQUEST["users"], REQUEST["dim"]))
    PrivateKDE(insecure_seed=1).fit(rows, plan=plan_for(**REQUEST)).save(tmp_path / "model")
    plan = written(tmp_path / "plan.json", plan_for(**(REQUEST | {"epsilon": 2.0})))
    assert "epsilon" in refuse(capsys, "audit", "--plan", str(plan), "--model", str(tmp_path / "model"))


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "is not JSON"), ("\xff", "is not JSON"), ("{}", "schema"), ('{"schema": "privkde.plan/1"}', "malformed")],
)
def test_a_broken_plan_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content.encode("latin-1"))
    assert message in refuse(capsys, "audit", "--plan", str(path), "--output", str(tmp_path / "report"))
    assert not (tmp_path / "report").exists()


def test_what_cannot_be_audited_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--plan is missing" in refuse(capsys, "audit")
    assert "No such file" in refuse(capsys, "audit", "--plan", str(tmp_path / "none.json"))
    honest = str(written(tmp_path / "plan.json"))
    assert "Did you mean 'distinguisher-drawn'" in refuse(
        capsys, "audit", "--plan", honest, "--only", "distinguisher-drwan"
    )
    assert "not allowed with" in refuse(capsys, "audit", "--plan", honest, "--quick", "--full")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    assert "thesis.txt" in refuse(capsys, "audit", "--plan", honest, "--output", str(tmp_path / "full"))


def test_a_plan_without_a_protocol_is_refuted_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "LAYER_MODULES", ("verification.certified.certified_checks",))
    plan, folder = altered(tmp_path / "plan.json", flip_probability=0), tmp_path / "report"
    assert main(["audit", "--plan", str(plan), "--output", str(folder)]) == 1
    report = document(folder)
    assert [(one["name"], one["verdict"]) for one in report["checks"]] == [("plan-verifies", "refuted")]
    assert report["not_applicable"] == ["one-promise", "certified-bound"]
    assert (folder / "registry.yaml").is_file()
    out = " ".join(capsys.readouterr().out.split())
    assert "1 check in" in out
    assert "no false alarms" in out


def test_the_table_fits_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    longest = "distinguisher-communication"

    def ugly(subject: Any, effort: Any, seed: int) -> Any:
        return verdicts.finding("", statistic=-1.23456e-300, bound=1.23456e300, found="")

    checks = (
        verdicts.Check(name=longest, layer=Layer.STATISTICAL, about="", run=ugly),
        verdicts.Check(name="aggregated-equals-faithful", layer=Layer.EXACT, about="", run=stand_ins.BROKEN.run),
    )
    monkeypatch.setattr(stand_ins, "CHECKS", checks)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["audit", "--plan", str(written(tmp_path / "plan.json"))]) == 2
    out = capsys.readouterr().out
    for whole in (longest, "not-refuted", "-1.235e-300", "1.235e+300", "could-not-run"):
        assert whole in out
    assert "aggregated-equals-faithful: stopped: ZeroDivisionError" in out


@pytest.mark.parametrize("content", ["garbage", "[]", '{"schema": "privkde.saboteurs/1"}', '{"schema": "other/1"}'])
@pytest.mark.parametrize("flip", [0.2, 0.01])
def test_a_broken_matrix_is_refused_before_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: str, flip: float
) -> None:
    plan = altered(tmp_path / "plan.json", flip_probability=flip)
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "saboteurs.json").write_text(content)
    monkeypatch.setattr(stand_ins, "CHECKS", ())  # an audit would find nothing to run
    said = refuse(capsys, "audit", "--plan", str(plan), "--output", str(folder))
    assert "saboteurs.json" in said
    assert "delete it" in said
    assert [one.name for one in folder.iterdir()] == ["saboteurs.json"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyError("rows")])
def test_a_report_that_cannot_be_written_does_not_hide_a_refutation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def full(report: Any, output: Path) -> list[str]:
        raise error

    monkeypatch.setattr(auditing, "write_report", full)
    folder = tmp_path / "report"
    plan = altered(tmp_path / "plan.json", flip_probability=0.01)
    assert main(["audit", "--plan", str(plan), "--output", str(folder)]) == 1
    told = capsys.readouterr()
    assert "bits flip with probability 0.01" in told.out
    assert "the report could not be written" in told.err
    assert "written:" not in told.out
    assert main(["audit", "--plan", str(written(plan)), "--output", str(folder)]) == 2


def test_a_terminal_that_cannot_show_it_does_not_hide_a_refutation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unprintable(report: Any) -> None:
        raise UnicodeEncodeError("ascii", "ε", 0, 1, "ordinal not in range")

    monkeypatch.setattr(auditing, "_show", unprintable)
    plan, folder = altered(tmp_path / "plan.json", flip_probability=0.01), tmp_path / "report"
    assert main(["audit", "--plan", str(plan), "--output", str(folder)]) == 1
    assert "could not be shown: UnicodeEncodeError" in capsys.readouterr().err
    assert document(folder)["verdict"] == "refuted"


def test_a_mistake_of_ours_is_not_a_refutation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "LAYER_MODULES", ("verification.no_such_module",))
    with pytest.raises(SystemExit) as stopped:
        main(["audit", "--plan", str(written(tmp_path / "plan.json"))])
    assert stopped.value.code == 2
    assert "could not run: ModuleNotFoundError" in capsys.readouterr().err


def test_a_closed_pipe_does_not_change_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """rich leaves with exit code 1 when nobody reads any more."""

    def leave(*printed: Any) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(auditing, "_show", leave)
    plan = written(tmp_path / "plan.json")
    assert main(["audit", "--plan", str(plan)]) == 0
    assert main(["audit", "--plan", str(written(plan, tampered(plan_for(**REQUEST), 0.01)))]) == 1


@dataclass
class Matrix:
    """A stand-in for the matrix of saboteurs."""

    complete: bool

    def table(self) -> str:
        return "no noise ✗"

    def to_json(self) -> dict[str, Any]:
        return {"schema": "privkde.saboteurs/1", "complete": self.complete}


@pytest.mark.parametrize("complete", [True, False])
def test_saboteurs_are_printed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], complete: bool
) -> None:
    def run_matrix(effort: Any, progress: Any = None) -> Matrix:
        assert effort.name == "quick"
        progress(1, 1, "no noise")
        return Matrix(complete)

    monkeypatch.setattr(auditing, "run_matrix", run_matrix)
    assert main(["audit", "--saboteurs", "--output", str(tmp_path / "report")]) == (0 if complete else 1)
    assert "no noise ✗" in capsys.readouterr().out
    document = json.loads((tmp_path / "report" / "saboteurs.json").read_text())
    assert document["complete"] is complete


def test_no_report_takes_a_name_that_sqlite_deletes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A regression: a folder of this name kept a ledger from being opened."""
    plan, report = str(written(tmp_path / "plan.json")), str(tmp_path / "ledger-journal")
    (tmp_path / "ledger").touch()
    for asked in (["--saboteurs"], ["--plan", plan]):
        assert "choose another name" in refuse(capsys, "audit", *asked, "--output", report)
    assert not Path(report).exists()


def test_saboteurs_bring_their_own_plans(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--plan has no effect" in refuse(capsys, "audit", "--saboteurs", "--plan", "plan.json")
