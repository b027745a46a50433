"""Separate labels at a tiny size: everybody's reported label and the shuffled view of each reported class."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import numpy as np

from accounting import Plan
from accounting.composed_contracts import classifier_contract
from accounting.contract import Contract
from accounting.guarantee import Adjacency, View
from accounting.mechanisms import LabelResponse
from privkde.draws.laws import KeepLabel
from verification.exact.claimed_curves import NO_CLAIM, Curve, Worst
from verification.exact.search import bit_pairs, claims, extreme_rows, n_points, telling_deltas
from verification.exact.shuffled_views import UNIT_PAIR, Array, ViewPair, whole_view
from verification.miniature import miniature
from verification.twins import mechanism_twin
from verification.verdicts import Effort

USERS, CLASSES = 3, 2


def _keep_chances(response: LabelResponse) -> list[float]:
    """Probability to keep a label of two: as declared, and as it is executed."""
    drawn = KeepLabel(n_classes=CLASSES, label_epsilon=response.label_epsilon).ratios(128)
    odds = Fraction(drawn.constant, drawn.scale)  # P(keep)/P(other)
    return [response.keep_probability, float(odds / (1 + odds))]


def classifier_check(group: Plan, plan: Plan, worst: Worst, effort: Effort, rng: np.random.Generator) -> str:
    """Attack the three promises of a classifier with 3 users and 2 classes; says what was covered."""
    assert plan.request.label_epsilon is not None
    response = LabelResponse(n_classes=CLASSES, label_epsilon=float(plan.request.label_epsilon))
    sizes = {n: miniature(group, users=n, dim=1, repetitions=1, epsilon=2.0, delta=0.01) for n in range(2, USERS + 1)}
    promised = _promises(list(sizes.values()), response, n_points(group, effort, len(sizes)), rng)
    rows = 0.5 * (1.0 + extreme_rows(sizes[USERS], 3, rng))
    records = list(itertools.product(range(len(rows)), range(CLASSES)))
    for keep in _keep_chances(response):
        for (i, c), (j, d) in itertools.permutations(records, 2):
            adjacency = Adjacency.LABEL if i == j else Adjacency.FEATURES if c == d else Adjacency.RECORD
            for others in itertools.combinations_with_replacement(records, USERS - 1):
                pair = _communication((i, c), (j, d), others, rows, sizes, keep=keep)
                for covering in {adjacency, Adjacency.RECORD}:  # replacing less is covered by the record's promise
                    promised[covering].attack(pair, worst, ((i, c), (j, d), others))
    for curve in promised.values():
        worst.cover(curve)
    return (
        f"{USERS} users, {CLASSES} classes, ε_lbl as planned, {len(rows)} vectors; every class runs the miniature"
        " protocol of its realized size, a class of one user is not released; all reported labels are part of the view"
    )


def _promises(
    groups: list[Plan], response: LabelResponse, count: int, rng: np.random.Generator
) -> dict[Adjacency, Curve]:
    """What is promised for each adjacency: by the plans, and at other δ by what their accountants prove there."""
    deltas = telling_deltas(bit_pairs(groups[0]), groups[0].instances_per_user, count, rng)
    profiles = [{delta: epsilon for epsilon, delta in claims(group, deltas)} for group in groups]
    contracts = [[group.contract for group in groups]]
    for delta in deltas:
        if all(delta in profile for profile in profiles):
            pairs = zip(groups, profiles, strict=True)
            contracts.append([_moved(group.contract, profile[delta], delta) for group, profile in pairs])
    points: dict[Adjacency, set[tuple[float, float]]] = {
        Adjacency.RECORD: {NO_CLAIM},
        Adjacency.FEATURES: {NO_CLAIM},
        Adjacency.LABEL: set(),  # one promise, with δ = 0, and not a profile
    }
    for kdes in contracts:
        for guarantee in classifier_contract(kdes, response).guarantees:
            if guarantee.view is View.COMMUNICATION:
                points[guarantee.adjacency].add((guarantee.epsilon, guarantee.delta))
    return {adjacency: Curve.of(claimed) for adjacency, claimed in points.items()}


def _moved(contract: Contract, epsilon: float, delta: float) -> Contract:
    """The contract of the same density at another point of its profile."""
    return dataclasses.replace(
        contract,
        guarantees=tuple(
            dataclasses.replace(promise, epsilon=epsilon, delta=delta)
            if promise.view is View.COMMUNICATION
            else promise
            for promise in contract.guarantees
        ),
    )


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
            pair, n = UNIT_PAIR, len(together) + 1
            if n in sizes and mine[0] != moved[0]:  # else nothing is released, or nothing differs
                pair = whole_view(mechanism_twin(sizes[n]), rows[mine[0]], rows[moved[0]], rows[together])
            upper.append(weight * (keep if mine_reported == mine[1] else 1.0 - keep) * pair.upper)
            lower.append(weight * (keep if mine_reported == moved[1] else 1.0 - keep) * pair.lower)
    return ViewPair(np.concatenate(upper), np.concatenate(lower))
