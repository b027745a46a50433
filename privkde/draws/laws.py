"""Negative binomial, Poisson and label draws, exact for all real parameters.

X = min{k : U < P(X ≤ k)} for a uniform U revealed byte by byte: one byte and a table of 256 entries decide most draws,
64 bits and a table of P(X ≤ k)·2⁶⁴ nearly all others, and for what remains the table is rebuilt at 128, 256, … bits.

Tables are made of integers only. All laws here have P(k+1)/P(k) = (a + bk)/(k+1) (Panjer's class), so that weights
follow from the mode by multiplication with ratios of at most 1, and their sum normalizes them: no gamma functions, no
logarithms, no shared precision that another thread could change. Source: docs/proofs/sampling.md.
"""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InfeasibleError, InvalidInputError, require_integer
from privkde.draws.sampling import WORD, ByteSource, CdfTable, FastTable, Shape

Exact = Fraction | float | int
"""A number that counts as the rational that it is."""

LARGEST_WINDOW = 2_000_000
"""The largest number of values that are tabulated at 64 bits; a wider law is refused before anything is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """P(k+1)/P(k) = (constant + slope·k)/(scale·(k+1)), in integers."""

    constant: int
    slope: int
    scale: int

    def mode(self) -> int:
        """The smallest k whose ratio is at most 1; the ratio exceeds 1 before it, and not from there on."""
        return max(0, -((self.scale - self.constant) // (self.scale - self.slope)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteLaw(abc.ABC):
    """A law on {0, 1, …} that is drawn from exactly. Source: docs/proofs/sampling.md, Theorem 2."""

    @abc.abstractmethod
    def ratios(self, bits: int) -> Ratios:
        """Ratios of neighboring probabilities, each with a relative error of at most 2^−bits.

        Requires: the ratios do not increase with k, or all of them are below their limit slope/scale < 1.
        """

    @abc.abstractmethod
    def mean(self) -> float:
        """Expectation."""

    @abc.abstractmethod
    def variance(self) -> float:
        """Variance."""

    def cdf_table(self, bits: int) -> CdfTable:
        """The distribution function to `bits` bits, a multiple of 64.

        The window leaves out at most 2^−(bits+16) of the mass on each side. A law with too wide a window is refused at
        64 bits only, so that a refusal never depends on what is drawn.
        """
        ratios = self.ratios(2 * bits)
        most = LARGEST_WINDOW if bits == WORD else None
        mode, weights = ratios.mode(), [1 << 2 * bits]
        limit = (max(ratios.slope, 0), ratios.scale)
        here, before = (ratios.constant + ratios.slope * k for k in (mode, mode - 1))
        rising = (here, ratios.slope), (ratios.scale * (mode + 1), ratios.scale)
        falling = (ratios.scale * mode, -ratios.scale), (before, -ratios.slope)
        weights += itertools.islice(_outward(*rising, limit=limit, bits=bits), most)
        room = None if most is None else most + 1 - len(weights)
        below = list(itertools.islice(_outward(*falling, limit=(0, 1), bits=bits), room))
        start, stop = mode - len(below), mode + len(weights)
        if most is not None and stop - start > most:
            raise InfeasibleError(
                f"{self} needs a table of more than {most:,} values, the limit; its standard deviation is"
                f" {math.sqrt(self.variance()):.3g}. Choose a larger epsilon, fewer repetitions or bitsum 'rr'."
            )
        sums = list(itertools.accumulate(itertools.chain(reversed(below), weights)))
        steps = [(partial << bits) // sums[-1] for partial in sums]
        if start > 0:  # what lies below the window
            steps.insert(0, 0)
        if ratios.constant + ratios.slope * (stop - 1) <= 0:  # nothing lies above it: U < 1 needs no check
            steps.pop()
        return CdfTable(first=max(start - 1, 0), steps=steps, bits=bits, slack=1 + (8 * len(sums) ** 2 >> bits))

    def sample(self, shape: Shape, stream: ByteSource) -> NDArray[np.int64]:
        """Independent draws. Raises `InfeasibleError`, before the first draw, if the law is too wide to tabulate."""
        return _fast_table(self).sample(shape, stream, lambda uniform: _deep_draw(self, uniform, stream))


@dataclass(frozen=True, slots=True, kw_only=True)
class NegativeBinomial(DiscreteLaw):
    """NB(r, p): P(k) = C(k+r−1, k) (1−p)^r p^k, r = `shape`, with p the probability to *continue*.

    p is given as `continue_probability`, or as e^{−decay} by `decay`. NumPy's p is our 1 − p.

    >>> NegativeBinomial(shape=1, continue_probability=0.5).mean()
    1.0
    """

    shape: Exact
    continue_probability: Exact | None = None
    decay: Exact | None = None

    def __post_init__(self) -> None:
        _require_within("shape", self.shape, low=0, high=10**18)
        if (self.continue_probability is None) == (self.decay is None):
            raise InvalidInputError(f"{self} must name exactly one of continue_probability and decay.")
        if self.continue_probability is not None:
            _require_within("continue_probability", self.continue_probability, low=0, high=math.nextafter(1.0, 0.0))
        if self.decay is not None:
            _require_within("decay", self.decay, low=Fraction(1, 10**15), high=1000)

    def ratios(self, bits: int) -> Ratios:
        """p(r + k)/(k + 1): decreasing for r > 1, below p for r ≤ 1."""
        p, r = self._continuation(bits), Fraction(self.shape)
        return Ratios(
            constant=p.numerator * r.numerator,
            slope=p.numerator * r.denominator,
            scale=p.denominator * r.denominator,
        )

    def _continuation(self, bits: int) -> Fraction:
        """The rational p, or one that exceeds e^{−decay} by a relative error of at most 2^−bits."""
        if self.continue_probability is not None:
            return Fraction(self.continue_probability)
        assert self.decay is not None
        return 1 / exponential_below(Fraction(self.decay), bits)

    def mean(self) -> float:
        """The expectation r p/(1−p)."""
        return float(self.shape) * self._odds()

    def variance(self) -> float:
        """The variance r p/(1−p)²."""
        return self.mean() * (1.0 + self._odds())

    def _odds(self) -> float:
        """The odds p/(1−p), which are 1/(e^decay − 1)."""
        if self.decay is not None:
            return 1.0 / math.expm1(self.decay)
        p = self._continuation(0)
        return float(p / (1 - p))


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson(DiscreteLaw):
    """Poisson(λ): P(k) = e^{−λ} λ^k/k!, λ = `rate`."""

    rate: Exact

    def __post_init__(self) -> None:
        _require_within("rate", self.rate, low=0, high=10**18)

    def ratios(self, bits: int) -> Ratios:
        """The ratio λ/(k + 1), exactly, for any `bits`."""
        rate = Fraction(self.rate)
        return Ratios(constant=rate.numerator, slope=0, scale=rate.denominator)

    def mean(self) -> float:
        """The expectation λ."""
        return float(self.rate)

    def variance(self) -> float:
        """The variance λ."""
        return float(self.rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepLabel(DiscreteLaw):
    """1 if m-ary randomized response keeps the label, with probability 1/(1 + (m−1)e^{−ε}); otherwise 0."""

    n_classes: int
    label_epsilon: Exact

    def __post_init__(self) -> None:
        require_integer("n_classes", self.n_classes, low=2, high=10**6)
        _require_within("label_epsilon", self.label_epsilon, low=0, high=1000)

    def ratios(self, bits: int) -> Ratios:
        """P(1)/P(0) = e^ε/(m−1), and P(2)/P(1) = 0."""
        power = exponential_below(Fraction(self.label_epsilon), bits)
        scale = power.denominator * (self.n_classes - 1)
        return Ratios(constant=power.numerator, slope=-power.numerator, scale=scale)

    def mean(self) -> float:
        """The probability to keep."""
        return 1.0 / (1.0 + (self.n_classes - 1) * math.exp(-self.label_epsilon))

    def variance(self) -> float:
        """The probability to keep times the probability not to keep."""
        return self.mean() ** 2 * (self.n_classes - 1) * math.exp(-self.label_epsilon)


def exponential_below(exponent: Fraction, bits: int) -> Fraction:
    """A rational L with L ≤ e^x ≤ L(1 + 2^−bits) for x = `exponent` > 0, in integer arithmetic.

    e^x = (e^{x/2^s})^{2^s} with x/2^s < 1/2: Taylor's series and s squarings, all rounded down.
    Source: docs/proofs/sampling.md, Lemma 3.
    """
    squarings = math.ceil(exponent).bit_length() + 1
    precision = bits + squarings + 32
    term = total = 1 << precision
    for j in itertools.count(1):
        term = term * exponent.numerator // (exponent.denominator * j << squarings)
        if not term:
            break
        total += term
    for _ in range(squarings):
        total = total * total >> precision
    return Fraction(total, 1 << precision)


def _outward(
    numerators: tuple[int, int], denominators: tuple[int, int], *, limit: tuple[int, int], bits: int
) -> Iterator[int]:
    """Weights beyond the mode, whose own weight is 2^(2·bits), until the rest is below 2^−(bits+16) of that.

    Each weight is the previous one times top/bottom ≤ 1, rounded down; top and bottom are arithmetic progressions,
    given by their first terms and steps. Later ratios are at most max(top/bottom, limit), so a geometric series
    bounds the weights that follow. Source: docs/proofs/sampling.md, Lemma 4.
    """
    (top, top_step), (bottom, bottom_step) = numerators, denominators
    weight, small = 1 << 2 * bits, 1 << (bits - 18)
    limit_top, limit_bottom = limit
    for steps in itertools.count(1):
        if top <= 0:
            return
        if weight <= small:
            bound = weight + steps
            if bound * top <= small * (bottom - top) and bound * limit_top <= small * (limit_bottom - limit_top):
                return
        weight = weight * top // bottom
        yield weight
        top += top_step
        bottom += bottom_step


@lru_cache(maxsize=32)
def _fast_table(law: DiscreteLaw) -> FastTable:
    return FastTable.of(law.cdf_table(WORD))


@lru_cache(maxsize=4)
def _deep_table(law: DiscreteLaw, bits: int) -> CdfTable:
    return law.cdf_table(bits)


def _deep_draw(law: DiscreteLaw, uniform: int, stream: ByteSource) -> int:
    """X, given ⌊2⁶⁴ U⌋ that does not decide: bits are doubled, with a table for all of them, until they do."""
    bits = WORD
    while True:
        uniform = uniform << bits | int.from_bytes(stream.take(bits // 8).tobytes(), "big")
        bits *= 2
        value = _deep_table(law, bits).decide(uniform)
        if value is not None:
            return value


def _require_within(name: str, value: object, *, low: Exact, high: Exact) -> None:
    """Refuse anything but a number in (low, high]."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)) or not low < value <= high:
        raise InvalidInputError(f"{name}={value!r} must be a number in ({low}, {high}].")
