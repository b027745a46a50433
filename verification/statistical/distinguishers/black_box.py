"""Scores of attackers who do not know the law: trained on views of both neighbors, applied to fresh ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from accounting.guarantee import Guarantee
from privkde.bitsum import Tally
from verification.statistical.distinguishers.attacks import Attack

Floats = NDArray[np.float64]
Score = Callable[[Floats], Floats]
"""Of views (rows), after training: large for the first neighbor."""

TRAINING_SHARE = 0.4
BINS = 40


def stacked(views: Iterable[Tally]) -> Floats:
    """Ones − zeros and ones + zeros of all instances as one row for each view."""
    rows = [np.concatenate([view.ones - view.zeros, view.ones + view.zeros], axis=1) for view in views]
    return np.concatenate(rows).astype(np.float64)


def histogram(first: Floats, second: Floats) -> Score:
    """Log-ratio of two histograms of the projection on the difference of means, scaled by the spread of each count."""
    direction = (first.mean(axis=0) - second.mean(axis=0)) / np.maximum(np.var(second, axis=0), 1e-9)
    left, right = first @ direction, second @ direction
    edges = np.unique(np.quantile(np.concatenate([left, right]), np.linspace(0.0, 1.0, BINS + 1)[1:-1]))
    masses = [np.bincount(np.searchsorted(edges, side), minlength=len(edges) + 1) + 0.5 for side in (left, right)]
    ratio = np.log(masses[0] / masses[1])
    return lambda rows: ratio[np.searchsorted(edges, rows @ direction)]


def regression(first: Floats, second: Floats) -> Score:
    """Logistic regression on standardized counts."""
    center, spread = second.mean(axis=0), np.maximum(np.std(second, axis=0), 1e-9)
    rows = (np.concatenate([first, second]) - center) / spread
    is_first = np.repeat([1, 0], [len(first), len(second)])
    scorer = LogisticRegression(max_iter=200).fit(rows, is_first)
    return lambda rows: np.asarray(scorer.decision_function((rows - center) / spread), np.float64)


SCORERS = {"histogram of a projection": histogram, "trained scorer": regression}


def trained_attacks(what: str, claim: Guarantee, first: Floats, second: Floats, *, normal: bool = True) -> list[Attack]:
    """Both attackers, trained on the first rows of either neighbor's views and applied to the others."""
    cut = int(TRAINING_SHARE * len(first))
    attacks = []
    for name, trained in SCORERS.items():
        score = trained(first[:cut], second[:cut])
        sides = {"first": score(first[cut:]), "second": score(second[cut:])}
        attacks.append(Attack(what=f"{name} of {what}", **sides, promise=claim, normal=normal))
    return attacks
