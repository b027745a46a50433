"""Laws of one instance at full size, in ball arithmetic, each from its definition.

Every law is listed on a window, chosen by ordinary arithmetic; what the window lacks is 1 minus the sum of what it
lists, so a badly chosen window costs tightness and nothing else. Source: docs/proofs/certificate.md, section 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from accounting.errors import InvalidInputError, require_integer
from verification.certified.balls import ONE, ZERO, Ball, Balls, NotCertifiedError, convolved, exact, total

MOST_MASSES = 2_000_000
MOST_SHAPES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Masses:
    """P(X = start + i) = values[i]; outside of this window X has the mass `missing`."""

    start: int
    values: Balls

    @property
    def missing(self) -> Ball:
        """The mass that is not listed."""
        return ONE - total(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLaws:
    """Output of one instance for the target's bit 1 (`one`) and 0 (`zero`), outcome by outcome, as far as it is listed.

    What is not listed has the mass `missing` in the law `one`, and that of the reversed pair in `zero`. Where it is
    listed that all draws lie in their windows, an outcome says so: who is told so learns no less than before, so upper
    bounds for what is listed hold for the true output.
    """

    one: Balls
    zero: Balls

    @property
    def missing(self) -> Ball:
        """The mass of `one` that is not listed."""
        return ONE - total(self.one)

    def reversed(self) -> TwoLaws:
        """The other direction."""
        return TwoLaws(one=self.zero, zero=self.one)

    def mixed(self, first: Ball, second: Ball) -> TwoLaws:
        """The output where the bit is 1 with probability `first`, or with probability `second`."""
        pairs = list(zip(self.one, self.zero, strict=True))
        one, zero = ([x * q + y * (ONE - q) for x, y in pairs] for q in (first, second))
        return TwoLaws(one=one, zero=zero)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossBounds:
    """Bounds on the largest loss of one instance, of a mechanism that spends no δ."""

    lower: float
    upper: float | None
    """None if nothing is certified."""
    notes: tuple[str, ...]


def _require_room(masses: int) -> None:
    """Raise if a law needs more memory and time than it may."""
    if masses > MOST_MASSES:
        raise NotCertifiedError(f"a law needs more than {MOST_MASSES:,} masses")


def _window(
    mode: int, at_mode: Ball, ratio: Callable[[int], Ball], *, low: int, high: int | None, tail: float
) -> Masses:
    """Masses around the mode by P(k+1) = P(k)·ratio(k), out to where a geometric tail is below `tail`."""

    def outwards(step: int) -> Balls:
        masses: Balls = []
        mass, k = at_mode, mode
        while k != (low if step < 0 else high):
            factor = ratio(k) if step > 0 else ONE / ratio(k - 1)
            mass, k = mass * factor, k + step
            masses.append(mass)
            size, shrink = float(mass), float(factor)
            if shrink < 1.0 and size * shrink <= tail * (1.0 - shrink):
                break
            _require_room(len(masses))
        return masses

    down, up = outwards(-1), outwards(1)
    return Masses(start=mode - len(down), values=[*down[::-1], at_mode, *up])


def binomial(trials: int, probability: Ball, tail: float) -> Masses:
    """Bin(trials, probability), 0 < probability < 1."""
    if trials == 0:
        return Masses(start=0, values=[ONE])
    mode = min(trials, int((trials + 1) * float(probability)))
    p, other = probability, ONE - probability
    logs = exact(trials + 1).lgamma() - exact(mode + 1).lgamma() - exact(trials - mode + 1).lgamma()
    at_mode, odds = (logs + mode * p.log() + (trials - mode) * other.log()).exp(), p / other
    return _window(mode, at_mode, lambda k: odds * (trials - k) / (k + 1), low=0, high=trials, tail=tail)


def poisson(mean: Ball, tail: float) -> Masses:
    """Poisson(mean)."""
    mode = int(float(mean))
    at_mode = (mode * mean.log() - mean - exact(mode + 1).lgamma()).exp()
    return _window(mode, at_mode, lambda k: mean / (k + 1), low=0, high=None, tail=tail)


def negative_binomial(shape: Ball, p: Ball, tail: float) -> Masses:
    """C(k+r−1, k)(1−p)^r p^k: NB(r, p), p the probability to continue."""
    mode = max(0, int((float(shape) - 1.0) * float(p) / (1.0 - float(p))))
    logs = (shape + mode).lgamma() - shape.lgamma() - exact(mode + 1).lgamma()
    at_mode = (logs + shape * (ONE - p).log() + mode * p.log()).exp()
    return _window(mode, at_mode, lambda k: (shape + k) * p / (k + 1), low=0, high=None, tail=tail)


def _require_probability(name: str, p: Ball) -> None:
    """Raise `InvalidInputError` unless 0 < p < 1 for certain."""
    if not ZERO < p < ONE:
        raise InvalidInputError(f"{name}={float(p)!r} must lie strictly between 0 and 1; plan again.")


def shifted(noise: Masses) -> TwoLaws:
    """(1 + X, X): a bit hidden by one count of noise."""
    return TwoLaws(one=[ZERO, *noise.values], zero=[*noise.values, ZERO])


def response(n_users: int, flip: Ball, ones: int, dropped: int, tail: float) -> TwoLaws:
    """Randomized response with `ones` of the others at 1 after `dropped` others' reports were given away."""
    _require_probability("flip_probability", flip)
    flipped, kept = (binomial(n, flip, tail).values for n in (n_users - 1 - dropped - ones, ones))
    keep = ONE - flip
    pairs = list(itertools.pairwise([ZERO, *convolved(flipped, kept[::-1]), ZERO]))
    return TwoLaws(
        one=[flip * stay + keep * move for move, stay in pairs],
        zero=[keep * stay + flip * move for move, stay in pairs],
    )


