"""Separate labels at a tiny size: everybody's reported label and the shuffled view of each reported class."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from accounting import Plan
from accounting.contracts import classifier_contract
from accounting.guarantee import Adjacency, View
from accounting.mechanisms import LabelResponse
from privkde.laws import KeepLabel
from verification.enumeration.search import Claim, Worst, attack_pair, extreme_rows
from verification.enumeration.views import Array, InstanceView, ViewPair, whole_view
from verification.miniature import miniature

USERS, CLASSES = 3, 2


def _keep_chances(response: LabelResponse) -> list[float]:
    """Probability to keep a label of two: as declared, and as it is executed."""
    drawn = KeepLabel(n_classes=CLASSES, label_epsilon=response.label_epsilon).ratios(128)
    odds = Fraction(drawn.constant, drawn.scale)  # P(keep)/P(other)
    return [response.keep_probability, float(odds / (1 + odds))]


def classifier_check(group: Plan, plan: Plan, worst: Worst, rng: np.random.Generator) -> str:
    """Attack the three promises of a classifier with 3 users and 2 classes; says what was covered."""
    assert plan.request.label_epsilon is not None
    response = LabelResponse(n_classes=CLASSES, label_epsilon=float(plan.request.label_epsilon))
    sizes = {n: miniature(group, users=n, dim=1, repetitions=1, epsilon=2.0, delta=0.01) for n in range(2, USERS + 1)}
    contract = classifier_contract([small.contract for small in sizes.values()], response)
    promised = {
        one.adjacency: Claim(one.epsilon, one.delta) for one in contract.guarantees if one.view is View.COMMUNICATION
    }
    rows = 0.5 * (1.0 + extreme_rows(sizes[USERS], 3, rng))
    records = list(itertools.product(range(len(rows)), range(CLASSES)))
    for keep in _keep_chances(response):
        for (i, c), (j, d) in itertools.permutations(records, 2):
            adjacency = Adjacency.LABEL if i == j else Adjacency.FEATURES if c == d else Adjacency.RECORD
            for others in itertools.combinations_with_replacement(records, USERS - 1):
                pair = _communication((i, c), (j, d), others, rows, sizes, keep=keep)
                attack_pair(pair, [promised[adjacency], *_wider(adjacency, promised)], worst, ((i, c), (j, d), others))
    return (
        f"{USERS} users, {CLASSES} classes, ε_lbl as planned, {len(rows)} vectors; every class runs the miniature"
        " protocol of its realized size, a class of one user is not released; all reported labels are part of the view"
    )


def _wider(adjacency: Adjacency, promised: dict[Adjacency, Claim]) -> list[Claim]:
    """Replacing less than the whole record is covered by that promise, too."""
    return [] if adjacency is Adjacency.RECORD else [promised[Adjacency.RECORD]]


def _communication(
    mine: tuple[int, int],
    moved: tuple[int, int],
    others: tuple[tuple[int, int], ...],
    rows: Array,
    sizes: dict[int, Plan],
    *,
    keep: float,
) -> ViewPair:
    """All reports and, for the class that the target reports, its shuffled view.

    The other class's view has the same law whatever the target holds, given all reports.
    """
    upper, lower = [], []
    for reports in itertools.product(range(CLASSES), repeat=len(others)):
        weight = float(np.prod([keep if r == c else 1.0 - keep for r, (_, c) in zip(reports, others, strict=True)]))
        for mine_reported in range(CLASSES):
            together = [x for r, (x, _) in zip(reports, others, strict=True) if r == mine_reported]
            pair = _class_view(mine[0], moved[0], together, rows, sizes)
            upper.append(weight * (keep if mine_reported == mine[1] else 1.0 - keep) * pair.upper)
            lower.append(weight * (keep if mine_reported == moved[1] else 1.0 - keep) * pair.lower)
    return ViewPair(np.concatenate(upper), np.concatenate(lower))


def _class_view(mine: int, moved: int, together: list[int], rows: Array, sizes: dict[int, Plan]) -> ViewPair:
    n = len(together) + 1
    if n not in sizes or mine == moved:  # nothing is released, or nothing differs
        return ViewPair(np.ones(1), np.ones(1))
    view = InstanceView(sizes[n].bitsum, sizes[n].parameters, n)
    return whole_view(view, rows[mine], rows[moved], rows[together])
