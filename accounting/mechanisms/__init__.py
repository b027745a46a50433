"""Exact laws, one module per mechanism."""

import dataclasses
from collections.abc import Mapping

from accounting.errors import InvalidInputError, require_choice
from accounting.mechanisms.base import BitsumProtocol
from accounting.mechanisms.gaussian import GaussianMechanism
from accounting.mechanisms.label_response import LabelResponse
from accounting.mechanisms.pure import Pure
from accounting.mechanisms.randomized_response import RandomizedResponse
from accounting.mechanisms.single_noise import NegativeBinomialNoise, PoissonNoise
from accounting.mechanisms.three_negative_binomial import ThreeNegativeBinomial

PROTOCOLS: dict[str, type[BitsumProtocol]] = {
    protocol.name: protocol
    for protocol in (RandomizedResponse, ThreeNegativeBinomial, PoissonNoise, NegativeBinomialNoise, Pure)
}
BITSUMS = tuple(PROTOCOLS)
"""Names of the bitsum protocols."""


def rebuild(name: str, n_users: int, parameters: Mapping[str, float | int]) -> BitsumProtocol:
    """The protocol that `parameters()` came from; raises `InvalidInputError` if they are not its own."""
    protocol = PROTOCOLS[require_choice("bitsum", name, BITSUMS)]
    names = {field.name for field in dataclasses.fields(protocol)} - {"n_users"}
    missing = sorted(names - parameters.keys())
    if missing:
        raise InvalidInputError(f"parameters of {name!r} lack {missing[0]!r}; take them from a plan for {name!r}.")
    built = protocol(n_users=n_users, **{key: value for key, value in parameters.items() if key in names})
    if built.parameters() != dict(parameters):
        raise InvalidInputError(f"parameters of {name!r} do not agree with each other or with the users: plan anew.")
    return built


__all__ = [
    "BITSUMS",
    "PROTOCOLS",
    "BitsumProtocol",
    "GaussianMechanism",
    "LabelResponse",
    "NegativeBinomialNoise",
    "PoissonNoise",
    "Pure",
    "RandomizedResponse",
    "ThreeNegativeBinomial",
    "rebuild",
]
