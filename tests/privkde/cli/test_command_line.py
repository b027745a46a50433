"""The command line as a person or a script uses it."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from accounting import Plan
from accounting.composition import LADDER
from privkde.cli import main
from tests.memory import MEGABYTE, peak
from tests.plans import made_once

REQUEST = [
    "plan",
    "--users",
    "2000",
    "--dim",
    "16",
    "--kernel",
    "gaussian",
    "--repetitions",
    "16",
    "--bitsum",
    "rr",
    "--epsilon",
    "1",
    "--delta",
    "1e-6",
]


@pytest.fixture(scope="module", autouse=True)
def plans_made_once() -> Iterator[None]:
    with made_once():
        yield


def run(capsys: pytest.CaptureFixture[str], *extra: str) -> str:
    assert main([*REQUEST, *extra]) == 0
    return capsys.readouterr().out


def refuse(capsys: pytest.CaptureFixture[str], *arguments: str, command: Callable[[Sequence[str]], int] = main) -> str:
    """Exit code 2, one line on standard error, nothing on standard output, no traceback."""
    with pytest.raises(SystemExit) as stopped:
        command(list(arguments))
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [line for line in captured.err.splitlines() if line.strip()]
    assert len(lines) == 1
    assert lines[0].startswith("privkde: error: ")
    return lines[0]


def test_json_is_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan.from_json(json.loads(run(capsys, "--accountant", "pld", "--json")))
    assert 0.0 < plan.parameters["flip_probability"] < 0.5
    assert plan.accountant == "pld"


@pytest.mark.parametrize("accountant", ["pld", pytest.param("auto", marks=pytest.mark.slow)])
def test_tables(capsys: pytest.CaptureFixture[str], accountant: str) -> None:
    text = run(capsys, "--accountant", accountant)
    for word in ("flip_probability", "pld (used)", "advanced", "basic", "paper", "Theorem 3.2"):
        assert word in text


def cells(text: str, first: str) -> list[str]:
    """The line of a table that begins with this cell."""
    (found,) = [line.split() for line in text.splitlines() if line.split()[:1] == [first]]
    return found


def test_compare_shows_the_ladder_and_both_ways_to_protect_labels(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = tmp_path / "ladder.svg"
    labels = ["--classes", "2", "--label-epsilon", "2", "--epsilon", "3", "--accountant", "basic"]
    text = run(capsys, "--compare", *labels, "--plot", str(picture))
    assert cells(text, "accountant")[1:] == ["parameter", "value", "RMSE", "noise", "error", "messages"]
    rows = {name: cells(text, name) for name in LADDER if name != "shifts"}
    assert all(row[1] == "flip_probability" for row in rows.values())
    noise = {name: float(row[4]) for name, row in rows.items()}
    assert noise["paper"] > max(noise["basic"], noise["advanced"]) > noise["geometric"] > 0.0
    assert noise["pld"] == noise["geometric"]  # every bit may flip: then geometric composes the same losses
    for _, _, value, rmse, found, error, messages in rows.values():
        p = float(value)
        one = math.sqrt(1000 * p * (1.0 - p)) / (1.0 - 2.0 * p)  # 1,000 users in each class
        assert float(rmse) == pytest.approx(one, rel=1e-2)
        assert float(found) == pytest.approx(2.0 * math.sqrt(2.0) * one, rel=1e-2)
        assert 0.25 < float(error) < 5.0
        assert messages == "16"
    assert cells(text, "separate")[1:3] == ["1", "2"]
    assert cells(text, "joint")[1:4] == ["←", "3", "together"]
    assert "recommended" in text
    drawing = picture.read_text()
    assert drawing.lstrip().startswith("<?xml")
    assert all(name in drawing for name in rows)


def test_compare_lists_rungs_that_do_not_apply(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REQUEST[:-6], "--bitsum", "poisson", "--epsilon", "1", "--delta", "1e-6", "--compare"]) == 0
    assert "published" in capsys.readouterr().out


def test_compare_kernels_tells_order_and_outliers_of_a_sample(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    np.savez(tmp_path / "sample.npz", X=np.random.default_rng(0).normal(size=(60, 4)) / 4.0)
    options = ["--compare", "kernels", "--accountant", "basic"]
    request = ["plan", "--users", "1000", "--dim", "4", "--epsilon", "4", "--delta", "1e-6"]
    assert main([*request, *options]) == 0
    bare = capsys.readouterr().out
    assert "Wrong order" not in bare
    assert "adds what can be compared" in " ".join(bare.split())
    assert main([*request, *options, "--sample", str(tmp_path / "sample.npz")]) == 0
    judged = capsys.readouterr().out
    for kernel in ("gaussian", "inner-product", "inner-product-signs", "laplacian", "exponential"):
        assert kernel in judged
    assert "Wrong order" in judged
    assert judged.count("%") >= 15


def test_compare_predicts_accuracy_on_data_like_a_sample(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Arrays are called `X` or `X_train`, `y` or `y_train`."""
    labels = np.arange(200) % 2
    vectors = np.where(labels, 0.5, -0.5)[:, None] * np.ones((200, 2))
    np.savez(tmp_path / "sample.npz", X=vectors, y_train=labels)
    asked = ["--users", "3000", "--dim", "2", "--epsilon", "2", "--delta", "1e-6", "--accountant", "geometric"]
    options = ["--classes", "2", "--max-messages", "20", "--compare", "--sample", str(tmp_path / "sample.npz")]
    assert main(["plan", *asked, *options]) == 0
    text = capsys.readouterr().out
    assert "expected accuracy" in " ".join(text.split())
    assert all(float(cells(text, model)[-1].removesuffix("%")) > 95.0 for model in ("mean", "discriminant"))
    assert "caution" not in text
    np.savez(tmp_path / "sample.npz", X=vectors[:20], y=labels[:20])
    assert main(["plan", *asked, *options]) == 0
    assert "caution: 20 public rows are few for 2 dimensions" in " ".join(capsys.readouterr().out.split())
    options.remove("--compare")
    assert main(["plan", *asked, *options]) == 0
    assert "--compare predicts the accuracy of each model" in " ".join(capsys.readouterr().out.split())


