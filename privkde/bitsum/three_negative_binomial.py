"""3NB: a one for a bit of 1, correlated negative-binomial noise around it.

Law and proof: accounting/mechanisms/three_negative_binomial.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting.mechanisms import ThreeNegativeBinomial
from privkde.bitsum.execution import PlannedBitsum, Shape, Tally, paired, share
from privkde.draws.laws import NegativeBinomial
from privkde.draws.randomness import ByteStream


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreeNegativeBinomialBitsum(PlannedBitsum[ThreeNegativeBinomial]):
    """b + ψ1 + ψ3 ones and ψ2 + ψ3 zeros, with ψ1, ψ2 ~ NB(k/n, p) and ψ3 ~ NB(r'/n, p')."""

    name: ClassVar[str] = ThreeNegativeBinomial.name

    def noise(self, n_users: int, shape: Shape, stream: ByteStream) -> Tally:
        """ψ1 + ψ3 ones, ψ2 + ψ3 zeros."""
        law = self.law
        noise, flooding = (share(total, n_users, law.n_users) for total in (law.noise_shape, law.flood_shape))
        single = NegativeBinomial(shape=noise, continue_probability=law.continue_probability)
        flood = NegativeBinomial(shape=flooding, continue_probability=law.flood_continue_probability)
        return paired(single, flood, shape, stream)

    def estimate(self, tally: Tally, n_users: int) -> NDArray[np.float64]:
        """#ones − #zeros: the flood cancels, the rest is centered."""
        return np.asarray(tally.ones - tally.zeros, dtype=np.float64)
