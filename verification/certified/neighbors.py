"""How far one user can move the bits of all instances: counted anew from the kernel, for the certificate.

Source: docs/proofs/certificate.md, section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting import Plan

NORM = 1.0001
"""Norms are held to 1 in single precision; the promise is for vectors up to this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbors:
    """What replacing one record can do to the laws of all bits."""

    instances: int
    """Instances whose bit may move at all (k)."""
    flips: int
    """Bits that certainly can flip completely, with all others at the same value."""
    half_flips: int = 0
    """If positive: bits that move between certainty and a fair coin, used instead of `flips`."""
    squared_shift: float | None = None
    """Δ², if the plan's rung accounts for it; None if every bit may flip."""
    largest_shift: float = 1.0
    unit_ball: bool = False
    """Whether the plan counts on the roundings of the others, whose vectors lie in the unit ball."""
    notes: tuple[str, ...] = ()


def neighbors(plan: Plan) -> Neighbors:
    """For rungs that compose k complete flips: those. For `geometric`: Δ², and flips that some record attains."""
    request = plan.request
    moving = _features(plan)
    touched = 2 * moving if request.kernel in ("laplacian", "exponential") else moving
    if request.joint:
        touched = 2 * moving + 2
    if plan.accountant != "geometric":
        notes = (
            f"the rung {plan.accountant!r} claims to cover {touched} bits that flip; the lower bound is for those",
        )
        return Neighbors(instances=touched, flips=touched, notes=notes)
    shift, largest = _squared_shift(plan, moving)
    flips, half_flips = _attained(plan, moving)
    certain = request.kernel != "gaussian" or moving <= request.dim
    who = "which two records attain" if certain else "which the rung covers and records may not attain"
    what = f"{half_flips} bits that move by one half" if half_flips else f"{flips} complete flips"
    return Neighbors(
        instances=touched,
        flips=flips,
        half_flips=half_flips,
        squared_shift=shift,
        largest_shift=largest,
        unit_ball=request.kernel == "inner-product" and not request.joint and (request.rounding_bound or 1.0) >= 1.0,
        notes=(f"lower bound: {what}, {who}; squared shifts add up to at most {shift:.4g}",),
    )


def _features(plan: Plan) -> int:
    """Non-zero coordinates of f(x), over all repetitions."""
    request = plan.request
    return request.dim if request.kernel == "inner-product" or request.repetitions is None else request.repetitions


def _squared_shift(plan: Plan, moving: int) -> tuple[float, float]:
    """(Δ², T). Random signs: what the plan declares and clients enforce. Sizes of joint classes: their weight."""
    request = plan.request
    facts = request.facts()
    largest = 0.5 if request.kernel in ("laplacian", "exponential") else 1.0
    if request.kernel == "inner-product":
        shift = (NORM / (request.rounding_bound or 1.0)) ** 2
    elif request.kernel == "inner-product-signs":
        root = 1.0 + math.sqrt(moving / request.dim)
        shift = (1.0 + min(request.dim, moving) ** (-1.0 / 3.0)) * NORM**2 * root**2
    elif request.kernel == "gaussian":
        shift = float(moving)
    else:
        shift = moving / 2.0
    shift = min(shift, moving * (2.0 if largest < 1.0 else 1.0) * largest**2)
    if request.joint:
        apart = shift / 2.0 if request.kernel.startswith("inner-product") else moving / 2.0
        shift = max(shift, apart + 2.0 * facts.size_weight**2)
        largest = max(largest, 0.5)
    return shift, largest


def _attained(plan: Plan, moving: int) -> tuple[int, int]:
    """(flips, half flips) that two records attain while all other records equal one of them."""
    request = plan.request
    if request.kernel == "inner-product":  # R in each of ⌊1/R²⌋ coordinates has norm at most 1
        bound = request.rounding_bound or 1.0
        return max(1, min(moving, math.floor(1.0 / bound**2 + 1e-12))), 0
    if request.kernel == "inner-product-signs":  # x = ±σ_1/√d
        return 1, 0
    if request.kernel == "gaussian":
        return moving, 0
    return 0, moving
