"""Attacks by their scores, and the finding that follows from them: refuted if one shows more than was promised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verification.distinguishers.epsilon_bounds import (
    POWER,
    EpsilonBound,
    Scores,
    detectable_factor,
    epsilon_lower_bound,
)
from verification.verdicts import CHECK_ALPHA, Finding, Layer, finding

CURVE = (1e-2, 1e-3, 1e-4, 1e-6)
"""Further δ at which ε is bounded from below, for plots; no claim is held against these points."""

TARGET = "Target with full effort: half of the promised ε for the messages of 200 users, 16 instances, ε = 1."

UNIT = (
    "Smallest defect: how many times too small the standard deviation of all that hides the target must be, noise and"
    " others' roundings (scores taken as normal; the power is from simulations of such scores)"
)


def _curve(first: Scores, second: Scores, delta: float) -> tuple[tuple[float, float], ...]:
    """Points (ε_lower, δ), each valid by itself at level `CHECK_ALPHA`."""
    bounds = (epsilon_lower_bound(first, second, delta=one, alpha=CHECK_ALPHA) for one in sorted({*CURVE, delta}))
    return tuple((bound.epsilon, bound.delta) for bound in bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Scores of an attack and the promise that it tries to refute."""

    what: str
    first: Scores
    second: Scores
    epsilon: float
    delta: float
    normal: bool = True
    """Whether the scores are sums of many terms, so that `detectable_factor` means something."""

    def bound(self, alpha: float) -> EpsilonBound:
        """The lower bound on ε at the promised δ."""
        return epsilon_lower_bound(self.first, self.second, delta=self.delta, alpha=alpha)

    def detectable_factor(self, alpha: float) -> float | None:
        """How many times too small the noise must be to be refuted."""
        return detectable_factor(self.first, self.second, epsilon=self.epsilon, delta=self.delta, alpha=alpha)


def attack_finding(check: str, claim: str, attacks: list[Attack], seed: int, note: str) -> Finding:
    """The attack that comes closest to its promise, or exceeds it most; the level is shared by all of them."""
    alpha = CHECK_ALPHA / len(attacks)
    bounds = [attack.bound(alpha) for attack in attacks]
    worst = int(np.argmax([bound.epsilon / attack.epsilon for bound, attack in zip(bounds, attacks, strict=True)]))
    bound, attack = bounds[worst], attacks[worst]
    first, second = attack.first, attack.second
    factors = [one.detectable_factor(alpha) for one in attacks if one.normal]
    factor = min((one for one in factors if one is not None), default=None)
    tried = "; ".join(
        f"{one.what}: ε ≥ {found.epsilon:.4g} of {one.epsilon:.4g} promised, {len(one.first):,} views of each neighbor"
        for one, found in zip(attacks, bounds, strict=True)
    )
    return finding(
        check,
        Layer.STATISTICAL,
        claim,
        statistic=bound.epsilon,
        bound=attack.epsilon,
        found=f"{attack.what} shows ε ≥ {bound.epsilon:.4g} at δ = {attack.delta:g}; promised was {attack.epsilon:.4g}",
        numbers={
            "delta": attack.delta,
            "likely": bound.likely,
            "unlikely": bound.unlikely,
            "threshold": bound.threshold,
        },
        alpha=CHECK_ALPHA,
        power=POWER if factor is not None else 0.0,
        smallest_detectable_defect=factor,
        seed=seed,
        note=f"{tried}. Reached: {bound.epsilon / attack.epsilon:.0%} of the promised ε ({attack.what}). {TARGET}"
        f" {note} {UNIT}. Curve: (lower bound on ε, δ).",
        curve=_curve(first, second, attack.delta),
    )
