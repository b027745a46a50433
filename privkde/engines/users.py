"""Users whom an engine plays, block by block: what is drawn for them, and from which streams."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidInputError
from privkde.bitsum import Tally
from privkde.draws.randomness import ByteStream
from privkde.protocol.announcement import Announcement
from privkde.protocol.inputs import Rows
from privkde.protocol.parties import Randomizer
from privkde.storage.packets import write_packets
from privkde.storage.user_blocks import Index


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """Who takes part in a simulated collection: the rows `index`, with joint labels each with its class number."""

    announcement: Announcement
    rows: Rows
    index: Index
    classes: NDArray[np.integer] | None = None
    outside: str = "reject"

    def __post_init__(self) -> None:
        if self.classes is not None and self.classes.shape != (self.rows.shape[0],):
            raise InvalidInputError(
                f"classes of shape {self.classes.shape} for {self.rows.shape[0]} rows; give one for each row."
            )


class Clients:
    """Draws for blocks of users; every purpose and block has its own stream.

    Equal streams give equal draws on every engine.
    """

    def __init__(self, users: Users) -> None:
        self._users = users
        self._randomizer = Randomizer(users.announcement, outside=users.outside)

    def inputs(self, part: Index, start: int, stream: ByteStream) -> Tally:
        """The messages that carry the bits of this block, summed over its users, without noise messages."""
        rows, classes = self._block(part)
        return self._randomizer.inputs(rows, classes, stream=stream.child("inputs", start), numbers=part).over_users()

    def packets(self, part: Index, start: int, stream: ByteStream) -> list[bytes]:
        """What each user of this block sends, all noise included."""
        rows, classes = self._block(part)
        return self._randomizer.packets(rows, classes, stream=stream.child("client", start), numbers=part)

    def answer(self, file: Path, part: Index, start: int, stream: ByteStream) -> None:
        """Write what this block's users send, unless the file is there: then they have already answered."""
        if not file.exists():
            with suppress(FileExistsError):  # another worker was faster
                write_packets(file, self.packets(part, start, stream), once=True)

    def _block(self, part: Index) -> tuple[NDArray[np.floating], NDArray[np.integer] | None]:
        classes = self._users.classes
        return self._users.rows[part], None if classes is None else classes[part]


def noise_of_all(announcement: Announcement, n_users: int, stream: ByteStream) -> Tally:
    """The noise messages of this many users at once."""
    shape = (announcement.n_instances,)
    if n_users == 0:  # a share for nobody is not a valid law
        return Tally.nothing(shape)
    return announcement.bitsum().noise(n_users, shape, stream.child("noise"))
