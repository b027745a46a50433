"""Does the linear classifier take known noise for known? Sums that hold nothing but noise must tell nothing."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from accounting.classifier_model import DENSITY
from accounting.record_vector import RecordVector
from privkde.protocol.linear_rule import LinearRule, Published
from verification.statistical.kernel_means import empirical_bernstein
from verification.verdicts import CHECK_ALPHA, Effort, Finding, Layer, Subject, check, finding

Floats = NDArray[np.float64]

USERS, DIM, CLASSES = 20_000, 32, 10
NOISE = 0.01
"""Standard deviation of an entry of a class sum, over the number of users: means of small classes drown in it."""
TRIALS, QUERIES = 500, 100
ALLOWED = 0.12
"""Total variation of mean posteriors and shares that is granted on average: signal and sizes are estimated."""


@check(
    "linear-rule",
    Layer.STATISTICAL,
    "a linear classifier of pure noise follows the sizes of the classes",
    applies=lambda subject: subject.plan.request.record is not None and subject.plan.request.model != DENSITY,
)
def linear_rule(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Classes that do not differ, sums with the plan's proportions of noise: how far posteriors are from the shares.

    A rule that takes noisy means for exact finds differences everywhere, and their squares push small classes down.
    """
    record, rng = subject.plan.request.record, np.random.default_rng(seed)
    assert record is not None, "records are not rotated as one vector; the check does not apply"
    shares = 1.0 / np.arange(1.0, CLASSES + 1.0)
    shares /= shares.sum()
    distances = np.array([_distance(record, shares, rng) for _ in range(TRIALS * effort.scale)])
    slack = empirical_bernstein(distances, width=1.0, failure_probability=CHECK_ALPHA)
    mean = float(np.mean(distances))
    return finding(
        f"If classes do not differ, mean posteriors are within {ALLOWED:g} of their shares, on average over the noise.",
        statistic=mean - slack,
        bound=ALLOWED,
        found=f"posteriors are {mean:.3f} from the shares on average, at least {mean - slack:.3f}",
        numbers={"mean": mean},
        alpha=CHECK_ALPHA,
        note=f"Total variation, a lower confidence bound over {len(distances):,} drawn publications of {USERS:,} users,"
        f" {DIM} dimensions and {CLASSES} unequal classes, with the plan's weights of moments and sizes; {mean:.3f} was"
        " measured. The power is not known: faults in a rule have no size. Does not use the plan's noise.",
    )


def _distance(record: RecordVector, shares: Floats, rng: np.random.Generator) -> float:
    """Total variation between the classes' shares and their mean posterior, of one publication."""
    rule = LinearRule.of(_pure_noise(record, shares, rng))
    y = rng.normal(size=(QUERIES, DIM))
    scores = rule.scores(y / np.linalg.norm(y, axis=1, keepdims=True))
    posteriors = np.exp(scores - scores.max(axis=1, keepdims=True))
    posteriors /= posteriors.sum(axis=1, keepdims=True)
    return 0.5 * float(np.sum(np.abs(posteriors.mean(axis=0) - shares)))


def _pure_noise(record: RecordVector, shares: Floats, rng: np.random.Generator) -> Published:
    """What is published of unit vectors in uniform directions: means are 0, second moments I/d."""
    deviation = NOISE * USERS
    size_deviation = deviation / math.sqrt(record.size_weight)
    sizes = USERS * shares + size_deviation * rng.normal(size=CLASSES)
    sums = deviation * rng.normal(size=(CLASSES, DIM))
    moments, moment_deviation = None, 0.0
    if record.moment_weight:
        moment_deviation = deviation / math.sqrt(record.moment_weight)
        upper = np.triu(rng.normal(size=(DIM, DIM)), 1) / math.sqrt(2.0)
        noise = upper + upper.T + np.diag(rng.normal(size=DIM))
        moments = USERS * np.eye(DIM) / DIM + moment_deviation * noise
    return Published(
        n_users=USERS,
        sizes=sizes,
        size_deviation=size_deviation,
        sums=sums,
        deviation=deviation,
        moments=moments,
        moment_deviation=moment_deviation,
    )


CHECKS = (linear_rule,)
