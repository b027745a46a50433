"""Accuracy and its exact interval."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest

from accounting import InvalidInputError
from privkde.learning.scoring import clopper_pearson, measured


def at_least(successes: int, trials: int, probability: float) -> Fraction:
    """P(X ≥ successes) for a binomial X, in rational arithmetic."""
    p = Fraction(probability)
    return sum(
        (comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(successes, trials + 1)), start=Fraction(0)
    )


@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (1, 1), (3, 7), (50, 60), (60, 60)])
@pytest.mark.parametrize("level", [0.95, 0.5])
def test_binomial_tails_beyond_the_ends_are_half_of_what_is_left(successes: int, trials: int, level: float) -> None:
    low, high = clopper_pearson(successes, trials, level)
    tail = (1.0 - level) / 2.0
    if successes == 0:
        assert low == 0.0
    else:
        assert float(at_least(successes, trials, low)) == pytest.approx(tail, rel=1e-9)
    if successes == trials:
        assert high == 1.0
    else:
        assert 1.0 - float(at_least(successes + 1, trials, high)) == pytest.approx(tail, rel=1e-9)
    assert low <= successes / trials <= high


def test_words_and_numbers_are_not_compared() -> None:
    with pytest.raises(InvalidInputError, match="cannot be compared"):
        measured(np.array(["a", "b"]), np.array([0, 1]))
    with pytest.raises(InvalidInputError, match="one label for each"):
        measured(np.array([0, 1]), np.array([0]))


@pytest.mark.parametrize("kind", ["V0", [("a", "i4")], "M8[D]", "S1", complex])
def test_labels_of_other_kinds_are_not_compared(kind: Any) -> None:
    for predicted in (np.array([0, 1]), np.array(["a", "b"])):
        with pytest.raises(InvalidInputError, match="cannot be compared"):
            measured(predicted, np.zeros(2, kind))
