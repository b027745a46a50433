"""The wire format against a twin of its description, bit by bit; and everything that is not a packet."""

import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accounting.errors import InvalidInputError, PrivkdeError
from privkde.protocol import messages as messages_module
from privkde.protocol.messages import MalformedPacketError, Messages, WireFormat
from tests import strategies
from tests.privkde.unplanned import announced, small_laws
from tests.strategies import searched

WIRE = WireFormat(collection=b"eight by", n_instances=5, content_bits=1)
Plain = tuple[int, list[int], list[int], bytes, bool]


def plain(messages: Messages) -> Plain:
    counted = messages.n_users, messages.instances.tolist(), messages.bits.tolist()
    return *counted, messages.packet_id, messages.secret


def width(wire: WireFormat) -> int:
    """⌈log₂ IQ⌉ bits for the instance and one for the content, and never nothing."""
    index = 0
    while 2**index < wire.n_instances:
        index += 1
    return max(1, index + wire.content_bits)


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


def written(wire: WireFormat, messages: Plain) -> bytes:
    """The twin of `encode`: a string of digits."""
    n_users, instances, bits, packet_id, secret = messages
    index = width(wire) - wire.content_bits
    digits = "".join(
        format(instance, f"0{index}b") * (index > 0) + str(bit) * wire.content_bits
        for instance, bit in zip(instances, bits, strict=True)
    )
    digits += "0" * (-len(digits) % 8)
    marked = (b"\1" if secret else b"\0") + packet_id
    head = b"pk" + bytes([2, width(wire)]) + wire.collection + marked + n_users.to_bytes(4, "little")
    body = head + len(instances).to_bytes(8, "little")
    return sealed(body + bytes(int(digits[at : at + 8], 2) for at in range(0, len(digits), 8)))


def read(wire: WireFormat, packet: bytes) -> Plain | None:
    """The twin of `decode`: a packet is what writes to the same bytes."""
    if len(packet) < 45:
        return None
    n_users, count = int.from_bytes(packet[29:33], "little"), int.from_bytes(packet[33:41], "little")
    if count > 8 * len(packet):
        return None
    digits = "".join(format(byte, "08b") for byte in packet[41:-4])
    words = [digits[at : at + width(wire)] for at in range(0, width(wire) * count, width(wire))]
    index = width(wire) - wire.content_bits
    if any(len(word) < width(wire) for word in words):
        return None
    instances = [int(word[:index] or "0", 2) for word in words]
    bits = [int(word[-1]) if wire.content_bits else 1 for word in words]
    if any(instance >= wire.n_instances for instance in instances):
        return None
    found = (n_users, instances, bits, packet[13:29], packet[12] == 1)
    return found if written(wire, found) == packet else None


def decoded(wire: WireFormat, packet: bytes) -> Plain | None:
    """None for `MalformedPacketError`; any other error is not caught."""
    try:
        return plain(wire.decode(packet))
    except MalformedPacketError:
        return None


# Round trips --------------------------------------------------------------------------------------------------------


@searched(given(data=st.data(), wire=strategies.wire_formats()), examples=60, study=1000)
def test_packets_are_as_documented_and_come_back(data: st.DataObject, wire: WireFormat) -> None:
    messages = data.draw(strategies.messages(wire))
    packet = wire.encode(messages)
    assert packet == written(wire, plain(messages))
    back = wire.decode(packet)
    assert plain(back) == plain(messages) == read(wire, packet)
    assert back.instances.dtype == np.int64
    assert back.bits.dtype == np.uint8


@pytest.mark.parametrize("content_bits", [0, 1])
@pytest.mark.parametrize("n_instances", [1, 2, 3, 4, 5, 255, 256, 257, 65_535, 65_536, 65_537, 2**20])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9])
def test_size_is_as_documented(n_instances: int, content_bits: int, count: int) -> None:
    wire = WireFormat(collection=bytes(8), n_instances=n_instances, content_bits=content_bits)
    index = int(np.ceil(np.log2(n_instances)))
    assert wire.width == max(1, index + content_bits) == width(wire)
    last = np.full(count, n_instances - 1)
    packet = wire.encode(Messages(1, last, np.ones(count, np.uint8)))
    assert len(packet) == 41 + -(-count * wire.width // 8) + 4
    assert plain(wire.decode(packet)) == (1, last.tolist(), [1] * count, bytes(16), False)


@pytest.mark.parametrize("name", ["rr", "3nb", "poisson"])
@pytest.mark.parametrize("repetitions", [1, 2, 3, 768])
def test_bits_of_a_message_are_those_accounted_for(name: str, repetitions: int) -> None:
    announcement = announced(small_laws(2)[name], repetitions=repetitions)
    facts, law = announcement.plan.request.facts(), announcement.plan.protocol()
    assert announcement.wire_format().width == facts.message_bits(law.content_bits)
    assert announcement.wire_format().n_instances == facts.n_instances == repetitions


@given(data=st.data(), wire=strategies.wire_formats(), chunk=st.sampled_from([8, 16, 24]))
def test_chunks_leave_no_trace(data: st.DataObject, wire: WireFormat, chunk: int) -> None:
    """Small chunks: up to six of them, with every remainder."""
    messages = data.draw(strategies.messages(wire, most=50))
    packet = wire.encode(messages)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages_module, "_CHUNK", chunk)
        assert wire.encode(messages) == packet
        assert decoded(wire, packet) == plain(messages)


