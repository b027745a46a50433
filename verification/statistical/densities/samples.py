"""Many published densities of one small dataset, collected by the library's engine, and what they should be.

Repetitions are independent, so one collection with B·I of them holds B independent densities K̃(y) of I repetitions
each: a *wide* collection. Identity features (one repetition) and joint labels (one size per class and collection) are
collected again and again instead.

Given the maps, F̃ = (2B̃ − n)R is a constant plus (2R/gain)(Σ_u Bern(π_u) + noise), independent over instances and users,
with π = speaks·½(1 + (1−2p)F) for the scaled feature F. Cumulants of independent numbers add: the second and fourth
of a bit are π(1−π) and π(1−π)(1 − 6π(1−π)); those of the noise are in `verification.twins`.
Source: docs/proofs/error.md for what is claimed; nothing is shared with its code.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accounting import Plan
from privkde.draws.randomness import ByteStream
from privkde.engines import local
from privkde.protocol.announcement import Announcement
from privkde.protocol.joint_labels import JointLayout
from privkde.protocol.model import FeatureSums
from privkde.protocol.record_vectors import RecordLayout
from verification.client_rows import client_rows
from verification.miniature import feasible_miniature
from verification.twins import kernel_twin, many_messages, mechanism_twin
from verification.twins.record_readings import DENSITY, SIZE, readings

Floats = NDArray[np.float64]

USERS, DIM, REPETITIONS = 24, 4, 8
FEW_USERS, FEW_REPETITIONS = 8, 2
"""The same where users send thousands of messages."""
MESSAGES = 800_000
"""Messages of one wide collection on the faithful path."""
ENTRIES = 1_500_000
"""Users × instances of one wide collection on the aggregated path."""
PADDED = 256
"""Coordinates of a rotated record: so many that clipping is as rare as in a plan."""
NARROW = 200
"""Collections at scale 1 where one cannot be wide."""
MOST_LOOSE = 32.0
"""By how much ε may be larger than the plan's."""


def small_plan(plan: Plan) -> Plan:
    """A plan of the same kind for few users, for the same ε or, where that is not feasible, a larger one."""
    users, repetitions = (FEW_USERS, FEW_REPETITIONS) if many_messages(plan) else (USERS, REPETITIONS)
    return feasible_miniature(plan, users=users, dim=DIM, repetitions=repetitions, most_loose=MOST_LOOSE, padded=PADDED)


def is_wide(plan: Plan) -> bool:
    """Whether one collection holds many independent densities."""
    return not kernel_twin(plan).identity and not plan.request.joint


def widened(plan: Plan, path: str) -> tuple[Plan, int]:
    """The plan with B times the repetitions and the same noise, and B; it no longer keeps the promise of ε."""
    if not is_wide(plan):
        return plan, 1
    request, facts = plan.request, plan.request.facts()
    faithful = MESSAGES / (request.users * plan.messages_per_user)
    blocks = int(max(60, faithful if path == "faithful" else ENTRIES / (request.users * facts.n_instances)))
    wider = dataclasses.replace(request, repetitions=facts.n_repetitions * blocks)
    return dataclasses.replace(plan, request=wider), blocks


class SumMoments(NamedTuple):
    """Mean, variance and fourth cumulant of F̃ in every instance, given the maps."""

    mean: Floats
    variance: Floats
    fourth: Floats


def sum_moments(plan: Plan, rows: NDArray[np.float32]) -> SumMoments:
    """Moments of F̃ for users (rows) with these scaled features f/R in all instances (columns)."""
    twin, bound = mechanism_twin(plan), plan.request.facts().bound
    scaled, factor = rows.astype(np.float64), 2.0 * bound / twin.gain
    reported = twin.report_probability(scaled)
    spread = reported * (1.0 - reported)
    _, second, fourth = twin.noise_cumulants()
    return SumMoments(
        mean=bound * scaled.sum(axis=0),
        variance=factor**2 * (spread.sum(axis=0) + second),
        fourth=factor**4 * ((spread * (1.0 - 6.0 * spread)).sum(axis=0) + fourth),
    )


