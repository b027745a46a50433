"""The wire format: packets of messages, listed (sparse) or counted in each instance (dense).

A packet is a header, its entries packed at `width` bits each, zero bits up to a whole byte, and a CRC-32 of everything
before:

    "pk"  version (1 byte)  form (1 byte)  width (1 byte)  collection (32 bytes)  draws (1 byte)  id (16 bytes)
    users (4 bytes)  entries (8 bytes)  …  CRC (4 bytes)

All integers are little-endian; entries are packed most significant bit first. The form is a fact of the collection:

- *Sparse* (form 0). An entry is a message: the index of its instance, then its bit if messages have content.
- *Dense* (form 1), where every user sends exactly one message in each instance (`rr`). Entry i is the number of ones in
  instance i; the other messages are zeros. Of n users it takes ⌈log₂(n + 1)⌉ bits: one in a user's packet. In a release
  this tells no more than shuffled messages do: counts are all that a random order leaves of them
  (docs/proofs/randomized-response.md).

A packet is taken whole or refused whole, so a malformed one cannot shift a count. The checksum finds accidents, not
forgeries.

`draws` is 1 if the sender drew from secret randomness and 0 if from a seed, which protects nobody. `id` is random: in
a user's packet it names the report, in a released packet the release, so that each is counted once.

A sparse packet of n users holds at most n times the messages that the plan allows one user, a dense one exactly one
entry for each instance. Both are unpacked in small pieces: a packet of another length is refused by its header, and
counting takes no more memory than the counts.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError, PrivkdeError
from accounting.mechanisms.bitsum_protocol import message_bits
from accounting.request import MOST_USERS
from privkde.bitsum import Tally

MAGIC = b"pk"
VERSION = 4
ID_BYTES = 16
_HEADER = struct.Struct("<2sBBB32sB16sIQ")
_CHECKSUM = struct.Struct("<I")
_CHUNK = 1 << 16  # entries packed at a time; a multiple of 8, so that chunks end on whole bytes
Order = Callable[[int], NDArray[np.int64]]
"""From the number of messages to the order in which they are listed."""


class MalformedPacketError(PrivkdeError):
    """Bytes that are not a packet of this collection."""


class OverlongPacketError(PrivkdeError):
    """Users drew more messages than a packet of theirs may hold: it is not written, and they do not take part.

    An honest user meets it with probability at most e^−900 (docs/proofs/limits.md).
    """


class Counted(NamedTuple):
    """What a packet holds: users, how many ones and zeros they send in each instance, its id and mark.

    Unless said otherwise their draws are not `secret`, and it has the id that all share who do not choose one: only the
    first of them is counted.
    """

    n_users: int
    tally: Tally
    packet_id: bytes = bytes(ID_BYTES)
    secret: bool = False


class _Head(NamedTuple):
    secret: bool
    packet_id: bytes
    n_users: int
    width: int
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormat:
    """How the messages of a collection are written to bytes."""

    collection: bytes
    n_instances: int
    content_bits: int
    most_messages: int
    """Of one user (`BitsumProtocol.most_messages`)."""
    dense: bool = False
    """Whether packets count messages instead of listing them (`BitsumProtocol.one_message_each`)."""

    @property
    def longest(self) -> int:
        """Bytes of the longest packet of one user."""
        return _size(self.n_instances if self.dense else self.most_messages, self.width)

    @property
    def width(self) -> int:
        """Bits of one entry of a user's packet; at least one, so that its length bounds what it can claim to hold."""
        return message_bits(self.n_instances, self.content_bits, in_order=self.dense)

    def encode(self, counted: Counted, order: Order | None = None) -> bytes:
        """The packet that holds this. Listed messages are sorted by instance, or in the `order` drawn for so many."""
        if not 0 <= counted.n_users <= MOST_USERS:
            raise InvalidInputError(f"users={counted.n_users} do not fit in one packet; split it.")
        if self.dense:
            _require_one_each(counted.tally, counted.n_users)
            return self._sealed(counted, self._width_of(counted.n_users), counted.tally.ones)
        self._require_allowed(counted)
        words = self._listed(counted.tally)
        if order is not None:
            words = words[order(len(words))]
        return self._sealed(counted, self.width, words)

    def encode_users(self, tally: Tally, ids: Sequence[bytes], *, secret: bool) -> list[bytes]:
        """The packet of each user, a row of the tally, with its id. Dense rows are packed all at once."""
        rows = zip(tally.ones, tally.zeros, ids, strict=True)
        users = [Counted(1, Tally(ones, zeros), packet_id, secret) for ones, zeros, packet_id in rows]
        if not self.dense:
            return [self.encode(user) for user in users]
        _require_one_each(tally, 1)
        packed = np.packbits(tally.ones, axis=1)
        return [_joined(self._head(user, 1, self.n_instances), [row]) for user, row in zip(users, packed, strict=True)]

    def counts(self, packet: bytes, *, of_one: bool = False) -> Counted:
        """What a packet holds in each instance, or `MalformedPacketError`; bits of one user are in bytes.

        If it must be `of_one` user, another one is refused by its header, however long it is.
        """
        head = self._header(packet)
        if of_one and head.n_users != 1:
            raise MalformedPacketError(f"the packet is of {head.n_users} users; users send one each.")
        tally = self._dense_tally(packet, head) if self.dense else self._sparse_tally(packet, head)
        return Counted(head.n_users, tally, head.packet_id, head.secret)

    def packet_id(self, packet: bytes) -> bytes:
        """The id of a packet, or `MalformedPacketError` by every check that needs no unpacking."""
        return self._header(packet).packet_id

    def _width_of(self, n_users: int) -> int:
        """Bits of one entry in a packet of so many users."""
        return max(self.width, n_users.bit_length()) if self.dense else self.width

    def _require_allowed(self, counted: Counted) -> None:
        most = counted.n_users * self.most_messages
        if int(counted.tally.ones.sum()) + int(counted.tally.zeros.sum()) > most:
            raise OverlongPacketError(
                f"a packet of {counted.n_users} users holds at most {most} messages by their plan, and more were"
                " drawn; leave these users out."
            )
        if not self.content_bits and counted.tally.zeros.any():
            raise InvalidInputError("messages without content are ones, and zeros were given; count them again.")

    def _listed(self, tally: Tally) -> NDArray[np.unsignedinteger[Any]]:
        """Every message as a number in the smallest type, sorted."""
        counts = np.stack([tally.zeros, tally.ones], axis=1).reshape(-1) if self.content_bits else tally.ones
        return np.repeat(np.arange(len(counts), dtype=np.min_scalar_type(len(counts) - 1)), counts)

    def _head(self, counted: Counted, width: int, entries: int) -> bytes:
        if len(counted.packet_id) != ID_BYTES:
            raise InvalidInputError(f"an id of {len(counted.packet_id)} bytes was given; draw {ID_BYTES}.")
        marked = (counted.secret, counted.packet_id, counted.n_users, entries)
        return _HEADER.pack(MAGIC, VERSION, self.dense, width, self.collection, *marked)

    def _sealed(self, counted: Counted, width: int, entries: NDArray[np.integer[Any]]) -> bytes:
        pieces = (_packed(entries[at : at + _CHUNK], width) for at in range(0, len(entries), _CHUNK))
        return _joined(self._head(counted, width, len(entries)), pieces)

    def _sparse_tally(self, packet: bytes, head: _Head) -> Tally:
        counts = np.zeros(self.n_instances << self.content_bits, np.int64)
        for _, words in _entries(packet, head):
            largest = int(words.max()) >> self.content_bits
            if largest >= self.n_instances:
                raise MalformedPacketError(
                    f"instance {largest} is not below {self.n_instances}; the sender follows another plan."
                )
            np.add.at(counts, words, 1)
        return Tally(counts[1::2], counts[::2]) if self.content_bits else Tally(counts, np.zeros_like(counts))

    def _dense_tally(self, packet: bytes, head: _Head) -> Tally:
        ones: NDArray[Any] = np.empty(self.n_instances, np.uint8 if head.width == 1 else np.int64)
        for at, counts in _entries(packet, head):
            ones[at : at + len(counts)] = counts
        if int(ones.max()) > head.n_users:
            raise MalformedPacketError(f"{ones.max()} ones of {head.n_users} users in one instance; it was altered.")
        return Tally(ones, np.subtract(head.n_users, ones, dtype=ones.dtype))

    def _header(self, packet: bytes) -> _Head:
        """The header, after every check that needs no unpacking."""
        if not isinstance(packet, bytes):
            raise MalformedPacketError(f"a packet is bytes, not {type(packet).__name__}.")
        if len(packet) < _HEADER.size + _CHECKSUM.size:
            raise MalformedPacketError(f"{len(packet)} bytes are too short for a packet; it was truncated.")
        magic, version, form, width, collection, secret, packet_id, n_users, count = _HEADER.unpack_from(packet)
        if magic != MAGIC or version != VERSION:
            raise MalformedPacketError(
                f"the packet does not begin with {MAGIC!r} and version {VERSION}; its sender needs a client of this"
                " version (packets of version 1 have no report id, of 2 no form, of 3 a short name of the collection)."
            )
        if collection != self.collection or form != self.dense or width != self._width_of(n_users):
            raise MalformedPacketError("the packet belongs to another collection; check the announcement.")
        if n_users > MOST_USERS or (not self.dense and count > n_users * self.most_messages):
            raise MalformedPacketError(f"{count} messages of {n_users} users are more than their plan allows.")
        if self.dense and count != self.n_instances:
            raise MalformedPacketError(f"{count} counts where there are {self.n_instances} instances; it was altered.")
        if len(packet) != _size(count, width):
            raise MalformedPacketError(
                f"{len(packet)} bytes where {count} entries take {_size(count, width)}; truncated or padded."
            )
        if zlib.crc32(memoryview(packet)[: -_CHECKSUM.size]) != _CHECKSUM.unpack(packet[-_CHECKSUM.size :])[0]:
            raise MalformedPacketError("the checksum does not match; the packet was damaged on its way.")
        if secret not in (0, 1):
            raise MalformedPacketError(f"draws={secret} is neither 1 (secret) nor 0 (seeded); the packet was altered.")
        return _Head(bool(secret), packet_id, n_users, width, count)


