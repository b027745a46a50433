"""Every saboteur against every check, and the honest system against all of them.

Each system runs in a worker process: its fault is planted, its plan made, its checks run, the fault removed and every
cache cleared.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Sequence
from functools import partial

from accounting.errors import require_choice
from verification.auditing import LAYER_MODULES, Progress, applies, attempt, collected, spread
from verification.reporting.document import Outcome
from verification.sabotage.matrix import Matrix, Row
from verification.sabotage.plans import HONEST_PLANS
from verification.sabotage.saboteur import Saboteur
from verification.verdicts import QUICK, Effort, Subject

SABOTEUR_MODULES = (
    "verification.sabotage.charged_faults",
    "verification.sabotage.executed_faults",
    "verification.sabotage.planned_faults",
)
"""Of the saboteurs. Names, not imports: functions do not travel to a worker, which looks a saboteur up by name."""
HONEST = "honest system"
SEED = 1


KINDS = {request: kind for kind, request in HONEST_PLANS.items()}

System = tuple[str | None, str]
"""A module and the name of a saboteur in it; or None and the kind of plan that the honest system is tried on."""


def _saboteur(system: System) -> Saboteur:
    module, name = system
    if module is None:
        return Saboteur(name=HONEST, story="nothing is wrong", request=HONEST_PLANS[name])
    return next(saboteur for saboteur in saboteurs((module,)) if saboteur.name == name)


def _row(system: System, *, modules: Sequence[str], names: Sequence[str], effort: Effort, seed: int) -> Row:
    """One system against all checks, in a worker."""
    started = time.perf_counter()
    checks = [check for _, check in collected(modules) if check.name in names]
    outcomes: dict[str, Outcome] = {}
    errors: dict[str, str] = {}
    saboteur = _saboteur(system)
    try:
        with saboteur.at_work() as plan:
            subject = Subject(plan=plan)
            for check in checks:
                if not applies(check, subject):
                    outcomes[check.name] = Outcome.NOT_APPLICABLE
                    continue
                result = attempt(check, subject, effort, seed)
                outcomes[check.name] = result.verdict
                if result.error:
                    errors[check.name] = result.error
    except Exception as refusal:  # the planner itself refused: no check could run
        for check in checks:
            outcomes.setdefault(check.name, Outcome.COULD_NOT_RUN)
            errors.setdefault(check.name, f"planner: {type(refusal).__name__}")
    return Row(
        name=saboteur.name,
        story=saboteur.story,
        plan=KINDS.get(saboteur.request, saboteur.request.bitsum),
        honest=system[0] is None,
        outcomes=outcomes,
        errors=errors,
        seconds=time.perf_counter() - started,
    )


def saboteurs(modules: Sequence[str] = SABOTEUR_MODULES) -> tuple[Saboteur, ...]:
    """All saboteurs of these modules."""
    loaded = [importlib.import_module(module) for module in modules]
    return tuple(value for module in loaded for value in vars(module).values() if isinstance(value, Saboteur))


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
    `workers=1` runs in this process. Raises `InvalidInputError` for an unknown name.
    """
    started = time.perf_counter()
    names = _named("check", checks, [check.name for _, check in collected(check_modules)])
    systems: list[System] = [(None, kind) for kind in _named("plan", plans, list(HONEST_PLANS))]
    faults = [(module, saboteur.name) for module in saboteur_modules for saboteur in saboteurs((module,))]
    chosen = _named("saboteur", only, [name for _, name in faults])
    systems += [(module, name) for module, name in faults if name in chosen]
    rows: dict[System, Row] = {}
    row_of = partial(_row, modules=tuple(check_modules), names=names, effort=effort, seed=seed)
    for system, done in spread(row_of, systems, min(len(systems), workers or os.cpu_count() or 1)):
        rows[system] = done()
        if progress is not None:
            progress(len(rows), len(systems), rows[system].name)
    silent = [n for n in names if all(row.outcomes[n] is Outcome.NOT_APPLICABLE for row in rows.values())]
    return Matrix(
        checks=tuple(name for name in names if name not in silent),
        rows=tuple(rows[system] for system in systems),
        effort=effort.name,
        seed=seed,
        seconds=time.perf_counter() - started,
    )


def _named(what: str, wanted: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    """The wanted names, or all; in the order in which they are known."""
    for name in wanted or ():
        require_choice(what, name, known)
    return tuple(name for name in known if wanted is None or name in wanted)
