"""The exact layer for budgets: what a ledger charges, and what its rule admits, against the truth."""

from __future__ import annotations

import dataclasses
import math
from functools import cache

import numpy as np
import scipy

from accounting import Adjacency, Guarantee, InfeasibleError, Plan, View
from accounting.numerics.pmf import Array
from accounting.numerics.profile import Pair
from accounting.planning import plan as make_plan
from accounting.releases.release import Release
from privkde.ledger import ledger
from privkde.ledger.records import Budget
from verification.exact.adaptive_strategies import Counts, Entry, largest_delta
from verification.miniature import WITHOUT_LABELS
from verification.verdicts import Effort, Finding, Layer, Subject, check, finding

EPSILON, DELTA, STEP = 1.5, 1e-2, 0.1
"""A budget small enough to try every strategy on, and the step of the menus' ε."""
MENUS = ((Entry(steps=2), Entry(steps=5)), (Entry(steps=2, delta=1e-3), Entry(steps=5)))
MOST_INSTANCES, LOSSES = 4, 2001
SHARES = (0.01, 0.03, 0.1, 0.5, 1.0)
"""Of all users: how large a class may turn out to be."""
ROUNDING = 1e-6


@check("adaptive-budget", Layer.EXACT, "best adaptive strategy against a default budget")
def adaptive_budget(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Try all ways to choose releases from small menus, each after seeing earlier results, that a new budget admits.

    The δ of the best strategy at the budget's ε follows exactly by going back from the end.
    """
    budget = Budget(name="tried", epsilon=EPSILON, delta=DELTA, created="")
    deltas = [_best(budget, menu) for menu in MENUS]
    worst = max(deltas)
    return finding(
        f"whatever is chosen after seeing earlier results, a budget of ε = {EPSILON:g}, δ = {DELTA:g} keeps both",
        statistic=worst / DELTA,
        bound=1.0,
        found=f"a strategy that the budget admits reaches δ = {worst:.3g} at ε = {EPSILON:g}",
        numbers={"delta": worst},
        power=1.0,
        smallest_detectable_defect=DELTA / worst - 1.0,
        note="statistic: δ of the best strategy over the budget's δ; smallest detectable defect: by which share a rule"
        f" may admit more δ; {len(MENUS)} menus of two releases; does not depend on the plan",
    )


def _best(budget: Budget, menu: tuple[Entry, ...]) -> float:
    releases = [_worst_release(entry) for entry in menu]

    @cache
    def admits(first: int, counts: Counts) -> bool:
        others = [release for release, count in zip(releases, counts, strict=True) for _ in range(count)]
        others.remove(releases[first])
        chosen = (releases[first], *others)
        return ledger.composed(budget, chosen).epsilon <= budget.epsilon

    return largest_delta(menu, STEP, admits, budget.epsilon)


def _worst_release(entry: Entry) -> Release:
    promise = Guarantee(
        epsilon=round(entry.steps * STEP, 9), delta=entry.delta, adjacency=Adjacency.RECORD, view=View.COMMUNICATION
    )
    return Release.of_guarantee("worst", promise)


@check(
    "charged-classes",
    Layer.EXACT,
    "profile that a ledger charges, for the class sizes that users report",
    applies=lambda subject: subject.reports_labels,
)
def charged_classes(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Compare what a ledger charges for the features with the law of the protocol that a class of any size would run.

    The others all hold zeros. Losses are rounded down to a grid, so that δ is a lower bound.
    """
    request = subject.plan.request
    charged = Release.of_plan("charged", subject.plan).parts[0].profile
    worst, where = 0.0, "no class size can run the protocol"
    for share in SHARES:
        size = max(2, round(share * request.users))
        plan = _class_plan(subject.plan, size)
        if plan is None:
            continue
        for epsilon in np.linspace(0.0, 2.0 * request.kde_epsilon, 9).tolist():
            true, claimed = _least_delta(plan, epsilon), charged.delta(epsilon)
            if claimed > 0.0 and true / claimed > worst:
                worst, where = true / claimed, f"δ({epsilon:.3g}) ≥ {true:.3g} for a class of {size} users"
    return finding(
        "the profile that is charged for the features holds whatever sizes the classes turn out to have",
        statistic=worst,
        bound=1.0 + ROUNDING,
        found=where,
        power=1.0 if worst > 0.0 else 0.0,
        smallest_detectable_defect=max(0.0, 1.0 / worst - 1.0) if worst > 0.0 else None,
        note=f"statistic: largest true/charged δ; closest: {where}; uses the library's law of one instance",
    )


def _class_plan(plan: Plan, size: int) -> Plan | None:
    """What a class of this size runs; None if it is too small for the promise."""
    alone = dataclasses.replace(
        plan.request,
        users=size,
        **WITHOUT_LABELS,
        epsilon=plan.request.kde_epsilon,
        min_users=None,
        repetitions=min(plan.request.repetitions or plan.request.dim, MOST_INSTANCES),
        allow_useless=True,
    )
    try:
        return make_plan(alone)
    except InfeasibleError:
        return None


def _least_delta(plan: Plan, epsilon: float) -> float:
    """A lower bound on δ(ε) of all instances, for others who all hold zeros and a target whose bits all flip."""
    first, n_instances = plan.protocol().pairs()[0], plan.request.facts().touched.total
    return max(_composed_delta(pair, n_instances, epsilon) for pair in (first, first.reversed()))


def _composed_delta(pair: Pair, times: int, epsilon: float) -> float:
    losses, seen = pair.losses(), pair.upper > 0.0
    finite = seen & np.isfinite(losses)
    step = float(np.max(np.abs(losses[finite]))) / (LOSSES // 2)
    cells = np.floor(losses[finite] / step).astype(np.int64) + LOSSES // 2 + 1
    masses: Array = np.bincount(cells, weights=pair.upper[finite], minlength=LOSSES + 1).astype(np.float64)
    infinite = float(np.sum(pair.upper[seen & ~finite]))
    whole = np.ones(1)
    for _ in range(times):
        whole = np.maximum(scipy.signal.fftconvolve(whole, masses), 0.0)
    reached = (np.arange(len(whole)) - times * (LOSSES // 2 + 1)) * step
    tail = float(np.sum(whole * np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - reached)))))
    return tail + (1.0 - math.pow(1.0 - infinite, times))


CHECKS = (adaptive_budget, charged_classes)
