"""RR: each user reports its bit, flipped with probability p; the shuffled output is the count of ones.

With m of the n − 1 others holding a one, the count is W_m plus the target's report, where
W_m = Bin(m, 1−p) + Bin(n−1−m, p). Source: docs/proofs/randomized-response.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

import numpy as np
import scipy

from accounting.contract import Evidence
from accounting.errors import require_real
from accounting.guarantee import Adjacency, Guarantee, View
from accounting.mechanisms.bitsum_protocol import BitsumProtocol, computed
from accounting.numerics.pmf import Pmf, binomial, mirrored
from accounting.numerics.profile import LossGrid, Pair, ProfileTable

if TYPE_CHECKING:
    from accounting.composition.target import Target

T = TypeVar("T")

CELLS = 1024
"""The supremum over m is taken over at most this many cells; a cell of width g costs a factor 1 − g/n in variance."""

GROUPS = 8
"""Cells are joined into this many kinds before composition."""

MARGIN_PER_CELL, LARGEST_MARGIN = 0.7, 7e-4
"""Extra noise that a search tries first for the supremum over m: per share of a cell, seen in plans, and at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomizedResponse(BitsumProtocol):
    """Shuffled randomized response with flip probability p in (0, 1/2)."""

    name: ClassVar[str] = "rr"
    summary: ClassVar[str] = (
        "each user reports each bit, flipped with a small probability; the analyzer counts ones and corrects for"
        " the flips"
    )
    randomizer: ClassVar[str] = (
        "each user reports each bit, flipped with probability p = flip_probability;"
        " the analyzer computes (count − n·p)/(1 − 2p)"
    )
    one_message_each: ClassVar[bool] = True
    noise_depends_on_users: ClassVar[bool] = True

    flip_probability: float
    """Probability that a user reports the wrong bit, strictly between 0 and ½."""

    def __post_init__(self) -> None:
        BitsumProtocol.__post_init__(self)
        require_real("flip_probability", self.flip_probability, low=0.0, high=math.nextafter(0.5, 0.0))

    @classmethod
    def with_rmse(cls, rmse: float, n_users: int) -> Self:
        """The instance whose error is `rmse`: p(1−p) = y with y = rmse²/(n + 4 rmse²)."""
        square = rmse * rmse
        product = square / (n_users + 4.0 * square)
        return cls(
            n_users=n_users,
            flip_probability=2.0 * product / (1.0 + math.sqrt(n_users / (n_users + 4.0 * square))),
        )

    @classmethod
    def design(cls, target: Target, n_users: int, *, certified: bool = True) -> Self:
        """The least flip probability."""
        return target.calibrate(partial(cls.with_rmse, n_users=n_users), certified=certified)

    @classmethod
    def as_published(cls, epsilon: float, delta: float, n_users: int) -> Self:
        """By Lemma 4.8."""
        return cls(n_users=n_users, flip_probability=lemma_4_8(epsilon, delta, n_users))

    def published_epsilon(self, delta: float) -> float | None:
        """By Lemma 4.8."""
        return lemma_4_8_epsilon(self.flip_probability, delta, self.n_users)

    def parameters(self) -> dict[str, float | int]:
        """The flip probability."""
        return {"flip_probability": self.flip_probability}

    def variance(self, n_present: int) -> float:
        """N p (1−p)/(1−2p)², whatever the bits."""
        p = self.flip_probability
        return n_present * p * (1.0 - p) / (1.0 - 2.0 * p) ** 2

    def messages_per_user(self, mean_bit: float = 0.5) -> float:
        """Exactly one."""
        return 1.0

    def most_messages(self, n_instances: int) -> int:
        """Exactly one in each instance."""
        return n_instances

    def local_guarantee(self) -> Guarantee:
        """ln((1−p)/p), pure, whatever the shuffler does."""
        p = self.flip_probability
        epsilon = math.log1p((1.0 - 2.0 * p) / p) * (1.0 + 1e-15)
        return Guarantee(epsilon=epsilon, delta=0.0, adjacency=Adjacency.BIT, view=View.LOCAL)

    def pair(self, ones: int, dropped: int = 0) -> Pair:
        """(A_1, A_0) with `ones` of the others at 1, after handing the adversary `dropped` others' reports."""
        store = _pair_store(self.n_users, self.flip_probability)
        if (ones, dropped) not in store:
            p = self.flip_probability
            others = sum_of_binomials(ones, self.n_users - 1 - dropped - ones, p)
            same, up = np.append(others.values, 0.0), np.append(0.0, others.values)
            upper, lower = p * same + (1.0 - p) * up, (1.0 - p) * same + p * up
            store[ones, dropped] = Pair(upper=upper, lower=lower, missing=others.missing)
        return store[ones, dropped]

    def pairs(self) -> Sequence[Pair]:
        """All others at 0; by mirror symmetry (count → n − count) its reversal is all others at 1."""
        return [self.pair(0)]

    def delta(self, epsilon: float) -> float:
        """Supremum over all m by branch and bound, both directions."""
        best = self.pair(0).symmetric_delta(epsilon)
        bounds = self._cell_bounds(
            0, (self.n_users - 1) // 2, lambda pair: pair.symmetric_delta(epsilon), lambda bound: bound <= best
        )
        return max(best, *bounds, 0.0)

    def kinds(self, grid: LossGrid) -> list[ProfileTable]:
        """One table per group of m, each above the profile of every m of its group."""
        end = ProfileTable.of_pair(self.pair(0), grid)
        mirror = end.reversed()
        middle = (self.n_users - 1) // 2
        edges = sorted({round(middle * g / GROUPS) for g in range(GROUPS + 1)})
        kinds = [end]
        for low, high in zip(edges, [*edges[1:-1], middle + 1], strict=False):
            tables = self._cell_bounds(
                low,
                high - 1,
                lambda pair: ProfileTable.of_pair(pair, grid),
                lambda table: table.dominated_by(end) or table.dominated_by(mirror),
            )
            if tables:
                kinds.append(reduce(ProfileTable.join, tables))
        return kinds

    def _cell_bounds(self, low: int, high: int, evaluate: Callable[[Pair], T], settled: Callable[[T], bool]) -> list[T]:
        """Bounds that together cover every m in [low, high] and are not already `settled`.

        Data processing: for m in [a, b] the reports of the b − a ambiguous users may be handed to the
        adversary, which leaves Bin(a, 1−p) + Bin(n−1−b, p); the bound holds for all m of the cell.
        A wide cell is tried only where the last bound was settled: it is bounded no better than its parts.
        """
        finest = self._finest_cell()
        bounds: list[T] = []
        stack = [(low, high)] if low <= high else []
        hopeful = True
        while stack:
            a, b = stack.pop()
            if b - a <= finest or (hopeful and b - a <= 32 * max(finest, 1)):
                bound = evaluate(self.pair(a, dropped=b - a))
                hopeful = settled(bound)
                if hopeful:
                    continue
                if b - a <= finest:
                    bounds.append(bound)
                    continue
            middle = (a + b) // 2
            stack += [(a, middle), (middle + 1, b)]
        return bounds

    def certified_margin(self) -> float:
        """A cell of width g costs g/2n of the noise, and joining cells in groups a little more."""
        return min(MARGIN_PER_CELL * self._finest_cell() / self.n_users, LARGEST_MARGIN)

    def _finest_cell(self) -> int:
        """Width below which a cell is not split further: n/1024, wider where the laws themselves are huge."""
        deviation = math.sqrt(self.n_users * self.flip_probability * (1.0 - self.flip_probability)) + 10.0
        affordable = max(16.0, min(1.0, 200.0 / deviation) * CELLS)
        return int(self.n_users / affordable)

    @property
    def evidence(self) -> Evidence:
        """Exact binomial law; supremum over the others by branch and bound."""
        width = self._finest_cell()
        how = "every m" if width == 0 else f"cells of at most {width + 1} values of m, each bounded by data processing"
        return computed(
            f"exact law of the count; supremum over the others' bits rigorous ({how})",
            "docs/proofs/randomized-response.md",
        )


