"""Checks of how the parties behave: a uniformly random order, everybody counted once, private randomness private."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Iterator
from math import comb

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError, Plan
from accounting.mechanisms import BitsumProtocol
from accounting.pmf import Pmf
from privkde.announcement import Announcement
from privkde.engines.local import PATHS, collect
from privkde.estimators import PrivateKDE
from privkde.messages import Messages
from privkde.model import DensityModel
from privkde.parties import Analyzer, Randomizer, Shuffler
from privkde.randomness import ByteStream, new_public_seed, private_randomness, public_stream
from verification.execution.count_laws import halves, tally_tables
from verification.execution.fitting import Sample, fits_of, fitted_finding
from verification.execution.stages import holders, on_signs, private_stream, stage, transparent
from verification.goodness_of_fit import GoodnessOfFit, coin
from verification.miniature import miniature
from verification.verdicts import Check, Effort, Finding, Layer, Subject, finding

MARKED = 8
"""Messages of each of two users whose order is observed."""
RELEASES = 5_000
SHARED_USERS, SHARED_REPETITIONS = 64, 2_048
COUNTED_USERS = 48
FRONT_REPETITIONS = 64
_HEADER = struct.Struct("<2sBB8sIQ")


def check_order(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Two users send messages that can be told apart; the released order is compared with the uniform one."""
    orders = released_orders(subject.plan, RELEASES * effort.scale, seed)
    count = 2 * MARKED
    if not np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(count), (len(orders), 1))):
        orders = np.tile(np.arange(count), (len(orders), 1))  # messages were lost or added: no shuffle at all
    places = np.arange(count)
    uniform = Pmf(start=0, values=np.full(count, 1.0 / count), missing=0.0)
    firsts = Pmf(start=0, values=_hypergeometric(MARKED), missing=0.0)
    samples = [
        *(Sample(f"place of message {m}", np.argmax(orders == m, axis=1), uniform) for m in (0, MARKED, count - 1)),
        Sample("first user's messages in the first half", np.sum(orders[:, :MARKED] < MARKED, axis=1), firsts),
        Sample("messages that stay in place", np.sum(orders == places, axis=1), _matches(count)),
        Sample("descents", np.sum(orders[:, 1:] < orders[:, :-1], axis=1), _descents(count)),
    ]
    return fitted_finding(
        "shuffler-order",
        "The shuffler releases messages in an order that is uniformly random.",
        fits_of(samples),
        seed=seed,
        note=f"Smallest defect: distance between distribution functions. {len(orders)} releases of {count} messages.",
    )


def released_orders(plan: Plan, releases: int, seed: int) -> NDArray[np.int64]:
    """For each release the numbers of the messages in the order in which they left; the first user sent the lower."""
    law = transparent(plan, 2)
    one_each = law.name == "rr"
    announcement = stage(plan, law, repetitions=MARKED if one_each else 2 * MARKED, seed=seed)
    shuffler, wire = Shuffler(announcement, stream=private_stream(seed, "shuffler")), announcement.wire_format()
    own, ones = np.arange(MARKED), np.ones(MARKED, np.uint8)
    first, second = (Messages(1, own, ones), Messages(1, own if one_each else own + MARKED, ones * (not one_each)))
    packets = [wire.encode(first), wire.encode(second)]
    orders = []
    for _ in range(releases):
        for packet in packets:
            shuffler.receive(packet)
        instances, bits = read_packet(shuffler.release(), law.content_bits)
        orders.append(instances + (MARKED * (1 - bits) if one_each else 0))
    if len({len(order) for order in orders}) > 1 or len(orders[0]) != 2 * MARKED:
        return np.zeros((releases, 2 * MARKED), np.int64)
    return np.stack(orders)


