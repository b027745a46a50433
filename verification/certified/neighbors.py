"""How far one user can move the bits of all instances: counted again from the kernel, for the certificate.

Two things differ: what the plan's rung *covers*, that is, what its proof claims to hold for, and what two
records *attain*, which is at most that and often much less. Source: docs/proofs/certificate.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from accounting import Contract, InvalidInputError, Plan
from verification.certified.balls import ONE, Ball, exact, whole_below
from verification.twins import counts_shifts, kernel_twin, mechanism_twin
from verification.twins.kernel_twins import NORM


@dataclass(frozen=True, slots=True)
class Moves:
    """Bits of one user that move together: each from 0 to 1 or, if `half`, between a certain 1 and a fair coin.

    If `equal`, each moves by Δ/√k: of all shifts with the same Δ² these lose most, where no δ is spent.
    """

    bits: int
    half: bool = False
    equal: bool = False

    def __str__(self) -> str:
        if self.equal:
            return f"{self.bits} bits that move equally far"
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
    squared_shift: Ball | None = None
    """Δ², if the plan's rung accounts for it; None if every bit may flip."""
    largest_shift: float = 1.0
    unit_ball: bool = False
    """Whether the plan counts on the roundings of the others, whose vectors lie in the unit ball."""

    def added(self, loss: Ball) -> Ball:
        """What k bits lose together at most, without δ, if one that flips completely loses `loss`.

        If shifts are counted, equal ones lose most: k·ln(1 + t(e^loss − 1)), t = Δ/√k, or T if that is less.
        Source: docs/proofs/composition.md, Proposition 7.
        """
        if self.squared_shift is None:
            return loss * self.instances
        shift = (self.squared_shift / self.instances).sqrt().min(exact(self.largest_shift))
        return (ONE + shift * loss.expm1()).log() * self.instances


def neighbors(plan: Plan) -> Neighbors:
    """Most rungs cover k complete flips; those that count shifts cover all shifts t ≤ T with Σt² ≤ Δ².

    Where the rung counts on the others' roundings as well, it speaks of records only: what they attain is used.
    """
    request, kernel, said = plan.request, kernel_twin(plan), partial(declared, plan.contract)
    if request.joint and request.padded is None:
        raise InvalidInputError("the plan's request leaves open what a plan decides; load it from its document.")
    moving, largest, times = kernel.moving(request.dim, request.repetitions), kernel.largest_shift, request.releases
    if request.joint and request.padded:
        return _of_records(plan)
    touched = times * (2 * moving + 2 if request.joint else kernel.touched_share * moving)
    attained = Moves(times * kernel.attained(said, request.dim, moving), half=largest < 1.0)
    if not counts_shifts(plan):
        return Neighbors(instances=touched, covered=Moves(touched), attained=attained)
    shift = kernel.squared_shift(said, moving)
    if request.joint:  # the weight of the classes' sizes is declared, too
        weight = said("size_weight")
        shift = shift.max(kernel.moved_to_zero(shift, moving) + 2 * exact(weight) ** 2)
        largest = max(largest, weight)
    shift *= times
    ball = times == 1 and not request.joint and kernel.unit_ball(said) and mechanism_twin(plan).spends_delta
    return Neighbors(
        instances=touched,
        covered=attained if ball else _fitting(plan, touched, shift, largest),
        attained=attained,
        squared_shift=shift,
        largest_shift=largest,
        unit_ball=ball,
    )


def _of_records(plan: Plan) -> Neighbors:
    """Where a record is one rotated vector v(x, c): every bit moves, and Σt² ≤ sup‖v − v'‖²/(4R²) in each release.

    Within a class the supremum is that of 2 − 2s + β²(2 − 2s²) over cosines s; between classes it is 2 + 2β² + 2γ².
    R and γ are as declared. No bit is known to flip completely: a rotation spreads v over all of them.
    """
    request, said = plan.request, partial(declared, plan.contract)
    bound, weight = said("bound"), exact(float(request.moment_weight or 0.0))
    if not 0.0 < bound <= 1.0:
        raise InvalidInputError(f"the contract declares bound={bound!r}, which is not in (0, 1].")
    same = exact(4.0) if weight <= ONE / 2 else 2 + 2 * weight + ONE / (2 * weight)
    other = 2 + 2 * weight + 2 * exact(said("size_weight")) ** 2
    shift = request.releases * same.max(other) * (exact(NORM) / (2 * exact(bound))) ** 2
    touched = request.releases * int(request.padded or 0)
    return Neighbors(
        instances=touched,
        covered=_fitting(plan, touched, shift, 1.0),
        attained=Moves(0),
        squared_shift=shift,
    )


def _fitting(plan: Plan, touched: int, squared_shift: Ball, largest: float) -> Moves:
    """As many largest shifts as Δ² has room for or, where losses only add up, equal ones."""
    if not mechanism_twin(plan).spends_delta:
        return Moves(touched, equal=True)
    return Moves(min(touched, whole_below(squared_shift / exact(largest) ** 2)), half=largest < 1.0)


def declared(contract: Contract, name: str) -> float:
    """The first parameter of this name in the contract's tree, which is part of the plan's document."""
    for part in contracts(contract):
        if name in part.parameters:
            return float(part.parameters[name])
    raise InvalidInputError(f"the plan's contract does not declare {name!r}.")


def contracts(contract: Contract) -> Iterator[Contract]:
    """A contract and its parts, and theirs."""
    yield contract
    for part in contract.parts:
        yield from contracts(part)
