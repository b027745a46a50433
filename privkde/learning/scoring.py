"""How often a classifier is right, with an interval for what a test set of this size can show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from accounting import InvalidInputError
from accounting.errors import require_integer, require_real

LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Right answers among independent test items, with an exact interval for the probability of a right answer."""

    correct: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """The share of right answers."""
        return self.correct / self.total

    def __str__(self) -> str:
        return f"{self.value:.1%} (95 % interval {self.low:.1%} to {self.high:.1%})"


def measured(predicted: NDArray[Any], labels: NDArray[Any]) -> Accuracy:
    """The accuracy of `predicted`, where both arrays hold one entry for each test item.

    >>> print(measured(np.array([1, 2, 2, 1]), np.array([1, 2, 1, 1])))
    75.0% (95 % interval 19.4% to 99.4%)
    """
    if predicted.shape != labels.shape or predicted.ndim != 1:
        raise InvalidInputError(
            f"{len(predicted)} predictions for labels of shape {labels.shape}; give one label for each vector."
        )
    if labels.dtype.kind not in "biufU" or (predicted.dtype.kind == "U") != (labels.dtype.kind == "U"):
        raise InvalidInputError(
            f"labels of type {labels.dtype} cannot be compared with predicted classes of type {predicted.dtype};"
            " use the classes that the model was fitted with."
        )
    correct, total = int(np.sum(predicted == labels)), len(labels)
    low, high = clopper_pearson(correct, total, LEVEL)
    return Accuracy(correct=correct, total=total, low=low, high=high)


def clopper_pearson(successes: int, trials: int, level: float) -> tuple[float, float]:
    """An interval that covers the success probability, whatever it is, with probability at least `level`.

    Source: Clopper and Pearson, Biometrika 26 (1934): the binomial tails beyond either end are (1 − level)/2.
    """
    require_integer("trials", trials, low=1, high=10**12)
    require_integer("successes", successes, low=0, high=trials)
    tail = (1.0 - require_real("level", level, low=0.0, high=1.0)) / 2.0
    low = 0.0 if successes == 0 else float(special.betaincinv(successes, trials - successes + 1, tail))
    high = 1.0 if successes == trials else float(special.betaincinv(successes + 1, trials - successes, 1.0 - tail))
    return low, high