def three_negative_binomials(
    noise_shape: int, p: Ball, flood: Masses, tail: float, *, downwards: bool = False
) -> TwoLaws:
    """(U, V) = (b + G₁ + F, G₂ + F) with G₁, G₂ ~ NB(k, p): what tells b = 1 from b = 0.

    Given w = min(u, v) and d = |u − v|, f_0 = (1−p)^{2k} p^d Σ_i c_i(d) a_{k+i}(w), where a_j(w) = p² a_j(w−1) +
    a_{j−1}(w), a_0 = P_F and c_i(d) = C(d−1−i, k−1−i) C(k−1+i, i); and f_1(u, v) = f_0(u − 1, v).
    For k = 1 all outcomes with u > v have one likelihood ratio, and so have those with equal u ≤ v. For k > 1 outcomes
    are gathered in groups: the result dominates the pair if the flood is log-concave, or is dominated (`downwards`).
    Source: docs/proofs/certificate.md, section 1, and docs/proofs/three-negative-binomial.md.
    """
    require_integer("noise_shape", noise_shape, low=1, high=MOST_SHAPES)
    _require_probability("continue_probability", p)
    square, current = p * p, list(flood.values)
    more = math.ceil(math.log(tail) / (2.0 * math.log(float(p)))) + 2
    _require_room((len(current) + more) * (2 * noise_shape - 1))
    current += [ZERO] * more
    filtered = []
    for _ in range(2 * noise_shape - 1):
        last, raised = ZERO, []
        for value in current:
            last = square * last + value
            raised.append(last)
        current = raised
        filtered.append(raised)
    if noise_shape == 1:
        a, happens = filtered[0], total(flood.values)
        stop = ONE - p
        zero = [stop * value for value in a]
        return TwoLaws(
            one=[happens / (ONE + p), *(p * stop * value for value in [ZERO, *a[:-1]])],
            zero=[happens * p / (ONE + p), *zero],
        )
    return _plane(noise_shape, p, filtered[noise_shape - 1 :], tail, downwards)


