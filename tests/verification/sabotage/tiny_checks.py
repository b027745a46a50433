"""Checks that take no time, for tests of the matrix; workers find them by this module's name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from accounting.mechanisms import RandomizedResponse
from privkde.bitsum import Tally, executed
from privkde.draws.randomness import private_randomness
from privkde.protocol import parties
from privkde.protocol.announcement import Announcement
from privkde.protocol.label_round import randomize_labels
from privkde.protocol.parties import Shuffler
from verification.verdicts import Check, Effort, Finding, Layer, Subject, finding


def _corrected(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The expected count of 300 ones among 1,000 users must be estimated as 300."""
    law, n = subject.plan.protocol(), 1000
    assert isinstance(law, RandomizedResponse)
    expected = 300 + (n - 600) * law.flip_probability
    counts = Tally(np.array([expected]), np.array([n - expected]))
    off = abs(float(executed(law).estimate(counts, n)[0]) - 300.0)
    return finding("flips are undone", statistic=off, bound=1e-6, found="they are not")


def _kept(subject: Subject, effort: Effort, seed: int) -> Finding:
    """How often labels are kept, with a margin of 8 standard deviations (two-sided level below 2e-15, normal)."""
    response, runs = subject.plan.request.label_response(), 40_000
    assert response is not None
    reported = randomize_labels(np.zeros(runs, np.int64), response, stream=private_randomness(seed))
    p = response.keep_probability
    off = abs(float(np.mean(reported == 0)) - p)
    bound = 8.0 * math.sqrt(p * (1.0 - p) / runs)
    return finding("labels are kept as declared", statistic=off, bound=bound, found="no")


def _order(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Messages are listed by instance; 32 of them leave in that order with probability 1/32! only."""
    announcement = Announcement(plan=subject.plan, public_seed="00" * 16)
    shuffler = Shuffler(announcement, stream=private_randomness(seed))
    left = np.asarray(getattr(parties, "permutation")(32, shuffler._stream), np.float64)  # noqa: B009 (as it is now)
    kept = float(np.all(np.diff(left) > 0))
    return finding("the shuffler shuffles", statistic=kept, bound=0.5, found="in order")


def _broken(subject: Subject, effort: Effort, seed: int) -> Finding:
    if dict(subject.plan.parameters).get("flip_probability", 1.0) < 0.08:
        raise ArithmeticError
    return finding("nothing", statistic=0.0, bound=1.0, found="")


def _noise(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The honest plan has a mean of 7.6."""
    mean = float(subject.plan.parameters["total_mean"])
    return finding("there is noise", statistic=-mean, bound=-5.0, found="there is less")


def _is(bitsum: str) -> Any:
    return lambda subject: subject.plan.bitsum == bitsum and subject.plan.request.n_protocols == 1


CHECKS = (
    Check(name="correction", layer=Layer.EXACT, about="", run=_corrected, applies=_is("rr")),
    Check(
        name="keeping",
        layer=Layer.STATISTICAL,
        about="",
        run=_kept,
        applies=lambda subject: subject.plan.request.label_response() is not None,
    ),
    Check(name="order", layer=Layer.STATISTICAL, about="", run=_order, applies=_is("3nb")),
    Check(name="fragile", layer=Layer.EXACT, about="", run=_broken, applies=_is("rr")),
    Check(name="noise", layer=Layer.EXACT, about="", run=_noise, applies=_is("poisson")),
)
