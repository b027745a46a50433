"""Ratios, measured in one run: whole plans, how planning scales with n, and against dp-accounting's own construction.

Run with `make bench`. Times on a shared machine are noisy; only ratios within one run are meaningful.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from dp_accounting.pld import privacy_loss_distribution
from rich.console import Console
from rich.progress import track
from rich.table import Table

from accounting import PlanRequest
from accounting.choosing import silent
from accounting.comparing import Outcome, compare_bitsums, compare_labels, compare_rungs
from accounting.composition import LADDER, Target, Touched
from accounting.mechanisms import RandomizedResponse
from accounting.numerics.calibration import least_noise
from accounting.plan import Plan
from accounting.planning import plan_budget
from accounting.solving import solve

EPSILON, DELTA, INSTANCES, USERS = 2.0, 1e-6, 768, 30_000
T = TypeVar("T")


def timed(work: Callable[[], T], repeats: int = 3) -> tuple[float, T]:
    """Shortest of a few runs, and the result."""
    best, result = math.inf, None
    for _ in range(repeats):
        begin = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - begin)
    assert result is not None
    return best, result


def ours(n_users: int, *, certified: bool = True) -> RandomizedResponse:
    """Our calibration, with or without the supremum over the others' data."""
    target = Target(rung=LADDER["pld"], touched=Touched(groups=INSTANCES, per_group=1), epsilon=EPSILON, delta=DELTA)
    return target.design(RandomizedResponse, n_users, certified=certified)


def theirs(n_users: int, interval: float) -> RandomizedResponse:
    """The same bisection with dp-accounting's `from_two_probability_mass_functions`, both directions, m = 0."""

    def excess(protocol: RandomizedResponse) -> float:
        (pair,) = protocol.pairs()
        upper = {i: float(x) for i, x in enumerate(pair.upper) if x > 0.0}
        lower = {i: float(x) for i, x in enumerate(pair.lower) if x > 0.0}
        deltas = []
        for first, second in ((upper, lower), (lower, upper)):
            loss = privacy_loss_distribution.from_two_probability_mass_functions(
                {k: math.log(v) for k, v in second.items()},
                {k: math.log(v) for k, v in first.items()},
                value_discretization_interval=interval,
                log_mass_truncation_bound=math.log(DELTA * 1e-3 / INSTANCES),
            )
            deltas.append(loss.self_compose(INSTANCES).get_delta_for_epsilon(EPSILON))
        return math.log(max(*deltas, 1e-300) / DELTA)

    guess = math.sqrt(2.0 * INSTANCES * math.log(1.25 / DELTA)) / EPSILON
    return least_noise(partial(RandomizedResponse.with_rmse, n_users=n_users), excess, excess, guess=guess)


def scaling(console: Console) -> None:
    """Planning time at n = 10⁴ … 10⁹ relative to n = 10⁴."""
    table = Table(title="pld calibration of rr, certified over all others' data (ε=2, δ=1e-6, 768 instances)")
    for name in ("users", "flip probability", "RMSE", "seconds", "time / time at 10⁴"):
        table.add_column(name, justify="right")
    base = 0.0
    for n in track((10**4, 10**5, 10**6, 10**7, 10**8, 10**9), "scaling with n", console=console):
        seconds, protocol = timed(partial(ours, n))
        base = base or seconds
        table.add_row(f"{n:,}", f"{protocol.flip_probability:.4g}", f"{protocol.rmse():.2f}", f"{seconds:.2f}",
                      f"{seconds / base:.2f}")  # fmt: skip
    console.print(table)


