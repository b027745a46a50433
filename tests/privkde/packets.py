"""Packets by the description of the wire format, bit by bit: a slow twin of `privkde.protocol.messages`."""

import dataclasses
import struct
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from privkde.bitsum import Tally
from privkde.protocol.messages import Counted, WireFormat

HEADER = struct.Struct("<2sBBB32sB16sIQ")
START = 66
"""Where entries begin."""
Pair = tuple[int, int]


@dataclass(frozen=True)
class Listed:
    """Messages of some users, each its instance and its bit; of a dense packet by instance, ones first."""

    n_users: int
    pairs: tuple[Pair, ...]
    packet_id: bytes = bytes(16)
    secret: bool = False

    @staticmethod
    def of(pairs: Iterable[Pair], n_users: int = 1, *, packet_id: bytes = bytes(16), secret: bool = False) -> "Listed":
        return Listed(n_users, tuple(pairs), packet_id, secret)

    def counted(self, wire: WireFormat) -> Counted:
        """How many there are in each instance."""
        sent = Counter(self.pairs)
        ones, zeros = (np.array([sent[i, bit] for i in range(wire.n_instances)]) for bit in (1, 0))
        return Counted(self.n_users, Tally(ones, zeros), self.packet_id, self.secret)

    def sorted(self) -> "Listed":
        return dataclasses.replace(self, pairs=tuple(sorted(self.pairs)))


def index_bits(wire: WireFormat) -> int:
    """⌈log₂ IQ⌉."""
    index = 0
    while 2**index < wire.n_instances:
        index += 1
    return index


def width(wire: WireFormat, n_users: int = 1) -> int:
    """A message is its instance and its content, a count at most n; and never nothing."""
    if not wire.dense:
        return max(1, index_bits(wire) + wire.content_bits)
    bits = 1
    while 2**bits <= n_users:
        bits += 1
    return bits


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


def written(wire: WireFormat, messages: Listed) -> bytes:
    """The packet of these messages, as a string of digits: listed in this order, or counted, however many."""
    size, index = width(wire, messages.n_users), index_bits(wire)
    if wire.dense:
        ones = Counter(instance for instance, bit in messages.pairs if bit)
        entries = [format(ones[instance], f"0{size}b") for instance in range(wire.n_instances)]
    else:
        entries = [
            format(instance, f"0{max(1, index)}b") * (index > 0 or not wire.content_bits) + str(bit) * wire.content_bits
            for instance, bit in messages.pairs
        ]
    digits = "".join(entries)
    digits += "0" * (-len(digits) % 8)
    head = b"pk" + bytes([4, wire.dense, size]) + wire.collection + bytes([messages.secret]) + messages.packet_id
    body = head + messages.n_users.to_bytes(4, "little") + len(entries).to_bytes(8, "little")
    return sealed(body + bytes(int(digits[at : at + 8], 2) for at in range(0, len(digits), 8)))


def read(wire: WireFormat, packet: bytes) -> Listed | None:
    """The messages of a packet; a packet is what is written as the same bytes. Dense ones of at most 10,000 users."""
    if len(packet) < START + 4:
        return None
    n_users, count = int.from_bytes(packet[54:58], "little"), int.from_bytes(packet[58:66], "little")
    size = width(wire, n_users)
    if count > 8 * len(packet) or n_users > 10**9 or (count > n_users * wire.most_messages and not wire.dense):
        return None
    digits = "".join(format(byte, "08b") for byte in packet[START:-4])
    words = [digits[at : at + size] for at in range(0, size * count, size)]
    if any(len(word) < size for word in words):
        return None
    if wire.dense:
        pairs = _spelled_out([int(word, 2) for word in words], n_users, wire)
    else:
        index = size - wire.content_bits
        pairs = [(int(word[:index] or "0", 2), int(word[-1]) if wire.content_bits else 1) for word in words]
    if pairs is None or any(instance >= wire.n_instances for instance, _ in pairs):
        return None
    found = Listed(n_users, tuple(pairs), packet[38:54], packet[37] == 1)
    return found if written(wire, found) == packet else None


def _spelled_out(ones: list[int], n_users: int, wire: WireFormat) -> list[Pair] | None:
    if n_users > 10_000 or len(ones) != wire.n_instances or any(count > n_users for count in ones):
        return None
    return [(i, int(number < count)) for i, count in enumerate(ones) for number in range(n_users)]


def read_packet(wire: WireFormat, packet: bytes) -> Listed:
    """The messages of what must be a packet."""
    found = read(wire, packet)
    assert found is not None
    return found
