"""δ(ε) curves of the rungs at a plan's parameters, for pictures and reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from accounting.composition import LADDER
from accounting.composition.pld import composed_loss
from accounting.mechanisms import BitsumProtocol, Pure
from accounting.profile import composed_delta

if TYPE_CHECKING:
    from accounting.planning import Plan

Curve = list[tuple[float, float]]
_POINTS = 33


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
    if plan.ladder.get("pld"):
        curves["pld"] = _composed_curve(plan, protocol)
    return curves


def _composed_curve(plan: Plan, protocol: BitsumProtocol) -> Curve:
    centre = plan.ladder["pld"] or plan.request.epsilon
    epsilons = [centre * x for x in _spread(0.02, 1.6, _POINTS)]
    touched = plan.request.facts().touched.total
    at: Callable[[float], float] = protocol.delta
    if touched > 1:
        loss, blocks = composed_loss(protocol, touched, near_epsilon=None, delta=plan.request.delta, certified=True)
        at = lambda epsilon: composed_delta(loss, blocks, epsilon)  # noqa: E731
    return [(epsilon, at(epsilon)) for epsilon in epsilons]


def _spread(low: float, high: float, count: int) -> list[float]:
    return [low + (high - low) * i / (count - 1) for i in range(count)]
