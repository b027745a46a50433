"""Pure: δ = 0 from silence with probability q, a constant number of message pairs, noise and a flood of pairs.

Law and proof: accounting/mechanisms/pure.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting.mechanisms import Pure
from privkde.bitsum.execution import PlannedBitsum, Shape, Tally, paired, share
from privkde.draws.laws import NegativeBinomial
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import bernoulli


@dataclass(frozen=True, slots=True, kw_only=True)
class PureBitsum(PlannedBitsum[Pure]):
    """Unless silent, s + b ones and s zeros; always Z1 + F ones and Z2 + F zeros."""

    name: ClassVar[str] = Pure.name

    def inputs(self, bits: NDArray[np.uint8], stream: ByteStream) -> Tally:
        """A bit b is sent as s + b ones and s zeros, or nothing with probability q.

        Speaking is randomized response on the constant 1, wrong with probability q (or on 0, for q > ½).
        """
        q, pairs = self.law.silence_probability, self.law.base_messages
        always = np.ones(bits.shape, dtype=np.float32)
        speaks = bernoulli(always if q <= 0.5 else -always, stream, flip=min(q, 1.0 - q)).astype(np.int64)
        return Tally(speaks * (pairs + bits.astype(np.int64)), speaks * pairs)

    def noise(self, n_users: int, shape: Shape, stream: ByteStream) -> Tally:
        """Z1 + F ones, Z2 + F zeros, with Z1, Z2 ~ NB(1/n, e^{−ε'}) and F ~ NB(r/n, p_f)."""
        law = self.law
        noise, flooding = (share(total, n_users, law.n_users) for total in (1.0, law.flood_shape))
        single = NegativeBinomial(shape=noise, decay=law.noise_epsilon)
        flood = NegativeBinomial(shape=flooding, continue_probability=law.flood_continue_probability)
        return paired(single, flood, shape, stream)

    def estimate(self, tally: Tally, n_users: int) -> NDArray[np.float64]:
        """(#ones − #zeros)/(1 − q)."""
        return np.asarray((tally.ones - tally.zeros) / (1.0 - self.law.silence_probability))
