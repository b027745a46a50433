"""The numbers in README.md are those that the library computes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from accounting.comparing import compare_rungs
from accounting.request import PlanRequest

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
    assert "less than 10 % above what a trusted analyzer would add" in TEXT
    planned, central = rows["geometric, R planned"], rows["central Gaussian mechanism"]
    assert 1.0 < planned["scaled_rmse"] / central["scaled_rmse"] < 1.1