def widest_variance(plan: Plan) -> float:
    """Bound on the variance of any F̃, whatever the features: a report varies by ¼ at most."""
    twin = mechanism_twin(plan)
    factor = 2.0 * plan.request.facts().bound / twin.gain
    return float(factor**2 * (plan.request.users / 4.0 + twin.noise_cumulants()[1]))


def expected_density(plan: Plan, x: Floats, y: Floats) -> Floats:
    """E K̃(y): the mean of k over the records; of k + (1−k)/Q for a hashed kernel, whose buckets collide by chance."""
    kernel = kernel_twin(plan)
    density = np.asarray(np.mean(kernel.values(x, y), axis=0), dtype=np.float64)
    if kernel.hashed:
        return np.asarray(density + (1.0 - density) / plan.request.facts().n_coordinates)
    return density


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Records in the unit ball or in a smaller one that was declared, mostly in one cluster; their joint classes."""

    x: Floats
    classes: NDArray[np.int64] | None

    @staticmethod
    def of(plan: Plan, rng: np.random.Generator) -> Dataset:
        """Random, with a seed of its own."""
        n, dim = plan.request.users, plan.request.dim
        x = 0.7 * np.eye(dim)[0] + 0.05 * rng.normal(size=(n, dim))
        x[n * 3 // 4 :] = 0.4 * rng.normal(size=(n - n * 3 // 4, dim))
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        x *= min(1.0, plan.request.radius or 1.0)
        classes = (np.arange(n) % 3 == 0).astype(np.int64) if plan.request.joint else None
        return Dataset(x=x, classes=classes)

    def members(self) -> list[NDArray[np.bool_]]:
        """Whose density is estimated: everybody's, or that of each class."""
        if self.classes is None:
            return [np.ones(len(self.x), dtype=bool)]
        return [self.classes == number for number in (0, 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """One density, class size or second moment in all blocks of some collections: samples and what they should be.

    Given the maps, `values[:, b]` has the mean `means[b]`, the variance `variances[b]` and the fourth cumulant
    `fourths[b]`; over maps and private draws together, its mean is `expected` but for `residual`, its variance at most
    `total_variance`.
    """

    what: str
    values: Floats
    means: Floats
    variances: Floats
    fourths: Floats
    expected: float
    total_variance: float
    kind: str = DENSITY
    """What it is: a density, the size of a class as a share of all users, or a second moment."""
    residual: float = 0.0

    @staticmethod
    def joined(parts: list[Contrast]) -> Contrast:
        """The same density under several public seeds, as more blocks."""
        names = ("values", "means", "variances", "fourths")
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names
        }
        return dataclasses.replace(parts[0], **joined)


class Collections:
    """Collections of one dataset under one public seed, with independent private randomness."""

    def __init__(self, plan: Plan, blocks: int, dataset: Dataset, public_seed: str) -> None:
        self.announcement = Announcement(plan=plan, public_seed=public_seed)
        self.plan, self.blocks, self.dataset = plan, blocks, dataset
        self.sums: list[Floats] = []
        self.moments: SumMoments = sum_moments(plan, client_rows(self.announcement, dataset.x, dataset.classes))

    def run(self, stream: ByteStream, *, path: str) -> None:
        """One more collection."""
        data = self.dataset
        everybody = np.arange(len(data.x))
        analyzer = local.collect(self.announcement, data.x, everybody, data.classes, stream=stream, path=path)
        self.sums.append(analyzer.sums())

    def contrasts(self, y: Floats) -> list[Contrast]:
        """The densities at all queries, of all classes, and the sizes of classes; zeros before the first run."""
        layout, sums = self.announcement.layout(), np.stack(self.sums or [np.zeros(self.announcement.n_instances)])
        if isinstance(layout, RecordLayout):
            return self._of_records(layout, sums, y)
        queries = self.announcement.family().query_features(y).astype(np.float64)
        width = queries.shape[1]
        repetitions = self.plan.request.facts().n_repetitions // self.blocks
        contrasts = []
        for number, members in enumerate(self.dataset.members()):
            place = slice(number * width, (number + 1) * width)
            scale = int(members.sum()) * repetitions
            # Given the maps, each sum varies by at most `widest_variance`; and Σ_j E[g_j(y)²] ≤ 1 in all families.
            private = widest_variance(self.plan) * repetitions / scale**2
            expected = expected_density(self.plan, self.dataset.x[members], y)
            for at, weights in enumerate(queries / scale):
                contrast = Contrast(
                    what=f"density of class {number} at query {at}" if self.plan.request.joint else f"query {at}",
                    values=self._blocked(sums[:, place] * weights),
                    means=self._blocked(self.moments.mean[place] * weights),
                    variances=self._blocked(self.moments.variance[place] * weights**2),
                    fourths=self._blocked(self.moments.fourth[place] * weights**4),
                    expected=float(expected[at]),
                    total_variance=kernel_twin(self.plan).feature_variance / repetitions + private,
                )
                contrasts.append(contrast)
        return contrasts if layout is None else contrasts + self._sizes(layout, sums)

    def _of_records(self, layout: RecordLayout, sums: Floats, y: Floats) -> list[Contrast]:
        """The same where records are rotated as one vector, and second moments: values as the library reads them."""
        assert self.dataset.classes is not None
        moments, widest = self.moments, widest_variance(self.plan)
        return [
            Contrast(
                what=reading.what,
                values=np.array([[reading.published(row)] for row in sums]),
                means=np.array([moments.mean @ reading.weights]),
                variances=np.array([moments.variance @ reading.weights**2]),
                fourths=np.array([moments.fourth @ reading.weights**4]),
                expected=reading.expected,
                total_variance=widest * float(np.sum(reading.weights**2)) + reading.residual**2,
                kind=reading.kind,
                residual=reading.residual,
            )
            for reading in readings(layout, self.dataset.x, self.dataset.classes, y)
        ]

    def _blocked(self, terms: Floats) -> Floats:
        """Σ_ij over the repetitions i of each block."""
        return np.asarray(np.sum(terms.reshape(*terms.shape[:-1], self.blocks, -1), axis=-1))

    def _sizes(self, layout: JointLayout, sums: Floats) -> list[Contrast]:
        n_users = len(self.dataset.x)
        sizes = []
        for number, members in enumerate(self.dataset.members()):
            place = layout.n_classes * layout.width + number
            factor = 1.0 / (2.0 * layout.weight * layout.bound)
            variance = self.moments.variance[place] * (factor / n_users) ** 2
            split = np.array([layout.split(row, n_users)[1][number] for row in sums])
            sizes.append(
                Contrast(
                    what=f"size of class {number}",
                    values=split[:, None] / n_users,
                    means=np.array([members.mean()]),
                    variances=np.array([variance]),
                    fourths=np.array([self.moments.fourth[place] * (factor / n_users) ** 4]),
                    expected=float(members.mean()),
                    total_variance=float(variance),
                    kind=SIZE,
                )
            )
        return sizes

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


def same_maps(plan: Plan, dataset: Dataset, randomness: ByteStream, *, path: str, scale: int) -> Collections:
    """Collections under one public seed: 2·scale wide ones, or `NARROW`·scale narrow ones."""
    wide, blocks = widened(plan, path)
    collections = Collections(wide, blocks, dataset, randomness.public_seed())
    for number in range(2 * scale if is_wide(plan) else NARROW * scale):
        collections.run(randomness.child("collection", path, number), path=path)
    return collections


def fresh_maps(plan: Plan, dataset: Dataset, randomness: ByteStream, *, path: str, scale: int) -> list[Collections]:
    """Collections with a public seed each: `scale` wide ones, or `NARROW`·scale narrow ones."""
    wide, blocks = widened(plan, path)
    fresh = []
    for number in range(scale if is_wide(plan) else NARROW * scale):
        stream = randomness.child("collection", path, number)
        fresh.append(Collections(wide, blocks, dataset, stream.public_seed()))
        fresh[-1].run(stream, path=path)
    return fresh
