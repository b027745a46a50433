"""From the laws of one instance to the profile of k of them, in ball arithmetic, rounded against the claim by theorems.

Source: docs/proofs/certificate.md, sections 2 and 3; docs/proofs/composition.md, Proposition 3.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from verification.certified.balls import ONE, ZERO, Ball, Balls, convolved, exact, total
from verification.certified.noise_laws import TwoLaws
from verification.certified.witness import Grid

LARGEST_BLOCK = 24
"""Instances inside which the worst data of the others is chosen again after each one."""
MOST_POINTS = 60_000
"""Points of a block's profile; blocks of long grids are shorter."""


@dataclass(frozen=True, slots=True)
class LossGrid:
    """The losses 0, h, 2h, …, n·h, and e^{i·h}."""

    step: float
    growth: tuple[Ball, ...]

    @staticmethod
    def of(grid: Grid) -> LossGrid:
        """The grid of a witness."""
        return LossGrid(grid.step, tuple((exact(grid.step) * i).exp() for i in range(grid.points + 1)))

    @property
    def n_steps(self) -> int:
        """N."""
        return len(self.growth) - 1

    def sticks(self, laws: TwoLaws) -> Balls:
        """H_{e^ε}(one‖zero) at every ε of the grid, for the pair that reveals which outcomes are not listed.

        Outcomes are collected between neighboring points of the grid, and count in every stick to their left. One that
        cannot be told from a point of the grid counts there, with its mass between what it is and what it would be.
        """
        n, ones, zeros = self.n_steps, [ZERO] * len(self.growth), [ZERO] * len(self.growth)
        for one, zero in zip(laws.one, laws.zero, strict=True):
            at, mass = self._place(one, zero)
            if at >= 0:
                ones[at] += mass
                zeros[at] += zero
        sticks, one, zero, missing = [ZERO] * (n + 1), ZERO, ZERO, laws.missing
        for i in range(n, -1, -1):
            one, zero = one + ones[i], zero + zeros[i]
            sticks[i] = one - self.growth[i] * zero + missing
        return sticks

    def between(self, sticks: Balls, gamma: Ball) -> Ball:
        """A bound on the stick at any γ ≥ 1: by the chord of the points on either side.

        Where they cannot be told, and beyond the last point: by an earlier point, whose stick is not smaller.
        """
        n, guess = self.n_steps, math.log(max(float(gamma), 1.0)) / self.step
        at = int(min(guess, n))
        while at > 0 and not gamma >= self.growth[at]:
            at -= 1
        if at == n or not self.growth[at] <= gamma <= self.growth[at + 1]:
            return sticks[at]
        share = (gamma - self.growth[at]) / (self.growth[at + 1] - self.growth[at])
        return sticks[at] + share * (sticks[at + 1] - sticks[at])

    def _place(self, one: Ball, zero: Ball) -> tuple[int, Ball]:
        """The last point whose e^ε is at most one/zero (−1 if there is none), and `one`, perhaps enlarged."""
        if one < zero:
            return -1, one
        n, above, below = len(self.growth) - 1, float(one), float(zero)
        guess = math.log(above / below) / self.step if above > 0.0 and below > 0.0 else n
        at = int(min(max(guess, -1.0), n))
        while at < n and not one <= self.growth[at + 1] * zero:
            at += 1
        while at >= 0 and not one >= self.growth[at] * zero:
            short = self.growth[at] * zero - one
            if not short > ZERO:  # not to be told from this point
                return at, one.union(one + short.abs_upper())
            at -= 1
        return at, one


@dataclass(frozen=True, slots=True)
class Table:
    """The profile of a pair at the points of a grid, and that of its reversal."""

    forward: Balls
    backward: Balls

    @staticmethod
    def of(laws: TwoLaws, grid: LossGrid) -> Table:
        """Both directions of one pair."""
        return Table(grid.sticks(laws), grid.sticks(laws.reversed()))

    def reversed(self) -> Table:
        """The table of the reversed pair."""
        return Table(self.backward, self.forward)

    def joined(self, other: Table) -> Table:
        """The pointwise supremum, which is the table of one pair that dominates both."""
        return Table(_largest([self.forward, other.forward]), _largest([self.backward, other.backward]))

    def moved(self, shift: Ball, grid: LossGrid, finer: LossGrid) -> Table:
        """((1 − t)Q + tP, Q) for the pair (P, Q) of this table on `grid`, at the points of another one.

        H_γ is t·H_{γ'}(P‖Q) with γ' = 1 + (γ − 1)/t and, reversed, tγκ·H_{1/κ}(Q‖P) with κ = 1 − (1 − 1/γ)/t, or 0
        where κ is not positive. Source: docs/proofs/geometric.md, Lemma 1.
        """
        forward, backward = [], []
        for gamma in finer.growth:
            forward.append(shift * grid.between(self.forward, ONE + (gamma - ONE) / shift))
            left = ONE - (ONE - ONE / gamma) / shift
            value = grid.between(self.backward, ONE / left) if left > ZERO else self.backward[-1]
            backward.append(shift * gamma * left.max(ZERO) * value)
        return Table(forward, backward)

    def certainly_below(self, other: Table) -> bool:
        """Whether `other` dominates this pair for certain."""
        return _all_below(self.forward, other.forward) and _all_below(self.backward, other.backward)


def symmetric(kinds: Sequence[Table]) -> Table:
    """One table that dominates all kinds in both directions."""
    both = _largest([side for kind in kinds for side in (kind.forward, kind.backward)])
    return Table(both, both)


