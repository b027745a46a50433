"""How far one user can move the bits of all instances: counted anew from the kernel, for the certificate.

Two things are told apart: what the plan's rung *covers*, that is, what its proof claims to hold for, and what two
records *attain*, which is no more and often much less. Source: docs/proofs/certificate.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from accounting import Contract, InvalidInputError, Plan

NORM = 1.0001
"""Norms are held to 1 in single precision; the promise is for vectors up to this."""
HASHED = ("laplacian", "exponential")


@dataclass(frozen=True, slots=True)
class Moves:
    """Bits of one user that move together: each from 0 to 1 or, if `half`, between a certain 1 and a fair coin."""

    bits: int
    half: bool = False

    def __str__(self) -> str:
        if self.bits == 1:
            return "one bit that moves by one half" if self.half else "one complete flip"
        return f"{self.bits} bits that move by one half" if self.half else f"{self.bits} complete flips"


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbors:
    """What replacing one record can do to the laws of all bits."""

    instances: int
    """Instances whose bit may move at all (k)."""
    covered: Moves
    """What the plan's rung claims to cover, whatever the others hold. Records need not be able to do this."""
    attained: Moves
    """What two records attain, under some draw of the public randomness, while all others equal one of them."""
    squared_shift: float | None = None
    """Δ², if the plan's rung accounts for it; None if every bit may flip."""
    largest_shift: float = 1.0
    unit_ball: bool = False
    """Whether the plan counts on the roundings of the others, whose vectors lie in the unit ball."""


def neighbors(plan: Plan) -> Neighbors:
    """Rungs other than `geometric` cover k complete flips; it covers all shifts t ≤ T with Σt² ≤ Δ².

    Where the rung counts on the others' roundings as well, it speaks of records only: what they attain is used.
    """
    request = plan.request
    moving = _features(plan)
    touched = 2 * moving if request.kernel in HASHED else moving
    if request.joint:
        touched = 2 * moving + 2
    attained = _attained(plan, moving)
    if plan.accountant != "geometric":
        return Neighbors(instances=touched, covered=Moves(touched), attained=attained)
    shift, largest = _squared_shift(plan, moving)
    ball = request.kernel == "inner-product" and not request.joint and _bound(plan) >= 1.0
    fitting = Moves(min(touched, math.floor(shift / largest**2)), half=largest < 1.0)
    return Neighbors(
        instances=touched,
        covered=attained if ball else fitting,
        attained=attained,
        squared_shift=shift,
        largest_shift=largest,
        unit_ball=ball,
    )


def _features(plan: Plan) -> int:
    """Non-zero coordinates of f(x), over all repetitions."""
    request = plan.request
    return request.dim if request.kernel == "inner-product" or request.repetitions is None else request.repetitions


def _squared_shift(plan: Plan, moving: int) -> tuple[float, float]:
    """(Δ², T). Random signs: the Δ² that the contract declares. Sizes of joint classes: the weight it declares."""
    request = plan.request
    largest = 0.5 if request.kernel in HASHED else 1.0
    if request.kernel == "inner-product":
        shift = (NORM / _bound(plan)) ** 2
    elif request.kernel == "inner-product-signs":
        shift = min(declared(plan.contract, "squared_shift"), float(moving))
    else:
        shift = moving * 2.0 * 0.25 if request.kernel in HASHED else float(moving)
    if request.joint:
        apart = shift / 2.0 if request.kernel.startswith("inner-product") else moving / 2.0
        shift = max(shift, apart + 2.0 * declared(plan.contract, "size_weight") ** 2)
    return shift, largest


def _attained(plan: Plan, moving: int) -> Moves:
    """Of the bits that two records move, those that they move by as much as any record can."""
    kernel, dim = plan.request.kernel, plan.request.dim
    if kernel == "inner-product":  # ±R in each of ⌊1/R²⌋ coordinates has norm at most 1
        return Moves(min(moving, math.floor(1.0 / _bound(plan) ** 2 + 1e-12)))
    if kernel == "inner-product-signs":  # x = ±σ_1/√d
        return Moves(1)
    if kernel == "gaussian":  # as many phases as there are dimensions can be chosen freely
        return Moves(min(moving, dim))
    return Moves(moving, half=True)  # the bucket of x′ in each repetition, if x falls into another


def _bound(plan: Plan) -> float:
    """R of identity features, as the contract declares it."""
    bound = declared(plan.contract, "bound")
    if not 0.0 < bound <= 1.0:
        raise InvalidInputError(f"the contract declares bound={bound!r}, which is not in (0, 1].")
    return bound


def declared(contract: Contract, name: str) -> float:
    """The first parameter of this name in the contract's tree, which is part of the plan's document."""
    for part in _tree(contract):
        if name in part.parameters:
            return float(part.parameters[name])
    raise InvalidInputError(f"the plan's contract does not declare {name!r}.")


def _tree(contract: Contract) -> Iterator[Contract]:
    yield contract
    for part in contract.parts:
        yield from _tree(part)
