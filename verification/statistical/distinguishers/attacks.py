"""Attacks by their scores, and the finding that follows from them: refuted if one shows more than was promised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accounting import Guarantee
from verification.evidence import AttackBound, AttackBounds, Curve
from verification.statistical.distinguishers.epsilon_bounds import (
    POWER,
    EpsilonBound,
    Scores,
    detectable_factor,
    epsilon_lower_bound,
)
from verification.verdicts import CHECK_ALPHA, Finding, finding

DELTAS = (1e-2, 1e-3, 1e-4, 1e-6)
"""Further δ at which ε is bounded from below, for plots; no claim is held against these points."""

TARGET = "Target with full effort: half of the promised ε for the messages of 200 users, 16 instances, ε = 1."

UNIT = (
    "Smallest defect: how many times too small the standard deviation of all that hides the target must be, noise and"
    " others' roundings (scores taken as normal; the power is from simulations of such scores)"
)


def _curve(first: Scores, second: Scores, delta: float) -> Curve:
    """Points (ε_lower, δ), each valid by itself at level `CHECK_ALPHA`."""
    bounds = (epsilon_lower_bound(first, second, delta=other, alpha=CHECK_ALPHA) for other in sorted({*DELTAS, delta}))
    return tuple((bound.epsilon, bound.delta) for bound in bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Scores of an attack and the promise that it tries to refute."""

    what: str
    first: Scores
    second: Scores
    promise: Guarantee
    normal: bool = True
    """Whether the scores are sums of many terms, so that `detectable_factor` means something."""

    def bound(self, alpha: float) -> EpsilonBound:
        """The lower bound on ε at the promised δ."""
        return epsilon_lower_bound(self.first, self.second, delta=self.promise.delta, alpha=alpha)

    def detectable_factor(self, alpha: float) -> float | None:
        """How many times too small the noise must be to be refuted."""
        epsilon, delta = self.promise.epsilon, self.promise.delta
        return detectable_factor(self.first, self.second, epsilon=epsilon, delta=delta, alpha=alpha)


def attack_finding(claim: str, attacks: list[Attack], note: str) -> Finding:
    """The attack that comes closest to its promise, or exceeds it most; the level is shared by all of them."""
    alpha = CHECK_ALPHA / len(attacks)
    bounds = [attack.bound(alpha) for attack in attacks]
    shown = [
        AttackBound(name=attack.what, promise=attack.promise, epsilon=bound.epsilon)
        for attack, bound in zip(attacks, bounds, strict=True)
    ]
    worst = int(np.argmax([attack.reached for attack in shown]))
    closest, bound, attack = shown[worst], bounds[worst], attacks[worst]
    factors = [attack.detectable_factor(alpha) for attack in attacks if attack.normal]
    factor = min((value for value in factors if value is not None), default=None)
    promise = closest.promise
    return finding(
        claim,
        statistic=closest.epsilon,
        bound=promise.epsilon,
        found=f"{closest.name} shows ε ≥ {closest.epsilon:.4g} at δ = {promise.delta:g}; promised was"
        f" {promise.epsilon:.4g}",
        numbers={
            "delta": promise.delta,
            "likely": bound.likely,
            "unlikely": bound.unlikely,
            "threshold": bound.threshold,
        },
        alpha=CHECK_ALPHA,
        power=POWER if factor is not None else 0.0,
        smallest_detectable_defect=factor,
        note=f"{_tried(attacks, shown)}. Reached: {closest.reached:.0%} of the promised ε ({closest.name}). {TARGET}"
        f" {note} {UNIT}. Curve: (lower bound on ε, δ).",
        evidence=AttackBounds(
            attacks=tuple(shown), closest=closest, curve=_curve(attack.first, attack.second, promise.delta)
        ),
    )


def _tried(attacks: list[Attack], shown: list[AttackBound]) -> str:
    return "; ".join(
        f"{bound.name}: ε ≥ {bound.epsilon:.4g} of {bound.promise.epsilon:.4g} promised, {len(attack.first):,} views of"
        " each neighbor"
        for attack, bound in zip(attacks, shown, strict=True)
    )
