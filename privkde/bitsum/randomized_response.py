"""RR: one message for each user and instance, the bit flipped with probability p.

Law and proof: accounting/mechanisms/randomized_response.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting.mechanisms import RandomizedResponse
from privkde.bitsum.execution import Bitsum, Tally
from privkde.draws.randomness import ByteStream


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomizedResponseBitsum(Bitsum):
    """Randomized response: the flip is part of `respond`, so that rounding and flipping are one exact draw."""

    name: ClassVar[str] = RandomizedResponse.name

    @staticmethod
    def of(law: RandomizedResponse) -> RandomizedResponseBitsum:
        """With the planned flip probability."""
        return RandomizedResponseBitsum(flip=law.flip_probability)

    def inputs(self, bits: NDArray[np.uint8], stream: ByteStream) -> Tally:
        """The reported bit itself."""
        return Tally(bits, 1 - bits)

    def estimate(self, tally: Tally, n_users: int) -> NDArray[np.float64]:
        """(#ones − n p)/(1 − 2p). The paper's Algorithm 2 leaves the correction out."""
        return np.asarray((tally.ones - n_users * self.flip) / (1.0 - 2.0 * self.flip))
