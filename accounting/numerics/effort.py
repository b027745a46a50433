"""A limit on the processor time of a computation that somebody else asks for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from accounting.errors import PrivkdeError, require_real

LONGEST = 86_400.0
"""Seconds: a limit of more than a day is none."""

_ends: ContextVar[float] = ContextVar("ends", default=float("inf"))


class TooMuchWorkError(PrivkdeError):
    """A computation takes more processor time than it may."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Stop what is computed in this block, by this thread, once it has taken so much processor time.

    The limit is exceeded by one step between two looks at the clock (`require_time`), usually a fraction of a second.
    With laws that are as large as they may be a step took up to 1.5 s, and one convolution of dp-accounting 3.5 s.
    Limits nest: the earlier end holds.
    """
    limit = require_real("most_seconds", seconds, low=0.0, high=LONGEST)
    ends = _ends.set(min(_ends.get(), time.thread_time() + limit))
    try:
        yield
    finally:
        _ends.reset(ends)


def require_time() -> None:
    """Raise `TooMuchWorkError` if the time is up: called by the steps that computations spend their time in."""
    if time.thread_time() > _ends.get():
        raise TooMuchWorkError(
            "this takes more processor time than it may; ask for less (fewer users, repetitions or releases, a larger"
            " delta), or allow more seconds."
        )
