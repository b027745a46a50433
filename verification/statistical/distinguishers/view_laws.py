"""Log-likelihood ratios of views: the attacker's knowledge, from SciPy's tables of the noise (`verification.twins`).

Given the others at one place, an instance's counts are a binomial number of reports, the target's report, and the
noise. Laws are tabulated in double precision with windows of `TAIL` beyond; an inexact ratio weakens an attack but
never invalidates the bound that follows from it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from accounting import Plan
from accounting.numerics.pmf import Pmf
from privkde.bitsum import Tally
from verification.exact.brute_force import plane_table
from verification.statistical.distinguishers.collected_views import Neighbors
from verification.statistical.execution.count_laws import plus, times, window
from verification.twins import mechanism_twin
from verification.twins.mechanism_twin import MechanismTwin

Floats = NDArray[np.float64]

TAIL = 1e-12
LARGEST_PLANE = 2500
"""Side of the largest table of two counts; beyond it only their difference is used."""
MOST_PLANES = 4
"""Kinds of instances for which both counts are tabulated; with more of them only differences are used."""
SMALLEST_SHIFT = 1e-6
FAR = 40.0
"""Log-likelihood ratios are cut here: beyond, one law has no mass worth tabulating."""


def reports(plan: Plan, twin: MechanismTwin, other: float) -> Pmf:
    """How many of the other users, all with the feature f/R = `other`, add one."""
    return window(stats.binom(plan.request.users - 1, twin.report_probability(other)), TAIL)


def published_counts(plan: Plan, estimates: Floats) -> Tally:
    """The counts, as far as estimates of the sums of bits tell: the ones, or ones − zeros beside no zeros."""
    ones = np.rint(mechanism_twin(plan).counts(estimates, plan.request.users)).astype(np.int64)
    return Tally(ones, np.zeros_like(ones))


Ratio = Callable[[NDArray[np.int64], NDArray[np.int64]], Floats]
"""Ones and zeros of one instance in all views ↦ log-likelihood ratios."""


def _log_ratio(twin: MechanismTwin, zero: Floats, one: Floats, first: float, second: float) -> Floats:
    """Ln of the mixtures' ratio, for a target with either feature; 0 where neither has mass."""
    chances = [twin.report_probability(scaled) for scaled in (first, second)]
    logs = [np.log((1.0 - chance) * zero + chance * one + 1e-300) for chance in chances]
    return np.asarray(np.clip(logs[0] - logs[1], -FAR, FAR))


def line_ratio(plan: Plan, other: float, first: float, second: float) -> Ratio:
    """By one count: the ones, or ones − zeros where noise is sent both ways."""
    twin = mechanism_twin(plan)
    ones, zeros, _ = twin.noise(twin.n_users, tail=TAIL)
    law = plus(reports(plan, twin, other), ones, times(zeros, -1))
    table = _log_ratio(twin, np.append(law.values, 0.0), np.insert(law.values, 0, 0.0), first, second)

    def ratio(ones_sent: NDArray[np.int64], zeros_sent: NDArray[np.int64]) -> Floats:
        count = ones_sent - zeros_sent if twin.reads_difference else ones_sent
        return table[np.clip(count - law.start, 0, len(table) - 1)]

    return ratio


def plane_ratio(plan: Plan, other: float, first: float, second: float) -> Ratio | None:
    """By both counts, if they tell more than one and users add single ones; None if the table would be too large."""
    twin = mechanism_twin(plan)
    if not twin.reads_difference or twin.sent(1) != ((1, 0, 1.0),):
        return None
    ones, _, flood = twin.noise(twin.n_users, tail=TAIL)
    size = ones.stop + flood.stop
    if size > LARGEST_PLANE:
        return None
    single, pairs = (np.concatenate([np.zeros(law.start), law.values]) for law in (ones, flood))
    others = reports(plan, twin, other)
    alone = plane_table(single, pairs, size)
    zero = np.zeros((size + len(others.values), size))
    for extra, mass in enumerate(others.values):
        zero[extra : extra + size] += mass * alone
    one = np.zeros_like(zero)
    one[1:] = zero[:-1]
    table = _log_ratio(twin, zero, one, first, second)

    def ratio(ones_sent: NDArray[np.int64], zeros_sent: NDArray[np.int64]) -> Floats:
        row = np.clip(ones_sent - others.start, 0, table.shape[0] - 1)
        return table[row, np.clip(zeros_sent, 0, table.shape[1] - 1)]

    return ratio


class LikelihoodRatio:
    """Ln P(view)/Q(view) for two neighbors, added up over the instances that tell them apart."""

    def __init__(self, plan: Plan, neighbors: Neighbors, *, published_only: bool = False) -> None:
        rows = np.round(np.stack([neighbors.other, neighbors.first, neighbors.second], axis=1).astype(np.float64), 2)
        telling = np.flatnonzero(np.abs(rows[:, 1] - rows[:, 2]) > SMALLEST_SHIFT)
        kinds, whose = np.unique(rows[telling], axis=0, return_inverse=True)
        planes = not published_only and len(kinds) <= MOST_PLANES
        ratios = [(plane_ratio(plan, *kind) if planes else None) or line_ratio(plan, *kind) for kind in kinds.tolist()]
        self._parts = [(int(at), ratios[kind]) for at, kind in zip(telling, whose.reshape(-1), strict=True)]

    def scores(self, view: Tally) -> Floats:
        """One number for each view."""
        total = np.zeros(len(view.ones))
        for instance, ratio in self._parts:
            total += ratio(view.ones[:, instance], view.zeros[:, instance])
        return total
