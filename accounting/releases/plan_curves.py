"""Curves at a plan's parameters: of every rung, for pictures, and of what is promised, to compose with others."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from accounting.composition import LADDER, Basic, PrivacyLossComposition
from accounting.composition.rung import Curve, spread
from accounting.mechanisms import LabelResponse
from accounting.releases.cut_curve import CutCurve

if TYPE_CHECKING:
    from accounting.plan import Plan

__all__ = ["Curve", "cut_curves", "implied_curve", "label_curve", "profile_curves", "promised_curve"]

FINE_POINTS = 120
STRIDE = 1.05
SMALLEST_SHARE = 1e-6
"""Promised profiles go down to this share of δ; what is left counts as infinite loss."""


def profile_curves(plan: Plan) -> dict[str, Curve]:
    """For each rung that applies, points (ε, δ) with δ from 1e-2 down to a hundredth of the promised δ."""
    protocol, facts = plan.protocol(), plan.request.facts()
    if not protocol.spends_delta:
        epsilon = float(plan.guarantees[0].epsilon)
        return {Basic.name: [(epsilon, 1e-12), (epsilon, 1.0)]}
    curves: dict[str, Curve] = {}
    for name, rung in LADDER.items():
        curve = rung.curve(protocol, rung.touched(facts), plan.request.delta, proved=plan.ladder.get(name))
        if curve:
            curves[name] = curve
    return curves


def promised_curve(plan: Plan) -> Curve:
    """Upper bounds (ε, δ) on the profile of the plan's features, from ε = 0 to where δ is negligible.

    By the plan's accountant if it has a profile, else by `pld`, whose profile is below what the other rungs claim;
    the promised (ε, δ) is one of the points, and with it all that it implies. The points are not sorted.
    """
    protocol, epsilon, delta = plan.protocol(), plan.request.kde_epsilon, float(plan.request.delta)
    if not protocol.spends_delta:
        return implied_curve(epsilon, 0.0)
    rung, touched = LADDER[plan.accountant], plan.request.facts().touched
    at = rung.profile(protocol, touched, near_epsilon=epsilon, delta=delta)
    if at is None:
        at = PrivacyLossComposition().profile(protocol, touched, near_epsilon=epsilon, delta=delta)
    at = lru_cache(maxsize=None)(at)  # two neighbors are compared at a time
    end = epsilon
    while at(end) > SMALLEST_SHARE * delta and at(STRIDE * end) < at(end) / STRIDE:  # below: mass at infinite loss
        end *= STRIDE
    return [*implied_curve(epsilon, delta), *((x, at(x)) for x in spread(0.0, end, FINE_POINTS))]


def cut_curves(plan: Plan) -> tuple[CutCurve, ...]:
    """Cut curves of the plan's features, if its accountant bounds moments; most useful first."""
    protocol = plan.protocol()
    if not protocol.spends_delta:
        return ()
    rung, delta = LADDER[plan.accountant], float(plan.request.delta)
    curves = rung.cut_curves(protocol, plan.request.facts().touched, delta)
    return tuple(CutCurve(cut=cut, points=tuple(points)) for cut, points in curves)


def implied_curve(epsilon: float, delta: float) -> Curve:
    """All that (ε, δ) alone implies: δ' = δ + (1 − δ)(e^ε − e^ε')/(e^ε + 1) for ε' below ε, a line in e^ε'."""
    return [(0.0, delta + (1.0 - delta) * math.tanh(epsilon / 2.0)), (epsilon, delta)]


def label_curve(label: LabelResponse) -> Curve:
    """The exact profile of the label's response: linear in e^ε up to ε_lbl."""
    return [(0.0, label.delta(0.0)), (label.label_epsilon, 0.0)]