@pytest.mark.parametrize("count", [2**16 - 1, 2**16, 2**16 + 1, 2**17, 2**17 + 3])
@pytest.mark.parametrize(("n_instances", "content_bits"), [(1, 0), (3, 1), (70_000, 1)])
def test_real_chunks_leave_no_trace(count: int, n_instances: int, content_bits: int) -> None:
    rng = np.random.default_rng(count)
    wire = WireFormat(collection=bytes(range(8)), n_instances=n_instances, content_bits=content_bits)
    bits = rng.integers(0, 2, count, dtype=np.uint8) if content_bits else np.ones(count, np.uint8)
    messages = Messages(7, rng.integers(0, n_instances, count), bits)
    packet = wire.encode(messages)
    assert len(packet) == 45 + -(-count * wire.width // 8)
    back = wire.decode(packet)
    assert np.array_equal(back.instances, messages.instances)
    assert np.array_equal(back.bits, messages.bits)


@pytest.mark.parametrize("n_users", [-1, 2**32])
def test_users_that_do_not_fit_are_refused(n_users: int) -> None:
    with pytest.raises(InvalidInputError, match="split"):
        WIRE.encode(Messages(n_users, np.zeros(0, np.int64), np.zeros(0, np.uint8)))
    assert issubclass(MalformedPacketError, PrivkdeError)
    with pytest.raises(InvalidInputError, match="an id of 3 bytes was given; draw 16"):
        WIRE.encode(Messages(1, np.zeros(0, np.int64), np.zeros(0, np.uint8), b"abc"))


# What is not a packet ------------------------------------------------------------------------------------------------


GOOD = WIRE.encode(Messages(3, np.array([0, 4, 2]), np.array([1, 0, 1], np.uint8)))


def test_every_single_bit_flip_is_found() -> None:
    for bit in range(8 * len(GOOD)):
        flipped = bytearray(GOOD)
        flipped[bit // 8] ^= 1 << bit % 8
        assert decoded(WIRE, bytes(flipped)) is None


def test_every_single_bit_flip_with_a_repaired_checksum_is_judged_like_the_twin() -> None:
    """Flips in id and number of users, and flips of mark and messages that still make sense, are other packets."""
    verdicts = []
    for bit in range(8 * (len(GOOD) - 4)):
        flipped = bytearray(GOOD[:-4])
        flipped[bit // 8] ^= 1 << bit % 8
        packet = sealed(bytes(flipped))
        assert decoded(WIRE, packet) == read(WIRE, packet)
        verdicts.append(decoded(WIRE, packet) is not None)
    assert sum(verdicts[8 * 12 : 8 * 33]) == sum(verdicts[: 8 * 41]) == 1 + 8 * 16 + 32
    assert 0 < sum(verdicts[8 * 41 :]) < 16


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_truncations_are_found(length: int) -> None:
    assert decoded(WIRE, GOOD[:length]) is None
    if length >= 4:
        assert decoded(WIRE, sealed(GOOD[: length - 4])) is None


@given(st.binary(min_size=1, max_size=20))
def test_appended_bytes_are_found(tail: bytes) -> None:
    assert decoded(WIRE, GOOD + tail) is None
    assert decoded(WIRE, sealed(GOOD[:-4] + tail)) is None


@given(st.binary(max_size=200))
@example(b"")
@example(b"pk\2")
def test_random_bytes_are_no_packet(packet: bytes) -> None:
    assert decoded(WIRE, packet) is None
    assert decoded(WIRE, sealed(b"pk\2" + packet)) == read(WIRE, sealed(b"pk\2" + packet))


HEADER = struct.Struct("<2sBB8sB16sIQ")


def forged(  # every field of the header can be chosen
    *,
    magic: bytes = b"pk",
    version: int = 2,
    message_width: int = 4,
    collection: bytes = b"eight by",
    draws: int = 1,
    n_users: int = 1,
    count: int = 2,
    content: bytes = b"\x12",
) -> bytes:
    head = HEADER.pack(magic, version, message_width, collection, draws, b"sixteen bytes id", n_users, count)
    return sealed(head + content)


def test_forgery_is_otherwise_a_packet() -> None:
    assert decoded(WIRE, forged()) == (1, [0, 1], [1, 0], b"sixteen bytes id", True)
    assert decoded(WIRE, forged(draws=0)) == (1, [0, 1], [1, 0], b"sixteen bytes id", False)
    assert WIRE.packet_id(forged()) == b"sixteen bytes id"


@pytest.mark.parametrize(
    ("packet", "match"),
    [
        (forged(magic=b"pq"), "begin"),
        (forged(version=0), "version"),
        (forged(version=1), "packets of version 1 have no report id"),
        (forged(version=3), "version"),
        (forged(draws=2), "draws=2 is neither"),
        (forged(message_width=3), "another collection"),
        (forged(message_width=5), "another collection"),
        (forged(message_width=0), "another collection"),
        (forged(collection=b"eight bz"), "another collection"),
        (forged(count=1), "not zero"),
        (forged(count=1, content=b"\x11"), "not zero"),
        (forged(count=0), "truncated or padded"),
        (forged(count=0, content=b""), ""),
        (forged(count=3), "truncated or padded"),
        (forged(count=2**63), "truncated or padded"),
        (forged(count=2**64 - 1, content=b""), "truncated or padded"),
        (forged(count=2**61, content=b""), "truncated or padded"),
        (forged(content=b"\xa2"), "instance 5 is not below 5"),
        (forged(content=b"\x2f"), "instance 7 is not below 5"),
        (forged()[:-1] + bytes([forged()[-1] ^ 1]), "checksum"),
    ],
)
def test_forged_headers_and_contents_are_refused(packet: bytes, match: str) -> None:
    if not match:  # the control: nothing at all is a packet, too
        assert decoded(WIRE, packet) == (1, [], [], b"sixteen bytes id", True)
        return
    with pytest.raises(MalformedPacketError, match=match):
        WIRE.decode(packet)


@pytest.mark.parametrize(("n_instances", "content_bits"), [(1, 0), (1, 1), (2, 0), (4, 1), (65_537, 0)])
def test_index_one_beyond_the_last_is_refused(n_instances: int, content_bits: int) -> None:
    """Packed by a format with one more bit of room, so that the twin of the checksum is right."""
    wire = WireFormat(collection=bytes(8), n_instances=n_instances, content_bits=content_bits)
    room = 2 ** (wire.width - content_bits)
    for instance in {n_instances - 1, n_instances, room - 1} & set(range(room)):
        wide = WireFormat(collection=bytes(8), n_instances=room, content_bits=content_bits)
        packet = wide.encode(Messages(1, np.array([instance]), np.ones(1, np.uint8)))
        assert (decoded(wire, packet) is not None) == (instance < n_instances)


Edit = Callable[[bytes], bytes]


def _edits() -> st.SearchStrategy[Edit]:
    def put(at: int, value: int) -> Edit:
        return lambda body: body[: at % len(body)] + bytes([value]) + body[at % len(body) + 1 :] if body else body

    def cut(at: int, length: int) -> Edit:
        return lambda body: body[:at] + body[at + length :]

    def insert(at: int, more: bytes) -> Edit:
        return lambda body: body[:at] + more + body[at:]

    return st.one_of(
        st.builds(put, st.integers(0, 60), st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 255]))),
        st.builds(cut, st.integers(0, 60), st.integers(1, 9)),
        st.builds(insert, st.integers(0, 60), st.binary(min_size=1, max_size=9)),
    )


