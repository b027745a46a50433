"""δ(ε) curves at a plan's parameters: of every rung, for pictures, and of what is promised, to compose with others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from accounting.composition import LADDER, Geometric
from accounting.composition.geometric import GeometricBound
from accounting.composition.pld import composed_loss
from accounting.losses import Repeated
from accounting.mechanisms import BitsumProtocol, LabelResponse, Pure

if TYPE_CHECKING:
    from accounting.planning import Plan

Curve = list[tuple[float, float]]
_POINTS = 33
FINE_POINTS = 240
TILTS = 8
STRIDE = 1.05
SMALLEST_SHARE = 1e-6
"""Promised profiles go down to this share of δ; what is left counts as infinite loss."""


def profile_curves(plan: Plan) -> dict[str, Curve]:
    """For each rung that applies, points (ε, δ) with δ from 1e-2 down to a hundredth of the promised δ.

    `pld` is traced by evaluating δ at given ε, the others by solving for ε at given δ.
    """
    protocol = plan.protocol()
    if protocol.name == Pure.name:
        return {"basic": [(float(plan.guarantees[0].epsilon), 1e-12), (float(plan.guarantees[0].epsilon), 1.0)]}
    deltas = [10.0**x for x in _spread(math.log10(plan.request.delta) - 2.0, -2.0, 9)]
    facts = plan.request.facts()
    curves: dict[str, Curve] = {}
    for name, rung in LADDER.items():
        if name == "pld" or (name == "geometric" and not plan.ladder.get(name)):
            continue
        touched = facts.paper_touched if name == "paper" else facts.touched
        points = [(rung.achieved_epsilon(protocol, touched, delta), delta) for delta in deltas]
        curve = [(epsilon, delta) for epsilon, delta in points if epsilon is not None and math.isfinite(epsilon)]
        if curve:
            curves[name] = curve
    centre = plan.ladder.get("pld")
    if centre:
        at = _composed_delta(plan, protocol, centre)
        curves["pld"] = [(epsilon, at(epsilon)) for epsilon in (centre * x for x in _spread(0.02, 1.6, _POINTS))]
    return curves


def promised_curve(plan: Plan) -> Curve:
    """Upper bounds (ε, δ) on the profile of the plan's features, from ε = 0 to where δ is negligible.

    By `geometric` if that is the plan's accountant, else by `pld`, whose profile is below what the other rungs claim;
    the promised (ε, δ) is one of the points, and with it all that it implies. Points come in no order.
    """
    protocol, epsilon, delta = plan.protocol(), float(plan.request.epsilon), float(plan.request.delta)
    if protocol.name == Pure.name:
        return implied_curve(epsilon, 0.0)
    at = (
        _geometric_delta(plan, protocol)
        if plan.accountant == Geometric.name
        else _composed_delta(plan, protocol, epsilon)
    )
    end = epsilon
    while at(end) > SMALLEST_SHARE * delta and at(STRIDE * end) < at(end) / STRIDE:  # below: mass at infinite loss
        end *= STRIDE
    return [*implied_curve(epsilon, delta), *((x, at(x)) for x in _spread(0.0, end, FINE_POINTS))]


def implied_curve(epsilon: float, delta: float) -> Curve:
    """All that (ε, δ) alone implies: δ' = δ + (1 − δ)(e^ε − e^ε')/(e^ε + 1) for ε' below ε, a line in e^ε'."""
    return [(0.0, delta + (1.0 - delta) * math.tanh(epsilon / 2.0)), (epsilon, delta)]


def label_curve(label: LabelResponse) -> Curve:
    """The exact profile of the label's response: linear in e^ε up to ε_lbl."""
    return [(0.0, label.delta(0.0)), (label.label_epsilon, 0.0)]


def _geometric_delta(plan: Plan, protocol: BitsumProtocol) -> Callable[[float], float]:
    touched = plan.request.facts().touched
    return GeometricBound.of(protocol, touched, float(plan.request.delta), certified=True).delta


def _composed_delta(plan: Plan, protocol: BitsumProtocol, centre: float) -> Callable[[float], float]:
    """δ(ε) by `pld`: one composition for each of several tilts, of which the best counts for each ε."""
    touched = plan.request.facts().touched.total
    if touched == 1:
        return protocol.delta
    loss, blocks = composed_loss(protocol, touched, near_epsilon=None, delta=plan.request.delta, certified=True)
    whole = Repeated([(loss, blocks)])
    composed = [whole.compose(centre * x) for x in _spread(0.1, 2.5, TILTS)]
    return lambda epsilon: min(one.delta(epsilon) for one in composed)


def _spread(low: float, high: float, count: int) -> list[float]:
    return [low + (high - low) * i / (count - 1) for i in range(count)]
