"""What every bitsum protocol does: a user turns bits into messages, the analyzer turns counts into a sum of bits.

All messages are ones or zeros ("+1" and "−1" for the protocols with signed messages; the single-noise protocols only
send ones). After shuffling nothing is left of an instance but how many ones and how many zeros were sent.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from accounting.mechanisms import BitsumProtocol
from privkde.draws.laws import DiscreteLaw
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import bernoulli, column_sums

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tally:
    """How many ones and zeros were sent; arrays of one shape, whose last axis is the instance."""

    ones: NDArray[Any]
    zeros: NDArray[Any]

    @staticmethod
    def nothing(shape: Shape) -> Tally:
        """No messages."""
        return Tally(np.zeros(shape, np.int64), np.zeros(shape, np.int64))

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.ones + other.ones, self.zeros + other.zeros)

    def include(self, other: Tally) -> None:
        """Add another tally to this one, in its own arrays."""
        np.add(self.ones, other.ones, out=self.ones)
        np.add(self.zeros, other.zeros, out=self.zeros)

    def over_users(self) -> Tally:
        """Summed over the first axis."""
        return Tally(_column_totals(self.ones), _column_totals(self.zeros))


def _column_totals(counts: NDArray[Any]) -> NDArray[np.int64]:
    """Sums of columns; `uint8` arrays hold bits only."""
    if counts.dtype == np.uint8:
        return column_sums(counts)
    return np.asarray(counts.sum(axis=0, dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bitsum(abc.ABC):
    """The randomizer and the analyzer of one protocol, for any number of instances at once.

    A user's messages in one instance are *inputs*, which depend on its bit, and *noise*, which does not. The noise
    can be divided: shares of n users add up to one draw for n users. The faithful execution draws one
    share for each user, the aggregated one a single total; the law of the counts is the same.
    """

    name: ClassVar[str]

    flip: float = 0.0
    """Probability that a bit is reported wrong."""

    @staticmethod
    @abc.abstractmethod
    def of(law: Any) -> Bitsum:
        """The executable form of a planned law, which is the law that `EXECUTED` has it under."""

    def respond(self, scaled: NDArray[np.float32], stream: ByteStream) -> NDArray[np.uint8]:
        """Round f/R in [−1, 1] to a bit, flipped with probability `flip`: ones have probability ½ + (½ − flip)·f/R."""
        return bernoulli(scaled, stream, flip=self.flip)

    @abc.abstractmethod
    def inputs(self, bits: NDArray[np.uint8], stream: ByteStream) -> Tally:
        """The messages that carry these bits, one tally for each bit."""

    def noise(self, n_users: int, shape: Shape, stream: ByteStream) -> Tally:
        """The noise messages of `n_users` users together, an independent draw for each entry of `shape`.

        By default none, in bytes and in one place: bits to which they are added stay bytes.
        """
        none = np.broadcast_to(np.uint8(0), shape)
        return Tally(none, none)

    @abc.abstractmethod
    def estimate(self, tally: Tally, n_users: int) -> NDArray[np.float64]:
        """The unbiased estimate of the sum of bits from the counts of `n_users` users."""


L = TypeVar("L", bound=BitsumProtocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBitsum(Bitsum, Generic[L]):
    """A protocol that draws by its planned law."""

    law: L

    @classmethod
    def of(cls, law: L) -> Self:
        """With the planned parameters."""
        return cls(law=law)

    def inputs(self, bits: NDArray[np.uint8], stream: ByteStream) -> Tally:
        """A one for a bit of 1, nothing for a bit of 0."""
        return Tally(bits, np.zeros_like(bits))


def paired(single: DiscreteLaw, flood: DiscreteLaw, shape: Shape, stream: ByteStream) -> Tally:
    """Independent noise of ones and of zeros, and a flood of pairs that cancel."""
    pairs = flood.sample(shape, stream)
    return Tally(single.sample(shape, stream) + pairs, single.sample(shape, stream) + pairs)


def share(total: float | Fraction, n_users: int, counted_users: int) -> Fraction:
    """What `n_users` users hold of a `total` that `counted_users` users hold together, exactly."""
    return Fraction(total) * n_users / counted_users
