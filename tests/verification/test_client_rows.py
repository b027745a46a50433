"""Δ² of rotated records against a search through the real client, in single precision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting.kernels import record_facts
from accounting.record_vector import RecordVector
from privkde.protocol.record_vectors import RecordLayout
from verification.client_rows import furthest_cosine, turned

DIM, PAIRS = 6, 400


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0, 2.0])
def test_no_pair_of_records_shifts_bits_further_than_declared_and_some_nearly_do(weight: float) -> None:
    """Cosines from −1 to 1, norms up to 1, classes kept and changed; a search has no false alarms."""
    record = RecordVector(dim=DIM, n_classes=3, moment_weight=weight, padded=2048)
    facts = record_facts(record, record.planned_bound)
    layout = RecordLayout.of(facts, "5a" * 16)
    assert layout is not None
    assert facts.squared_shift is not None
    rng = np.random.default_rng(18)
    x, across = rng.normal(size=(2, PAIRS, DIM))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    reached = {True: 0.0, False: 0.0}
    for cosine in (furthest_cosine(weight), -1.0, 0.0, 1.0, *rng.uniform(-1.0, 1.0, size=4)):
        for norms in (np.ones((2, PAIRS, 1)), rng.uniform(size=(2, PAIRS, 1)) ** 0.25):
            pair = (norms * np.stack([x, turned(x, across, float(cosine))])).astype(np.float32)
            for c in (0, 1):
                first, second = (layout.scaled(row, np.full(PAIRS, k)) for row, k in zip(pair, (0, c), strict=True))
                shifts = np.sum((0.5 * (first.astype(np.float64) - second)) ** 2, axis=1)
                reached[c == 0] = max(reached[c == 0], float(shifts.max()) / facts.squared_shift)
    assert 0.98 < reached[True] <= 1.0
    assert 0.98 < reached[False] <= 1.0  # γ² is as large as it may be


def test_vectors_are_turned_by_the_angle_that_was_asked_for() -> None:
    x, across = np.random.default_rng(1).normal(size=(2, 50, 5))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    other = turned(x, across, -0.25)
    assert np.sum(x * other, axis=1) == pytest.approx(np.full(50, -0.25))
    assert np.linalg.norm(other, axis=1) == pytest.approx(np.ones(50))
    assert turned(np.ones((1, 1)), np.ones((1, 1)), 0.5).tolist() == [[-1.0]]


@pytest.mark.parametrize("weight", [0.1, 0.5, 0.7, 1.0, 4.0])
def test_the_furthest_cosine_is_the_best_of_a_grid(weight: float) -> None:
    def square(s: float) -> float:
        return 2.0 - 2.0 * s + weight * (2.0 - 2.0 * s * s)

    best = max(np.linspace(-1.0, 1.0, 20_001).tolist(), key=square)
    assert math.isclose(furthest_cosine(weight), best, abs_tol=2e-4)