def test_explain_and_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target, picture = tmp_path / "plan.json", tmp_path / "profile.svg"
    text = run(capsys, "--bitsum", "poisson", "--explain", "--output", str(target), "--plot", str(picture))
    assert "Promise" in text
    plan = Plan.from_json(json.loads(target.read_text()))
    assert f"{plan.bitsum_rmse:.6g}" in text
    drawing = picture.read_text()
    assert drawing.lstrip().startswith("<?xml")
    assert len(drawing) > 5_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json", "profile.svg"]


@pytest.mark.parametrize("accountant", ["pld", pytest.param("advanced", marks=pytest.mark.slow)])
def test_solve(capsys: pytest.CaptureFixture[str], accountant: str) -> None:
    arguments = [
        "plan",
        "--dim",
        "8",
        "--repetitions",
        "16",
        "--users",
        "300",
        "--delta",
        "1e-6",
        "--solve",
        "epsilon",
        "--target-error",
        "0.3",
        "--bitsum",
        "poisson",
        "--accountant",
        accountant,
        "--json",
    ]
    assert main(arguments) == 0
    plan = Plan.from_json(json.loads(capsys.readouterr().out))
    assert plan.error.total <= 0.3


def test_labels_and_dropouts(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--bitsum", "poisson", "--accountant", "basic"]
    text = run(
        capsys, *quick, "--classes", "4", "--label-epsilon", "5", "--epsilon", "6", "--min-users", "400", "--json"
    )
    plan = Plan.from_json(json.loads(text))
    assert plan.request.counted_users == 400
    assert any(g.epsilon == 6.0 for g in plan.guarantees)


def test_shares_may_be_percentages_and_releases_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--accountant", "basic", "--releases", "2", "--dropout", "30%", "--colluders", "7"]
    plan = Plan.from_json(json.loads(run(capsys, *quick, "--json")))
    assert (plan.request.dropout, plan.request.colluders, plan.request.releases) == (0.3, 7.0, 2)
    text = run(capsys, *quick)
    assert "promise over 2 releases" in text
    assert re.search(r"instances per user over 2 releases +│ 32 ", text)
    assert re.search(r"messages per user, one release +│ 16 \(", text)
    assert "noise counts on 1,393" in " ".join(text.split())


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--epsilon", "nan"], "epsilon=nan"),
        (["--epsilon", "-1"], "epsilon=-1.0"),
        (["--epsilon", "two"], "--epsilon"),
        (["--users", "1.5"], "--users"),
        (["--delta", "2"], "delta=2.0"),
        (["--kernel", "gausian"], "Did you mean 'gaussian'"),
        (["--bitsum", "3mb"], "Did you mean '3nb'"),
        (["--accountant", "pdl"], "Did you mean 'pld'"),
        (["--epsion", "3"], "Did you mean --epsilon"),
        (["--output", "/nonexistent/plan.json"], "does not exist"),
        (["--plot", "/nonexistent/plan.svg"], "does not exist"),
        (["--target-error", "0.1"], "--solve"),
        (["--compare", "--json"], "--json has no effect with --compare"),
        (["--compare", "colors"], "--compare='colors'"),
        (["--compare", "kernels", "--plot", "kernels.png"], "--plot has no effect"),
        (["--compare", "kernels", "--classes", "2"], "classes"),
        (["--compare", "--sample", "public.npz"], "add --classes"),
        (["--solve", "delta"], "--solve='delta'"),
        (["--dropout", "100%"], "'100%' must be at least 0% and below 100%"),
        (["--colluders", "many%"], "'many' must be a number"),
        (["--dropout", "30%", "--min-users", "900"], "both say how many honest users there are"),
        (["--plot", "profile.gif"], "'profile.gif' must end in"),
        (["--solve", "epsilon", "--target-error", "0.1"], "leave it out"),
        (["--users", "50", "--epsilon", "0.5", "--accountant", "paper"], "smallest feasible n"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], extra: list[str], words: str) -> None:
    assert words in refuse(capsys, *REQUEST, *extra)


