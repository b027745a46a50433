"""What an adversary sees of many independent collections at once, drawn by the library's own randomizers.

A *view* is what leaves the shuffler: how many ones and zeros were sent in each instance. Neighbors are chosen to be as
far apart as the kernel allows, with everybody else at one place where its messages hide the target least.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import InfeasibleError, Plan
from privkde.announcement import Announcement
from privkde.bitsum import Tally
from privkde.kernels import LsqFamily
from privkde.kernels.gaussian import GaussianFamily
from privkde.kernels.inner_product import IdentityFamily, SignFamily
from privkde.randomness import ByteStream
from verification.miniature import miniature

Float32 = NDArray[np.float32]

USERS = 200
REPETITIONS, HASHED_REPETITIONS = 16, 4
"""A hashed kernel has Q instances per repetition."""
DIM = 32
"""Twice the repetitions: then some x puts all random Fourier features at +1, another at −1."""
IDENTITY_DIM, CLIPPED_DIM = 4, 16
"""Identity features: only the first coordinate tells the neighbors apart; more where they are rotated and clipped."""
CANDIDATES = 400
ENTRIES = 1 << 19
"""Users × instances that are drawn at once."""
LOOSER = (1.0, 2.0, 4.0, 8.0, 16.0)


def attacked(plan: Plan, *, users: int = USERS) -> Plan:
    """The miniature that is attacked: for the plan's own ε or, if that is not feasible for so few users, a larger one.

    Identity features with R < 1 keep an R < 1 (`verification.miniature`).
    """
    kernel = plan.request.kernel
    hashed = kernel in ("laplacian", "exponential")
    identity_dim = IDENTITY_DIM if plan.request.facts().bound >= 1.0 else CLIPPED_DIM
    for factor in LOOSER:
        try:
            return miniature(
                plan,
                users=users,
                dim=identity_dim if kernel == "inner-product" else DIM,
                repetitions=HASHED_REPETITIONS if hashed else REPETITIONS,
                epsilon=min(50.0, factor * float(plan.request.epsilon)),
            )
        except InfeasibleError as error:
            refusal = error
    raise refusal


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


def _records(announcement: Announcement, x: Float32, classes: tuple[int, ...]) -> Float32:
    """Scaled features of these records in all instances."""
    scaled = announcement.family().scaled_features(x)
    layout = announcement.layout()
    return scaled if layout is None else layout.scaled(scaled, np.array(classes))


def far_apart(family: LsqFamily, seed: int) -> Float32:
    """Two admitted vectors (rows) whose features differ as much as was found; solved for, if maps are linear.

    Gaussian: all cosines at +1 and at −1. Signs: ± the first singular vector. Identity: ± the first unit vector or,
    with R < 1, ± a vector of norm 1 that the rotation takes to as many coordinates ±R as fit: Σ t² = 1/R², and the
    others' roundings hide least.
    """
    dim = family.choice.dim
    if isinstance(family, GaussianFamily) and family.projection is None:
        angles = np.stack([np.zeros(len(family.phases)), np.full(len(family.phases), np.pi)]) - family.phases
        return np.linalg.lstsq(family.weights.T.astype(np.float64), angles.T, rcond=None)[0].T.astype(np.float32)
    direction = np.zeros(dim)
    direction[0] = 1.0
    if isinstance(family, SignFamily):
        direction = np.linalg.svd(family.weights.astype(np.float64))[0][:, 0]
    elif isinstance(family, IdentityFamily) and family.rotation is not None:
        direction = _full_coordinates(family)
    elif not family.choice.name.startswith("inner-product"):
        directions = np.random.default_rng(seed).normal(size=(CANDIDATES, dim))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        there, back = (family.scaled_features(0.999 * sign * directions) for sign in (1.0, -1.0))
        direction = directions[int(np.argmax(np.sum((there - back) ** 2, axis=1)))]
    return np.stack([direction, -direction]).astype(np.float32) * np.float32(0.9999)


def _full_coordinates(family: IdentityFamily) -> NDArray[np.float64]:
    """The vector of norm at most 1 whose rotated coordinates are R, one after another, as long as the norm lasts."""
    bound, dim = family.facts.bound, family.choice.dim
    squares = np.clip(1.0 - bound**2 * np.arange(dim), 0.0, bound**2)
    rotation = family.query_features(np.eye(dim, dtype=np.float32)).astype(np.float64)
    return np.asarray(rotation @ np.sqrt(squares))


def worst_neighbors(announcement: Announcement, seed: int, *, label_only: bool = False) -> Neighbors:
    """The neighbors, of those that are tried, with the largest Σ t²; with joint labels the class may change, too."""
    pair = far_apart(announcement.family(), seed)
    if announcement.layout() is None:
        rows = _records(announcement, pair, (0, 0))
        return Neighbors(other=rows[1], first=rows[0], second=rows[1])
    same, changed = _records(announcement, pair, (0, 0)), _records(announcement, pair, (0, 1))
    moved = _records(announcement, pair[[0, 0]], (0, 1))
    tried = [moved] if label_only else [same, changed, moved]
    found = [Neighbors(other=rows[1], first=rows[0], second=rows[1]) for rows in tried]
    return max(found, key=lambda one: one.squared_shift)


def views(
    announcement: Announcement, neighbors: Neighbors, *, first: bool, count: int, stream: ByteStream
) -> Iterator[Tally]:
    """`count` independent views, some at a time: counts of shape (views, instances), all users' messages and noise.

    Every bit is drawn by the protocol's `respond` and `inputs`, the noise of all users by `noise`.
    """
    bitsum, n_users = announcement.bitsum(), announcement.plan.request.users
    target = neighbors.first if first else neighbors.second
    dataset = np.concatenate([np.repeat(neighbors.other[None], n_users - 1, axis=0), target[None]])
    width = dataset.shape[1]
    at_once = max(1, ENTRIES // dataset.size)
    scaled = np.repeat(dataset[:, None], at_once, axis=1)  # user, collection, instance
    for start in range(0, count, at_once):
        size = min(at_once, count - start)
        part = np.ascontiguousarray(scaled[:, :size]).reshape(-1, width)
        sent = bitsum.inputs(bitsum.respond(part, stream), stream)
        total = Tally(sent.ones.reshape(n_users, -1), sent.zeros.reshape(n_users, -1)).over_users()
        shape = (size, width)
        yield Tally(total.ones.reshape(shape), total.zeros.reshape(shape)) + bitsum.noise(n_users, shape, stream)
