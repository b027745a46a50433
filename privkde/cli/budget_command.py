"""`privkde budget`: budgets that releases are charged against, before they are published."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import secrets
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console

from accounting import Guarantee, InvalidInputError, Plan
from accounting.checking import Proof, read_proof, require_proof
from accounting.errors import printable
from accounting.releases.release import Release
from privkde.cli.ledger_options import KEY_VARIABLE, add_ledger_options, ledger_key, open_ledger
from privkde.cli.parsing import EXIT_EXCEEDED, Parser, read_plan, real, whole
from privkde.display.progress import working
from privkde.display.tables import (
    charge_table,
    history_table,
    quote_table,
    standing_details,
    standings_table,
    uses_table,
)
from privkde.ledger import Budget, Composition, Head, Ledger, LedgerUnavailableError
from privkde.storage.json_text import read_json


def add_budget(budget: argparse.ArgumentParser) -> None:
    """Add the options of `budget`."""
    budget.description = "Budgets that releases are charged against. Exit code: 0 done, 1 budget exceeded, 2 bad input."
    actions = budget.add_subparsers(dest="action", required=True, parser_class=Parser, metavar="ACTION")
    for name, summary, add_options, run in (
        ("create", "open a new budget", _add_create, _create),
        ("charge", "charge a release, before it is published", _add_charge, _charge),
        ("use", "use one collection of a schedule, before it is published", _add_use, _use),
        ("show", "what is spent and what is left", _add_show, _show),
        ("history", "all charges of a budget", _add_history, _history),
        ("verify", "check that nothing was altered, removed, inserted or moved", _add_verify, _verify),
        ("head", "what to keep elsewhere, and to verify against later", _add_nothing, _head),
        ("seal", "give a ledger without a key one, for good", _add_nothing, _seal),
        ("backup", "copy a ledger in a file, and check the copy", _add_backup, _backup),
    ):
        action = actions.add_parser(name, help=summary, allow_abbrev=False)
        add_options(action)
        action.set_defaults(run=run)
        add_ledger_options(action)


def _add_create(create: argparse.ArgumentParser) -> None:
    create.add_argument("budget", metavar="NAME")
    create.add_argument("--epsilon", type=real, required=True, metavar="X", help="ε that may be spent in all")
    create.add_argument("--delta", type=real, required=True, metavar="X", help="δ of the whole promise")
    create.add_argument("--view", default="communication", help="communication (default) or model")
    create.add_argument(
        "--composition",
        default=str(Composition.ADAPTIVE),
        help="adaptive (default): the next release may be chosen after seeing the last; basic: likewise, and ε and δ"
        " add up; pld: all releases are fixed beforehand",
    )


def _add_charge(charge: argparse.ArgumentParser) -> None:
    charge.add_argument("budget", metavar="NAME")
    what = charge.add_mutually_exclusive_group(required=True)
    what.add_argument("--plan", type=Path, metavar="FILE", help="a collection by this plan")
    what.add_argument("--epsilon", type=real, metavar="X", help="anything that is (ε, δ)-DP for replacing one record")
    what.add_argument("--release", dest="document", type=Path, metavar="FILE", help="what `Release.dumps` wrote")
    charge.add_argument("--delta", type=real, metavar="X", help="with --epsilon (default: 0)")
    charge.add_argument("--name", dest="release", required=True, metavar="TEXT", help="what is released, for people")
    charge.add_argument("--key", metavar="TEXT", help="a key is charged only once (default: a fresh key)")
    charge.add_argument(
        "--times", type=whole, default=1, metavar="N", help="a schedule: this release N times (default: 1)"
    )
    charge.add_argument("--cohort", metavar="NAME", help="the only people it is about; cohorts share nobody")
    charge.add_argument(
        "--certificate", type=Path, metavar="FILE", help="with --plan: its certificate, proved again and kept"
    )
    charge.add_argument("--dry-run", action="store_true", help="say what it would cost, and charge nothing")


def _add_use(use: argparse.ArgumentParser) -> None:
    use.add_argument("budget", metavar="NAME")
    use.add_argument("schedule", metavar="KEY", help="the key with which the schedule was charged")
    use.add_argument("--key", required=True, metavar="TEXT", help="a key is counted only once")
    use.add_argument("--plan", type=Path, metavar="FILE", help="the plan that is run: the one that was charged")


def _add_show(show: argparse.ArgumentParser) -> None:
    show.add_argument("budget", metavar="NAME", nargs="?", help="one budget only")
    show.add_argument("--json", action="store_true", help="print JSON")


def _add_history(history: argparse.ArgumentParser) -> None:
    history.add_argument("budget", metavar="NAME")
    history.add_argument("--json", action="store_true", help="print JSON (schema privkde.charge/1)")


def _add_verify(verify: argparse.ArgumentParser) -> None:
    verify.add_argument("--head", metavar="FILE|HEX", help="a head that `head` printed earlier, or its digest")


def _add_backup(backup: argparse.ArgumentParser) -> None:
    backup.add_argument("file", type=Path, metavar="FILE", help="a new file")


def _add_nothing(_: argparse.ArgumentParser) -> None:
    """No options but those of the ledger."""


def _create(parsed: argparse.Namespace) -> None:
    with open_ledger(parsed, create=True) as ledger:
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
    """Returns the exit code: 1 if a dry run does not fit."""
    if parsed.epsilon is None and parsed.delta is not None:
        raise InvalidInputError("--delta belongs to --epsilon: plans and releases name their own; leave it out.")
    plan = None if parsed.plan is None else read_plan(parsed.plan)
    proof = None if parsed.certificate is None else _proof(parsed.certificate, plan)
    console = Console()
    with open_ledger(parsed) as ledger:
        release = _release(parsed, plan, ledger.standing(parsed.budget).budget)
        if parsed.dry_run:
            quote = ledger.quote(parsed.budget, release, cohort=parsed.cohort)
            console.print(quote_table(quote))
            return 0 if quote.fits else EXIT_EXCEEDED
        key = secrets.token_hex(8) if parsed.key is None else parsed.key
        try:
            digest = None if plan is None else plan.sha256()
            with nullcontext() if proof is None else working("proving the certificate again"):
                charge = ledger.charge(
                    parsed.budget,
                    release,
                    key=key,
                    plan_sha256=digest,
                    cohort=parsed.cohort,
                    certificate=proof,
                    plan=plan,
                )
        except LedgerUnavailableError as error:  # it may have been charged; charging again with the key is safe
            raise LedgerUnavailableError(f"{error} The key is {key!r}.") from error
        standing = ledger.standing(parsed.budget)
    console.print(charge_table(charge, standing))
    return 0


def _proof(path: Path, plan: Plan | None) -> Proof:
    """The certificate in a file, if it says that it proves the plan."""
    if plan is None:
        raise InvalidInputError("--certificate belongs to --plan; add it, or leave it out.")
    return require_proof(read_proof(read_json(path, "write it with `privkde plan --certify`.")), plan.sha256())


def _release(parsed: argparse.Namespace, plan: Plan | None, budget: Budget) -> Release:
    """The release to charge, stated for the budget's view."""
    if plan is not None:
        return Release.of_plan(parsed.release, plan, view=budget.view, times=parsed.times)
    if parsed.document is not None:
        release = Release.from_json(read_json(parsed.document, "write it with `Release.dumps`."))
        return dataclasses.replace(release, name=parsed.release).repeated(parsed.times)
    promise = Guarantee(
        epsilon=parsed.epsilon,
        delta=parsed.delta or 0.0,
        adjacency=budget.guarantee.adjacency,
        view=budget.view,
    )
    return Release.of_guarantee(parsed.release, promise, times=parsed.times)


