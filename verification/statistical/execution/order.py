"""Check of the shuffler: is the order in which messages leave it uniformly random?

Two users send messages that all differ. Many small releases show defects of the order of a few messages; a
large one shows whether messages stay near the place where they are listed. All laws are exact, so the level is proved.
Where a release lists no messages but counts them, it may depend on nothing but the counts.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from accounting import Plan
from accounting.mechanisms import BitsumProtocol
from accounting.numerics.pmf import Pmf
from privkde.bitsum import Tally
from privkde.protocol.messages import ID_BYTES, Counted
from privkde.protocol.parties import Shuffler
from verification.statistical.execution.count_laws import TAIL, binomial_table, window
from verification.statistical.execution.stages import one_message_each, private_stream, stage, transparent
from verification.statistical.goodness_of_fit import Sample, fits_of, fitted_finding
from verification.verdicts import Effort, Finding, Layer, Subject, check, finding

MARKED = 8
"""Messages of each of two users in a small release."""
RELEASES = 5_000
LARGE_MARKED = 1 << 15
"""Messages of each of them in a large release; a power of two."""
EXCHANGES = 200
"""Pairs of releases with equal counts."""
_HEADER = struct.Struct("<2sBBB32sB16sIQ")
_ID = slice(38, 54)


@check("shuffler-order", Layer.STATISTICAL, "messages leave the shuffler in a uniformly random order")
def check_order(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The orders of many small releases and of large ones, each against what a uniformly random order would show.

    Refutes block-wise shuffling: if messages are shuffled within contiguous blocks of at most half of a large release,
    then of two places half a release apart the later one always holds the later message, which a uniform order shows
    with probability 2^−`LARGE_MARKED`. Larger blocks are found the better the more they leave out.
    """
    law = transparent(subject.plan, 2)
    if one_message_each(law):
        return _only_counts(subject.plan, law, EXCHANGES * effort.scale, seed)
    few = released_orders(subject.plan, MARKED, RELEASES * effort.scale, seed)
    many = released_orders(subject.plan, LARGE_MARKED, effort.scale, seed)
    small = list(_small_samples(few))
    fits = fits_of([*small, *_large_samples(many)])
    return fitted_finding(
        "The shuffler releases messages in an order that is uniformly random.",
        fits,
        smallest_defect=max(fits[sample.name].smallest_defect for sample in small),
        note=f"Smallest defect: distance between distribution functions. {len(few):,} releases of {few.shape[1]}"
        f" messages, {len(many)} of {many.shape[1]:,}. Shuffling within blocks of at most {many.shape[1] // 2:,}"
        " messages is found with certainty.",
    )


def _only_counts(plan: Plan, law: BitsumProtocol, pairs: int, seed: int) -> Finding:
    """Whether two releases tell nothing but equal counts, if users exchange some of their messages, or their turns."""
    announcement = stage(plan, law, repetitions=2 * MARKED, seed=seed)
    wire, chance, telling = announcement.wire_format(), private_stream(seed, "exchanges"), 0
    for number in range(pairs):
        first, second, where = chance.take(6 * MARKED).reshape(3, -1) % 2
        crossed = list(np.where(where, [second, first], [first, second]))
        releases = []
        for turn, users in enumerate(([first, second], crossed)):
            shuffler = Shuffler(announcement, stream=private_stream(seed, "shuffler", number, turn))
            ids = chance.take(2 * ID_BYTES).tobytes()
            reports = [ids[:ID_BYTES], ids[ID_BYTES:]]
            for bits, report in zip(users, reports, strict=True):
                shuffler.receive(wire.encode(Counted(1, Tally(bits, 1 - bits), report)))
            release = shuffler.release()
            instances, bits = read_packet(release, law.content_bits)
            counted = np.bincount(instances[bits == 1], minlength=2 * MARKED)
            told = np.array_equal(counted, first.astype(np.int64) + second) and release[_ID] not in reports
            releases.append((told, release[: _ID.start] + release[_ID.stop : -4]))
        telling += not (releases[0] == releases[1] and releases[0][0])
    return finding(
        "A release holds how many ones there are in each instance, and nothing else of who sent what, and when.",
        statistic=float(telling),
        bound=0.0,
        found=f"{telling} of {pairs} pairs of releases do not hold the same counts and nothing else",
        power=1.0,
        smallest_detectable_defect=1.0,
        note="Smallest defect: a pair of releases that differ, or that do not hold the counts. Its id is random and is"
        " compared with those of reports only.",
    )


def _small_samples(orders: NDArray[np.int64]) -> Iterator[Sample]:
    """Places of messages, mixture of the users, fixed points, descents."""
    count = orders.shape[1]
    half, places = count // 2, np.arange(count)
    uniform = Pmf(start=0, values=np.full(count, 1.0 / count), missing=0.0)
    for message in (0, half, count - 1):
        yield Sample(f"place of message {message}", np.argmax(orders == message, axis=1), uniform)
    yield _mixture(orders)
    yield Sample("messages that stay in place", np.sum(orders == places, axis=1), _matches(count))
    yield Sample("descents", np.sum(orders[:, 1:] < orders[:, :-1], axis=1), _descents(count))


