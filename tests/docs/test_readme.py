"""The numbers in README.md are those that the library computes, and its commands exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from accounting.comparing import compare_rungs
from accounting.request import PlanRequest
from privkde.cli import build_parser
from privkde.draws.randomness import private_randomness

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)`[^|]*\| ([\d.]+) \| ([\d,.]+) \|$", flags=re.MULTILINE)


def test_the_ladder() -> None:
    """Rounded as printed; the last row is for another kernel and stands in the results."""
    printed = {name: (flips, rmse) for name, flips, rmse in ROW.findall(TEXT)}
    asked = PlanRequest(users=30_000, dim=768, repetitions=768, epsilon=2, delta=1e-6)
    assert all(f"--{name} {value}" in TEXT for name, value in (("users", 30000), ("dim", 768), ("epsilon", 2)))
    found = {one.name: one for one in compare_rungs(asked)}
    assert set(printed) == {"paper", "basic", "advanced", "pld", "geometric"}
    for name in ("paper", "basic", "advanced", "pld"):
        protocol = found[name].protocol
        assert protocol is not None
        flips, rmse = printed[name]
        assert float(flips) == pytest.approx(protocol.parameters()["flip_probability"], abs=6e-5)
        assert float(rmse.replace(",", "")) == pytest.approx(found[name].bitsum_rmse, rel=2e-4)


def test_the_last_rung_and_the_trusted_analyzer() -> None:
    rows = {row["way"]: row for row in json.loads((ROOT / "docs/results/geometric.json").read_text())["noise"]["rows"]}
    flips, rmse = next((flips, rmse) for name, flips, rmse in ROW.findall(TEXT) if name == "geometric")
    own = rows["geometric, R = 1 (Theorem 2)"]
    assert float(flips) == pytest.approx(own["flip_probability"], abs=5e-6)
    assert float(rmse) == pytest.approx(own["rmse"], abs=6e-3)
    assert "less than 4 % above what a trusted analyzer would add" in TEXT
    planned, central = rows["geometric, R planned"], rows["central Gaussian mechanism"]
    assert 1.0 < planned["scaled_rmse"] / central["scaled_rmse"] < 1.04


def test_the_six_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As printed, but with seeded draws. Their deviation is about 2.5 points, and 15 points have a level of 1e-8."""
    printed = re.search(r"```python\n(.*?)```\n\n    (\d+)%\n", TEXT, flags=re.DOTALL)
    assert printed is not None
    lines, accuracy = printed.groups()
    assert len([line for line in lines.splitlines() if line]) == 6
    monkeypatch.setattr("privkde.learning.private_classifier.private_randomness", lambda _: private_randomness(18))
    exec(lines, {})
    assert int(capsys.readouterr().out.strip().rstrip("%")) == pytest.approx(int(accuracy), abs=15)


def test_the_table_of_accuracies() -> None:
    """As the results have it, rounded; five runs of the default."""
    sets = {one["data"]: one for one in json.loads((ROOT / "docs/results/classifier.json").read_text())["sets"]}
    chosen = ["agnews_minilm", "sst2_minilm", "dbpedia14_minilm", "cifar10_effnet", "cifar10_pixel_pca"]
    printed = dict(re.findall(r"^\| (default, .*?|the paper's .*?|logistic .*?) \| (.*) \|$", TEXT, flags=re.MULTILINE))
    at = {(name, row["epsilon"]): row for name in chosen for row in sets[name]["rows"]}
    assert {len(at[name, epsilon]["accuracies"]) for name in chosen for epsilon in (0.5, 1.0)} == {5}
    expected = {
        "default, ε = 0.5": [np.mean(at[name, 0.5]["accuracies"]) for name in chosen],
        "default, ε = 1": [np.mean(at[name, 1.0]["accuracies"]) for name in chosen],
        "the paper's calibration, ε = 1": [np.mean(at[name, 1.0]["paper"]) for name in chosen],
        "logistic regression, no privacy": [sets[name]["without privacy"]["logistic regression"] for name in chosen],
    }
    assert printed == {row: " | ".join(f"{100 * value:.1f}" for value in values) for row, values in expected.items()}


def test_the_command_lines() -> None:
    """Each `privkde` command has the options that it is shown with."""
    shown = re.findall(r"^    privkde (.*)$", TEXT.replace("\\\n", ""), flags=re.MULTILINE)
    commands = [shlex.split(command, comments=True) for command in shown]
    for command in commands:
        build_parser(command[0]).parse_args(command)
    assert {command[0] for command in commands} == {"plan", "serve", "budget", "fit", "predict", "decode", "audit"}
