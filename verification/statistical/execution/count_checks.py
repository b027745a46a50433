"""Statistical checks of the execution: counts of messages after all parties did their work, and unbiasedness.

Whatever is counted is held against the law that the parameters declare, computed by other means
(`verification.twins`). All levels are proved: nothing is asymptotic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accounting.mechanisms import BitsumProtocol
from privkde.bitsum import Tally
from privkde.engines.local import collect
from privkde.protocol.announcement import Announcement
from privkde.protocol.parties import Analyzer
from verification.statistical.execution.conduct import check_counted_once, check_private
from verification.statistical.execution.count_laws import mean_radius
from verification.statistical.execution.independence import check_independent
from verification.statistical.execution.order import check_order
from verification.statistical.execution.samplers import check_kernels, check_samplers, count_samples
from verification.statistical.execution.stages import (
    holders,
    known_bits,
    private_stream,
    run_faithfully,
    stage,
    transparent,
)
from verification.statistical.goodness_of_fit import MISSED, Sample, fits_of, fitted_finding
from verification.twins import mechanism_twin, needs_mechanism_twin
from verification.verdicts import CHECK_ALPHA, Effort, Finding, Layer, Subject, check, finding

STAGE_USERS = 40
STAGE_REPETITIONS = 10_000
OWN_USERS = 100
"""Users who take part in a stage of the plan's own law: a few of those on whom it counts."""
ROUNDING = 1e-9
"""Granted to a mean of estimates, per user."""


class Trial(NamedTuple):
    """Instances of one stage that have the same sum of bits: counts, estimates, and the declared law."""

    name: str
    law: BitsumProtocol
    n_users: int
    sum_of_bits: int
    counted: Tally
    estimates: NDArray[np.float64]

    def samples(self) -> Iterator[Sample]:
        """The counts, each with its law."""
        tables = mechanism_twin(self.law).tally_tables(self.sum_of_bits, self.n_users)
        return count_samples(f"{self.name}, sum of bits {self.sum_of_bits}", self.counted, tables)

    def radius(self, failure_probability: float) -> float:
        """How far the mean of unbiased estimates may be from the sum of bits, but for this probability."""
        twin = mechanism_twin(self.law)
        parts = twin.tally_parts(self.sum_of_bits, self.n_users)[twin.read_count]
        return mean_radius(parts, len(self.estimates), failure_probability) / twin.gain


def _trials(
    name: str, announcement: Announcement, x: NDArray[np.float64], analyzers: Sequence[Analyzer]
) -> Iterator[Trial]:
    """What was counted and estimated in these runs of one collection, by the true sum of bits."""
    truth, law = np.tile(known_bits(announcement, x), len(analyzers)), announcement.plan.protocol()
    tallies = [analyzer.tally for analyzer in analyzers]
    tally = Tally(*(np.concatenate([getattr(part, kind) for part in tallies]) for kind in ("ones", "zeros")))
    estimates = announcement.bitsum().estimate(tally, len(x))
    for total in np.unique(truth).tolist():
        here = truth == total
        yield Trial(name, law, len(x), total, Tally(tally.ones[here], tally.zeros[here]), estimates[here])


def _faithful(subject: Subject, effort: Effort, seed: int) -> Iterator[Trial]:
    """Clients, shuffler, analyzer; transparent parameters, several sums of bits."""
    law = transparent(subject.plan, STAGE_USERS)
    announcement = stage(subject.plan, law, repetitions=STAGE_REPETITIONS, seed=seed)
    for positive in (0, STAGE_USERS // 4, STAGE_USERS // 2):
        x, stream = holders(STAGE_USERS, positive), private_stream(seed, "faithful", positive)
        runs = [run_faithfully(announcement, x, stream.child(run)) for run in range(effort.scale)]
        yield from _trials(f"faithful, {STAGE_USERS} users", announcement, x, runs)


def _aggregated(subject: Subject, effort: Effort, seed: int) -> Iterator[Trial]:
    """Noise drawn for all users at once; transparent parameters, and the plan's own with few of its users."""
    for law, n_users in ((transparent(subject.plan, STAGE_USERS), STAGE_USERS), (subject.plan.protocol(), OWN_USERS)):
        announcement = stage(subject.plan, law, repetitions=STAGE_REPETITIONS, seed=seed)
        x, stream = holders(n_users, n_users // 4), private_stream(seed, "aggregated", n_users)
        runs = [
            collect(announcement, x, np.arange(n_users), stream=stream.child(run), path="aggregated")
            for run in range(effort.scale)
        ]
        yield from _trials(f"aggregated, {n_users} users of {law.n_users}", announcement, x, runs)


@check(
    "bitsum-counts",
    Layer.STATISTICAL,
    "counts after clients, shuffler and analyzer have their exact law",
    needs=needs_mechanism_twin,
)
def check_counts(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Counts of ones and zeros after clients, shuffler and analyzer, for known bits, against their exact law."""
    return fitted_finding(
        f"After shuffling, the counts of {subject.plan.bitsum!r} have the declared law for every sum of bits.",
        fits_of(sample for trial in _faithful(subject, effort, seed) for sample in trial.samples()),
        note="Smallest defect: distance between distribution functions. Faithful path, parameters that show all parts.",
    )


@check(
    "aggregated-equals-faithful", Layer.STATISTICAL, "the aggregated path has the same law", needs=needs_mechanism_twin
)
def check_aggregated(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The aggregated path against the same exact law."""
    return fitted_finding(
        "Noise that is drawn for all users at once makes counts of the same law as that of single users.",
        fits_of(sample for trial in _aggregated(subject, effort, seed) for sample in trial.samples()),
        note="Smallest defect: distance between distribution functions. Both paths are held against one exact law.",
    )


@check("bitsum-unbiased", Layer.STATISTICAL, "estimates average to the true sum of bits", needs=needs_mechanism_twin)
def check_unbiased(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The analyzer's estimates average to the true sum of bits, within Chernoff's bound for the declared law."""
    trials = [*_faithful(subject, effort, seed), *_aggregated(subject, effort, seed)]
    share = CHECK_ALPHA / len(trials)
    deviations = [abs(float(np.mean(trial.estimates)) - trial.sum_of_bits) for trial in trials]
    radii = [trial.radius(share) + ROUNDING * trial.n_users for trial in trials]
    worst = int(np.argmax(np.divide(deviations, radii)))
    trial = trials[worst]
    return finding(
        f"The analyzer of {subject.plan.bitsum!r} estimates every sum of bits without bias.",
        statistic=deviations[worst] / radii[worst],
        bound=1.0,
        found=f"{trial.name}: the mean of {len(trial.estimates)} estimates is {float(np.mean(trial.estimates)):.4f}"
        f" and the sum of bits {trial.sum_of_bits}; {radii[worst]:.4f} apart would be chance",
        numbers={"mean": float(np.mean(trial.estimates)), "sum_of_bits": trial.sum_of_bits},
        alpha=CHECK_ALPHA,
        power=1.0 - MISSED,
        smallest_detectable_defect=max(r + tried.radius(MISSED) for tried, r in zip(trials, radii, strict=True)),
        note="Smallest defect: bias of a sum of bits. The statistic is the deviation over the allowed one.",
    )


CHECKS = (
    check_samplers,
    check_kernels,
    check_counts,
    check_unbiased,
    check_aggregated,
    check_order,
    check_counted_once,
    check_private,
    check_independent,
)
