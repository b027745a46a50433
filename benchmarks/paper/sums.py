"""One pass over all users: how many hold a one in each instance, for every way of reporting labels at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import bernoulli
from privkde.kernels import LsqFamily
from privkde.learning.baselines import admitted
from privkde.protocol.inputs import Rows
from privkde.storage.user_blocks import Index, in_blocks

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSums:
    """For each group of users (rows) and instance: Σ_u b_u of the rounded bits, and Σ_u f(x_u) without rounding."""

    n_users: NDArray[np.int64]
    bit_sums: NDArray[np.int64]
    feature_sums: Floats


def group_sums(
    family: LsqFamily, rows: Rows, groupings: Sequence[NDArray[np.int64]], n_groups: int, *, stream: ByteStream
) -> list[GroupSums]:
    """The sums of every grouping; a grouping gives each user's group, below `n_groups`.

    All groupings see the same rounded bits, so that differences between them are not those of rounding.
    """

    def work(part: Index, start: int) -> tuple[Floats, Floats]:
        scaled = family.scaled_features(admitted(family, rows, part))
        bits = bernoulli(scaled, stream.child("rounding", start)).astype(np.float32)
        members = np.concatenate([groups[part][None] == np.arange(n_groups)[:, None] for groups in groupings])
        chosen = members.astype(np.float32)
        return (chosen @ bits).astype(np.float64), (chosen @ scaled).astype(np.float64)  # blocks: integers stay exact

    blocks = in_blocks(work, np.arange(rows.shape[0]), family.facts.n_instances)
    bits = np.rint(np.sum([ones for ones, _ in blocks], axis=0)).astype(np.int64)
    features = family.facts.bound * np.sum([sums for _, sums in blocks], axis=0)
    return [
        GroupSums(
            n_users=np.bincount(grouping, minlength=n_groups),
            bit_sums=bits[at * n_groups : (at + 1) * n_groups],
            feature_sums=features[at * n_groups : (at + 1) * n_groups],
        )
        for at, grouping in enumerate(groupings)
    ]
