"""Attacks on a record with its label, and on the label alone: in the communication view and in the model view.

Communication: messages of 200 users and, with separate labels, the target's report, which goes to the analyzer by
name. Model: with joint labels the published sums of the same collection; with separate labels the sizes and sums that a
classifier of three users publishes (`published_classes`), since sizes of larger classes hide the label better.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accounting import composed_contracts as contracts
from accounting.guarantee import Adjacency, Guarantee, View, promised
from privkde.protocol import label_round as labels
from verification.statistical.distinguishers.arena import SAMPLES, SLOW_SHARE, Arena
from verification.statistical.distinguishers.attacks import Attack
from verification.statistical.distinguishers.black_box import trained_attacks
from verification.statistical.distinguishers.published_classes import ClassArena, ClassLikelihoodRatio
from verification.statistical.distinguishers.view_laws import Floats
from verification.twins import many_messages
from verification.verdicts import Effort, Subject

LABELS = 100_000
"""Reported labels, and class sizes, of each neighbor at scale 1."""
TRAINED = 60_000
"""Published models of each neighbor that black-box attacks use, at most."""


def joint_attacks(subject: Subject, effort: Effort, seed: int) -> list[Attack]:
    """Both views of a replaced record and of a replaced label: one promise for all of them."""
    attacks = []
    for what, label_only in (("record with joint label replaced", False), ("joint label replaced", True)):
        arena = Arena.of(subject, seed + int(label_only), label_only=label_only)
        count = arena.count(effort.scale)
        attacks += arena.attacks((View.COMMUNICATION, View.MODEL), count, f", {what}")
        if label_only:
            drawn = (arena.drawn(is_first, min(count, TRAINED)) for is_first in (True, False))
            rows = (np.concatenate([arena.published(view) for view in side]) for side in drawn)
            attacks += trained_attacks(f"sums, {what}", arena.claim(View.MODEL), *rows)
    return attacks


def separate_attacks(subject: Subject, effort: Effort, seed: int) -> list[Attack]:
    """Both views, each promise against the neighbors that it is made for."""
    return [*_communication_attacks(subject, effort, seed), *_model_attacks(subject, effort, seed)]


def _communication_attacks(subject: Subject, effort: Effort, seed: int) -> list[Attack]:
    """Reports go to the analyzer by name: it sees the target's, and the counts of the class that it reported."""
    arena, response = Arena.of(subject, seed), subject.plan.request.label_response()
    assert response is not None
    whole = promised(contracts.classifier_contract([arena.plan.contract], response).guarantees, View.COMMUNICATION)
    alone = promised(response.contract().guarantees, View.COMMUNICATION)
    count = arena.count(effort.scale)
    features = arena.attacks((View.COMMUNICATION,), count, ", label kept")
    reports = []
    for label in (0, 1):
        true = np.full(max(count, LABELS * effort.scale), label)
        said = labels.randomize_labels(true, response, stream=arena.stream.child("labels", label))
        reports.append(_label_scores(said, float(response.label_epsilon)))
    together = [
        side + report[:count] for side, report in zip((features[0].first, features[0].second), reports, strict=True)
    ]
    return [
        _mixed("record with reported label", whole, together[0], together[1]),
        *features,
        _mixed("reported label alone", alone, reports[0], reports[1]),
    ]


def _label_scores(reported: NDArray[np.int64], label_epsilon: float) -> Floats:
    """Ln P(report | class 0)/P(report | class 1): ±ε_lbl, or 0 for a third class."""
    return np.asarray(label_epsilon * ((reported == 0).astype(np.float64) - (reported == 1)))


def _model_attacks(subject: Subject, effort: Effort, seed: int) -> list[Attack]:
    """The sizes alone, sizes and sums by their likelihood ratio, and by attackers who do not know the law."""
    arena = ClassArena.of(subject, seed)
    record, label = arena.claim(Adjacency.RECORD), arena.claim(Adjacency.LABEL)
    law = ClassLikelihoodRatio(arena)
    sizes = [
        law.of_sizes(arena.sizes(arena.reports(c, LABELS * effort.scale, arena.stream.child("sizes", c))))
        for c in (0, 1)
    ]
    first, second = arena.neighbors.first, arena.neighbors.second
    count = SAMPLES * effort.scale // (SLOW_SHARE if many_messages(subject.plan) else 1)
    scores: list[list[Floats]] = []
    rows: list[Floats] = []
    for side, (x, c) in enumerate(((first, 0), (second, 1), (first, 1))):
        parts: list[tuple[Floats, Floats]] = []
        kept: list[Floats] = []
        for published in arena.drawn(x, c, count, arena.stream.child("published", side)):
            parts.append((law.of(published, label_only=False), law.of(published, label_only=True)))
            if len(kept) * len(published.sums) < TRAINED:
                kept.append(published.rows())
        scores.append([np.concatenate(kind) for kind in zip(*parts, strict=True)])
        rows.append(np.concatenate(kept))
    return [
        _mixed("published class sizes, label replaced", label, sizes[0], sizes[1]),
        _mixed("published sizes and sums, record replaced", record, scores[0][0], scores[1][0]),
        _mixed("published sizes and sums, label replaced", label, scores[0][1], scores[2][1]),
        *trained_attacks("published sizes and sums, record replaced", record, rows[0], rows[1], normal=False),
    ]


def _mixed(what: str, claim: Guarantee, first: Floats, second: Floats) -> Attack:
    """An attack whose scores are far from normal: a label changes them in a few steps."""
    return Attack(what=what, first=first, second=second, promise=claim, normal=False)
