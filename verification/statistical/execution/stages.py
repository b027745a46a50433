"""Small collections in which the bits of every user are known: what is counted can be held against its exact law.

A stage runs the subject's bitsum protocol on random signs of one dimension: the feature of x in repetition i is ±x with
a public sign, so users with x = ±1 hold known bits and all repetitions are independent samples of one instance.
The plan of a stage is a vehicle for parameters; what it promises is meant for nobody.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import Plan, PlanRequest
from accounting.mechanisms import BitsumProtocol
from accounting.request import ALL_THERE
from privkde.draws.randomness import ByteStream, private_randomness
from privkde.protocol.announcement import Announcement
from privkde.protocol.parties import Analyzer, Randomizer, Shuffler
from verification.miniature import WITHOUT_LABELS, miniature
from verification.twins import TWINS

FRONT_USERS, FRONT_REPETITIONS = 48, 64
"""Users who go through the library's front door, and their instances."""


def transparent(plan: Plan, n_users: int) -> BitsumProtocol:
    """The plan's protocol for few users, with parameters in which every ingredient shows and messages are few.

    If its mechanism has no twin, with the plan's own parameters.
    """
    shown = TWINS[plan.bitsum].transparent if plan.bitsum in TWINS else {}
    return dataclasses.replace(plan.protocol(), n_users=n_users, **shown)


def front_plan(plan: Plan) -> Plan:
    """A plan of the same bitsum protocol for the few users who go through the library's front door.

    Raises `InfeasibleError` if so few users cannot be protected by it.
    """
    return miniature(
        dataclasses.replace(plan, accountant="basic", request=on_signs(plan.request)),
        users=FRONT_USERS,
        dim=1,
        repetitions=FRONT_REPETITIONS,
        epsilon=float(FRONT_REPETITIONS),
        delta=1e-3,
    )


def one_message_each(law: BitsumProtocol) -> bool:
    """Whether every user sends one message in every instance; if the law has no twin, as the library says."""
    return TWINS[law.name].one_message_each if law.name in TWINS else law.one_message_each


def stage(plan: Plan, law: BitsumProtocol, *, repetitions: int, seed: int) -> Announcement:
    """A collection of this law on `repetitions` random signs; its public seed is a function of `seed`."""
    request = dataclasses.replace(
        on_signs(plan.request), users=max(2, law.n_users), min_users=law.n_users, repetitions=repetitions
    )
    public_seed = private_stream(seed, "public").take(16).tobytes().hex()
    return Announcement(
        plan=dataclasses.replace(plan, request=request, parameters=law.parameters()), public_seed=public_seed
    )


def on_signs(request: PlanRequest) -> PlanRequest:
    """The same request for random signs of one dimension, without labels."""
    return dataclasses.replace(
        request,
        releases=1,
        **ALL_THERE,
        kernel="inner-product-signs",
        dim=1,
        **WITHOUT_LABELS,
        epsilon=request.kde_epsilon,
        bias=None,
        bound=None,
        radius=None,
    )


def private_stream(seed: int, *labels: str | int) -> ByteStream:
    """The stream of a check: a function of its seed, so that what it found can be found again."""
    return private_randomness(seed).child(*labels)


def known_bits(announcement: Announcement, x: NDArray[np.float64]) -> NDArray[np.int64]:
    """The true sum of bits of users with x = ±1 (column) in every instance of a stage."""
    scaled = announcement.family().scaled_features(x)
    if not np.array_equal(np.abs(scaled), np.ones_like(scaled)):
        raise AssertionError("a stage's features must be ±1; the family of random signs has changed")
    return np.asarray(np.sum(scaled > 0.0, axis=0, dtype=np.int64))


def holders(n_users: int, n_positive: int) -> NDArray[np.float64]:
    """Vectors of users, the first of which hold +1 and the others −1."""
    x = np.full((n_users, 1), -1.0)
    x[:n_positive] = 1.0
    return x


def run_faithfully(announcement: Announcement, x: NDArray[Any], stream: ByteStream) -> Analyzer:
    """Every party does its work: clients send packets, the shuffler releases, the analyzer counts."""
    clients = Randomizer(announcement, stream=stream.child("clients"))
    shuffler, analyzer = Shuffler(announcement, stream=stream.child("shuffler")), Analyzer(announcement)
    for packet in clients.packets(x):
        shuffler.receive(packet)
    analyzer.receive(shuffler.release())
    return analyzer