@searched(
    given(
        data=st.data(),
        wire=st.one_of(st.just(WIRE), strategies.wire_formats()),
        edits=st.lists(_edits(), max_size=4),
        seal=st.booleans(),
    ),
    examples=80,
    study=2000,
)
def test_edited_packets_are_judged_like_the_twin(
    data: st.DataObject, wire: WireFormat, edits: list[Edit], seal: bool
) -> None:
    packet = wire.encode(data.draw(strategies.messages(wire, most=12)))
    body = packet[:-4] if seal else packet
    for edit in edits:
        body = edit(body)
    edited = sealed(body) if seal else body
    assert decoded(wire, edited) == read(wire, edited)


def test_packets_of_other_collections_are_refused() -> None:
    """Another seed, group, plan or law: another collection, even where the messages look the same."""
    law = small_laws(3)["rr"]
    first = announced(law)
    others = [
        announced(law, group="b"),
        announced(law, public_seed="ff" * 16),
        announced(law, users=7),
        announced(law, epsilon=2.0),
        announced(law, repetitions=3),
        announced(small_laws(3)["3nb"]),
        announced(small_laws(2)["rr"]),
    ]
    packet = first.wire_format().encode(Messages(1, np.arange(3), np.ones(3, np.uint8)))
    assert decoded(announced(law).wire_format(), packet) is not None
    for other in others:
        assert decoded(other.wire_format(), packet) is None
    assert len({other.collection() for other in [first, *others]}) == len(others) + 1
