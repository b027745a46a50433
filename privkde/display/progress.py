"""Progress bars of long work, on standard error, so that they never mix with results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from privkde.storage.user_blocks import Progress as Advance


class Tracker:
    """Shows what is being done; silent if nobody watches."""

    def __init__(self, bars: Progress | None) -> None:
        self._bars = bars

    def step(self, text: str) -> None:
        """Name a step of unknown length."""
        if self._bars is not None:
            self._bars.console.print(f"[dim]{escape(text)}[/dim]", highlight=False)

    def bar(self, text: str, total: int) -> Advance | None:
        """A bar over `total` users; call the result with the number that were just done."""
        if self._bars is None:
            return None
        bars, task = self._bars, self._bars.add_task(escape(text), total=total)

        def advance(done: int) -> None:
            bars.advance(task, done)

        return advance


@contextmanager
def tracked(shown: bool) -> Iterator[Tracker]:
    """A tracker for the length of a block."""
    if not shown:
        yield Tracker(None)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        yield Tracker(bars)
