"""The command line: planning, texts, collections, audits, budgets, the service and the paper's experiments."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import privkde
from accounting import PrivkdeError
from privkde.cli import (
    auditing,
    budgeting,
    collecting,
    demonstration,
    embedding,
    learning,
    planning,
    reproduction,
    serving,
)
from privkde.cli.parsing import Parser, fail

INTERRUPTED = 130


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = Parser(prog="privkde", description="Plan, explain, run and account for shuffled private kernel densities.")
    parser.add_argument("--version", action="version", version=f"privkde {privkde.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser, metavar="COMMAND")
    planning.add_commands(commands)
    embedding.add_commands(commands)
    learning.add_commands(commands)
    collecting.add_commands(commands)
    demonstration.add_commands(commands)
    auditing.add_commands(commands)
    budgeting.add_commands(commands)
    serving.add_commands(commands)
    reproduction.add_commands(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: that of the command, 0 if it has none."""
    given, further = collecting.split(sys.argv[1:] if arguments is None else arguments)
    parsed = build_parser().parse_args(given, argparse.Namespace(further=further))
    try:
        return int(parsed.run(parsed) or 0)
    except PrivkdeError as error:
        fail(str(error))
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        fail(f"{error.strerror}: {error.filename!r}; choose another path.")
