"""Apache Beam transforms of a collection: packets to counts, and users to counts or packets (extra `beam`).

Two things run here, and they are trusted differently.

- *Counting packets* (`CountFiles`, `CountPackets`) is the shuffler's work over many machines. All of them see packets
  of single users and are trusted like a shuffler, and so are the places where the runner keeps what travels between
  them. Every report is counted once, on whatever workers its copies are: of packets with the same id, the one with the
  least SHA-256. The result is the counts of all users, or nothing for too few. Packets in files were drawn once, by
  their clients, so a part that a runner repeats gives the same counts again.
- *Playing users* (`play_users`) is a simulation by somebody who holds all vectors. Without a seed every block of users
  draws under a fresh secret key, which no other process ever holds. A runner that repeats a block then draws *other*
  noise about the same users. Beam keeps one outcome of a repeated block, but whoever sees the disks of a failed attempt
  sees a second answer, which the contract does not cover. The noise of the aggregated path is added before anything
  is delivered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from accounting.errors import PrivkdeError
from privkde.draws.randomness import ByteStream
from privkde.engines.users import Clients, Users, noise_of_all
from privkde.protocol.announcement import Announcement
from privkde.protocol.counting import PacketCounter, PartialCounts, withheld
from privkde.protocol.messages import WireFormat
from privkde.storage.datasets import read_array
from privkde.storage.packets import part_name, read_packets
from privkde.storage.user_blocks import Index, one_blas_thread

Block = tuple[Index, int]
"""Which users a worker plays: rows by number, and where they start in the whole."""


# Counting: the shuffler's work ----------------------------------------------------------------------------------------


def opened(name: str) -> Any:
    """A file, uncompressed, wherever Beam can read it."""
    return FileSystems.open(name, compression_type=CompressionTypes.UNCOMPRESSED)


Sighting = tuple[bytes, Any, int]
"""A digest of a packet, where it is, and how many packets have the same id. Of several the least is counted."""
KNOWN: Sighting = (b"", ("", 0), 0)
"""Beside the id of a report that was counted in an earlier run: less than any other."""


class CountFiles(beam.PTransform):  # type: ignore[misc]
    """From names of files to one `PartialCounts` of the reports in them that are new, `withheld` for too few users.

    The file `<place>.known` holds the ids of reports that were counted before; those of new ones are left in files
    `<place>.new-…`, one for each file of packets. Packets stay on workers that read their file: files are read first
    for ids, with which digests and places travel, and then again for what is at the place that is kept for each id.
    The counts of each file travel and are added up. All ends in one result, since `DaskRunner` computes no other.
    """

    def __init__(self, announcement: Announcement, counter: PacketCounter, place: str) -> None:
        super().__init__()
        self._announcement = announcement
        self._counter = counter
        self._place = place

    def expand(self, names: Any) -> Any:
        """Packets are counted where they are read; then the total is checked."""
        wire, counter = self._announcement.wire_format(), self._counter
        seen = names | "Spread files" >> beam.Reshuffle() | "Look" >> beam.FlatMap(partial(_sightings, counter, wire))
        known = names.pipeline | "Earlier" >> beam.Create([f"{self._place}.known"]) | beam.FlatMap(_lines)
        before = known | "Known" >> beam.Map(lambda report: (report, KNOWN))
        first = (seen, before) | "All sightings" >> beam.Flatten() | "First" >> beam.CombinePerKey(_first)
        places = first | "Places" >> beam.FlatMap(_new_place)
        every = names | "Every file" >> beam.Map(lambda name: (name, -1))  # also where nothing is new
        files = (places, every) | "All files" >> beam.Flatten() | "By file" >> beam.GroupByKey()
        counted = files | "Count" >> beam.Map(partial(_count_file, counter, wire, self._place))
        return counted | _Total(self._announcement)


def _lines(name: str) -> Iterator[str]:
    with opened(name) as file:
        for line in file:
            yield line.decode().rstrip("\n")


def _sightings(counter: PacketCounter, wire: WireFormat, name: str) -> Iterator[tuple[str, Sighting]]:
    """The id of each packet of a file that can be counted, and where it is; the rest is left to `_count_file`."""
    with suppress(PrivkdeError, OSError):
        for place, packet in enumerate(read_packets(name, wire.longest, opened)):
            if counter.of(packet).n_users:
                yield wire.packet_id(packet).hex(), (hashlib.sha256(packet).digest(), (name, place), 1)


def _first(sightings: Iterable[Sighting]) -> Sighting:
    all_of_them = list(sightings)
    return (*min(all_of_them)[:2], sum(times for _, _, times in all_of_them))


def _new_place(sighted: tuple[str, Sighting]) -> list[tuple[str, int]]:
    digest, place, _ = sighted[1]
    return [place] if digest else []


def _count_file(
    counter: PacketCounter, wire: WireFormat, place_of_reports: str, given: tuple[str, Iterable[int]]
) -> PartialCounts:
    """The counts of the packets at these places of a file, whose ids are written; the rest is malformed or repeated.

    Who counts the file again writes the same ids to the same file.
    """
    name, kept = given
    total, rejected, repeated, reports = counter.nothing, 0, 0, []
    places = iter(np.sort(np.fromiter(kept, np.int64))[1:])  # without the mark of `CountFiles`
    following = next(places, None)
    try:
        for place, packet in enumerate(read_packets(name, wire.longest, opened)):
            counts, new = counter.of(packet), place == following
            following = next(places, None) if new else following
            if not counts.n_users:
                rejected += 1
            elif new:
                reports.append(wire.packet_id(packet).hex())
                total += counts
            else:
                repeated += 1
    except (PrivkdeError, OSError) as error:
        return counter.complaining(0, error)
    target = f"{place_of_reports}.new-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    with FileSystems.create(target, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        file.write("".join(f"{report}\n" for report in reports).encode())
    return total + replace(counter.nothing, rejected=rejected, repeated=repeated)


class CountPackets(beam.PTransform):  # type: ignore[misc]
    """From users' packets, which are in no files, to one `PartialCounts`, `withheld` for too few users.

    Packets travel to the worker that groups them by id. Which reports other runs counted is not known here.
    """

    def __init__(self, announcement: Announcement, *, seeded: bool = False) -> None:
        super().__init__()
        self._announcement = announcement
        self._seeded = seeded

    def expand(self, packets: Any) -> Any:
        """Of packets with the same id one is counted, and of those that are refused only their number."""
        counter = PacketCounter(self._announcement, seeded=self._seeded)
        return (
            packets
            | "Look" >> beam.Map(partial(_sighted, counter, self._announcement.wire_format()))
            | "First" >> beam.CombinePerKey(_first)
            | "Count" >> beam.Map(partial(_counts, counter))
            | _Total(self._announcement)
        )


def _sighted(counter: PacketCounter, wire: WireFormat, packet: bytes) -> tuple[str, Sighting]:
    """One that is refused takes no other's place: all of them are together, without an id."""
    if not counter.of(packet).n_users:
        return "", (b"", b"", 1)
    return wire.packet_id(packet).hex(), (hashlib.sha256(packet).digest(), packet, 1)


