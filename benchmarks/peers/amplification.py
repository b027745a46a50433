"""One shuffled sum: ε of randomized response by the exact law and by published bounds, and the noise each asks for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from accounting.composition import PrivacyLossComposition, Target, Touched
from accounting.mechanisms import RandomizedResponse
from accounting.numerics.profile import smallest_root
from benchmarks.peers.blanket import Blanket, bennett, hoeffding
from benchmarks.peers.clones import clones, stronger_clones
from benchmarks.peers.closed_forms import (
    OutsideDomainError,
    cheu,
    clones_closed,
    erlingsson,
    girgis,
    local_epsilon,
    stronger_closed,
)

Row = dict[str, Any]
Bound = Callable[[RandomizedResponse, float], float]

OURS = "privkde, exact law"


@dataclass(frozen=True, slots=True)
class Published:
    """A bound by name, and what it covers."""

    name: str
    covers: str
    bound: Bound


ANY, BINARY = "any ε₀-DP randomizer", "binary randomized response"
PUBLISHED = (
    Published("stronger clones, numerical", BINARY, stronger_clones),
    Published("blanket for RR, Hoeffding", BINARY, partial(hoeffding, kind=Blanket.of_randomized_response)),
    Published("blanket for RR, Bennett", BINARY, partial(bennett, kind=Blanket.of_randomized_response)),
    Published("clones, numerical", ANY, clones),
    Published("stronger clones, closed form", BINARY, stronger_closed),
    Published("clones, closed form", ANY, clones_closed),
    Published("Cheu et al., Lemma 4.8", BINARY, cheu),
    Published("blanket, Hoeffding", ANY, partial(hoeffding, kind=Blanket.of_any)),
    Published("blanket, Bennett", ANY, partial(bennett, kind=Blanket.of_any)),
    Published("Girgis et al., Rényi", ANY, girgis),
    Published("Erlingsson et al.", ANY, erlingsson),
)

SETTINGS = (
    (1_000, 0.25, 1e-6),
    (10_000, 0.1, 1e-6),
    (10_000, 0.4, 1e-6),
    (30_000, 0.0934, 1e-9),
    (100_000, 0.05, 1e-8),
    (1_000_000, 0.01, 1e-8),
)
"""Users, flip probability, δ."""
TARGETS = ((10_000, 0.5, 1e-6), (30_000, 1.0, 1e-6), (1_000_000, 0.1, 1e-8))
"""Users, ε, δ for which the least noise is sought."""
GROWTH = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
GROWTH_FLIP, GROWTH_DELTA = 0.1, 1e-6


def epsilons(settings: Sequence[tuple[int, float, float]] = SETTINGS) -> Row:
    """ε at δ of the same protocol, by each bound, with the seconds it took."""
    rows = []
    for users, flip, delta in settings:
        protocol = RandomizedResponse(n_users=users, flip_probability=flip)
        start = time.perf_counter()
        exact = protocol.epsilon(delta)
        told = {"users": users, "flip_probability": flip, "delta": delta, "local_epsilon": local_epsilon(protocol)}
        rows.append({**told, "bound": OURS, "covers": BINARY, "epsilon": exact, "seconds": _since(start)})
        for one in PUBLISHED:
            start = time.perf_counter()
            found = bounded(one.bound, protocol, delta)
            rows.append({**told, "bound": one.name, "covers": one.covers, "epsilon": found, "seconds": _since(start)})
    return {"amplification": {"adjacency": "replace-one", "rows": rows}}


def noise(targets: Sequence[tuple[int, float, float]] = TARGETS) -> Row:
    """The least flip probability with which each bound proves (ε, δ), and the RMSE of a sum that follows."""
    rows = []
    for users, epsilon, delta in targets:
        alone = Target(
            rung=PrivacyLossComposition(), touched=Touched(groups=1, per_group=1), epsilon=epsilon, delta=delta
        )
        ours = alone.design(RandomizedResponse, users)
        told = {"users": users, "epsilon": epsilon, "delta": delta}
        rows.append({**told, "bound": OURS, **_error(ours.flip_probability, users)})
        for one in PUBLISHED:
            rows.append({**told, "bound": one.name, **_error(least_flip(one.bound, users, epsilon, delta), users)})
    return {"noise": {"rows": rows}}


def growth(counts: Sequence[int] = GROWTH) -> Row:
    """ε against the number of users, for a figure."""
    rows = []
    for users in counts:
        protocol = RandomizedResponse(n_users=users, flip_probability=GROWTH_FLIP)
        found: Row = {"users": users, OURS: protocol.epsilon(GROWTH_DELTA)}
        found |= {one.name: bounded(one.bound, protocol, GROWTH_DELTA) for one in PUBLISHED}
        rows.append(found)
    return {"growth": {"flip_probability": GROWTH_FLIP, "delta": GROWTH_DELTA, "rows": rows}}


def bounded(bound: Bound, protocol: RandomizedResponse, delta: float) -> float | None:
    """What a bound says; None where its theorem does not apply."""
    try:
        return bound(protocol, delta)
    except OutsideDomainError:
        return None


def least_flip(bound: Bound, users: int, epsilon: float, delta: float) -> float | None:
    """The least flip probability with which `bound` proves (ε, δ), rounded up; None if there is none below ½ − 10⁻⁶."""

    def holds(flip: float) -> bool:
        found = bounded(bound, RandomizedResponse(n_users=users, flip_probability=flip), delta)
        return found is not None and found <= epsilon

    low, high = 1.0 / users, 0.5 - 1e-6
    return smallest_root(holds, low, high, tolerance=1e-6) if holds(high) else None


def _error(flip: float | None, users: int) -> Row:
    rmse = None if flip is None else RandomizedResponse(n_users=users, flip_probability=flip).rmse()
    return {"flip_probability": flip, "rmse": rmse}


def _since(start: float) -> float:
    return time.perf_counter() - start
