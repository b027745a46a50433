"""Exact laws, one module per mechanism."""

import dataclasses
from collections.abc import Mapping

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
    """The protocol that `parameters()` came from."""
    protocol = PROTOCOLS[name]
    names = {field.name for field in dataclasses.fields(protocol)} - {"n_users"}
    return protocol(n_users=n_users, **{key: value for key, value in parameters.items() if key in names})


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
