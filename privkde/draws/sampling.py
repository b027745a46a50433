"""Exact draws from uniform bytes: bits, tabulated laws, integers, permutations; and normals, which are not exact.

No draw relies on a floating-point uniform. A uniform U in [0, 1) is revealed byte by byte, most significant first,
until the bytes decide the draw. Floating point decides only the easy cases, with proved margins; rational arithmetic
decides the others. The laws to tabulate are in `privkde.draws.laws`.
Source: docs/proofs/sampling.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from accounting.errors import InvalidInputError, require_integer

Shape = int | tuple[int, ...]

WORD = 64
"""Bits of U that decide all but a tiny share of the draws."""

FLOAT_MARGIN = 2.0**-50
"""Twice the largest error of a float64 comparison between U and a threshold (docs/proofs/sampling.md, Lemma 2)."""

BITS_AT_ONCE = 1 << 18
"""Bits that are decided together: enough to be worth the calls, few enough for a core's cache."""
_AT_ONCE = 1 << 16  # keys of a permutation that are drawn or compared together
ROWS_PER_BYTE = 255
"""The largest number of 0/1 rows whose sums fit into a byte."""


class ByteSource(Protocol):
    """A source of uniform bytes: a `privkde.draws.randomness.ByteStream`, or fixed bytes in a test."""

    def take(self, count: int, /) -> NDArray[np.uint8]:
        """The next `count` bytes, in an array that the caller may overwrite."""
        ...


def bernoulli(scaled: NDArray[np.float32], stream: ByteSource, *, flip: float = 0.0) -> NDArray[np.uint8]:
    """Ones with probability exactly 1/2 + (1/2 − flip)·F, independently for each entry F of `scaled`.

    The float32 F and the float64 `flip` count as the rationals that they are. With flip = 0 this rounds a feature
    F·R to a bit whose ±R is unbiased; F = ±1 is randomized response on the bit (1 + F)/2; in general it is both at
    once.

    Source: docs/proofs/sampling.md, Theorem 1. Requires: -1 ≤ F ≤ 1 and 0 ≤ flip ≤ 1/2 (checked).

    >>> from privkde.draws.randomness import ByteStream
    >>> bernoulli(np.array([-1.0, 1.0], dtype=np.float32), ByteStream(bytes(32))).tolist()
    [0, 1]
    """
    if not 0.0 <= flip <= 0.5:
        raise InvalidInputError(f"flip={flip!r} must lie in [0, 1/2]: above 1/2 a report says the opposite.")
    if scaled.dtype != np.float32:
        raise InvalidInputError(f"scaled features of type {scaled.dtype} were given; cast them to float32 first.")
    entries, first = np.ravel(scaled), stream.take(scaled.size)
    bits, undecided = np.empty(scaled.size, np.bool_), []
    scratch = np.empty(min(scaled.size, BITS_AT_ONCE), np.float32), np.empty(min(scaled.size, BITS_AT_ONCE), np.uint8)
    for at in range(0, scaled.size, BITS_AT_ONCE):
        part = slice(at, at + BITS_AT_ONCE)
        undecided.append(at + _decide_bits(entries[part], first[part], flip, out=bits[part], scratch=scratch))
    if undecided:
        left = np.concatenate(undecided)
        bits[left] = _bits_from_words(_words(first[left], stream), entries[left], flip, stream)
    return bits.view(np.uint8).reshape(scaled.shape)


def _decide_bits(
    entries: NDArray[np.float32],
    first: NDArray[np.uint8],
    flip: float,
    *,
    out: NDArray[np.bool_],
    scratch: tuple[NDArray[np.float32], NDArray[np.uint8]],
) -> NDArray[np.intp]:
    """Write the bits that the first byte of U decides, and return where it does not: about 2 of 256.

    256·P(1) − 1/2 up to an error below 1/2, cut to an integer L: bytes below L mean 1, bytes above L + 1 mean 0.
    `scratch` is overwritten: fresh memory in each call would take longer than all of the arithmetic.
    """
    guess, cut = (room[: len(entries)] for room in scratch)
    if not (entries.max() <= 1.0 and entries.min() >= -1.0):
        raise InvalidInputError(
            f"scaled features reach from {entries.min()} to {entries.max()}; divide by the kernel's bound and clip to"
            " [-1, 1] first."
        )
    np.multiply(entries, np.float32(256.0 * (0.5 - flip)), out=guess)
    guess += np.float32(127.5)
    np.copyto(cut, guess, casting="unsafe")
    np.less(first, cut, out=out)
    return np.flatnonzero(np.less(np.subtract(first, cut, out=cut), 2))


