"""Attacks by their scores, and the finding that follows from them: refuted if one shows more than was promised."""

from __future__ import annotations

import math
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """Scores of an attack and the promise that it tries to refute."""

    what: str
    first: Scores
    second: Scores
    promise: Guarantee
    normal: bool = True
    """Whether the scores are sums of many terms, so that `detectable_factor` means something."""

    def bound(self, alpha: float, delta: float | None = None) -> EpsilonBound:
        """The lower bound on ε at the promised δ, or at another."""
        at = self.promise.delta if delta is None else delta
        return epsilon_lower_bound(self.first, self.second, delta=at, alpha=alpha)

    def detectable_factor(self, alpha: float) -> float | None:
        """How many times too small the noise must be to be refuted."""
        epsilon, delta = self.promise.epsilon, self.promise.delta
        return detectable_factor(self.first, self.second, epsilon=epsilon, delta=delta, alpha=alpha)

    def curve(self) -> Curve:
        """Points (ε_lower, δ), each valid by itself at level `CHECK_ALPHA`."""
        deltas = sorted({*DELTAS, self.promise.delta})
        return tuple((self.bound(CHECK_ALPHA, delta).epsilon, delta) for delta in deltas)


def attack_finding(claim: str, attacks: list[Attack], note: str) -> Finding:
    """The attack that comes closest to its promise, or exceeds it most; the level is shared by all of them."""
    alpha = CHECK_ALPHA / len(attacks)
    shown = [
        AttackBound(name=attack.what, promise=attack.promise, epsilon=attack.bound(alpha).epsilon) for attack in attacks
    ]
    worst = int(np.argmax([attack.reached for attack in shown]))
    closest, bound = shown[worst], attacks[worst].bound(alpha)
    promise = closest.promise
    factors = [attack.detectable_factor(alpha) for attack in attacks if attack.normal]
    tried = "; ".join(
        f"{each.name}: ε ≥ {each.epsilon:.4g} of {each.promise.epsilon:.4g} promised, {len(attack.first):,} views of"
        " each neighbor"
        for attack, each in zip(attacks, shown, strict=True)
    )
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
        power=POWER,
        smallest_detectable_defect=min((factor for factor in factors if factor is not None), default=math.inf),
        note=f"{tried}. Reached: {closest.reached:.0%} of the promised ε ({closest.name}). {TARGET}"
        f" {note} {UNIT}. Curve: (lower bound on ε, δ).",
        evidence=AttackBounds(attacks=tuple(shown), closest=closest, curve=attacks[worst].curve()),
    )
