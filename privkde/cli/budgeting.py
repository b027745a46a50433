"""`privkde budget`: budgets that releases are charged against, before they are published."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from accounting import Guarantee, InvalidInputError, Plan
from accounting.releases import Release
from privkde.cli.parsing import Parser, real
from privkde.ledger import Budget, BudgetExceededError, Composition, Ledger, LedgerUnavailableError
from privkde.ledger.tables import charge_table, history_table, quote_table, standings_table

EXIT_EXCEEDED = 1
VARIABLE = "PRIVKDE_LEDGER"
DEFAULT = "privkde-ledger.sqlite"


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `budget`."""
    budget = commands.add_parser(
        "budget",
        help="charge releases against a privacy budget",
        description="Budgets that releases are charged against. Exit code: 0 done, 1 budget exceeded, 2 bad input.",
        allow_abbrev=False,
    )
    actions = budget.add_subparsers(dest="action", required=True, parser_class=Parser, metavar="ACTION")
    for add in (_add_create, _add_charge, _add_show, _add_history):
        action = add(actions)
        action.add_argument(
            "--ledger",
            metavar="PATH|URL",
            default=os.environ.get(VARIABLE) or DEFAULT,
            help=f"file, or postgresql://… (default: ${VARIABLE}, else {DEFAULT})",
        )


def _add_create(actions: argparse._SubParsersAction[Any]) -> argparse.ArgumentParser:
    create: argparse.ArgumentParser = actions.add_parser("create", help="open a new budget", allow_abbrev=False)
    create.add_argument("budget", metavar="NAME")
    create.add_argument("--epsilon", type=real, required=True, metavar="X", help="ε that may be spent in all")
    create.add_argument("--delta", type=real, required=True, metavar="X", help="δ of the whole promise")
    create.add_argument("--view", default="communication", help="communication (default) or model")
    create.add_argument(
        "--composition",
        default=str(Composition.PLD),
        help="pld (default): releases are fixed beforehand; basic: the next may be chosen after seeing the last",
    )
    create.set_defaults(run=_create)
    return create


def _add_charge(actions: argparse._SubParsersAction[Any]) -> argparse.ArgumentParser:
    charge: argparse.ArgumentParser = actions.add_parser(
        "charge", help="charge a release, before it is published", allow_abbrev=False
    )
    charge.add_argument("budget", metavar="NAME")
    what = charge.add_mutually_exclusive_group(required=True)
    what.add_argument("--plan", type=Path, metavar="FILE", help="a collection by this plan")
    what.add_argument("--epsilon", type=real, metavar="X", help="anything that is (ε, δ)-DP for replacing one record")
    charge.add_argument("--delta", type=real, metavar="X", help="with --epsilon (default: 0)")
    charge.add_argument("--name", dest="release", required=True, metavar="TEXT", help="what is released, for people")
    charge.add_argument("--key", metavar="TEXT", help="the same key is charged once only (default: a fresh one)")
    charge.add_argument("--dry-run", action="store_true", help="say what it would cost, and charge nothing")
    charge.set_defaults(run=_charge)
    return charge


def _add_show(actions: argparse._SubParsersAction[Any]) -> argparse.ArgumentParser:
    show: argparse.ArgumentParser = actions.add_parser(
        "show", help="what is spent and what is left", allow_abbrev=False
    )
    show.add_argument("budget", metavar="NAME", nargs="?", help="one budget only")
    show.add_argument("--json", action="store_true", help="print JSON")
    show.set_defaults(run=_show)
    return show


def _add_history(actions: argparse._SubParsersAction[Any]) -> argparse.ArgumentParser:
    history: argparse.ArgumentParser = actions.add_parser("history", help="all charges of a budget", allow_abbrev=False)
    history.add_argument("budget", metavar="NAME")
    history.add_argument("--json", action="store_true", help="print JSON (schema privkde.charge/1)")
    history.set_defaults(run=_history)
    return history


def _create(parsed: argparse.Namespace) -> None:
    with Ledger.open(parsed.ledger) as ledger:
        budget = ledger.create(
            parsed.budget,
            epsilon=parsed.epsilon,
            delta=parsed.delta,
            view=parsed.view,
            composition=parsed.composition,
        )
        standing = ledger.standing(budget.name)
    Console().print(standings_table([standing]))


def _charge(parsed: argparse.Namespace) -> int:
    """The exit code: 1 if the budget is exceeded, and then nothing is charged."""
    if parsed.plan is not None and parsed.delta is not None:
        raise InvalidInputError("--delta has no effect with --plan, which names its own; leave it out.")
    plan = None if parsed.plan is None else _read_plan(parsed.plan)
    console = Console()
    with Ledger.open(parsed.ledger, create=False) as ledger:
        release = _release(parsed, plan, ledger.standing(parsed.budget).budget)
        if parsed.dry_run:
            quote = ledger.quote(parsed.budget, release)
            console.print(quote_table(quote))
            return 0 if quote.fits else EXIT_EXCEEDED
        key = secrets.token_hex(8) if parsed.key is None else parsed.key
        try:
            charge = ledger.charge(parsed.budget, release, key=key, plan_sha256=None if plan is None else plan.sha256())
        except BudgetExceededError as error:
            print(f"privkde: refused: {error}", file=sys.stderr)
            return EXIT_EXCEEDED
        except LedgerUnavailableError as error:  # it may have been charged: only the key can tell
            raise LedgerUnavailableError(f"{error} The key is {key!r}.") from error
        standing = ledger.standing(parsed.budget)
    console.print(charge_table(charge, standing))
    return 0


def _read_plan(path: Path) -> Plan:
    try:
        return Plan.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError(f"{str(path)!r} is no JSON; write it with `privkde plan --output`.") from error


def _release(parsed: argparse.Namespace, plan: Plan | None, budget: Budget) -> Release:
    """What is to be charged, stated for the budget's view."""
    if plan is not None:
        return Release.of_plan(parsed.release, plan, view=budget.view)
    promise = Guarantee(
        epsilon=parsed.epsilon,
        delta=parsed.delta or 0.0,
        adjacency=budget.guarantee.adjacency,
        view=budget.view,
    )
    return Release.of_guarantee(parsed.release, promise)


def _show(parsed: argparse.Namespace) -> None:
    with Ledger.open(parsed.ledger, create=False) as ledger:
        names = [parsed.budget] if parsed.budget else [budget.name for budget in ledger.budgets()]
        standings = [ledger.standing(name) for name in names]
    if parsed.json:
        documents = [standing.to_json() for standing in standings]
        _write_json(documents[0] if parsed.budget else documents)
        return
    Console().print(standings_table(standings))


def _history(parsed: argparse.Namespace) -> None:
    with Ledger.open(parsed.ledger, create=False) as ledger:
        charges = ledger.history(parsed.budget)
    if parsed.json:
        _write_json([charge.to_json() for charge in charges])
        return
    Console().print(history_table(parsed.budget, charges))


def _write_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
