"""The commands of the command line. A package registers its own under the entry point `privkde.commands`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points

ENTRY_POINTS = "privkde.commands"


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name, its line in `--help`, and the function that adds its options once it is chosen."""

    name: str
    summary: str
    target: str
    """`module:function`; the function adds options to a parser and sets `run` to what the command does."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Load the command's module and add its options."""
        module, _, function = self.target.partition(":")
        add: Callable[[argparse.ArgumentParser], None] = getattr(import_module(module), function)
        add(parser)


COMMANDS = (
    Command("plan", "set the noise for a promise, and explain it", "privkde.cli.plan_command:add_plan"),
    Command("fit", "fit a private classifier or density to vectors in a file", "privkde.cli.fit_command:add_fit"),
    Command("predict", "classes or densities of vectors in a file", "privkde.cli.fit_command:add_predict"),
    Command("decode", "name each class by public vocabulary terms", "privkde.cli.fit_command:add_decode"),
    Command(
        "collect",
        "run a collection on one or many machines, from vectors or from packets",
        "privkde.cli.collect_command:add_collect",
    ),
    Command("budget", "charge releases against a privacy budget", "privkde.cli.budget_command:add_budget"),
    Command("serve", "the planner over HTTP, with a page", "privkde.cli.serve_command:add_serve"),
)


def registered() -> dict[str, Command]:
    """Every registered command by its name, this package's first."""
    commands = {command.name: command for command in COMMANDS}
    for point in entry_points(group=ENTRY_POINTS):
        commands |= {command.name: command for command in point.load() if command.name not in commands}
    return commands
