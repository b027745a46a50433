"""Views of collections in which every party runs: each user's messages are packed, sent, shuffled and counted.

That is slow, so one wide collection holds many views: its repetitions are independent, and with random signs in one
dimension the records 1 and −1 put every feature at ±1, in all of them. The noise is that of a plan for 4 repetitions.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from accounting import InfeasibleError, Plan
from privkde.announcement import Announcement
from privkde.engines.local import collect
from privkde.randomness import ByteStream
from verification.distinguishers.view_laws import Floats
from verification.distinguishers.views import LOOSER
from verification.execution.stages import on_signs
from verification.miniature import miniature

USERS, REPETITIONS = 8, 4
MESSAGES = 1_000_000
"""Messages of each neighbor at scale 1."""
LEAST, MOST = 60, 200_000
"""Views of each neighbor. Those of `3nb` and `pure` take thousands of messages each, so there are few."""


def small_plan(plan: Plan) -> Plan:
    """The same bitsum protocol for 8 users, whose bits all move: `geometric` gives way to `pld`."""
    accountant = "pld" if plan.accountant == "geometric" else plan.accountant
    signs = dataclasses.replace(plan, accountant=accountant, request=on_signs(plan.request))
    for factor in LOOSER:
        epsilon = min(50.0, factor * float(plan.request.epsilon))
        try:
            return miniature(signs, users=USERS, dim=1, repetitions=REPETITIONS, epsilon=epsilon)
        except InfeasibleError as error:
            refusal = error
    raise refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class FaithfulCollection:
    """Everybody else holds −1; the target 1 or −1."""

    plan: Plan
    public_seed: str
    stream: ByteStream

    def count(self, scale: int) -> int:
        """Views of each neighbor."""
        return min(MOST, max(LEAST, int(MESSAGES * scale / (USERS * self.plan.messages_per_user))))

    def views(self, first: bool, count: int) -> Floats:
        """One row for each view: estimated sums, with the sign of the target's feature, and numbers of messages."""
        wider = dataclasses.replace(self.plan.request, repetitions=REPETITIONS * count)
        announcement = Announcement(plan=dataclasses.replace(self.plan, request=wider), public_seed=self.public_seed)
        x = np.full((USERS, 1), -1.0)
        x[-1] = 1.0 if first else -1.0
        stream = self.stream.child("faithful", int(first))
        counted = collect(announcement, x, np.arange(USERS), stream=stream, path="faithful")
        signs = announcement.family().scaled_features(np.ones((1, 1)))[0]
        messages = (counted.tally.ones + counted.tally.zeros).astype(np.float64)
        return np.concatenate([(counted.sums() * signs).reshape(count, -1), messages.reshape(count, -1)], axis=1)
