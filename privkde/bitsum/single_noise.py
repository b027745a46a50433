"""Single-noise protocols: b + ν contentless messages, ν a share of Poisson or negative-binomial noise.

Law and proof: accounting/mechanisms/single_noise.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from accounting.mechanisms import NegativeBinomialNoise, PoissonNoise
from privkde.bitsum.execution import L, PlannedBitsum, Shape, Tally, share
from privkde.draws.laws import DiscreteLaw, NegativeBinomial, Poisson
from privkde.draws.randomness import ByteStream


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleNoiseBitsum(PlannedBitsum[L]):
    """Everything but the law of the noise."""

    def noise_law(self, n_users: int) -> DiscreteLaw:
        """Law of the noise of `n_users` users together."""
        raise NotImplementedError

    def noise(self, n_users: int, shape: Shape, stream: ByteStream) -> Tally:
        """ν more messages of the same kind."""
        drawn = self.noise_law(n_users).sample(shape, stream)
        return Tally(drawn, np.zeros_like(drawn))

    def estimate(self, tally: Tally, n_users: int) -> NDArray[np.float64]:
        """#messages minus the mean of the noise."""
        return np.asarray(tally.ones - self.noise_law(n_users).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonNoiseBitsum(SingleNoiseBitsum[PoissonNoise]):
    """ν ~ Poisson(λ/n)."""

    name: ClassVar[str] = PoissonNoise.name

    def noise_law(self, n_users: int) -> DiscreteLaw:
        """Poisson."""
        return Poisson(rate=share(self.law.total_mean, n_users, self.law.n_users))


@dataclass(frozen=True, slots=True, kw_only=True)
class NegativeBinomialNoiseBitsum(SingleNoiseBitsum[NegativeBinomialNoise]):
    """ν ~ NB(r/n, p)."""

    name: ClassVar[str] = NegativeBinomialNoise.name

    def noise_law(self, n_users: int) -> DiscreteLaw:
        """Negative binomial."""
        shape = share(self.law.shape, n_users, self.law.n_users)
        return NegativeBinomial(shape=shape, continue_probability=self.law.continue_probability)
