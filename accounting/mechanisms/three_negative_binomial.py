"""3NB: correlated noise, messages ±1, with a generalized shape k.

A user sends b + ψ1 + ψ3 messages "+1" and ψ2 + ψ3 messages "−1", with ψ1, ψ2 ~ NB(k/n, p) and the flood
ψ3 ~ NB(r'/n, p'). The paper's protocol is k = 1; its text prints r' without the 1/n. After shuffling
(U, V) = (S + b + G1 + F, G2 + F) with G1, G2 ~ NB(k, p), F ~ NB(r', p'); the others' sum S is a known shift.
The analyzer returns U − V: unbiased, variance 2kp/(1−p)².

Law, for integer k, with w = min(u, v), d = |u − v| and a_j = P_F * [C(i+j−1, j−1) p^{2i}]_i:

    f_0(u, v) = (1−p)^{2k} p^d Σ_{i<k} C(d−1−i, k−1−i) C(k−1+i, i) a_{k+i}(w),     f_1(u, v) = f_0(u−1, v).

For k = 1 the loss depends on one number only. Proofs: docs/proofs/three-negative-binomial.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.contract import Evidence
from accounting.errors import InfeasibleError, require_integer, require_real
from accounting.mechanisms.bitsum_protocol import BitsumProtocol, computed
from accounting.numerics.effort import require_time
from accounting.numerics.pmf import Array, Pmf, negative_binomial, negative_binomial_window
from accounting.numerics.profile import Pair, smallest_root
from accounting.numerics.tails import most_messages, negative_binomial_moment

if TYPE_CHECKING:
    from accounting.composition.target import Build, Candidate, Target

LARGEST_SHAPE = 8
PLANNED_SHAPES = (8, 4, 2, 1)
"""Shapes of the noise that a design tries, unless one is asked for; 1 is the paper's."""
TAIL_MASS = 1e-22
"""Mass that the windows of the noise and of the flood may each leave out; charged to infinite loss."""
LARGEST_DEVIATION = 1.5e5
"""Largest standard deviation of the counts for which the law is tabulated."""
LARGEST_TABLE = 12_000_000
"""Most entries (d, w) of a law with k > 1, and of the filtered floods that it is made of."""

