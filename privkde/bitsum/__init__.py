"""Bitsum protocols as they are executed, one module per protocol; their laws are in `accounting.mechanisms`."""

from accounting.mechanisms import BitsumProtocol
from accounting.registry import Registry
from privkde.bitsum.execution import Bitsum, Tally
from privkde.bitsum.pure import PureBitsum
from privkde.bitsum.randomized_response import RandomizedResponseBitsum
from privkde.bitsum.single_noise import NegativeBinomialNoiseBitsum, PoissonNoiseBitsum
from privkde.bitsum.three_negative_binomial import ThreeNegativeBinomialBitsum

EXECUTED: Registry[type[Bitsum]] = Registry()
"""The executable form of each law in `accounting.mechanisms.BITSUMS`, by its name."""
EXECUTED.register(
    RandomizedResponseBitsum, ThreeNegativeBinomialBitsum, PoissonNoiseBitsum, NegativeBinomialNoiseBitsum, PureBitsum
)


def executed(law: BitsumProtocol) -> Bitsum:
    """The executable form of a planned protocol."""
    return EXECUTED[law.name].of(law)


__all__ = ["EXECUTED", "Bitsum", "Tally", "executed"]
