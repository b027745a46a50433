"""Lower bounds on ε from attacks on the implementation: refuted if an attack shows more than was promised.

Each check plans a miniature of the subject's kind (200 users, 16 repetitions), takes neighbors that are as far apart as
the kernel allows, draws many views of both through the library's own randomizers, scores them and bounds ε from
below (`epsilon_bounds`). The bound holds with probability 1 − `CHECK_ALPHA` whatever the scores are. Noise is drawn for
all users at once; whether the engines yield such counts is tested by `verification.densities`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import Plan, contracts
from accounting.guarantee import Adjacency, Guarantee, View
from privkde import labels
from privkde.announcement import Announcement
from privkde.bitsum import Tally
from privkde.randomness import ByteStream, private_randomness
from verification.distinguishers.attacks import Attack, attack_finding
from verification.distinguishers.black_box import TRAINING_SHARE, histogram_scores, stacked, trained_scores
from verification.distinguishers.view_laws import Floats, LikelihoodRatio, published_counts
from verification.distinguishers.views import Neighbors, attacked, views, worst_neighbors
from verification.verdicts import Check, Effort, Finding, Layer, Subject

SAMPLES = 40_000
"""Views of each neighbor at scale 1, if they are as small as those of 200 users and 16 instances; times the scale."""
WHITE_BOX, WHITE_BOX_GROWTH = 2, 1.3
"""White-box attacks get twice as many; that on messages with the scale to this power: 1.6 million at scale 10."""
USUAL_VIEW = 200 * 16
SLOW_SHARE = 5
"""Pure sends many messages and gets this many times fewer views."""
LABELS = 100_000
"""Reported labels of each neighbor at scale 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """A collection to attack: what is announced, the neighbors, and where all randomness comes from."""

    announcement: Announcement
    neighbors: Neighbors
    stream: ByteStream

    @staticmethod
    def of(subject: Subject, seed: int, *, label_only: bool = False) -> Arena:
        """A miniature of the subject's kind, with fresh maps."""
        randomness = private_randomness(seed)
        announcement = Announcement(plan=attacked(subject.plan), public_seed=randomness.public_seed())
        neighbors = worst_neighbors(announcement, seed, label_only=label_only)
        return Arena(announcement=announcement, neighbors=neighbors, stream=randomness.stream)

    @property
    def plan(self) -> Plan:
        """The attacked plan."""
        return self.announcement.plan

    def claim(self, view: View) -> Guarantee:
        """What the attacked plan promises to the replaced record in this view."""
        return promised(self.plan.guarantees, view)

    def drawn(self, first: bool, count: int) -> list[Tally]:
        """Views of the first or the second neighbor, in parts."""
        stream = self.stream.child("views", int(first))
        return list(views(self.announcement, self.neighbors, first=first, count=count, stream=stream))

    def attacks(self, what: str, claim: Guarantee, count: int, *, published_only: bool = False) -> list[Attack]:
        """The likelihood ratio by the declared law; and the counts along the shift, whose law need not be known.

        The second sees noise so far from the declared law that its tables say nothing.
        """
        law = LikelihoodRatio(self.plan, self.neighbors, published_only=published_only)
        first, second = (self._scored(law, is_first, count, published_only) for is_first in (True, False))
        return [
            Attack(what=f"{name} of {what}", first=one, second=other, epsilon=claim.epsilon, delta=claim.delta)
            for name, one, other in zip(("likelihood ratio", "projection"), first, second, strict=True)
        ]

    def _scored(self, law: LikelihoodRatio, first: bool, count: int, published_only: bool) -> tuple[Floats, Floats]:
        """Log-likelihood ratios and projections of views of one neighbor."""
        bitsum, n_users = self.announcement.bitsum(), self.plan.request.users
        shift = (self.neighbors.first - self.neighbors.second).astype(np.float64)
        stream, ratios, projections = self.stream.child("views", int(first)), [], []
        for view in views(self.announcement, self.neighbors, first=first, count=count, stream=stream):
            if published_only:
                estimates = bitsum.estimate(view, n_users)
                ratios.append(law.scores(published_counts(self.plan, estimates)))
                projections.append(estimates @ shift)
            else:
                ratios.append(law.scores(view))
                projections.append((view.ones - view.zeros) @ shift)
        return np.concatenate(ratios), np.concatenate(projections)


def promised(guarantees: tuple[Guarantee, ...], view: View) -> Guarantee:
    """The promise for replacing a record, or else its features, in one view."""
    found = {one.adjacency: one for one in guarantees if one.view is view}
    return found.get(Adjacency.RECORD, found.get(Adjacency.FEATURES, next(iter(found.values()))))


