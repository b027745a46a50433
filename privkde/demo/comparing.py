"""The same classification by other means: without privacy, by a trusted analyzer, and without a shuffler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import Plan
from privkde.accuracy import Accuracy, measured
from privkde.baselines import central_sums, exact_densities, local_sums
from privkde.blocks import Index, in_blocks
from privkde.demo.data import DigitData
from privkde.kernels import LsqFamily
from privkde.model import FeatureSums, Floats
from privkde.randomness import ByteStream


@dataclass(frozen=True, slots=True)
class Method:
    """A way to classify, and whether its users are protected."""

    name: str
    title: str
    protects: bool


METHODS = (
    Method("exact", "No privacy: exact kernel density", False),
    Method("features", "No privacy: the same random features", False),
    Method("central", "Central: a trusted analyzer adds Gaussian noise", True),
    Method("shuffled", "Shuffled: this library", True),
    Method("paper", "Shuffled, with the published calibration", True),
    Method("local", "Local: no shuffler, every user alone", True),
)


def groups_of(labels: NDArray[np.int64], n_classes: int) -> list[Index]:
    """The rows of each class."""
    return [np.flatnonzero(labels == number) for number in range(n_classes)]


def baselines(
    data: DigitData,
    rows: NDArray[np.float32],
    family: LsqFamily,
    plans: Sequence[Plan],
    reported: Sequence[Index],
    *,
    stream: ByteStream,
) -> dict[str, Accuracy]:
    """Accuracy on the test scans; `central` and `local` use the reported labels, as the shuffled protocol does."""
    queries, true = data.test.vectors(), groups_of(data.users.labels, len(plans))
    densities = {
        "exact": exact_densities(family, rows, true, queries),
        "features": _noiseless_sums(family, rows, true).densities(queries),
        "central": central_sums(family, plans, rows, reported, stream=stream).densities(queries),
        "local": local_sums(family, plans, rows, reported, stream=stream).densities(queries),
    }
    return {name: accuracy_of(scores, data) for name, scores in densities.items()}


def accuracy_of(scores: Floats, data: DigitData) -> Accuracy:
    """How often the highest score is that of the digit on the scan."""
    return measured(np.argmax(scores, axis=1), data.test.labels)


def _noiseless_sums(family: LsqFamily, rows: NDArray[np.float32], groups: Sequence[Index]) -> FeatureSums:
    """Σ f(x_u) of each group as it is: what random features alone cost."""

    def work(part: Index, _start: int) -> Floats:
        return np.asarray(family.scaled_features(rows[part]).sum(axis=0, dtype=np.float64))

    sums = [np.sum(in_blocks(work, index, family.facts.n_instances), axis=0) * family.facts.bound for index in groups]
    return FeatureSums(family=family, sums=np.stack(sums), n_users=tuple(len(index) for index in groups))
