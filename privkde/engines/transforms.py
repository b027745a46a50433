"""Apache Beam transforms of a collection: packets to counts, and users to counts or packets (extra `beam`).

Two things run here, and they are trusted differently.

- *Counting packets* (`packets_of`, `CountPackets`) is the shuffler's work over many machines. All of them see packets
  of single users and are trusted like a shuffler, and so are the places where the runner keeps what travels between
  them. Packets are counted on the worker that reads them; partial counts travel and are added up. The result is the
  counts of all users, or nothing for too few. Packets in files were drawn once, by their clients, so a part that a
  runner repeats gives the same counts again.
- *Playing users* (`play_users`) is a simulation by somebody who holds all vectors. Without a seed every block of users
  draws under a fresh secret key, which no other process ever holds. A runner that repeats a block then draws *other*
  noise about the same users. Beam keeps one outcome of a repeated block, but whoever sees the disks of a failed attempt
  sees a second answer, which the contract does not cover. The noise of the aggregated path is added before anything
  is delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from accounting.errors import PrivkdeError
from privkde.draws.randomness import ByteStream
from privkde.engines.users import Clients, Users, noise_of_all
from privkde.protocol.announcement import Announcement
from privkde.protocol.counting import Complaint, PacketCounter, PartialCounts, withheld
from privkde.storage.datasets import read_array
from privkde.storage.packets import part_name, read_packets
from privkde.storage.user_blocks import Index, one_blas_thread

Block = tuple[Index, int]
"""Which users a worker plays: rows by number, and where they start in the whole."""


# Counting: the shuffler's work ----------------------------------------------------------------------------------------


def opened(name: str) -> Any:
    """A file, uncompressed, wherever Beam can read it."""
    return FileSystems.open(name, compression_type=CompressionTypes.UNCOMPRESSED)


def packets_of(name: str) -> Iterator[bytes | Complaint]:
    """The packets of a file; one that cannot be read becomes a `Complaint`."""
    try:
        yield from read_packets(name, opened)
    except (PrivkdeError, OSError) as error:
        yield Complaint(0, str(error))


class CountPackets(beam.PTransform):  # type: ignore[misc]
    """From users' packets to one `PartialCounts`, `withheld` for too few users; workers pass on sums."""

    def __init__(self, announcement: Announcement) -> None:
        super().__init__()
        self._announcement = announcement

    def expand(self, packets: Any) -> Any:
        """Counts are added up where packets are read, on runners that lift combiners; then the total is checked."""
        return (
            packets
            | "Count" >> beam.Map(partial(_counts, PacketCounter(self._announcement)))
            | beam.CombineGlobally(partial(_added, self._announcement))
            | "Withhold" >> beam.Map(partial(withheld, self._announcement))
        )


def _counts(counter: PacketCounter, element: bytes | Complaint) -> PartialCounts:
    """The counts of a packet, which is taken whole or refused whole, or the complaint about a file."""
    if isinstance(element, Complaint):
        return counter.complaining(element.place, element.reason)
    return counter.of(element)


def _added(announcement: Announcement, parts: Iterable[PartialCounts]) -> PartialCounts:
    return sum(parts, PartialCounts.nothing(announcement))


# Playing users: a simulation ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What a worker needs to play users; it holds no secret. The users' classes, if they have any, are in a file."""

    users: Users
    recipe: Callable[[], ByteStream]
    classes: Path | None = None
    path: str = "aggregated"
    folder: Path | None = None
    suffix: str = ".packets"


def play_users(blocks: Any, played: Played) -> Any:
    """From blocks of users to their `PartialCounts`; with a folder, their packets are written there instead.

    Each block is played by one worker; row numbers and counts travel.
    """
    return (
        blocks
        | "Spread users" >> beam.Reshuffle()
        | beam.ParDo(_PlayBlock(played))
        | beam.CombineGlobally(partial(_added, played.users.announcement))
        | beam.Map(partial(_finished, played))
    )


def _finished(played: Played, counts: PartialCounts) -> PartialCounts:
    """What may be delivered: on the faithful path what a shuffler releases, on the aggregated path noisy counts."""
    announcement = played.users.announcement
    if played.path == "faithful" or counts.complaint is not None:
        return withheld(announcement, counts)
    return counts + PartialCounts(tally=noise_of_all(announcement, counts.n_users, played.recipe()))


class _PlayBlock(beam.DoFn):  # type: ignore[misc]
    def __init__(self, played: Played) -> None:
        super().__init__()
        self._played = played

    def setup(self) -> None:
        file, users = self._played.classes, self._played.users
        self._clients = Clients(users if file is None else replace(users, classes=read_array(file, "classes")))
        self._counter = PacketCounter(users.announcement)

    def process(self, block: Block) -> Iterator[PartialCounts]:
        try:
            with one_blas_thread():
                yield self._counts(*block)
        except (PrivkdeError, OSError) as error:
            yield self._counter.complaining(block[1], error)

    def _counts(self, part: Index, start: int) -> PartialCounts:
        played, stream = self._played, self._played.recipe()
        if played.folder is not None:
            self._clients.answer(played.folder / part_name(start, played.suffix), part, start, stream)
            return self._counter.nothing
        if played.path == "faithful":
            return self._counter.of_all(self._clients.packets(part, start, stream))
        return PartialCounts(tally=self._clients.inputs(part, start, stream), n_users=len(part))