def test_missing_values_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--delta is missing" in refuse(capsys, "plan", "--users", "100", "--dim", "8", "--epsilon", "1")


def test_the_same_plan_is_drawn_as_the_same_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        run(capsys, "--bitsum", "poisson", "--json", "--plot", str(tmp_path / name))
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_pictures_need_the_extra(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privkde.display.figures.find_spec", lambda _: None)
    assert "pip install 'privkde[report]'" in refuse(capsys, *REQUEST, "--plot", "profile.svg")


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for name in ("plan", "fit", "predict", "decode", "collect"):
        assert re.search(rf"^ +{name} +\w", text, re.MULTILINE)
        with pytest.raises(SystemExit) as stopped:
            main([name, "--help"])
        assert stopped.value.code == 0
        assert f"privkde {name}" in capsys.readouterr().out


def test_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "privkde.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("privkde ")


def test_interrupting_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("privkde.cli.plan_command.plan_with_advice", interrupt)
    assert main(REQUEST) == 130


def test_too_little_memory_is_no_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 80.0 MiB for an array")

    monkeypatch.setattr("privkde.cli.plan_command.plan_with_advice", allocate)
    assert "takes more memory than there is; ask for less" in refuse(capsys, *REQUEST)


def test_unknown_picture_format_writes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    refuse(capsys, *REQUEST, "--plot", str(tmp_path / "profile.gif"), "--output", str(tmp_path / "plan.json"))
    assert list(tmp_path.iterdir()) == []


def test_a_long_document_is_refused_before_it_is_parsed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "announcement.json"
    path.write_bytes(b"[" * (8 << 20))
    counts = str(tmp_path / "counts.npz")

    def collect() -> None:
        told = refuse(capsys, "collect", "--announcement", str(path), "a.packets", "--counts", counts)
        assert "it has more than 1,048,576 bytes; get it from whoever runs the collection" in told

    collect()  # imports
    assert peak(collect) < 4 * MEGABYTE


HOSTILE = {
    "deep": "[" * 100_000,
    "nested": '{"schema": ' * 500 + "1" + "}" * 500,
    "digits": '{"schema": ' + "9" * 5_000 + "}",
    "infinite": '{"schema": "privkde.plan/1", "messages_per_user": Infinity}',
    "huge": '{"schema": 1e999}',
    "twice": '{"schema": "privkde.plan/1", "schema": "privkde.release/1"}',
    "half": '{"schema": "\\ud800"}',
}
READERS = {
    "fit": "fit data.npz --plan hostile.json -o model",
    "collect --plan": "collect data.npz --plan hostile.json -o model",
    "collect --announcement": "collect a.packets --announcement hostile.json --counts counts",
    "audit": "audit --plan hostile.json",
    "charge --plan": "budget charge all --plan hostile.json --name x --ledger ledger.sqlite",
    "charge --release": "budget charge all --release hostile.json --name x --ledger ledger.sqlite",
    "use": "budget use all key --key other --plan hostile.json --ledger ledger.sqlite",
}
"""Every command that reads JSON."""


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_json_is_refused_by_every_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hostile.json").write_text(text, encoding="utf-8")
    assert main(["budget", "create", "all", "--epsilon", "1", "--delta", "1e-6", "--ledger", "ledger.sqlite"]) == 0
    capsys.readouterr()
    for command in READERS.values():
        assert "'hostile.json' is not JSON that is read here: " in refuse(capsys, *command.split())
    assert {path.name for path in tmp_path.iterdir()} <= {"hostile.json", "ledger.sqlite"}


def test_what_a_terminal_would_obey_is_escaped_in_errors(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["plan", "--\x1b[31m"], ["plan", "--users", "\x1b[31m"], ["audit", "--plan", "\x1b[31m"]):
        assert refuse(capsys, *arguments).isprintable()


CHEAP = ["plan", "--users", "300", "--dim", "2", "--repetitions", "3", "--epsilon", "4", "--delta", "1e-3"]
CHEAP += ["--bitsum", "poisson", "--accountant", "basic", "--allow-useless"]


def test_a_plan_is_written_with_its_certificate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan, certificate = tmp_path / "plan.json", tmp_path / "certificate.json"
    assert main([*CHEAP, "--output", str(plan), "--certify", str(certificate)]) == 0
    text = capsys.readouterr().out
    assert "proved: ε ≤ " in text
    assert f"written: {certificate}" in " ".join(text.split())
    document = json.loads(certificate.read_text(encoding="utf-8"))
    assert document["plan_sha256"] == Plan.from_json(json.loads(plan.read_text(encoding="utf-8"))).sha256()
    assert main(["verify", str(plan), str(certificate)]) == 0


def test_with_json_the_certificate_leaves_the_output_to_the_plan(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*CHEAP, "--json", "--certify", str(tmp_path / "certificate.json")]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["schema"] == "privkde.plan/1"
    assert "proved: ε ≤ " in captured.err


@pytest.mark.parametrize(("refutes", "code"), [(False, 0), (True, 1)])
def test_a_plan_that_is_not_proved_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, refutes: bool, code: int
) -> None:
    said = "refuted: it costs more" if refutes else "not proved: a law is too wide"
    proof = SimpleNamespace(proves=False, refutes=refutes, headline=said, dumps=lambda: "{}")
    monkeypatch.setattr(Plan, "certified", lambda plan: proof)
    files = ["--output", str(tmp_path / "plan.json"), "--certify", str(tmp_path / "certificate.json")]
    assert main([*CHEAP, *files]) == code
    assert said in capsys.readouterr().out
    assert len(list(tmp_path.iterdir())) == 2


def test_a_certificate_needs_its_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    one = str(tmp_path / "one.json")
    assert "add --output" in refuse(capsys, *CHEAP, "--certify", one)
    assert "named for something else" in refuse(capsys, *CHEAP, "--certify", one, "--output", one)
    assert "--certify has no effect" in refuse(capsys, *CHEAP, "--certify", one, "--compare")
    assert "does not exist" in refuse(capsys, *CHEAP, "--certify", str(tmp_path / "no" / "one.json"), "--json")