def read_packet(packet: bytes, content_bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Instances and bits of a packet, by the description of the wire format and not by its code."""
    _, _, width, _, _, count = _HEADER.unpack_from(packet)
    stream = np.unpackbits(np.frombuffer(packet, np.uint8)[_HEADER.size : -4])[: count * width]
    words = np.array([int("".join(map(str, row)), 2) for row in stream.reshape(count, width).tolist()], np.int64)
    if not content_bits:
        return words, np.ones(count, np.int64)
    return words // 2, words % 2


def _hypergeometric(half: int) -> NDArray[np.float64]:
    """Of 2·half things, half of them marked: how many marked ones are in the first half."""
    return np.array([comb(half, k) ** 2 / comb(2 * half, half) for k in range(half + 1)])


def _matches(count: int) -> Pmf:
    """Fixed points of a uniform permutation: C(n, k)·D(n−k)/n!, with the numbers D of derangements."""
    derangements, factorial = [1, 0], 1
    for n in range(2, count + 1):
        derangements.append((n - 1) * (derangements[-1] + derangements[-2]))
        factorial *= n
    values = np.array([comb(count, k) * derangements[count - k] / factorial for k in range(count + 1)])
    return Pmf(start=0, values=values, missing=0.0)


def _descents(count: int) -> Pmf:
    """Descents of a uniform permutation, by the recursion A(n, k) = (k+1)A(n−1, k) + (n−k)A(n−1, k−1) of Euler."""
    row = [1]
    for n in range(2, count + 1):
        before = [0, *row, 0]
        row = [(k + 1) * before[k + 1] + (n - k) * before[k] for k in range(n)]
    total = sum(row)
    return Pmf(start=0, values=np.array([value / total for value in row]), missing=0.0)


def check_counted_once(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Users and messages after some packets, in one piece, in pieces, merged, by both engines: all counted once."""
    law = transparent(subject.plan, 2)
    announcement = stage(subject.plan, law, repetitions=16, seed=seed)
    x = holders(COUNTED_USERS, COUNTED_USERS // 3)
    packets = Randomizer(announcement, stream=private_stream(seed, "clients")).packets(x)
    wrong = dict(_miscounts(announcement, packets, law, seed))
    for path in PATHS:
        counted = collect(announcement, x, np.arange(len(x)), stream=private_stream(seed, path), path=path)
        wrong[f"{path} engine"] = abs(counted.n_users - len(x)) + _unequal(announcement, counted, len(x))
    try:
        wrong["estimator"] = abs(published(subject.plan, x, new_public_seed()).n_users[0] - len(x))
    except InvalidInputError:  # it refuses to count more users than enrolled
        wrong["estimator"] = len(x)
    worst = max(wrong, key=lambda one: wrong[one])
    return finding(
        "users-counted-once",
        Layer.STATISTICAL,
        "The analyzer counts as many users as sent a packet, and each of their messages once.",
        statistic=float(wrong[worst]),
        bound=0.0,
        found=f"{worst}: {wrong[worst]} users or messages too many or too few, of {len(x)} users",
        smallest_detectable_defect=1.0,
        seed=seed,
        note="Smallest defect: users or messages. Exact: packets are read by other code and compared.",
    )


def _miscounts(
    announcement: Announcement, packets: list[bytes], law: BitsumProtocol, seed: int
) -> Iterator[tuple[str, int]]:
    """How many users and messages are wrong after these packets were released at once, or in two parts and merged."""
    size = announcement.n_instances
    read = [read_packet(packet, law.content_bits) for packet in packets]
    ones = np.sum([np.bincount(i[b == 1], minlength=size) for i, b in read], axis=0)
    zeros = np.sum([np.bincount(i[b == 0], minlength=size) for i, b in read], axis=0)
    half = len(packets) // 2
    for name, parts in (("one release", [packets]), ("two releases", [packets[:half], packets[half:]])):
        shuffler = Shuffler(announcement, stream=private_stream(seed, name))
        analyzers = []
        for part in parts:
            for packet in part:
                shuffler.receive(packet)
            analyzers.append(Analyzer(announcement))
            analyzers[-1].receive(shuffler.release())
        for other in analyzers[1:]:
            analyzers[0].merge(other)
        tally = analyzers[0].tally
        messages = int(np.sum(np.abs(tally.ones - ones)) + np.sum(np.abs(tally.zeros - zeros)))
        yield name, abs(analyzers[0].n_users - len(packets)) + messages


def _unequal(announcement: Announcement, counted: Analyzer, n_users: int) -> int:
    """Where every user sends one message in each instance: how many are too many or too few."""
    if not announcement.bitsum().one_message_each:
        return 0
    return int(np.sum(np.abs(counted.tally.ones + counted.tally.zeros - n_users)))


def published(plan: Plan, x: NDArray[np.float64], public_seed: str) -> DensityModel:
    """What the library's front door publishes for these users, with the private randomness that it takes by itself."""
    small = miniature(
        dataclasses.replace(plan, accountant="basic", request=on_signs(plan.request)),
        users=len(x),
        dim=1,
        repetitions=FRONT_REPETITIONS,
        epsilon=float(FRONT_REPETITIONS),
        delta=1e-3,
    )
    front = PrivateKDE(kernel="inner-product-signs", repetitions=FRONT_REPETITIONS, public_seed=public_seed)
    return front.fit(x, plan=small).model_


def check_private(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Outputs of parties that share all public randomness and the data agree no more often than independent ones."""
    samples = [*_agreements(subject.plan, effort, seed), *_shared_bytes(seed)]
    fits = fits_of(samples)
    found = fitted_finding(
        "private-randomness",
        "Private draws are not a function of the public seed, differ from run to run and are shared by nobody.",
        fits,
        seed=seed,
        smallest_defect=max(_more_agreement(fits[one.name], one.law) for one in samples),
        note="Smallest defect: additional share of equal outputs. The parties take their keys from the operating"
        " system, so the statistic changes from run to run.",
    )
    repeated = _repeated(subject.plan, seed)
    if not repeated or found.refuted:
        return found
    return finding(
        found.name,
        found.layer,
        found.claim,
        statistic=math.inf,
        bound=found.bound,
        found=repeated,
        alpha=found.alpha,
        seed=seed,
        note=found.note,
    )


def _agreements(plan: Plan, effort: Effort, seed: int) -> Iterator[Sample]:
    """Zero features make every bit a fair coin: how often do two outputs of the same law agree?"""
    law = transparent(plan, SHARED_USERS)
    announcement = stage(plan, law, repetitions=SHARED_REPETITIONS * effort.scale, seed=seed)
    x = np.zeros((SHARED_USERS, 1))
    one, other = Randomizer(announcement), Randomizer(announcement)
    public = Randomizer(announcement, stream=public_stream(announcement.public_seed))
    first, again = one.tally(x).ones, one.tally(x).ones
    pairs = {
        "two clients": (first, other.tally(x).ones),
        "one client, twice": (first, again),
        "a client and the public seed": (again, public.tally(x).ones),
        "two users of one client": (first[::2], first[1::2]),
    }
    chance = coin(_collision(halves(*(tally_tables(law, bit, 1)["ones"] for bit in (0, 1)))))
    for name, (left, right) in pairs.items():
        yield Sample(f"equal outputs of {name}", (left == right).astype(np.int64), chance)


def _collision(law: Pmf) -> float:
    """Chance that two independent draws are equal."""
    return float(np.sum(law.values**2))


def _shared_bytes(seed: int) -> Iterator[Sample]:
    """Bytes of streams that must have nothing in common."""
    private, public_seed = private_randomness(), new_public_seed()
    size, keyed = 1 << 16, private_stream(seed, "keyed")
    streams: dict[str, tuple[ByteStream, ByteStream]] = {
        "two private streams": (private.stream, private_randomness().stream),
        "two children": (private.stream.child("a"), private.stream.child("b")),
        "two numbered children": (keyed.child("client", 0), keyed.child("client", 1)),
        "a private stream and the public one": (private_randomness().stream, public_stream(public_seed)),
    }
    for name, (left, right) in streams.items():
        yield Sample(f"equal bytes of {name}", (left.take(size) == right.take(size)).astype(int), coin(1.0 / 256.0))


def _repeated(plan: Plan, seed: int) -> str:
    """What repeats and must not, or does not and must; empty if nothing. An honest repetition has a chance of 2⁻⁶⁴."""
    x, public_seed = np.zeros((COUNTED_USERS, 1)), private_stream(seed, "front").take(16).tobytes().hex()
    first, second = (published(plan, x, public_seed) for _ in range(2))
    if np.array_equal(first.sums, second.sums):
        return "two collections with the same public seed and the same data published the same sums"
    choice = first.announcements[0].kernel_choice()
    one, same, other = (choice.build(text).scaled_features(x + 1.0) for text in (public_seed, public_seed, "0f" * 16))
    if not np.array_equal(one, same):
        return "the public seed does not fix the public features"
    return "the public features do not depend on the public seed" if np.array_equal(one, other) else ""


def _more_agreement(fit: GoodnessOfFit, law: Pmf) -> float:
    """How much more often than by chance outputs must agree to be found out."""
    chance = float(law.values[1])
    return fit.detectable_increase(chance) - chance


CONDUCT: tuple[Check, ...] = (
    Check(
        name="shuffler-order",
        layer=Layer.STATISTICAL,
        about="messages leave the shuffler in a uniformly random order",
        run=check_order,
    ),
    Check(
        name="users-counted-once",
        layer=Layer.STATISTICAL,
        about="every user and every message is counted once",
        run=check_counted_once,
    ),
    Check(
        name="private-randomness",
        layer=Layer.STATISTICAL,
        about="private draws are private: not shared, not repeated, not public",
        run=check_private,
    ),
)
