"""The exact layer: the true law of the shuffled view at a tiny size, against everything that is claimed there."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np

from accounting import Plan
from accounting.composition import LADDER, Touched
from accounting.planning import plan as make_plan
from accounting.request import ALL_THERE
from verification.exact import rational_twins as exact
from verification.exact.claimed_curves import NO_CLAIM, Curve, Worst, drawn_between, refined
from verification.exact.label_views import classifier_check
from verification.exact.search import (
    TABLE_BOUND,
    attack_plan,
    bit_pairs,
    claims,
    extreme_rows,
    joint_rows,
    n_points,
    proved,
    telling_deltas,
)
from verification.exact.shuffled_views import Array, ViewPair, whole_view
from verification.miniature import LARGEST_CLIPPED, WITHOUT_LABELS, miniature
from verification.twins import TWINS, counts_shifts, kernel_twin, mechanism_twin, needs_twins
from verification.verdicts import Effort, Finding, Layer, Subject, check, finding

GRID = 32
"""Cells of the ε of one instance: their ends, and one drawn from each."""
MOST_EPSILONS = 300
"""At most this many ε of one instance at scale 1, halved intervals included; four times as many at scale 10."""


def _rounded_up(epsilon: float) -> Fraction:
    """A rational γ ≥ e^ε, so that an exact hockey stick at γ is a lower bound for the one at ε."""
    return Fraction(math.nextafter(math.nextafter(math.exp(epsilon), math.inf), math.inf))


def _report(claim: str, worst: Worst, bound: float, note: str) -> Finding:
    return finding(
        claim,
        statistic=worst.ratio,
        bound=bound,
        found=worst.words,
        numbers=worst.numbers,
        power=1.0 if worst.ratio > 0.0 else 0.0,
        smallest_detectable_defect=max(0.0, 1.0 / worst.ratio - 1.0) if worst.ratio > 0.0 else None,
        note=("" if worst.ratio > 0.0 else "VACUOUS at this size: nothing that was compared says anything; ")
        + f"statistic: largest true/claimed over {worst.tried} attempts (1 is tight); closest: {worst.words};"
        f" {worst.covered}; smallest detectable defect: relative excess of the true δ, if it is the same at all ε;"
        f" {note}",
    )


@check("exact-instance", Layer.EXACT, "profile of one bitsum instance", needs=needs_twins)
def exact_instance(subject: Subject, effort: Effort, seed: int) -> Finding:
    """One instance: the claimed profile is above the exact one, for all data and both directions.

    At the ends of a logarithmic grid of ε, at points drawn from the seed between them, at kinks of the exact profile,
    and in the middle of every interval in which monotonicity alone would leave more than a factor `FINE` open.
    """
    worst, rng, rational, plan = Worst(), np.random.default_rng(seed), False, subject.plan
    if counts_shifts(plan):  # its law alone matters here, and this rung would take long to find one
        plan = dataclasses.replace(_without_classes(plan), accountant="basic")
    sizes = (3, 5) if effort.scale == 1 else (2, 3, 4, 5, 7)
    for users in sizes:
        small = miniature(plan, users=max(users, 4 if plan.request.joint else 2), dim=1,
                          repetitions=1, epsilon=1.0, delta=0.01)  # fmt: skip
        protocol, rational = small.protocol(), mechanism_twin(small).exact_pairs() is not None
        attack, kinks = _attack_instance(small, worst)
        top = 2.0 * max(1.0, *kinks)
        ends = [0.0, *np.geomspace(1e-3, top, GRID + 1).tolist(), *drawn_between(1e-3, top, GRID, rng), *kinks]
        most = MOST_EPSILONS if effort.scale == 1 else 4 * MOST_EPSILONS
        worst.cover(refined(protocol.delta, attack, ends, most))
    return _report(
        "The claimed profile of one bitsum instance is nowhere below the exact one.",
        worst,
        1.0 if rational else TABLE_BOUND,
        f"miniatures of {subject.plan.bitsum} with {sizes} users, all bits of the others, both directions;"
        + (" in exact rationals" if rational else " tables from 40 digits, cut mass left out"),
    )


def _attack_instance(small: Plan, worst: Worst) -> tuple[Callable[[Curve], None], list[float]]:
    """How the exact laws of one instance are held against a curve; and some kinks of their profile."""
    kinds = mechanism_twin(small).exact_pairs()
    if kinds is not None:
        directed = [pair for kind in kinds for pair in (kind, kind.reversed())]
        ratios = {ratio for pair in directed for ratio in pair.ratios() if ratio > 1}
        kinks = [math.log(ratio) for ratio in sorted(ratios)]
        profile = partial(exact.symmetric_hockey_stick, kinds)
        return lambda curve: _attack_in_fractions(profile, curve, worst), [*kinks, *(0.999 * kink for kink in kinks)]
    pairs = bit_pairs(small)

    def attack(curve: Curve) -> None:
        for at, pair in enumerate(pairs):
            curve.attack(pair, worst, at)

    return attack, [float(kink) for pair in pairs[:2] for kink in _kinks(pair)]


def _kinks(pair: ViewPair) -> Array:
    """Some of the ε at which the exact profile has kinks."""
    seen = (pair.upper > 1e-9) & (pair.lower > 1e-9)
    losses = np.unique(np.log(pair.upper[seen]) - np.log(pair.lower[seen]))
    losses = losses[losses > 0.0]
    return losses[:: max(1, len(losses) // 12)]


def _ratio(true: Fraction, claimed: Fraction) -> float:
    """true/claimed, above 1 exactly if the fraction is."""
    if not claimed:
        return math.inf if true else 0.0
    ratio = float(true / claimed)
    return ratio if true <= claimed else max(math.nextafter(1.0, 2.0), ratio)


def _attack_in_fractions(
    profile: Callable[[Fraction], Fraction], curve: Curve, worst: Worst, where: str = "one instance"
) -> None:
    """An exact profile, as a function of γ ≥ e^ε, against all points of a curve, without rounding."""
    for i, (epsilon, claimed) in enumerate(zip(curve.epsilons.tolist(), curve.deltas.tolist(), strict=True)):
        true = profile(_rounded_up(epsilon))
        curve.exact[i] = float(true)
        if not claimed >= 1.0:
            words = f"{where}: δ({epsilon:.6g}) claimed {claimed:.6g}, exact {float(true):.6g}"
            worst.see(_ratio(true, Fraction(claimed)), words, epsilon=epsilon)


@check("exact-composition", Layer.EXACT, "the rung, few instances", needs=needs_twins)
def exact_composition(subject: Subject, effort: Effort, seed: int) -> Finding:
    """What the rung claims at many δ for a few instances is above the exact composition over worst-case data."""
    worst, plan, rng = Worst(), subject.plan, np.random.default_rng(seed)
    small = miniature(plan, users=4 if plan.request.joint else 3, dim=1, repetitions=1, epsilon=2.0, delta=0.01)
    protocol, rung, pairs = small.protocol(), LADDER[plan.accountant], bit_pairs(small)
    by_shift, twin = counts_shifts(plan), mechanism_twin(small)
    kinds = None if by_shift else twin.exact_pairs()
    counts = (2,) if effort.scale == 1 else (2, 3)
    for count in counts:
        touched = Touched(groups=count, per_group=1, squared_shift=1.0 if by_shift else None)
        deltas = telling_deltas(pairs, count, n_points(plan, effort), rng)
        points = proved(rung, protocol, touched, deltas if twin.spends_delta else [0.0, *deltas])
        curve = Curve.of([NO_CLAIM, *points] if points else ())
        if by_shift:
            _shifted_composition(small, count, curve, worst)
        elif kinds is not None:
            adaptive = partial(exact.adaptive_hockey_stick, kinds, count)
            _attack_in_fractions(adaptive, curve, worst, f"{count} instances")
        else:
            _table_composition(pairs, count, curve, worst)
        worst.cover(curve)
    return _report(
        f"What the rung {rung.name!r} claims for a few instances is nowhere below the exact composition.",
        worst,
        TABLE_BOUND,
        f"{counts} instances of {protocol.n_users} users; "
        + (
            "all fixed data of the others and directions"
            if kinds is None
            else "adaptive worst-case data of the others, exact rationals"
        ),
    )


def _table_composition(pairs: list[ViewPair], count: int, curve: Curve, worst: Worst) -> None:
    """The others only shift the noise of these protocols: one pair in both directions is every kind there is."""
    merged = [pair.merged(200 if count == 2 else 34) for pair in pairs[:2]]
    for kinds in itertools.combinations_with_replacement((0, 1), count):
        whole = merged[kinds[0]]
        for kind in kinds[1:]:
            whole = whole.times(merged[kind])
        curve.attack(whole, worst, f"{count} instances, directions {kinds}")
        # Merging lowers the largest loss, which decides claims of δ = 0; those of single instances add up.
        loss = sum(pairs[kind].largest_loss() for kind in kinds)
        for epsilon in curve.epsilons[curve.deltas == 0.0].tolist():
            ratio = loss / max(epsilon, 1e-12)
            worst.see(ratio, f"{count} instances, directions {kinds}: largest loss {loss:.5g} of ε = {epsilon:.5g}")


def _shifted_composition(small: Plan, count: int, curve: Curve, worst: Worst) -> None:
    """Shifts of total square one, spread in several ways, against what the rung proves for Δ² = 1."""
    twin = mechanism_twin(small)
    spreads = [np.eye(count)[0], np.full(count, count**-0.5), np.linspace(1.0, 0.5, count)]
    bits = np.array(list(itertools.product((0.0, 1.0), repeat=count)))
    for spread in spreads:
        shift = spread / np.linalg.norm(spread) * (1.0 - 1e-12)
        for start in (np.zeros(count), 1.0 - shift, 0.5 * (1.0 - shift)):
            for others in itertools.combinations_with_replacement(range(len(bits)), small.request.users - 1):
                for a, b in ((start, start + shift), (start + shift, start)):
                    pair = whole_view(twin, np.clip(a, 0.0, 1.0), np.clip(b, 0.0, 1.0), bits[list(others)])
                    curve.attack(pair, worst, (np.round(a, 3).tolist(), np.round(b, 3).tolist(), others))


@check("exact-kde", Layer.EXACT, "the whole view of a density", needs=needs_twins)
def exact_kde(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The whole view of a miniature density, with the features that the library computes."""
    worst, plan = Worst(), subject.plan
    rng = np.random.default_rng(seed)
    most, instances = (4, 2) if effort.scale == 1 else (6, 2)
    users = 2 if TWINS[plan.bitsum].reads_difference else 3  # a table of two counts is large
    sizes: list[Plan] = []
    for dim in (1, instances):
        small = miniature(_without_classes(plan), users=users, dim=dim, repetitions=dim, epsilon=2.0, delta=0.01)
        sizes.append(small)
    if kernel_twin(plan).identity and counts_shifts(plan) and sizes[-1].request.bound != LARGEST_CLIPPED:
        sizes.append(make_plan(dataclasses.replace(sizes[-1].request, bound=LARGEST_CLIPPED)))  # rotated and clipped
    for small in sizes:
        rows = extreme_rows(small, most, rng)
        attack_plan(small, rows, _curve(small, n_points(plan, effort, len(sizes)), rng), users - 1, worst)
        if not worst.ratio <= TABLE_BOUND:
            break
    return _report(
        "The promised (ε, δ) of a small density, and its profile, are nowhere below the exact law of the whole view.",
        worst,
        TABLE_BOUND,
        f"{users} users, 1 and {instances} repetitions or dimensions, up to {most} extreme vectors found by search, all"
        " data of the others and all ordered pairs among them; counts of touched instances and squared shifts too",
    )


