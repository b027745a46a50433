"""Public draws that come out bit for bit the same on every machine and with every version of NumPy.

Only bytes read as little-endian integers and float64 operations that IEEE 754 rounds in one way are used:
+, −, ×, ÷, square root, and the split into mantissa and exponent. No library logarithm, cosine or generator, whose last
bits change from one version or processor to the next. Arrays are made in parts, but each draw is defined one number at
a time: the size of the parts changes nothing.

Source: docs/proofs/kernels.md, "Reproducible draws".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from accounting.errors import require_integer
from privkde.draws.randomness import ByteStream

Array = NDArray[np.float64]
Number = TypeVar("Number", np.float64, np.int64)

AT_ONCE = 1 << 16
"""Candidates that are drawn together; no result depends on it."""

LN2 = 0.6931471805599453
ROOT_HALF = 0.7071067811865476
ATANH = tuple(1.0 / (2 * k + 1) for k in range(12))
"""atanh(z)/z = Σ z^{2k}/(2k+1); for |z| ≤ 0.172 what follows these terms is below 1e-19."""


def words(stream: ByteStream, count: int) -> NDArray[np.uint64]:
    """`count` integers below 2⁶⁴, eight bytes each, the least significant first."""
    return stream.take(8 * count).view(np.dtype("<u8")).astype(np.uint64, copy=False)


def uniforms(stream: ByteStream, count: int) -> Array:
    """Multiples of 2⁻⁵³ in [0, 1): the upper 53 bits of one word each."""
    return (words(stream, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def signs(stream: ByteStream, count: int) -> NDArray[np.int8]:
    """±1, one bit each, the least significant bit of a byte first; a set bit is −1. Takes ⌈count/8⌉ bytes."""
    bits = np.unpackbits(stream.take(-(-count // 8)), count=count, bitorder="little")
    return (1 - 2 * bits.astype(np.int8)).astype(np.int8)


def natural_log(x: Array) -> Array:
    """The logarithm to a few units of 1e-16, by exact operations.

    x = m·2^e with √½ ≤ m < √2 and z = (m−1)/(m+1), so that ln x = 2 atanh(z) + e ln 2; atanh by Horner's rule.
    Requires: 0 < x < ∞ (assumed).
    """
    mantissa, exponent = np.frexp(x)
    low = mantissa < ROOT_HALF
    mantissa = np.where(low, 2.0 * mantissa, mantissa)
    z = (mantissa - 1.0) / (mantissa + 1.0)
    square = z * z
    series = np.full_like(z, ATANH[-1])
    for coefficient in ATANH[-2::-1]:
        series = series * square + coefficient
    return 2.0 * z * series + (exponent - low).astype(np.float64) * LN2


def normals(stream: ByteStream, count: int) -> Array:
    """Standard normal numbers by Marsaglia's polar method.

    Candidates are pairs (2U − 1, 2U' − 1), one after another. With s the sum of squares, a pair with 0 < s < 1 is
    accepted and gives two numbers, pair·√(−2 ln s / s), in this order. If `count` is odd, the very last is dropped.
    """

    def propose(size: int) -> Array:
        pairs = 2.0 * uniforms(stream, 2 * size).reshape(size, 2) - 1.0
        squares = pairs[:, 0] * pairs[:, 0] + pairs[:, 1] * pairs[:, 1]
        inside = (squares > 0.0) & (squares < 1.0)
        pairs, squares = pairs[inside], squares[inside]
        return pairs * np.sqrt(-2.0 * natural_log(squares) / squares)[:, None]

    pairs = np.empty(((count + 1) // 2, 2))
    _fill(pairs, propose)
    return pairs.reshape(-1)[:count]


def normal_rows(stream: ByteStream, count: int, width: int) -> Iterator[tuple[slice, Array]]:
    """The numbers `normals(stream, count·width)` as rows of `width`, some rows at a time, with their places."""
    step = 2 * max(1, AT_ONCE // (2 * width))  # even, so that no half of a pair is dropped between two parts
    for start in range(0, count, step):
        part = slice(start, min(start + step, count))
        yield part, normals(stream, (part.stop - start) * width).reshape(-1, width)


def integers_below(stream: ByteStream, count: int, bound: int) -> NDArray[np.int64]:
    """Uniform integers in [0, bound): words modulo `bound`, those beyond its last multiple below 2⁶⁴ rejected."""
    require_integer("bound", bound, low=1, high=2**62)
    last = 2**64 // bound * bound - 1

    def propose(size: int) -> NDArray[np.int64]:
        candidates = words(stream, size)
        return (candidates[candidates <= np.uint64(last)] % np.uint64(bound)).astype(np.int64)

    out = np.empty(count, dtype=np.int64)
    _fill(out, propose)
    return out


def subset(stream: ByteStream, count: int, bound: int) -> NDArray[np.int64]:
    """`count` different integers below `bound`, ascending: the places of the smallest of `bound` words.

    Every subset is equally likely but for ties between words, of probability below bound²/2⁶⁵; the earlier wins.
    """
    require_integer("count", count, low=0, high=bound)
    return np.sort(np.argsort(words(stream, bound), kind="stable")[:count]).astype(np.int64)


def poisson_process(stream: ByteStream, length: float) -> Array:
    """The points below `length` of a Poisson process of rate 1 on [0, ∞), ascending: sums of gaps −ln(1 − U).

    Its stream must serve nothing else: how many unused gaps are drawn at the end is left open.
    """
    parts: list[Array] = []
    reached = 0.0
    while reached < length:
        expected = length - reached
        gaps = -natural_log(1.0 - uniforms(stream, min(AT_ONCE, int(expected + 4.0 * math.sqrt(expected)) + 16)))
        gaps[0] += reached
        parts.append(np.add.accumulate(gaps))
        reached = float(parts[-1][-1])
    points = np.concatenate(parts) if parts else np.empty(0)
    return points[points < length]


def _fill(out: NDArray[Number], propose: Callable[[int], NDArray[Number]]) -> None:
    """Fill `out` with accepted candidates in order.

    At most as many candidates are drawn as entries are missing. So the bytes that are taken are those that drawing
    one candidate after another would take, whatever the parts.
    """
    filled = 0
    while filled < len(out):
        accepted = propose(min(len(out) - filled, AT_ONCE))
        out[filled : filled + len(accepted)] = accepted
        filled += len(accepted)
