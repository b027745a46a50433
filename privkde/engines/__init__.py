"""How a collection is executed: in this process (`local`), or by Apache Beam over many machines (`beam`)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from accounting.errors import InvalidInputError, require_choice
from privkde.announcement import Announcement
from privkde.blocks import Progress
from privkde.engines.users import Users
from privkde.parties import Analyzer
from privkde.randomness import ByteStream

ENGINES = ("local", "beam")


class Collector(Protocol):
    """What runs a whole collection: users, shuffler and analyzer."""

    def play(
        self, users: Users, *, stream: ByteStream, path: str = "aggregated", progress: Progress | None = None
    ) -> Analyzer:
        """The analyzer's counts after these users took part."""


class Engine(Collector, Protocol):
    """Also runs clients and shuffler apart. Equal seeds and equal packets give equal counts on every engine."""

    def randomize(
        self,
        users: Users,
        folder: Path,
        *,
        stream: ByteStream,
        suffix: str = ".packets",
        progress: Progress | None = None,
    ) -> None:
        """Play these users as clients, and write their packets to files in `folder`."""

    def count(self, announcement: Announcement, files: Sequence[str], progress: Progress | None = None) -> Analyzer:
        """Count the packets of these files as a shuffler; refused for fewer users than the noise counts on."""


def engine(name: str, *, runner: str | None = None, workers: int = 1, options: Sequence[str] = ()) -> Engine:
    """The engine of this name; runner, workers and options are Beam's."""
    if require_choice("engine", name, ENGINES) == "beam":
        require_beam()
        from privkde.engines.beam import BeamEngine

        return BeamEngine(runner=runner, workers=workers, options=tuple(options))
    if runner is not None or workers != 1 or options:
        raise InvalidInputError("runner, workers and further options are for the engine 'beam'; leave them out.")
    from privkde.engines.local import LocalEngine

    return LocalEngine()


def require_beam() -> None:
    """A clear error if Apache Beam is not installed."""
    if find_spec("apache_beam") is None:
        raise InvalidInputError(
            "the engine 'beam' needs apache-beam; install the extra with `pip install 'privkde[beam]'`."
        )
