"""What a unit's cells measure: right answers, errors, words, from sums as an analyzer would publish them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.mechanisms import RandomizedResponse
from benchmarks.paper.calibration import Calibrations, central_deviation, local_flip
from benchmarks.paper.data import LabeledData, Vocabulary
from benchmarks.paper.simulation import counted, study_generator
from benchmarks.paper.sums import GroupSums, group_sums
from benchmarks.paper.unit import DECODED_SEED, EVERYBODY, Cell, Unit
from privkde.bitsum import executed
from privkde.kernels import LsqFamily
from privkde.learning.baselines import admitted, exact_densities
from privkde.learning.decoding import decode_classes
from privkde.protocol.model import FeatureSums

TERMS = 3
"""Words that a class is decoded into."""

Floats = NDArray[np.float64]


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
                calibration = self._calibrations.of(request)
                if calibration.protocol is None:
                    return Simulated(cell=cell, sums=None, refused=calibration.refused)
                protocol, rung = calibration.protocol, calibration.rung
            tally = counted(protocol, bit_sums, n_users, draws)
            estimate = executed(protocol).estimate(tally, n_users)
            sums.append((2.0 * estimate - n_users) * self._family.facts.bound)
            messages += float(np.sum(tally.ones, dtype=np.float64) + np.sum(tally.zeros, dtype=np.float64))
            spread = max(spread, protocol.rmse(n_users))
        total = float(groups.n_users.sum())
        return Simulated(cell=cell, sums=np.stack(sums), messages=messages / total, rmse=spread, rung=rung)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Test items as features, and the true density of all users at some of them."""

    features: NDArray[np.float32] = field(repr=False)
    numbers: NDArray[np.int64] = field(repr=False)
    chosen: NDArray[np.int64] = field(repr=False)
    densities: Floats = field(repr=False)

    @staticmethod
    def of(unit: Unit, data: LabeledData, family: LsqFamily) -> HeldOut:
        """Densities are measured with the Gaussian kernel only, at test items that the seed draws."""
        count = len(data.test_numbers)
        draws = study_generator(unit.stream().child("queries"))
        chosen = np.sort(draws.choice(count, min(unit.settings.queries, count), replace=False))
        densities = np.zeros(0)
        if unit.kernel == "gaussian":
            everybody = np.arange(len(data.numbers))
            densities = exact_densities(family, data.rows, [everybody], data.test_rows[chosen])[:, 0]
        features = family.query_features(admitted(family, data.test_rows, np.arange(count)))
        return HeldOut(features=features, numbers=data.test_numbers, chosen=chosen, densities=densities)

    def correct(self, sums: FeatureSums) -> int:
        """Items whose class has the highest density."""
        scores = self.features @ sums.weights().astype(np.float32).T
        return int(np.sum(np.argmax(scores, axis=1) == self.numbers))

    def error(self, sums: FeatureSums) -> float:
        """Root-mean-square error of the density of all users."""
        estimates = (self.features[self.chosen] @ sums.weights().astype(np.float32).T)[:, 0]
        return float(np.sqrt(np.mean((estimates - self.densities) ** 2)))


def measure(
    unit: Unit, data: LabeledData, vocabulary: Vocabulary | None, calibrations: Calibrations, missing: Sequence[Cell]
) -> dict[str, dict[str, Any]]:
    """The missing cells of a unit, by key; they do not depend on which others are missing."""
    family = unit.family(data.dim)
    groups, held_out = _grouped(unit, data, family), HeldOut.of(unit, data, family)
    simulator = Simulator(unit, data.dim, calibrations, family)
    results: dict[str, dict[str, Any]] = {}
    for cell in missing:
        simulated = simulator.simulate(cell, groups[cell.label_epsilon])
        facts = {name: getattr(simulated, name) for name in ("messages", "rmse", "rung", "refused")}
        result = results[cell.key] = {name: value for name, value in facts.items() if value}
        if simulated.sums is None:
            continue
        n_users = tuple(groups[cell.label_epsilon].n_users.tolist())
        sums = FeatureSums(family=family, sums=simulated.sums, n_users=n_users)
        if cell.label_epsilon == EVERYBODY:
            result["error"] = held_out.error(sums)
            continue
        result["correct"] = held_out.correct(sums)
        if vocabulary is not None and _is_decoded(unit, cell):
            terms = decode_classes(sums, vocabulary.rows, vocabulary.words, k=TERMS)
            result["terms"] = [[term.word for term in best] for best in terms]
    return results


def _grouped(unit: Unit, data: LabeledData, family: LsqFamily) -> dict[float | str | None, GroupSums]:
    """The sums of classes for every way of reporting labels, and of everybody."""
    labels = list(unit.settings.label_epsilons)
    groupings = [data.reported(label, unit.stream()) for label in labels]
    stream = unit.stream().child(unit.kernel, str(unit.bound))
    sums = group_sums(family, data.rows, groupings, data.n_classes, stream=stream)
    return {**dict(zip(labels, sums, strict=True)), EVERYBODY: _together(sums[0])}


def _together(groups: GroupSums) -> GroupSums:
    """All groups as one."""
    return GroupSums(
        n_users=groups.n_users.sum(keepdims=True),
        bit_sums=groups.bit_sums.sum(axis=0, keepdims=True),
        feature_sums=groups.feature_sums.sum(axis=0, keepdims=True),
    )


def _is_decoded(unit: Unit, cell: Cell) -> bool:
    """Classes are decoded once: for the first seed, at one ε, and without noise."""
    at = cell.epsilon in (None, unit.settings.decoded_epsilon)
    return (
        unit.seed == DECODED_SEED
        and at
        and cell.label_epsilon == unit.settings.main_label_epsilon
        and cell.method != "local"
    )
