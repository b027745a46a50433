"""Things by name: what a request may choose from."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection
from typing import Any, Protocol, TypeVar

from accounting.errors import InvalidInputError

AUTO = "auto"
"""The name that leaves a choice to the planner."""


class Named(Protocol):
    """Anything that a request can name."""

    @property
    def name(self) -> str:
        """The name."""


T = TypeVar("T", bound=Named)


class Registry(dict[str, T]):
    """Things by name, in the order in which they were registered; `del` takes one out again."""

    def register(self, *things: T) -> None:
        """Add things under their own names; raises `InvalidInputError` if a name is taken."""
        for thing in things:
            if thing.name in self or thing.name == AUTO:
                raise InvalidInputError(f"name={thing.name!r} is taken; choose another name.")
            self[thing.name] = thing


def or_auto(registry: Registry[Any]) -> Collection[str]:
    """The names in a registry as it is at any time, and `auto` after them."""
    return ChainMap({AUTO: None}, registry)