def versus(console: Console) -> None:
    """The same bisection by dp-accounting, at finer and finer discretisation until it is as tight as ours."""
    own_seconds, own = timed(partial(ours, USERS))
    quick_seconds, quick = timed(partial(ours, USERS, certified=False))
    table = Table(title=f"against from_two_probability_mass_functions (n={USERS:,})")
    for name in ("method", "RMSE", "seconds", "time / ours", "time / ours (ends only)"):
        table.add_column(name, justify="right")
    table.add_row("ours, all data of the others", f"{own.rmse():.3f}", f"{own_seconds:.2f}", "1", "—")
    table.add_row("ours, two ends only", f"{quick.rmse():.3f}", f"{quick_seconds:.2f}", "—", "1")
    for interval in (1e-4, 1e-5, 2e-6):
        seconds, protocol = timed(partial(theirs, USERS, interval), repeats=1)
        table.add_row(
            f"dp-accounting, two ends only, interval {interval:g}",
            f"{protocol.rmse():.3f}",
            f"{seconds:.2f}",
            f"{seconds / own_seconds:.1f}",
            f"{seconds / quick_seconds:.1f}",
        )
    console.print(table)


Work = Callable[[float], Plan | list[Outcome]]
"""What is timed, for a factor of what is asked: no run finds what an earlier one remembered."""
ASKED: dict[str, Any] = {"users": USERS, "delta": DELTA}
INNER: dict[str, Any] = {**ASKED, "dim": 384, "kernel": "inner-product"}
GAUSSIAN: dict[str, Any] = {**ASKED, "dim": 768, "repetitions": 768}


def planned(**request: Any) -> Work:
    """A whole plan."""
    return lambda factor: plan_budget(**request, epsilon=EPSILON * factor)


def solved(factor: float) -> Plan:
    """The smallest ε for an error."""
    return solve("epsilon", **INNER, target_error=0.02 * factor)


def compared(factor: float) -> list[Outcome]:
    """All rows of `/v1/plan/compare`, one after another."""
    many = PlanRequest(users=2_000_000, dim=384, classes=12, epsilon=EPSILON * factor, delta=DELTA)
    return [*compare_rungs(many, certified=False), *compare_bitsums(many), *compare_labels(many)]


def estimated(factor: float) -> list[Outcome]:
    """What the planner page shows first."""
    return [Outcome.of("estimate", PlanRequest(**INNER, epsilon=EPSILON * factor), silent, certified=False)]


REQUESTS: dict[str, tuple[Work, str, str]] = {
    "gaussian, 768 sums": (planned(**GAUSSIAN), "1.9", "0.8"),
    "gaussian, 768 sums, bitsum auto": (planned(**GAUSSIAN, bitsum="auto"), "5.6", "2"),
    "inner product, 384 dimensions": (planned(**INNER), "4.0", "0.8"),
    "the same, bitsum auto": (planned(**INNER, bitsum="auto"), "", "2"),
    "the same, 4 joint labels": (planned(**INNER, classes=4, labels="joint"), "4.1", "0.8"),
    "the same, smallest epsilon for an error of 0.02": (solved, "9.8", "2"),
    "comparison, 2·10⁶ users, 12 classes": (compared, "over 60", "10"),
    "first numbers of the planner page": (estimated, "", "0.3"),
}
"""What is asked, and the seconds that it took when this was first asked for and that it should take."""


def planning(console: Console) -> None:
    """Whole plans in units of one product of two 2000 × 2000 matrices, by processor time."""
    matrix = np.random.default_rng(0).random((2000, 2000))

    def seconds(work: Callable[[], object]) -> float:
        begin = time.process_time()
        work()
        return time.process_time() - begin

    table = Table(title=f"plans (n={USERS:,}, ε=2, δ=1e-6), median of 3 by processor time")
    for name in ("request", "accountant", "RMSE", "seconds", "time / matrix product", "s before", "s wanted"):
        table.add_column(name, justify="right")
    for name, (request, before, wanted) in track(REQUESTS.items(), "planning", console=console):
        answer = request(1.0)
        what = (answer.accountant, f"{answer.bitsum_rmse:.2f}") if isinstance(answer, Plan) else ("", "")
        unit = statistics.median(seconds(lambda: matrix @ matrix) for _ in range(3))
        own = statistics.median(seconds(partial(request, 1.0 + 0.01 * run)) for run in (1, 2, 3))
        table.add_row(name, *what, f"{own:.2f}", f"{own / unit:.1f}", before, wanted)
    console.print(table)


if __name__ == "__main__":
    out = Console(width=150)
    planning(out)
    scaling(out)
    versus(out)
