"""Checks of how the parties behave: everybody counted once, private randomness private."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from accounting import InfeasibleError, InvalidInputError, Plan
from accounting.mechanisms import BitsumProtocol
from privkde.draws.randomness import ByteStream, new_public_seed, private_randomness, public_stream
from privkde.engines import PATHS
from privkde.engines.local import collect
from privkde.learning.estimators import PrivateKDE
from privkde.protocol.announcement import Announcement
from privkde.protocol.model import DensityModel
from privkde.protocol.parties import Analyzer, Randomizer, Shuffler
from verification.statistical.execution.count_laws import halves
from verification.statistical.execution.order import read_packet
from verification.statistical.execution.stages import (
    FRONT_REPETITIONS,
    FRONT_USERS,
    front_plan,
    holders,
    one_message_each,
    private_stream,
    run_faithfully,
    stage,
    transparent,
)
from verification.statistical.goodness_of_fit import Sample, coin, fits_of, fitted_finding
from verification.twins import mechanism_twin, needs_mechanism_twin
from verification.verdicts import Effort, Finding, Layer, Subject, check, finding

SHARED_USERS, SHARED_REPETITIONS = 64, 2_048
ENROLMENT_REFUSAL = "somebody was counted twice"
"""What the library says when it refuses to count more users than enrolled."""


@check("users-counted-once", Layer.STATISTICAL, "every user and every message is counted once")
def check_counted_once(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Users and messages after some packets, in one piece, in pieces, merged, by both engines: all counted once."""
    law = transparent(subject.plan, 2)
    announcement = stage(subject.plan, law, repetitions=16, seed=seed)
    x = holders(FRONT_USERS, FRONT_USERS // 3)
    packets = Randomizer(announcement, stream=private_stream(seed, "clients")).packets(x)
    wrong = dict(_miscounts(announcement, packets, law, seed))
    for path in PATHS:
        counted = collect(announcement, x, np.arange(len(x)), stream=private_stream(seed, path), path=path)
        unequal = np.abs(counted.tally.ones + counted.tally.zeros - len(x)) if one_message_each(law) else np.zeros(1)
        wrong[f"{path} engine"] = abs(counted.n_users - len(x)) + int(np.sum(unequal))
    note = "Smallest defect: users or messages. Exact: packets are read by other code and compared."
    if not any(wrong.values()):  # else the estimator may stop, and these numbers would be lost
        try:
            wrong["estimator"] = _miscounted_by_estimator(front_plan(subject.plan), x)
        except InfeasibleError:
            note += f" Not the estimator's count: no plan of this kind is feasible for {len(x)} users."
    worst = max(wrong, key=lambda name: wrong[name])
    return finding(
        "The analyzer counts as many users as sent a packet, and each of their messages once.",
        statistic=float(wrong[worst]),
        bound=0.0,
        found=f"{worst}: {wrong[worst]} users or messages too many or too few, of {len(x)} users",
        power=1.0,
        smallest_detectable_defect=1.0,
        note=note,
    )


def _miscounts(
    announcement: Announcement, packets: list[bytes], law: BitsumProtocol, seed: int
) -> Iterator[tuple[str, int]]:
    """How many users and messages are wrong after these packets were released at once, or in two parts and merged.

    Everybody sends its packet a second time, and so does the shuffler.
    """
    size = announcement.n_instances
    read = [read_packet(packet, law.content_bits) for packet in packets]
    ones = np.sum([np.bincount(i[b == 1], minlength=size) for i, b in read], axis=0)
    zeros = np.sum([np.bincount(i[b == 0], minlength=size) for i, b in read], axis=0)
    half = len(packets) // 2
    for name, parts in (("one release", [packets]), ("two releases", [packets[:half], packets[half:]])):
        shuffler = Shuffler(announcement, stream=private_stream(seed, name))
        analyzers, sent = [], list[bytes]()
        for part in parts:
            sent += part
            for packet in [*part, *sent]:
                shuffler.receive(packet)
            release = shuffler.release()
            analyzers.append(Analyzer(announcement))
            for _ in range(2):
                analyzers[-1].receive(release)
        for other in analyzers[1:]:
            analyzers[0].merge(other)
        tally = analyzers[0].tally
        messages = int(np.sum(np.abs(tally.ones - ones)) + np.sum(np.abs(tally.zeros - zeros)))
        yield name, abs(analyzers[0].n_users - len(packets)) + messages


def _miscounted_by_estimator(small: Plan, x: NDArray[np.float64]) -> int:
    """How many users are wrong in what the front door publishes; one if it refuses more users than enrolled.

    Any other refusal is an error of this check and refutes nothing.
    """
    try:
        return abs(int(published(small, x, new_public_seed()).n_users[0]) - len(x))
    except InvalidInputError as refusal:
        if ENROLMENT_REFUSAL not in str(refusal):
            raise
        return 1


def published(small: Plan, x: NDArray[np.float64], public_seed: str) -> DensityModel:
    """What the library's front door publishes for these users, with the private randomness that it takes by itself."""
    front = PrivateKDE(kernel="inner-product-signs", repetitions=FRONT_REPETITIONS, public_seed=public_seed)
    return front.fit(x, plan=small).model_


@check(
    "private-randomness",
    Layer.STATISTICAL,
    "private draws are private: not shared, not repeated, not public",
    needs=needs_mechanism_twin,
)
def check_private(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Outputs of parties that share all public randomness and the data agree no more often than independent ones."""
    samples = [*_agreements(subject.plan, effort, seed), *_shared_bytes(seed)]
    fits = fits_of(samples)
    agreement = fitted_finding(
        "Private draws are not a function of the public seed, differ from run to run and are shared by nobody.",
        fits,
        smallest_defect=max(fits[sample.name].detectable_increase(float(sample.law.values[1])) for sample in samples),
        note="Smallest defect: additional share of equal outputs. The parties take their keys from the operating"
        " system, so the statistic changes from run to run.",
    )
    wrong = _repeated(subject.plan, seed) or _relabeled(subject.plan, seed)
    if not wrong or agreement.refuted:
        return agreement
    return dataclasses.replace(agreement, statistic=math.inf, found=wrong)


def _agreements(plan: Plan, effort: Effort, seed: int) -> Iterator[Sample]:
    """Zero features make every bit a fair coin: how often do two outputs of the same law agree?"""
    law = transparent(plan, SHARED_USERS)
    announcement = stage(plan, law, repetitions=SHARED_REPETITIONS * effort.scale, seed=seed)
    x = np.zeros((SHARED_USERS, 1))
    client, other = Randomizer(announcement), Randomizer(announcement)
    public = Randomizer(announcement, stream=public_stream(announcement.public_seed))
    first, again = client.tally(x).ones, client.tally(x).ones
    pairs = {
        "two clients": (first, other.tally(x).ones),
        "one client, twice": (first, again),
        "a client and the public seed": (again, public.tally(x).ones),
        "two users of one client": (first[::2], first[1::2]),
    }
    twin = mechanism_twin(law)
    one_output = halves(*(twin.tally_tables(bit, 1)["ones"] for bit in (0, 1)))
    equal = coin(float(np.sum(one_output.values**2)))
    for name, (left, right) in pairs.items():
        yield Sample(f"equal outputs of {name}", (left == right).astype(np.int64), equal)


def _shared_bytes(seed: int) -> Iterator[Sample]:
    """Bytes of streams that must have nothing in common."""
    private, public_seed = private_randomness(), new_public_seed()
    size, keyed = 1 << 16, private_stream(seed, "keyed")
    streams: dict[str, tuple[ByteStream, ByteStream]] = {
        "two private streams": (private, private_randomness()),
        "two children": (private.child("a"), private.child("b")),
        "two children of one name": (private.child("a"), private.child("a")),
        "two numbered children": (keyed.child("client", 0), keyed.child("client", 1)),
        "a private stream and the public one": (private_randomness(), public_stream(public_seed)),
    }
    for name, (left, right) in streams.items():
        yield Sample(f"equal bytes of {name}", (left.take(size) == right.take(size)).astype(int), coin(1.0 / 256.0))


def _repeated(plan: Plan, seed: int) -> str:
    """What repeats and must not, or does not and must; empty if nothing. An honest repetition has a chance of 2⁻⁶⁴."""
    x, public_seed = np.zeros((FRONT_USERS, 1)), private_stream(seed, "front").take(16).tobytes().hex()
    small = front_plan(plan)
    first, second = (published(small, x, public_seed) for _ in range(2))
    if np.array_equal(first.sums, second.sums):
        return "two collections with the same public seed and the same data published the same sums"
    choice = first.announcements[0].kernel_choice()
    seeds = (public_seed, public_seed, "0f" * 16)
    features, same, other = (choice.build(seed).scaled_features(x + 1.0) for seed in seeds)
    if not np.array_equal(features, same):
        return "the public seed does not fix the public features"
    return "the public features do not depend on the public seed" if np.array_equal(features, other) else ""


def _relabeled(plan: Plan, seed: int) -> str:
    """Whether counts of seeded draws pass for secret ones, or secret ones for seeded; empty if none does."""
    announcement = stage(plan, transparent(plan, 2), repetitions=1, seed=seed)
    streams = private_stream(seed, "marked"), private_randomness()
    seeded, secret = (run_faithfully(announcement, holders(2, 1), stream) for stream in streams)
    if seeded.secret or not secret.secret:
        return "the mark of packets that were drawn from a seed does not reach the analyzer"
    secret.merge(seeded)
    return "merging with secret counts removes the mark of seeded ones" if secret.secret else ""
