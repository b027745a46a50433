"""One unit of work: a kernel, a bound and a seed. One pass over the users serves all of its cells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accounting.request import PlanRequest
from benchmarks.paper.calibration import (
    counted_users,
    plan_request,
)
from benchmarks.paper.data import LabeledData
from benchmarks.paper.settings import BASELINES, BITSUMS, PRESETS, Settings
from privkde.draws.randomness import ByteStream, private_randomness
from privkde.kernels import KernelChoice, LsqFamily

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
        return private_randomness(self.seed)

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
        """What is planned for a group of this size; for baselines the request is that of the published protocol."""
        return plan_request(
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
