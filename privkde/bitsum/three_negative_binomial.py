"""3NB: a one for a bit of 1, correlated negative-binomial noise around it.

Law and proof: accounting/mechanisms/three_negative_binomial.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting.mechanisms import BitsumProtocol, ThreeNegativeBinomial
from privkde.bitsum.base import Bitsum, Shape, Tally, share
from privkde.laws import NegativeBinomial
from privkde.randomness import ByteStream


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelatedNoise(Bitsum):
    """b + ψ1 + ψ3 ones and ψ2 + ψ3 zeros, with ψ1, ψ2 ~ NB(k/n, p) and ψ3 ~ NB(r'/n, p')."""

    name: ClassVar[str] = ThreeNegativeBinomial.name

    law: ThreeNegativeBinomial

    @staticmethod
    def of(law: BitsumProtocol) -> CorrelatedNoise:
        """With the planned noise."""
        assert isinstance(law, ThreeNegativeBinomial)
        return CorrelatedNoise(law=law)

    def inputs(self, bits: NDArray[np.uint8], stream: ByteStream) -> Tally:
        """A one for a bit of 1, nothing for a bit of 0."""
        return Tally(bits, np.zeros_like(bits))

    def noise(self, n_users: int, shape: Shape, stream: ByteStream) -> Tally:
        """ψ1 + ψ3 ones, ψ2 + ψ3 zeros."""
        law = self.law
        single = NegativeBinomial(
            shape=share(law.noise_shape, n_users, law.n_users), continue_probability=law.continue_probability
        )
        flood = NegativeBinomial(
            shape=share(law.flood_shape, n_users, law.n_users), continue_probability=law.flood_continue_probability
        )
        pairs = flood.sample(shape, stream)
        return Tally(single.sample(shape, stream) + pairs, single.sample(shape, stream) + pairs)

    def estimate(self, tally: Tally, n_users: int) -> NDArray[np.float64]:
        """#ones − #zeros: the flood cancels, the rest is centered."""
        return np.asarray(tally.ones - tally.zeros, dtype=np.float64)
