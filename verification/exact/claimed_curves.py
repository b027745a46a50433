"""A claimed privacy profile at many points, and how far the exact one may exceed it between them.

Points are drawn from the seed, one in each cell of a logarithmic grid, so no fixed list of points can be spared by a
false claim. Between two neighboring points both curves fall: at any ε of [a, b] the exact δ is at most that at a, and
the claimed one, if it falls at all, is at least that at b.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from verification.exact.shuffled_views import Array, ViewPair

FLOOR = 1e-6
"""Between points, claims are followed down to this δ."""
NO_CLAIM = (0.0, 1.0)
"""δ(0) ≤ 1, true of everything: the left end of a claimed profile, held against nothing."""
FINE = 1.1
"""Intervals are halved until the exact δ at the left end is at most this multiple of the claim at the right end."""


@dataclass(slots=True)
class Worst:
    """The largest ratio of an exact to a claimed δ so far, and where the claims were compared."""

    ratio: float = 0.0
    words: str = "nothing differs"
    tried: int = 0
    numbers: dict[str, float] = field(default_factory=dict)
    points: int = 0
    between: float = 0.0

    def see(self, ratio: float, words: str, *, attempts: int = 1, **numbers: float) -> None:
        """Record the closest of some attempts."""
        self.tried += attempts
        if ratio > self.ratio or math.isnan(ratio):
            self.ratio, self.words, self.numbers = ratio, words, numbers

    def cover(self, curve: Curve) -> None:
        """Record where a claimed profile was compared, after everything was held against it."""
        self.points += int(np.count_nonzero(~(curve.deltas >= 1.0)))
        self.between = max(self.between, curve.between())

    @property
    def covered(self) -> str:
        """In words, for the note of a finding."""
        return (
            f"compared at {self.points} points (ε, δ) of the claims, and by monotonicity between them: there the exact"
            f" δ is at most {self.between:.3g} times the claimed one or {FLOOR:g}, if claims fall with ε"
        )


@dataclass(slots=True)
class Curve:
    """Claimed points of one profile, δ(ε) ≤ δ, by increasing ε; and the largest exact δ seen at each ε."""

    epsilons: Array
    deltas: Array
    exact: Array

    @staticmethod
    def of(points: Iterable[tuple[float, float]]) -> Curve:
        """Before anything is held against them."""
        table = np.array(sorted(points), dtype=np.float64).reshape(-1, 2)
        return Curve(table[:, 0], table[:, 1], np.zeros(len(table)))

    def joined(self, other: Curve) -> Curve:
        """The points of both."""
        both = np.concatenate([[curve.epsilons, curve.deltas, curve.exact] for curve in (self, other)], axis=1)
        return Curve(*both[:, np.argsort(both[0], kind="stable")])

    def attack(self, pair: ViewPair, worst: Worst, where: object) -> None:
        """One pair of laws against all points: exact over claimed δ; for δ = 0 the largest loss over ε.

        Above 1 a claim is false. A loss above ε is a positive δ(ε), however small.
        """
        if not len(self.epsilons):
            return
        exact = pair.sticks(self.epsilons)
        self.exact = np.maximum(self.exact, exact)
        nothing = self.deltas <= 0.0
        claimed = ~nothing & ~(self.deltas >= 1.0)  # what is not a number is claimed, and does not hold
        ratios = np.divide(exact, self.deltas, out=np.zeros(len(exact)), where=claimed)
        if np.any(nothing):
            ratios[nothing] = pair.largest_loss() / np.maximum(self.epsilons[nothing], 1e-12)
        at = int(np.argmax(ratios))
        epsilon, delta = float(self.epsilons[at]), float(self.deltas[at])
        worst.see(
            float(ratios[at]),
            f"claimed δ({epsilon:.4g}) ≤ {delta:.3g}; the exact view at (record, replaced by, others) = {where} has"
            f" {ratios[at]:.4g} of that",
            attempts=int(np.count_nonzero(claimed | nothing)),
            epsilon=epsilon,
            delta=delta,
        )

    def between(self) -> float:
        """The smallest f such that, from the first to the last ε, the exact δ is at most f·max(claimed δ, `FLOOR`)."""
        return float(np.max(self._steps(), initial=0.0))

    def gaps(self) -> Array:
        """The middles of intervals that are wider than `FINE`, the widest first."""
        steps = self._steps()
        wide = np.flatnonzero((steps > FINE) & (np.diff(self.epsilons) > 1e-9))
        wide = wide[np.argsort(-steps[wide], kind="stable")]
        return np.asarray(0.5 * (self.epsilons[wide] + self.epsilons[wide + 1]))

    def _steps(self) -> Array:
        return self.exact[:-1] / np.maximum(self.deltas[1:], FLOOR)


def refined(
    claimed: Callable[[float], float], attack: Callable[[Curve], None], epsilons: Iterable[float], most: int
) -> Curve:
    """The claimed profile at these ε and, as long as there are fewer than `most`, in the middle of wide intervals."""
    curve, fresh = Curve.of(()), Curve.of((epsilon, claimed(epsilon)) for epsilon in epsilons)
    while len(fresh.epsilons):
        attack(fresh)
        curve = curve.joined(fresh)
        more = curve.gaps()[: max(0, most - len(curve.epsilons))]
        fresh = Curve.of((epsilon, claimed(epsilon)) for epsilon in more.tolist())
    return curve


def drawn_between(low: float, high: float, count: int, rng: np.random.Generator) -> list[float]:
    """One number from each of `count` cells between `low` and `high`, uniform in its logarithm."""
    cells = np.arange(count) + rng.random(count)
    return [low * (high / low) ** float(cell) for cell in cells / count]
