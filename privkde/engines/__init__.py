"""Who executes a collection: this process (`local`), or Apache Beam over many machines (`beam`)."""

from __future__ import annotations

import abc
import json
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from accounting.errors import InvalidInputError, require_choice
from privkde.draws.randomness import ByteStream
from privkde.engines.users import Users
from privkde.protocol.announcement import Announcement
from privkde.protocol.counting import PacketCounter, PartialCounts, released
from privkde.protocol.parties import Analyzer, register_of
from privkde.storage.files import require_own_name, require_writable, write_text
from privkde.storage.json_text import read_json
from privkde.storage.packets import SUFFIXES, part_name, require_answers
from privkde.storage.report_register import ReportRegister, register_beside
from privkde.storage.user_blocks import Progress, block_parts

ENGINES = ("local", "beam")
PATHS = ("aggregated", "faithful")
ANNOUNCEMENT = "announcement.json"
NAME = "charged-as.txt"
"""What a folder of answers is called by the budget that paid for them."""


class Engine(abc.ABC):
    """Runs a whole collection, users, shuffler and analyzer; it can also run clients and shuffler apart.

    Equal seeds give equal counts on every engine, and so do equal packets, as long as no two of them that differ have
    one id. Of such two an engine counts one: `local` the first, `beam` the one of the least SHA-256.
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

        The packets are those that the faithful path counts. The announcement is written beside them before anybody
        answers. Whoever is interrupted calls this again with the same folder, announcement, users and order of users:
        a block's file is written whole or not at all, and a block that has one has answered and is not played again.
        Another announcement is refused, and so are files that cannot be of these blocks. That the users are the same is
        not checked further, since anything kept to compare them with would tell about them.
        """
        require_choice("suffix", suffix, SUFFIXES)
        announce_once(folder, users.announcement)
        require_answers(folder, _expected(users, suffix), users.announcement.wire_format().longest)
        self._write_packets(users, folder, stream, suffix, progress)

    def count(
        self,
        announcement: Announcement,
        files: Sequence[str],
        progress: Progress | None = None,
        *,
        register: ReportRegister | None = None,
        seeded: bool = False,
        most_users: int | None = None,
    ) -> Analyzer:
        """Count the packets of these files as a shuffler; refused for fewer users than the noise counts on.

        Names may be patterns such as `sent/*.packets`. Every report is counted once. With a `register` in a file this
        holds for all runs together: reports that are new make a release of their own, and the counts are those of all
        releases. After an interruption nothing was counted, or all of it. Packets that are marked as drawn from a seed
        are rejected unless `seeded` says that this is a study; its counts are then not private. If reports are of more
        than `most_users`, nothing is counted.
        """
        kept = register_of(announcement, register)
        if kept.issues_tokens:
            raise InvalidInputError(
                "the register has issued tokens, and packets in files carry none; give packets with their tokens to a"
                " Shuffler, or count with a register that has issued none."
            )
        with kept.counting():
            counter = PacketCounter(announcement, seeded=seeded)
            counts = self._count(announcement, counter, files, kept, progress)
            return released(announcement, counts, kept, most_users=most_users)

    @abc.abstractmethod
    def matches(self, pattern: str) -> list[str]:
        """The files that a name or pattern stands for."""

    @abc.abstractmethod
    def _count(
        self,
        announcement: Announcement,
        counter: PacketCounter,
        files: Sequence[str],
        register: ReportRegister,
        progress: Progress | None,
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

    An interrupted collection is continued by another one with the same folder, users and announcement, so with the same
    `public_seed`: see `Engine.randomize`. One with separate labels is not: the labels that users reported were not
    kept, and who reports a label again may answer in another class. Its folder is refused.
    """

    engine: Engine
    folder: Path
    suffix: str = ".packets"
    paid: str | None = None
    """How the folder is called by the budget that paid for its answers, if one did (`charged`)."""
    _groups: dict[str, Path] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Where those of this collection are, with separate labels."""

    def __post_init__(self) -> None:
        require_choice("suffix", self.suffix, SUFFIXES)
        require_own_name(self.folder)

    def play(
        self, users: Users, *, stream: ByteStream, path: str = "faithful", progress: Progress | None = None
    ) -> Analyzer:
        """Write all packets that are missing, then count all; only the faithful path has packets."""
        _require_faithful(path)
        announcement = users.announcement
        folder = self._place(announcement.group)
        if (folder / NAME).exists() and _name_of(folder / NAME) != self.paid:
            raise InvalidInputError(
                f"the answers in folder {str(folder)!r} are charged to a budget; give the same budget, or take an empty"
                " folder."
            )
        folder.mkdir(parents=True, exist_ok=True)
        announce_once(folder, announcement)
        with ReportRegister(announcement.collection(), register_beside(folder / ANNOUNCEMENT)) as register:
            if register.releases() and _some_are_missing(users, folder, self.suffix):
                raise InvalidInputError(
                    f"answers in folder {str(folder)!r} were counted, and some are missing now; users answer only once:"
                    " restore the files, or take an empty folder and charge it by itself."
                )
            self.engine.randomize(users, folder, stream=stream, suffix=self.suffix, progress=progress)
            files = sorted(str(file) for file in folder.glob(f"part-*{self.suffix}"))
            return self.engine.count(announcement, files, register=register, seeded=not stream.secret)

    def begun(self, announcement: Announcement, path: str) -> str:
        """Begin the folder, or go on with it, before a budget is charged for its answers; how the budget names it.

        The name is random digits, written to the folder when first asked for. What would refuse the answers, such as
        another announcement, does so here. Whoever has then charged the budget goes on with `charged(name)`.
        """
        _require_faithful(path)
        folder = self.folder / "0"
        file = folder / NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise InvalidInputError(f"{str(self.folder)!r} is not a folder; choose another one.") from error
        self._refuse_others(separate=False)
        if not file.exists() and (folder / ANNOUNCEMENT).exists():
            raise InvalidInputError(
                f"folder {str(self.folder)!r} holds answers that no budget has paid for; count what is there, or take"
                " an empty folder."
            )
        with suppress(FileExistsError):
            write_text(file, secrets.token_hex(16), once=True)
        name = _name_of(file)
        announce_once(folder, announcement)
        return name

    def charged(self, name: str) -> ThroughFiles:
        """This collector, for one run whose answers a budget has paid for by this name of the folder."""
        return replace(self, paid=name)

    def require_empty(self, path: str) -> None:
        """Refuse what could not take the answers of separate labels, before labels are charged for and drawn."""
        _require_faithful(path)
        try:
            if self.folder.exists() and not self.folder.is_dir():
                raise InvalidInputError(f"{str(self.folder)!r} is not a folder; choose another one.")
            require_writable(next(one for one in (self.folder, *self.folder.parents) if one.exists()) / ANNOUNCEMENT)
        except OSError as error:
            raise InvalidInputError(
                f"folder {str(self.folder)!r} cannot be made ({error.strerror}); choose another one."
            ) from error
        if self._groups:
            raise InvalidInputError("another collection is in this folder; users answer only once: take another one.")
        self._refuse_others(separate=True)

    def public_seed(self) -> str | None:
        """The seed of the collection that the folder holds, which continues it; refused if it cannot be continued."""
        file = self.folder / "0" / ANNOUNCEMENT
        held = _announced(file) if file.exists() else None
        self._refuse_others(separate=held is not None and bool(held.group))
        return None if held is None else held.public_seed

    def _place(self, group: str) -> Path:
        """The folder of a group."""
        self._refuse_others(separate=bool(group))
        if group in self._groups:
            raise InvalidInputError(
                f"class {group!r} was collected before; users answer only once: take another folder."
            )
        folder = self.folder / str(len(self._groups))
        if group:
            self._groups[group] = folder
        return folder

    def _refuse_others(self, *, separate: bool) -> None:
        """What does not belong to this collection stays as it is."""
        mine = set(self._groups.values()) if separate else {self.folder / "0"}
        held = sorted(path.name for path in self.folder.iterdir() if path not in mine) if self.folder.exists() else []
        if held:
            why = "which is of separate labels and cannot be continued" if separate else "which does not belong there"
            raise InvalidInputError(
                f"folder {str(self.folder)!r} holds {held[0]!r}, {why}; users answer only once: count what is there, or"
                " choose an empty folder."
            )


def _require_faithful(path: str) -> None:
    if path != "faithful":
        raise InvalidInputError(f"path={path!r} sends no messages that could be written; use 'faithful'.")


def _name_of(file: Path) -> str:
    """How a budget calls a folder: what this file in it holds."""
    name = file.read_bytes()
    if re.fullmatch(rb"[0-9a-f]{32}", name) is None:
        raise InvalidInputError(f"{str(file)!r} does not hold 32 hexadecimal digits; restore it or take a new folder.")
    return name.decode()


def _expected(users: Users, suffix: str) -> dict[str, int]:
    """The files of all blocks, and how many users each has."""
    blocks = block_parts(users.index, users.announcement.n_instances)
    return {part_name(start, suffix): len(part) for part, start in blocks}


def _some_are_missing(users: Users, folder: Path, suffix: str) -> bool:
    """Whether blocks of these users have no file, and all files that are there could be theirs."""
    expected, held = _expected(users, suffix).keys(), {file.name for file in folder.glob("part-*")}
    return held < expected


def announce_once(folder: Path, announcement: Announcement) -> None:
    """Write the announcement to the folder, unless it is there. Another one, also one written meanwhile, is refused."""
    text = json.dumps(announcement.to_json(), indent=2, ensure_ascii=False) + "\n"
    with suppress(FileExistsError):
        write_text(folder / ANNOUNCEMENT, text, once=True)
    if _announced(folder / ANNOUNCEMENT) != announcement:
        raise InvalidInputError(
            f"folder {str(folder)!r} holds answers to another announcement; users answer only once: repeat the command"
            " that began it, count what is there, or choose an empty folder."
        )


def _announced(file: Path) -> Announcement:
    try:
        return Announcement.from_json(read_json(file, "choose an empty folder."))
    except ValueError as error:
        raise InvalidInputError(f"{str(file)!r} is not an announcement; choose an empty folder.") from error


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