FLOOD_SHAPE, OTHER_FLOOD_SHAPES = 16.0, (8.0, 32.0)
"""Shapes of the flood that a design tries."""
USUAL_FLOOD_RATIO, LARGEST_FLOOD_RATIO, LARGEST_FLOOD_DEVIATION = 8.0, 512.0, 4e4
PUBLISHED_SHRINK = 0.99
"""The published noise is that of 0.99ε₀."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreeNegativeBinomial(BitsumProtocol):
    """3NB with noise shape k (`noise_shape`), continuation p, and flood NB(r', p')."""

    name: ClassVar[str] = "3nb"
    summary: ClassVar[str] = (
        "each user sends its bit as +1 messages, and a few random +1 and −1 messages on top, most of which cancel; the"
        " analyzer takes the difference"
    )
    randomizer: ClassVar[str] = (
        "each user sends b + ψ1 + ψ3 messages +1 and ψ2 + ψ3 messages −1, with"
        " ψ1, ψ2 ~ NB(noise_shape_per_user, continue_probability) and ψ3 ~ NB(flood_shape_per_user,"
        " flood_continue_probability); the analyzer computes (#+1) − (#−1)"
    )
    takes_noise_shape: ClassVar[bool] = True
    remedy: ClassVar[str] = "raise epsilon"

    noise_shape: int
    """Shape of the noise of all users together, k in the proofs; n·r, which is 1 in the paper."""
    continue_probability: float
    """Probability that the noise goes on."""
    flood_shape: float
    """Shape of the flood of all users together; each of them draws r′/n."""
    flood_continue_probability: float
    """Probability that the flood goes on."""

    def __post_init__(self) -> None:
        BitsumProtocol.__post_init__(self)
        require_integer("noise_shape", self.noise_shape, low=1, high=LARGEST_SHAPE)
        require_real("continue_probability", self.continue_probability, low=0.0, high=1.0 - 1e-12)
        require_real("flood_shape", self.flood_shape, low=1.0, high=1e9, low_open=False)
        require_real("flood_continue_probability", self.flood_continue_probability, low=0.0, high=1.0 - 1e-12)

    @classmethod
    def with_rmse(cls, rmse: float, n_users: int, *, noise_shape: int, flood_shape: float, flood_ratio: float) -> Self:
        """The noise p from 2kp/(1−p)² = rmse²; the flood's deviation is `flood_ratio` times that of G1."""
        half_variance = rmse * rmse / 2.0
        return cls(
            n_users=n_users,
            noise_shape=noise_shape,
            continue_probability=_continuation(half_variance / noise_shape),
            flood_shape=flood_shape,
            flood_continue_probability=_continuation(half_variance * flood_ratio**2 / flood_shape),
        )

    @classmethod
    def design(cls, target: Target, n_users: int, *, certified: bool = True) -> Self:
        """The least noise for each of several shapes and floods, and of those the fewest messages.

        From the largest shape down, until a smaller one has more noise than is accepted for fewer messages: the noise
        of many instances falls with the shape, that of a single one rises.
        """
        candidates: list[Candidate[Self]] = []
        least = math.inf
        for shape in PLANNED_SHAPES if target.noise_shape is None else (target.noise_shape,):
            guess = candidates[-1][0].rmse() if candidates else None
            found = cls._floods(target, n_users, guess) if shape == 1 else cls._one_flood(target, n_users, shape, guess)
            candidates += found
            noise = min((protocol.rmse() for protocol, _ in found), default=math.inf)
            if noise > (1.0 + target.accepted_excess(cls)) * least:
                break
            least = min(least, noise)
        return target.fewest_messages(candidates, certified=certified)

    @classmethod
    def _family(cls, n_users: int, noise_shape: int, ratio: float, shape: float) -> Build[Self]:
        return partial(cls.with_rmse, n_users=n_users, noise_shape=noise_shape, flood_ratio=ratio, flood_shape=shape)

    @classmethod
    def _one_flood(cls, target: Target, n_users: int, shape: int, guess: float | None) -> list[Candidate[Self]]:
        """Shape k > 1: the two-dimensional law is expensive, so the flood that serves k = 1 in most compositions."""
        return target.candidates([cls._family(n_users, shape, USUAL_FLOOD_RATIO, FLOOD_SHAPE)], guess)

    @classmethod
    def _floods(cls, target: Target, n_users: int, guess: float | None) -> list[Candidate[Self]]:
        """Shape k = 1: double the flood until more of it no longer helps, then try all its shapes around that size."""
        candidates: list[Candidate[Self]] = []
        ratio, last = 4.0, math.inf
        while ratio <= LARGEST_FLOOD_RATIO and (not candidates or ratio * last < LARGEST_FLOOD_DEVIATION):
            wider = target.candidates([cls._family(n_users, 1, ratio, FLOOD_SHAPE)], last if candidates else guess)
            if not wider:
                break
            candidates += wider
            noise = wider[0][0].rmse()
            if noise > (1.0 - cls.default_excess / 4.0) * last:
                break
            ratio, last = 2.0 * ratio, noise
        scales = (0.5, 1.0)
        families = [cls._family(n_users, 1, scale * ratio, shape) for scale in scales for shape in OTHER_FLOOD_SHAPES]
        return candidates + target.candidates(families, candidates[-1][0].rmse() if candidates else None)

    @classmethod
    def as_published(cls, epsilon: float, delta: float, n_users: int) -> Self:
        """Parameters p = e^{−0.99ε₀}, r' = 3(1 + ln(2e^{0.99ε₀}/δ₀)), p' = e^{−cε₀/(ε₀ + ln(1/δ₀))}.

        The publication leaves the constant c open; the largest c (fewest messages) that the exact law allows is used.
        """
        shrunk = PUBLISHED_SHRINK * epsilon

        def flood(inverse: float) -> float:
            return math.exp(-1.0 / inverse * epsilon / (epsilon + math.log(1.0 / delta)))

        law = cls(
            n_users=n_users,
            noise_shape=1,
            continue_probability=math.exp(-shrunk),
            flood_shape=3.0 * (1.0 + math.log(2.0 / delta) + shrunk),
            flood_continue_probability=flood(1.0),
        )

        def holds(inverse: float) -> bool:
            return replace(law, flood_continue_probability=flood(inverse)).delta(epsilon) <= delta

        high = 0.01
        while not holds(high):
            high *= 2.0
            if high > 1e6:
                raise InfeasibleError(
                    f"the published 3nb constants do not reach ε₀={epsilon:.3g}, δ₀={delta:.3g} for any flood;"
                    " use accountant 'pld'."
                )
        inverse = smallest_root(holds, high / 2.0, high, tolerance=1e-4)
        return replace(law, flood_continue_probability=flood(inverse))

    def published_epsilon(self, delta: float) -> float | None:
        """The ε₀ of the published noise, which has k = 1."""
        return -math.log(self.continue_probability) / PUBLISHED_SHRINK if self.noise_shape == 1 else None

    def parameters(self) -> dict[str, float | int]:
        """Totals and the shapes that one user draws with."""
        return {
            "noise_shape": self.noise_shape,
            "noise_shape_per_user": self.noise_shape / self.n_users,
            "continue_probability": self.continue_probability,
            "flood_shape": self.flood_shape,
            "flood_shape_per_user": self.flood_shape / self.n_users,
            "flood_continue_probability": self.flood_continue_probability,
        }

    def variance(self, n_present: int) -> float:
        """2kp/(1−p)², more if more users take part than were counted on."""
        p = self.continue_probability
        return 2.0 * self.noise_shape * p / (1.0 - p) ** 2 * n_present / self.n_users

    def messages_per_user(self, mean_bit: float = 0.5) -> float:
        """For a bit b: b + (2/n)[kp/(1−p) + r'p'/(1−p')]."""
        p, flood = self.continue_probability, self.flood_continue_probability
        noise = self.noise_shape * p / (1.0 - p) + self.flood_shape * flood / (1.0 - flood)
        return mean_bit + 2.0 / self.n_users * noise

    def most_messages(self, n_instances: int) -> int:
        """By the moments of 1 + ψ1 + ψ2 + 2ψ3."""
        p, flood, n = self.continue_probability, self.flood_continue_probability, self.n_users

        def log_moment(rate: float) -> float:
            noise = negative_binomial_moment(2.0 * self.noise_shape / n, p / (1.0 - p), rate)
            return rate + noise + negative_binomial_moment(self.flood_shape / n, flood / (1.0 - flood), 2.0 * rate)

        return most_messages(n_instances, log_moment)

    def pairs(self) -> Sequence[Pair]:
        """The law of (U, V) for b = 1 against b = 0."""
        if self._minimum_deviation() > LARGEST_DEVIATION:
            raise InfeasibleError(
                f"3nb with counts of standard deviation {self._minimum_deviation():.3g} (limit {LARGEST_DEVIATION:g})"
                " is not tabulated; ask for a larger epsilon, fewer repetitions, accountant 'pld' or bitsum 'rr'."
            )
        self._require_affordable_plane()
        flood = negative_binomial(self.flood_shape, self.flood_continue_probability, tail=TAIL_MASS)
        return [self._line(flood) if self.noise_shape == 1 else self._plane(flood)]

    def _line(self, flood: Pmf) -> Pair:
        """Shape k = 1: the atom {U > V}, and {U = u ≤ V} with P_0 = (1−p) a(u), P_1 = (1−p) p a(u−1)."""
        p = self.continue_probability
        stop = 1.0 - p
        (a,) = self._filtered(flood, 1, self._reach())
        require_time()
        return Pair(
            upper=np.concatenate([[1.0 / (1.0 + p)], stop * p * np.concatenate([[0.0], a[:-1]])]),
            lower=np.concatenate([[p / (1.0 + p)], stop * a]),
            missing=self._missing(flood),
        )

    def _require_affordable_plane(self) -> None:
        """Refuse a law in two dimensions that takes too much memory, before any part of it is tabulated."""
        k, flood_ends = self.noise_shape, self.flood_continue_probability
        if k == 1:
            return
        reach = self._reach()
        columns = len(negative_binomial_window(self.flood_shape, flood_ends, tail=TAIL_MASS)) + reach
        groups = len(_group_starts(columns, self._minimum_deviation()))
        entries = max(4 * (reach + 1) * groups, (2 * k - 1) * columns)
        if entries > LARGEST_TABLE:
            raise InfeasibleError(
                f"the law of 3nb with noise_shape > 1 would need {entries:,} entries here,"
                f" above the limit of {LARGEST_TABLE:,}; use noise_shape=1, or bitsum 'poisson' or 'rr'."
            )

    def _plane(self, flood: Pmf) -> Pair:
        """Integer k > 1: rows d = u − v, columns w = min(u, v) gathered in groups.

        For fixed d the loss increases with w (log-concave P_F, monotone likelihood ratio), and sums over w
        are linear in the a_j. So a group of consecutive w is replaced by two outcomes at its extreme
        losses that keep both laws' mass, which can only raise every hockey stick.
        """
        p, k = self.continue_probability, self.noise_shape
        reach = self._reach()
        a = np.stack(self._filtered(flood, 2 * k - 1, reach)[k - 1 :])
        starts = _group_starts(a.shape[1], self._minimum_deviation())
        previous = np.concatenate([np.zeros((k, 1)), a[:, :-1]], axis=1)
        front = 2 * k * math.log1p(-p)
        distances = np.arange(reach + 2.0)
        rows = _coefficients(distances, k) * np.exp(front + distances * math.log(p))[:, None]
        # u > v (d ≥ 1): f_1 = f_0 at distance d − 1, same w. u ≤ v: f_1 = f_0 at distance |d| + 1, minimum w − 1.
        above = _extremes(rows[:reach], a, rows[1 : reach + 1], a, starts)
        below = _extremes(rows[1 : reach + 2], previous, rows[: reach + 1], a, starts)
        return Pair(
            upper=np.concatenate([above[0], below[0]]),
            lower=np.concatenate([above[1], below[1]]),
            missing=self._missing(flood),
        )

    def _minimum_deviation(self) -> float:
        """Standard deviation of V = G2 + F: the scale on which the law varies along w."""
        flood = self.flood_continue_probability
        return math.sqrt(self.variance(self.n_users) / 2.0 + self.flood_shape * flood / (1.0 - flood) ** 2)

    def _reach(self) -> int:
        """The first integer above the window of G1 and of G2."""
        return negative_binomial_window(self.noise_shape, self.continue_probability, tail=TAIL_MASS).stop

    def _noise(self) -> Pmf:
        """Law of G1 and of G2."""
        return negative_binomial(self.noise_shape, self.continue_probability, tail=TAIL_MASS)

    def _missing(self, flood: Pmf) -> float:
        """What lies outside the tables needs F outside its window, or G1 or G2 (for b = 0 or 1) beyond theirs."""
        noise = self._noise()
        return flood.missing + 4.0 * (noise.missing + float(noise.values[-1]))

    def _filtered(self, flood: Pmf, count: int, tail: int) -> list[Array]:
        """a_1, …, a_count on F's window and `tail` more, where a_j(u) = p² a_j(u−1) + a_{j−1}(u) and a_0 = P_F."""
        p = self.continue_probability
        current: Array = np.concatenate([flood.values, np.zeros(tail)])
        filtered = []
        for _ in range(count):
            require_time()
            current = np.asarray(scipy.signal.lfilter([1.0], [1.0, -p * p], current))
            filtered.append(current)
        return filtered

    @property
    def evidence(self) -> Evidence:
        """Exact law of (U, V)."""
        how = "reduced to one dimension" if self.noise_shape == 1 else "tabulated in two dimensions"
        return computed(f"exact law of the two counts, {how}", "docs/proofs/three-negative-binomial.md")