def _all_below(lower: Balls, upper: Balls) -> bool:
    return all(x <= y for x, y in zip(lower, upper, strict=True))


def _largest(rows: Sequence[Balls]) -> Balls:
    largest = rows[0]
    for row in rows[1:]:
        largest = [x.max(y) for x, y in zip(largest, row, strict=True)]
    return largest


@dataclass(frozen=True, slots=True)
class Loss:
    """Masses of the upper law at the losses (first + i)·step, and `infinite` at infinite loss."""

    step: float
    first: int
    masses: Balls
    infinite: Ball

    @staticmethod
    def of(table: Table, step: float, growth: Sequence[Ball]) -> Loss:
        """Connect the dots: the pair whose profile is linear in e^ε between the points of the table.

        Its lower mass at a point is the change of slope there, its upper mass e^ε times that. At negative losses, upper
        and lower change places in the reversed table.
        """
        positive = [ratio * mass for ratio, mass in zip(growth[1:], _bends(table.forward, growth), strict=True)]
        negative = _bends(table.backward, growth)
        center = ONE - table.forward[-1] - total(positive) - total(negative)
        return Loss(step, -len(negative), [*negative[::-1], center, *positive], table.forward[-1])

    def times(self, other: Loss) -> Loss:
        """The loss of two independent instances on the same grid."""
        return Loss(
            self.step,
            self.first + other.first,
            convolved(self.masses, other.masses),
            ONE - (ONE - self.infinite) * (ONE - other.infinite),
        )

    def trimmed(self, spare: float) -> Loss:
        """Mass of up to `spare` at the upper end becomes infinite loss, as much at the lower end moves up."""
        top, infinite = len(self.masses), self.infinite
        budget = spare
        while top > 1 and (budget := budget - abs(float(self.masses[top - 1]))) > 0.0:
            top -= 1
            infinite += self.masses[top]
        bottom, moved, budget = 0, ZERO, spare
        while bottom < top - 1 and (budget := budget - abs(float(self.masses[bottom]))) > 0.0:
            moved += self.masses[bottom]
            bottom += 1
        masses = self.masses[bottom:top]
        masses[0] += moved
        return Loss(self.step, self.first + bottom, masses, infinite)

    def power(self, times: int, spare: float) -> Loss:
        """The loss of `times` instances; masses up to `spare` are trimmed after each product."""
        result: Loss | None = None
        square, left = self, times
        while True:
            if left & 1:
                result = square if result is None else result.times(square).trimmed(spare)
            left >>= 1
            if not left:
                assert result is not None
                return result
            square = square.times(square).trimmed(spare)

    def delta(self, epsilon: float) -> Ball:
        """E[(1 − e^{ε−L})₊]."""
        beyond = math.floor(Fraction(epsilon) / Fraction(self.step)) + 1  # the first loss above ε, exactly
        masses, losses = ZERO, ZERO
        for place in range(max(beyond, self.first), self.first + len(self.masses)):
            mass = self.masses[place - self.first]
            masses += mass
            losses += mass * (-exact(self.step) * place).exp()
        return self.infinite + masses - exact(epsilon).exp() * losses


def _bends(sticks: Balls, growth: Sequence[Ball]) -> Balls:
    """The lower masses at the points 1, …, n: how much the slope changes there."""
    slopes = [
        (here - ahead) / (right - left)
        for (here, ahead), (left, right) in zip(itertools.pairwise(sticks), itertools.pairwise(growth), strict=True)
    ]
    return [before - behind for before, behind in itertools.pairwise([*slopes, ZERO])]


def blocks(kinds: Sequence[Table], grid: LossGrid, most: int) -> list[Loss]:
    """The losses that dominate 1, 2, … instances, up to a block, the others' worst data being chosen after each one.

    φ_0(ε) = (1 − e^ε)₊ and φ_{j+1}(ε) = max_κ E_{L∼κ} φ_j(ε − L), κ over all kinds in both directions. φ_j is a profile
    that is symmetric, φ(−ε) = 1 − e^{−ε} + e^{−ε} φ(ε), so only ε ≥ 0 is kept. Source: Proposition 3d.
    """
    n, h = grid.n_steps, grid.step
    longest = max(1, min(most, LARGEST_BLOCK, MOST_POINTS // n))
    losses = [Loss.of(way, h, grid.growth) for kind in kinds for way in (kind, kind.reversed())]
    growth = tuple((exact(h) * i).exp() for i in range(longest * n + 1))
    found: list[Loss] = []
    phi: Balls = [ZERO]  # at 0, h, …, j·n·h; beyond, where only infinite losses count, the last value stays
    for _ in range(longest):
        rest = [*phi, *[phi[-1]] * (2 * n)]
        ahead = [*(ONE - (ONE - rest[i]) / growth[i] for i in range(n, 0, -1)), *rest]
        raised = [
            [loss.infinite + value for value in convolved(loss.masses, ahead)[2 * n : 3 * n + len(phi)]]
            for loss in losses
        ]
        phi = _largest(raised)
        found.append(Loss.of(Table(phi, phi), h, growth[: len(phi)]))
    return found


def composed(kinds: Sequence[Table], grid: LossGrid, times: int, spare: float) -> Loss:
    """The loss that dominates `times` instances: whole blocks, and a shorter one for the rest."""
    found = blocks(kinds, grid, times)
    whole, rest = divmod(times, len(found))
    result = found[-1].power(whole, spare)
    return result if not rest else result.times(found[rest - 1]).trimmed(spare)