def lemma_4_8(epsilon_0: float, delta_0: float, n_users: int) -> float:
    """Flip probability λ/2n with L = ln(4/δ₀): λ = 64L/ε₀² if ε₀ ≥ sqrt(192L/n), else n − ε₀ n^{3/2}/sqrt(432L).

    Both branches give λ = n/3 at the seam. Source: Cheu, Smith, Ullman, Zeber and Zhilyaev 2019, Lemma 4.8; the
    paper's bibliography key for it is a slip.
    """
    log_term = math.log(4.0 / delta_0)
    if epsilon_0 >= math.sqrt(192.0 * log_term / n_users):
        blanket = 64.0 * log_term / epsilon_0**2
    else:
        blanket = n_users - epsilon_0 * n_users * math.sqrt(n_users / (432.0 * log_term))
    return blanket / (2.0 * n_users)


def lemma_4_8_epsilon(flip_probability: float, delta_0: float, n_users: int) -> float:
    """The ε₀ at which Lemma 4.8 prescribes exactly this flip probability."""
    log_term = math.log(4.0 / delta_0)
    blanket = 2.0 * n_users * flip_probability
    if blanket <= n_users / 3.0:
        return math.sqrt(64.0 * log_term / blanket)
    return (n_users - blanket) * math.sqrt(432.0 * log_term / n_users) / n_users


@lru_cache(maxsize=1)
def _pair_store(n_users: int, flip_probability: float) -> dict[tuple[int, int], Pair]:
    """Pairs of the protocol at hand: its profile is computed at many ε."""
    return {}


_DIRECT_PRODUCT = 4_000_000
_TILTS = (-6.0, 0.0, 6.0)


def sum_of_binomials(ones: int, zeros: int, p: float) -> Pmf:
    """Bin(ones, 1−p) + Bin(zeros, p), accurate relatively in both tails.

    Short windows are convolved directly (positive terms only). Long ones by FFT after tilting both
    laws by e^{θk}, with θ moving the mean by −6, 0 or 6 deviations, each used near its own centre.
    """
    first, second = mirrored(binomial(ones, p), ones), binomial(zeros, p)
    start, missing = first.start + second.start, first.missing + second.missing
    x, y = first.values, second.values
    if len(x) == 1 or len(y) == 1 or len(x) * len(y) <= _DIRECT_PRODUCT:
        return Pmf(start=start, values=np.convolve(x, y), missing=missing)
    variance = (ones + zeros) * p * (1.0 - p)
    deviation = math.sqrt(variance)
    mean = ones * (1.0 - p) + zeros * p - start
    index = np.arange(len(x) + len(y) - 1)
    nearest = np.argmin(np.abs(((index - mean) / deviation)[:, None] - np.array(_TILTS)[None, :]), axis=1)
    values = np.empty(len(index))
    for column, shift in enumerate(_TILTS):
        theta = shift / deviation
        left = x * np.exp(theta * (np.arange(len(x)) - (ones * (1.0 - p) - first.start)))
        right = y * np.exp(theta * (np.arange(len(y)) - (zeros * p - second.start)))
        here = nearest == column
        tilted = scipy.signal.fftconvolve(left, right)[here]
        values[here] = tilted * np.exp(-theta * (index[here] - mean))
    return Pmf(start=start, values=np.maximum(values, 0.0), missing=missing)