def _size(entries: int, width: int) -> int:
    """Bytes of a packet of so many entries."""
    return _HEADER.size + (entries * width + 7) // 8 + _CHECKSUM.size


def _require_one_each(tally: Tally, n_users: int) -> None:
    sent = tally.ones + tally.zeros
    if sent.size and not sent.min() == sent.max() == n_users:
        raise InvalidInputError("a user sends exactly one message in each instance by the plan; count them again.")


def _joined(head: bytes, pieces: Iterable[NDArray[np.uint8]]) -> bytes:
    """A packet from its header and its packed entries."""
    parts, checksum = [head], zlib.crc32(head)
    for piece in pieces:
        parts.append(piece.tobytes())
        checksum = zlib.crc32(parts[-1], checksum)
    return b"".join([*parts, _CHECKSUM.pack(checksum)])


def _entries(packet: bytes, head: _Head) -> Iterator[tuple[int, NDArray[np.integer[Any]]]]:
    """The entries of a packet with a good header, some at a time, each time with the number of the first."""
    raw = np.frombuffer(packet, np.uint8, offset=_HEADER.size)[: -_CHECKSUM.size]
    if int.from_bytes(raw[-1:].tobytes()) & ((1 << (-head.entries * head.width % 8)) - 1):
        raise MalformedPacketError("the bits after the last entry are not zero; the packet was altered.")
    for start in range(0, head.entries, _CHUNK):
        first = start * head.width // 8
        piece = raw[first : first + _CHUNK * head.width // 8]
        yield start, _unpacked(piece, head.width)[: head.entries - start]


def _packed(entries: NDArray[np.integer[Any]], width: int) -> NDArray[np.uint8]:
    if width == 1:
        return np.packbits(entries.astype(np.uint8))
    octets = entries.astype(">u4").view(np.uint8).reshape(-1, 4)
    return np.packbits(np.unpackbits(octets, axis=1)[:, -width:])


def _unpacked(raw: NDArray[np.uint8], width: int) -> NDArray[np.integer[Any]]:
    bits = np.unpackbits(raw)
    if width == 1:
        return bits
    whole = bits[: len(bits) // width * width].reshape(-1, width)
    padded = np.zeros((len(whole), 32), np.uint8)
    padded[:, -width:] = whole
    return np.packbits(padded, axis=1).view(">u4").reshape(-1)
