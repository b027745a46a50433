"""Every saboteur against every check, and the honest system against all of them.

Each system runs in a worker process: its fault is planted, its plan made, its checks run, the fault removed and every
cache cleared.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass

from threadpoolctl import ThreadpoolController

from accounting import InvalidInputError, Plan
from verification.audit import LAYER_MODULES, collected, fresh_workers
from verification.sabotage.matrix import Matrix, Outcome, Row
from verification.sabotage.plans import HONEST_PLANS
from verification.sabotage.saboteur import Saboteur
from verification.verdicts import QUICK, Check, Effort, Subject

SABOTEUR_MODULES = ("verification.sabotage.running", "verification.sabotage.planning")
HONEST = "honest system"
SEED = 1

Progress = Callable[[int, int, str], None]
"""Called with the systems done, the number of systems and the name of the one that just ended."""


@dataclass(frozen=True, slots=True)
class _System:
    """What travels to a worker: names and requests, no functions."""

    name: str
    story: str
    plan: str
    source: str | None
    """The module that has the saboteur; None for the honest system."""

    def at_work(self) -> AbstractContextManager[Plan]:
        if self.source is None:
            return Saboteur(name=HONEST, story="", request=HONEST_PLANS[self.plan]).at_work()
        return next(one for one in saboteurs((self.source,)) if one.name == self.name).at_work()


@dataclass(frozen=True, slots=True)
class _Trial:
    """Which checks run, and how."""

    modules: tuple[str, ...]
    names: tuple[str, ...]
    effort: Effort
    seed: int

    def row(self, system: _System) -> Row:
        """One system against all checks, in a worker."""
        started = time.perf_counter()
        checks = [check for _, check in collected(self.modules) if check.name in self.names]
        outcomes: dict[str, Outcome] = {}
        errors: dict[str, str] = {}
        with ThreadpoolController().limit(limits=1):
            try:
                with system.at_work() as plan:
                    for check in checks:
                        outcomes[check.name], error = self._outcome(check, Subject(plan=plan))
                        if error:
                            errors[check.name] = error
            except Exception as refusal:  # the planner itself refused: no check could run
                for check in checks:
                    outcomes.setdefault(check.name, Outcome.COULD_NOT_RUN)
                    errors.setdefault(check.name, f"planner: {type(refusal).__name__}")
        return Row(
            name=system.name,
            story=system.story,
            plan=system.plan,
            honest=system.source is None,
            outcomes=outcomes,
            errors=errors,
            seconds=time.perf_counter() - started,
        )

    def _outcome(self, check: Check, subject: Subject) -> tuple[Outcome, str]:
        try:
            if not check.applies(subject):
                return Outcome.NOT_APPLICABLE, ""
            found = check.run(subject, self.effort, check.seed(self.seed))
        except Exception as error:
            return Outcome.COULD_NOT_RUN, type(error).__name__
        return (Outcome.REFUTED if found.refuted else Outcome.NOT_REFUTED), ""


def saboteurs(modules: Sequence[str] = SABOTEUR_MODULES) -> tuple[Saboteur, ...]:
    """All saboteurs of these modules: whatever tuples of saboteurs they hold."""
    found: list[Saboteur] = []
    for module in modules:
        for value in vars(importlib.import_module(module)).values():
            if isinstance(value, tuple) and value and all(isinstance(one, Saboteur) for one in value):
                found += value
    return tuple(found)


def run_matrix(
    effort: Effort = QUICK,
    progress: Progress | None = None,
    checks: Sequence[str] | None = None,
    *,
    only: Sequence[str] | None = None,
    plans: Sequence[str] | None = None,
    check_modules: Sequence[str] = LAYER_MODULES,
    saboteur_modules: Sequence[str] = SABOTEUR_MODULES,
    workers: int | None = None,
    seed: int = SEED,
) -> Matrix:
    """Try every saboteur (or `only` these), and the honest system on every plan (or these `plans`).

    Every check (or those named in `checks`) runs where it applies; one that applies to no system is left out.
    `workers=1` runs in this process. Raises `InvalidInputError` for a name that there is not.
    """
    started = time.perf_counter()
    names = _named("check", checks, [check.name for _, check in collected(check_modules)])
    kinds = {request: kind for kind, request in HONEST_PLANS.items()}
    systems = [_System(HONEST, "nothing is wrong", kind, None) for kind in _named("plan", plans, list(HONEST_PLANS))]
    sources = [(module, one) for module in saboteur_modules for one in saboteurs((module,))]
    chosen = _named("saboteur", only, [one.name for _, one in sources])
    systems += [
        _System(one.name, one.story, kinds.get(one.request, one.request.bitsum), module)
        for module, one in sources
        if one.name in chosen
    ]
    rows: dict[_System, Row] = {}
    count = min(len(systems), workers or os.cpu_count() or 1)
    for system, row in _rows(systems, _Trial(tuple(check_modules), names, effort, seed), count):
        rows[system] = row
        if progress is not None:
            progress(len(rows), len(systems), system.name)
    silent = [n for n in names if all(row.outcomes[n] is Outcome.NOT_APPLICABLE for row in rows.values())]
    return Matrix(
        checks=tuple(name for name in names if name not in silent),
        rows=tuple(rows[system] for system in systems),
        effort=effort.name,
        seed=seed,
        seconds=time.perf_counter() - started,
    )


def _named(what: str, asked: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    """The names that were asked for, all if none were; in the order in which they are known."""
    for name in asked or ():
        if name not in known:
            raise InvalidInputError(f"{what} {name!r} is unknown; choose from: {', '.join(known)}.")
    return tuple(name for name in known if asked is None or name in asked)


def _rows(systems: Sequence[_System], trial: _Trial, count: int) -> Iterator[tuple[_System, Row]]:
    if count <= 1:
        yield from ((system, trial.row(system)) for system in systems)
        return
    with fresh_workers(count) as pool:
        running = {pool.submit(trial.row, system): system for system in systems}
        for done in as_completed(running):
            yield running[done], done.result()
