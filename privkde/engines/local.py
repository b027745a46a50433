"""Run a collection in this process: blocks of users, all cores, memory bounded by the block and not by n."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accounting.errors import require_choice
from privkde.announcement import Announcement
from privkde.blocks import Index, Progress, in_blocks
from privkde.counting import PacketCounter, released
from privkde.engines.users import Clients, Users, noise_of_all
from privkde.inputs import Rows
from privkde.packets import matched, part_name, read_packets, require_unanswered, write_packets
from privkde.parties import Analyzer, Shuffler
from privkde.randomness import ByteStream

PATHS = ("aggregated", "faithful")


def collect(
    announcement: Announcement,
    rows: Rows,
    index: Index,
    classes: NDArray[np.integer] | None = None,
    *,
    stream: ByteStream,
    path: str = "aggregated",
    outside: str = "reject",
    progress: Progress | None = None,
) -> Analyzer:
    """The analyzer's counts after the users `index` of `rows` took part, with joint labels each with its class number.

    `faithful` runs every party: all messages, noise and flood included, are packed, sent, shuffled, unpacked and
    counted. `aggregated` draws the same bits, but the noise of all users at once and only as counts. The counts of
    both have the same law, because the noise is infinitely divisible (docs/proofs/sampling.md).
    """
    users = Users(announcement=announcement, rows=rows, index=index, classes=classes, outside=outside)
    return play(users, stream=stream, path=path, progress=progress)


def play(users: Users, *, stream: ByteStream, path: str = "aggregated", progress: Progress | None = None) -> Analyzer:
    """As `collect`."""
    run = _faithful if require_choice("path", path, PATHS) == "faithful" else _aggregated
    return run(users, stream, progress)


def _aggregated(users: Users, stream: ByteStream, progress: Progress | None) -> Analyzer:
    clients, analyzer, lock = Clients(users), Analyzer(users.announcement), threading.Lock()

    def work(part: Index, start: int) -> None:
        inputs = clients.inputs(part, start, stream)
        with lock:
            analyzer.add(inputs, len(part))

    in_blocks(work, users.index, users.announcement.n_instances, progress)
    analyzer.add(noise_of_all(users.announcement, len(users.index), stream), 0)
    return analyzer


def _faithful(users: Users, stream: ByteStream, progress: Progress | None) -> Analyzer:
    clients, analyzer = Clients(users), Analyzer(users.announcement)
    shuffler = Shuffler(users.announcement, stream=stream.child("shuffler"))

    def work(part: Index, start: int) -> list[bytes]:
        return clients.packets(part, start, stream)

    for packets in in_blocks(work, users.index, users.announcement.n_instances, progress):
        for packet in packets:
            shuffler.receive(packet)
    analyzer.receive(shuffler.release())
    return analyzer


def randomize(
    users: Users,
    folder: Path,
    *,
    stream: ByteStream,
    suffix: str = ".packets",
    progress: Progress | None = None,
) -> None:
    """Play these users as clients: a file of packets in `folder` for each block of them.

    The packets are those that `collect` counts on its faithful path. A folder that holds packets already is refused.
    """
    require_unanswered(folder)
    clients = Clients(users)

    def work(part: Index, start: int) -> None:
        write_packets(folder / part_name(start, suffix), clients.packets(part, start, stream), once=True)

    in_blocks(work, users.index, users.announcement.n_instances, progress)


def count(announcement: Announcement, files: Sequence[str], progress: Progress | None = None) -> Analyzer:
    """Count the packets of these files as a shuffler; refused for fewer users than the noise counts on.

    Names may be patterns such as `sent/*.packets`.
    """
    names = matched(files, _on_this_machine)
    counter = PacketCounter(announcement)
    counts = counter.nothing
    for name in names:
        part = counter.of_all(read_packets(name))
        counts += part
        if progress is not None:
            progress(part.n_users)
    return released(announcement, counts)


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """The functions of this module as one value, which can be copied and compared."""

    play = staticmethod(play)
    randomize = staticmethod(randomize)
    count = staticmethod(count)


def _on_this_machine(pattern: str) -> list[str]:
    return [pattern] if Path(pattern).is_file() else glob(pattern)
