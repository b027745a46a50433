"""The wire format against a twin of its description, bit by bit; and everything that is not a packet."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accounting.errors import InvalidInputError, PrivkdeError
from privkde.bitsum import Tally
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import permutation
from privkde.protocol import messages as messages_module
from privkde.protocol.messages import Counted, MalformedPacketError, OverlongPacketError, WireFormat
from tests import strategies
from tests.memory import MEGABYTE, peak
from tests.privkde.packets import HEADER, START, Listed, read, read_packet, sealed, width, written
from tests.privkde.unplanned import announced, small_laws
from tests.strategies import searched

WIRE = WireFormat(collection=b"thirty-two bytes of a collection", n_instances=5, content_bits=1, most_messages=1000)
DENSE = WireFormat(
    collection=b"thirty-two bytes of a collection", n_instances=5, content_bits=1, most_messages=5, dense=True
)
WIRES = {"sparse": WIRE, "dense": DENSE}
Plain = tuple[int, list[int], list[int], bytes, bool]


def plain(counted: Counted) -> Plain:
    return counted.n_users, counted.tally.ones.tolist(), counted.tally.zeros.tolist(), *counted[2:]


def judged(wire: WireFormat, packet: bytes) -> Plain | None:
    """By the library; None for `MalformedPacketError`, and any other error is not caught."""
    try:
        return plain(wire.counts(packet))
    except MalformedPacketError:
        return None


def expected(wire: WireFormat, packet: bytes) -> Plain | None:
    """By the twin."""
    found = read(wire, packet)
    return None if found is None else plain(found.counted(wire))


def room(n_instances: int, content_bits: int, most_messages: int = 10**6) -> WireFormat:
    return WireFormat(
        collection=bytes(32), n_instances=n_instances, content_bits=content_bits, most_messages=most_messages
    )


# Round trips --------------------------------------------------------------------------------------------------------


@searched(given(data=st.data(), wire=strategies.wire_formats()), examples=80, study=1000)
def test_packets_are_as_documented_and_come_back(data: st.DataObject, wire: WireFormat) -> None:
    messages = data.draw(strategies.messages(wire))
    counted = messages.counted(wire)
    packet = wire.encode(counted)
    assert packet == written(wire, messages.sorted())
    assert judged(wire, packet) == plain(counted) == expected(wire, packet) == judged(wire, written(wire, messages))
    if messages.n_users == 1:
        tally = Tally(counted.tally.ones[None], counted.tally.zeros[None])
        assert wire.encode_users(tally, [messages.packet_id], secret=messages.secret) == [packet]
        assert len(packet) <= wire.longest


@given(data=st.data(), wire=strategies.wire_formats())
def test_messages_are_listed_in_the_order_that_is_drawn_and_counts_have_none(
    data: st.DataObject, wire: WireFormat
) -> None:
    messages = data.draw(strategies.messages(wire)).sorted()
    order = data.draw(st.permutations(range(len(messages.pairs))))
    drawn: list[int] = []

    def draw(count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        drawn.append(count)
        return np.array(order, np.int64)

    packet = wire.encode(messages.counted(wire), draw)
    if wire.dense:
        assert packet == wire.encode(messages.counted(wire))
        assert not drawn
    else:
        assert read_packet(wire, packet).pairs == tuple(messages.pairs[at] for at in order)
        assert drawn == [len(order)]


@pytest.mark.parametrize("content_bits", [0, 1])
@pytest.mark.parametrize("n_instances", [1, 2, 3, 4, 5, 255, 256, 257, 65_535, 65_536, 65_537, 2**20])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9])
def test_size_is_as_documented(n_instances: int, content_bits: int, count: int) -> None:
    wire = room(n_instances, content_bits)
    index = int(np.ceil(np.log2(n_instances)))
    assert wire.width == max(1, index + content_bits) == width(wire)
    ones = np.zeros(n_instances, np.int64)
    ones[-1] = count
    packet = wire.encode(Counted(1, Tally(ones, np.zeros_like(ones))))
    assert len(packet) == START + -(-count * wire.width // 8) + 4
    assert read(wire, packet) == Listed.of([(n_instances - 1, 1)] * count)


@pytest.mark.parametrize("n_users", [0, 1, 2, 3, 4, 7, 8, 255, 256, 10**9])
@pytest.mark.parametrize("n_instances", [1, 5, 8, 1000])
def test_a_dense_packet_has_as_many_bits_for_each_instance_as_a_count_needs(n_instances: int, n_users: int) -> None:
    wire = WireFormat(collection=bytes(32), n_instances=n_instances, content_bits=1, most_messages=1, dense=True)
    bits = max(1, int(np.ceil(np.log2(n_users + 1))))
    ones = np.arange(n_instances) * 7919 % (n_users + 1)
    ones[-1] = n_users
    counted = Counted(n_users, Tally(ones, n_users - ones))
    packet = wire.encode(counted)
    assert len(packet) == START + -(-n_instances * bits // 8) + 4
    assert plain(wire.counts(packet)) == plain(counted)
    assert wire.width == 1
    assert wire.longest == START + -(-n_instances // 8) + 4


@pytest.mark.parametrize("n_users", [1, 2, 300])
def test_no_dense_packet_is_longer_than_its_list(n_users: int) -> None:
    """⌈log₂(n + 1)⌉ ≤ n bits, and a message in a list has at least one."""
    for n_instances in (1, 2, 3, 16, 1000):
        dense = WireFormat(
            collection=bytes(32), n_instances=n_instances, content_bits=1, most_messages=1000, dense=True
        )
        ones = np.zeros(n_instances, np.int64)
        counted = Counted(n_users, Tally(ones, ones + n_users))
        assert len(dense.encode(counted)) <= len(room(n_instances, 1).encode(counted))


@pytest.mark.parametrize("name", ["rr", "3nb", "poisson"])
@pytest.mark.parametrize("repetitions", [1, 2, 3, 768])
def test_bits_of_a_message_are_those_accounted_for(name: str, repetitions: int) -> None:
    announcement = announced(small_laws(2)[name], repetitions=repetitions)
    facts, law = announcement.plan.request.facts(), announcement.plan.protocol()
    wire = announcement.wire_format()
    assert wire.width == law.message_bits(repetitions)
    assert wire.n_instances == facts.n_instances == repetitions
    assert wire.dense is law.one_message_each is (name == "rr")
    if name == "rr":
        assert wire.longest == START + -(-repetitions // 8) + 4


@given(data=st.data(), wire=strategies.wire_formats(), chunk=st.sampled_from([8, 16, 24]))
def test_chunks_leave_no_trace(data: st.DataObject, wire: WireFormat, chunk: int) -> None:
    """Small chunks: up to six of them, with every remainder."""
    counted = data.draw(strategies.messages(wire, most=50)).counted(wire)
    packet = wire.encode(counted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages_module, "_CHUNK", chunk)
        assert wire.encode(counted) == packet
        assert judged(wire, packet) == plain(counted)


@pytest.mark.parametrize("count", [2**16 - 1, 2**16, 2**16 + 1, 2**17, 2**17 + 3])
@pytest.mark.parametrize(("n_instances", "content_bits"), [(1, 0), (3, 1), (70_000, 1)])
def test_real_chunks_leave_no_trace(count: int, n_instances: int, content_bits: int) -> None:
    rng = np.random.default_rng(count)
    wire = room(n_instances, content_bits)
    sent = rng.multinomial(count, np.full(2 * n_instances, 0.5 / n_instances)).reshape(2, -1)
    tally = Tally(sent[0], sent[1]) if content_bits else Tally(sent.sum(0), np.zeros(n_instances, np.int64))
    packet = wire.encode(Counted(7, tally), lambda length: permutation(length, ByteStream(bytes(32))))
    assert len(packet) == START + 4 + -(-count * wire.width // 8)
    assert plain(wire.counts(packet)) == plain(Counted(7, tally))
    dense = WireFormat(collection=bytes(32), n_instances=count, content_bits=1, most_messages=1, dense=True)
    ones = rng.integers(0, 8, count)
    counted = Counted(7, Tally(ones, 7 - ones))
    assert plain(dense.counts(dense.encode(counted))) == plain(counted)


NOTHING = Tally(np.zeros(5, np.int64), np.zeros(5, np.int64))


@pytest.mark.parametrize("n_users", [-1, 10**9 + 1, 2**32])
def test_users_that_do_not_fit_are_refused(n_users: int) -> None:
    for wire in WIRES.values():
        with pytest.raises(InvalidInputError, match="split"):
            wire.encode(Counted(n_users, NOTHING))
    assert issubclass(MalformedPacketError, PrivkdeError)
    with pytest.raises(InvalidInputError, match="an id of 3 bytes was given; draw 16"):
        WIRE.encode(Counted(1, NOTHING, b"abc"))
    with pytest.raises(InvalidInputError, match="an id of 3 bytes was given; draw 16"):
        DENSE.encode_users(Tally(np.ones((1, 5), np.uint8), np.zeros((1, 5), np.uint8)), [b"abc"], secret=True)


@pytest.mark.parametrize(
    ("ones", "zeros"),
    [([1, 1, 1, 1, 0], [0, 0, 0, 0, 0]), ([1, 1, 1, 1, 2], [0] * 5), ([1] * 5, [0, 0, 0, 0, 1]), ([0] * 5, [0] * 5)],
)
def test_who_does_not_send_one_message_in_each_instance_has_no_dense_packet(ones: list[int], zeros: list[int]) -> None:
    tally = Tally(np.array(ones), np.array(zeros))
    with pytest.raises(InvalidInputError, match="exactly one message in each instance"):
        DENSE.encode(Counted(1, tally))
    with pytest.raises(InvalidInputError, match="exactly one message in each instance"):
        DENSE.encode_users(Tally(tally.ones[None], tally.zeros[None]), [bytes(16)], secret=False)
    assert DENSE.encode_users(Tally(np.zeros((0, 5), np.uint8), np.zeros((0, 5), np.uint8)), [], secret=False) == []


def test_messages_without_content_are_ones() -> None:
    with pytest.raises(InvalidInputError, match="zeros were given"):
        room(5, 0).encode(Counted(1, Tally(np.ones(5, np.int64), np.ones(5, np.int64))))


# What is not a packet ------------------------------------------------------------------------------------------------


GOOD = {
    "sparse": WIRE.encode(Listed.of([(0, 1), (4, 0), (2, 1)], 3).counted(WIRE)),
    "dense": DENSE.encode(Counted(5, Tally(np.array([5, 0, 2, 4, 1]), np.array([0, 5, 3, 1, 4])))),
}


@pytest.mark.parametrize("form", GOOD)
def test_every_single_bit_flip_is_found(form: str) -> None:
    for bit in range(8 * len(GOOD[form])):
        flipped = bytearray(GOOD[form])
        flipped[bit // 8] ^= 1 << bit % 8
        assert judged(WIRES[form], bytes(flipped)) is None


@pytest.mark.parametrize(("form", "users"), [("sparse", 30), ("dense", 2)])
def test_every_single_bit_flip_with_a_repaired_checksum_is_judged_like_the_twin(form: str, users: int) -> None:
    """Flips in id and number of users, and flips of mark and entries that still make sense, are other packets.

    Not 2³⁰ or 2³¹ more users; and of a dense packet no other number than 5, 4 and 7, whose counts have three bits.
    """
    good, wire, verdicts = GOOD[form], WIRES[form], []
    for bit in range(8 * (len(good) - 4)):
        flipped = bytearray(good[:-4])
        flipped[bit // 8] ^= 1 << bit % 8
        packet = sealed(bytes(flipped))
        assert judged(wire, packet) == expected(wire, packet)
        verdicts.append(judged(wire, packet) is not None)
    if form == "dense":
        users -= 1  # with four users a count of five is malformed
    assert sum(verdicts[8 * 37 : 8 * 58]) == sum(verdicts[: 8 * START]) == 1 + 8 * 16 + users
    assert 0 < sum(verdicts[8 * START :]) < 16


@pytest.mark.parametrize("form", GOOD)
def test_truncations_are_found(form: str) -> None:
    for length in range(len(GOOD[form])):
        assert judged(WIRES[form], GOOD[form][:length]) is None
        if length >= 4:
            assert judged(WIRES[form], sealed(GOOD[form][: length - 4])) is None


@pytest.mark.parametrize("form", GOOD)
@given(tail=st.binary(min_size=1, max_size=20))
def test_appended_bytes_are_found(form: str, tail: bytes) -> None:
    assert judged(WIRES[form], GOOD[form] + tail) is None
    assert judged(WIRES[form], sealed(GOOD[form][:-4] + tail)) is None


@given(packet=st.binary(max_size=200))
@example(packet=b"")
@example(packet=b"pk\3")
def test_random_bytes_are_no_packet(packet: bytes) -> None:
    for wire in WIRES.values():
        assert judged(wire, packet) is None
        assert judged(wire, sealed(b"pk\3" + packet)) == expected(wire, sealed(b"pk\3" + packet))


def forged(  # every field of the header can be chosen
    *,
    magic: bytes = b"pk",
    version: int = 4,
    form: int = 0,
    entry_width: int = 4,
    collection: bytes = b"thirty-two bytes of a collection",
    draws: int = 1,
    n_users: int = 1,
    count: int = 2,
    content: bytes = b"\x12",
) -> bytes:
    head = HEADER.pack(magic, version, form, entry_width, collection, draws, b"sixteen bytes id", n_users, count)
    return sealed(head + content)


def forged_counts(
    *, form: int = 1, entry_width: int = 1, n_users: int = 1, count: int = 5, content: bytes = b"\xa8"
) -> bytes:
    return forged(form=form, entry_width=entry_width, n_users=n_users, count=count, content=content)


def test_forgery_is_otherwise_a_packet() -> None:
    assert read(WIRE, forged()) == Listed.of([(0, 1), (1, 0)], packet_id=b"sixteen bytes id", secret=True)
    for draws in (0, 1):
        found = 1, [1, 0, 0, 0, 0], [0, 1, 0, 0, 0], b"sixteen bytes id", draws == 1
        assert judged(WIRE, forged(draws=draws)) == found
    assert WIRE.packet_id(forged()) == b"sixteen bytes id"
    assert judged(DENSE, forged_counts()) == (1, [1, 0, 1, 0, 1], [0, 1, 0, 1, 0], b"sixteen bytes id", True)
    two = forged_counts(n_users=2, entry_width=2, content=b"\x92\x40")
    assert judged(DENSE, two) == (2, [2, 1, 0, 2, 1], [0, 1, 2, 0, 1], b"sixteen bytes id", True)


@pytest.mark.parametrize(
    ("packet", "match"),
    [
        (forged(magic=b"pq"), "begin"),
        (forged(version=0), "version"),
        (forged(version=1), "packets of version 1 have no report id"),
        (forged(version=2), "of 2 no form"),
        (forged(version=3), "of 3 a short name"),
        (forged(version=5), "version"),
        (forged(draws=2), "draws=2 is neither"),
        (forged(form=1), "another collection"),
        (forged(form=2), "another collection"),
        (forged(entry_width=3), "another collection"),
        (forged(entry_width=5), "another collection"),
        (forged(entry_width=0), "another collection"),
        (forged(collection=b"thirty-two bytes of a collectioN"), "another collection"),
        (forged_counts(), "another collection"),
        (forged(count=1), "not zero"),
        (forged(count=1, content=b"\x11"), "not zero"),
        (forged(count=0), "truncated or padded"),
        (forged(count=3), "truncated or padded"),
        (forged(count=2**63), "more than their plan allows"),
        (forged(count=2**64 - 1, content=b""), "more than their plan allows"),
        (forged(count=2**61, content=b""), "more than their plan allows"),
        (forged(n_users=0), "more than their plan allows"),
        (forged(n_users=10**9 + 1), "more than their plan allows"),
        (forged(count=1001, content=bytes(501)), "more than their plan allows"),
        (forged(content=b"\xa2"), "instance 5 is not below 5"),
        (forged(content=b"\x2f"), "instance 7 is not below 5"),
        (forged()[:-1] + bytes([forged()[-1] ^ 1]), "checksum"),
    ],
)
def test_forged_headers_and_contents_are_refused(packet: bytes, match: str) -> None:
    with pytest.raises(MalformedPacketError, match=match):
        WIRE.counts(packet)


def test_nothing_at_all_is_a_packet() -> None:
    assert judged(WIRE, forged(count=0, content=b"")) == (1, [0] * 5, [0] * 5, b"sixteen bytes id", True)


@pytest.mark.parametrize(
    ("packet", "match"),
    [
        (forged(), "another collection"),
        (forged_counts(form=0), "another collection"),
        (forged_counts(form=2), "another collection"),
        (forged_counts(entry_width=2, content=b"\x92\x40"), "another collection"),
        (forged_counts(entry_width=0, content=b""), "another collection"),
        (forged_counts(n_users=2), "another collection"),
        (forged_counts(n_users=3, entry_width=3, content=bytes(2)), "another collection"),
        (forged_counts(n_users=10**9 + 1, entry_width=30, content=bytes(19)), "more than their plan allows"),
        (forged_counts(n_users=2**32 - 1, entry_width=32, content=bytes(20)), "more than their plan allows"),
        (forged_counts(count=4), "4 counts where there are 5 instances"),
        (forged_counts(count=6), "6 counts where there are 5 instances"),
        (forged_counts(count=2**64 - 1), "counts where there are 5 instances"),
        (forged_counts(content=b""), "truncated or padded"),
        (forged_counts(content=b"\xa8\0"), "truncated or padded"),
        (forged_counts(content=b"\xac"), "not zero"),
        (forged_counts(content=b"\xa9"), "not zero"),
        (forged_counts(n_users=2, entry_width=2, content=b"\x92\xc0"), "3 ones of 2 users"),
        (forged_counts(n_users=0, content=b"\x08"), "1 ones of 0 users"),
    ],
)
def test_forged_dense_packets_are_refused(packet: bytes, match: str) -> None:
    with pytest.raises(MalformedPacketError, match=match):
        DENSE.counts(packet)


@pytest.mark.parametrize(("n_instances", "content_bits"), [(1, 0), (1, 1), (2, 0), (4, 1), (65_537, 0)])
def test_index_one_beyond_the_last_is_refused(n_instances: int, content_bits: int) -> None:
    """Packed by a format with one more bit of room, so that the twin of the checksum is right."""
    wire = room(n_instances, content_bits)
    most = 2 ** (wire.width - content_bits)
    for instance in {n_instances - 1, n_instances, most - 1} & set(range(most)):
        packet = written(room(most, content_bits), Listed.of([(instance, 1)]))
        assert (judged(wire, packet) is not None) == (instance < n_instances)


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
        wire=st.one_of(st.sampled_from([WIRE, DENSE]), strategies.wire_formats()),
        edits=st.lists(_edits(), max_size=4),
        seal=st.booleans(),
    ),
    examples=80,
    study=2000,
)
def test_edited_packets_are_judged_like_the_twin(
    data: st.DataObject, wire: WireFormat, edits: list[Edit], seal: bool
) -> None:
    packet = written(wire, data.draw(strategies.messages(wire, most=12)))
    body = packet[:-4] if seal else packet
    for edit in edits:
        body = edit(body)
    edited = sealed(body) if seal else body
    assert judged(wire, edited) == expected(wire, edited)


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
    packet = first.wire_format().encode(Counted(1, Tally(np.ones(4, np.int64), np.zeros(4, np.int64))))
    assert judged(announced(law).wire_format(), packet) is not None
    for other in others:
        assert judged(other.wire_format(), packet) is None
    assert len({other.collection() for other in [first, *others]}) == len(others) + 1


# Limits --------------------------------------------------------------------------------------------------------------


def test_the_longest_packet_of_a_user_is_taken_and_one_message_more_is_not() -> None:
    wire = room(3, 1, most_messages=5)
    longest, longer = (Listed.of([(0, 1)] * count) for count in (5, 6))
    assert len(wire.encode(longest.counted(wire))) == wire.longest
    assert judged(wire, wire.encode(longest.counted(wire))) == plain(longest.counted(wire))
    with pytest.raises(OverlongPacketError, match=r"at most 5 messages .* leave these users out"):
        wire.encode(longer.counted(wire))
    with pytest.raises(MalformedPacketError, match="6 messages of 1 users are more than their plan allows"):
        wire.counts(written(wire, longer))
    together = Listed.of(longer.pairs, 2).counted(wire)
    assert judged(wire, wire.encode(together)) == plain(together)


def test_a_packet_is_refused_by_its_header_before_anything_is_unpacked() -> None:
    """16 million messages of one user in 2 MB, which used to become 400 MB; the checksum is right."""
    roomy = room(1, 0, most_messages=2**24)
    bomb = sealed(HEADER.pack(b"pk", 4, 0, 1, bytes(32), 0, bytes(16), 1, 2**24) + bytes(2**21))
    wire = room(1, 0, most_messages=2**24 - 1)
    assert peak(lambda: judged(wire, bomb)) < MEGABYTE / 8
    assert roomy.counts(bomb)[1].ones.tolist() == [2**24], "a packet, if the plan allows so many"


def test_a_dense_packet_is_refused_by_its_header_before_anything_is_unpacked() -> None:
    """16 million counts, and counts of a billion users, where one user has five."""
    for n_users, size, count in ((1, 1, 2**24), (10**9, 30, 2**20)):
        bomb = sealed(
            HEADER.pack(b"pk", 4, 1, size, b"thirty-two bytes of a collection", 0, bytes(16), n_users, count)
            + bytes(2**21)
        )
        assert peak(lambda packet=bomb: judged(DENSE, packet)) < MEGABYTE / 8  # type: ignore[misc]
        assert judged(DENSE, bomb) is None


@pytest.mark.parametrize(("n_instances", "content_bits"), [(1, 0), (768, 1)])
def test_counting_takes_memory_for_the_counts_and_not_for_the_messages(n_instances: int, content_bits: int) -> None:
    """A release of many users: 2 MB, of which pieces of 65,536 messages are unpacked."""
    wire = room(n_instances, content_bits, most_messages=100)
    count = 2**24 // wire.width
    head = HEADER.pack(b"pk", 4, 0, wire.width, bytes(32), 0, bytes(16), count, count)
    packet = sealed(head + bytes(-(-count * wire.width // 8)))
    assert peak(lambda: wire.counts(packet)) < 6 * len(packet)
    assert wire.counts(packet)[0] == count
