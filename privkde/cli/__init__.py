"""The command line: planning, collections, audits, budgets and the service."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence

import privkde
from privkde.cli.commands import registered
from privkde.cli.interruption import ENDED_BY_SIGNAL, Interrupted, interruptible
from privkde.cli.parsing import EXIT_EXCEEDED, Parser, fail


def build_parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The command line with the options of all commands, or of the chosen one only: the others are not loaded."""
    parser = Parser(prog="privkde", description="Plan, explain, run and account for shuffled private kernel densities.")
    parser.add_argument("--version", action="version", version=f"privkde {privkde.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser, metavar="COMMAND")
    for command in registered().values():
        options = commands.add_parser(command.name, help=command.summary, allow_abbrev=False)
        if chosen in (None, command.name):
            command.add_options(options)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the command's exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows no Greek gets escapes, and no traceback
            stream.reconfigure(errors="backslashreplace")
    given, further = split(sys.argv[1:] if arguments is None else arguments)
    parsed = build_parser(given[0] if given else "").parse_args(given, argparse.Namespace(further=further))
    return exit_code(parsed)


def exit_code(parsed: argparse.Namespace) -> int:
    """Do what the command line asks for. A mistake that users can mend, or a signal, is one line on stderr."""
    from accounting.errors import PrivkdeError  # after `--help` and `--version`, which need no accountant
    from privkde.ledger.refusals import BudgetExceededError, ScheduleUsedUpError

    try:
        with interruptible():
            return int(parsed.run(parsed) or 0)
    except (BudgetExceededError, ScheduleUsedUpError) as error:
        print(f"privkde: refused: {error}", file=sys.stderr)
        return EXIT_EXCEEDED
    except PrivkdeError as error:
        fail(str(error))
    except MemoryError:
        fail("this takes more memory than there is; ask for less, or run it where there is more.")
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt as error:
        ended = error if isinstance(error, Interrupted) else Interrupted()
        print(f"privkde: {ended}", file=sys.stderr)
        return ENDED_BY_SIGNAL + ended.number
    except OSError as error:
        fail(f"{error.strerror}: {error.filename!r}; choose another path.")


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The command line up to `--`, and what `collect` passes on to Beam after it."""
    given = list(arguments)
    if given[:1] != ["collect"] or "--" not in given:
        return given, []
    at = given.index("--")
    return given[:at], given[at + 1 :]
