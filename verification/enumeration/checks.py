"""The exact layer: the true law of the shuffled view at a tiny size, against everything that is claimed there."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np

from accounting import Plan
from accounting.composition import LADDER, Touched
from accounting.mechanisms import BitsumProtocol
from accounting.planning import plan as make_plan
from verification import exact
from verification.enumeration.labels import classifier_check
from verification.enumeration.search import (
    TABLE_BOUND,
    Claim,
    Worst,
    attack_pair,
    attack_plan,
    claims,
    extreme_rows,
    joint_rows,
)
from verification.enumeration.views import InstanceView, ViewPair, whole_view
from verification.miniature import miniature
from verification.verdicts import Check, Effort, Finding, Layer, Subject, finding

EPSILONS = (0.0, 0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 5.0)
DELTAS = (0.2, 1e-3)


def _rounded_up(epsilon: float) -> Fraction:
    """A rational γ ≥ e^ε, so that an exact hockey stick at γ is a lower bound for the one at ε."""
    return Fraction(math.nextafter(math.nextafter(math.exp(epsilon), math.inf), math.inf))


def _report(name: str, claim: str, worst: Worst, bound: float, note: str) -> Finding:
    return finding(
        name,
        Layer.EXACT,
        claim,
        statistic=worst.ratio,
        bound=bound,
        found=worst.words,
        numbers=worst.numbers,
        smallest_detectable_defect=max(0.0, 1.0 / worst.ratio - 1.0) if worst.ratio > 0.0 else None,
        note=("" if worst.ratio > 0.0 else "VACUOUS at this size: the claims are beyond every loss; ")
        + f"statistic: largest true/claimed over {worst.tried} attempts (1 is tight); closest: {worst.words};"
        f" smallest detectable defect: relative excess of the true δ; {note}",
    )


def _pairs(plan: Plan) -> list[ViewPair]:
    """(bit 1, bit 0) and its reversal for all bits of the others."""
    n = plan.request.users
    view = InstanceView(plan.bitsum, plan.parameters, n)
    found = []
    for ones in range(n):
        others = [1.0] * ones + [0.0] * (n - 1 - ones)
        upper, lower = view.law([1.0, *others]), view.law([0.0, *others])
        found += [ViewPair(upper, lower).trimmed(), ViewPair(lower, upper).trimmed()]
    return found


def _response_kinds(protocol: BitsumProtocol) -> list[exact.ExactPair]:
    flip = Fraction(float(protocol.parameters()["flip_probability"]))
    return exact.response_pairs(protocol.n_users, flip)


def exact_instance(subject: Subject, effort: Effort, seed: int) -> Finding:
    """One instance: the claimed profile is above the exact one, for all data, both directions, at all ε that matter."""
    worst = Worst()
    sizes = (3, 5) if effort.scale == 1 else (2, 3, 4, 5, 7)
    for users in sizes:
        small = miniature(subject.plan, users=max(users, 4 if subject.plan.request.joint else 2), dim=1,
                          repetitions=1, epsilon=1.0, delta=0.01)  # fmt: skip
        protocol = small.protocol()
        if protocol.name == "rr":
            _fractions_instance(protocol, worst)
            continue
        pairs = _pairs(small)
        losses = np.concatenate([_kinks(pair) for pair in pairs[:2]])
        for epsilon in (*EPSILONS, *losses.tolist()):
            claim = Claim(epsilon, protocol.delta(epsilon))
            if claim.delta > 0.0 or epsilon >= float(small.parameters.get("epsilon_target", math.inf)):
                for at, pair in enumerate(pairs):
                    attack_pair(pair, [claim], worst, at)
    return _report(
        "exact-instance",
        "The claimed profile of one bitsum instance is nowhere below the exact one.",
        worst,
        1.0 if subject.plan.bitsum == "rr" else TABLE_BOUND,
        f"miniatures of {subject.plan.bitsum} with {sizes} users, all bits of the others, both directions;"
        + (" in exact rationals" if subject.plan.bitsum == "rr" else " tables from 40 digits, cut mass left out"),
    )


def _kinks(pair: ViewPair) -> np.ndarray:
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


def _fractions_instance(protocol: BitsumProtocol, worst: Worst) -> None:
    kinds = _response_kinds(protocol)
    both = [*kinds, *(kind.reversed() for kind in kinds)]
    kinks = sorted({float(mpf) for kind in both for mpf in kind.ratios() if mpf > 1})
    for epsilon in (*EPSILONS, *(math.log(kink) for kink in kinks), *(math.log(kink) * 0.999 for kink in kinks)):
        claimed = Fraction(protocol.delta(epsilon))
        true = max(kind.hockey_stick(_rounded_up(epsilon)) for kind in both)
        ratio = _ratio(true, claimed)
        worst.see(ratio, f"δ({epsilon:.6g}) claimed {float(claimed):.6g}, exact {float(true):.6g}", epsilon=epsilon)


def exact_composition(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The rung's (ε, δ) for a few touched instances is above the exact composition over worst-case data."""
    worst, plan = Worst(), subject.plan
    small = miniature(plan, users=4 if plan.request.joint else 3, dim=1, repetitions=1, epsilon=2.0, delta=0.01)
    protocol, rung = small.protocol(), LADDER[plan.accountant]
    counts = (2,) if effort.scale == 1 else (2, 3)
    for count in counts:
        if rung.name == "geometric":
            _shifted_composition(small, count, worst)
            continue
        touched = Touched(groups=count, per_group=1)
        targets = (0.0,) if protocol.name == "pure" else (0.1, 0.01, 1e-4)
        found = [(rung.achieved_epsilon(protocol, touched, delta), delta) for delta in targets]
        points = [Claim(epsilon, delta) for epsilon, delta in found if epsilon is not None and math.isfinite(epsilon)]
        if protocol.name == "rr":
            kinds = _response_kinds(protocol)
            for claim in points:
                true = exact.adaptive_hockey_stick(kinds, count, _rounded_up(claim.epsilon))
                worst.see(
                    float(true / Fraction(claim.delta)),
                    f"{count} instances: δ({claim.epsilon:.5g}) claimed {claim.delta:g}, exact {float(true):.4g}",
                )
        else:
            _table_composition(_pairs(small), count, points, worst)
    return _report(
        "exact-composition",
        f"What the rung {rung.name!r} claims for a few instances is nowhere below the exact composition.",
        worst,
        TABLE_BOUND,
        f"{counts} instances of {protocol.n_users} users; "
        + (
            "adaptive worst-case data of the others, exact rationals"
            if protocol.name == "rr" and rung.name != "geometric"
            else "all fixed data of the others and directions"
        ),
    )


