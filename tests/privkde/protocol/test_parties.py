"""The three parties: what the client sends, what the shuffler lets through, what the analyzer counts and publishes."""

import copy
import dataclasses
import itertools
import linecache
import pickle
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from accounting.errors import InvalidInputError
from accounting.mechanisms import BITSUMS, RandomizedResponse, pure
from privkde.bitsum import Tally
from privkde.bitsum import execution as base
from privkde.draws.randomness import ByteStream, private_randomness
from privkde.draws.sampling import bernoulli
from privkde.protocol import parties
from privkde.protocol.announcement import Announcement
from privkde.protocol.counting import PacketCounter, analyzed, released, withheld
from privkde.protocol.messages import Counted, OverlongPacketError
from privkde.protocol.parties import COUNTS_SCHEMA, Analyzer, Randomizer, Shuffler, TooFewUsersError
from privkde.storage.container import DamagedFileError, read_container, write_container
from privkde.storage.report_register import ReportRegister
from tests import strategies
from tests.memory import peak
from tests.plans import plan_for
from tests.privkde.packets import START, Listed, read_packet, sealed, written
from tests.privkde.unplanned import announced, small_laws
from tests.strategies import searched

RR = announced(small_laws(2)["rr"])
SIGNED = announced(small_laws(2)["3nb"])
CONTENTLESS = announced(small_laws(2)["poisson"])
BY_NAME = {name: announced(law) for name, law in small_laws(2).items()}


def stream(*labels: str | int) -> ByteStream:
    return ByteStream(bytes(range(32))).child("test_parties", *labels)


class Script(ByteStream):
    """A stream of chosen bytes, which counts what is taken from it."""

    def __init__(self, data: bytes = b"") -> None:
        super().__init__(bytes(32))
        self.data, self.taken = data, 0

    def take(self, count: int) -> NDArray[np.uint8]:
        part = self.data[self.taken : self.taken + count]
        self.taken += count
        assert len(part) == count, "the script has ended"
        return np.frombuffer(part, np.uint8).copy()


NUMBERS = itertools.count(1)


def report(messages: Listed) -> Listed:
    """The same messages in a report that was not seen before."""
    return replace(messages, packet_id=next(NUMBERS).to_bytes(16, "big"))


def one_each(bits: list[int]) -> Listed:
    """A user's report with one message in each instance."""
    return report(Listed.of(enumerate(bits)))


def state(analyzer: Analyzer) -> tuple[int, list[int], list[int]]:
    return analyzer.n_users, analyzer.tally.ones.tolist(), analyzer.tally.zeros.tolist()


# The client ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BITSUMS)
def test_packets_depend_on_nothing_but_announcement_vector_and_stream(name: str) -> None:
    law = small_laws(2)[name]
    x = np.array([[0.3], [-1.0]], np.float32)
    first = Randomizer(announced(law, repetitions=64), stream=stream("a")).packets(x)
    np.random.seed(3)  # noqa: NPY002 — whoever reads the global generator would be found
    again = Randomizer(announced(law, repetitions=64), stream=stream("b"))
    again.packets(np.ones((5, 1)))  # what it did before does not matter
    assert again.packets(x.astype(np.float64), stream=stream("a")) == first
    assert again.packets(x, stream=stream("c")) != first
    assert again.packets(-x, stream=stream("a")) != first
    other_seed = announced(law, repetitions=64, public_seed="ab" * 16)
    assert Randomizer(other_seed, stream=stream("a")).packets(x) != first


@pytest.mark.parametrize("name", BITSUMS)
def test_packets_spell_out_the_tally_of_each_user(name: str) -> None:
    announcement = announced(small_laws(2)[name], repetitions=300)
    x = np.array([[1.0], [0.25], [-1.0]], np.float32)
    tally = Randomizer(announcement).tally(x, stream=stream(name))
    packets = Randomizer(announcement).packets(x, stream=stream(name))
    assert len(packets) == 3
    assert tally.ones.shape == tally.zeros.shape == (3, 300)
    for user, packet in enumerate(packets):
        messages = read_packet(announcement.wire_format(), packet)
        sent = Counter(messages.pairs)
        assert messages.n_users == 1
        assert [sent[instance, 1] for instance in range(300)] == tally.ones[user].tolist()
        assert [sent[instance, 0] for instance in range(300)] == tally.zeros[user].tolist()
    if name == "rr":
        assert np.all(tally.ones + tally.zeros == 1)
    else:
        assert len({len(packet) for packet in packets}) > 1, "noise differs between users"