SINGLES, GROUPS_PER_DEVIATION = 64, 8
"""How many of the first w are looked at one by one, and in how many groups a standard deviation of w is divided."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """a_k, …, a_{2k−1} by w, and their sums over groups of w that begin at `starts`."""

    starts: tuple[int, ...]
    values: list[Balls]
    sums: list[Balls]

    @staticmethod
    def of(values: list[Balls], starts: tuple[int, ...]) -> _Columns:
        """Sums of the groups."""
        return _Columns(starts, values, [[total(row[a:b]) for a, b in itertools.pairwise(starts)] for row in values])

    def shifted(self) -> _Columns:
        """The same at w − 1."""
        return _Columns.of([[ZERO, *row[:-1]] for row in self.values], self.starts)

    def group(self, row: Balls, number: int) -> Ball:
        """Σ c_i a_{k+i}, summed over a group."""
        return total([x * column[number] for x, column in zip(row, self.sums, strict=True)])

    def at(self, row: Balls, w: int) -> Ball:
        """Σ c_i a_{k+i}(w)."""
        return total([x * column[w] for x, column in zip(row, self.values, strict=True)])


def _plane(k: int, p: Ball, filtered: list[Balls], tail: float, downwards: bool) -> TwoLaws:
    """Integer k > 1. For fixed d the likelihood ratio grows with w, so groups of w are bounded by their ends."""
    columns = _Columns.of(filtered, _group_starts([float(value) for value in filtered[0]]))
    before, front, laws = columns.shifted(), (ONE - p) ** (2 * k), TwoLaws(one=[], zero=[])
    reach = len(negative_binomial(exact(k), p, tail).values) + 1
    _require_room((reach + 2) * 2 * len(columns.starts))
    rows = [[front * p**d * c for c in _coefficients(d, k)] for d in range(reach + 2)]
    for d in range(reach + 1):
        if d:  # u > v
            _add_groups(laws, rows[d - 1], columns, rows[d], columns, downwards=downwards)
        _add_groups(laws, rows[d + 1], before, rows[d], columns, downwards=downwards)  # u ≤ v
    return laws


def _group_starts(weights: list[float]) -> tuple[int, ...]:
    """Where groups of w begin, and where the last one ends: single w at first, then parts of a deviation."""
    whole, length = sum(weights), len(weights)
    mean = sum(i * x for i, x in enumerate(weights)) / whole
    deviation = math.sqrt(sum((i - mean) ** 2 * x for i, x in enumerate(weights)) / whole)
    singles = min(SINGLES, length)
    return (*range(singles), *range(singles, length, max(1, int(deviation / GROUPS_PER_DEVIATION))), length)


def _coefficients(d: int, k: int) -> list[int]:
    """C(d−1−i, k−1−i) C(k−1+i, i) for i < k; the first binomial also for negative d−1−i."""
    return [
        math.prod(d - 1 - i - j for j in range(k - 1 - i)) // math.factorial(k - 1 - i) * math.comb(k - 1 + i, i)
        for i in range(k)
    ]


def _add_groups(
    laws: TwoLaws, upper: Balls, of_one: _Columns, lower: Balls, of_zero: _Columns, *, downwards: bool
) -> None:
    """Two outcomes for each group, of its smallest and largest likelihood ratio, which keep the masses of both laws.

    Where it is not certain that the ratio grows, the group is not one. Downwards one outcome, the group itself.
    """
    for group, (first, stop) in enumerate(itertools.pairwise(of_one.starts)):
        one, zero = of_one.group(upper, group), of_zero.group(lower, group)
        if stop - first > 1 and not downwards:
            smallest, largest = (of_one.at(upper, w) / of_zero.at(lower, w) for w in (first, stop - 1))
            if not smallest < largest:
                _require_room(len(laws.one) + stop - first)
                laws.one.extend(of_one.at(upper, w) for w in range(first, stop))
                laws.zero.extend(of_zero.at(lower, w) for w in range(first, stop))
                continue
            share = (one - smallest * zero) / (largest - smallest)
            laws.one.append(largest * share)
            laws.zero.append(share)
            one, zero = one - largest * share, zero - share
        laws.one.append(one)
        laws.zero.append(zero)
