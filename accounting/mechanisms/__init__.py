"""Exact laws, one module per mechanism."""

import dataclasses
from collections.abc import Mapping

from accounting.errors import InvalidInputError, require_choice
from accounting.mechanisms.bitsum_protocol import BitsumProtocol
from accounting.mechanisms.gaussian_noise import GaussianMechanism
from accounting.mechanisms.label_response import LabelResponse
from accounting.mechanisms.pure import Pure
from accounting.mechanisms.randomized_response import RandomizedResponse
from accounting.mechanisms.single_noise import NegativeBinomialNoise, PoissonNoise
from accounting.mechanisms.three_negative_binomial import ThreeNegativeBinomial
from accounting.registry import Registry

BITSUMS: Registry[type[BitsumProtocol]] = Registry()
"""Every bitsum protocol by name."""
BITSUMS.register(RandomizedResponse, ThreeNegativeBinomial, PoissonNoise, NegativeBinomialNoise, Pure)


def bitsums_for(delta: float) -> dict[str, type[BitsumProtocol]]:
    """Those that suit a δ: without δ when δ = 0, else all that make use of it."""
    return {name: law for name, law in BITSUMS.items() if law.spends_delta == (delta > 0.0)}


def rebuild(name: str, n_users: int, parameters: Mapping[str, float | int]) -> BitsumProtocol:
    """The protocol that `parameters()` came from; raises `InvalidInputError` if they are not its own."""
    protocol = BITSUMS[require_choice("bitsum", name, BITSUMS)]
    names = {field.name for field in dataclasses.fields(protocol)} - {"n_users"}
    missing = sorted(names - parameters.keys())
    if missing:
        raise InvalidInputError(f"parameters of {name!r} lack {missing[0]!r}; take them from a plan for {name!r}.")
    built = protocol(n_users=n_users, **{key: value for key, value in parameters.items() if key in names})
    if built.parameters() != dict(parameters):
        raise InvalidInputError(f"parameters of {name!r} do not agree with each other or with the users: plan again.")
    return built


__all__ = [
    "BITSUMS",
    "BitsumProtocol",
    "GaussianMechanism",
    "LabelResponse",
    "NegativeBinomialNoise",
    "PoissonNoise",
    "Pure",
    "RandomizedResponse",
    "ThreeNegativeBinomial",
    "bitsums_for",
    "rebuild",
]
