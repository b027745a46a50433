"""Announcements of any bitsum law, without a search for a plan: to test the execution. What they promise is false."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from accounting.accuracy.density_error import PredictedError
from accounting.composed_contracts import kde_contract
from accounting.composition import LADDER
from accounting.mechanisms import (
    BitsumProtocol,
    NegativeBinomialNoise,
    PoissonNoise,
    Pure,
    RandomizedResponse,
    ThreeNegativeBinomial,
)
from accounting.plan import Plan
from accounting.request import PlanRequest
from privkde.protocol import rounds
from privkde.protocol.announcement import Announcement

SEED = "000102030405060708090a0b0c0d0e0f"


def small_laws(n_users: int) -> dict[str, BitsumProtocol]:
    """One law of each protocol whose parameters floats hold exactly, and whose tails are short."""
    return {
        law.name: law
        for law in (
            RandomizedResponse(n_users=n_users, flip_probability=0.1875),
            ThreeNegativeBinomial(
                n_users=n_users,
                noise_shape=1,
                continue_probability=1 / 16,
                flood_shape=1.5,
                flood_continue_probability=3 / 32,
            ),
            PoissonNoise(n_users=n_users, total_mean=1.5),
            NegativeBinomialNoise(n_users=n_users, shape=1.5, continue_probability=0.5),
            small_pure(n_users, silence=0.25),
        )
    }


def small_pure(n_users: int, *, silence: float) -> Pure:
    """With two base messages and a flood that is short because ε is large."""
    return Pure(
        n_users=n_users,
        epsilon_target=6.0,
        noise_epsilon=4.0,
        silence_probability=silence,
        base_messages=2,
        flood_shape=1.0,
        flood_continue_probability=3 / 32,
    )


@contextmanager
def little_noise(flip_probability: float = 0.05) -> Iterator[None]:
    """Collections plan at once, for randomized response with this probability: to test what is made of a model."""

    def planned(request: PlanRequest, *, progress: Any = None) -> Plan:
        law = RandomizedResponse(n_users=request.counted_users, flip_probability=flip_probability)
        values = dataclasses.asdict(request.decided()) | {"min_users": law.n_users, "bitsum": law.name}
        return unplanned(law, **values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounds, "plan", planned)
        yield


def unplanned(law: BitsumProtocol, *, users: int | None = None, **request: Any) -> Plan:
    """A plan with this law, by default for one dimension and four random signs."""
    asked: dict[str, Any] = {"kernel": "inner-product-signs", "dim": 1, "repetitions": 4, "epsilon": 1.0, "delta": 0.1}
    named = {"users": users or law.n_users, "min_users": law.n_users, "bitsum": law.name}
    full = PlanRequest(**{**asked, **request, **named})
    facts = full.facts()
    contract = kde_contract(facts, law, LADDER["basic"], epsilon=1.0, delta=0.1, instance_point=(0.1, 0.01))
    return Plan(
        request=full,
        accountant="basic",
        bitsum=law.name,
        guarantees=contract.guarantees,
        epsilon_0=0.1,
        delta_0=0.01,
        parameters=law.parameters(),
        instances_per_user=facts.touched.total,
        ladder={},
        bitsum_rmse=law.rmse(),
        sup_rmse_bound=1.0,
        error=PredictedError(bias=0.0, feature=0.0, rounding=0.0, privacy=0.0),
        messages_per_user=1.0,
        bits_per_user=1.0,
        baselines=(),
        contract=contract,
        reasons=("made for a test",),
    )


def announced(law: BitsumProtocol, *, group: str = "", public_seed: str = SEED, **request: Any) -> Announcement:
    """The announcement of `unplanned`."""
    return Announcement(plan=unplanned(law, **request), public_seed=public_seed, group=group)