def _curve(small: Plan, points: int, rng: np.random.Generator) -> Curve:
    """What a small plan promises, and what its accountant proves at δ drawn from the seed."""
    return Curve.of(claims(small, telling_deltas(bit_pairs(small), small.instances_per_user, points, rng)))


def _without_classes(plan: Plan) -> Plan:
    """The same plan of one group without joint labels, as `miniature` reads it."""
    asked = plan.request
    bound = None if asked.record else asked.bound
    alone = {**WITHOUT_LABELS, **ALL_THERE, "epsilon": asked.kde_epsilon, "bound": bound}
    return dataclasses.replace(plan, request=dataclasses.replace(asked, **alone))


@check(
    "exact-joint",
    Layer.EXACT,
    "joint labels, whole view",
    applies=lambda subject: subject.plan.request.joint,
    needs=needs_twins,
)
def exact_joint(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The whole view of a miniature with joint labels: the class may be replaced, too."""
    worst, plan = Worst(), subject.plan
    dim = 1 if plan.request.record is None else 2
    small = miniature(plan, users=4, dim=dim, repetitions=1, epsilon=2.0, delta=0.01)
    rng = np.random.default_rng(seed)
    rows = joint_rows(small, 2 if effort.scale == 1 else 3, rng)
    attack_plan(small, rows, _curve(small, n_points(plan, effort), rng), 3, worst)
    return _report(
        "With joint labels one (ε, δ) covers features and label: no exact view of a replaced record is beyond it.",
        worst,
        TABLE_BOUND,
        f"4 users, 2 classes, {dim} dimensions, {small.request.facts().n_instances} instances, {len(rows)} records, all"
        " data of the others and ordered pairs among them",
    )


@check(
    "exact-classifier",
    Layer.EXACT,
    "labels and densities",
    applies=lambda subject: subject.reports_labels,
    needs=needs_twins,
)
def exact_classifier(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Randomized labels, then one density for each reported class."""
    worst = Worst()
    note = classifier_check(_without_classes(subject.plan), subject.plan, worst, effort, np.random.default_rng(seed))
    return _report(
        "Replacing (x, c) keeps (ε + ε_lbl, δ), x alone (ε, δ), c alone ε_lbl, in the exact communication view.",
        worst,
        TABLE_BOUND,
        note,
    )


CHECKS = (exact_instance, exact_composition, exact_kde, exact_classifier, exact_joint)
