"""Run a collection in this process: blocks of users, all cores, memory bounded by the block and not by n."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidInputError, require_choice
from privkde.announcement import Announcement
from privkde.blocks import Index, Progress, in_blocks
from privkde.inputs import Rows
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
    if classes is not None and classes.shape != (rows.shape[0],):
        raise InvalidInputError(f"classes of shape {classes.shape} for {rows.shape[0]} rows; give one for each row.")
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
