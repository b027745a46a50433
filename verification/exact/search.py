"""Searching all data of the others and all neighbors of the target for a view that breaks a claimed (ε, δ)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError, Plan
from accounting.composition import LADDER, Rung, Touched
from accounting.mechanisms import BitsumProtocol
from privkde.protocol.announcement import Announcement
from privkde.protocol.inputs import checked_vectors
from verification.client_rows import client_rows, furthest_cosine, turned
from verification.exact.claimed_curves import FLOOR, NO_CLAIM, Curve, Worst, drawn_between
from verification.exact.shuffled_views import Array, ViewPair, instance_law, whole_view
from verification.twins import counts_shifts, mechanism_twin
from verification.verdicts import Effort

PUBLIC_SEEDS = tuple(f"{number:032x}" for number in range(1, 65))
"""Public seeds to try: clients refuse one that draws maps beyond what was declared."""
TABLE_BOUND = 1.0 + 1e-9
"""Ratios of exact to claimed δ above this refute: tables are accurate to 1e-12, claims are rounded up."""
POINTS, SHIFTED_POINTS = 16, 12
"""Claims of an accountant that a quick check compares; one that counts shifts is slow."""


def bit_pairs(plan: Plan) -> list[ViewPair]:
    """One instance: (bit 1, bit 0) and its reversal for all bits of the others."""
    n, twin = plan.request.users, mechanism_twin(plan)
    pairs = []
    for ones in range(n):
        others = (1.0,) * ones + (0.0,) * (n - 1 - ones)
        upper, lower = (instance_law(twin, (bit, *others)) for bit in (1.0, 0.0))
        pairs += [ViewPair(upper, lower).trimmed(), ViewPair(lower, upper).trimmed()]
    return pairs


def telling_deltas(pairs: Sequence[ViewPair], instances: int, count: int, rng: np.random.Generator) -> list[float]:
    """δ at which a claim about so many instances says something: neither impossible at any ε nor enough at ε = 0."""
    high = min(0.5, instances * max(pair.stick(0.0) for pair in pairs))
    low = max(FLOOR, instances * max(pair.infinite() for pair in pairs))
    return drawn_between(min(low, 0.5 * high), high, count, rng)


def n_points(plan: Plan, effort: Effort, plans: int = 1) -> int:
    """How many claims of the accountant are compared, for each of some plans."""
    return (SHIFTED_POINTS // plans if counts_shifts(plan) else POINTS) * (1 if effort.scale == 1 else 2)


def proved(
    rung: Rung, protocol: BitsumProtocol, touched: Touched, deltas: Iterable[float]
) -> list[tuple[float, float]]:
    """The points (ε, δ) that a rung claims, at those δ where it claims something."""
    points = ((rung.achieved_epsilon(protocol, touched, delta), delta) for delta in deltas)
    return [(epsilon, delta) for epsilon, delta in points if epsilon is not None and epsilon != math.inf]


def claims(plan: Plan, deltas: Iterable[float]) -> list[tuple[float, float]]:
    """(ε, δ) that the plan promises, and those that its accountant proves at other δ."""
    promise = plan.guarantees[0]
    rung = LADDER[plan.accountant]
    touched = rung.touched(plan.request.facts())
    return [NO_CLAIM, (promise.epsilon, promise.delta), *proved(rung, plan.protocol(), touched, deltas)]


def announced(plan: Plan) -> Announcement:
    """The plan with the first public seed whose maps are accepted."""
    for seed in PUBLIC_SEEDS[:-1]:
        announcement = Announcement(plan=plan, public_seed=seed)
        try:
            announcement.family()
        except InvalidInputError:
            continue
        return announcement
    return Announcement(plan=plan, public_seed=PUBLIC_SEEDS[-1])


def extreme_rows(plan: Plan, most: int, rng: np.random.Generator) -> Array:
    """f/R of admissible vectors, as the library's clients compute it, that point in many directions."""
    return np.asarray(announced(plan).family().scaled_features(extreme_vectors(plan, most, rng)), dtype=np.float64)


