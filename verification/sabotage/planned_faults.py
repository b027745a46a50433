"""Faults in what is promised: laws, counts, composition, baselines, and a plan altered by hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from accounting import Guarantee, Plan, PlanRequest
from accounting import composed_contracts as contracts
from accounting.composition import AddedLosses, Touched, pld
from accounting.kernels import KernelFacts
from accounting.mechanisms import GaussianMechanism
from accounting.mechanisms import bitsum_protocol as base
from accounting.numerics import losses
from accounting.numerics.profile import Pair, ProfileTable
from verification.sabotage import saboteur
from verification.sabotage.plans import BALL, HASHED, INNER, JOINT, LABELED, PURE_BALL, RESPONSE, SINGLE
from verification.sabotage.saboteur import Right, fault


@fault("S instead of min(2S, Q)", HASHED, KernelFacts, "touched")
def counts_s(right: Right, self: KernelFacts) -> Touched:
    """The accountant counts the instances that a user leaves, not those that it enters instead."""
    whole: Touched = right(self)
    return dataclasses.replace(whole, per_group=min(self.sparsity, whole.per_group))


@fault("central baseline, half sensitivity", RESPONSE, GaussianMechanism, "calibrate")
def half_sensitivity(right: Right, epsilon: float, delta: float, sensitivity: float) -> Any:
    """The central baseline is calibrated for a user who leaves, half as far as one who is replaced."""
    return right(epsilon, delta, sensitivity / 2.0)


@fault("composition forgets the count", RESPONSE, pld, "adaptive_supremum")
def composes_one(right: Right, kinds: Any, times: int, **settings: Any) -> Any:
    """All instances of a block are accounted for as if there were one."""
    return right(kinds, 1, **settings) * times


@fault("Δ² halved", INNER, Touched, "shift_budget")
def half_budget(right: Right, self: Touched) -> float:
    """Geometric accounting uses half of the squared shift that one user can cause."""
    return float(right(self)) / 2.0


@fault("Δ² of a ball halved", BALL, Touched, "shift_budget")
def half_ball(right: Right, self: Touched) -> float:
    """Clients hold their features in a ball, and the accountant counts on one of half the squared radius."""
    return float(right(self)) / 2.0


@fault("shifts without the square root", PURE_BALL, AddedLosses, "share_without_delta")
def added_squares(right: Right, self: AddedLosses, touched: Touched, epsilon: float) -> float:
    """Losses without δ are added up as if each bit moved by Δ/k, not by Δ/√k."""
    smaller = dataclasses.replace(touched, squared_shift=touched.shift_budget / touched.total)
    return float(right(self, smaller, epsilon))


@fault("joint sizes too loud", JOINT, KernelFacts, "joint")
def loud_sizes(right: Right, self: KernelFacts, n_classes: int) -> Any:
    """With joint labels the bit that says which class is one's own has weight 1; the accountant counts on less."""
    return dataclasses.replace(right(self, n_classes), size_weight=1.0)


@fault("record for the larger ε alone", LABELED, contracts, "compose_basic")
def larger(_: Right, guarantees: Iterable[Guarantee]) -> Guarantee:
    """A whole record is promised the larger of ε and ε_lbl, not their sum."""
    return max(guarantees, key=lambda guarantee: guarantee.epsilon)


@fault("label ε on top of the total", LABELED, PlanRequest, "_all_label_epsilon")
def label_on_top(*_: Any) -> Fraction:
    """The features get the whole ε that was asked for, and the label's response is added to it."""
    return Fraction(math.ulp(0.0))


@fault("one direction only", RESPONSE, ProfileTable, "reversed")
def one_direction(_: Right, self: ProfileTable) -> ProfileTable:
    """The supremum over neighbors is taken in one direction, although the other is worse."""
    return self


@fault("one direction of one instance", dataclasses.replace(SINGLE, repetitions=1), base, "symmetric_delta")
def upward_only(_: Right, pairs: Iterable[Pair], epsilon: float) -> float:
    """The profile of one instance says how much a one looks like a zero, and not the reverse."""
    return max(pair.hockey_stick(epsilon) for pair in pairs)


@fault("tail dropped", SINGLE, losses, "_positive_masses")
def no_infinity(right: Right, table: ProfileTable, step: float) -> Any:
    """The mass at infinite loss is dropped when profiles become loss distributions."""
    return right(table, step)[0], 0.0


@fault("plan altered by hand", RESPONSE, saboteur, "make_plan")
def lowered(right: Right, request: PlanRequest) -> Plan:
    """Somebody lowers the flip probability in plan.json by a fifth."""
    plan: Plan = right(request)
    lower = 0.8 * float(plan.parameters["flip_probability"])
    return dataclasses.replace(plan, parameters={**plan.parameters, "flip_probability": lower})
