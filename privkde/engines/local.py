"""Run a collection in this process: blocks of users, all cores, memory bounded by the block and not by n."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privkde.draws.randomness import ByteStream
from privkde.engines import Engine
from privkde.engines.users import Clients, Users, noise_of_all
from privkde.protocol.announcement import Announcement
from privkde.protocol.counting import PacketCounter, PartialCounts, analyzed
from privkde.protocol.inputs import Rows
from privkde.protocol.parties import Analyzer, Shuffler
from privkde.storage.packets import matched, part_name, read_packets
from privkde.storage.report_register import ReportRegister
from privkde.storage.user_blocks import Index, Progress, in_blocks


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

    `Engine.play` says what the two values of `path` do.
    """
    users = Users(announcement=announcement, rows=rows, index=index, classes=classes, outside=outside)
    return LocalEngine().play(users, stream=stream, path=path, progress=progress)


@dataclass(frozen=True, slots=True)
class LocalEngine(Engine):
    """Runs collections in this process."""

    def _aggregated(self, users: Users, stream: ByteStream, progress: Progress | None) -> Analyzer:
        clients, lock = Clients(users), threading.Lock()
        tally = noise_of_all(users.announcement, len(users.index), stream)

        def work(part: Index, start: int) -> None:
            nonlocal tally
            inputs = clients.inputs(part, start, stream)
            with lock:
                tally += inputs

        in_blocks(work, users.index, users.announcement.n_instances, progress)
        counts = PartialCounts(tally=tally, n_users=len(users.index), secret=stream.secret)
        return analyzed(users.announcement, counts)

    def _faithful(self, users: Users, stream: ByteStream, progress: Progress | None) -> Analyzer:
        clients, analyzer = Clients(users), Analyzer(users.announcement)
        shuffler = Shuffler(users.announcement, stream=stream.child("shuffler"))

        def work(part: Index, start: int) -> list[bytes]:
            return clients.packets(part, start, stream)

        for packets in in_blocks(work, users.index, users.announcement.n_instances, progress):
            for packet in packets:
                shuffler.receive(packet)
        analyzer.receive(shuffler.release())
        return analyzer

    def _write_packets(
        self, users: Users, folder: Path, stream: ByteStream, suffix: str, progress: Progress | None
    ) -> None:
        clients = Clients(users)

        def work(part: Index, start: int) -> None:
            clients.answer(folder / part_name(start, suffix), part, start, stream)

        in_blocks(work, users.index, users.announcement.n_instances, progress)

    def matches(self, pattern: str) -> list[str]:
        """See `Engine`."""
        return [pattern] if Path(pattern).is_file() else glob(pattern)

    def _count(
        self,
        announcement: Announcement,
        counter: PacketCounter,
        files: Sequence[str],
        register: ReportRegister,
        progress: Progress | None,
    ) -> PartialCounts:
        """One file after the other; of packets with the same id the first is counted."""
        counts = counter.nothing
        for name in matched(files, self.matches):
            part = counter.of_all(read_packets(name, counter.longest), register)
            counts += part
            if progress is not None:
                progress(part.n_users)
        return counts
