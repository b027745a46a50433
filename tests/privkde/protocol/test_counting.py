"""Partial counts add up in any order and bundling, and packets are taken and refused as the shuffler does."""

import itertools
from functools import cache, reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidInputError
from privkde.bitsum import Tally
from privkde.draws.randomness import ByteStream
from privkde.protocol.announcement import Announcement
from privkde.protocol.counting import Complaint, PacketCounter, PartialCounts, released, withheld
from privkde.protocol.messages import Counted
from privkde.protocol.parties import Analyzer, Randomizer, Shuffler, TooFewUsersError
from tests.privkde.unplanned import announced, small_laws
from tests.strategies import searched

Plain = tuple[list[int], list[int], int, int, Complaint | None]


def plain(counts: PartialCounts) -> Plain:
    return counts.tally.ones.tolist(), counts.tally.zeros.tolist(), counts.n_users, counts.rejected, counts.complaint


@cache
def announcement_of(name: str) -> Announcement:
    return announced(small_laws(2)[name])


@cache
def mixed_packets(name: str) -> tuple[bytes, ...]:
    """Honest packets, and one for each way to be refused."""
    announcement = announcement_of(name)
    wire = announcement.wire_format()
    honest = Randomizer(announcement).packets(np.linspace(-1, 1, 9)[:, None])
    seeded = Randomizer(announcement, stream=ByteStream(bytes(32))).packet(np.zeros(1))
    other = Announcement(plan=announcement.plan, public_seed="ff" * 16)
    two = Counted(2, Tally(np.full(4, 2), np.zeros(4, np.int64)))
    ones = Counted(1, Tally(np.ones(4, np.int64), np.zeros(4, np.int64)), secret=True)
    malformed = wire.encode(ones)[:-4] + bytes(4)
    bad = [
        b"", honest[0][:-1], honest[0] + b"\0", honest[0][:-1] + bytes([honest[0][-1] ^ 1]), wire.encode(two),
        other.wire_format().encode(ones), malformed, seeded,
    ]  # fmt: skip
    return (*honest, *bad)


@st.composite
def partial_counts(draw: st.DrawFn) -> PartialCounts:
    """Counts of two instances."""
    numbers = st.lists(st.integers(0, 2**40), min_size=2, max_size=2)
    complaint = st.none() | st.builds(Complaint, st.integers(0, 3), st.sampled_from(["a", "b"]))
    return PartialCounts(
        tally=Tally(np.array(draw(numbers)), np.array(draw(numbers))),
        n_users=draw(st.integers(0, 10**9)),
        rejected=draw(st.integers(0, 10**9)),
        complaint=draw(complaint),
    )


NOTHING = PartialCounts(tally=Tally(np.zeros(2, np.int64), np.zeros(2, np.int64)))


@given(partial_counts(), partial_counts(), partial_counts())
def test_adding_is_associative_and_commutative_and_nothing_adds_nothing(
    a: PartialCounts, b: PartialCounts, c: PartialCounts
) -> None:
    assert plain((a + b) + c) == plain(a + (b + c))
    assert plain(a + b) == plain(b + a)
    assert plain(a + NOTHING) == plain(a)


def test_packets_that_are_refused_cost_no_work_for_each_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    announcement = announcement_of("rr")
    counter, sums = PacketCounter(announcement), []
    right = Tally.__add__

    def spied(self: Tally, other: Tally) -> Tally:
        sums.append(1)
        return right(self, other)

    monkeypatch.setattr(Tally, "__add__", spied)
    assert counter.of_all([b"no packet"] * 500).rejected == 500
    assert len(sums) <= 1


@pytest.mark.parametrize("name", ["rr", "3nb", "poisson"])
@searched(given(data=st.data()), examples=30, study=100)
def test_order_and_bundling_do_not_matter(name: str, data: st.DataObject) -> None:
    packets, counter = mixed_packets(name), PacketCounter(announcement_of(name))
    order = data.draw(st.permutations(packets))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(packets)), max_size=4)))
    bundles = [order[low:high] for low, high in itertools.pairwise([0, *cuts, len(packets)])]
    parts = data.draw(st.permutations([counter.of_all(bundle) for bundle in bundles]))
    assert plain(reduce(lambda a, b: a + b, parts)) == plain(counter.of_all(packets))


@pytest.mark.parametrize("name", ["rr", "3nb", "poisson", "pure", "negative-binomial"])
def test_a_counter_takes_and_refuses_what_a_shuffler_does(name: str) -> None:
    announcement = announcement_of(name)
    shuffler, analyzer, counter = Shuffler(announcement), Analyzer(announcement), PacketCounter(announcement)
    for packet in mixed_packets(name):
        assert shuffler.receive(packet) == (counter.of(packet).n_users == 1)
    analyzer.receive(shuffler.release())
    counts = counter.of_all(mixed_packets(name))
    assert plain(counts)[:3] == (analyzer.tally.ones.tolist(), analyzer.tally.zeros.tolist(), analyzer.n_users)
    assert counts.rejected == shuffler.rejected == 8
    assert released(announcement, counts).sums().tolist() == analyzer.sums().tolist()


def test_nothing_is_released_for_too_few_users() -> None:
    announcement = announcement_of("rr")
    counter = PacketCounter(announcement)
    alone = counter.of_all([*mixed_packets("rr")[:1], b""])
    assert alone.tally.ones.any() | alone.tally.zeros.any()
    with pytest.raises(TooFewUsersError, match="1 users took part and the noise counts on 2") as refused:
        released(announcement, alone)
    assert "1 packets were refused: do they answer this announcement, by secret draws?" in str(refused.value)
    with pytest.raises(TooFewUsersError) as honest:
        released(announcement, counter.nothing)
    assert "refused" not in str(honest.value)
    assert plain(withheld(announcement, alone)) == ([0] * 4, [0] * 4, 1, 1, None)
    enough = counter.of_all(mixed_packets("rr")[:2])
    assert withheld(announcement, enough) is enough
    damaged = enough + counter.complaining(3, "cut short")
    assert plain(withheld(announcement, damaged)) == ([0] * 4, [0] * 4, 0, 0, Complaint(3, "cut short"))


def test_the_first_complaint_is_raised_however_parts_arrive() -> None:
    announcement = announcement_of("rr")
    counter = PacketCounter(announcement)
    late, early = counter.complaining(7, "late"), counter.complaining(2, "early")
    for parts in ((late, early), (early, late)):
        with pytest.raises(InvalidInputError, match=r"^early$"):
            released(announcement, sum(parts, counter.of_all(mixed_packets("rr"))))