def _count(plan: Plan, scale: float) -> int:
    """Views of each neighbor: fewer where a view is larger or slower."""
    size = max(USUAL_VIEW, plan.request.users * plan.request.facts().n_instances)
    return max(300, int(SAMPLES * scale * USUAL_VIEW / size) // (SLOW_SHARE if plan.bitsum == "pure" else 1))


def _size(plan: Plan) -> str:
    request = plan.request
    return (
        f"{request.users} users, {request.facts().n_instances} instances, ε = {float(request.epsilon):g},"
        f" {plan.bitsum}, {plan.accountant}"
    )


def communication(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The likelihood-ratio test on everything that leaves the shuffler."""
    arena = Arena.of(subject, seed)
    count = _count(arena.plan, WHITE_BOX * effort.scale**WHITE_BOX_GROWTH)
    attacks = arena.attacks("messages", arena.claim(View.COMMUNICATION), count)
    claim = f"no attack on the messages of {_size(arena.plan)} shows more"
    note = f"Σt² = {arena.neighbors.squared_shift:.4g} of the target's bits."
    return attack_finding(COMMUNICATION, claim, attacks, seed, note)


def model(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The likelihood-ratio test on the published sums alone."""
    arena = Arena.of(subject, seed)
    count = _count(arena.plan, WHITE_BOX * effort.scale)
    attacks = arena.attacks("sums", arena.claim(View.MODEL), count, published_only=True)
    note = "Densities are post-processing of the sums, so no attack on them can do better."
    return attack_finding(MODEL, f"no attack on the model of {_size(arena.plan)} shows more", attacks, seed, note)


def black_box(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Attacks that do not know the law: a histogram along the difference of means, and a trained scorer."""
    arena = Arena.of(subject, seed)
    claim = arena.claim(View.COMMUNICATION)
    count = _count(arena.plan, effort.scale)
    sides = [stacked(arena.drawn(is_first, count)) for is_first in (True, False)]
    cut = int(TRAINING_SHARE * count)
    scorers = (("histogram of a projection", histogram_scores), ("trained scorer", trained_scores))
    attacks = []
    for what, scorer in scorers:
        first, second = scorer(sides[0][:cut], sides[1][:cut], sides[0][cut:], sides[1][cut:])
        attacks.append(Attack(what=what, first=first, second=second, epsilon=claim.epsilon, delta=claim.delta))
    note = "Trained on fresh views; no knowledge of the law."
    return attack_finding(BLACK_BOX, f"no black-box attack on {_size(arena.plan)} shows more", attacks, seed, note)


def classifier(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Replacing (x, c): all messages and the reported label; and the label alone."""
    joint = subject.plan.request.joint
    attacks = _joint_attacks(subject, effort, seed) if joint else _separate_attacks(subject, effort, seed)
    together, apart = (
        "Joint labels: one ε for both.",
        "Separate labels: ε + ε_lbl for both, ε for x, ε_lbl for the label.",
    )
    claim = "no attack on a record with its label shows more than is promised for it"
    return attack_finding(CLASSIFIER, claim, attacks, seed, together if joint else apart)


def _joint_attacks(subject: Subject, effort: Effort, seed: int) -> list[Attack]:
    attacks = []
    for what, label_only in (("a record with joint label", False), ("a joint label", True)):
        arena = Arena.of(subject, seed + int(label_only), label_only=label_only)
        attacks += arena.attacks(what, arena.claim(View.COMMUNICATION), _count(arena.plan, effort.scale))
    return attacks


def _separate_attacks(subject: Subject, effort: Effort, seed: int) -> list[Attack]:
    """Reports go to the analyzer by name: it sees the target's, and the counts of the class that it reported."""
    arena, response = Arena.of(subject, seed), subject.plan.request.label_response()
    assert response is not None
    whole = promised(contracts.classifier_contract([arena.plan.contract], response).guarantees, View.COMMUNICATION)
    alone = next(one for one in response.contract().guarantees if one.view is View.COMMUNICATION)
    count = _count(arena.plan, effort.scale)
    features = arena.attacks("features, label kept", arena.claim(View.COMMUNICATION), count)
    reports = []
    for label in (0, 1):
        true = np.full(max(count, LABELS * effort.scale), label)
        said = labels.randomize_labels(true, response, stream=arena.stream.child("labels", label))
        reports.append(_label_scores(said, float(response.label_epsilon)))
    return [
        Attack(
            what="record with reported label",
            first=features[0].first + reports[0][:count],
            second=features[0].second + reports[1][:count],
            epsilon=whole.epsilon,
            delta=whole.delta,
            normal=False,
        ),
        *features,
        Attack(
            what="reported label alone",
            first=reports[0],
            second=reports[1],
            epsilon=alone.epsilon,
            delta=alone.delta,
            normal=False,
        ),
    ]


def _label_scores(reported: NDArray[np.int64], label_epsilon: float) -> Floats:
    """Ln P(report | class 0)/P(report | class 1): ±ε_lbl, or 0 for a third class."""
    return np.asarray(label_epsilon * ((reported == 0).astype(np.float64) - (reported == 1)))


COMMUNICATION, MODEL = "distinguisher-communication", "distinguisher-model"
BLACK_BOX, CLASSIFIER = "distinguisher-black-box", "distinguisher-classifier"

CHECKS: tuple[Check, ...] = (
    Check(
        name=COMMUNICATION,
        layer=Layer.STATISTICAL,
        about="likelihood-ratio attack on all messages",
        run=communication,
    ),
    Check(name=MODEL, layer=Layer.STATISTICAL, about="likelihood-ratio attack on the published sums", run=model),
    Check(name=BLACK_BOX, layer=Layer.STATISTICAL, about="attacks that do not know the law", run=black_box),
    Check(
        name=CLASSIFIER,
        layer=Layer.STATISTICAL,
        about="attack on a record with its label, and on the label alone",
        run=classifier,
        applies=lambda subject: subject.plan.request.classes is not None,
    ),
)
