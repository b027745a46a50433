"""Runs every unit on all cores, remembers what is done, and takes up where an interrupted run stopped."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import privkde
from accounting import InvalidInputError
from accounting.request import PlanRequest, read_request
from benchmarks.paper.calibration import Calibrations, counted_users, plan_request, shared
from benchmarks.paper.data import LabeledData, Vocabulary
from benchmarks.paper.measuring import measure
from benchmarks.paper.results import DataResults, Results, combined
from benchmarks.paper.settings import BITSUMS, KERNELS, PRESETS, Settings
from benchmarks.paper.unit import DECODED_SEED, Unit, group_sizes
from privkde.display.progress import Tracker
from privkde.learning.baselines import exact_densities
from privkde.storage.files import write_text
from privkde.storage.json_text import read_json

REVISION = 2
"""Of what a cell means; a change of draws or features needs another, so that nothing old is taken up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Data sets, settings and the folder in which finished cells are kept."""

    data: tuple[LabeledData, ...]
    vocabulary: Vocabulary | None
    settings: Settings
    folder: Path

    def __post_init__(self) -> None:
        dims = {labeled.dim for labeled in self.data}
        if self.vocabulary is not None and self.vocabulary.rows.shape[1] not in dims:
            raise InvalidInputError(
                f"the vocabulary's vectors have {self.vocabulary.rows.shape[1]} entries and the data's have"
                f" {', '.join(map(str, sorted(dims)))}; embed both with one model."
            )

    def units(self, data: LabeledData) -> list[Unit]:
        """One for each seed and each kind of features; those of the published inner product serve its baselines."""
        features: dict[tuple[str, float | None], list[str]] = {(kernel, None): [] for kernel in KERNELS[:1]}
        features[KERNELS[1], 1.0] = []
        for preset in self.settings.presets:
            features[KERNELS[0], None].append(preset)
            bound = PRESETS[preset].bound or self.planned_bound(data)
            features.setdefault((KERNELS[1], bound), []).append(preset)
        return [
            Unit(
                data=data.path, sha256=data.sha256, kernel=kernel, bound=bound, presets=tuple(presets), seed=seed,
                settings=self.settings,
            )
            for seed in range(self.settings.seeds)
            for (kernel, bound), presets in features.items()
        ]  # fmt: skip

    def planned_bound(self, data: LabeledData) -> float:
        """R that the planner chooses for classes of average size; all classes share it."""
        users = max(2, len(data.numbers) // data.n_classes)
        typical = plan_request(
            "tight", KERNELS[1], BITSUMS[0], self.settings.epsilons[0], users=users, dim=data.dim,
            delta=self.settings.delta, bound=None, repetitions=None,
        )  # fmt: skip
        return typical.rounding_bound or 1.0

    def vocabulary_of(self, unit: Unit) -> Vocabulary | None:
        """The vocabulary, for data of its dimension; others cannot be decoded with it."""
        (data,) = (labeled for labeled in self.data if labeled.path == unit.data)
        fits = self.vocabulary is not None and self.vocabulary.rows.shape[1] == data.dim
        return self.vocabulary if fits else None

    def place(self, unit: Unit) -> Path:
        """The file of a unit's cells, named by everything that decides them."""
        settings, decoded = self.settings, None
        vocabulary = self.vocabulary_of(unit)
        if vocabulary is not None and unit.seed == DECODED_SEED:
            decoded = [vocabulary.sha256, settings.decoded_epsilon, settings.main_label_epsilon]
        key = [
            REVISION, privkde.__version__, np.__version__, unit.sha256, unit.kernel, unit.bound, unit.seed,
            settings.delta, settings.queries, settings.repetitions, decoded,
        ]  # fmt: skip
        return self.folder / f"cells-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]}.json"

    def cells(self, unit: Unit) -> dict[str, dict[str, Any]]:
        """What is known of a unit so far, cells of earlier runs with other settings included."""
        place = self.place(unit)
        return dict(_remembered(place)["cells"]) if place.exists() else {}

    def asked_cells(self, unit: Unit) -> dict[str, dict[str, Any]]:
        """What these settings ask of a finished unit."""
        known = self.cells(unit)
        return {cell.key: known[cell.key] for cell in unit.cells()}


def run(study: Study, tracker: Tracker, *, workers: int | None = None) -> Results:
    """All cells, by so many processes (default: one for each core); calibrations first, since units share them."""
    study.folder.mkdir(parents=True, exist_ok=True)
    n_workers = workers or os.cpu_count() or 1
    calibrations = Calibrations(study.folder)
    requests = [request for request in _requests(study) if not calibrations.has(request)]
    _all(
        tracker, "calibrating noise", _calibrate, [(study.folder, request.to_json()) for request in requests], n_workers
    )
    units = [unit for data in study.data for unit in study.units(data)]
    waiting = [unit for unit in units if any(cell.key not in study.cells(unit) for cell in unit.cells())]
    todo = [(study.folder, unit, words.path if (words := study.vocabulary_of(unit)) else None) for unit in waiting]
    _all(tracker, "measuring", _measure, todo, n_workers)
    unknown = [data for data in study.data if not _exact_place(study.folder, data).exists()]
    _all(tracker, "exact kernels", _exact_accuracy, [(study.folder, data.path) for data in unknown], n_workers)
    return Results(settings=study.settings, data=tuple(_collected(study, data) for data in study.data))


