"""What a saboteur is: one planted fault, its story, and the plan that it is tried on."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest import mock

from accounting import Plan, PlanRequest
from accounting.planning import plan as make_plan

PACKAGES = ("accounting", "privkde", "verification")

Plant = Callable[[], AbstractContextManager[Any]]
Right = Callable[..., Any]
"""What a fault stands in for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saboteur:
    """A fault that somebody could have made. While it is planted, exactly one thing in the library is wrong.

    The plan is made, and all checks run, with the fault planted.
    """

    name: str
    story: str
    request: PlanRequest
    plant: Plant = field(default=nullcontext, hash=False, compare=False)

    @contextmanager
    def at_work(self) -> Iterator[Plan]:
        """The plan of a system with this fault in it; nothing of the fault is left afterwards."""
        with self.plant():
            forget()
            try:
                yield make_plan(self.request)
            finally:
                forget()


def forget() -> None:
    """Clear every `lru_cache` in the three packages: a fault neither meets old results nor leaves any behind."""
    loaded = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in PACKAGES]
    for module in loaded:
        for value in list(vars(module).values()):
            clear = getattr(value, "cache_clear", None)
            if callable(clear):
                clear()


def fault(name: str, request: PlanRequest, owner: Any, attribute: str) -> Callable[[Callable[..., Any]], Saboteur]:
    """Make a saboteur of a function that is called instead of what `owner` has under this name.

    It gets what is right as its first argument, then the arguments of the call. What is replaced is a method, a
    property or a function of a module. The docstring is the story.
    """

    def saboteur(wrong: Callable[..., Any]) -> Saboteur:
        def plant() -> AbstractContextManager[Any]:
            return mock.patch.object(owner, attribute, _replacement(inspect.getattr_static(owner, attribute), wrong))

        return Saboteur(name=name, story=" ".join((wrong.__doc__ or "").split()), request=request, plant=plant)

    return saboteur


def _replacement(right: Any, wrong: Callable[..., Any]) -> Any:
    """`wrong` as what `right` is: a property, a static method or a function."""
    if isinstance(right, property):
        return property(lambda self: wrong(right.fget, self))
    if isinstance(right, staticmethod):
        return staticmethod(partial(wrong, right.__func__))
    return lambda *arguments, **options: wrong(right, *arguments, **options)
