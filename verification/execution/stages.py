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
from accounting.mechanisms import (
    BitsumProtocol,
    NegativeBinomialNoise,
    PoissonNoise,
    Pure,
    RandomizedResponse,
    ThreeNegativeBinomial,
)
from privkde.announcement import Announcement
from privkde.parties import Analyzer, Randomizer, Shuffler
from privkde.randomness import ByteStream, private_randomness


def transparent(plan: Plan, n_users: int) -> BitsumProtocol:
    """The plan's protocol for few users, with parameters in which every ingredient shows and messages are few."""
    laws: dict[str, BitsumProtocol] = {
        law.name: law
        for law in (
            RandomizedResponse(n_users=n_users, flip_probability=0.1875),
            ThreeNegativeBinomial(
                n_users=n_users,
                noise_shape=int(plan.parameters.get("noise_shape", 1)),
                continue_probability=0.25,
                flood_shape=1.5,
                flood_continue_probability=0.375,
            ),
            PoissonNoise(n_users=n_users, total_mean=1.5),
            NegativeBinomialNoise(n_users=n_users, shape=1.5, continue_probability=0.25),
            Pure(
                n_users=n_users,
                epsilon_target=6.0,
                noise_epsilon=4.0,
                silence_probability=0.25,
                base_messages=2,
                flood_shape=1.0,
                flood_continue_probability=3 / 32,
            ),
        )
    }
    return laws[plan.bitsum]


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
        min_users=None,
        kernel="inner-product-signs",
        dim=1,
        classes=None,
        label_epsilon=None,
        labels="separate",
        bias=None,
        bound=None,
    )


def private_stream(seed: int, *labels: str | int) -> ByteStream:
    """The stream of a check: a function of its seed, so that what it found can be found again."""
    return private_randomness(seed).stream.child(*labels)


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
