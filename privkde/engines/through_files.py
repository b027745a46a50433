"""Run a collection through files of packets: clients write them, and then the shuffler counts them.

This is how a deployment works: what a user sends is drawn once and kept until it is counted, so that no failure makes
anybody answer twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from accounting import InvalidInputError
from accounting.errors import require_choice
from privkde.blocks import Progress
from privkde.engines import Engine
from privkde.engines.users import Users
from privkde.files import write_text
from privkde.packets import SUFFIXES
from privkde.parties import Analyzer
from privkde.randomness import ByteStream

ANNOUNCEMENT = "announcement.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughFiles:
    """A collector whose users' packets are written to `folder/<number of the group>` before they are counted.

    Beside them is the announcement that they answer. Groups (classes) are numbered as they are collected.
    """

    engine: Engine
    folder: Path
    suffix: str = ".packets"

    def __post_init__(self) -> None:
        require_choice("suffix", self.suffix, SUFFIXES)

    def play(
        self, users: Users, *, stream: ByteStream, path: str = "faithful", progress: Progress | None = None
    ) -> Analyzer:
        """The counts of packets that were written first; every message is sent, so the path is the faithful one."""
        if path != "faithful":
            raise InvalidInputError(f"path={path!r} sends no messages that could be written; use 'faithful'.")
        folder, announcement = self.folder / str(len(list(self.folder.iterdir()))), users.announcement
        folder.mkdir()
        write_text(folder / ANNOUNCEMENT, json.dumps(announcement.to_json(), indent=2, ensure_ascii=False) + "\n")
        self.engine.randomize(users, folder, stream=stream, suffix=self.suffix, progress=progress)
        return self.engine.count(announcement, sorted(str(one) for one in folder.glob(f"part-*{self.suffix}")))
