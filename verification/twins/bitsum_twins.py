"""Twins of the five bitsum protocols, each from its definition. Every user adds its bit, and a share of the noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import mpmath

from verification.certified.balls import NotCertifiedError, exact
from verification.certified.noise_laws import LossBounds, TwoLaws, response, three_negative_binomials
from verification.certified.pure_certificate import Condition
from verification.exact.brute_force import DIGITS
from verification.exact.rational_twins import ExactPair, response_pairs
from verification.statistical.execution.count_laws import Tables, binomial_table, plus, point, times
from verification.twins.mechanism_twin import MechanismTwin, Outcomes
from verification.twins.noise_counts import NegativeBinomialCount, NoiseCount, PoissonCount


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTwin(MechanismTwin):
    """Randomized response: one message each, the bit, flipped with probability p, and no other noise.

    There are n reports, of which the shuffler leaves the number of ones; that of the zeros follows from it.
    """

    name: ClassVar[str] = "rr"
    one_message_each: ClassVar[bool] = True
    depends_on_others: ClassVar[bool] = True

    transparent: ClassVar[Mapping[str, float | int]] = {"flip_probability": 0.1875}

    flip_probability: float

    @property
    def flip(self) -> float:
        """As planned."""
        return self.flip_probability

    def input_tables(self, sum_of_bits: int, n_users: int) -> Tables:
        """Ones that were kept and zeros that were flipped."""
        p = self.flip_probability
        ones = plus(binomial_table(sum_of_bits, 1.0 - p), binomial_table(n_users - sum_of_bits, p))
        zeros = plus(point(n_users), times(ones, -1))
        return {"ones": ones, "zeros": zeros, "ones − zeros": plus(times(ones, 2), point(-n_users))}

    def noise_counts(self) -> tuple[None, None, None]:
        """None."""
        return None, None, None

    def exact_pairs(self) -> list[ExactPair]:
        """In fractions, for every number of ones among the others."""
        return response_pairs(self.n_users, Fraction(float(self.flip_probability)))

    def certified_laws(self, tail: float, *, ones: int = 0, dropped: int = 0) -> TwoLaws:
        """A sum of two binomials, and the target's report."""
        return response(self.n_users, exact(self.flip_probability), ones, dropped, tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreeNegativeBinomialTwin(MechanismTwin):
    """3NB: noise G₁ is sent as ones, G₂ as zeros, and a flood F as pairs of a one and a zero.

    G₁, G₂ of law NB(r, p) and F of law NB(r_F, p_F), independent; every user draws a share of each.
    """

    name: ClassVar[str] = "3nb"
    reads_difference: ClassVar[bool] = True
    shares: ClassVar[Mapping[str, str]] = {
        "noise_shape_per_user": "noise_shape",
        "flood_shape_per_user": "flood_shape",
    }

    transparent: ClassVar[Mapping[str, float | int]] = {
        "continue_probability": 0.25,
        "flood_shape": 1.5,
        "flood_continue_probability": 0.375,
    }

    noise_shape: int
    continue_probability: float
    flood_shape: float
    flood_continue_probability: float

    def noise_counts(self) -> tuple[NegativeBinomialCount, NegativeBinomialCount, NegativeBinomialCount]:
        """G₁, G₂ and F."""
        single = NegativeBinomialCount(self.noise_shape, self.continue_probability)
        return single, single, NegativeBinomialCount(self.flood_shape, self.flood_continue_probability)

    def certified_laws(self, tail: float, *, ones: int = 0, dropped: int = 0) -> TwoLaws:
        """Of both counts together: a function of the smaller one and of their difference.

        Requires: a whole noise shape k, 0 < p < 1 and, if k > 1, r_F ≥ 1: then likelihood ratios are monotone.
        """
        if self.noise_shape > 1 and self.flood_shape < 1.0:
            raise NotCertifiedError("3NB with a flood of shape below 1, which is not log-concave, is not certified")
        return self._laws(tail, downwards=False)

    def certified_laws_below(self, tail: float, *, ones: int = 0) -> TwoLaws:
        """The same, with outcomes merged instead of split."""
        return self._laws(tail, downwards=True)

    def _laws(self, tail: float, *, downwards: bool) -> TwoLaws:
        flood, p = self.noise_counts()[2].certified(tail), exact(self.continue_probability)
        return three_negative_binomials(self.noise_shape, p, flood, tail, downwards=downwards)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonTwin(MechanismTwin):
    """Poisson(λ) ones, Poisson(λ/n) of them from every user."""

    name: ClassVar[str] = "poisson"
    shares: ClassVar[Mapping[str, str]] = {"mean_per_user": "total_mean"}

    transparent: ClassVar[Mapping[str, float | int]] = {"total_mean": 1.5}

    total_mean: float

    def noise_counts(self) -> tuple[NoiseCount, None, None]:
        """Only ones."""
        return PoissonCount(self.total_mean), None, None


@dataclass(frozen=True, slots=True, kw_only=True)
class NegativeBinomialTwin(MechanismTwin):
    """NB(r, p) ones, NB(r/n, p) of them from every user."""

    name: ClassVar[str] = "negative-binomial"
    shares: ClassVar[Mapping[str, str]] = {"shape_per_user": "shape"}

    transparent: ClassVar[Mapping[str, float | int]] = {"shape": 1.5, "continue_probability": 0.25}

    shape: float
    continue_probability: float

    def noise_counts(self) -> tuple[NoiseCount, None, None]:
        """Only ones."""
        return NegativeBinomialCount(self.shape, self.continue_probability), None, None


@dataclass(frozen=True, slots=True, kw_only=True)
class PureTwin(MechanismTwin):
    """A user is silent with probability q, else sends s + b ones and s zeros.

    Noise G₁ in the ones and G₂ in the zeros, geometric of ratio e^{−ε'}, and a flood NB(r, p) of pairs.
    """

    name: ClassVar[str] = "pure"
    reads_difference: ClassVar[bool] = True
    spends_delta: ClassVar[bool] = False
    many_messages: ClassVar[bool] = True
    prediction_is_bound: ClassVar[bool] = True

    transparent: ClassVar[Mapping[str, float | int]] = {
        "epsilon_target": 6.0,
        "noise_epsilon": 4.0,
        "silence_probability": 0.25,
        "base_messages": 2,
        "flood_shape": 1.0,
        "flood_continue_probability": 3 / 32,
    }

    epsilon_target: float
    noise_epsilon: float
    silence_probability: float
    base_messages: int
    flood_shape: float
    flood_continue_probability: float

    @property
    def silence(self) -> float:
        """As planned."""
        return self.silence_probability

    def sent(self, bit: int) -> Outcomes:
        """Nothing, or s + b ones and s zeros."""
        s, q = self.base_messages, self.silence_probability
        return ((0, 0, q), (s + bit, s, 1.0 - q))

    def input_tables(self, sum_of_bits: int, n_users: int) -> Tables:
        """By how many of either bit are not silent."""
        speaking, s = 1.0 - self.silence_probability, self.base_messages
        with_one, with_zero = (binomial_table(count, speaking) for count in (sum_of_bits, n_users - sum_of_bits))
        return {
            "ones": plus(times(with_one, s + 1), times(with_zero, s) if s else point(0)),
            "zeros": times(binomial_table(n_users, speaking), s) if s else point(0),
            "ones − zeros": with_one,
        }

    def noise_counts(self) -> tuple[NoiseCount, NoiseCount, NoiseCount]:
        """G₁, G₂ and the flood."""
        with mpmath.workdps(DIGITS):
            single = NegativeBinomialCount(1.0, mpmath.exp(-mpmath.mpf(self.noise_epsilon)))
        return single, single, NegativeBinomialCount(self.flood_shape, self.flood_continue_probability)

    def loss_bounds(self) -> LossBounds:
        """By the one-dimensional condition of Pure, for an adversary who knows which of the others were silent."""
        return Condition(
            epsilon=self.epsilon_target,
            noise_epsilon=self.noise_epsilon,
            silence=self.silence_probability,
            base=self.base_messages,
            shape=self.flood_shape,
            continuing=self.flood_continue_probability,
        ).bounds()
