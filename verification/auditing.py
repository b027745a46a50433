"""`audit`: run every check that has something to say about a plan, on all cores, and report the results."""

from __future__ import annotations

import importlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from accounting import InvalidInputError, Plan, PrivkdeError
from accounting.errors import require_choice, require_integer
from privkde.protocol.model import DensityModel
from verification.reporting.document import AuditReport, Result
from verification.verdicts import QUICK, Check, Effort, Finding, Subject

LAYER_MODULES = (
    "verification.exact.enumeration_checks",
    "verification.exact.budget_checks",
    "verification.certified.certified_checks",
    "verification.publication",
    "verification.statistical.execution.count_checks",
    "verification.domain.domain_checks",
    "verification.statistical.densities.density_checks",
    "verification.statistical.densities.rule_checks",
    "verification.statistical.distinguishers.attack_checks",
)
"""Each has `CHECKS`. Names, not imports: functions do not travel to a worker, which looks a check up by name."""
UNRUNNABLE = ("plan-verifies", "published-model")
"""Checks of plans whose parameters no protocol has."""
LARGEST_SEED = 2**53 - 1
"""So that a seed is the same number in every reader of JSON."""

Progress = Callable[[int, int, str], None]
"""Called in this process with the checks done, the number of checks and the name of the one that just ended."""
Job = tuple[str, Check]
"""A check and the module that has it."""
Work = TypeVar("Work")
Yield = TypeVar("Yield")


def audit(
    plan: Plan,
    model: DensityModel | None = None,
    *,
    effort: Effort = QUICK,
    seed: int | None = None,
    only: Sequence[str] | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> AuditReport:
    """Try to refute what the plan promises, and what this library does when it runs the plan.

    The plan is taken as it is, even if it was altered: the checks have to find that out. Checks run in `workers`
    processes (default: one for each core; 1: in this process), so a program that calls this needs the usual
    `if __name__ == "__main__":`. Which numbers are drawn depends on `seed` (default: a fresh one) and on the check's
    name, never on the order or on what else runs.

    If no protocol has the plan's parameters, only checks that run nothing are run, and refute it. Raises
    `InvalidInputError` if the model belongs to another request, or if `only` names no check that applies.
    """
    base = secrets.randbelow(2**32) if seed is None else require_integer("seed", seed, low=0, high=LARGEST_SEED)
    processes = (os.cpu_count() or 1) if workers is None else require_integer("workers", workers, low=1, high=1024)
    subject = Subject(plan=plan, model=model)
    _require_same_promise(plan, model)
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    silent = _silent(subject)
    applicable = [job for job in collected(LAYER_MODULES) if job[1].name not in silent]
    chosen = _chosen(applicable, silent, only)
    results = _run_all(chosen, subject, effort, base, processes=min(processes, len(chosen)), progress=progress)
    return AuditReport(
        plan=plan,
        model=model,
        effort=effort,
        seed=base,
        results=results,
        not_applicable=tuple(silent),
        missing={name: reason for name, reason in silent.items() if reason},
        left_out=tuple(job[1].name for job in applicable if job not in chosen),
        workers=min(processes, len(chosen)),
        started=started,
        seconds=round(time.perf_counter() - clock, 3),
    )


def collected(modules: Sequence[str]) -> tuple[Job, ...]:
    """All checks of these modules, in order."""
    jobs = [(module, check) for module in modules for check in importlib.import_module(module).CHECKS]
    names = [check.name for _, check in jobs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise RuntimeError(f"two checks are called {twice[0]!r}: a replay could not tell them apart")
    return tuple(jobs)


def _require_same_promise(plan: Plan, model: DensityModel | None) -> None:
    """A model of another collection is a mistake of whoever audits, not of the model."""
    for other in () if model is None else (made.request for made in model.plans):
        for name in ("kernel", "dim", "kde_epsilon", "delta"):
            if getattr(other, name) != getattr(plan.request, name):
                raise InvalidInputError(
                    f"the model was published for {name}={getattr(other, name)!r} and the plan says"
                    f" {getattr(plan.request, name)!r}; give the plan that the model was made with."
                )


def _silent(subject: Subject) -> dict[str, str]:
    """The checks with nothing to say about the subject, each with what is missing for it, if anything is."""
    silent = {}
    runnable = _runnable(subject.plan)
    for _, check in collected(LAYER_MODULES):
        tells = (runnable or check.name in UNRUNNABLE) and applies(check, subject)
        missing = check.needs(subject) if tells else ""
        if missing or not tells:
            silent[check.name] = missing
    return silent


def _runnable(plan: Plan) -> bool:
    """Whether the plan's parameters are those of a protocol; if not, that is all there is to find."""
    try:
        plan.protocol()
    except PrivkdeError:
        return False
    return True


def applies(check: Check, subject: Subject) -> bool:
    """A check that cannot even tell is run, so that its error gets into the report."""
    try:
        return check.applies(subject)
    except Exception:
        return True


def _chosen(applicable: Sequence[Job], silent: Mapping[str, str], only: Sequence[str] | None) -> list[Job]:
    for name in only or ():
        if name in silent:
            reason = f": {silent[name]}" if silent[name] else ""
            raise InvalidInputError(f"check {name!r} does not apply to this plan{reason}; leave it out.")
        require_choice("check", name, (check.name for _, check in applicable))
    return [job for job in applicable if only is None or job[1].name in only]


def _run_all(
    jobs: Sequence[Job],
    subject: Subject,
    effort: Effort,
    base: int,
    *,
    processes: int,
    progress: Progress | None,
) -> tuple[Result, ...]:
    """The results in the order of the jobs, whichever ends first; a worker that dies is a result, too."""
    results: dict[str, Result] = {}
    say = progress or (lambda done, total, name: None)
    say(0, len(jobs), "")
    checks = {(module, check.name): check for module, check in jobs}
    for key, done in spread(partial(_work, subject=subject, effort=effort, base=base), list(checks), processes):
        try:
            result = done()
        except Exception as error:
            result = Result.of(checks[key], base, error)
        results[result.name] = result
        say(len(results), len(jobs), result.name)
    return tuple(results[check.name] for _, check in jobs)


def spread(
    work: Callable[[Work], Yield], jobs: Sequence[Work], processes: int
) -> Iterator[tuple[Work, Callable[[], Yield]]]:
    """Do the jobs in processes that share nothing with this one (1: here); as each ends, a call for what came of it.

    What has not begun is dropped if the caller stops.
    """
    if processes <= 1:
        yield from ((job, partial(work, job)) for job in jobs)
        return
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
    try:
        running = {pool.submit(work, job): job for job in jobs}
        for done in as_completed(running):
            yield running[done], done.result
    finally:
        pool.shutdown(cancel_futures=True)


def _work(key: tuple[str, str], *, subject: Subject, effort: Effort, base: int) -> Result:
    """Runs in a worker, which finds the check by its module and its name: functions do not travel."""
    module, name = key
    check = next(check for check in importlib.import_module(module).CHECKS if check.name == name)
    return attempt(check, subject, effort, base)


def attempt(check: Check, subject: Subject, effort: Effort, base: int) -> Result:
    """One check on one core; an error is a result, too."""
    started = time.perf_counter()
    outcome: Finding | Exception
    try:
        with ThreadpoolController().limit(limits=1):
            outcome = check.run(subject, effort, check.seed(base))
    except Exception as error:
        outcome = error
    return Result.of(check, base, outcome, seconds=time.perf_counter() - started)
