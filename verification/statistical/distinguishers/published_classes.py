"""What a classifier with separate labels publishes, many times: the size of each class, and the sums of those released.

Three users, two of whom hold class 0: the fewer hide the target, the more the sizes tell of its label. Every class runs
a plan for its realized size, as the library makes it; a class of one user is not released. Reports are drawn by
`privkde.protocol.label_round`, bits and noise by the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from accounting.composed_contracts import classifier_contract
from accounting.guarantee import Adjacency, Guarantee, View
from accounting.mechanisms import LabelResponse
from privkde.draws.randomness import ByteStream, private_randomness
from privkde.protocol import label_round as labels
from privkde.protocol.announcement import Announcement
from verification.statistical.distinguishers.collected_views import (
    Float32,
    Neighbors,
    attacked,
    counted,
    worst_neighbors,
)
from verification.statistical.distinguishers.view_laws import Floats, LikelihoodRatio, published_counts
from verification.verdicts import Subject

USERS, LEAST = 3, 2
CLASSES = 3
"""At most: the target's, the one that it is replaced by, and a third."""
AT_ONCE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Sizes (views, classes), and sums (views, classes, instances), which are 0 for a class that is not released."""

    sizes: NDArray[np.int64]
    sums: Floats

    def rows(self) -> Floats:
        """One row for each view, for attackers who do not know the law; it marks classes that everybody reported."""
        everybody = self.sizes == USERS
        return np.concatenate([self.sizes, everybody, self.sums.reshape(len(self.sums), -1)], axis=1).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassArena:
    """A tiny classifier to attack. All others hold `neighbors.other` and class 0."""

    response: LabelResponse
    announcements: dict[int, Announcement]
    """By the size of a class."""
    neighbors: Neighbors
    stream: ByteStream

    @staticmethod
    def of(subject: Subject, seed: int) -> ClassArena:
        """Miniatures of the subject's kind, with fresh maps that all classes share."""
        planned = subject.plan.request.label_response()
        assert planned is not None
        randomness = private_randomness(seed)
        public_seed = randomness.public_seed()
        announcements = {
            size: Announcement(plan=attacked(subject.plan, users=size), public_seed=public_seed)
            for size in range(LEAST, USERS + 1)
        }
        return ClassArena(
            response=LabelResponse(n_classes=min(CLASSES, planned.n_classes), label_epsilon=planned.label_epsilon),
            announcements=announcements,
            neighbors=worst_neighbors(announcements[USERS], seed),
            stream=randomness.child("classes"),
        )

    def claim(self, adjacency: Adjacency) -> Guarantee:
        """What the classifier promises in the model view."""
        contracts = [announcement.plan.contract for announcement in self.announcements.values()]
        guarantees = classifier_contract(contracts, self.response).guarantees
        return next(promise for promise in guarantees if (promise.adjacency, promise.view) == (adjacency, View.MODEL))

    def reports(self, label: int, count: int, stream: ByteStream) -> NDArray[np.int64]:
        """Reported labels (views, users); the last user is the target, who holds `label`."""
        true = np.zeros((count, USERS), np.int64)
        true[:, -1] = label
        return labels.randomize_labels(true.ravel(), self.response, stream=stream).reshape(true.shape)

    def sizes(self, reported: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many users reported each class."""
        said = reported[:, :, None] == np.arange(self.response.n_classes)
        return np.asarray(np.count_nonzero(said, axis=1), dtype=np.int64)

    def drawn(self, x: Float32, label: int, count: int, stream: ByteStream) -> Iterator[Published]:
        """Published classifiers, some at a time, when the target holds these scaled features and this label."""
        for start in range(0, count, AT_ONCE):
            reported = self.reports(label, min(AT_ONCE, count - start), stream)
            sizes = self.sizes(reported)
            sums = np.zeros((*sizes.shape, len(x)))
            for c, size, at in self.released(sizes):
                sums[at, c] = self._sums(size, reported[at, -1] == c, x, stream)
            yield Published(sizes=sizes, sums=sums)

    def released(self, sizes: NDArray[np.int64]) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
        """(class, size, views in which it has that size) for all that is released."""
        for c in range(sizes.shape[1]):
            for size in self.announcements:
                at = np.flatnonzero(sizes[:, c] == size)
                if len(at):
                    yield c, size, at

    def _sums(self, size: int, with_target: NDArray[np.bool_], x: Float32, stream: ByteStream) -> Floats:
        """F̃ of classes of this size, one for each entry of `with_target`."""
        announcement = self.announcements[size]
        bitsum, bound = announcement.bitsum(), announcement.plan.request.facts().bound
        scaled = np.tile(self.neighbors.other, (size, len(with_target), 1))  # user, view, instance
        scaled[0, with_target] = x
        tally = counted(bitsum, scaled, stream)
        return np.asarray((2.0 * bitsum.estimate(tally, size) - size) * bound)


class ClassLikelihoodRatio:
    """Ln P(published | first)/P(published | second), where the first neighbor holds class 0 and the second class 1.

    If the target reports r, the others' reports have probability ∝ n_r/q_r, where q is the law of one of them, and the
    sums of class r those with the target in it: both laws are sums over r.
    """

    def __init__(self, arena: ClassArena) -> None:
        self._arena = arena
        self._ratios = {
            size: LikelihoodRatio(announcement.plan, arena.neighbors, published_only=True)
            for size, announcement in arena.announcements.items()
        }

    def of_sizes(self, sizes: NDArray[np.int64]) -> Floats:
        """By the sizes alone."""
        nothing = np.zeros(sizes.shape)
        return self._mixed(sizes, nothing, nothing)

    def of(self, published: Published, *, label_only: bool) -> Floats:
        """By sizes and sums; with `label_only` the target holds the first neighbor's features in both laws."""
        presence = np.zeros(published.sizes.shape)
        for c, size, at in self._arena.released(published.sizes):
            plan = self._arena.announcements[size].plan
            estimates = 0.5 * (published.sums[at, c] / plan.request.facts().bound + size)
            presence[at, c] = self._ratios[size].scores(published_counts(plan, estimates))
        return self._mixed(published.sizes, presence, presence if label_only else np.zeros_like(presence))

    def _mixed(self, sizes: NDArray[np.int64], first: Floats, second: Floats) -> Floats:
        """The two sums over r, given ln of how likely the sums of class r are with the target in it, over without."""
        response = self._arena.response
        other = np.full(response.n_classes, np.log(response.other_probability))
        laws = [np.where(np.arange(response.n_classes) == c, np.log(response.keep_probability), other) for c in (0, 1)]
        with np.errstate(divide="ignore"):
            weights = np.log(sizes) - laws[0]
        pairs = zip(laws, (first, second), strict=True)
        upper, lower = (special.logsumexp(weights + law + presence, axis=1) for law, presence in pairs)
        return np.asarray(upper - lower)
