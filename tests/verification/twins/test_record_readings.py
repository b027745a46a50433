"""The explicit matrix that reads sums of rotated records, against the library's transform."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.kernels import record_facts
from accounting.record_vector import RecordVector
from privkde.protocol.record_vectors import RecordLayout
from verification.twins.record_readings import DENSITY, MOMENT, SIZE, clipped_share, readings


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_matrix_and_library_read_the_same(weight: float) -> None:
    record = RecordVector(dim=3, n_classes=2, moment_weight=weight, padded=64)
    layout = RecordLayout.of(record_facts(record, 0.4), "07" * 16)
    assert layout is not None
    rng = np.random.default_rng(3)
    x, y, sums = rng.normal(size=(10, 3)), rng.normal(size=(2, 3)), rng.normal(size=64)
    found = readings(layout, x, np.arange(10) % 2, y)
    kinds = [reading.kind for reading in found]
    assert (kinds.count(DENSITY), kinds.count(MOMENT), kinds.count(SIZE)) == (4, 2 if weight else 0, 2)
    for reading in found:
        assert reading.published(sums) == pytest.approx(reading.weights @ sums, rel=1e-6), reading.what


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_the_mean_over_rotations_is_the_truth_but_for_the_residual(weight: float) -> None:
    """Before rounding, over 400 public seeds; seven deviations: false alarms have chance 1e-10 if means are normal."""
    record = RecordVector(dim=3, n_classes=2, moment_weight=weight, padded=256)
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=(2, 12, 3))
    x, y, classes = x / np.linalg.norm(x, axis=1, keepdims=True), y[:2] / 3.0, np.arange(12) % 2
    errors = []
    for seed in range(400):
        layout = RecordLayout.of(record_facts(record, record.planned_bound), f"{seed:032x}")
        assert layout is not None
        sums = layout.bound * layout.scaled(x.astype(np.float32), classes).sum(axis=0, dtype=np.float64)
        errors.append([one.weights @ sums - one.expected for one in readings(layout, x, classes, y)])
    assert layout is not None
    assert 0.002 < clipped_share(layout) < 0.003
    deviation = np.std(errors, axis=0) / np.sqrt(len(errors))
    assert np.all(np.abs(np.mean(errors, axis=0)) <= 2.0 * clipped_share(layout) + 7.0 * deviation)
