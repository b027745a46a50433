"""Single-noise protocols: a user sends b + ν contentless messages; the shuffled output is one count.

The count is (others' bits) + b + Σν with Σν ~ Poisson(λ) or NB(r, p) once n users take part; the others'
bits are a known shift. The loss between b = 1 and b = 0 is ln w(k−1)/w(k), w the pmf of the noise.
The analyzer subtracts the mean of the noise. Source: the paper, appendix B.1.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from accounting.contract import Evidence
from accounting.errors import require_real
from accounting.mechanisms.bitsum_protocol import BitsumProtocol, computed
from accounting.numerics.pmf import Pmf, negative_binomial, poisson
from accounting.numerics.profile import Pair
from accounting.numerics.tails import most_messages, negative_binomial_moment, poisson_moment

if TYPE_CHECKING:
    from accounting.composition.target import Candidate, Target

PAPER = "the paper, appendix B.1"
CONTINUE_PROBABILITIES = (0.25, 0.5, 0.75, 0.875, 0.9375)
"""Those among which a design of negative-binomial noise chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleNoise(BitsumProtocol):
    """Common part: a shift by one of a noise law."""

    content_bits: ClassVar[int] = 0
    source: ClassVar[str]
    """Where the law is derived."""

    @abc.abstractmethod
    def noise(self) -> Pmf:
        """Law of the sum of `n_users` noise shares."""

    @abc.abstractmethod
    def noise_mean(self) -> float:
        """Mean of that sum: the expected number of noise messages."""

    def pairs(self) -> Sequence[Pair]:
        """The noise shifted by one, against the noise."""
        w = self.noise()
        return [
            Pair(
                upper=np.concatenate([[0.0], w.values]),
                lower=np.concatenate([w.values, [0.0]]),
                missing=w.missing,
            )
        ]

    def messages_per_user(self, mean_bit: float = 0.5) -> float:
        """For a bit b: b + E[ν]."""
        return mean_bit + self.noise_mean() / self.n_users

    @abc.abstractmethod
    def share_moment(self, rate: float) -> float:
        """Ln E[e^{tν}] of one user's share ν of the noise, for t = `rate`; inf where it is not finite."""

    def most_messages(self, n_instances: int) -> int:
        """By the moments of 1 + ν."""
        return most_messages(n_instances, lambda rate: rate + self.share_moment(rate))

    @property
    def evidence(self) -> Evidence:
        """Exact law of the count."""
        return computed("exact law of the count; the others' bits only shift it", self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonNoise(SingleNoise):
    """Σν ~ Poisson(λ): each user draws Poisson(λ/n)."""

    name: ClassVar[str] = "poisson"
    source: ClassVar[str] = PAPER
    summary: ClassVar[str] = (
        "each user sends its bit as a message and a Poisson number of messages on top; the analyzer subtracts"
        " their mean"
    )
    randomizer: ClassVar[str] = "each user sends b + Poisson(mean_per_user) messages; the analyzer subtracts the mean"

    total_mean: float

    def __post_init__(self) -> None:
        SingleNoise.__post_init__(self)
        require_real("total_mean", self.total_mean, low=0.0, high=1e16)

    @classmethod
    def with_rmse(cls, rmse: float, n_users: int) -> Self:
        """λ = rmse²."""
        return cls(n_users=n_users, total_mean=rmse * rmse)

    @classmethod
    def design(cls, target: Target, n_users: int, *, certified: bool = True) -> Self:
        """The least mean."""
        return target.calibrate(partial(cls.with_rmse, n_users=n_users), certified=certified)

    def parameters(self) -> dict[str, float | int]:
        """λ in total and per user."""
        return {"total_mean": self.total_mean, "mean_per_user": self.total_mean / self.n_users}

    def noise(self) -> Pmf:
        """Poisson(λ)."""
        return poisson(self.total_mean)

    def noise_mean(self) -> float:
        """λ."""
        return self.total_mean

    def share_moment(self, rate: float) -> float:
        """Of Poisson(λ/n)."""
        return poisson_moment(self.total_mean / self.n_users, rate)

    def variance(self, n_present: int) -> float:
        """λ, more if more users take part than were counted on."""
        return self.total_mean * n_present / self.n_users


@dataclass(frozen=True, slots=True, kw_only=True)
class NegativeBinomialNoise(SingleNoise):
    """Σν ~ NB(r, p), r ≥ 1: each user draws NB(r/n, p). p → 0 at a fixed variance is Poisson."""

    name: ClassVar[str] = "negative-binomial"
    source: ClassVar[str] = PAPER
    summary: ClassVar[str] = (
        "each user sends its bit as a message and a negative binomial number of messages on top; the analyzer subtracts"
        " their mean"
    )
    randomizer: ClassVar[str] = (
        "each user sends b + NB(shape_per_user, continue_probability) messages; the analyzer subtracts the mean"
    )

    shape: float
    continue_probability: float

    def __post_init__(self) -> None:
        SingleNoise.__post_init__(self)
        require_real("shape", self.shape, low=1.0, high=1e16, low_open=False)
        require_real("continue_probability", self.continue_probability, low=0.0, high=1.0 - 1e-12)

    @classmethod
    def with_rmse(cls, rmse: float, n_users: int, *, continue_probability: float) -> Self:
        """Shape r = rmse² (1−p)²/p."""
        p = continue_probability
        return cls(n_users=n_users, shape=rmse * rmse * (1.0 - p) ** 2 / p, continue_probability=p)

    @classmethod
    def design(cls, target: Target, n_users: int, *, certified: bool = True) -> Self:
        """The least noise for each of a few p, and of those the fewest messages.

        Noise grows with p, so what lies behind a p that has too much of it is not tried.
        """
        candidates: list[Candidate[Self]] = []
        for p in CONTINUE_PROBABILITIES:
            family = partial(cls.with_rmse, n_users=n_users, continue_probability=p)
            candidates += target.candidates([family], candidates[-1][0].rmse() if candidates else None)
            noise = [protocol.rmse() for protocol, _ in candidates]
            if noise and noise[-1] > (1.0 + target.accepted_excess(cls)) * min(noise):
                break
        return target.fewest_messages(candidates, certified=certified)

    def parameters(self) -> dict[str, float | int]:
        """Shape r in total and per user, and p."""
        return {
            "shape": self.shape,
            "shape_per_user": self.shape / self.n_users,
            "continue_probability": self.continue_probability,
        }

    def noise(self) -> Pmf:
        """NB(r, p)."""
        return negative_binomial(self.shape, self.continue_probability)

    def noise_mean(self) -> float:
        """Mean r p/(1−p)."""
        return self.shape * self.continue_probability / (1.0 - self.continue_probability)

    def share_moment(self, rate: float) -> float:
        """Of NB(r/n, p)."""
        odds = self.continue_probability / (1.0 - self.continue_probability)
        return negative_binomial_moment(self.shape / self.n_users, odds, rate)

    def variance(self, n_present: int) -> float:
        """Variance r p/(1−p)², more if more users take part than were counted on."""
        return self.noise_mean() / (1.0 - self.continue_probability) * n_present / self.n_users
