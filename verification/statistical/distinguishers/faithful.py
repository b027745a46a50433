"""Views of collections in which every party runs: each user's messages are packed, sent, shuffled and counted.

That is slow, so one wide collection holds many views: its repetitions are independent, and with random signs in one
dimension the records 1 and −1 put every feature at ±1, in all of them. The noise is that of a plan for 4 repetitions.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from accounting import Plan
from privkde.draws.randomness import ByteStream
from privkde.engines.local import collect
from privkde.protocol.announcement import Announcement
from verification.miniature import feasible_miniature
from verification.statistical.distinguishers.collected_views import MOST_LOOSE
from verification.statistical.distinguishers.view_laws import Floats
from verification.statistical.execution.stages import on_signs
from verification.twins import counts_shifts

USERS, REPETITIONS = 8, 4
MESSAGES = 1_000_000
"""Messages of each neighbor at scale 1."""
LEAST, MOST = 60, 200_000
"""Views of each neighbor. Where each takes thousands of messages, there are few."""
FOR_FLIPS = "pld"
"""The rung for bits that all flip, where the plan's own counts shifts."""


def small_plan(plan: Plan) -> Plan:
    """The same bitsum protocol for 8 users, whose bits all flip."""
    accountant = FOR_FLIPS if counts_shifts(plan) else plan.accountant
    signs = dataclasses.replace(plan, accountant=accountant, request=on_signs(plan.request))
    return feasible_miniature(signs, users=USERS, dim=1, repetitions=REPETITIONS, most_loose=MOST_LOOSE)


def n_views(plan: Plan, scale: int) -> int:
    """Views of each neighbor."""
    return min(MOST, max(LEAST, int(MESSAGES * scale / (USERS * plan.messages_per_user))))


def sent_views(plan: Plan, stream: ByteStream, *, first: bool, count: int) -> Floats:
    """One row for each view: estimated sums, with the sign of the target's feature, and numbers of messages.

    Everybody else holds −1; the target 1 if `first`, or −1.
    """
    wider = dataclasses.replace(plan.request, repetitions=REPETITIONS * count)
    announcement = Announcement(plan=dataclasses.replace(plan, request=wider), public_seed=stream.public_seed())
    x = np.full((USERS, 1), -1.0)
    x[-1] = 1.0 if first else -1.0
    counted = collect(announcement, x, np.arange(USERS), stream=stream.child("faithful", int(first)), path="faithful")
    signs = announcement.family().scaled_features(np.ones((1, 1)))[0]
    messages = (counted.tally.ones + counted.tally.zeros).astype(np.float64)
    return np.concatenate([(counted.sums() * signs).reshape(count, -1), messages.reshape(count, -1)], axis=1)
