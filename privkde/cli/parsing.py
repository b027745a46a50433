"""What the commands share: numbers, plans, options and one-line errors."""

from __future__ import annotations

import argparse
import difflib
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from accounting import Plan

EXIT_EXCEEDED = 1
"""A budget does not pay for it: nothing was charged."""
EXIT_BAD_INPUT = 2


def whole(text: str) -> int:
    """An option that is a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, for example 30000") from None


def real(text: str) -> float:
    """An option that is a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number, for example 0.5 or 1e-6") from None


def class_names(text: str) -> tuple[str, ...] | int:
    """An option that is a set of classes: their names, or how many there are if they are 0, 1, and so on."""
    names = tuple(name.strip() for name in text.split(","))
    if len(names) == 1:
        try:
            return int(text)
        except ValueError:
            names = ()
    if not names or not all(names) or len({*names}) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r} must be different names, for example spam,ham, or a whole number")
    return names


def share(text: str) -> float:
    """An option that is a share, also as a percentage, or a number."""
    if not text.endswith("%"):
        return real(text)
    if not 0.0 <= real(text[:-1]) < 100.0:
        raise argparse.ArgumentTypeError(f"{text!r} must be at least 0% and below 100%, for example 30%")
    return float(Decimal(text[:-1]) / 100)


def read_plan(path: Path) -> Plan:
    """The plan in a file, not verified."""
    from accounting import Plan  # here: `--help` and `--version` need no accountant
    from privkde.storage.json_text import read_json

    return Plan.from_json(read_json(path, "write it with `privkde plan --output`."))


class Parser(argparse.ArgumentParser):
    """Reports errors in one line, with exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Print the message, with the nearest option for a misspelled one, and stop."""
        if message.startswith("unrecognized arguments:"):
            word = message.split(":", 1)[1].split(maxsplit=1)[0]
            near = difflib.get_close_matches(word, _options(self), n=1)
            message += f". Did you mean {near[0]}?" if near else f"; see `{self.prog} --help`."
        fail(message)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """Every option string of the parser and of its commands."""
    options = [option for action in parser._actions for option in action.option_strings]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                options += _options(command)
    return options


def fail(message: str) -> NoReturn:
    """Print one line and stop with the exit code of bad input."""
    from accounting.errors import printable

    print(f"privkde: error: {printable(message)}", file=sys.stderr)
    raise SystemExit(EXIT_BAD_INPUT)
