"""Mechanisms whose ε is known, as estimators of auditors are shown them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.peers.auditing import DELTA, SINGLE, Size, single
from verification.statistical.distinguishers.epsilon_bounds import epsilon_lower_bound

SIZE = Size(samples=4_000, trials=2, slow_trials=1, slowest_trials=1)


def test_the_truth_of_one_report_is_known_in_closed_form() -> None:
    """(1−p) − e^ε p = δ."""
    _, flip = SINGLE["one report, no shuffler"]
    attacked = single("one report, no shuffler", SIZE)
    assert attacked.epsilon == pytest.approx(math.log((1.0 - flip - DELTA) / flip), rel=1e-6)
    share = np.count_nonzero(attacked.first > 0.0) / attacked.first.size
    assert share == pytest.approx(1.0 - flip, abs=0.04)  # six deviations of 8,000 draws: level 1e-8


def test_the_control_has_nothing_to_find() -> None:
    attacked = single("control: next to nothing to find", SIZE)
    assert attacked.epsilon == 0.0
    assert np.ptp(attacked.first) > 0.0


def test_a_bound_is_below_the_truth_and_not_nothing() -> None:
    """At level 1e-8; 4,000 scores show more than half of this ε except with a chance far below that."""
    attacked = single("one report, no shuffler", SIZE)
    found = epsilon_lower_bound(attacked.first[0], attacked.second[0], delta=DELTA, alpha=1e-8)
    assert 0.5 * attacked.epsilon < found.epsilon <= attacked.epsilon
