"""Users' packets in files: length-delimited (`.packets`), or a column `packet` of a Parquet or Avro file.

A `.packets` file is the line `privkde packets/1`, then for every packet its length (4 bytes, little-endian) and its
bytes, then a length of zero. A file that ends before that mark was truncated and is refused.

Such files hold what the *shuffler* receives, the local view: protect them like it, and delete them after counting.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from accounting import InvalidInputError
from accounting.errors import require_choice
from privkde.storage import columns
from privkde.storage.container import DamagedFileError
from privkde.storage.files import TEMPORARY, resolved, whole_file

SUFFIXES = (".packets", *columns.FORMATS)
COLUMN = "packet"
MAGIC = b"privkde packets/1\n"
_SKIPPED_AT_ONCE = 1 << 20
_LENGTH = struct.Struct("<I")


def part_name(start: int, suffix: str) -> str:
    """The file of the block of users that starts here."""
    return f"part-{start:012d}{suffix}"


def suffix_of(name: str) -> str:
    """The ending by which a file of packets is read."""
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    raise InvalidInputError(f"{name!r} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} to hold packets.")


def require_answers(folder: Path, blocks: Mapping[str, int], longest: int) -> None:
    """Refuse a folder with packets that are not of these blocks: their users might answer again in another block.

    `blocks` gives each block's file and users, `longest` the bytes of a packet. What a killed process was writing is
    deleted: nobody has answered there.
    """
    for path in folder.glob(f"{TEMPORARY}*"):
        path.unlink(missing_ok=True)
    for path in sorted(folder.glob("part-*")):
        if path.name not in blocks or sum(1 for _ in read_packets(str(path), longest)) != blocks[path.name]:
            raise InvalidInputError(
                f"folder {str(folder)!r} holds {path.name!r}, which is not a block of these users; users answer only"
                " once: count what is there, or choose an empty folder."
            )


def matched(patterns: Sequence[str], matches: Callable[[str], Iterable[str]]) -> list[str]:
    """The files that names and patterns stand for, by what `matches` each; all of them hold packets.

    A file that is named twice is refused: its users would be counted twice, and few could pass for many.
    """
    names: list[str] = []
    for pattern in patterns:
        whole = sorted(name for name in matches(pattern) if not name.rsplit("/", 1)[-1].startswith(TEMPORARY))
        if not whole:
            raise InvalidInputError(f"there is no file {pattern!r}; name files of packets.")
        names += whole
    for name in names:
        suffix_of(name)
    for place, times in Counter(name if "://" in name else str(resolved(Path(name))) for name in names).items():
        if times > 1:
            raise InvalidInputError(f"the file {place!r} is named {times} times; name each file of packets once.")
    return names


def write_packets(path: Path, packets: Iterable[bytes], *, once: bool = False) -> None:
    """A file of packets, in the format that its name ends in, whole or not at all; with `once` none is replaced."""
    suffix, held = require_choice("suffix", path.suffix, SUFFIXES), list(packets)
    with whole_file(path, once=once) as temporary, temporary.open("wb") as file:
        if suffix != ".packets":
            columns.write_column(file, suffix, COLUMN, held)
            return
        file.write(MAGIC)
        for packet in held:
            file.write(_LENGTH.pack(len(packet)) + packet)
        file.write(_LENGTH.pack(0))


def read_packets(name: str, longest: int, opened: Callable[[str], IO[bytes]] | None = None) -> Iterator[bytes]:
    """The packets of a file, one after the other; whether each is well-formed is for whoever receives it.

    `longest` is the most bytes that a packet of the collection has (`WireFormat.longest`). Of a longer one no more than
    one byte beyond that is read, so that whoever receives it refuses it. `opened` opens files that are elsewhere than
    on this machine's disk.
    """
    suffix = suffix_of(name)
    with (opened or _on_disk)(name) as file:
        if suffix == ".packets":
            yield from _delimited(file, name, longest)
            return
        yield from columns.read_packet_column(file, name, COLUMN, longest)


def _on_disk(name: str) -> IO[bytes]:
    return Path(name).open("rb")


def _delimited(file: IO[bytes], name: str, longest: int) -> Iterator[bytes]:
    damaged = DamagedFileError(f"{name!r} is truncated, was altered or is not a file of packets; write it again.")
    if file.read(len(MAGIC)) != MAGIC:
        raise damaged
    while True:
        head = file.read(_LENGTH.size)
        if len(head) != _LENGTH.size:
            raise damaged
        length = _LENGTH.unpack(head)[0]
        if length == 0:
            if file.read(1):
                raise damaged
            return
        packet = file.read(min(length, longest + 1))
        if len(packet) != min(length, longest + 1) or not _skipped(file, length - len(packet)):
            raise damaged
        yield packet


def _skipped(file: IO[bytes], count: int) -> bool:
    """Whether so many bytes were there to be passed over."""
    while count > 0:
        passed = len(file.read(min(count, _SKIPPED_AT_ONCE)))
        if passed == 0:
            return False
        count -= passed
    return True