def extreme_vectors(plan: Plan, most: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Admissible vectors whose features point in many directions.

    Of 2,000 random vectors and the corners of the domain, those whose features are extreme in ± each of the first
    coordinates and in random directions; features are distinct, and in [−1, 1] if the library keeps its word.
    """
    announcement = announced(plan)
    family, dim = announcement.family(), plan.request.dim
    drawn = rng.normal(size=(2000, dim)) * 3.0
    if family.needs_unit_norm:
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    x = np.concatenate([np.eye(dim), -np.eye(dim), np.zeros((1, dim)), drawn]).astype(np.float32)
    x[2 * dim + 1 :] *= np.float32(1.0 - 1e-6)
    checked = checked_vectors(x, dim, longest=family.largest_norm, outside="project")
    rows = family.scaled_features(checked)
    width = rows.shape[1]
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=min(width, 3))))
    directions = np.concatenate(
        [np.pad(signs, ((0, 0), (0, width - signs.shape[1]))), np.sign(rng.normal(size=(most, width)))]
    )
    sizes = np.max(np.abs(rows), axis=1)
    chosen = [int(np.argmax(sizes))] if not np.max(sizes) <= 1.0 else []  # no probability: nothing else matters
    for direction in directions:
        best = int(np.argmax(rows @ direction))
        if not any(np.array_equal(rows[best], rows[earlier]) for earlier in chosen):
            chosen.append(best)
    return checked[chosen[:most]]


def joint_rows(plan: Plan, most: int, rng: np.random.Generator) -> Array:
    """The rows of some vectors with each of two classes, as clients compute them.

    Extreme vectors or, where records are rotated as one vector, two whose v(x, c) are as far apart as any, and zero.
    """
    announcement, record = announced(plan), plan.request.record
    if record is None:
        x = extreme_vectors(plan, most, rng)
    else:
        first, across = _unit_rows(rng.normal(size=(2, 1, record.dim)))
        x = np.concatenate([first, turned(first, across, furthest_cosine(record.moment_weight)), 0.0 * first])[:most]
    parts = [client_rows(announcement, x, np.full(len(x), c, np.int64)) for c in range(2)]
    return np.concatenate(parts).astype(np.float64)


def _unit_rows(x: Array) -> Array:
    return np.asarray((1.0 - 1e-6) * x / np.linalg.norm(x, axis=-1, keepdims=True))


def attack_plan(plan: Plan, rows: Array, curve: Curve, n_others: int, worst: Worst) -> None:
    """All ordered pairs of rows for the target, all multisets of rows for the others, all claims."""
    largest = float(np.max(np.abs(rows)))
    worst.see(math.inf if not largest <= 1.0 else 0.0, f"a feature over its bound is {largest:.6g}: not a probability")
    if not largest <= 1.0:
        return
    chances = 0.5 * (1.0 + rows)
    _count_touched(plan, chances, worst)
    twin = mechanism_twin(plan)
    for others in itertools.combinations_with_replacement(range(len(rows)), n_others):
        for i, j in itertools.permutations(range(len(rows)), 2):
            curve.attack(whole_view(twin, chances[i], chances[j], chances[list(others)]), worst, (i, j, others))
    worst.cover(curve)


def _count_touched(plan: Plan, chances: Array, worst: Worst) -> None:
    """How many instances a replaced record touches, and how far, against what the plan accounts for."""
    touched = plan.request.facts().touched
    for i, j in itertools.combinations(range(len(chances)), 2):
        shifts = np.abs(chances[i] - chances[j])
        count, square = int(np.count_nonzero(shifts)), float(np.sum(shifts**2))
        # counts are whole: one too many is far above the bound
        worst.see(
            0.0 if count <= plan.instances_per_user else count / max(1, plan.instances_per_user),
            f"one user touches {count} instances and the plan accounts for {plan.instances_per_user}",
        )
        if counts_shifts(plan) and square > touched.shift_budget:
            worst.see(
                square / touched.shift_budget,
                f"squared shifts add up to {square:.6g} and the plan accounts for {touched.shift_budget:.6g}",
            )
