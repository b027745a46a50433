"""Log-likelihood ratios of views, from laws written down anew: the attacker's knowledge, no code of `accounting`.

Given the others at one place, an instance's counts are a binomial number of reports, the target's report, and the
noise. Laws are tabulated in double precision with windows of `TAIL` beyond; an inexact ratio weakens an attack but
never invalidates the bound that follows from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from accounting import Plan
from privkde.bitsum import Tally
from verification.brute_force import PlaneLaw
from verification.distinguishers.views import Neighbors

Floats = NDArray[np.float64]
Parameters = dict[str, float]

TAIL = 1e-12
LARGEST_PLANE = 2500
"""Side of the largest table of two counts; beyond it only their difference is used."""
MOST_PLANES = 4
"""Kinds of instances for which both counts are tabulated; with more of them only differences are used."""
SMALLEST_SHIFT = 1e-6
FAR = 40.0
"""Log-likelihood ratios are cut here: beyond, one law has no mass worth tabulating."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A law on the integers from `start` on."""

    start: int
    masses: Floats

    def plus(self, other: Line) -> Line:
        """The sum of two independent numbers."""
        return Line(start=self.start + other.start, masses=np.convolve(self.masses, other.masses))

    def minus(self, other: Line) -> Line:
        """Their difference."""
        last = other.start + len(other.masses) - 1
        return self.plus(Line(start=-last, masses=other.masses[::-1]))


def _tabulated(law: stats.rv_discrete) -> Line:
    low, high = int(law.ppf(TAIL)), int(law.isf(TAIL))
    return Line(start=low, masses=np.asarray(law.pmf(np.arange(low, high + 1)), dtype=np.float64))


def _negative_binomial(shape: float, continue_probability: float) -> Line:
    return _tabulated(stats.nbinom(shape, 1.0 - continue_probability))


def noise_lines(plan: Plan) -> tuple[Line, Line | None, Line | None]:
    """Laws of all users' noise: added to the ones, to the zeros, to both (the flood)."""
    told: Parameters = {name: float(value) for name, value in plan.parameters.items()}
    if plan.bitsum == "poisson":
        return _tabulated(stats.poisson(told["total_mean"])), None, None
    if plan.bitsum == "negative-binomial":
        return _negative_binomial(told["shape"], told["continue_probability"]), None, None
    if plan.bitsum == "3nb":
        single = _negative_binomial(told["noise_shape"], told["continue_probability"])
        return single, single, _negative_binomial(told["flood_shape"], told["flood_continue_probability"])
    if plan.bitsum == "pure":
        single = _negative_binomial(1.0, float(np.exp(-told["noise_epsilon"])))
        return single, single, _negative_binomial(told["flood_shape"], told["flood_continue_probability"])
    return Line(start=0, masses=np.ones(1)), None, None


def report_probability(plan: Plan, scaled: float) -> float:
    """Probability that a user with the feature f/R = `scaled` adds one to ones − zeros (or to the ones)."""
    told = plan.parameters
    gain = 1.0 - 2.0 * float(told.get("flip_probability", 0.0))
    speaks = 1.0 - float(told.get("silence_probability", 0.0))
    return speaks * 0.5 * (1.0 + gain * scaled)


def published_counts(plan: Plan, estimates: Floats) -> Tally:
    """The counts, as far as estimates of the sums of bits tell: the ones, or ones − zeros beside no zeros."""
    told = {name: float(value) for name, value in plan.parameters.items()}
    counts = estimates
    if plan.bitsum == "rr":
        p = told["flip_probability"]
        counts = estimates * (1.0 - 2.0 * p) + plan.request.users * p
    elif plan.bitsum == "pure":
        counts = estimates * (1.0 - told["silence_probability"])
    elif plan.bitsum == "poisson":
        counts = estimates + told["total_mean"]
    elif plan.bitsum == "negative-binomial":
        p = told["continue_probability"]
        counts = estimates + told["shape"] * p / (1.0 - p)
    ones = np.rint(counts).astype(np.int64)
    return Tally(ones, np.zeros_like(ones))


Ratio = Callable[[NDArray[np.int64], NDArray[np.int64]], Floats]
"""Ones and zeros of one instance in all views ↦ log-likelihood ratios."""


def _mixed(zero: Floats, one: Floats, probability: float) -> Floats:
    return (1.0 - probability) * zero + probability * one


def _log_ratio(zero: Floats, one: Floats, first: float, second: float) -> Floats:
    """Ln of the mixtures' ratio; 0 where neither has mass."""
    tiny = 1e-300
    ratio = np.log(_mixed(zero, one, first) + tiny) - np.log(_mixed(zero, one, second) + tiny)
    return np.asarray(np.clip(ratio, -FAR, FAR))


def line_ratio(plan: Plan, other: float, first: float, second: float) -> Ratio:
    """By one count: the ones, or ones − zeros where noise is sent both ways."""
    ones, zeros, _ = noise_lines(plan)
    reports = _tabulated(stats.binom(plan.request.users - 1, report_probability(plan, other)))
    law = reports.plus(ones) if zeros is None else reports.plus(ones).minus(zeros)
    zero, one = np.append(law.masses, 0.0), np.insert(law.masses, 0, 0.0)
    table = _log_ratio(zero, one, report_probability(plan, first), report_probability(plan, second))

    def ratio(ones_sent: NDArray[np.int64], zeros_sent: NDArray[np.int64]) -> Floats:
        count = ones_sent if zeros is None else ones_sent - zeros_sent
        return table[np.clip(count - law.start, 0, len(table) - 1)]

    return ratio


def plane_ratio(plan: Plan, other: float, first: float, second: float) -> Ratio | None:
    """By both counts of `3nb`; None if the table would be too large."""
    ones, zeros, flood = noise_lines(plan)
    if plan.bitsum != "3nb" or zeros is None or flood is None:
        return None
    size = max(len(ones.masses) + ones.start, len(zeros.masses) + zeros.start) + flood.start + len(flood.masses)
    if size > LARGEST_PLANE:
        return None
    noise, pairs = (np.concatenate([np.zeros(one.start), one.masses]) for one in (ones, flood))
    reports = _tabulated(stats.binom(plan.request.users - 1, report_probability(plan, other)))
    alone = PlaneLaw.of(noise, pairs, size).zero
    zero = np.zeros((size + len(reports.masses), size))
    for extra, mass in enumerate(reports.masses):
        zero[extra : extra + size] += mass * alone
    one = np.zeros_like(zero)
    one[1:] = zero[:-1]
    table = _log_ratio(zero, one, report_probability(plan, first), report_probability(plan, second))

    def ratio(ones_sent: NDArray[np.int64], zeros_sent: NDArray[np.int64]) -> Floats:
        row = np.clip(ones_sent - reports.start, 0, table.shape[0] - 1)
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
        self._parts = [(int(one), ratios[kind]) for one, kind in zip(telling, whose.reshape(-1), strict=True)]

    def scores(self, view: Tally) -> Floats:
        """One number for each view."""
        total = np.zeros(len(view.ones))
        for instance, ratio in self._parts:
            total += ratio(view.ones[:, instance], view.zeros[:, instance])
        return total