def _table_composition(pairs: list[ViewPair], count: int, points: list[Claim], worst: Worst) -> None:
    """The others only shift the noise of these protocols: one pair in both directions is every kind there is."""
    merged = [pair if count == 1 else pair.merged(200 if count == 2 else 34) for pair in pairs[:2]]
    losses = [pair.largest_loss() for pair in pairs[:2]]
    for kinds in itertools.combinations_with_replacement((0, 1), count):
        whole = merged[kinds[0]]
        for kind in kinds[1:]:
            whole = whole.times(merged[kind])
        for claim in points:
            ratio = claim.broken_by(whole) if claim.delta else sum(losses[kind] for kind in kinds) / claim.epsilon
            worst.see(
                ratio, f"{count} instances, directions {kinds}: {ratio:.4g} of δ({claim.epsilon:.5g})={claim.delta:g}"
            )


def _shifted_composition(small: Plan, count: int, worst: Worst) -> None:
    """Shifts of total square one, spread in several ways, against what `geometric` proves for Δ² = 1."""
    touched = Touched(groups=count, per_group=1, squared_shift=1.0)
    rung, protocol = LADDER["geometric"], small.protocol()
    found = [(rung.achieved_epsilon(protocol, touched, delta), delta) for delta in (0.1, 0.01)]
    points = [Claim(epsilon, delta) for epsilon, delta in found if epsilon is not None and math.isfinite(epsilon)]
    view = InstanceView(small.bitsum, small.parameters, small.request.users)
    spreads = [np.eye(count)[0], np.full(count, count**-0.5), np.linspace(1.0, 0.5, count)]
    bits = np.array(list(itertools.product((0.0, 1.0), repeat=count)))
    for spread in spreads:
        shift = spread / np.linalg.norm(spread) * (1.0 - 1e-12)
        for start in (np.zeros(count), 1.0 - shift, 0.5 * (1.0 - shift)):
            for others in itertools.combinations_with_replacement(range(len(bits)), small.request.users - 1):
                for a, b in ((start, start + shift), (start + shift, start)):
                    pair = whole_view(view, np.clip(a, 0.0, 1.0), np.clip(b, 0.0, 1.0), bits[list(others)])
                    attack_pair(pair, points, worst, (np.round(a, 3).tolist(), np.round(b, 3).tolist(), others))


