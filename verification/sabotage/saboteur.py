"""What a saboteur is: one planted fault, its story, and the plan that it is tried on."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from accounting import Plan, PlanRequest
from accounting.planning import plan as make_plan

PACKAGES = ("accounting", "privkde", "verification")

Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saboteur:
    """A fault that somebody could have made. While it is planted, exactly one thing in the library is wrong.

    The plan is made, and all checks run, with the fault planted; `tamper` alters the finished plan instead.
    """

    name: str
    story: str
    request: PlanRequest
    plant: Plant = field(default=nullcontext, hash=False, compare=False)
    tamper: Callable[[Plan], Plan] | None = field(default=None, hash=False, compare=False)

    @contextmanager
    def at_work(self) -> Iterator[Plan]:
        """The plan of a system with this fault in it; nothing of the fault is left afterwards."""
        with self.plant(), forgetful():
            made = make_plan(self.request)
            yield made if self.tamper is None else self.tamper(made)


@contextmanager
def forgetful() -> Iterator[None]:
    """Forget what the library remembers, before and after: a fault neither meets old results nor leaves any."""
    forget()
    try:
        yield
    finally:
        forget()


def forget() -> None:
    """Clear every `lru_cache` in the three packages, those that other modules hold included."""
    loaded = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in PACKAGES]
    for module in loaded:
        for value in list(vars(module).values()):
            clear = getattr(value, "cache_clear", None)
            if callable(clear):
                clear()
    gc.collect()


def replaced(owner: Any, name: str, wrong: Callable[[Any], Any]) -> Plant:
    """Plant `wrong(right)` where `right` is what `owner` has under this name: a method, a property or a function."""

    def plant() -> AbstractContextManager[Any]:
        right = vars(owner)[name]
        unwrapped = right.__func__ if isinstance(right, staticmethod) else right
        changed = wrong(unwrapped)
        return mock.patch.object(owner, name, staticmethod(changed) if isinstance(right, staticmethod) else changed)

    return plant