SINGLE_COLUMNS = 64
GROUPS_PER_DEVIATION = 8


def _group_starts(columns: int, deviation: float) -> NDArray[np.int64]:
    """First columns of the groups: singles where the flood begins, then runs of a fraction of the deviation."""
    width = max(1, int(deviation / GROUPS_PER_DEVIATION))
    singles = np.arange(min(SINGLE_COLUMNS, columns))
    return np.concatenate([singles, np.arange(len(singles), columns, width)])


def _extremes(
    upper_rows: Array, upper_basis: Array, lower_rows: Array, lower_basis: Array, starts: NDArray[np.int64]
) -> tuple[Array, Array]:
    """Two outcomes per row and group, at the group's smallest and largest ratio, keeping both laws' mass."""
    require_time()
    last = np.append(starts[1:], lower_basis.shape[1]) - 1
    upper = np.maximum(upper_rows @ np.add.reduceat(upper_basis, starts, axis=1), 0.0)
    lower = np.maximum(lower_rows @ np.add.reduceat(lower_basis, starts, axis=1), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        smallest = (upper_rows @ upper_basis[:, starts]) / (lower_rows @ lower_basis[:, starts])
        largest = (upper_rows @ upper_basis[:, last]) / (lower_rows @ lower_basis[:, last])
        mean = upper / lower
        smallest = np.clip(np.nan_to_num(smallest), 0.0, mean)
        largest = np.maximum(largest, mean)
        share = np.where(largest > smallest, (mean - smallest) / (largest - smallest), 1.0)
        high_lower = lower * np.nan_to_num(share)
        high_upper = np.minimum(np.nan_to_num(high_lower * largest), upper)
    unbounded = np.isinf(largest)  # a vanishing lower law: all that exceeds the smallest ratio has infinite loss
    high_lower = np.where(unbounded, 0.0, high_lower)
    high_upper = np.where(unbounded, upper - lower * smallest, high_upper)
    return (
        np.concatenate([high_upper.ravel(), (upper - high_upper).ravel()]),
        np.concatenate([high_lower.ravel(), (lower - high_lower).ravel()]),
    )


def _continuation(variance_per_shape: float) -> float:
    """The p in (0, 1) with p/(1−p)² = v: p = 2v/(2v + 1 + sqrt(4v + 1))."""
    return 2.0 * variance_per_shape / (2.0 * variance_per_shape + 1.0 + math.sqrt(4.0 * variance_per_shape + 1.0))


def _coefficients(distances: Array, k: int) -> Array:
    """C(d−1−i, k−1−i) C(k−1+i, i) for each d, and i = 0, …, k−1; the first binomial is generalized.

    That is, d−1−i may be negative. Where d < k all products are small integers, and nothing is rounded.
    """
    columns = []
    for i in range(k):
        falling = np.ones(len(distances))
        for j in range(k - 1 - i):
            falling = falling * (distances - 1.0 - i - j)
        columns.append(falling / math.factorial(k - 1 - i) * math.comb(k - 1 + i, i))
    return np.stack(columns, axis=1)
