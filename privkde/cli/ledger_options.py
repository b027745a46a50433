"""Options that name a ledger, its key, and the budget that a collection is paid from."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accounting import InvalidInputError
from privkde.ledger import Account, Ledger
from privkde.storage.files import kept_by_sqlite

VARIABLE = "PRIVKDE_LEDGER"
KEY_VARIABLE = "PRIVKDE_LEDGER_KEY"
DEFAULT = "privkde-ledger.sqlite"
LONGEST_KEY = 1 << 16
"""Bytes of a file that holds a key."""


def add_ledger_options(parser: argparse._ActionsContainer) -> None:
    """Where the ledger is, and its key."""
    parser.add_argument(
        "--ledger",
        metavar="PATH|URL",
        default=os.environ.get(VARIABLE) or DEFAULT,
        help=f"file, or postgresql://… (default: ${VARIABLE}, else {DEFAULT})",
    )
    add_ledger_key(parser)


def add_ledger_key(parser: argparse._ActionsContainer) -> None:
    """The key is never an argument itself: others can see those."""
    parser.add_argument(
        "--ledger-key",
        type=Path,
        metavar="FILE",
        help=f"file that holds the ledger's key (default: the key in ${KEY_VARIABLE}, else none)",
    )


def add_paying_options(parser: argparse.ArgumentParser) -> None:
    """From which budget a collection is paid."""
    paying = parser.add_argument_group("budget")
    paying.add_argument("--budget", metavar="NAME", help="charge this budget first; refused if too little is left")
    paying.add_argument(
        "--key", metavar="TEXT", help="with --budget: a key is charged only once (default: the collection's id)"
    )
    paying.add_argument("--cohort", metavar="NAME", help="with --budget: the only people it is about")
    add_ledger_options(paying)


def ledger_key(path: Path | None) -> bytes | None:
    """The key in a file or in the environment; None without either."""
    if path is not None:
        with path.open("rb") as file:
            held = file.read(LONGEST_KEY + 1)
        if len(held) > LONGEST_KEY:
            raise InvalidInputError(
                f"the key in {str(path)!r} has more than {LONGEST_KEY:,} bytes; make one with `openssl rand -hex 32`."
            )
        return held.strip()
    return os.fsencode(os.environ.get(KEY_VARIABLE, "")) or None


def ledger_files(parsed: argparse.Namespace) -> list[Path]:
    """The files of the ledger, also if nothing is paid from it, and of its key: no output may take their place."""
    key = [] if parsed.ledger_key is None else [parsed.ledger_key]
    return key if "://" in parsed.ledger else key + kept_by_sqlite(Path(parsed.ledger))


def open_ledger(parsed: argparse.Namespace, *, create: bool = False) -> Ledger:
    """The ledger that the options name."""
    return Ledger.open(parsed.ledger, create=create, key=ledger_key(parsed.ledger_key))


@contextmanager
def paying(parsed: argparse.Namespace) -> Iterator[Account | None]:
    """What the collection is paid from, or None without `--budget`."""
    if parsed.budget is None:
        if parsed.key is not None or parsed.cohort is not None:
            raise InvalidInputError("--key and --cohort belong to --budget; add it, or leave them out.")
        yield None
        return
    with open_ledger(parsed) as ledger:
        yield ledger.account(parsed.budget, key=parsed.key, cohort=parsed.cohort)
