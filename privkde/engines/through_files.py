"""Run a collection through files of packets: clients write them, and then the shuffler counts them.

A deployment works like this: a user's packet is drawn once and kept until it is counted, so that after a failure
nobody answers twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from accounting import InvalidInputError
from accounting.errors import require_choice
from privkde.draws.randomness import ByteStream
from privkde.engines import Engine
from privkde.engines.users import Users
from privkde.protocol.parties import Analyzer
from privkde.storage.files import write_text
from privkde.storage.packets import SUFFIXES
from privkde.storage.user_blocks import Progress

ANNOUNCEMENT = "announcement.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughFiles:
    """A collector whose users' packets are written to `folder/<number of the group>` before they are counted.

    The announcement is written beside them. Groups (classes) are numbered in the order of collection.
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
        return self.engine.count(announcement, sorted(str(file) for file in folder.glob(f"part-*{self.suffix}")))
