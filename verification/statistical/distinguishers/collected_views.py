"""What an adversary sees of many independent collections at once, drawn by the library's own randomizers.

A *view* is what leaves the shuffler: how many ones and zeros were sent in each instance. Neighbors are chosen to be as
far apart as the kernel allows, with everybody else at one place where its messages hide the target least.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import Plan
from privkde.bitsum import Bitsum, Tally
from privkde.draws.randomness import ByteStream
from privkde.protocol.announcement import Announcement
from verification.client_rows import client_rows, furthest_cosine, turned
from verification.miniature import feasible_miniature
from verification.twins import kernel_twin

Float32 = NDArray[np.float32]

USERS = 200
REPETITIONS, HASHED_REPETITIONS = 16, 4
"""A hashed kernel has Q instances per repetition."""
DIM = 32
"""Twice the repetitions: then some x puts all random Fourier features at +1, another at −1."""
IDENTITY_DIM, CLIPPED_DIM = 4, 16
"""Identity features: only the first coordinate tells the neighbors apart; more where they are rotated and clipped."""
RECORD_DIM, RECORD_TURNS = 2, 64
"""Records that are rotated as one vector: their dimensions, and the directions that are tried for the furthest."""
ENTRIES = 1 << 19
"""Users × instances that are drawn at once."""
MOST_LOOSE = 16.0
"""By how much ε may be larger than the plan's."""


def attacked(plan: Plan, *, users: int = USERS) -> Plan:
    """The miniature that is attacked: for the plan's own ε or, if that is not feasible for so few users, a larger one.

    Identity features with R < 1 keep an R < 1 (`verification.miniature`).
    """
    kernel, dim = kernel_twin(plan), DIM
    if kernel.identity:
        dim = IDENTITY_DIM if plan.request.facts().bound >= 1.0 else CLIPPED_DIM
        dim = dim if plan.request.record is None else RECORD_DIM
    repetitions = HASHED_REPETITIONS if kernel.hashed else REPETITIONS
    return feasible_miniature(plan, users=users, dim=dim, repetitions=repetitions, most_loose=MOST_LOOSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbors:
    """Two datasets that differ in one record: all others hold `other`, the target holds `first` or `second`.

    Records are rows of scaled features f/R in [−1, 1], one entry per instance, as the client computes them.
    """

    other: Float32
    first: Float32
    second: Float32

    @property
    def squared_shift(self) -> float:
        """Σ t²: how far the target's bits move."""
        return float(np.sum((0.5 * (self.first - self.second).astype(np.float64)) ** 2))


def worst_neighbors(announcement: Announcement, seed: int, *, label_only: bool = False) -> Neighbors:
    """The neighbors, of those that are tried, with the largest Σ t²; with joint labels the class may change, too."""
    request = announcement.plan.request
    pairs = [kernel_twin(announcement.plan).far_apart(announcement.family(), seed)]
    if request.record is not None:
        pairs = _record_pairs(request.record.moment_weight)
    same, other = np.array([0, 0]), np.array([0, 1])
    if not request.joint:
        tried = [client_rows(announcement, pair, None) for pair in pairs]
    else:
        tried = [client_rows(announcement, pair[[0, 0]], other) for pair in pairs]
        if not label_only:
            tried += [client_rows(announcement, pair, classes) for pair in pairs for classes in (same, other)]
    neighbors = [Neighbors(other=second, first=first, second=second) for first, second in tried]
    return max(neighbors, key=lambda these: these.squared_shift)


def _record_pairs(moment_weight: float) -> list[Float32]:
    """Unit vectors in the plane, in many directions, with those at the furthest cosine, opposite and orthogonal."""
    angles = 2.0 * np.pi * np.arange(RECORD_TURNS) / RECORD_TURNS
    x, across = np.stack([np.cos(angles), np.sin(angles)], axis=1), np.stack([-np.sin(angles), np.cos(angles)], axis=1)
    others = [turned(x, across, cosine) for cosine in (furthest_cosine(moment_weight), -1.0, 0.0)]
    return [pair.astype(np.float32) * np.float32(0.9999) for other in others for pair in np.stack([x, other], axis=1)]


def views(
    announcement: Announcement, neighbors: Neighbors, *, first: bool, count: int, stream: ByteStream
) -> Iterator[Tally]:
    """`count` independent views, some at a time: counts of shape (views, instances), all users' messages and noise.

    Every bit is drawn by the protocol's `respond` and `inputs`, the noise of all users by `noise`.
    """
    bitsum, n_users = announcement.bitsum(), announcement.plan.request.users
    target = neighbors.first if first else neighbors.second
    dataset = np.concatenate([np.repeat(neighbors.other[None], n_users - 1, axis=0), target[None]])
    at_once = max(1, ENTRIES // dataset.size)
    scaled = np.repeat(dataset[:, None], at_once, axis=1)  # user, collection, instance
    for start in range(0, count, at_once):
        size = min(at_once, count - start)
        yield counted(bitsum, np.ascontiguousarray(scaled[:, :size]), stream)


def counted(bitsum: Bitsum, scaled: Float32, stream: ByteStream) -> Tally:
    """What is counted in all collections of users with these scaled features: (user, collection, instance)."""
    n_users, count, width = scaled.shape
    sent = bitsum.inputs(bitsum.respond(scaled.reshape(-1, width), stream), stream)
    total = Tally(sent.ones.reshape(n_users, -1), sent.zeros.reshape(n_users, -1)).over_users()
    shape = (count, width)
    return Tally(total.ones.reshape(shape), total.zeros.reshape(shape)) + bitsum.noise(n_users, shape, stream)