def _all(tracker: Tracker, text: str, work: Callable[..., None], todo: Sequence[Any], n_workers: int) -> None:
    """Do all of it, in any order; the first failure ends the run, and what is done stays done."""
    advance = tracker.bar(text, len(todo))
    if n_workers == 1 or len(todo) <= 1:
        for arguments in todo:
            work(*arguments)
            advance(1)
        return
    context = multiprocessing.get_context("spawn")  # threads are running: a forked process could wait for one of them
    with ProcessPoolExecutor(n_workers, mp_context=context, initializer=_alone) as pool:
        try:
            for future in as_completed([pool.submit(work, *arguments) for arguments in todo]):
                future.result()
                advance(1)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _remembered(place: Path) -> dict[str, Any]:
    """What an earlier run wrote to a file of this folder."""
    return dict(read_json(place, "delete it, and it is measured again."))


def _collected(study: Study, data: LabeledData) -> DataResults:
    units = study.units(data)
    kernels = {
        kernel: combined([study.asked_cells(unit) for unit in units if unit.kernel == kernel]) for kernel in KERNELS
    }
    exact = _remembered(_exact_place(study.folder, data))["correct"]
    facts = {**data.facts(), "bound": study.planned_bound(data), "exact_kernel_correct": exact}
    if (vocabulary := study.vocabulary_of(units[0])) is not None:
        facts["vocabulary"] = {"words": len(vocabulary.words), "sha256": vocabulary.sha256}
    return DataResults(facts=facts, kernels=kernels)


def _requests(study: Study) -> list[PlanRequest]:
    """Everything that must be calibrated, each once."""
    requests: dict[PlanRequest, None] = {}
    for data in study.data:
        units = study.units(data)
        sizes = {unit.seed: group_sizes(unit, data) for unit in {unit.seed: unit for unit in units}.values()}
        _refuse_empty(data, sizes.values())
        for unit in units:
            for cell in unit.cells():
                if cell.preset:
                    counts = set(map(counted_users, sizes[unit.seed][cell.label_epsilon].tolist()))
                    requests |= {shared(unit.request(cell, n, data.dim)): None for n in counts}
    return list(requests)


def _refuse_empty(data: LabeledData, counted: Iterable[dict[float | str | None, NDArray[np.int64]]]) -> None:
    """A class that fewer than two users report has no density to plan for."""
    for sizes in counted:
        for label_epsilon, counts in sizes.items():
            if int(counts.min()) < 2:
                name = data.class_names[int(counts.argmin())]
                raise InvalidInputError(
                    f"class {name!r} of {data.name!r} is reported by {counts.min()} users"
                    f" at label_epsilon={label_epsilon}; give it more users, or leave the class or that ε out."
                )


def _alone() -> None:
    """Processes are the parallelism: one BLAS thread in each."""
    threadpool_limits(limits=1, user_api="blas")


@lru_cache(maxsize=8)
def _data(path: Path) -> LabeledData:
    return LabeledData.read(path)


def _calibrate(folder: Path, request: dict[str, Any]) -> None:
    Calibrations(folder).make(read_request(request))


def _measure(folder: Path, unit: Unit, vocabulary: Path | None) -> None:
    study = Study(
        data=(_data(unit.data),),
        vocabulary=None if vocabulary is None else Vocabulary.read(vocabulary),
        settings=unit.settings,
        folder=folder,
    )
    known = study.cells(unit)
    missing = [cell for cell in unit.cells() if cell.key not in known]
    measured = measure(unit, study.data[0], study.vocabulary_of(unit), Calibrations(folder), missing)
    write_text(study.place(unit), json.dumps({"cells": known | measured}) + "\n")


def _exact_place(folder: Path, data: LabeledData) -> Path:
    return folder / f"exact-{REVISION}-{data.sha256[:24]}.json"


def _exact_accuracy(folder: Path, path: Path) -> None:
    """Test items that the Gaussian kernel itself gets right: no features, no privacy."""
    data = _data(path)
    family = Unit(
        data=path, sha256=data.sha256, kernel=KERNELS[0], bound=None, presets=(), seed=0, settings=Settings()
    ).family(data.dim)
    groups = [np.flatnonzero(data.numbers == number) for number in range(data.n_classes)]
    densities = exact_densities(family, data.rows, groups, data.test_rows)
    correct = int(np.sum(np.argmax(densities, axis=1) == data.test_numbers))
    write_text(_exact_place(folder, data), json.dumps({"correct": correct}) + "\n")