def _counts(counter: PacketCounter, sighted: tuple[str, Sighting]) -> PartialCounts:
    """The counts of a packet, which is taken whole or refused whole."""
    report, (_, packet, times) = sighted
    if not report:
        return replace(counter.nothing, rejected=times)
    return counter.of(packet) + replace(counter.nothing, repeated=times - 1)


class _Total(beam.PTransform):  # type: ignore[misc]
    """The sum of all counts, `withheld` for too few users."""

    def __init__(self, announcement: Announcement) -> None:
        super().__init__()
        self._announcement = announcement

    def expand(self, counts: Any) -> Any:
        """Workers pass on sums."""
        added = counts | beam.CombineGlobally(partial(_added, self._announcement))
        return added | "Withhold" >> beam.Map(partial(withheld, self._announcement))


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
    stream = played.recipe()
    return counts + PartialCounts(tally=noise_of_all(announcement, counts.n_users, stream), secret=stream.secret)


class _PlayBlock(beam.DoFn):  # type: ignore[misc]
    def __init__(self, played: Played) -> None:
        super().__init__()
        self._played = played

    def setup(self) -> None:
        file, users = self._played.classes, self._played.users
        self._clients = Clients(users if file is None else replace(users, classes=read_array(file, "classes")))
        self._counter = PacketCounter(users.announcement, seeded=not self._played.recipe().secret)

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
        tally = self._clients.inputs(part, start, stream)
        return PartialCounts(tally=tally, n_users=len(part), secret=stream.secret)