def exact_kde(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The whole view of a miniature density, with the features that the library computes."""
    worst, plan = Worst(), subject.plan
    rng = np.random.default_rng(seed)
    most, instances = (4, 2) if effort.scale == 1 else (6, 2)
    users = 3 if plan.bitsum in ("rr", "poisson", "negative-binomial") else 2
    sizes: list[Plan] = []
    for dim in (1, instances):
        small = miniature(_without_classes(plan), users=users, dim=dim, repetitions=dim, epsilon=2.0, delta=0.01)
        sizes.append(small)
    if plan.request.kernel == "inner-product" and plan.accountant == "geometric":  # rotated and clipped, too
        sizes.append(make_plan(dataclasses.replace(sizes[-1].request, bound=0.75)))
    for small in sizes:
        attack_plan(small, extreme_rows(small, most, rng), claims(small, DELTAS), users - 1, worst)
    return _report(
        "exact-kde",
        "The promised (ε, δ) of a small density, and its profile, are nowhere below the exact law of the whole view.",
        worst,
        TABLE_BOUND,
        f"{users} users, 1 and {instances} repetitions or dimensions, up to {most} extreme vectors found by search, all"
        " data of the others and all ordered pairs among them; counts of touched instances and squared shifts too",
    )


def _without_classes(plan: Plan) -> Plan:
    """The same plan of one group without joint labels, as `miniature` reads it."""
    request = dataclasses.replace(plan.request, classes=None, label_epsilon=None, labels="separate", min_users=None)
    return dataclasses.replace(plan, request=request)


def exact_joint(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The whole view of a miniature with joint labels: the class may be replaced, too."""
    worst, plan = Worst(), subject.plan
    small = miniature(plan, users=4, dim=1, repetitions=1, epsilon=2.0, delta=0.01)
    rows = joint_rows(small, extreme_rows(small, 2 if effort.scale == 1 else 3, np.random.default_rng(seed)))
    attack_plan(small, rows, claims(small, DELTAS), 3, worst)
    return _report(
        "exact-joint",
        "With joint labels one (ε, δ) covers features and label: no exact view of a replaced record is beyond it.",
        worst,
        TABLE_BOUND,
        f"4 users, 2 classes, 1 dimension, {len(rows)} records, all data of the others and ordered pairs among them",
    )


def exact_classifier(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Randomized labels, then one density for each reported class."""
    worst = Worst()
    note = classifier_check(_without_classes(subject.plan), subject.plan, worst, np.random.default_rng(seed))
    return _report(
        "exact-classifier",
        "Replacing (x, c) keeps (ε + ε_lbl, δ), x alone (ε, δ), c alone ε_lbl, in the exact communication view.",
        worst,
        TABLE_BOUND,
        note,
    )


def _separate(subject: Subject) -> bool:
    return subject.plan.request.label_response() is not None


def _joint(subject: Subject) -> bool:
    return subject.plan.request.joint


CHECKS: tuple[Check, ...] = (
    Check(name="exact-instance", layer=Layer.EXACT, about="profile of one bitsum instance", run=exact_instance),
    Check(name="exact-composition", layer=Layer.EXACT, about="the rung, few instances", run=exact_composition),
    Check(name="exact-kde", layer=Layer.EXACT, about="the whole view of a density", run=exact_kde),
    Check(
        name="exact-classifier",
        layer=Layer.EXACT,
        about="labels and densities",
        run=exact_classifier,
        applies=_separate,
    ),
    Check(name="exact-joint", layer=Layer.EXACT, about="joint labels, whole view", run=exact_joint, applies=_joint),
)
