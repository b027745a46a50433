"""What the shuffled protocol is compared with: central (trusted analyzer) and local (no shuffler)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from accounting.accuracy.density_error import predicted_error
from accounting.composition import PrivacyLossComposition, Target
from accounting.contract import Contract
from accounting.errors import InfeasibleError, require_quantity, require_text
from accounting.guarantee import Guarantee, View, plain_values
from accounting.kernels import KernelFacts
from accounting.mechanisms import BitsumProtocol, GaussianMechanism, RandomizedResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A competitor at the same (ε, δ): its noise per sum of bits, its predicted error and its contract."""

    name: str
    bitsum_rmse: float
    predicted_rmse: float
    contract: Contract

    def __post_init__(self) -> None:
        require_text("name of a baseline", self.name)
        require_quantity("bitsum_rmse", self.bitsum_rmse)
        require_quantity("predicted_rmse", self.predicted_rmse)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return plain_values(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Baseline:
        """Inverse of `to_json`."""
        return Baseline(**{**data, "contract": Contract.from_json(data["contract"])})


def central(facts: KernelFacts, n_users: int, *, epsilon: float, delta: float, share: float = 1.0) -> Baseline:
    """Gaussian noise on Σ_u f(x_u), with the replace-one sensitivity √I · sup‖f(x) − f(x')‖₂; no rounding.

    T releases are one of √T times the sensitivity.
    """
    sensitivity = math.sqrt(facts.n_releases * facts.n_repetitions) * facts.replaced_norm
    mechanism = GaussianMechanism.calibrate(epsilon, delta, sensitivity)
    in_bits = mechanism.standard_deviation / (2.0 * facts.bound)
    parts = predicted_error(facts, share * n_users, in_bits)
    needless = parts.rounding**2 + facts.clipping_bias**2  # no bits, no clipping
    error, contract = math.sqrt(parts.total**2 - needless), mechanism.contract(epsilon)
    return Baseline(name="central", bitsum_rmse=in_bits, predicted_rmse=error, contract=contract)


def local(facts: KernelFacts, n_users: int, *, epsilon: float, delta: float, share: float = 1.0) -> Baseline:
    """Randomized response that does not count on anybody else: the shuffled law with one user."""
    target = Target(rung=PrivacyLossComposition(), touched=facts.touched, epsilon=epsilon, delta=delta)
    alone = _alone(target)
    claim = Guarantee(epsilon=epsilon, delta=delta, adjacency=facts.adjacency, view=View.LOCAL)
    contract = Contract(
        component="local randomized response baseline",
        guarantees=(claim, claim.restated(view=View.COMMUNICATION), claim.restated(view=View.MODEL)),
        evidence=target.rung.evidence,
        checked=("parameters pass a pessimistic evaluation",),
        assumed=("private random draws follow the declared law",),
        parameters=alone.parameters(),
    )
    rmse = alone.rmse(n_users)
    error = predicted_error(facts, share * n_users, rmse).total
    return Baseline(name="local", bitsum_rmse=rmse, predicted_rmse=error, contract=contract)


@lru_cache(maxsize=16)
def _alone(target: Target) -> BitsumProtocol:
    """Randomized response of one user alone; the same for every class of a collection."""
    return target.design(RandomizedResponse, n_users=1)


def baselines(
    facts: KernelFacts, n_users: int, *, epsilon: float, delta: float, share: float = 1.0
) -> tuple[Baseline, ...]:
    """Those that exist for n users, of whom a share has the density in question."""
    possible = []
    for build in (central, local):
        try:
            possible.append(build(facts, n_users, epsilon=epsilon, delta=delta, share=share))
        except InfeasibleError:
            continue
    return tuple(possible)
