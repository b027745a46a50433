"""One unit of work: a kernel, a bound and a seed. One pass over the users serves all of its cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.mechanisms import RandomizedResponse
from accounting.request import PlanRequest
from privkde.baselines import admitted, exact_densities
from privkde.bitsum import executed
from privkde.decoding import decode_classes
from privkde.kernels import KernelChoice, LsqFamily
from privkde.model import FeatureSums
from privkde.randomness import ByteStream, private_randomness, study_generator
from privkde.reproduction.calibration import (
    Calibrations,
    asked,
    central_deviation,
    counted_users,
    local_flip,
)
from privkde.reproduction.data import LabeledData, Vocabulary
from privkde.reproduction.settings import BASELINES, BITSUMS, PRESETS, Settings
from privkde.reproduction.simulation import counted
from privkde.reproduction.sums import GroupSums, group_sums

TERMS = 3
"""Words that a class is decoded into."""
DECODED_SEED = 0
"""The seed whose classes are decoded."""
EVERYBODY = "all"
"""In place of the label's ε: one group, whose density is measured."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number of a table, for one seed: how noise was made, and for which promise."""

    method: str
    """A bitsum protocol or a baseline."""
    preset: str = ""
    """Empty for a baseline, which is the same in every preset."""
    epsilon: float | None = None
    """None where nothing is protected."""
    label_epsilon: float | str | None
    """ε of the labels, None for labels as they are, or `EVERYBODY`."""

    @property
    def key(self) -> str:
        """Its name in a file."""
        epsilon = "-" if self.epsilon is None else f"{self.epsilon:g}"
        label = f"{self.label_epsilon:g}" if isinstance(self.label_epsilon, float) else str(self.label_epsilon)
        return f"{self.preset or '-'} {self.method} {epsilon} {label}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What shares a family of features and its rounding."""

    data: Path
    sha256: str
    kernel: str
    bound: float | None
    presets: tuple[str, ...]
    """Those whose features these are."""
    seed: int
    settings: Settings

    @property
    def has_baselines(self) -> bool:
        """Baselines use features that are neither rotated nor clipped."""
        return self.kernel == "gaussian" or self.bound == 1.0

    def cells(self) -> Iterator[Cell]:
        """Everything that is measured in this unit."""
        labels: list[float | str | None] = list(self.settings.label_epsilons)
        if self.kernel == "gaussian":
            labels.append(EVERYBODY)
        for label in labels:
            for epsilon in self.settings.epsilons:
                for preset in self.presets:
                    for bitsum in BITSUMS:
                        yield Cell(method=bitsum, preset=preset, epsilon=epsilon, label_epsilon=label)
                if self.has_baselines:
                    for baseline in BASELINES[:2]:
                        yield Cell(method=baseline, epsilon=epsilon, label_epsilon=label)
            if self.has_baselines:
                yield Cell(method=BASELINES[2], label_epsilon=label)

    def stream(self) -> ByteStream:
        """All draws of the unit; labels are the same for every kernel."""
        return private_randomness(self.seed).stream

    def family(self, dim: int) -> LsqFamily:
        """The features, the same for every ε and every way of reporting labels."""
        inner = self.kernel == "inner-product"
        choice = KernelChoice(
            name=self.kernel,
            dim=dim,
            repetitions=None if inner else self.settings.repetitions,
            bound=self.bound if inner else None,
        )
        return choice.build(private_randomness(self.seed).public_seed())

    def request(self, cell: Cell, users: int, dim: int) -> PlanRequest:
        """What is planned for a group of this size; baselines are asked for as the published protocol is."""
        return asked(
            cell.preset or next(iter(PRESETS)),
            self.kernel,
            cell.method if cell.preset else BITSUMS[0],
            self.settings.epsilons[0] if cell.epsilon is None else cell.epsilon,
            users=counted_users(users),
            dim=dim,
            delta=self.settings.delta,
            bound=self.bound,
            repetitions=self.settings.repetitions,
        )


def group_sizes(unit: Unit, data: LabeledData) -> dict[float | str | None, NDArray[np.int64]]:
    """How many users there are in each group, for every way of reporting labels."""
    sizes: dict[float | str | None, NDArray[np.int64]] = {EVERYBODY: np.array([len(data.numbers)])}
    for label_epsilon in unit.settings.label_epsilons:
        reported = data.reported(label_epsilon, unit.stream())
        sizes[label_epsilon] = np.bincount(reported, minlength=data.n_classes)
    return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """The estimated sums of one cell's groups, or why there are none."""

    cell: Cell
    sums: Floats | None
    messages: float | None = None
    """Messages of one user on average, as counted."""
    rmse: float | None = None
    """Standard deviation of one sum of bits, the largest of the groups."""
    rung: str = ""
    refused: str = ""