def column_sums(bits: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Sums over the rows (first axis) of 0/1 bytes: in bytes for up to 255 rows at a time, then in int64.

    >>> column_sums(np.ones((1000, 2), dtype=np.uint8)).tolist()
    [1000, 1000]
    """
    total: NDArray[np.int64] = np.add.reduce(bits[:ROWS_PER_BYTE], axis=0, dtype=np.uint8).astype(np.int64)
    for start in range(ROWS_PER_BYTE, len(bits), ROWS_PER_BYTE):
        total += np.add.reduce(bits[start : start + ROWS_PER_BYTE], axis=0, dtype=np.uint8)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class CdfTable:
    """steps[j] = ⌊s_j⌋ with |s_j − 2^bits·P(X ≤ first + j)| ≤ slack.

    So U ≥ P(X ≤ first + j) if ⌊2^bits U⌋ > steps[j] + slack, and U < P(X ≤ first + j) if it is below steps[j] − slack.
    """

    first: int
    steps: list[int]
    bits: int
    slack: int

    def decide(self, uniform: int) -> int | None:
        """X, given ⌊2^bits U⌋; None if these bits do not decide."""
        passed = bisect_left(self.steps, uniform - self.slack)
        return self.first + passed if passed == bisect_right(self.steps, uniform + self.slack) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FastTable:
    """A law's table at 64 bits and, derived from it, the value that each first byte of U decides (−1 if none).

    The `common_count` bytes from `common_start` on decide the value `common`, and no other value has more bytes.
    """

    first: int
    steps: NDArray[np.uint64]
    slack: np.uint64
    values: NDArray[np.int64]
    common: int
    common_start: np.uint8
    common_count: int

    @staticmethod
    def of(table: CdfTable) -> FastTable:
        """The fast levels of `table`."""
        steps = np.array([min(step, 2**WORD - 1) for step in table.steps], dtype=np.uint64)
        slack = np.uint64(table.slack)
        lowest = np.arange(256, dtype=np.uint64) << np.uint64(WORD - 8)
        values = _decide(table.first, steps, slack, lowest, lowest + np.uint64(2 ** (WORD - 8) - 1))
        decided, starts, counts = np.unique(values, return_index=True, return_counts=True)
        counts[decided < 0] = 0
        best = int(np.argmax(counts))
        return FastTable(
            first=table.first,
            steps=steps,
            slack=slack,
            values=values,
            common=int(decided[best]),
            common_start=np.uint8(starts[best]),
            common_count=int(counts[best]),
        )

    def sample(self, shape: Shape, stream: ByteSource, deeper: Callable[[int], int]) -> NDArray[np.int64]:
        """Draws by one byte each, then by seven more where needed; `deeper` gets ⌊2⁶⁴ U⌋ where that is too little."""
        first = stream.take(int(np.prod(shape)))
        out = np.full(first.shape, self.common, dtype=np.int64)
        rare = np.flatnonzero(np.subtract(first, self.common_start) >= self.common_count)
        out[rare] = self.values[first[rare]]
        undecided = rare[out[rare] < 0]
        if len(undecided):
            uniform = _words(first[undecided], stream)
            values = _decide(self.first, self.steps, self.slack, uniform, uniform)
            out[undecided] = values
            for index in np.flatnonzero(values < 0):
                out[undecided[index]] = deeper(int(uniform[index]))
        return out.reshape(shape)


def _decide(
    first: int, steps: NDArray[np.uint64], slack: np.uint64, lowest: NDArray[np.uint64], highest: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """X if lowest ≤ ⌊2⁶⁴ U⌋ ≤ highest, −1 if that does not decide; saturates where ± slack would leave 64 bits."""
    passed = np.searchsorted(steps, np.maximum(lowest, slack) - slack, side="left")
    most = np.searchsorted(steps, np.minimum(highest, ~slack) + slack, side="right")
    return np.where(passed == most, first + passed, -1)


def integers_below(bound: int, shape: Shape, stream: ByteSource) -> NDArray[np.int64]:
    """Uniform on {0, …, bound − 1}: whole bytes below the largest multiple of `bound`, others drawn again.

    >>> from privkde.draws.randomness import ByteStream
    >>> integers_below(1, 3, ByteStream(bytes(32))).tolist()
    [0, 0, 0]
    """
    require_integer("bound", bound, low=1, high=2**63)
    out = np.zeros(shape, dtype=np.int64)
    if bound == 1:
        return out
    width = ((bound - 1).bit_length() + 7) // 8
    largest = np.uint64(256**width // bound * bound - 1)
    values, missing = out.reshape(-1), np.arange(out.size)
    while len(missing):
        octets = np.zeros((len(missing), 8), dtype=np.uint8)
        octets[:, 8 - width :] = stream.take(len(missing) * width).reshape(-1, width)
        drawn = _as_words(octets)
        accepted = drawn <= largest
        values[missing[accepted]] = (drawn[accepted] % np.uint64(bound)).astype(np.int64)
        missing = missing[~accepted]
    return out


def permutation(length: int, stream: ByteSource) -> NDArray[np.int64]:
    """A uniformly random order of 0, …, length − 1: by random keys, those with equal keys in a random order.

    A word of 64 bits is a key above the number that it is drawn for; sorting words takes no memory besides theirs.
    Exactly uniform: which number has which key, and the order among equal keys, do not depend on the numbers.
    Source: docs/proofs/sampling.md.
    """
    require_integer("length", length, low=0, high=2**40)
    low = np.uint64((1 << max(0, length - 1).bit_length()) - 1)
    words = np.empty(length, np.uint64)
    for at in range(0, length, _AT_ONCE):
        part = words[at : at + _AT_ONCE]
        part[:] = _as_words(stream.take(8 * len(part)).reshape(-1, 8))
        part &= ~low
        part |= np.arange(at, at + len(part), dtype=np.uint64)
    words.sort()
    _shuffle_ties(words, low, stream)
    words &= low
    return words.view(np.int64)


def _shuffle_ties(words: NDArray[np.uint64], low: np.uint64, stream: ByteSource) -> None:
    """Put sorted words whose bits above `low` are equal in a uniformly random order."""
    pairs = [np.zeros(0, np.int64)]
    for at in range(0, len(words) - 1, _AT_ONCE):
        part = words[at : at + _AT_ONCE + 1]
        pairs.append(at + np.flatnonzero((part[1:] ^ part[:-1]) <= low))
    firsts = np.concatenate(pairs)
    if len(firsts):
        tied = np.union1d(firsts, firsts + 1)
        mixed = words[tied][permutation(len(tied), stream)]
        words[tied] = mixed[np.argsort(mixed & ~low, kind="stable")]


def normals(shape: Shape, stream: ByteSource) -> NDArray[np.float64]:
    """Standard normals in floating point, Φ⁻¹((j + 1/2)/2⁵³) with j uniform on {0, …, 2⁵³ − 1}.

    Not exact: support and probabilities are those of 53-bit inversion. Used by the central baseline, which is only a
    comparison and protects nobody. By symmetry j is drawn as a sign and 52 bits, so that j + 1/2 is not rounded.
    """
    size = int(np.prod(shape))
    drawn = _as_words(stream.take(8 * size).reshape(-1, 8))
    lower: NDArray[np.float64] = special.ndtri(((drawn >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-53)
    return np.where(drawn & np.uint64(1), lower, -lower).reshape(shape)


def _words(first: NDArray[np.uint8], stream: ByteSource) -> NDArray[np.uint64]:
    """⌊2⁶⁴ U⌋ for uniforms whose first bytes are known and whose next seven are drawn here."""
    octets = np.empty((len(first), 8), dtype=np.uint8)
    octets[:, 0] = first
    octets[:, 1:] = stream.take(7 * len(first)).reshape(-1, 7)
    return _as_words(octets)


def _as_words(octets: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Rows of eight bytes, most significant first, on any machine."""
    return octets.view(">u8").reshape(-1).astype(np.uint64)


def _bits_from_words(
    uniform: NDArray[np.uint64], scaled: NDArray[np.float32], flip: float, stream: ByteSource
) -> NDArray[Any]:
    """Whether U < P(1), from 64 bits of U: in float64 beyond `FLOAT_MARGIN`, exactly within it."""
    gap = np.multiply(0.5 - flip, scaled, dtype=np.float64)
    gap += 0.5
    gap -= uniform * 2.0**-64
    bits = gap > 0.0
    for index in np.flatnonzero(np.abs(gap) <= FLOAT_MARGIN):
        threshold = Fraction(1, 2) + (Fraction(1, 2) - Fraction(flip)) * Fraction(float(scaled[index]))
        bits[index] = _is_below(threshold, int(uniform[index]), stream)
    return bits


def _is_below(threshold: Fraction, uniform: int, stream: ByteSource) -> bool:
    """Whether U < threshold, given ⌊2⁶⁴ U⌋: in rational arithmetic, one more byte of U at a time until decided."""
    ones = threshold * 2**64
    while uniform < ones < uniform + 1:
        uniform = 256 * uniform + int(stream.take(1)[0])
        ones *= 256
    return uniform < ones
