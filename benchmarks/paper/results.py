"""What a study found: for every cell the numbers of all seeds, as a document and as values to show."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from accounting import InvalidInputError
from benchmarks.paper.settings import Settings
from benchmarks.paper.unit import Cell
from privkde.storage.json_text import read_json

SCHEMA = "privkde.reproduction/1"
SIGNIFICANT = 6
"""Digits of errors and message counts in a document; right answers are whole numbers."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation over the seeds."""

    mean: float
    deviation: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Of one value for each seed; one seed has no deviation."""
        return Spread(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else float("nan"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DataResults:
    """All cells of one data set: kernel, then key of the cell, then what was measured."""

    facts: Mapping[str, Any]
    kernels: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(repr=False)

    @property
    def name(self) -> str:
        """The data set's name."""
        return str(self.facts["name"])

    def cell(self, kernel: str, cell: Cell) -> Mapping[str, Any]:
        """What was measured; empty if nothing was."""
        return self.kernels[kernel].get(cell.key, {})

    def accuracy(self, kernel: str, cell: Cell) -> Spread | None:
        """Share of right answers; None where the promise cannot be kept by that method."""
        correct = self.cell(kernel, cell).get("correct")
        return None if correct is None else Spread.of([count / self.facts["test_items"] for count in correct])

    def error(self, kernel: str, cell: Cell) -> Spread | None:
        """Root-mean-square error of the density of all users over the queries."""
        errors = self.cell(kernel, cell).get("error")
        return None if errors is None else Spread.of(errors)

    def value(self, kernel: str, cell: Cell, name: str) -> Any:
        """`messages`, `rmse`, `rung`, `terms` or `refused` of a cell."""
        return self.cell(kernel, cell).get(name)

    @property
    def exact_accuracy(self) -> float:
        """Share of right answers of the Gaussian kernel itself."""
        return float(self.facts["exact_kernel_correct"] / self.facts["test_items"])

    @property
    def guessing(self) -> float:
        """Share of the largest class among test items."""
        return float(self.facts["largest_test_class"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A whole study."""

    settings: Settings
    data: tuple[DataResults, ...]
    about: Mapping[str, Any] = field(default_factory=dict)
    """Command, date, machine and versions."""

    def to_json(self) -> dict[str, Any]:
        """The `privkde.reproduction/1` document."""
        return {
            "schema": SCHEMA,
            "about": dict(self.about),
            "settings": self.settings.to_json(),
            "data": [{**results.facts, "kernels": results.kernels} for results in self.data],
        }

    def text(self) -> str:
        """The document with one line for each cell."""
        document = self.to_json()
        sets = document.pop("data")
        head = json.dumps(document, ensure_ascii=False, indent=1)[:-2]
        return head + ',\n "data": [\n' + ",\n".join(_data_text(entry) for entry in sets) + "\n ]\n}\n"

    @staticmethod
    def load(path: Path) -> Results:
        """Read a document that a study wrote."""
        data = read_json(path, "write it with `make reproduce`.")
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise InvalidInputError(f"{str(path)!r} is not a {SCHEMA!r} document; write it with `make reproduce`.")
        sets = [
            DataResults(kernels=entry["kernels"], facts={name: entry[name] for name in entry if name != "kernels"})
            for entry in data["data"]
        ]
        return Results(settings=Settings.from_json(data["settings"]), data=tuple(sets), about=data["about"])


def _data_text(entry: dict[str, Any]) -> str:
    facts = json.dumps({name: value for name, value in entry.items() if name != "kernels"}, ensure_ascii=False)
    kernels = []
    for kernel, cells in entry["kernels"].items():
        lines = [f"   {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in cells.items()]
        kernels.append(f"  {json.dumps(kernel)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "  " + facts[:-1] + ', "kernels": {\n' + ",\n".join(kernels) + "\n  }}"


def combined(seeds: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Cells of all units of a kernel: lists over seeds of what differs, in order; means of messages and noise."""
    keys = dict.fromkeys(key for cells in seeds for key in cells)
    combined_cells: dict[str, dict[str, Any]] = {}
    for key in keys:
        runs = [cells[key] for cells in seeds if key in cells]
        entry: dict[str, Any] = {}
        refused = [run["refused"] for run in runs if "refused" in run]
        if refused:
            combined_cells[key] = {"refused": refused[0], "refused_seeds": len(refused)}
            continue
        for name in ("correct", "error"):
            if name in runs[0]:
                entry[name] = [_short(run[name]) for run in runs]
        for name in ("messages", "rmse"):
            if name in runs[0]:
                entry[name] = _short(float(np.mean([run[name] for run in runs])))
        entry |= {name: runs[0][name] for name in ("rung", "terms") if name in runs[0]}
        combined_cells[key] = entry
    return combined_cells


def _short(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{SIGNIFICANT}g}")