class Simulator:
    """Turns sums of bits into what an analyzer would publish, cell by cell."""

    def __init__(self, unit: Unit, dim: int, calibrations: Calibrations, family: LsqFamily) -> None:
        self._unit, self._dim, self._calibrations, self._family = unit, dim, calibrations, family

    def simulate(self, cell: Cell, groups: GroupSums) -> Simulated:
        """F̃ of every group, with draws that belong to this cell alone."""
        if cell.method == "none":
            return Simulated(cell=cell, sums=groups.feature_sums)
        draws = study_generator(self._unit.stream().child("cell", self._unit.kernel, cell.key))
        if cell.method == "central":
            deviation = central_deviation(self._unit.request(cell, int(groups.n_users[0]), self._dim))
            noise = draws.normal(0.0, deviation, groups.feature_sums.shape)
            return Simulated(cell=cell, sums=groups.feature_sums + noise)
        return self._counted(cell, groups, draws)

    def _counted(self, cell: Cell, groups: GroupSums, draws: np.random.Generator) -> Simulated:
        sums, messages, spread, rung = [], 0.0, 0.0, ""
        for bit_sums, n_users in zip(groups.bit_sums, groups.n_users.tolist(), strict=True):
            request = self._unit.request(cell, n_users, self._dim)
            if cell.method == "local":
                protocol: Any = RandomizedResponse(n_users=n_users, flip_probability=local_flip(request))
            else:
                found = self._calibrations.of(request)
                if found.protocol is None:
                    return Simulated(cell=cell, sums=None, refused=found.refused)
                protocol, rung = found.protocol, found.rung
            tally = counted(protocol, bit_sums, n_users, draws)
            estimate = executed(protocol).estimate(tally, n_users)
            sums.append((2.0 * estimate - n_users) * self._family.facts.bound)
            messages += float(np.sum(tally.ones, dtype=np.float64) + np.sum(tally.zeros, dtype=np.float64))
            spread = max(spread, protocol.rmse(n_users))
        total = float(groups.n_users.sum())
        return Simulated(cell=cell, sums=np.stack(sums), messages=messages / total, rmse=spread, rung=rung)


def measure(
    unit: Unit, data: LabeledData, vocabulary: Vocabulary | None, calibrations: Calibrations, missing: Sequence[Cell]
) -> dict[str, dict[str, Any]]:
    """The missing cells of a unit, by key; they do not depend on which others are asked for."""
    family, settings = unit.family(data.dim), unit.settings
    labels = list(settings.label_epsilons)
    groupings = [data.reported(label, unit.stream()) for label in labels]
    found = group_sums(
        family, data.rows, groupings, data.n_classes, stream=unit.stream().child(unit.kernel, str(unit.bound))
    )
    groups: dict[float | str | None, GroupSums] = dict(zip(labels, found, strict=True))
    groups[EVERYBODY] = _together(found[0])
    simulator = Simulator(unit, data.dim, calibrations, family)
    queries = family.query_features(admitted(family, data.test_rows, np.arange(len(data.test_numbers))))
    exact = _exact(unit, data, family)
    results: dict[str, dict[str, Any]] = {}
    for cell in missing:
        simulated = simulator.simulate(cell, groups[cell.label_epsilon])
        results[cell.key] = {name: value for name in ("messages", "rmse", "rung", "refused")
                             if (value := getattr(simulated, name))}  # fmt: skip
        if simulated.sums is None:
            continue
        sums = FeatureSums(
            family=family, sums=simulated.sums, n_users=tuple(groups[cell.label_epsilon].n_users.tolist())
        )
        weights = sums.weights().astype(np.float32).T
        if cell.label_epsilon == EVERYBODY:
            errors = (queries[exact[0]] @ weights)[:, 0] - exact[1]
            results[cell.key]["error"] = float(np.sqrt(np.mean(errors**2)))
            continue
        predicted = np.argmax(queries @ weights, axis=1)
        results[cell.key]["correct"] = int(np.sum(predicted == data.test_numbers))
        if vocabulary is not None and _is_decoded(unit, cell):
            terms = decode_classes(sums, vocabulary.rows, vocabulary.words, k=TERMS)
            results[cell.key]["terms"] = [[term.word for term in best] for best in terms]
    return results


def _together(groups: GroupSums) -> GroupSums:
    """All groups as one."""
    return GroupSums(
        n_users=groups.n_users.sum(keepdims=True),
        bit_sums=groups.bit_sums.sum(axis=0, keepdims=True),
        feature_sums=groups.feature_sums.sum(axis=0, keepdims=True),
    )


def _exact(unit: Unit, data: LabeledData, family: LsqFamily) -> tuple[NDArray[np.int64], Floats]:
    """Queries of the direct measurement, drawn from the test items, and the true density of all users there."""
    count = len(data.test_numbers)
    draws = study_generator(unit.stream().child("queries"))
    chosen = np.sort(draws.choice(count, min(unit.settings.queries, count), replace=False))
    if unit.kernel != "gaussian":
        return chosen[:0], np.zeros(0)
    everybody = np.arange(len(data.numbers))
    return chosen, exact_densities(family, data.rows, [everybody], data.test_rows[chosen])[:, 0]


def _is_decoded(unit: Unit, cell: Cell) -> bool:
    """Classes are decoded once: for the first seed, at one ε, and without noise."""
    at = cell.epsilon in (None, unit.settings.decoded_epsilon)
    return (
        unit.seed == DECODED_SEED
        and at
        and cell.label_epsilon == unit.settings.main_label_epsilon
        and cell.method != "local"
    )