def _use(parsed: argparse.Namespace) -> None:
    digest = None if parsed.plan is None else read_plan(parsed.plan).sha256()
    with open_ledger(parsed) as ledger:
        use = ledger.use(parsed.budget, parsed.schedule, key=parsed.key, plan_sha256=digest)
    print(f"use {use.number} of schedule {use.schedule!r} of budget {use.budget!r}")


def _show(parsed: argparse.Namespace) -> None:
    with open_ledger(parsed) as ledger:
        names = [parsed.budget] if parsed.budget else [budget.name for budget in ledger.budgets()]
        standings = [ledger.standing(name) for name in names]
    if parsed.json:
        documents = [standing.to_json() for standing in standings]
        _write_json(documents[0] if parsed.budget else documents)
        return
    details = standing_details(standings[0]) if parsed.budget else []
    Console().print(standings_table(standings), *details, sep="\n")


def _history(parsed: argparse.Namespace) -> None:
    with open_ledger(parsed) as ledger:
        charges, uses = ledger.history(parsed.budget), ledger.uses(parsed.budget)
    if parsed.json:
        _write_json([charge.to_json() for charge in charges])
        return
    Console().print(history_table(parsed.budget, charges))
    if uses:
        Console().print(uses_table(uses))


def _verify(parsed: argparse.Namespace) -> None:
    known = None if parsed.head is None else _known_head(parsed.head)
    with open_ledger(parsed) as ledger:
        head = ledger.verify(known)
    print(f"{head.rows} rows, nothing was altered within them; head {head.digest}")
    if known is not None:
        print("it continues from the exported head: nothing from before was removed")
    else:
        print("an old copy would pass, too: only --head finds that")
    if ledger_key(parsed.ledger_key) is None:
        print("without a key, whoever can write the ledger can also write all of it again")


def _known_head(text: str) -> Head:
    """A head in a file, or its digest."""
    if re.fullmatch("[0-9a-f]{64}", text):
        return Head(rows=None, digest=text)
    return Head.from_json(read_json(Path(text), "write it with `privkde budget head`."))


def _head(parsed: argparse.Namespace) -> None:
    with open_ledger(parsed) as ledger:
        _write_json(ledger.head().to_json())


def _seal(parsed: argparse.Namespace) -> None:
    key = ledger_key(parsed.ledger_key)
    if key is None:
        raise InvalidInputError(f"no key was given; put it into {KEY_VARIABLE}, or name a file with --ledger-key.")
    with Ledger.open(parsed.ledger, create=False) as ledger:
        head = ledger.seal(key)
    print(f"{head.rows} rows have the key now; keep it, nothing can be read or charged without it. Head {head.digest}")


def _backup(parsed: argparse.Namespace) -> None:
    with open_ledger(parsed) as ledger:
        head = ledger.backup(parsed.file)
    print(f"{printable(str(parsed.file))}: {head.rows} rows, checked; head {head.digest}")


def _write_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