def _large_samples(orders: NDArray[np.int64]) -> Iterator[Sample]:
    """Mixture of the users, fixed points, and comparisons of places 1, 2, 4, …, half a release apart.

    Disjoint pairs of places hold independent comparisons: each is falling with probability 1/2. The number of fixed
    points of n things is Poisson(1) up to 2ⁿ/n!.
    """
    releases, count = orders.shape
    yield _mixture(orders)
    stay = np.sum(orders == np.arange(count), axis=1)
    yield Sample(f"of {count:,} messages, those that stay in place", stay, window(stats.poisson(1.0), TAIL))
    fair, apart = binomial_table(count // 2, 0.5), 1
    while apart <= count // 2:
        pairs = orders.reshape(releases, -1, 2, apart)
        falling = np.sum(pairs[:, :, 0] > pairs[:, :, 1], axis=(1, 2))
        yield Sample(f"of {count:,} messages, falling pairs {apart} apart", falling, fair)
        apart *= 2


def _mixture(orders: NDArray[np.int64]) -> Sample:
    half = orders.shape[1] // 2
    firsts = np.sum(orders[:, :half] < half, axis=1)
    return Sample(f"first user's messages in the first {half:,}", firsts, _hypergeometric(half))


def released_orders(plan: Plan, marked: int, releases: int, seed: int) -> NDArray[np.int64]:
    """For each release the numbers of the messages in the order in which they left.

    Two users send `marked` ones each, the first user in the instances with lower numbers. If any message was lost or
    added, nothing counts as shuffled.
    """
    law = transparent(plan, 2)
    announcement = stage(plan, law, repetitions=2 * marked, seed=seed)
    shuffler, wire = Shuffler(announcement, stream=private_stream(seed, "shuffler", marked)), announcement.wire_format()
    kept, none, orders = np.arange(2 * marked), np.zeros(2 * marked, np.int64), []
    sent = (kept < marked, kept >= marked)
    for number in range(releases):
        for user, ones in enumerate(sent):
            tally = Tally(ones.astype(np.int64), none)
            shuffler.receive(wire.encode(Counted(1, tally, (2 * number + user).to_bytes(ID_BYTES))))
        orders.append(read_packet(shuffler.release(), law.content_bits)[0])
        if not np.array_equal(np.sort(orders[-1]), kept):
            return np.tile(kept, (releases, 1))
    return np.stack(orders)


def read_packet(packet: bytes, content_bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Instances and bits of a packet, by the description of the wire format and not by its code."""
    _, _, dense, width, _, _, _, n_users, count = _HEADER.unpack_from(packet)
    stream = np.unpackbits(np.frombuffer(packet, np.uint8)[_HEADER.size : -4])[: count * width]
    words = np.zeros(count, np.int64)
    for digits in stream.reshape(count, width).T:
        words = 2 * words + digits
    if dense:
        instances = np.repeat(np.arange(count), n_users)
        return instances, (np.tile(np.arange(n_users), count) < words[instances]).astype(np.int64)
    if not content_bits:
        return words, np.ones(count, np.int64)
    return words // 2, words % 2


def _hypergeometric(half: int) -> Pmf:
    """Of 2·half things, half of them marked: how many marked ones are in the first half.

    The probability of k is C(half, k)²/C(2·half, half): products of ratios from the most likely k outwards.
    """
    k, middle = np.arange(half), half // 2
    ratios = ((half - k) / (k + 1.0)) ** 2
    above, below = np.cumprod(ratios[middle:]), np.cumprod(1.0 / ratios[:middle][::-1])[::-1]
    values = np.concatenate([below, [1.0], above])
    return Pmf(start=0, values=values / np.sum(values), missing=0.0)


def _matches(count: int) -> Pmf:
    """Fixed points of a uniform permutation: k of n with probability Σ_{j ≤ n−k} (−1)^j/j! / k!."""
    alternating = list(itertools.accumulate((-1) ** j / math.factorial(j) for j in range(count + 1)))
    values = np.array([alternating[count - k] / math.factorial(k) for k in range(count + 1)])
    return Pmf(start=0, values=values, missing=0.0)


def _descents(count: int) -> Pmf:
    """Descents of a uniform permutation, by the recursion A(n, k) = (k+1)A(n−1, k) + (n−k)A(n−1, k−1) of Euler."""
    row = [1]
    for n in range(2, count + 1):
        before = [0, *row, 0]
        row = [(k + 1) * before[k + 1] + (n - k) * before[k] for k in range(n)]
    total = sum(row)
    return Pmf(start=0, values=np.array([value / total for value in row]), missing=0.0)
