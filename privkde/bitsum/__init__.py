"""Bitsum protocols as they are executed, one module per protocol; their laws are in `accounting.mechanisms`."""

from accounting.mechanisms import BitsumProtocol
from privkde.bitsum.base import Bitsum, Tally
from privkde.bitsum.pure import PureNoise
from privkde.bitsum.randomized_response import ShuffledResponse
from privkde.bitsum.single_noise import NegativeBinomialCount, PoissonCount
from privkde.bitsum.three_negative_binomial import CorrelatedNoise

EXECUTED: dict[str, type[Bitsum]] = {
    protocol.name: protocol
    for protocol in (ShuffledResponse, CorrelatedNoise, PoissonCount, NegativeBinomialCount, PureNoise)
}


def executed(law: BitsumProtocol) -> Bitsum:
    """The executable form of a planned protocol."""
    return EXECUTED[law.name].of(law)


__all__ = ["EXECUTED", "Bitsum", "Tally", "executed"]
