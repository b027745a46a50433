"""What every command shares: numbers, options and one-line errors."""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import NoReturn

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


class Parser(argparse.ArgumentParser):
    """One-line errors with exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Print the message, suggest the nearest option for a misspelt one, and stop."""
        if message.startswith("unrecognized arguments:"):
            word = message.split(":", 1)[1].split(maxsplit=1)[0]
            near = difflib.get_close_matches(word, _options(self), n=1)
            message += f". Did you mean {near[0]}?" if near else f"; see `{self.prog} --help`."
        fail(message)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """Every option string of the parser and of its commands."""
    found = [option for action in parser._actions for option in action.option_strings]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                found += _options(command)
    return found


def fail(message: str) -> NoReturn:
    """Print one line and stop with the exit code of bad input."""
    print(f"privkde: error: {message}", file=sys.stderr)
    raise SystemExit(EXIT_BAD_INPUT)
