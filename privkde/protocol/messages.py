"""The wire format: packets of messages, each the index of its instance and its bit.

A packet is a header, the messages packed at ⌈log₂ IQ⌉ + 1 bits each (⌈log₂ IQ⌉ where messages carry no content),
zero bits up to a whole byte, and a CRC-32 of everything before:

    "pk"  version (1 byte)  width (1 byte)  collection (8 bytes)  draws (1 byte)  id (16 bytes)
    users (4 bytes)  messages (8 bytes)  …  CRC (4 bytes)

All integers are little-endian; messages are packed most significant bit first, index before bit. A packet is taken
whole or refused whole, so a malformed one cannot shift a count. The checksum finds accidents, not forgeries.

`draws` is 1 if the sender drew from secret randomness and 0 if from a seed, which protects nobody. `id` is random: in
a user's packet it names the report, in a released packet the release, so that each is counted once.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError, PrivkdeError
from privkde.bitsum import Tally

MAGIC = b"pk"
VERSION = 2
ID_BYTES = 16
_HEADER = struct.Struct("<2sBB8sB16sIQ")
_CHECKSUM = struct.Struct("<I")
_CHUNK = 1 << 16  # messages packed at a time; a multiple of 8, so that chunks end on whole bytes


class MalformedPacketError(PrivkdeError):
    """Bytes that are not a packet of this collection."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of `n_users` users: the instance and the bit of each.

    Unless said otherwise they are not `secret`, and have the id that all share who do not choose one: only the first
    of them is counted.
    """

    n_users: int
    instances: NDArray[np.int64]
    bits: NDArray[np.uint8]
    packet_id: bytes = bytes(ID_BYTES)
    secret: bool = False

    @staticmethod
    def of_one_user(
        ones: NDArray[np.integer], zeros: NDArray[np.integer], packet_id: bytes, *, secret: bool
    ) -> Messages:
        """The messages of a user who sends this many ones and zeros in each instance."""
        instances = np.arange(len(ones))
        return Messages(
            1,
            np.concatenate([np.repeat(instances, ones), np.repeat(instances, zeros)]),
            np.repeat(np.array([1, 0], np.uint8), [int(ones.sum()), int(zeros.sum())]),
            packet_id,
            secret,
        )

    def counts(self, n_instances: int) -> Tally:
        """How many ones and zeros there are in each instance: all that a random order leaves of messages."""
        ones, zeros = (np.bincount(self.instances[self.bits == bit], minlength=n_instances) for bit in (1, 0))
        return Tally(ones, zeros)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireFormat:
    """How the messages of a collection are written to bytes."""

    collection: bytes
    n_instances: int
    content_bits: int

    @property
    def width(self) -> int:
        """Bits of one message; at least one, so that the length of a packet bounds what it can claim to hold."""
        return max(1, (self.n_instances - 1).bit_length() + self.content_bits)

    def encode(self, messages: Messages) -> bytes:
        """The packet of these messages."""
        if not 0 <= messages.n_users < 2**32:
            raise InvalidInputError(f"users={messages.n_users} do not fit in one packet; split it.")
        words = (messages.instances << self.content_bits) | (messages.bits if self.content_bits else 0)
        if len(messages.packet_id) != ID_BYTES:
            raise InvalidInputError(f"an id of {len(messages.packet_id)} bytes was given; draw {ID_BYTES}.")
        marked = (messages.secret, messages.packet_id, messages.n_users, len(words))
        head = _HEADER.pack(MAGIC, VERSION, self.width, self.collection, *marked)
        body = head + b"".join(self._pack(words[at : at + _CHUNK]) for at in range(0, len(words), _CHUNK))
        return body + _CHECKSUM.pack(zlib.crc32(body))

    def decode(self, packet: bytes) -> Messages:
        """The messages of a packet, or `MalformedPacketError`."""
        secret, packet_id, n_users, count = self._header(packet)
        raw = np.frombuffer(packet, np.uint8, offset=_HEADER.size)[: -_CHECKSUM.size]
        if int.from_bytes(raw[-1:].tobytes()) & ((1 << (-count * self.width % 8)) - 1):
            raise MalformedPacketError("the bits after the last message are not zero; the packet was altered.")
        step = _CHUNK * self.width // 8
        parts = [self._unpack(raw[at : at + step]) for at in range(0, len(raw), step)]
        words = np.concatenate([np.zeros(0, np.int64), *parts])[:count]
        instances = words >> self.content_bits
        if count and int(instances.max()) >= self.n_instances:
            raise MalformedPacketError(
                f"instance {int(instances.max())} is not below {self.n_instances}; the sender follows another plan."
            )
        bits = (words & 1).astype(np.uint8) if self.content_bits else np.ones(count, np.uint8)
        return Messages(n_users, instances, bits, packet_id, secret)

    def packet_id(self, packet: bytes) -> bytes:
        """The id of a packet, or `MalformedPacketError` by every check that needs no unpacking."""
        return self._header(packet)[1]

    def _header(self, packet: bytes) -> tuple[bool, bytes, int, int]:
        """Whether draws were secret, id, users and number of messages, after every check that needs no unpacking."""
        if not isinstance(packet, bytes):
            raise MalformedPacketError(f"a packet is bytes, not {type(packet).__name__}.")
        if len(packet) < _HEADER.size + _CHECKSUM.size:
            raise MalformedPacketError(f"{len(packet)} bytes are too short for a packet; it was truncated.")
        magic, version, width, collection, secret, packet_id, n_users, count = _HEADER.unpack_from(packet)
        if magic != MAGIC or version != VERSION:
            raise MalformedPacketError(
                f"the packet does not begin with {MAGIC!r} and version {VERSION}; its sender needs a client of this"
                " version (packets of version 1 have no report id)."
            )
        if collection != self.collection or width != self.width:
            raise MalformedPacketError("the packet belongs to another collection; check the announcement.")
        size = _HEADER.size + (count * width + 7) // 8 + _CHECKSUM.size
        if len(packet) != size:
            raise MalformedPacketError(f"{len(packet)} bytes where {count} messages take {size}; truncated or padded.")
        if zlib.crc32(packet[: -_CHECKSUM.size]) != _CHECKSUM.unpack(packet[-_CHECKSUM.size :])[0]:
            raise MalformedPacketError("the checksum does not match; the packet was damaged on its way.")
        if secret not in (0, 1):
            raise MalformedPacketError(f"draws={secret} is neither 1 (secret) nor 0 (seeded); the packet was altered.")
        return bool(secret), packet_id, n_users, count

    def _pack(self, words: NDArray[np.int64]) -> bytes:
        shifts = np.arange(self.width - 1, -1, -1)
        return np.packbits(((words[:, None] >> shifts) & 1).astype(np.uint8)).tobytes()

    def _unpack(self, raw: NDArray[np.uint8]) -> NDArray[np.int64]:
        bits = np.unpackbits(raw)
        whole = bits[: len(bits) // self.width * self.width].reshape(-1, self.width)
        return whole.astype(np.int64) @ (1 << np.arange(self.width - 1, -1, -1, dtype=np.int64))
