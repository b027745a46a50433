"""Balls against fractions: ends of balls without rounding, and exact hockey sticks at an irrational e^ε.

Also a module of the checker with a planted error: its source with one place changed, so that a test can show that it
would find such an error.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import ModuleType
from typing import Any

from flint import ctx

from accounting import Contract, Plan
from tests.slow_twins import compose
from verification.certified.balls import Ball, Balls, exact
from verification.certified.noise_laws import TwoLaws
from verification.exact.rational_twins import ExactPair
from verification.twins import TWINS

Stick = Callable[[Fraction], Fraction]
"""γ ↦ H_γ, exactly."""


def ends(ball: Ball) -> tuple[Fraction, Fraction]:
    """Both ends of a ball: as fractions, rounded outwards."""
    found = []
    for end in (ball.lower(), ball.upper()):
        mantissa, exponent = (int(part) for part in end.man_exp())
        found.append(Fraction(mantissa) * Fraction(2) ** exponent)
    return found[0], found[1]


def holds(ball: Ball, number: Fraction) -> bool:
    """Whether the ball contains the fraction, and is not so wide that it would contain any."""
    low, high = ends(ball)
    return low <= number <= high and high - low < Fraction(1, 10**20)


def growth(epsilon: float) -> tuple[Fraction, Fraction]:
    """Two fractions around e^ε, 1e-150 apart."""
    with ctx.workprec(600):
        return ends(exact(epsilon).exp())


def around(stick: Stick, epsilon: float) -> tuple[Fraction, Fraction]:
    """Two fractions around H at e^ε, which does not increase."""
    low, high = growth(epsilon)
    return stick(high), stick(low)


def surely_at_least(bound: Ball, stick: Stick, epsilon: float) -> bool:
    """Whether a bound on δ(ε) is one. The radius, which covers what was rounded, counts for it."""
    return not bound.is_finite() or ends(bound)[1] >= around(stick, epsilon)[0]


def surely_at_most(bound: Ball, stick: Stick, epsilon: float) -> bool:
    """The same for a bound from below."""
    return ends(bound)[0] <= around(stick, epsilon)[1]


def laws_of(pair: ExactPair) -> TwoLaws:
    """The pair in balls."""

    def balls(law: tuple[Fraction, ...]) -> Balls:
        return [exact(mass.numerator) / mass.denominator for mass in law]

    return TwoLaws(one=balls(pair.upper), zero=balls(pair.lower))


def worst_stick(pairs: Sequence[ExactPair], times: int) -> Stick:
    """The largest H_γ of `times` instances, over all sequences of pairs, each in either direction."""
    ways = [way for pair in pairs for way in (pair.merged(), pair.reversed().merged())]
    joint = [compose(chosen) for chosen in itertools.combinations_with_replacement(ways, times)]
    return lambda gamma: max(pair.hockey_stick(gamma) for pair in joint)


def with_parameters(plan: Plan, **changes: float) -> Plan:
    """The plan with other parameters of its law, wherever its document states them or what follows from them."""
    twin = TWINS[plan.bitsum]
    parameters = {**plan.parameters, **changes}
    parameters |= {share: parameters[whole] / plan.request.counted_users for share, whole in twin.shares.items()}
    return replace(plan, parameters=parameters, contract=declaring(plan.contract, parameters))


def declaring(contract: Contract, parameters: Mapping[str, float | str]) -> Contract:
    """The contract with other values of the parameters that it and its parts declare."""
    mine = {name: parameters.get(name, value) for name, value in contract.parameters.items()}
    return replace(contract, parameters=mine, parts=tuple(declaring(part, parameters) for part in contract.parts))


def planted(module: ModuleType, honest: str, wrong: str) -> Any:
    """The module with an error: the text `honest`, which stands there once, replaced by `wrong`."""
    source = inspect.getsource(module)
    assert source.count(honest) == 1, f"{honest!r} is there {source.count(honest)} times"
    broken = ModuleType(module.__name__)
    exec(compile(source.replace(honest, wrong), f"<{module.__name__}, broken>", "exec"), broken.__dict__)
    return broken
