"""Who executes a collection: this process (`local`), or Apache Beam over many machines (`beam`)."""

from __future__ import annotations

import abc
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from accounting.errors import InvalidInputError, require_choice
from privkde.draws.randomness import ByteStream
from privkde.engines.users import Users
from privkde.protocol.announcement import Announcement
from privkde.protocol.counting import PartialCounts, released
from privkde.protocol.parties import Analyzer, register_of
from privkde.storage.files import write_text
from privkde.storage.packets import SUFFIXES, require_unanswered
from privkde.storage.report_register import ReportRegister, register_beside
from privkde.storage.user_blocks import Progress

ENGINES = ("local", "beam")
PATHS = ("aggregated", "faithful")
ANNOUNCEMENT = "announcement.json"


class Engine(abc.ABC):
    """Runs a whole collection, users, shuffler and analyzer; it can also run clients and shuffler apart.

    Equal seeds and equal packets give equal counts on every engine.
    """

    def play(
        self, users: Users, *, stream: ByteStream, path: str = "aggregated", progress: Progress | None = None
    ) -> Analyzer:
        """The analyzer's counts after these users took part.

        `faithful` runs every party: all messages, noise and flood included, are packed, sent, shuffled, unpacked and
        counted. `aggregated` draws the same bits, but the noise of all users at once and only as counts. The counts
        of both have the same law, because the noise is infinitely divisible (docs/proofs/sampling.md).
        """
        run = self._faithful if require_choice("path", path, PATHS) == "faithful" else self._aggregated
        return run(users, stream, progress)

    def randomize(
        self,
        users: Users,
        folder: Path,
        *,
        stream: ByteStream,
        suffix: str = ".packets",
        progress: Progress | None = None,
    ) -> None:
        """Play these users as clients: a file of packets in `folder` for each block of them.

        The packets are those that the faithful path counts. A folder that already holds packets is refused.
        """
        require_unanswered(folder)
        self._write_packets(users, folder, stream, require_choice("suffix", suffix, SUFFIXES), progress)

    def count(
        self,
        announcement: Announcement,
        files: Sequence[str],
        progress: Progress | None = None,
        *,
        register: ReportRegister | None = None,
    ) -> Analyzer:
        """Count the packets of these files as a shuffler; refused for fewer users than the noise counts on.

        Names may be patterns such as `sent/*.packets`. Every report is counted once. With a `register` in a file this
        holds for all runs together: reports that are new make a release of their own, and the counts are those of all
        releases. After an interruption nothing was counted, or all of it.
        """
        kept = register_of(announcement, register)
        with kept.counting():
            return released(announcement, self._count(announcement, files, kept, progress), kept)

    @abc.abstractmethod
    def _count(
        self, announcement: Announcement, files: Sequence[str], register: ReportRegister, progress: Progress | None
    ) -> PartialCounts:
        """The counts of reports that are new to the register, which are added to it."""

    @abc.abstractmethod
    def _aggregated(self, users: Users, stream: ByteStream, progress: Progress | None) -> Analyzer:
        """See `play`."""

    @abc.abstractmethod
    def _faithful(self, users: Users, stream: ByteStream, progress: Progress | None) -> Analyzer:
        """See `play`."""

    @abc.abstractmethod
    def _write_packets(
        self, users: Users, folder: Path, stream: ByteStream, suffix: str, progress: Progress | None
    ) -> None:
        """See `randomize`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughFiles:
    """A collector whose users' packets are written to `folder/<number of the group>` before they are counted.

    A deployment works like this: a user's packet is drawn once and kept until it is counted, so that after a failure
    nobody answers twice. The announcement and the register of reports are written beside the packets. Groups
    (classes) are numbered in the order of collection.
    """

    engine: Engine
    folder: Path
    suffix: str = ".packets"

    def __post_init__(self) -> None:
        require_choice("suffix", self.suffix, SUFFIXES)

    def play(
        self, users: Users, *, stream: ByteStream, path: str = "faithful", progress: Progress | None = None
    ) -> Analyzer:
        """Write all packets, then count them; only the faithful path has packets."""
        if path != "faithful":
            raise InvalidInputError(f"path={path!r} sends no messages that could be written; use 'faithful'.")
        folder, announcement = self.folder / str(len(list(self.folder.iterdir()))), users.announcement
        folder.mkdir()
        write_text(folder / ANNOUNCEMENT, json.dumps(announcement.to_json(), indent=2, ensure_ascii=False) + "\n")
        self.engine.randomize(users, folder, stream=stream, suffix=self.suffix, progress=progress)
        files = sorted(str(file) for file in folder.glob(f"part-*{self.suffix}"))
        with ReportRegister(announcement.collection(), register_beside(folder / ANNOUNCEMENT)) as register:
            return self.engine.count(announcement, files, register=register)


Collector = Engine | ThroughFiles
"""Runs a whole collection by `play`."""


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
    """Raise a clear error if Apache Beam is not installed."""
    if find_spec("apache_beam") is None:
        raise InvalidInputError(
            "the engine 'beam' needs apache-beam; install the extra with `pip install 'privkde[beam]'`."
        )