@pytest.mark.parametrize("name", BITSUMS)
def test_tally_is_inputs_and_the_share_of_one_user(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    announcement = BY_NAME[name]
    asked: list[tuple[int, tuple[int, ...], ByteStream]] = []
    source = stream(name)

    def noise(_self: Any, n_users: int, shape: tuple[int, ...], given_stream: ByteStream) -> Tally:
        asked.append((n_users, shape, given_stream))
        return Tally(np.full(shape, 1000), np.full(shape, 5000))

    x = np.array([[1.0], [-1.0], [0.0]], np.float32)
    inputs = Randomizer(announcement).inputs(x, stream=stream(name))
    monkeypatch.setattr(type(announcement.bitsum()), "noise", noise)
    tally = Randomizer(announcement, stream=source).tally(x)
    assert asked == [(1, (3, 4), source)]
    assert np.array_equal(tally.ones, inputs.ones.astype(np.int64) + 1000)
    assert np.array_equal(tally.zeros, inputs.zeros.astype(np.int64) + 5000)


def test_bits_are_drawn_from_the_features_of_the_announced_family(monkeypatch: pytest.MonkeyPatch) -> None:
    law = RandomizedResponse(n_users=2, flip_probability=0.125)
    announcement = announced(law, kernel="gaussian", dim=3, repetitions=16)
    drawn: list[tuple[NDArray[np.float32], float]] = []

    def spy(scaled: NDArray[np.float32], source: ByteStream, *, flip: float = 0.0) -> NDArray[np.uint8]:
        drawn.append((scaled.copy(), flip))
        return bernoulli(scaled, source, flip=flip)

    monkeypatch.setattr(base, "bernoulli", spy)
    x = np.array([[0.3, 1.0, 20.0], [-1e6, 2.0, 0.0]])
    Randomizer(announcement).packets(x, stream=stream())
    ((scaled, flip),) = drawn
    assert np.array_equal(scaled, announcement.family().scaled_features(x.astype(np.float32)))
    assert flip == 0.125


def test_sums_are_unbiased_over_rounding_and_flips() -> None:
    """E[F̃] = Σ_u f(x_u): all 2³ outcomes of three users' reports, with their exact probabilities."""
    law = RandomizedResponse(n_users=2, flip_probability=0.125)
    announcement = announced(law, kernel="gaussian", dim=1, repetitions=5)
    x = np.array([[0.3], [-2.0], [0.9]], np.float32)
    scaled = announcement.family().scaled_features(x)
    expected = np.sqrt(2.0) * scaled.astype(np.float64).sum(axis=0)
    mean = np.zeros(5)
    for reports in itertools.product((0, 1), repeat=3):
        chances = [
            np.prod([float(_chance(f, bit, law)) for f, bit in zip(column, reports, strict=True)])
            for column in scaled.T
        ]
        analyzer = Analyzer(announcement)
        analyzer.add(Tally(np.full(5, sum(reports)), np.full(5, 3 - sum(reports))), 3)
        mean += np.array(chances) * analyzer.sums()
    assert mean == pytest.approx(expected, abs=1e-13)
    assert np.abs(expected).max() > 0.3


def _chance(feature: np.float32, bit: int, law: RandomizedResponse) -> Fraction:
    one = Fraction(1, 2) + (Fraction(1, 2) - Fraction(law.flip_probability)) * Fraction(float(feature))
    return one if bit else 1 - one


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("outside", ["reject", "project"])
@pytest.mark.parametrize(
    "x",
    [
        np.array([[NAN, 0.0]]),
        np.array([[0.0, INF]]),
        np.array([[0.0, -INF]], np.float32),
        np.array([[1e300, 0.0]]),
        np.array([[1e30, 0.0]], np.float32),
        np.array([[0.1, 0.2, 0.3]]),
        np.array([[0.1]]),
        np.array([0.1, 0.2]),
        np.array(0.5),
        np.zeros((1, 2, 1)),
        np.array([[0.1, 0.2], [NAN, 0.0]]),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", BITSUMS)
def test_unusable_vectors_are_refused_before_anything_is_drawn(name: str, x: NDArray[np.float64], outside: str) -> None:
    announcement = announced(small_laws(2)[name], kernel="inner-product", dim=2, repetitions=None)
    script = Script()
    client = Randomizer(announcement, stream=script, outside=outside)
    for refused in (client.inputs, client.tally, client.packets):
        with pytest.raises(InvalidInputError):
            refused(x, stream=script)
    if x.ndim != 2:
        with pytest.raises(InvalidInputError):
            client.packet(x if x.ndim != 1 else x[:1])
    assert script.taken == 0


def test_norms_above_one_are_refused_or_projected() -> None:
    announcement = announced(small_laws(2)["rr"], kernel="inner-product", dim=2, repetitions=None)
    script = Script()
    far = np.array([[0.1, 0.0], [3.0, 4.0]])
    with pytest.raises(InvalidInputError, match="row 1 has a norm above 1"):
        Randomizer(announcement, stream=script).packets(far)
    with pytest.raises(InvalidInputError, match="row 70 has a norm above 1"):
        Randomizer(announcement, stream=script).packets(far, numbers=np.array([60, 70]))
    with pytest.raises(InvalidInputError, match="outside"):
        Randomizer(announcement, stream=script, outside="trust").packets(far)
    assert script.taken == 0
    projected = Randomizer(announcement, outside="project").packets(far, stream=stream("far"))
    near = np.array([[0.1, 0.0], [0.6, 0.8]], np.float32)
    assert projected == Randomizer(announcement).packets(near, stream=stream("far"))
    assert far[1].tolist() == [3.0, 4.0], "the caller's data was changed"
    single = far.astype(np.float32)
    Randomizer(announcement, outside="project").packets(single)
    assert single[1].tolist() == [3.0, 4.0], "the caller's data was changed"


def test_projection_leaves_a_memory_map_as_it_is(tmp_path: Path) -> None:
    announcement = announced(small_laws(2)["rr"], kernel="inner-product", dim=2, repetitions=None)
    stored = np.memmap(tmp_path / "vectors", np.float32, "w+", shape=(1, 2))
    stored[:] = [3.0, 4.0]
    Randomizer(announcement, outside="project").packets(stored)
    assert stored.tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize("kernel", ["inner-product", "inner-product-signs", "gaussian"])
@pytest.mark.parametrize("size", [1.0, 1.0000001, 5.0, 1e10, 1e17])
def test_huge_vectors_send_bits_of_the_right_law(kernel: str, size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the client holds, its features are within [−1, 1], so that the randomizer's law is the planned one."""
    repetitions = None if kernel == "inner-product" else 50
    announcement = announced(small_laws(2)["rr"], kernel=kernel, dim=3, repetitions=repetitions)
    drawn: list[NDArray[np.float32]] = []

    def spy(scaled: NDArray[np.float32], source: ByteStream, *, flip: float = 0.0) -> NDArray[np.uint8]:
        drawn.append(scaled.copy())
        return bernoulli(scaled, source, flip=flip)

    monkeypatch.setattr(base, "bernoulli", spy)
    directions = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.6, -0.6, 0.5], [1.0, 1.0, 1.0]])
    packets = Randomizer(announcement, outside="project").packets(size * directions, stream=stream(kernel))
    assert len(packets) == 4
    (scaled,) = drawn
    assert np.all(np.abs(scaled) <= 1.0)
    assert np.abs(scaled).max() > 0.5
    if kernel == "inner-product":
        assert scaled[:2].tolist() == [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]
        assert np.allclose(np.sum(scaled.astype(np.float64) ** 2, axis=1)[3], 1.0, atol=1e-6)


def test_one_packet_is_the_packet_of_one_row() -> None:
    x = np.array([0.25])
    assert Randomizer(SIGNED, stream=stream()).packet(x) == Randomizer(SIGNED, stream=stream()).packets(x[None, :])[0]
    assert Randomizer(SIGNED, stream=stream()).packet([0.25]) == Randomizer(SIGNED, stream=stream()).packet(x)  # type: ignore[arg-type]


def test_streams_are_secret_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 fair coins: two clients, or the orders of two shufflers, agree by chance with probability at most 2^−64."""
    announcement = announced(small_laws(2)["3nb"], repetitions=64)
    x, wire = np.array([0.0]), announcement.wire_format()
    client = Randomizer(announcement)
    packets = [
        client.packet(x),
        client.packet(x),
        Randomizer(announcement).packet(x),
        Randomizer(announcement).packet(x),
    ]
    assert len({read_packet(wire, packet).pairs for packet in packets}) == 4
    assert len({wire.packet_id(packet) for packet in packets}) == 4
    released = []
    for _ in range(2):
        shuffler = Shuffler(announcement)
        assert shuffler.receive(packets[0])
        assert shuffler.receive(packets[1])
        released.append(read_packet(wire, shuffler.release()))
    assert released[0].sorted().pairs == released[1].sorted().pairs
    assert released[0].pairs != released[1].pairs
    assert released[0].packet_id != released[1].packet_id
    asked: list[Any] = []

    def spy(*seed: int) -> ByteStream:
        asked.append(seed)
        return private_randomness(*seed)

    monkeypatch.setattr("privkde.protocol.parties.private_randomness", spy)
    Randomizer(announcement)
    Shuffler(announcement)
    assert asked == [(), ()], "private randomness is unseeded"


# The shuffler -------------------------------------------------------------------------------------------------------


@given(
    users=st.lists(strategies.messages(SIGNED.wire_format(), most=8), min_size=2, max_size=6),
    key=st.binary(min_size=32, max_size=32),
)
def test_released_messages_are_the_received_ones(users: list[Listed], key: bytes) -> None:
    wire = SIGNED.wire_format()
    shuffler = Shuffler(SIGNED, stream=ByteStream(key))
    sent: Counter[tuple[int, int]] = Counter()
    for messages in users:
        assert shuffler.receive(written(wire, report(replace(messages, n_users=1))))
        sent.update(messages.pairs)
    released = read_packet(wire, shuffler.release())
    assert Counter(released.pairs) == sent
    assert released.n_users == len(users)
    with pytest.raises(TooFewUsersError, match="0 users took part"):  # the shuffler kept nothing
        shuffler.release()
    assert shuffler.rejected == 0


def test_as_many_more_packets_are_waited_for_as_may_be_from_colluders() -> None:
    """Of 6 invited 1 may stay away and 2 may collude: the noise counts on 3, and 5 packets hold theirs."""
    request = {"dim": 1, "repetitions": 1, "epsilon": 4.0, "delta": 1e-2, "allow_useless": True}
    plan = plan_for(users=6, **request, dropout=1, colluders=2)
    announcement = Announcement(plan=plan, public_seed="ab" * 16)
    assert (plan.protocol().n_users, announcement.least_packets) == (3, 5)
    shuffler, analyzer = Shuffler(announcement, stream=stream("release")), Analyzer(announcement)
    packets = Randomizer(announcement).packets(np.zeros((5, 1)), stream=stream("users"))
    for packet in packets[:4]:
        assert shuffler.receive(packet)
    words = "4 users took part and the noise counts on 3 beside 2 that may collude"
    with pytest.raises(TooFewUsersError, match=words):
        shuffler.release()
    counter = PacketCounter(announcement, seeded=True)
    counts = counter.of_all(packets[:4])
    with pytest.raises(TooFewUsersError, match=words):
        released(announcement, counts)
    assert not withheld(announcement, counts).tally.ones.any()
    assert not withheld(announcement, counts).tally.zeros.any()
    analyzer.merge(analyzed(announcement, counts))
    with pytest.raises(TooFewUsersError, match=words):
        analyzer.sums()
    assert shuffler.receive(packets[4])
    assert announcement.wire_format().counts(shuffler.release()).n_users == 5
    analyzer.merge(released(announcement, counter.of_all(packets)))
    assert analyzer.sums().shape == (1,)


@pytest.mark.parametrize("name", BITSUMS)
def test_nothing_is_released_for_fewer_users_than_the_noise_counts_on(name: str) -> None:
    """`min_users` is 3 of 5 planned. A refused release draws nothing and loses nobody; the next group waits again."""
    announcement = announced(small_laws(3)[name], users=5)
    wire = announcement.wire_format()
    packets = Randomizer(announcement).packets(np.linspace(-1, 1, 7)[:, None], stream=stream(name))
    sent = [read_packet(wire, packet).pairs for packet in packets]
    patient, hasty = Shuffler(announcement, stream=stream("release")), Shuffler(announcement, stream=stream("release"))
    for group in (range(3), range(3, 7)):
        for held, user in enumerate(group):
            if held < 3:
                with pytest.raises(TooFewUsersError, match=f"{held} users took part and the noise counts on 3"):
                    hasty.release()
            assert not hasty.receive(b"rubbish"), "who sends rubbish does not take part"
            assert hasty.receive(packets[user])
            assert patient.receive(packets[user])
        released = hasty.release()
        assert released == patient.release()
        assert read_packet(wire, released).n_users == len(group)
        assert Counter(read_packet(wire, released).pairs) == Counter(pair for user in group for pair in sent[user])
    assert hasty.rejected == 7


def test_every_order_of_release_is_equally_likely() -> None:
    """Distinct keys are in every order equally likely; the 24 orders of four keys give the 24 orders of release."""
    wire = SIGNED.wire_format()
    sent = [written(wire, report(Listed.of(pairs))) for pairs in ([(0, 1), (3, 0)], [(1, 1)], [(2, 1)])]
    seen: Counter[tuple[tuple[int, int], ...]] = Counter()
    for order in itertools.permutations([7, 2**40, 2**63, 2**64 - 1]):
        script = Script(b"id of a release!" + b"".join(key.to_bytes(8, "big") for key in order))
        shuffler = Shuffler(SIGNED, stream=script)
        assert all(shuffler.receive(packet) for packet in sent)
        assert script.taken == 0, "the order is drawn at the end, for all messages at once"
        seen[read_packet(wire, shuffler.release()).pairs] += 1
    assert set(seen) == set(itertools.permutations([(0, 1), (3, 0), (1, 1), (2, 1)]))
    assert set(seen.values()) == {1}


@pytest.mark.parametrize("announcement", [RR, SIGNED], ids=lambda one: one.plan.bitsum)
def test_who_sent_what_and_when_leaves_no_trace(announcement: Announcement) -> None:
    """Equal counts and equal draws give equal bytes: whoever sent which message, and in whatever order."""
    wire, released = announcement.wire_format(), set()
    for users in itertools.permutations(([0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 1, 1])):
        for swapped in (
            users,
            [[*mine[:2], *yours[2:]] for mine, yours in zip(users, users[1:] + users[:1], strict=True)],
        ):
            shuffler = Shuffler(announcement, stream=ByteStream(bytes(32)))
            for bits in swapped:
                assert shuffler.receive(written(wire, one_each(bits)))
            released.add(shuffler.release())
    assert len(released) == 1


INCOMPLETE = {
    "a message too few": Listed.of((i, 1) for i in (0, 1, 2)),
    "a message twice": Listed.of((i, 1) for i in (0, 1, 2, 3, 3)),
    "one instance instead of another": Listed.of((i, 1) for i in (0, 1, 2, 2)),
    "no message": Listed.of(()),
    "every message twice": Listed.of((i, 1) for i in 2 * (0, 1, 2, 3)),
    "two users": Listed.of(((i, 1) for i in range(4)), 2),
    "two users with two messages each": Listed.of(((i, 1) for i in 2 * (0, 1, 2, 3)), 2),
    "no user": Listed.of(((i, 1) for i in range(4)), 0),
}
COMPLETE = "two users with two messages each"


@pytest.mark.parametrize("name", [*INCOMPLETE, "all messages"])
def test_packets_of_randomized_response_hold_one_bit_of_one_user_for_each_instance(name: str) -> None:
    """A list of messages is refused, even if all are there; so are counts of more or fewer users or instances."""
    wire, shuffler = RR.wire_format(), Shuffler(RR, stream=stream())
    assert shuffler.receive(written(wire, one_each([1, 0, 1, 1])))
    bad = report(INCOMPLETE.get(name, one_each([1, 1, 1, 1])))
    assert not shuffler.receive(written(replace(wire, dense=False), bad))
    if bad.n_users != 1:
        assert not shuffler.receive(written(wire, bad))
    assert not shuffler.receive(written(replace(wire, n_instances=len(bad.pairs) or 9), bad)) or len(bad.pairs) == 4
    rejected = shuffler.rejected
    assert shuffler.receive(written(wire, one_each([0, 0, 0, 0])))
    assert shuffler.rejected == rejected


def test_other_protocols_may_send_any_number_of_messages_but_only_for_one_user() -> None:
    wire = SIGNED.wire_format()
    shuffler = Shuffler(SIGNED, stream=stream())
    for name, messages in INCOMPLETE.items():
        assert shuffler.receive(written(wire, report(messages))) == ("user" not in name)
    assert shuffler.rejected == sum("user" in name for name in INCOMPLETE) == 3
    assert wire.counts(shuffler.release()).n_users == 5


FIVE = {name: announced(law, repetitions=5) for name, law in small_laws(2).items()}
"""Five instances: indices 5, 6 and 7 fit into the three bits of an index, and belong to nothing."""


@pytest.mark.parametrize("name", BITSUMS)
@searched(
    given(
        packet=st.binary(max_size=80),
        edit=st.integers(0, 10**6),
        cut=st.integers(1, 40),
        index=st.integers(5, 7),
        count=st.one_of(st.integers(9, 100), st.integers(9, 2**64 - 1)),
    ),
    examples=10,
    study=200,
)
def test_malformed_packets_are_counted_and_change_nothing(
    *, name: str, packet: bytes, edit: int, cut: int, index: int, count: int
) -> None:
    announcement = FIVE[name]
    wire = announcement.wire_format()
    good, *more = (written(wire, one_each([1, 1, 1, 1, 1])) for _ in range(4))
    flipped = bytearray(good)
    flipped[edit % len(good)] ^= 1 << edit % 8
    strange = announced(small_laws(3)[name], repetitions=5).wire_format()
    roomy = dataclasses.replace(wire, n_instances=8, most_messages=6)
    padding = -5 * wire.width % 8
    bad = [
        packet,
        bytes(flipped),
        good[:-cut],
        good + packet[:1] + b"\0",
        b"",
        written(strange, one_each([1, 1, 1, 1, 1])),
        written(roomy, Listed.of((i, 1) for i in (0, 1, 2, 3, 4, index))),
        sealed(good[:-5] + bytes([good[-5] | 1 << edit % padding])),
        sealed(good[:2] + b"\1" + good[3:-4]),
        sealed(good[:34] + count.to_bytes(8, "little") + good[START:-4]),
        sealed(good[:-4] + packet + b"\0"),
    ]
    shuffler, analyzer = Shuffler(announcement, stream=stream()), Analyzer(announcement)
    assert shuffler.receive(good)
    assert shuffler.receive(more[0])
    assert analyzer.receive(shuffler.release())
    before = state(analyzer)
    assert shuffler.receive(more[1])
    assert shuffler.receive(more[2])
    for number, wrong in enumerate(bad, start=1):
        assert shuffler.receive(wrong) is False
        assert analyzer.receive(wrong) is False
        assert (shuffler.rejected, analyzer.rejected) == (number, number)
        assert state(analyzer) == before
    assert Counter(read_packet(wire, shuffler.release()).pairs) == Counter(2 * read_packet(wire, good).pairs)


@pytest.mark.parametrize("packet", [None, 5, 2.5, "pk", [1, 2], Listed.of([(0, 1), (1, 1)])], ids=str)
def test_what_is_no_bytes_is_counted_as_malformed(packet: Any) -> None:
    shuffler, analyzer = Shuffler(RR), Analyzer(RR)
    assert shuffler.receive(packet) is False
    assert analyzer.receive(packet) is False
    assert (shuffler.rejected, analyzer.rejected) == (1, 1)
    assert state(analyzer) == (0, [0] * 4, [0] * 4)
    with pytest.raises(TooFewUsersError, match="0 users"):
        shuffler.release()


# Each report once -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BITSUMS)
def test_one_packet_sent_two_hundred_times_is_one_user(name: str) -> None:
    announcement = announced(small_laws(100)[name], users=200)
    packet = Randomizer(announcement).packet(np.zeros(1))
    shuffler = Shuffler(announcement)
    assert [shuffler.receive(packet) for _ in range(200)] == [True] + 199 * [False]
    assert (shuffler.rejected, shuffler.repeated) == (0, 199)
    with pytest.raises(
        TooFewUsersError, match=r"1 users took part .* 199 packets repeat reports that were already taken"
    ):
        shuffler.release()


def test_copies_of_an_empty_packet_do_not_isolate_a_victim() -> None:
    """Where a user may send nothing, 199 copies of an empty packet passed for 199 users without noise."""
    announcement = announced(small_laws(200)["3nb"], users=200)
    wire, shuffler = announcement.wire_format(), Shuffler(announcement)
    assert shuffler.receive(Randomizer(announcement).packet(np.ones(1)))
    empty = written(wire, report(Listed.of((), secret=True)))
    assert [shuffler.receive(empty) for _ in range(199)] == [True] + 198 * [False]
    with pytest.raises(TooFewUsersError, match="2 users took part and the noise counts on 200"):
        shuffler.release()


def test_a_report_is_in_one_release_also_after_a_restart(tmp_path: Path) -> None:
    packets = Randomizer(SIGNED).packets(np.zeros((5, 1)))
    with ReportRegister(SIGNED.collection(), tmp_path / "reports") as register:
        shuffler = Shuffler(SIGNED, register=register)
        assert all(shuffler.receive(packet) for packet in packets[:2])
        first = shuffler.release()
        assert not shuffler.receive(packets[0])
        assert shuffler.receive(packets[2])  # and then it stops, before it releases
    with ReportRegister(SIGNED.collection(), tmp_path / "reports") as register:
        shuffler = Shuffler(SIGNED, register=register)
        assert [shuffler.receive(packet) for packet in packets] == [False, False, True, True, True]
        assert (shuffler.rejected, shuffler.repeated) == (0, 2)
        second = shuffler.release()
        kept = register.releases()
    wire = SIGNED.wire_format()
    assert [(one.release_id, one.n_users) for one in kept] == [
        (wire.packet_id(packet), n_users) for packet, n_users in ((first, 2), (second, 3))
    ]
    for one, packet in zip(kept, (first, second), strict=True):
        assert (one.ones.tolist(), one.zeros.tolist()) == state(counted(SIGNED, [packet]))[1:]
    with ReportRegister(RR.collection()) as strange, pytest.raises(InvalidInputError, match="another collection"):
        Shuffler(SIGNED, register=strange)


def test_a_release_holds_no_id_of_a_report() -> None:
    packets = Randomizer(SIGNED).packets(np.zeros((3, 1)))
    shuffler, wire = Shuffler(SIGNED), SIGNED.wire_format()
    assert all(shuffler.receive(packet) for packet in packets)
    release = shuffler.release()
    assert len({wire.packet_id(packet) for packet in (*packets, release)}) == 4
    assert not any(wire.packet_id(packet) in release for packet in packets)


def test_without_a_token_nobody_is_admitted_and_a_token_is_for_one_report() -> None:
    """A Sybil with many ids has one token, and a malformed packet costs none."""
    packets = Randomizer(SIGNED).packets(np.zeros((4, 1)))
    with ReportRegister(SIGNED.collection()) as register:
        mine, yours = register.issue(), register.issue()
        shuffler = Shuffler(SIGNED, register=register, admit=register.spend)
        assert not shuffler.receive(packets[0])
        assert not shuffler.receive(b"malformed", mine)
        assert [shuffler.receive(packet, mine) for packet in packets] == [True, False, False, False]
        assert not shuffler.receive(packets[0], yours), "a repeated report costs no token"
        assert shuffler.receive(packets[1], yours)
        assert (shuffler.rejected, shuffler.repeated) == (5, 1)
        release = shuffler.release()
        assert SIGNED.wire_format().counts(release).n_users == 2
        assert mine not in release


def test_a_release_is_counted_once() -> None:
    packets = Randomizer(RR).packets(np.zeros((4, 1)))
    shuffler = Shuffler(RR)
    releases = []
    for part in (packets[:2], packets[2:]):
        assert all(shuffler.receive(packet) for packet in part)
        releases.append(shuffler.release())
    analyzer, other = counted(RR, releases[:1]), counted(RR, releases)
    before = state(analyzer)
    assert not analyzer.receive(releases[0])
    assert (state(analyzer), analyzer.rejected, analyzer.repeated) == (before, 0, 1)
    with pytest.raises(InvalidInputError, match="a release would be counted twice"):
        analyzer.merge(other)
    second = counted(RR, releases[1:])
    analyzer.merge(second)
    assert state(analyzer) == state(other)
    for again in (second, analyzer, other):
        with pytest.raises(InvalidInputError, match="a release would be counted twice"):
            analyzer.merge(again)
    assert state(analyzer) == state(other)
    with pytest.raises(InvalidInputError, match="as of no release"):
        analyzer.add(Tally(np.ones(4, np.int64), np.zeros(4, np.int64)), 1, releases=[])


# Not private stays not private ----------------------------------------------------------------------------------------


def shuffled(clients: ByteStream, shuffler_stream: ByteStream) -> Analyzer:
    shuffler = Shuffler(RR, stream=shuffler_stream)
    for packet in Randomizer(RR, stream=clients).packets(np.zeros((2, 1))):
        assert RR.wire_format().counts(packet).secret is clients.secret
        assert shuffler.receive(packet)
    return counted(RR, [shuffler.release()])


def test_counts_are_secret_only_if_all_draws_were(tmp_path: Path) -> None:
    secret = shuffled(private_randomness(), private_randomness())
    assert secret.secret
    marked = [shuffled(stream("mark"), stream("order")), shuffled(private_randomness(), stream("order"))]
    marked.append(Analyzer(RR))
    marked[-1].add(Tally(np.ones(4, np.int64), np.zeros(4, np.int64)), 1)  # by somebody who says nothing
    for seeded in marked:
        assert not seeded.secret
        seeded.save(tmp_path / "seeded.npz")
        assert not Analyzer.load(tmp_path / "seeded.npz").secret
        secret.save(tmp_path / "secret.npz")
        both = Analyzer.load(tmp_path / "secret.npz")
        assert both.secret
        both.merge(seeded)
        assert not both.secret
        seeded.merge(Analyzer.load(tmp_path / "secret.npz"))
        assert not seeded.secret
    both_kinds = [Randomizer(RR, stream=source).packet(np.zeros(1)) for source in (private_randomness(), stream("one"))]
    assert not released(RR, PacketCounter(RR, seeded=True).of_all(both_kinds)).secret


def test_nobody_else_takes_the_mark_from_a_collection() -> None:
    """The attack: one packet that says it was drawn from a seed, or an honest one again that now says so."""
    honest = Randomizer(RR).packets(np.zeros((2, 1)))
    turned = RR.wire_format().encode(RR.wire_format().counts(honest[0])._replace(secret=False))
    marked = Randomizer(RR, stream=stream("mark")).packet(np.zeros(1))
    for order in ([marked, turned, *honest], [*honest, turned, marked]):
        shuffler = Shuffler(RR)
        assert [shuffler.receive(packet) for packet in order] == [packet in honest for packet in order]
        assert shuffler.rejected == 2
        for analyzer in (counted(RR, [shuffler.release()]), released(RR, PacketCounter(RR).of_all(order))):
            assert (analyzer.secret, analyzer.n_users) == (True, 2)


def test_a_repeated_packet_does_not_touch_the_mark() -> None:
    """Also in a study, which takes packets that say they were drawn from a seed."""
    honest = Randomizer(RR).packets(np.zeros((2, 1)))
    turned = RR.wire_format().encode(RR.wire_format().counts(honest[0])._replace(secret=False))
    with ReportRegister(RR.collection()) as register:
        counts = PacketCounter(RR, seeded=True).of_all([*honest, turned], register)
        assert (counts.repeated, counts.secret) == (1, True)
        assert released(RR, counts, register).secret


def test_edited_counts_do_not_lose_the_mark_and_old_ones_never_had_it(tmp_path: Path) -> None:
    path = tmp_path / "counts.npz"
    shuffled(stream("mark"), stream("order")).save(path)
    document, arrays = read_container(path, COUNTS_SCHEMA, ("ones", "zeros"))
    edited = {**document, "announcement": announced(small_laws(2)["rr"], group="b").to_json()}
    write_container(path, edited, arrays)
    assert not Analyzer.load(path).secret
    old = {name: document[name] for name in ("announcement", "n_users", "rejected")}
    write_container(path, {**old, "schema": "privkde.counts/1", "secret": True}, arrays)
    first, again = Analyzer.load(path), Analyzer.load(path)
    assert state(first) == (2, arrays["ones"].tolist(), arrays["zeros"].tolist())
    assert not first.secret
    with pytest.raises(InvalidInputError, match="a release would be counted twice"):
        first.merge(again)


# The analyzer -------------------------------------------------------------------------------------------------------


def counted(announcement: Announcement, packets: list[bytes]) -> Analyzer:
    analyzer = Analyzer(announcement)
    assert all([analyzer.receive(packet) for packet in packets])
    return analyzer


@pytest.mark.parametrize("announcement", [SIGNED, CONTENTLESS], ids=lambda one: one.plan.bitsum)
@searched(given(data=st.data()), examples=30, study=400)
def test_counts_are_those_of_the_messages(announcement: Announcement, data: st.DataObject) -> None:
    wire = announcement.wire_format()
    sent = [report(messages) for messages in data.draw(st.lists(strategies.messages(wire), max_size=5))]
    analyzer = counted(announcement, [written(wire, messages) for messages in sent])
    total = Counter(pair for messages in sent for pair in messages.pairs)
    assert analyzer.n_users == sum(messages.n_users for messages in sent)
    assert analyzer.tally.ones.tolist() == [total[instance, 1] for instance in range(4)]
    assert analyzer.tally.zeros.tolist() == [total[instance, 0] for instance in range(4)]


@pytest.mark.parametrize("name", BITSUMS)
@searched(given(data=st.data()), examples=8, study=100)
def test_pieces_in_any_order_over_any_machines_give_the_same_sums(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    """Any split over analyzers, any order within and of merging, saved and loaded anywhere: bit for bit the same."""
    announcement = BY_NAME[name]
    users = data.draw(st.integers(2, 9))
    vectors = np.linspace(-1, 1, users)[:, None]
    packets = Randomizer(announcement).packets(vectors, stream=stream(name, users))
    machines = data.draw(st.integers(1, 4))
    homes = data.draw(st.lists(st.integers(0, machines - 1), min_size=users, max_size=users))
    order = data.draw(st.permutations(range(users)))
    saved = data.draw(st.lists(st.booleans(), min_size=users, max_size=users))
    path = tmp_path_factory.mktemp("counts") / "counts.npz"
    analyzers = [Analyzer(announcement) for _ in range(machines)]
    for number in order:
        home = homes[number]
        assert analyzers[home].receive(packets[number])
        if saved[number]:
            analyzers[home].save(path)
            analyzers[home] = Analyzer.load(path)
    first, *others = data.draw(st.permutations(analyzers))
    for other in others:
        first.merge(other)
    whole = counted(announcement, packets)
    assert state(first) == state(whole)
    assert first.sums().tobytes() == whole.sums().tobytes()


@pytest.mark.parametrize("name", BITSUMS)
def test_sums_are_scaled_estimates_of_the_users_who_took_part(name: str) -> None:
    """F̃ = (2B̃ − n)R with the n that were counted, not the n that were planned."""
    law = small_laws(3)[name]
    announcement = announced(law, kernel="inner-product-signs", dim=4, repetitions=2)
    tally = Tally(np.array([4, 9]), np.array([3, 2]))
    if name == "rr":
        tally = Tally(np.array([4, 6]), np.array([3, 1]))
    analyzer = Analyzer(announcement)
    analyzer.add(tally, 7)
    estimates = announcement.bitsum().estimate(tally, 7)
    assert analyzer.sums().tolist() == [(2.0 * estimate - 7.0) * 2.0 for estimate in estimates.tolist()]  # R = √4
    if name == "rr":
        p = 0.1875
        assert estimates.tolist() == pytest.approx([(ones - 7 * p) / (1 - 2 * p) for ones in (4, 6)], rel=1e-15)


@pytest.mark.parametrize("name", BITSUMS)
def test_too_few_users_publish_nothing(name: str) -> None:
    """`min_users` is 3 of 5 planned: two are too few, the third makes it."""
    announcement = announced(small_laws(3)[name], users=5)
    analyzer = Analyzer(announcement)
    with pytest.raises(TooFewUsersError, match="0 users took part and the noise counts on 3"):
        analyzer.sums()
    packets = Randomizer(announcement).packets(np.ones((3, 1)), stream=stream(name))
    for packet in packets[:2]:
        analyzer.receive(packet)
    with pytest.raises(TooFewUsersError, match="2 users took part"):
        analyzer.sums()
    analyzer.receive(b"not a packet")
    with pytest.raises(TooFewUsersError):
        analyzer.sums()
    analyzer.receive(packets[2])
    assert np.all(np.isfinite(analyzer.sums()))
    assert issubclass(TooFewUsersError, InvalidInputError)


@pytest.mark.parametrize(
    ("ones", "zeros"),
    [([2, 2, 2, 2], [1, 1, 1, 0]), ([3, 3, 3, 4], [0] * 4), ([0] * 4, [0] * 4), ([3, 3, 3, 2], [0] * 4)],
)
def test_counts_of_randomized_response_that_do_not_add_up_are_refused(ones: list[int], zeros: list[int]) -> None:
    analyzer = Analyzer(RR)
    analyzer.add(Tally(np.array(ones), np.array(zeros)), 3)
    with pytest.raises(InvalidInputError, match="lost or added"):
        analyzer.sums()
    free = Analyzer(SIGNED)
    free.add(Tally(np.array(ones), np.array(zeros)), 3)
    assert len(free.sums()) == 4


@pytest.mark.parametrize("name", INCOMPLETE)
def test_released_packets_of_randomized_response_count_one_message_of_each_user(name: str) -> None:
    """A list of messages is refused, even if it is complete."""
    wire, analyzer = RR.wire_format(), counted(RR, [written(RR.wire_format(), one_each([1, 0, 1, 0]))])
    assert analyzer.receive(written(replace(wire, dense=False), report(INCOMPLETE[name]))) is False
    assert analyzer.rejected == 1
    assert state(analyzer) == (1, [1, 0, 1, 0], [0, 1, 0, 1])
    assert analyzer.receive(written(wire, report(INCOMPLETE[COMPLETE])))
    assert state(analyzer) == (3, [3, 2, 3, 2], [0, 1, 0, 1])
    free, somebody = Analyzer(SIGNED), INCOMPLETE[name].n_users > 0
    assert free.receive(written(SIGNED.wire_format(), INCOMPLETE[name])) is somebody, "others send any number"
    assert free.rejected == (not somebody)


def test_merging_is_for_analyzers_of_one_collection() -> None:
    first = counted(RR, [written(RR.wire_format(), one_each([1, 0, 1, 0]))])
    first.receive(b"rubbish")
    other = counted(RR, [written(RR.wire_format(), one_each([1, 1, 1, 0]))])
    other.receive(b"rubbish")
    other.receive(b"more rubbish")
    first.merge(other)
    assert state(first) == (2, [2, 1, 2, 0], [0, 1, 0, 2])
    assert (first.rejected, other.rejected, other.n_users) == (3, 2, 1)
    for strange in (announced(small_laws(2)["rr"], group="b"), SIGNED, announced(small_laws(3)["rr"])):
        with pytest.raises(InvalidInputError, match="another collection"):
            first.merge(Analyzer(strange))
    assert state(first) == (2, [2, 1, 2, 0], [0, 1, 0, 2])
    assert first.rejected == 3


@pytest.mark.parametrize(
    "tally",
    [
        Tally(np.zeros(3, np.int64), np.zeros(4, np.int64)),
        Tally(np.zeros(4, np.int64), np.zeros(3, np.int64)),
        Tally(np.zeros(4, np.int64), np.zeros(1, np.int64)),
        Tally(np.zeros((2, 4), np.int64), np.zeros((2, 4), np.int64)),
        Tally(np.zeros((), np.int64), np.zeros((), np.int64)),
    ],
    ids=lambda tally: f"{tally.ones.shape} {tally.zeros.shape}",
)
def test_counts_of_another_shape_are_refused(tally: Tally) -> None:
    analyzer = Analyzer(RR)
    with pytest.raises(InvalidInputError, match="shape"):
        analyzer.add(tally, 5)
    assert state(analyzer) == (0, [0] * 4, [0] * 4)


@pytest.mark.parametrize(
    "counts",
    [
        np.array([1, 1, -1, 1]),
        np.array([-(2**40)] * 4),
        np.array([2**64 - 5] * 4, np.uint64),
        np.array([1.0, 1.0, 1.0, 1.0]),
        np.array([0.5, 1.0, 1.0, 1.0], np.float32),
        np.array([np.nan] * 4),
        np.array([True] * 4),
        np.array(["1"] * 4),
        np.array([1, 1, 1, 1], object),
    ],
    ids=lambda counts: f"{counts.dtype} {counts[0]}",
)
def test_counts_are_whole_and_not_negative(counts: NDArray[Any]) -> None:
    for announcement in (RR, SIGNED):
        analyzer = Analyzer(announcement)
        for tally in (Tally(counts, np.ones(4, np.int64)), Tally(np.ones(4, np.int64), counts)):
            with pytest.raises(InvalidInputError, match="whole numbers from 0 to"):
                analyzer.add(tally, 2)
        assert state(analyzer) == (0, [0] * 4, [0] * 4)


@pytest.mark.parametrize("n_users", [-1, 10**12 + 1, 2.0, True, "3", None])
def test_counts_belong_to_a_whole_number_of_users(n_users: Any) -> None:
    analyzer = Analyzer(RR)
    with pytest.raises(InvalidInputError, match="users"):
        analyzer.add(Tally(np.ones(4, np.int64), np.zeros(4, np.int64)), n_users)
    assert state(analyzer) == (0, [0] * 4, [0] * 4)


def test_saved_counts_come_back_whole(tmp_path: Path) -> None:
    analyzer = Analyzer(RR)
    analyzer.add(Tally(np.array([2**39, 1, 2, 3]), np.array([0, 2**39 - 1, 2**39 - 2, 2**39 - 3])), 2**39)
    analyzer.receive(b"rubbish")
    analyzer.save(tmp_path / "counts.npz")
    back = Analyzer.load(str(tmp_path / "counts.npz"))
    assert state(back) == state(analyzer)
    assert (back.rejected, back.announcement) == (1, RR)
    assert back.sums().tobytes() == analyzer.sums().tobytes()
    with pytest.raises(InvalidInputError, match="a release would be counted twice"):
        back.merge(analyzer)
    assert state(back) == state(analyzer)


Change = Callable[[dict[str, Any], dict[str, NDArray[Any]]], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda document, _: document.pop("n_users"),
        lambda document, _: document.pop("announcement"),
        lambda document, _: document.pop("rejected"),
        lambda document, _: document.pop("repeated"),
        lambda document, _: document.pop("secret"),
        lambda document, _: document.pop("releases"),
        lambda document, _: document.update(secret=1),
        lambda document, _: document.update(releases=["ab"]),
        lambda document, _: document.update(releases=[7]),
        lambda document, _: document.update(releases=["no hexadecimal digits"]),
        lambda document, _: document.update(n_users=2),  # and no release that they took part in
        lambda document, _: document.update(n_users="3"),
        lambda document, _: document.update(n_users=-3),
        lambda document, _: document.update(n_users=2.5),
        lambda document, _: document.update(announcement={}),
        lambda document, _: document.update(announcement=[]),
        lambda document, _: document["announcement"].update(public_seed=["a"]),
        lambda document, _: document["announcement"]["plan"].update(bitsum="none"),
        lambda document, _: document["announcement"]["plan"]["instance"].update(parameters={}),
        lambda _, arrays: arrays.pop("ones"),
        lambda _, arrays: arrays.update(zeros=np.zeros(3, np.int64)),
        lambda _, arrays: arrays.update(zeros=np.full(4, -1)),
        lambda _, arrays: arrays.update(zeros=np.zeros(4)),
    ],
)
def test_files_that_hold_no_counts_are_refused(tmp_path: Path, change: Change) -> None:
    """Each with a digest that is right, as a careless program would write it."""
    path = tmp_path / "counts.npz"
    Analyzer(RR).save(path)
    document, arrays = read_container(path, COUNTS_SCHEMA, ("ones", "zeros"))
    write_container(path, document, arrays)
    assert Analyzer.load(path).n_users == 0
    change(document, arrays)
    write_container(path, document, arrays)
    with pytest.raises(DamagedFileError):
        Analyzer.load(path)


# The announcement that they share (more in test_announcement.py) ------------------------------------------------------


def test_announcements_are_read_as_they_were_written_or_not_at_all() -> None:
    loud = announced(small_laws(2)["rr"], public_seed="AB" * 16)
    assert Announcement.from_json(loud.to_json()) == loud
    for schema in ("privkde.announcement/2", "privkde.plan/1", None):
        with pytest.raises(InvalidInputError, match=r"privkde\.announcement/1"):
            Announcement.from_json({**loud.to_json(), "schema": schema})


@pytest.mark.parametrize("name", BITSUMS)
@searched(
    given(
        seed=st.integers(0, 2**32), n_users=st.integers(2, 12), repetitions=st.integers(1, 9), bits=st.integers(0, 1)
    ),
    examples=12,
    study=500,
)
def test_honest_packets_are_never_refused(name: str, seed: int, n_users: int, repetitions: int, bits: int) -> None:
    """A false alarm has probability below e^−890."""
    public = announced(small_laws(n_users)[name], repetitions=repetitions)
    x = np.full((n_users, 1), 2.0 * bits - 1.0)
    shuffler, analyzer = Shuffler(public, stream=stream()), Analyzer(public)
    for packet in Randomizer(public, stream=private_randomness(seed)).packets(x):
        assert len(packet) <= public.wire_format().longest
        assert shuffler.receive(packet)
    assert analyzer.receive(shuffler.release())
    assert analyzer.n_users == n_users


def test_a_client_that_draws_too_many_messages_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    law, public = small_laws(2)["poisson"], announced(small_laws(2)["poisson"])
    monkeypatch.setattr(type(law), "most_messages", lambda *_: 0)
    with pytest.raises(OverlongPacketError, match="leave these users out"):
        Randomizer(public, stream=stream()).packets(np.ones((2, 1)))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_shuffler_is_not_copied(copied: Callable[[Shuffler], Any]) -> None:
    """The attack: both release, one with a packet more, and the difference is that packet."""
    with pytest.raises(InvalidInputError, match="two would release the same reports"):
        copied(Shuffler(RR))


def test_a_forked_shuffler_takes_and_releases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shuffler = Shuffler(RR)
    monkeypatch.setattr("privkde.protocol.parties.process_identity", lambda: (1, 1))
    for step in (shuffler.release, lambda: shuffler.receive(b"")):
        with pytest.raises(InvalidInputError, match="a copy of the one that began to shuffle"):
            step()


def test_two_shufflers_on_one_file_take_a_report_once(tmp_path: Path) -> None:
    """One releases it while the other, which looked before, is about to take it."""
    packets = Randomizer(RR).packets(np.zeros((RR.least_packets, 1)))
    with (
        ReportRegister(RR.collection(), tmp_path / "reports") as one,
        ReportRegister(RR.collection(), tmp_path / "reports") as other,
    ):
        first, second = Shuffler(RR, register=one), Shuffler(RR, register=other)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ReportRegister, "__contains__", lambda *_: False)
            assert all(first.receive(packet) for packet in packets)
            first.release()
            assert not second.receive(packets[0])
        assert (second.repeated, second.rejected) == (1, 0)


def test_tokens_that_are_issued_later_are_asked_for_as_well(tmp_path: Path) -> None:
    with ReportRegister(RR.collection(), tmp_path / "reports") as register:
        shuffler = Shuffler(RR, register=register)
        register.issue()
        with pytest.raises(InvalidInputError, match="nobody asks for them"):
            shuffler.receive(Randomizer(RR).packets(np.zeros((1, 1)))[0])


def test_nobody_spoils_no_mark() -> None:
    analyzer = Analyzer(RR)
    analyzer.add(Tally.nothing((4,)), 0, secret=False)
    assert analyzer.secret


@pytest.mark.parametrize("name", ["rr", "poisson"])
def test_a_packet_of_many_users_is_refused_by_its_header(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: who claims to be many may send as much as all of them, and a shuffler unpacked it to refuse it."""
    public = announced(small_laws(2)[name], repetitions=1)
    wire, shuffler = public.wire_format(), Shuffler(public, stream=stream())
    many = written(wire, Listed.of([(0, 1)] * 2, 2))
    assert wire.counts(many).n_users == 2
    unpacked: list[bytes] = []

    def unpack(packet: bytes, _: object) -> list[Any]:
        unpacked.append(packet)
        return []

    monkeypatch.setattr("privkde.protocol.messages._entries", unpack)
    assert not shuffler.receive(many)
    assert (shuffler.rejected, unpacked) == (1, [])


def test_a_shuffler_holds_counts_and_no_packets() -> None:
    """Of a hundred packets less than what one of them is unpacked to; of refused ones nothing."""
    public = announced(small_laws(2)["poisson"], repetitions=1)
    wire = replace(public.wire_format(), most_messages=50_000)
    full = written(wire, Listed.of([(0, 1)] * wire.most_messages))
    bomb = written(wire, Listed.of([(0, 1)] * 10**6))
    shuffler = Shuffler(public, stream=stream())
    shuffler._wire = shuffler._admission._wire = wire
    shuffler.receive(full)
    reports = [full[:38] + number.to_bytes(16, "big") + full[54:-4] for number in range(1, 101)]

    def hold() -> None:
        for number, report in enumerate(reports):
            assert shuffler.receive(sealed(report))
            assert shuffler.receive(bomb) is False, number

    assert peak(hold) < 50 * len(full), "one is unpacked at a time, and as long as a hundred none is held"
    assert wire.counts(shuffler.release()).tally.ones.tolist() == [101 * wire.most_messages]


@pytest.mark.parametrize("name", ["poisson", "3nb"])
def test_a_release_takes_few_bytes_for_each_message(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 for its place in the order, 2 or 4 for itself; it was 47."""
    monkeypatch.setattr(type(small_laws(2)[name]), "most_messages", lambda *_: 10**7)
    public = announced(small_laws(2)[name], repetitions=768)
    wire, shuffler = public.wire_format(), Shuffler(public, stream=stream())
    many = np.full(768, 500)
    for number in range(2):
        tally = Tally(many, many * wire.content_bits)
        assert shuffler.receive(wire.encode(Counted(1, tally, bytes([number] * 16))))
    messages = 2 * 500 * 768 * (1 + wire.content_bits)
    assert peak(shuffler.release) < 13 * messages + 10**7


def test_counts_with_foreign_members_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "counts.npz"
    Analyzer(RR).save(path)
    document, arrays = read_container(path, COUNTS_SCHEMA, ("ones", "zeros"))
    write_container(path, document, arrays)
    assert Analyzer.load(path).n_users == 0
    write_container(path, {**document, "remark": 1}, arrays)
    with pytest.raises(DamagedFileError, match="'remark', which does not belong"):
        Analyzer.load(path)
    write_container(path, document, {**arrays, "twos": arrays["ones"]})
    with pytest.raises(DamagedFileError, match="not a privkde file"):
        Analyzer.load(path)


def test_threads_that_share_a_shuffler_count_each_report_once() -> None:
    """A regression: a report that arrived twice while its token was looked at was taken twice."""
    public = announced(small_laws(2)["rr"])
    wire = public.wire_format()
    packet = written(wire, one_each([1] * wire.n_instances))
    start = threading.Barrier(4)

    def slowly(_: bytes | None) -> bool:
        time.sleep(0.01)
        return True

    shuffler = Shuffler(public, stream=stream(), admit=slowly)

    def send() -> bool:
        start.wait()
        return shuffler.receive(packet)

    with ThreadPoolExecutor(4) as threads:
        taken = [future.result() for future in [threads.submit(send) for _ in range(4)]]
    assert sorted(taken) == [False, False, False, True]
    assert shuffler.repeated == 3


def test_the_plan_of_counts_is_read_in_limited_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here every look at the clock takes 300 s, so two may pass."""
    path = tmp_path / "counts.npz"
    Analyzer(announced(pure.Pure.calibrate(2.0, 3, excess_error=0.5))).save(path)
    looks = itertools.count()
    monkeypatch.setattr("accounting.numerics.effort.time.thread_time", lambda: 300.0 * next(looks))
    pure._satisfies_hypothesis.cache_clear()
    with pytest.raises(DamagedFileError, match="plans take more than 600 s of processor time to read"):
        Analyzer.load(path)
    assert next(looks) == 4


def released_packet(*bits: int) -> bytes:
    """What a shuffler released of two users, who both sent these bits."""
    counts = Tally(2 * np.array(bits), 2 - 2 * np.array(bits))
    return RR.wire_format().encode(Counted(2, counts, next(NUMBERS).to_bytes(16, "big")))


def test_threads_that_share_an_analyzer_count_every_release_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: one release was counted several times, or of two only one, and its sums were published."""
    analyzer, both = Analyzer(RR), [released_packet(1, 0, 1, 0), released_packet(1, 1, 1, 1)]
    right, others = Analyzer.add, list[threading.Thread]()

    def held(self: Analyzer, *given: Any, **marks: Any) -> None:
        """The first thread waits in here until the others are done, or wait for it."""
        if not others:
            others.extend(threading.Thread(target=analyzer.receive, args=(packet,)) for packet in both)
            for thread in others:
                thread.start()
            for thread in others:
                thread.join(0.1)
        right(self, *given, **marks)

    monkeypatch.setattr(Analyzer, "add", held)
    analyzer.receive(both[0])
    for thread in others:
        thread.join()
    assert (analyzer.n_users, analyzer.repeated, len(analyzer.releases)) == (4, 1, 2)
    assert state(analyzer) == (4, [4, 2, 4, 2], [0, 2, 0, 2])


@contextmanager
def ended_after(lines: int) -> Iterator[list[int]]:
    """An exception after so many lines of the parties' code, as of a handler of signals; and how many lines are left.

    A signal comes before a lock is taken or after it is released, which a trace cannot tell apart: it stays away.
    """
    left = [lines]

    def traced(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != parties.__file__:
            return None
        if event == "line" and "with self._lock" not in linecache.getline(parties.__file__, frame.f_lineno):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        yield left
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)


def test_an_analyzer_that_is_interrupted_anywhere_counts_a_release_whole_or_not_at_all() -> None:
    packet, counted = released_packet(1, 0, 1, 0), set()
    for lines in itertools.count(1):
        analyzer = Analyzer(RR)
        with ended_after(lines) as left:
            analyzer.receive(packet)
        counted.add(analyzer.n_users)
        analyzer.receive(packet)
        assert (analyzer.n_users, state(analyzer)) == (2, (2, [2, 0, 2, 0], [0, 2, 0, 2]))
        if left[0] > 0:
            break
    assert counted == {0, 2}


def test_a_shuffler_that_is_interrupted_anywhere_releases_what_was_sent_or_nothing() -> None:
    """The attack: the last of the reports was registered and not counted, or counted in part."""
    packets = Randomizer(SIGNED).packets(np.zeros((3, 1)))
    wire, outcomes = SIGNED.wire_format(), set()
    sent = [wire.counts(packet).tally for packet in packets]
    for lines in itertools.count(1):
        shuffler = Shuffler(SIGNED)
        assert all(shuffler.receive(packet) for packet in packets[:2])
        with ended_after(lines) as left:
            shuffler.receive(packets[2])
        try:
            shuffler.receive(packets[2])
            counted = wire.counts(shuffler.release())
            outcomes.add("released")
            assert counted.n_users == 3
            np.testing.assert_array_equal(counted.tally.ones, sum(one.ones for one in sent))
            np.testing.assert_array_equal(counted.tally.zeros, sum(one.zeros for one in sent))
        except InvalidInputError as error:
            outcomes.add(str(error)[:30])
        if left[0] > 0:
            break
    assert outcomes == {"released", "the shuffler was interrupted w"}


def test_a_release_that_is_interrupted_anywhere_is_not_repeated() -> None:
    packets = Randomizer(SIGNED).packets(np.zeros((3, 1)))
    for lines in itertools.count(1):
        register = ReportRegister(SIGNED.collection())
        shuffler = Shuffler(SIGNED, register=register)
        assert all(shuffler.receive(packet) for packet in packets[:2])
        with ended_after(lines) as left:
            shuffler.release()
        with suppress(InvalidInputError):
            shuffler.receive(packets[2])
            assert SIGNED.wire_format().counts(shuffler.release()).n_users == 3
        assert [one.n_users for one in register.releases()] in ([2], [3], [])
        if left[0] > 0:
            break


@pytest.mark.parametrize("copied", [Analyzer.snapshot, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copied_analyzer_is_one_of_its_own(copied: Callable[[Analyzer], Analyzer]) -> None:
    analyzer = Analyzer(RR)
    analyzer.receive(released_packet(1, 0, 1, 0))
    other = copied(analyzer)
    assert (state(other), other.releases) == (state(analyzer), analyzer.releases)
    other.receive(released_packet(1, 1, 1, 1))
    assert (analyzer.n_users, other.n_users) == (2, 4)


def ended(*_: Any, **__: Any) -> None:
    """What a handler of signals may do anywhere."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(("place", "step"), [(Tally, "include"), (ReportRegister, "add")])
@pytest.mark.parametrize("kept", [True, False])
def test_a_shuffler_that_is_interrupted_while_it_counts_refuses_all_that_follows(
    *, place: Any, step: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: a report was registered and not counted; sent again it was repeated, and a release went out."""
    packets = Randomizer(SIGNED).packets(np.zeros((4, 1)))
    with ReportRegister(SIGNED.collection(), tmp_path / "reports" if kept else None) as register:
        shuffler = Shuffler(SIGNED, register=register)
        assert shuffler.receive(packets[0])
        with monkeypatch.context() as patched:
            patched.setattr(place, step, ended)
            with pytest.raises(KeyboardInterrupt):
                shuffler.receive(packets[1])
        for refused in (lambda: shuffler.receive(packets[1]), lambda: shuffler.receive(b""), shuffler.release):
            with pytest.raises(InvalidInputError, match="interrupted while it counted; open its register again"):
                refused()
        register.forget()
        again = Shuffler(SIGNED, register=register)
        assert all(again.receive(packet) for packet in packets)
        assert SIGNED.wire_format().counts(again.release()).n_users == 4


def test_a_shuffler_that_is_interrupted_while_it_forgets_releases_nobody_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: messages were forgotten and not their number, so that one user passed for many."""
    packets, shuffler = Randomizer(SIGNED).packets(np.zeros((3, 1))), Shuffler(SIGNED)
    assert all(shuffler.receive(packet) for packet in packets[:2])
    with monkeypatch.context() as patched:
        patched.setattr(Tally, "nothing", ended)
        with pytest.raises(KeyboardInterrupt):
            shuffler.release()
    for refused in (lambda: shuffler.receive(packets[2]), shuffler.release):
        with pytest.raises(InvalidInputError, match="interrupted while it counted"):
            refused()


def test_a_register_that_is_in_use_does_not_end_a_shuffler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privkde.storage.report_register.PATIENCE", 0.0)
    packet = Randomizer(RR).packets(np.zeros((1, 1)))[0]
    with (
        ReportRegister(RR.collection(), tmp_path / "reports") as one,
        ReportRegister(RR.collection(), tmp_path / "reports") as other,
    ):
        shuffler = Shuffler(RR, register=one)
        with other.counting(), pytest.raises(InvalidInputError, match="wait for the run that uses it"):
            shuffler.receive(packet)
        assert shuffler.receive(packet)
