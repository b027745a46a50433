"""A collection to attack: what is announced, which neighbors, how many views, and what is promised to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from accounting import Plan
from accounting.guarantee import Guarantee, View, promised
from privkde.bitsum import Tally
from privkde.draws.randomness import ByteStream, private_randomness
from privkde.protocol.announcement import Announcement
from verification.statistical.distinguishers.attacks import Attack
from verification.statistical.distinguishers.collected_views import Neighbors, attacked, views, worst_neighbors
from verification.statistical.distinguishers.view_laws import Floats, LikelihoodRatio, published_counts
from verification.twins import many_messages
from verification.verdicts import Subject

SAMPLES = 40_000
"""Views of each neighbor at scale 1, if they are as small as those of 200 users and 16 instances; times the scale."""
USUAL_VIEW = 200 * 16
SEEN = {View.COMMUNICATION: "messages", View.MODEL: "sums"}
SLOW_SHARE = 5
"""Where users send thousands of messages, there are this many times fewer views."""


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
        return Arena(announcement=announcement, neighbors=neighbors, stream=randomness)

    @property
    def plan(self) -> Plan:
        """The attacked plan."""
        return self.announcement.plan

    @property
    def size(self) -> str:
        """How large the attacked collection is, and of which kind."""
        request = self.plan.request
        return (
            f"{request.users} users, {request.facts().n_instances} instances, ε = {float(request.epsilon):g},"
            f" {self.plan.bitsum}, {self.plan.accountant}"
        )

    def claim(self, view: View) -> Guarantee:
        """What the attacked plan promises to the replaced record in this view."""
        return promised(self.plan.guarantees, view)

    def count(self, scale: float) -> int:
        """Views of each neighbor: fewer where a view is larger or slower."""
        plan = self.plan
        size = max(USUAL_VIEW, plan.request.users * plan.request.facts().n_instances)
        return max(300, int(SAMPLES * scale * USUAL_VIEW / size) // (SLOW_SHARE if many_messages(plan) else 1))

    def drawn(self, first: bool, count: int) -> Iterator[Tally]:
        """Views of the first or the second neighbor, in parts."""
        stream = self.stream.child("views", int(first))
        return views(self.announcement, self.neighbors, first=first, count=count, stream=stream)

    def published(self, view: Tally) -> Floats:
        """What is published of such views, but for known factors: estimated sums of bits."""
        return self.announcement.bitsum().estimate(view, self.plan.request.users)

    def attacks(self, seen: tuple[View, ...], count: int, what: str = "") -> list[Attack]:
        """Every score of every view, of the same collections."""
        scores = [(f"{name} of {SEEN[view]}{what}", view, score) for view in seen for name, score in self._scores(view)]
        sides = []
        for is_first in (True, False):
            parts = [[score(tally) for _, _, score in scores] for tally in self.drawn(is_first, count)]
            sides.append([np.concatenate(same) for same in zip(*parts, strict=True)])
        return [
            Attack(what=name, first=first, second=second, promise=self.claim(view))
            for (name, view, _), first, second in zip(scores, *sides, strict=True)
        ]

    def _scores(self, view: View) -> list[tuple[str, Callable[[Tally], Floats]]]:
        """The likelihood ratio by the declared law; and the counts along the shift, whose law need not be known.

        The second sees noise so far from the declared law that its tables say nothing. In the model view both are
        computed from the published sums alone.
        """
        model = view is View.MODEL
        law = LikelihoodRatio(self.plan, self.neighbors, published_only=model)
        shift = (self.neighbors.first - self.neighbors.second).astype(np.float64)

        def ratio(tally: Tally) -> Floats:
            return law.scores(published_counts(self.plan, self.published(tally)) if model else tally)

        def projection(tally: Tally) -> Floats:
            return np.asarray((self.published(tally) if model else tally.ones - tally.zeros) @ shift)

        return [("likelihood ratio", ratio), ("projection", projection)]
