"""Many published densities of one small dataset, collected by the library's engine.

Repetitions are independent, so one collection with B·I of them holds B independent densities K̃(y) of I repetitions
each: a *wide* collection. Identity features (one repetition) and joint labels (one size per class and collection) are
collected again and again instead.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import InfeasibleError, Plan
from privkde.announcement import Announcement
from privkde.engines import local
from privkde.model import FeatureSums
from privkde.randomness import SEED_BYTES, ByteStream, PrivateRandomness
from verification.densities.cumulants import (
    FEATURE_VARIANCE,
    Floats,
    SumMoments,
    expected_density,
    sum_moments,
    widest_variance,
)
from verification.miniature import miniature

USERS, DIM, REPETITIONS = 24, 4, 8
MESSAGES = 800_000
"""Messages of one wide collection on the faithful path."""
ENTRIES = 1_500_000
"""Users × instances of one wide collection on the aggregated path."""
NARROW = 200
"""Collections at scale 1 where one cannot be wide."""
LOOSER = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def small_plan(plan: Plan) -> Plan:
    """A plan of the same kind for few users, for the same ε or, where that is not feasible, a larger one."""
    few = plan.bitsum == "pure"  # which sends thousands of messages per user
    for factor in LOOSER:
        try:
            return miniature(
                plan,
                users=8 if few else USERS,
                dim=DIM,
                repetitions=2 if few else REPETITIONS,
                epsilon=min(50.0, factor * float(plan.request.epsilon)),
            )
        except InfeasibleError as error:
            refusal = error
    raise refusal


def is_wide(plan: Plan) -> bool:
    """Whether one collection holds many independent densities."""
    return plan.request.kernel != "inner-product" and not plan.request.joint


def widened(plan: Plan, path: str) -> tuple[Plan, int]:
    """The plan with B times the repetitions and the same noise, and B; it no longer keeps the promise of ε."""
    if not is_wide(plan):
        return plan, 1
    request, facts = plan.request, plan.request.facts()
    faithful = MESSAGES / (request.users * plan.messages_per_user)
    blocks = int(max(60, faithful if path == "faithful" else ENTRIES / (request.users * facts.n_instances)))
    wider = dataclasses.replace(request, repetitions=facts.n_repetitions * blocks)
    return dataclasses.replace(plan, request=wider), blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Records within the unit ball, mostly in one cluster, and their classes if labels are joint."""

    x: Floats
    classes: NDArray[np.int64] | None

    @staticmethod
    def of(plan: Plan, rng: np.random.Generator) -> Dataset:
        """Random, with a seed of its own."""
        n, dim = plan.request.users, plan.request.dim
        x = 0.7 * np.eye(dim)[0] + 0.05 * rng.normal(size=(n, dim))
        x[n * 3 // 4 :] = 0.4 * rng.normal(size=(n - n * 3 // 4, dim))
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        classes = (np.arange(n) % 3 == 0).astype(np.int64) if plan.request.joint else None
        return Dataset(x=x, classes=classes)

    def members(self) -> list[NDArray[np.bool_]]:
        """Whose density is estimated: everybody's, or that of each class."""
        if self.classes is None:
            return [np.ones(len(self.x), dtype=bool)]
        return [self.classes == number for number in (0, 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """One density, or one class size, in all blocks of some collections: samples and what they should be.

    Given the maps, `values[:, b]` has the mean `means[b]`, the variance `variances[b]` and the fourth cumulant
    `fourths[b]`; over maps and private draws together, its mean is `expected`, its variance at most `total_variance`.
    """

    what: str
    values: Floats
    means: Floats
    variances: Floats
    fourths: Floats
    expected: float
    total_variance: float
    is_size: bool = False
    """Whether it is the size of a class, as a share of all users, and no density."""

    @staticmethod
    def joined(parts: list[Contrast]) -> Contrast:
        """The same density under several public seeds, as more blocks."""
        return dataclasses.replace(
            parts[0],
            values=np.concatenate([part.values for part in parts], axis=1),
            means=np.concatenate([part.means for part in parts]),
            variances=np.concatenate([part.variances for part in parts]),
            fourths=np.concatenate([part.fourths for part in parts]),
        )


class Collections:
    """Collections of one dataset under one public seed, with independent private randomness."""

    def __init__(self, plan: Plan, blocks: int, dataset: Dataset, public_seed: str) -> None:
        self.announcement = Announcement(plan=plan, public_seed=public_seed)
        self.plan, self.blocks, self.dataset = plan, blocks, dataset
        self.sums: list[Floats] = []
        family, layout = self.announcement.family(), self.announcement.layout()
        scaled = family.scaled_features(dataset.x)
        rows = scaled if layout is None else layout.scaled(scaled, dataset.classes)
        self.moments: SumMoments = sum_moments(plan, rows)

    def run(self, stream: ByteStream, *, path: str) -> None:
        """One more collection."""
        data = self.dataset
        everybody = np.arange(len(data.x))
        analyzer = local.collect(self.announcement, data.x, everybody, data.classes, stream=stream, path=path)
        self.sums.append(analyzer.sums())

    def contrasts(self, y: Floats) -> list[Contrast]:
        """The densities at all queries, of all classes, and the sizes of classes; zeros before the first run."""
        queries = self.announcement.family().query_features(y).astype(np.float64)
        width, sums = queries.shape[1], np.stack(self.sums or [np.zeros(self.announcement.n_instances)])
        found = []
        for number, members in enumerate(self.dataset.members()):
            place = slice(number * width, (number + 1) * width)
            expected = expected_density(self.plan, self.dataset.x[members], y)
            scale = int(members.sum()) * self.plan.request.facts().n_repetitions // self.blocks
            for at, query in enumerate(queries):
                what = f"density of class {number} at query {at}" if self.plan.request.joint else f"query {at}"
                found.append(
                    self._contrast(
                        what, sums[:, place], place=place, query=query, scale=scale, expected=float(expected[at])
                    )
                )
        return found + self._sizes(sums)

    def _contrast(
        self, what: str, sums: Floats, *, place: slice, query: Floats, scale: int, expected: float
    ) -> Contrast:
        """Σ_ij F̃_ij g_ij(y)/scale over the repetitions i of each block."""
        weights = query / scale

        def blocked(values: Floats, power: int) -> Floats:
            return np.asarray(np.sum((values * weights**power).reshape(*values.shape[:-1], self.blocks, -1), axis=-1))

        moments, facts = self.moments, self.plan.request.facts()
        repetitions = facts.n_repetitions // self.blocks
        # Given the maps, each sum varies by at most `widest_variance`; and Σ_j E[g_j(y)²] ≤ 1 in all families.
        private = widest_variance(self.plan) * repetitions / scale**2
        return Contrast(
            what=what,
            values=blocked(sums, 1),
            means=blocked(moments.mean[place], 1),
            variances=blocked(moments.variance[place], 2),
            fourths=blocked(moments.fourth[place], 4),
            expected=expected,
            total_variance=FEATURE_VARIANCE[self.plan.request.kernel] / repetitions + private,
        )

    def _sizes(self, sums: Floats) -> list[Contrast]:
        layout = self.announcement.layout()
        if layout is None:
            return []
        n_users = len(self.dataset.x)
        found = []
        for number, members in enumerate(self.dataset.members()):
            place = layout.n_classes * layout.width + number
            factor = 1.0 / (2.0 * layout.weight * layout.bound)
            variance = self.moments.variance[place] * (factor / n_users) ** 2
            split = np.array([layout.split(one, n_users)[1][number] for one in sums])
            found.append(
                Contrast(
                    what=f"size of class {number}",
                    values=split[:, None] / n_users,
                    means=np.array([members.mean()]),
                    variances=np.array([variance]),
                    fourths=np.array([self.moments.fourth[place] * (factor / n_users) ** 4]),
                    expected=float(members.mean()),
                    total_variance=float(variance),
                    is_size=True,
                )
            )
        return found

    def all_sums(self) -> Contrast:
        """Every published sum by itself, given the maps."""
        moments = self.moments
        return Contrast(
            what="all sums",
            values=np.stack(self.sums),
            means=moments.mean,
            variances=moments.variance,
            fourths=moments.fourth,
            expected=0.0,
            total_variance=math.inf,
        )

    def published_mean(self, y: Floats) -> Floats:
        """K̃(y) of the first collection as the library publishes it, which is the mean over its blocks; no labels."""
        sums = FeatureSums(
            family=self.announcement.family(), sums=self.sums[0][None], n_users=(float(len(self.dataset.x)),)
        )
        return sums.densities(y)[:, 0]


def same_maps(plan: Plan, dataset: Dataset, randomness: PrivateRandomness, *, path: str, scale: int) -> Collections:
    """Collections under one public seed: 2·scale wide ones, or `NARROW`·scale narrow ones."""
    wide, blocks = widened(plan, path)
    found = Collections(wide, blocks, dataset, randomness.public_seed())
    for number in range(2 * scale if is_wide(plan) else NARROW * scale):
        found.run(randomness.stream.child("collection", path, number), path=path)
    return found


def fresh_maps(
    plan: Plan, dataset: Dataset, randomness: PrivateRandomness, *, path: str, scale: int
) -> list[Collections]:
    """Collections with a public seed each: `scale` wide ones, or `NARROW`·scale narrow ones."""
    wide, blocks = widened(plan, path)
    found = []
    for number in range(scale if is_wide(plan) else NARROW * scale):
        seed = randomness.stream.child("public", path, number).take(SEED_BYTES).tobytes().hex()
        found.append(Collections(wide, blocks, dataset, seed))
        found[-1].run(randomness.stream.child("collection", path, number), path=path)
    return found
