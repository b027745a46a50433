"""Faults in what is promised: laws, counts, composition, baselines, and a plan altered by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from accounting import Plan, contracts, losses
from accounting.composition import Touched, pld
from accounting.kernels import KernelFacts
from accounting.mechanisms import GaussianMechanism, base
from accounting.profile import ProfileTable
from verification.sabotage.plans import HASHED, INNER, JOINT, LABELED, RESPONSE, SINGLE
from verification.sabotage.saboteur import Saboteur, replaced

Right = Callable[..., Any]


def _counts_s(right: property) -> property:
    def touched(self: KernelFacts) -> Touched:
        assert right.fget is not None
        found: Touched = right.fget(self)
        return dataclasses.replace(found, per_group=min(self.sparsity, found.per_group))

    return property(touched)


def _half_sensitivity(right: Right) -> Right:
    return lambda epsilon, delta, sensitivity: right(epsilon, delta, sensitivity / 2.0)


def _composes_one(right: Right) -> Right:
    return lambda kinds, times, **settings: right(kinds, 1, **settings)


def _half_budget(right: property) -> property:
    def shift_budget(self: Touched) -> float:
        assert right.fget is not None
        return float(right.fget(self)) / 2.0

    return property(shift_budget)


def _loud_sizes(right: Right) -> Right:
    return lambda self, n_classes: dataclasses.replace(right(self, n_classes), size_weight=1.0)


def _one_direction(_: Right) -> Right:
    return lambda self: self


def _upward_only(_: Right) -> Right:
    return lambda pairs, epsilon: max(pair.hockey_stick(epsilon) for pair in pairs)


def _no_infinity(right: Right) -> Right:
    return lambda table, step: (right(table, step)[0], 0.0)


def _larger(_: Right) -> Right:
    return lambda guarantees: max(guarantees, key=lambda one: one.epsilon)


def _lowered(plan: Plan) -> Plan:
    lower = 0.8 * float(plan.parameters["flip_probability"])
    return dataclasses.replace(plan, parameters={**plan.parameters, "flip_probability": lower})


PLANNING = (
    Saboteur(
        name="S instead of min(2S, Q)",
        story="The accountant counts the instances that a user leaves, not those that it enters instead.",
        request=HASHED,
        plant=replaced(KernelFacts, "touched", _counts_s),
    ),
    Saboteur(
        name="central baseline, half sensitivity",
        story="The central baseline is calibrated for a user who leaves, half as far as one who is replaced.",
        request=RESPONSE,
        plant=replaced(GaussianMechanism, "calibrate", _half_sensitivity),
    ),
    Saboteur(
        name="composition forgets the count",
        story="All instances of a block are accounted for as if there were one.",
        request=RESPONSE,
        plant=replaced(pld, "adaptive_supremum", _composes_one),
    ),
    Saboteur(
        name="Δ² halved",
        story="Geometric accounting uses half of the squared shift that one user can cause.",
        request=INNER,
        plant=replaced(Touched, "shift_budget", _half_budget),
    ),
    Saboteur(
        name="joint sizes too loud",
        story="With joint labels the bit that says which class is one's own is sent with weight 1; the accountant was"
        " told less.",
        request=JOINT,
        plant=replaced(KernelFacts, "joint", _loud_sizes),
    ),
    Saboteur(
        name="record for the larger ε alone",
        story="A whole record is promised the larger of ε and ε_lbl, not their sum.",
        request=LABELED,
        plant=replaced(contracts, "compose_basic", _larger),
    ),
    Saboteur(
        name="one direction only",
        story="The supremum over neighbors is taken in one direction, although the other is worse.",
        request=RESPONSE,
        plant=replaced(ProfileTable, "reversed", _one_direction),
    ),
    Saboteur(
        name="one direction of one instance",
        story="The profile of one instance says how much a one looks like a zero, and not the reverse.",
        request=dataclasses.replace(SINGLE, repetitions=1),
        plant=replaced(base, "symmetric_delta", _upward_only),
    ),
    Saboteur(
        name="tail dropped",
        story="The mass at infinite loss is dropped when profiles become loss distributions.",
        request=SINGLE,
        plant=replaced(losses, "_positive_masses", _no_infinity),
    ),
    Saboteur(
        name="plan altered by hand",
        story="Somebody lowers the flip probability in plan.json by a fifth.",
        request=RESPONSE,
        tamper=_lowered,
    ),
)
"""Planted in `accounting`, or in the plan."""
