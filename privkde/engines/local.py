"""Run a collection in this process: blocks of users, all cores, memory bounded by the block and not by n."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidInputError, require_choice
from privkde.announcement import Announcement
from privkde.blocks import Index, Progress, in_blocks
from privkde.counting import PacketCounter, released
from privkde.inputs import Rows
from privkde.packets import read_packets, write_packets
from privkde.parties import Analyzer, Randomizer, Shuffler
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
    require_choice("path", path, PATHS)
    require_one_class_each(rows, classes)
    randomizer = Randomizer(announcement, outside=outside)
    run = _faithful if path == "faithful" else _aggregated
    return run(announcement, randomizer, rows, index, classes, stream=stream, progress=progress)


def _aggregated(
    announcement: Announcement,
    randomizer: Randomizer,
    rows: Rows,
    index: Index,
    classes: NDArray[np.integer] | None,
    *,
    stream: ByteStream,
    progress: Progress | None,
) -> Analyzer:
    analyzer, lock = Analyzer(announcement), threading.Lock()

    def work(part: Index, start: int) -> None:
        told = None if classes is None else classes[part]
        inputs = randomizer.inputs(rows[part], told, stream=stream.child("inputs", start), numbers=part).over_users()
        with lock:
            analyzer.add(inputs, len(part))

    in_blocks(work, index, announcement.n_instances, progress)
    if len(index):  # nobody adds no noise, and a share of nothing is no law
        noise = announcement.bitsum().noise(len(index), (announcement.n_instances,), stream.child("noise"))
        analyzer.add(noise, 0)
    return analyzer


def _faithful(
    announcement: Announcement,
    randomizer: Randomizer,
    rows: Rows,
    index: Index,
    classes: NDArray[np.integer] | None,
    *,
    stream: ByteStream,
    progress: Progress | None,
) -> Analyzer:
    shuffler, analyzer = Shuffler(announcement, stream=stream.child("shuffler")), Analyzer(announcement)

    def work(part: Index, start: int) -> list[bytes]:
        told = None if classes is None else classes[part]
        return randomizer.packets(rows[part], told, stream=stream.child("client", start), numbers=part)

    for packets in in_blocks(work, index, announcement.n_instances, progress):
        for packet in packets:
            shuffler.receive(packet)
    analyzer.receive(shuffler.release())
    return analyzer


def randomize(
    announcement: Announcement,
    rows: Rows,
    index: Index,
    classes: NDArray[np.integer] | None = None,
    *,
    stream: ByteStream,
    folder: Path,
    suffix: str = ".packets",
    outside: str = "reject",
    progress: Progress | None = None,
) -> None:
    """Play these users as clients: a file of packets in `folder` for each block of them.

    The packets are those that `collect` counts on its faithful path.
    """
    require_one_class_each(rows, classes)
    randomizer = Randomizer(announcement, outside=outside)

    def work(part: Index, start: int) -> None:
        told = None if classes is None else classes[part]
        packets = randomizer.packets(rows[part], told, stream=stream.child("client", start), numbers=part)
        write_packets(folder / part_name(start, suffix), packets)

    in_blocks(work, index, announcement.n_instances, progress)


def part_name(start: int, suffix: str) -> str:
    """The file of the block of users that starts here."""
    return f"part-{start:012d}{suffix}"


def count(announcement: Announcement, files: Sequence[str], progress: Progress | None = None) -> Analyzer:
    """Count the packets of these files as a shuffler; refused for fewer users than the noise counts on."""
    counter = PacketCounter(announcement)
    counts = counter.nothing
    for name in files:
        part = counter.of_all(read_packets(name))
        counts += part
        if progress is not None:
            progress(part.n_users)
    return released(announcement, counts)


def require_one_class_each(rows: Rows, classes: NDArray[np.integer] | None) -> None:
    """Classes, if there are any, are given for every row."""
    if classes is not None and classes.shape != (rows.shape[0],):
        raise InvalidInputError(f"classes of shape {classes.shape} for {rows.shape[0]} rows; give one for each row.")
