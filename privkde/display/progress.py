"""Progress bars of long work, on standard error, so that they never mix with results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from accounting.errors import printable
from privkde.storage.user_blocks import Progress as Advance


class Tracker:
    """Shows what is being done, where its bars are shown."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars

    def step(self, text: str) -> None:
        """Name a step of unknown length."""
        self._bars.console.print(f"[dim]{escape(printable(text))}[/dim]", highlight=False)

    def bar(self, text: str, total: int) -> Advance:
        """A bar over `total` users; call the result with the number that were just done."""
        return partial(self._bars.advance, self._bars.add_task(escape(printable(text)), total=total))


@contextmanager
def tracked(shown: bool) -> Iterator[Tracker]:
    """A tracker for the length of a block; silent if nobody watches."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True, quiet=not shown), disable=not shown) as bars:
        yield Tracker(bars)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Shows one long step, and for how long it has been going on."""
    with tracked(sys.stderr.isatty()) as tracker:
        advance = tracker.bar(text, 1)
        yield
        advance(1)
