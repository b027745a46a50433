"""Geometric accounting: never below enumeration, each lemma against brute force, shifts of the kernels."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accounting.choosing import choose
from accounting.composed_contracts import kde_contract
from accounting.composition import Geometric, Target, Touched, geometric, shifted
from accounting.composition.geometric import COIN_SHARE, CONVERSION, GeometricBound, Rest, coins
from accounting.composition.shifted import (
    BLOCK,
    MIDDLES,
    ORDERS,
    Atoms,
    Cut,
    Rates,
    Remainders,
    corners,
    over_shifts,
    rates,
    remainder,
    remainders,
    shifts,
)
from accounting.errors import InfeasibleError, InvalidInputError
from accounting.kernels import NORM_SLACK, chosen_bound, clipping_bias, kernel_named
from accounting.mechanisms import BitsumProtocol, GaussianMechanism, PoissonNoise, Pure, RandomizedResponse
from accounting.numerics.losses import DominatingLoss, Repeated
from accounting.numerics.pmf import Array, binomial, poisson
from accounting.numerics.profile import RELATIVE_PAD, LossGrid, Pair, ProfileTable
from accounting.request import PlanRequest
from privkde.kernels import KernelChoice
from tests.slow_twins import compose
from verification.exact.rational_twins import ExactPair, response_pairs

EPSILONS = (0.0, 0.3, 0.6, 1.0, 2.0)
SEED = "0123456789abcdef0123456789abcdef"
RecordProperty = Callable[[str, object], None]


def rr(n_users: int, p: float | Fraction) -> RandomizedResponse:
    return RandomizedResponse(n_users=n_users, flip_probability=float(p))


def shifting(total: int, square: float | None, largest: float = 1.0, *, ball: bool = False) -> Touched:
    return Touched(groups=total, per_group=1, squared_shift=square, largest_shift=largest, unit_ball=ball)


def bound_of(law: BitsumProtocol, touched: Touched, delta: float = 1e-3) -> GeometricBound:
    return GeometricBound.of(law, touched, delta, certified=True)


def any_data(found: GeometricBound, epsilon: float) -> float:
    """Theorem 1 alone."""
    return float(np.min(found.any_data.delta(found.touched.shift_budget, np.array([epsilon]))))


def hockey_stick(upper: Array, lower: Array, epsilon: float) -> float:
    return float(np.sum(np.maximum(upper - math.exp(epsilon) * lower, 0.0)))


def product(laws: list[Array]) -> Array:
    joint = np.ones(1)
    for law in laws:
        joint = np.multiply.outer(joint, law).ravel()
    return joint


# --- against enumeration --------------------------------------------------------------------------


def lattice_ball(dim: int, steps: int) -> Array:
    """All x·steps for x on the lattice of width 1/steps in the unit ball: integers."""
    lines = range(-steps, steps + 1)
    inside = [v for v in itertools.product(lines, repeat=dim) if sum(i * i for i in v) <= steps**2]
    return np.array(inside, dtype=np.float64)


def worst_inputs(n_users: int, p: Fraction, dim: int, steps: int) -> list[tuple[float, Any]]:
    """For each of EPSILONS the largest composed hockey stick over all (x, x') and all data, and where it is."""
    pairs = response_pairs(n_users, p)
    points = lattice_ball(dim, steps)
    q = (0.5 * (1.0 + points / steps))[:, :, None]
    best: list[tuple[float, Any]] = [(0.0, None)] * len(EPSILONS)
    for data in itertools.product(range(n_users), repeat=dim):
        joint = np.ones((len(points), 1))
        for j, m in enumerate(data):
            one, zero = (np.array([float(x) for x in law]) for law in (pairs[m].upper, pairs[m].lower))
            law = q[:, j] * one + (1.0 - q[:, j]) * zero
            joint = (joint[:, :, None] * law[:, None, :]).reshape(len(points), -1)
        for (e, epsilon), (i, upper) in itertools.product(enumerate(EPSILONS), enumerate(joint)):
            sticks = np.sum(np.maximum(upper - math.exp(epsilon) * joint, 0.0), axis=1)
            k = int(np.argmax(sticks))
            if sticks[k] > best[e][0]:
                best[e] = (float(sticks[k]), (data, points[i], points[k]))
    return best


def exact_stick(n_users: int, p: Fraction, steps: int, where: Any, epsilon: float) -> Fraction:
    """The same number in fractions."""
    data, x, moved = where
    instances = []
    for m, *ends in zip(data, x, moved, strict=True):
        one, zero = response_pairs(n_users, p)[m].upper, response_pairs(n_users, p)[m].lower
        laws = []
        for end in ends:
            q = (1 + Fraction(int(end), steps)) / 2
            laws.append(tuple(q * a + (1 - q) * b for a, b in zip(one, zero, strict=True)))
        instances.append(ExactPair(upper=laws[0], lower=laws[1]))
    return compose(instances).hockey_stick(Fraction(math.exp(epsilon)))


QUICK = [(2, 1, 8, "1/8"), (2, 1, 8, "1/4"), (3, 2, 5, "1/4"), (3, 2, 5, "3/8"), (2, 4, 2, "1/4")]
ENUMERATED = [
    pytest.param(*one, marks=() if one in QUICK else pytest.mark.slow)
    for size in ((2, 1, 8), (3, 2, 5), (3, 2, 10), (6, 2, 5), (2, 3, 4), (2, 4, 2))
    for one in ((*size, p) for p in ("1/8", "1/4", "3/8"))
]


@pytest.mark.parametrize(("n_users", "dim", "steps", "flip"), ENUMERATED)
def test_never_below_enumeration(
    n_users: int, dim: int, steps: int, flip: str, record_property: RecordProperty
) -> None:
    """All data of the others and all ordered pairs (x, x') of a lattice in the ball, hence both directions."""
    p = Fraction(flip)
    worst = worst_inputs(n_users, p, dim, steps)
    exact = []
    for (value, where), epsilon in zip(worst, EPSILONS, strict=True):
        fraction = exact_stick(n_users, p, steps, where, epsilon) if where is not None else Fraction(0)
        assert float(fraction) == pytest.approx(value, abs=1e-14)
        exact.append(fraction)
    assert exact[0] > 0.08
    for delta in (1e-6, 1e-3, 0.1):
        found = bound_of(rr(n_users, p), shifting(dim, 1.0), delta)
        claimed = [found.delta(epsilon) for epsilon in EPSILONS]
        assert all(ours >= true for ours, true in zip(claimed, exact, strict=True))
        assert np.all(np.diff(claimed) <= 0.0)
        ratios = [ours / float(true) for ours, true in zip(claimed, exact, strict=True) if true > 0.01]
        record_property(f"claimed/exact at delta={delta}", [round(ratio, 3) for ratio in ratios])
        assert 1.0 <= min(ratios) <= 3.0  # not vacuous
        assert max(ratios) <= 10.0


def test_never_below_enumeration_with_poisson_noise() -> None:
    """A law on all integers: what the enumeration cuts off can only lower it."""
    noise = poisson(9.0).values[:60]
    one, zero = np.concatenate([[0.0], noise]), np.concatenate([noise, [0.0]])
    found = bound_of(PoissonNoise(n_users=4, total_mean=9.0), shifting(2, 1.0), 1e-2)
    claimed = np.array([found.delta(epsilon) for epsilon in EPSILONS])
    for angle in (0.0, 0.3, math.pi / 4):
        exact = np.zeros(len(EPSILONS))
        ends = [[(0.0, t), (t, 0.0), (1.0, 1 - t), (1 - t, 1.0)] for t in (math.cos(angle), math.sin(angle))]
        for places in itertools.product(*ends):
            upper, lower = (product([q[i] * one + (1 - q[i]) * zero for q in places]) for i in (0, 1))
            exact = np.maximum(exact, [hockey_stick(upper, lower, epsilon) for epsilon in EPSILONS])
        assert np.all(exact <= claimed)
        assert 0.0 < exact[3] <= claimed[3] < 3.0 * exact[3] + 0.1


@pytest.mark.parametrize("n_instances", [1, 2, 4, 64, 768])
def test_never_below_equal_shifts_composed(n_instances: int, record_property: RecordProperty) -> None:
    """n = 30 000, all others at 0, k equal shifts t = 1/√k, composed by convolution (exact to 0.1 %, rounded up)."""
    law, t = rr(30_000, 6.4e-4), 1.0 / math.sqrt(n_instances)
    found = bound_of(law, shifting(768, 1.0), 1e-6)
    pair = law.pair(0)
    exact = 0.0
    for upper, lower in ((pair.upper, pair.lower), (pair.lower, pair.upper)):
        mixed = (1 - t) * lower + t * upper
        for one in (Pair(upper=mixed, lower=lower, missing=1e-20), Pair(upper=lower, lower=mixed, missing=1e-20)):
            grid = LossGrid.for_pair(one, n_compositions=n_instances, negligible=1e-18)
            loss = DominatingLoss.from_table(ProfileTable.of_pair(one, grid))
            exact = max(exact, Repeated([(loss, n_instances)]).delta(2.0))
    claimed = any_data(found, 2.0)
    record_property("claimed/exact", round(claimed / exact, 3))
    assert 5e-11 < 0.999 * exact <= claimed <= 1e-6
    if n_instances == 1:
        assert claimed < 4.0 * exact


# --- Lemma 1: corners -----------------------------------------------------------------------------


@cache
def loss_of(law: BitsumProtocol) -> DominatingLoss:
    return bound_of(law, shifting(1, 1.0)).loss


LAWS = [rr(3, 0.25), rr(200, 0.1), PoissonNoise(n_users=5, total_mean=20.0), rr(1, 0.3)]


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("t", [1e-3, 0.2, 0.7, 1.0])
def test_corners_are_laws_that_dominate_the_exact_ones(law: BitsumProtocol, t: float) -> None:
    loss = loss_of(law)
    for atoms, reverse in zip(corners(loss, t), (False, True), strict=True):
        assert np.all(np.diff(atoms.ratios) >= 0.0)
        assert float(np.sum(atoms.lower)) == pytest.approx(1.0, abs=1e-8)
        assert float(np.sum(atoms.lower * atoms.ratios)) + atoms.infinite == pytest.approx(1.0, abs=1e-8)
        (pair,) = law.pairs()
        for one, zero in ((pair.upper, pair.lower), (pair.lower, pair.upper)):
            mixed = (1 - t) * zero + t * one
            for epsilon in (-1.0, -0.1, 0.0, 0.05, 0.5, 1.5):
                exact = hockey_stick(zero, mixed, epsilon) if reverse else hockey_stick(mixed, zero, epsilon)
                ours = float(np.sum(atoms.lower * np.maximum(atoms.ratios - math.exp(epsilon), 0.0))) + atoms.infinite
                assert exact <= ours + 1e-12


@pytest.mark.parametrize("law", [*LAWS, rr(30_000, 6e-4)], ids=str)
def test_both_laws_of_the_joined_pair_are_mirror_images(law: BitsumProtocol) -> None:
    """Lemma 3 needs it where rounding left masses beyond 1: E_Q[g] lies between −ι and 0 also then."""
    loss = loss_of(law)
    assert loss.masses * np.exp(-loss.losses()) == pytest.approx(loss.masses[::-1], rel=1e-12, abs=1e-300)
    for one in remainders(loss):
        assert -loss.infinite - 1e-14 <= float(one.lower @ one.gains) <= 1e-14


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("t", [0.3, 0.5, 0.9])
def test_moved_tables_dominate_bits_that_move_so_far_and_hardly_more(law: BitsumProtocol, t: float) -> None:
    (pair,) = law.pairs()
    mixed = Pair(upper=(1 - t) * pair.lower + t * pair.upper, lower=pair.lower, missing=pair.missing)
    wide, fine = (LossGrid.for_pair(one, n_compositions=1, negligible=1e-12) for one in (pair, mixed))
    moved, exact = ProfileTable.of_pair(pair, wide).moved(t, fine), ProfileTable.of_pair(mixed, fine)
    for ours, true in ((moved.forward, exact.forward), (moved.backward, exact.backward)):
        assert np.all(ours >= true - 1e-12)
        assert np.all(ours <= true + 2e-2 * true[0])
        assert true[0] > 0.01


def test_moved_tables_are_never_below_exact_ones_however_far_bits_move() -> None:
    """Random pairs, some outcomes of one law only, coarse grids: in rationals, up to relative 10⁻⁹."""
    rng = np.random.default_rng(9)
    for _ in range(200):
        upper, lower = np.exp(float(rng.choice([0.05, 0.5, 2.0, 6.0])) * rng.normal(size=(2, int(rng.integers(2, 7)))))
        upper[0] *= rng.random() < 0.5
        lower[-1] *= rng.random() < 0.5
        pair = Pair(upper=upper / np.sum(upper), lower=lower / np.sum(lower))
        t = float(rng.choice([1 - 1e-12, 1 - 1e-9, 0.999, 0.5, 0.1, 1e-3, 1e-9, 1e-12]))
        coarse = LossGrid.for_pair(pair, n_compositions=1, negligible=1e-9, steps_per_deviation=2)
        grid = LossGrid(step=float(np.exp(rng.uniform(-9.0, 0.5))), n_steps=30)
        moved, share = ProfileTable.of_pair(pair, coarse).moved(t, grid), Fraction(t)
        base = [Fraction(x) for x in pair.lower.tolist()]
        mixed = [(1 - share) * q + share * Fraction(p) for p, q in zip(pair.upper.tolist(), base, strict=True)]
        for i, (forward, backward) in enumerate(zip(moved.forward.tolist(), moved.backward.tolist(), strict=True)):
            gamma = Fraction(math.exp(i * grid.step))
            for ours, one, zero in ((forward, mixed, base), (backward, base, mixed)):
                true = sum((max(p - gamma * q, Fraction(0)) for p, q in zip(one, zero, strict=True)), Fraction(0))
                assert ours >= float(true) * (1.0 - 1e-9) - 1e-18


def test_equal_shifts_are_composed_as_losses_and_never_below_enumeration() -> None:
    """k = Δ²/T²: three bits, each of any corner of any data of the others, T = ½; and nearly attained."""
    law, p, k, t = rr(3, 0.25), Fraction(1, 4), 3, Fraction(1, 2)
    touched = shifting(k, k * 0.25, 0.5)
    assert touched.every_shift_may_be_largest
    ways = []
    for m in range(3):
        one, zero = (response_pairs(3, p)[m].upper, response_pairs(3, p)[m].lower)
        for first, second in ((one, zero), (zero, one)):
            mixed = tuple((a + b) * t for a, b in zip(first, second, strict=True))
            ways += [ExactPair(upper=mixed, lower=second), ExactPair(upper=second, lower=mixed)]
    worst = [compose(chosen) for chosen in itertools.combinations_with_replacement(ways, k)]
    for epsilon in (0.1, 0.5, 1.0):
        exact = float(max(pair.hockey_stick(Fraction(math.exp(epsilon))) for pair in worst))
        excess = Geometric().excess(law, touched, epsilon, 1e-3, certified=True)
        assert 0.01 < exact <= 1e-3 * math.exp(excess) <= 1.15 * exact


# --- Lemma 3: intervals of shifts -----------------------------------------------------------------


def random_gains(rng: np.random.Generator) -> tuple[Array, Array]:
    """g = P/Q − 1 in rising order and Q, with E_Q[g] ≤ 0: P may have mass where Q has none. Some with g = −1."""
    size = int(rng.integers(2, 9))
    upper, lower = rng.dirichlet(np.full(size, 0.7), size=2) + 1e-3
    if rng.random() < 0.4:
        upper[0] = 0.0
    upper *= (1.0 - rng.choice([0.0, 0.1])) / np.sum(upper)
    lower /= np.sum(lower)
    gains = upper / lower - 1.0
    order = np.argsort(gains)
    return gains[order], lower[order]


SOME_ORDERS = np.array([1.3, 1.7, 2.0, 2.5, 2.9, 3.1, 4.0, 9.0])


def truncated(gains: Array, lower: Array, t: float, cap: float, *, away: bool) -> tuple[float, Array]:
    """Mass lost by, and Σ p̂^α q^{1−α} of, p̂ = min(p, c·q), where c is the ratio p/q of an atom with g = cap."""
    mixed = lower * (1.0 + t * gains)
    upper, base = (lower, mixed) if away else (mixed, lower)
    kept = np.minimum(upper, base / (1.0 + t * cap) if away else base * (1.0 + t * cap))
    seen = base > 0.0
    moments = [math.fsum(kept[seen] ** a * base[seen] ** (1.0 - a)) for a in SOME_ORDERS]
    return math.fsum(upper - kept), np.array(moments)


def largest_cut(lost: Callable[[float], float], mass: float, uncut: float, all_cut: float) -> float:
    """The threshold that loses as much as it may, by bisection from the one that loses nothing."""
    for _ in range(60):
        middle = 0.5 * (uncut + all_cut)
        uncut, all_cut = (middle, all_cut) if lost(middle) <= mass else (uncut, middle)
    return uncut


@pytest.mark.parametrize("away", [False, True], ids=["toward", "away"])
@pytest.mark.parametrize("draws", [80, pytest.param(400, marks=pytest.mark.slow)])
def test_intervals_bound_every_shift_inside(away: bool, draws: int) -> None:
    """Random atoms, intervals, cuts: the mass lost and the moment at shifts inside, from p and q themselves.

    Somewhere the bound is as good as it can be: at the end of the last part it is that of the start of the part.
    """
    rng = np.random.default_rng(2 if away else 1)
    powers = 1.0 - SOME_ORDERS if away else SOME_ORDERS
    cut_some = tight = 0
    for _ in range(draws):
        gains, lower = random_gains(rng)
        if away:
            gains, lower = gains[::-1], lower[::-1]
        above = float(rng.choice([1.0, rng.uniform(0.02, 0.99)]))
        below = float(rng.choice([0.0, above * rng.uniform(), 0.98 * above]))
        middle = below + rng.uniform(0.2, 0.8) * (above - below)
        points, mass = np.array([below, middle, above]), float(10 ** rng.uniform(-3, -0.3))
        cuts = [Cut(0.0, 0.0), Cut(0.0, mass), Cut(mass, 0.1 * mass)]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            claimed = Remainders.of(gains, lower, powers).rates(points, cuts)
        for row, cut in zip(claimed, cuts, strict=True):
            infinite, caps = -float(lower @ gains), {}
            for start, end in itertools.pairwise(points.tolist()):

                def lost(cap: float, gains: Array = gains, lower: Array = lower, end: float = end) -> float:
                    beyond = float(lower @ np.maximum(cap - gains if away else gains - cap, 0.0))
                    return beyond / min(1.0, 1.0 + end * cap) if away and beyond > 0.0 else beyond

                caps[end] = largest_cut(lost, cut.per_unit(start), float(gains[-1]), float(gains[0]))
                cut_some += abs(caps[end] - gains[-1]) > 1e-3
            for t in [t for t in (below, middle, above, *rng.uniform(below, above, size=4)) if t > 0.0]:
                cap = caps[middle if t <= middle else above]
                if away and 1.0 + t * cap == 0.0:  # p has mass where q has none, and none of it may be lost
                    assert np.all(np.isinf(row))
                    continue
                really_lost, moments = truncated(gains, lower, t, cap, away=away)
                assert really_lost <= cut.per_unit(t) * t + 1e-12
                linear = (SOME_ORDERS - 1.0) * t * infinite if away else 0.0
                usable = np.isfinite(row)
                assert np.all(np.log(moments)[usable] <= (t**2 * row + linear)[usable] + 1e-9 * t)
                if cut == cuts[0] and t in (below, above) and below > 0.9 * above and infinite < 1e-12:
                    part = (above - below) / shifted.PARTS
                    tight += bool(np.any(np.log(moments)[usable] >= (1.0 - part / above) ** 2 * t**2 * row[usable]))
    assert cut_some > 0.15 * draws
    assert tight > 0.025 * draws


def test_moments_are_convex_or_concave_in_the_shift() -> None:
    """Lemma 3: ((1 + tg)^a − 1 − atg)/t² along t, by second differences; concave for 2 < a < 3 only."""
    rng, t = np.random.default_rng(5), np.linspace(0.05, 0.95, 40)
    powers = np.concatenate([SOME_ORDERS, 1.0 - SOME_ORDERS])
    for g in rng.uniform(-0.99, 5.0, size=50):
        table = np.array([remainder(powers, float(u), np.array([g]))[0] for u in t])
        second = np.diff(table, 2, axis=0)
        concave = (powers > 2.0) & (powers < 3.0)
        assert np.any(concave)
        noise = 1e-10 * np.max(np.abs(table), axis=0)
        assert np.all(np.where(concave, -second, second) >= -noise)


def test_neighboring_shifts_are_bounded_by_their_own_remainders() -> None:
    """All shifts near t = 1/2: nothing is lost but the linear term; P and Q = (0.4, 0.6) by hand."""
    gains, lower = np.array([-0.5, 1.0 / 3.0]), np.array([0.4, 0.6])
    assert float(lower @ gains) == pytest.approx(0.0)
    points = np.array([0.5 - 1e-7, 0.5, 0.5 + 1e-7])
    for powers, atoms in ((SOME_ORDERS, slice(None)), (1.0 - SOME_ORDERS, slice(None, None, -1))):
        (row,) = Remainders.of(gains[atoms], lower[atoms], powers).rates(points, [Cut(0.0, 0.0)])
        by_hand = np.log(0.4 * 0.75**powers + 0.6 * (7.0 / 6.0) ** powers) / 0.25
        assert row == pytest.approx(by_hand, rel=1e-6)


def test_a_cut_above_zero_is_charged_at_the_lower_end() -> None:
    """*Away*, g = ±½: cutting both to ½ loses ½t/(1 + t/2), at t = 1 a third, but near t = 0 half of t."""
    found = Remainders.of(np.array([0.5, -0.5]), np.array([0.5, 0.5]), 1.0 - SOME_ORDERS)
    kept, caps = found.threshold(1.0, np.array([0.0, 0.1, 0.4, 0.51]))
    assert kept.tolist() == [1, 1, 1, 0]
    assert caps == pytest.approx([-0.5, -0.4, -0.1, 0.5])  # 0.1·(1 − ½) = ½·(0.5 − 0.4), and so on
    points, cuts = np.array([0.0, 0.5, 1.0]), [Cut(0.0, mass) for mass in (0.0, 0.1, 0.4, 0.51)]
    uncut, little, cut, all_cut = found.rates(points, cuts)
    assert np.all((uncut > little) & (little > cut))
    assert all_cut == pytest.approx((1.0 - SOME_ORDERS) * -SOME_ORDERS / 8.0, rel=1e-12)  # largest near t = 0


def test_cuts_by_their_definition() -> None:
    gains, lower = np.array([-0.5, 0.0, 1.0, 3.0]), np.array([0.4, 0.35, 0.15, 0.1])
    found = Remainders.of(gains, lower, ORDERS)
    assert found.cuts == pytest.approx([1.5 * 0.15 + 0.5 * 0.35 + 3.5 * 0.1, 0.15 + 0.3, 0.2, 0.0])
    assert found.tails == pytest.approx([1.0, 0.6, 0.25, 0.1])
    kept, caps = found.threshold(1.0, np.array([0.0, 0.05, 0.2, 0.25, 2.0]))
    assert kept.tolist() == [3, 3, 2, 2, 0]
    assert caps == pytest.approx([3.0, 2.5, 1.0, 0.8, -0.5])
    limit = remainder(ORDERS, 0.0, gains)
    assert limit == pytest.approx(ORDERS * (ORDERS - 1.0) / 2.0 * gains[:, None] ** 2)
    assert remainder(ORDERS, 1e-8, gains) == pytest.approx(limit, rel=1e-3)


def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three wide intervals, never halved: valid too, and no error can hide behind a fine partition."""
    monkeypatch.setattr(shifted, "INTERVALS", 3)
    monkeypatch.setattr(shifted, "PARTS", 2)
    monkeypatch.setattr(shifted, "FIRST_INTERVALS", 3)
    monkeypatch.setattr(shifted, "ROUNDS", 0)


def whole(found: Rates) -> Array:
    """All orders."""
    return found.table(range(len(ORDERS) // BLOCK))


def known(table: Array) -> Rates:
    """Rates that were computed before."""
    return Rates(table[:, MIDDLES], lambda columns: table[:, columns])


@pytest.mark.parametrize("partition", ["coarse", "fine"])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_rates_bound_a_valid_cut_for_every_shift(
    law: BitsumProtocol, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K(α)·t² + (α−1)·t·ι ≥ ln M for the cut that loses all it may, from the corners themselves."""
    if partition == "coarse":
        coarse(monkeypatch)
    loss, largest = loss_of(law), 0.9
    cuts = (Cut(0.0, 0.0), Cut(1e-3, 0.0), Cut(0.02, 0.03))
    claimed = whole(rates(loss, largest, cuts))
    below_two = int(np.sum(ORDERS < 2.0))
    columns = [0, 1, below_two - 1, below_two, below_two + 1, 20, 30]
    assert np.all(np.isfinite(claimed[1:, :20]))
    tightest = math.inf
    for t in (1e-3, 0.01, 0.0181, 0.019, 0.05, 0.13, 0.2, 0.5, 0.7, 0.9):
        for atoms, (row, cut) in itertools.product(corners(loss, t), zip(claimed, cuts, strict=True)):
            upper = atoms.lower * atoms.ratios

            def lost(cap: float, upper: Array = upper, lower: Array = atoms.lower) -> float:
                return math.fsum(np.maximum(upper - cap * lower, 0.0))

            cap = largest_cut(lost, cut.per_unit(t) * t, float(np.max(atoms.ratios)), float(np.min(atoms.ratios)))
            ratios = np.minimum(atoms.ratios, cap)
            for column in columns:
                order = float(ORDERS[column])
                excess = math.fsum(atoms.lower * np.expm1(order * np.log(np.maximum(ratios, 1e-300))))
                ours = float(row[column]) * t**2 + (order - 1.0) * t * loss.infinite
                assert math.log1p(excess) <= ours * (1 + 1e-6) + 2e-12
                if math.isfinite(ours) and excess > 1e-9:
                    tightest = min(tightest, ours / math.log1p(excess))
    assert tightest < (1.2 if partition == "fine" else 8.0)


@pytest.mark.parametrize(
    ("cut", "least", "tolerance"),
    [
        pytest.param(Cut(0.0, 0.0), -1.0, 1e-9, id="uncut"),
        pytest.param(Cut(1.2, 0.0), -0.88, 1e-7, id="charged at the lower end"),
    ],
)
def test_two_intervals_by_hand(cut: Cut, least: float, tolerance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """g = ±1 with Q = ½ each (`infinite` is Q's share at −1), t in [0.1, 0.5] and [0.5, 0.9]: *away* is the larger.

    Its chord is above all that lies between. With b₂ = 1.2 the first interval may lose 1.2·0.1 per shift, the second
    1.2·0.5: cutting −1 at −0.88 loses ½·0.12/(1 − 0.5) and ½·0.12/(1 − 0.9).
    """
    points = np.array([0.1, 0.5, 0.9])
    monkeypatch.setattr(shifted, "shifts", lambda largest, intervals: points)
    monkeypatch.setattr(shifted, "PARTS", 1)
    loss = DominatingLoss(step=math.log(2.0), n_steps=1, masses=np.array([0.0, 0.0, 1.0]), infinite=0.5)
    (found,) = whole(rates(loss, 0.9, (cut,)))
    for column in (0, 10, 20, 30):
        a = 1.0 - float(ORDERS[column])
        low, middle, high = (0.5 * sum((1 + t * g) ** a - 1 - a * t * g for g in (least, 1.0)) / t**2 for t in points)
        by_hand = max(math.log1p(0.01 * max(low, middle)) / 0.01, math.log1p(0.25 * max(middle, high)) / 0.25)
        assert found[column] == pytest.approx(by_hand, rel=tolerance)


@pytest.mark.parametrize("gain", [-0.9, 4.0])
def test_a_concave_moment_by_hand(gain: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """One atom, a = 2.5: on each of two intervals the line through the ends of the other one."""
    monkeypatch.setattr(shifted, "PARTS", 1)
    (row,) = Remainders.of(np.array([gain]), np.ones(1), np.array([2.5])).rates(
        np.array([0.1, 0.5, 0.9]), [Cut(0.0, 0.0)]
    )
    low, middle, high = (((1 + t * gain) ** 2.5 - 1 - 2.5 * t * gain) / t**2 for t in (0.1, 0.5, 0.9))
    before, behind = 2 * middle - high, 2 * middle - low
    assert before > low
    assert behind > high
    by_hand = max(math.log1p(0.01 * max(before, middle)) / 0.01, math.log1p(0.25 * max(middle, behind)) / 0.25)
    assert row == pytest.approx(by_hand, rel=1e-9)


def test_a_missing_moment_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """At t = 1 an uncut g = −1 has no *away* moment; beside it, another cut has one."""
    monkeypatch.setattr(shifted, "shifts", lambda largest, intervals: np.array([0.1, 0.5, 1.0]))
    loss = DominatingLoss(step=math.log(2.0), n_steps=1, masses=np.array([0.0, 0.0, 1.0]), infinite=0.5)
    uncut, cut = whole(rates(loss, 1.0, (Cut(0.0, 0.0), Cut(11.0, 0.0))))
    assert np.all(np.isinf(uncut))
    assert np.all((cut > 0.1) & np.isfinite(cut))


def test_a_finer_partition_is_never_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, cuts = loss_of(rr(200, 0.1)), (Cut(1e-3, 0.0), Cut(1e-4, 1e-4))
    fine = whole(rates(loss, 1.0, cuts))
    coarse(monkeypatch)
    assert np.all(fine <= whole(rates(loss, 1.0, cuts)) * (1 + 1e-9))


@pytest.mark.parametrize(
    "epsilon", [0.05, 2.0, 30.0, *(pytest.param(one, marks=pytest.mark.slow) for one in (0.7, 6.0))]
)
def test_blocks_that_decide_are_computed_and_no_order_elsewhere_is_better(epsilon: float) -> None:
    """The lazy table against all orders; what was computed before must not change the bound."""
    fresh = bound_of(rr(2_000, 0.02), shifting(64, 1.0))
    value = any_data(fresh, epsilon)
    assert 0 < len(fresh.any_data.rates.computed) < len(ORDERS) // BLOCK
    rest = fresh.any_data
    everything = dataclasses.replace(rest, rates=known(whole(rest.rates)))
    assert any_data(fresh, epsilon) == value
    assert value == pytest.approx(float(np.min(everything.delta(1.0, np.array([epsilon])))))


def test_the_supremum_covers_everything_in_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bound marks one point: whatever is halved, some interval must still contain it."""
    points = shifts(0.7, shifted.FIRST_INTERVALS)
    assert points[0] == 0.0
    assert points[-1] == 0.7
    loose = []
    for rounds in range(6):
        monkeypatch.setattr(shifted, "ROUNDS", rounds)
        for target in (*np.linspace(0.0, 0.7, 301).tolist(), *points.tolist()):
            assert over_shifts(lambda u, v, t=target: float(u <= t <= v), 0.7) == 1.0  # type: ignore[misc]
        loose.append(over_shifts(lambda below, above: above - below**2, 0.7))
    assert loose == sorted(loose, reverse=True)
    assert 0.7 - 0.7**2 < loose[-1] < loose[0]


@pytest.mark.parametrize(
    ("function", "peak", "largest"),
    [(lambda t: t * (0.7 - t), 0.35, 0.35**2), (lambda t: -((t - 0.1) ** 2), 0.1, 0.0), (lambda t: 2.0, 0.0, 2.0)],
)
def test_the_supremum_of_exact_bounds_is_exact(function: Callable[[float], float], peak: float, largest: float) -> None:
    """By the bound of an interval that is its own supremum."""
    assert over_shifts(lambda below, above: function(min(max(peak, below), above)), 0.7) == pytest.approx(largest)


def test_an_infinite_supremum_stays_infinite() -> None:
    assert over_shifts(lambda below, above: math.inf if below > 0.5 else 1.0, 1.0) == math.inf


def test_cuts_add_up_to_what_may_be_spent() -> None:
    touched = shifting(50, 2.0)
    cut = Cut.spending(1e-7, touched, linear=0.5)
    assert cut.total(2.0, 50) == pytest.approx(1e-7)
    assert cut.per_square * 2.0 == pytest.approx(0.5e-7)
    for some in (np.full(50, 0.2), np.array([1.0, 1.0]), np.linspace(0.0, 0.34, 50)):
        assert float(np.sum(some**2)) <= 2.0 + 1e-9
        assert sum(cut.per_unit(float(t)) * t for t in some) <= cut.total(float(np.sum(some**2)), 50) * (1 + 1e-9)


# --- Lemma 2 and Theorem 1: conversion ------------------------------------------------------------


def converted(rate: Array, budget: float, epsilon: float) -> Array:
    """The bound of every order, by its formula."""
    exponents = [
        k * budget - (a - 1) * epsilon + (a - 1) * math.log(a - 1) - a * math.log(a)
        for a, k in zip(ORDERS.tolist(), rate.tolist(), strict=True)
    ]
    return np.array([math.exp(min(0.0, exponent)) for exponent in exponents])


def test_the_conversion_is_the_best_constant() -> None:
    """(x − e^ε)₊ ≤ x^α e^{−(α−1)ε} (α−1)^{α−1}/α^α with equality at x = e^ε α/(α−1)."""
    x = np.exp(np.linspace(-4.0, 8.0, 4001))
    for order, log_constant in list(zip(ORDERS, CONVERSION, strict=True))[::6]:
        for epsilon in (-1.0, 0.0, 2.0):
            log_scale = log_constant - (order - 1) * epsilon
            beyond = x[x > math.exp(epsilon)]
            assert np.all(np.log(beyond - math.exp(epsilon)) <= order * np.log(beyond) + log_scale + 1e-9)
            best = math.exp(epsilon) * order / (order - 1)
            assert math.log(best - math.exp(epsilon)) == pytest.approx(order * math.log(best) + log_scale, abs=1e-8)


@pytest.mark.parametrize("infinite", [0.0, 1e-3])
def test_theorem_1_by_its_formula(infinite: float) -> None:
    """b₂Δ² + b₁√kΔ + √kΔι + the conversion at ε − √kΔι, nearly the best order at every ε."""
    rate = 0.05 * ORDERS * (ORDERS - 1.0)
    cuts = (Cut(1e-5, 0.0), Cut(2e-5, 3e-6))
    rest = Rest(cuts=cuts, rates=known(np.array([rate, 1.1 * rate])), n_instances=16, infinite=infinite)
    for epsilon in (np.array([2.0]), np.linspace(-9.0, 6.0, 333)):
        found = rest.delta(0.25, epsilon)
        assert found.shape == (2, len(epsilon))
        for row, cut, factor in zip(found, cuts, (1.0, 1.1), strict=True):
            for value, e in zip(row, epsilon, strict=True):
                lost = 0.25 * cut.per_square + 2.0 * cut.per_shift + 2.0 * infinite
                choices = lost + converted(factor * rate, 0.25, e - 2.0 * infinite)
                assert np.min(np.abs(choices - value)) <= 1e-11  # the bound of some order
                assert value <= 1.1 * np.min(choices)


def test_orders_without_a_moment_claim_nothing() -> None:
    """inf − inf must not become a number that a maximum forgets."""
    rate = np.full((1, len(ORDERS)), math.inf)
    nothing = Rest(cuts=(Cut(0.0, 0.0),), rates=known(rate), n_instances=4, infinite=0.0)
    assert np.all(nothing.delta(1.0, np.array([0.0, 3.0, 50.0])) == 1.0)
    assert np.all(nothing.delta(0.0, np.array([1.0])) == 1.0)
    rate[0, 3] = 0.1
    something = dataclasses.replace(nothing, rates=known(rate))
    assert 0.0 < something.delta(1.0, np.array([3.0]))[0, 0] < 1.0


def test_a_last_digit_is_not_mass_that_no_cut_removes() -> None:
    """Here 1 − Σ Q is 1e-16, more than may be cut off: taken for mass at ratio 0, it left no moment at all."""
    touched, flips = shifting(32_768, 1820.8085515377775), (0.256, 0.258, 0.26, 0.262, 0.264)
    claimed = [any_data(bound_of(rr(30_000, p), touched, 1e-12), 2.0) for p in flips]
    assert claimed == sorted(claimed, reverse=True)
    assert 1e-14 < claimed[-1] < claimed[0] < 1e-12


def test_infinite_loss_is_charged_against_enumeration() -> None:
    """P has 5 % where Q has nothing, and the reverse: k = 1 … 3 instances of equal or unequal shifts."""
    one, zero = np.array([0.05, 0.40, 0.55, 0.0]), np.array([0.0, 0.55, 0.40, 0.05])
    pair = Pair(upper=one, lower=zero)
    grid = LossGrid.for_pair(pair, n_compositions=1, negligible=1e-12)
    table = ProfileTable.of_pair(pair, grid)
    loss = DominatingLoss.from_table(table.join(table.reversed()))
    assert loss.infinite == pytest.approx(0.05, abs=1e-6)
    for steps in ([0.7], [0.3, 0.3], [0.5, 0.1], [0.3, 0.3, 0.3]):
        square = sum(t * t for t in steps)
        touched = shifting(len(steps), square, max(steps))
        cuts = tuple(Cut.spending(mass, touched, linear=0.5) for mass in (0.0, 1e-3, 0.05))
        found = Rest.of(loss, touched, cuts).delta(square, np.array(EPSILONS))
        exact = np.zeros(len(EPSILONS))
        for flips in itertools.product((False, True), repeat=len(steps)):
            moved = [(1 - t) * zero + t * one for t in steps]
            upper = product([zero if flip else m for m, flip in zip(moved, flips, strict=True)])
            lower = product([m if flip else zero for m, flip in zip(moved, flips, strict=True)])
            exact = np.maximum(exact, [hockey_stick(upper, lower, epsilon) for epsilon in EPSILONS])
        assert np.all(exact <= found)
        assert exact[-1] > 0.01
        assert float(np.min(found[:, 1])) < 5.0 * exact[1]


# --- Theorem 2 ------------------------------------------------------------------------------------


def test_theorem_2_is_never_below_an_exact_composition() -> None:
    """n = 8 000, two coordinates: the others all at −e_1 (instance 1 quiet, instance 2 full of coins), or between."""
    n, p, delta = 8_000, 2e-3, 1e-4
    law = rr(n, p)
    found = bound_of(law, shifting(2, 1.0, ball=True), delta)
    gained = False

    def flipped(share: float) -> tuple[Array, Array]:
        """(A_1, A_0) with the others' bits Bern(share)."""
        values = binomial(n - 1, share * (1 - p) + (1 - share) * p).values
        same, up = np.concatenate([values, [0.0]]), np.concatenate([[0.0], values])
        return (1 - p) * up + p * same, (1 - p) * same + p * up

    for epsilon, place in itertools.product((1.0, 1.5, 2.0), (math.pi, 0.75 * math.pi)):
        first, second = (flipped(0.5 * (1.0 + v)) for v in (math.cos(place), math.sin(place)))
        generic, ball = any_data(found, epsilon), found._ball(epsilon)
        gained |= ball < generic
        assert found.delta(epsilon) == pytest.approx((1 + RELATIVE_PAD) * min(ball, generic), rel=1e-12)
        for angle in (0.0, 0.3, 0.8, 1.2):
            t, u = math.cos(angle), math.sin(angle)
            for a, b in ((0.0, t), (1 - t, 1.0), (t, 0.0), (1.0, 1 - t)):
                one = [q * first[0] + (1 - q) * first[1] for q in (a, b)]
                two = [(0.5 + s * u / 2) * second[0] + (0.5 - s * u / 2) * second[1] for s in (1, -1)]
                exact = hockey_stick(product([one[0], two[0]]), product([one[1], two[1]]), epsilon)
                assert exact <= min(ball, generic)
                if epsilon == 1.0 and angle == 0.0 and (a, b) == (0.0, t) and place == math.pi:
                    assert exact > 1e-6
                    assert ball < 1.2 * exact
    assert gained


def test_theorem_2_with_wide_intervals_is_valid_and_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide interval takes the corner at its upper end and the others' budget at its lower end."""
    found = bound_of(rr(30_000, 5.8e-4), shifting(768, 1.0, ball=True), 1e-6)
    fine = found._ball(2.0)
    coarse(monkeypatch)
    wide = found._ball(2.0)
    below = float(shifts(1.0, 3)[-2])
    rest, failure = coins(30_000, found.touched, found.any_data.cuts, every_order=False)
    by_hand = 0.0
    for atoms in corners(found.loss, 1.0):
        upper = atoms.lower * atoms.ratios
        seen = upper > 0.0
        remaining = rest.delta(1.0 - below**2, 2.0 - np.log(atoms.ratios[seen]))
        by_hand = max(by_hand, atoms.infinite + float(np.min(remaining @ upper[seen])))
    assert wide == pytest.approx(by_hand + failure, rel=1e-9)
    assert 8e-7 < fine < 0.99 * wide


def test_at_most_one_instance_lacks_coins() -> None:
    assert 2 * COIN_SHARE > NORM_SLACK**2


@pytest.mark.parametrize("n_users", [500, 30_000])
def test_coins_are_as_many_as_the_worst_data_leaves(n_users: int) -> None:
    """All others at (1, 1)/√2 but for the slack of the norm: s_j = 0.501 in both; fair coins from their exact law."""
    touched = shifting(768, 1.0, ball=True)
    cuts = (Cut.spending(4e-7, touched, linear=0.5), Cut(0.0, 0.0))
    rest, failure = coins(n_users, touched, cuts, every_order=False)
    share = 1.0 - math.sqrt(COIN_SHARE)
    enough = math.floor(0.87 * share * (n_users - 1))
    few = float(stats.binom.cdf(enough - 1, n_users - 1, share))
    assert 0.0 < 768 * few <= failure
    if n_users == 30_000:
        assert failure < 1e-20
    k = np.arange(enough + 1)
    law = stats.binom.pmf(k, enough, 0.5)
    ratios = (k[law > 0.0] / (enough + 1.0 - k[law > 0.0])) - 1.0
    divergence = float(law[law > 0.0] @ ratios**2)
    small = ORDERS < 6.0
    claimed = whole(rest.rates)[0][small] / (ORDERS * (ORDERS - 1.0) / 2.0 * divergence)[small]
    assert np.all((claimed > 0.99) & (claimed < (1.1 if n_users == 30_000 else 4.0)))


def test_too_few_coins_are_paid_for() -> None:
    """n = 2 000: some instance of four lacks coins with probability up to 3 %, far above all else at ε = 6."""
    found = bound_of(rr(2_000, 0.05), shifting(4, 1.0, ball=True), 1e-4)
    _, failure = coins(2_000, found.touched, found.any_data.cuts, every_order=False)
    assert failure == pytest.approx(4 * math.exp(-(0.13**2) / 2 * 1999 * (1 - math.sqrt(0.501))))
    assert 0.01 < failure <= found._ball(6.0) < 1.1 * failure


def test_an_unreachable_delta_is_not_claimed() -> None:
    """δ below the mass at infinity: nothing can be cut, and Theorem 2 must not vanish into nan."""
    found = bound_of(rr(30_000, 6e-4), shifting(768, 1.0, ball=True), 1e-18)
    assert 1e-7 < found.delta(2.0) <= 1.0


def test_peeling_counts_an_infinite_loss_as_one() -> None:
    rest = Rest(cuts=(Cut(0.0, 0.0),), rates=known(np.zeros((1, len(ORDERS)))), n_instances=2, infinite=0.0)
    atoms = Atoms(np.array([0.0, 1.0]), np.array([0.25, 0.75]), 0.25)
    assert geometric._peeled(atoms, rest, 1.0, 60.0) == pytest.approx(0.25)
    quarter = float(rest.delta(1.0, np.array([1.0]))[0, 0])
    assert geometric._peeled(atoms, rest, 1.0, 1.0) == pytest.approx(0.25 + 0.75 * quarter)


# --- laws of the bound ----------------------------------------------------------------------------


def test_more_shift_less_noise_and_fewer_users_cost_more() -> None:
    """For n at a fixed p too: further reports can be handed to the adversary. Up to 5 %: thresholds lie on a grid."""

    def claimed(n: int = 200, p: float = 0.09, square: float = 1.0) -> float:
        return bound_of(rr(n, p), shifting(100, square), 1e-5).delta(1.5)

    usual = claimed()
    for values in (
        [claimed(square=0.25), claimed(square=0.98), usual, claimed(square=2.0), claimed(square=4.0)],
        [claimed(p=0.12), claimed(p=0.091), usual, claimed(p=0.06)],
        [claimed(n=270), claimed(n=202), usual, claimed(n=150)],
    ):
        assert 0.0 < values[0] < 1.0
        assert all(a <= b * 1.05 for a, b in itertools.pairwise(values))
        assert values[-1] > 1.5 * values[0]


def test_the_number_of_instances_hardly_matters() -> None:
    few, many = (bound_of(rr(200, 0.09), shifting(k, 1.0), 1e-5).delta(1.5) for k in (4, 4000))
    assert few <= many * 1.05 <= 1.6 * few


def test_a_smaller_largest_shift_is_never_worse() -> None:
    some, all_of_it = (bound_of(rr(200, 0.09), shifting(100, 1.0, t), 1e-5).delta(1.5) for t in (0.3, 1.0))
    assert 0.0 < some <= 1.05 * all_of_it


# --- numbers --------------------------------------------------------------------------------------


@cache
def ball_plan() -> RandomizedResponse:
    touched = kernel_named("inner-product").facts(dim=768).touched
    assert touched.unit_ball
    found = Target(rung=Geometric(), touched=touched, epsilon=2.0, delta=1e-6).calibrate(
        partial(RandomizedResponse.with_rmse, n_users=30_000), certified=True
    )
    assert isinstance(found, RandomizedResponse)
    return found


def test_noise_at_30_000_users() -> None:
    """docs/proofs/geometric.md: 6.32e-4 for any data, 5.764e-4 in the ball, where 5.763e-4 is necessary."""
    generic = shifting(768, NORM_SLACK**2)
    assert Geometric().excess(rr(30_000, 6.4e-4), generic, 2.0, 1e-6, certified=True) <= 0.0
    assert Geometric().excess(rr(30_000, 6.2e-4), generic, 2.0, 1e-6, certified=True) > 0.0
    assert 5.76e-4 < ball_plan().flip_probability <= 5.78e-4


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (0.02, 1e-5),
        pytest.param(0.1, 1e-6, marks=pytest.mark.slow),
        pytest.param(0.25, 1e-5, marks=pytest.mark.slow),
        pytest.param(1.0, 1e-6, marks=pytest.mark.slow),
        (4.0, 1e-9),
    ],
)
def test_spread_out_shifts_need_little_more_noise_than_a_trusted_analyzer(epsilon: float, delta: float) -> None:
    """Δ² = 30 over 384 bits, 60,000 users: at most 15 % more than the Gaussian mechanism, at small ε, too."""
    target = Target(
        rung=Geometric(), touched=Touched(groups=384, per_group=1, squared_shift=30.0), epsilon=epsilon, delta=delta
    )
    found = target.calibrate(partial(PoissonNoise.with_rmse, n_users=60_000), certified=False, tolerance=2e-3)
    central = GaussianMechanism.calibrate(epsilon, delta, math.sqrt(30.0)).standard_deviation
    assert central < found.rmse() < 1.15 * central


def test_a_fifth_less_noise_is_refuted() -> None:
    """One coordinate with t = 1 and all others at the other end is a pair of inputs like any other."""
    plan = ball_plan()
    assert 0.9e-6 < plan.delta(2.0) <= 1e-6
    assert rr(30_000, 0.8 * plan.flip_probability).likely_delta(2.0) > 5e-6


# --- shifts of the kernels ------------------------------------------------------------------------


def climbed(choice: KernelChoice, rng: np.random.Generator, steps: int = 60) -> tuple[Array, float]:
    """Σ t² of random pairs of unit vectors, then of the best ones after hill climbing; and the largest t."""
    family = choice.build(SEED)
    dim = choice.dim

    def unit(z: Array) -> Array:
        return np.asarray(z / np.linalg.norm(z, axis=1, keepdims=True))

    def shifts(z: Array) -> Array:
        q = 0.5 * (1.0 + family.scaled_features(z).astype(np.float64))
        return np.asarray(np.abs(q[: len(z) // 2] - q[len(z) // 2 :]))

    half = unit(rng.normal(size=(20, dim)))
    z = np.concatenate([half, np.concatenate([-half[:10], unit(rng.normal(size=(10, dim)))])])
    best = np.sum(shifts(z) ** 2, axis=1)
    for _ in range(steps):
        trial = unit(z + 0.3 * rng.normal(size=z.shape) / math.sqrt(dim))
        value = np.sum(shifts(trial) ** 2, axis=1)
        better = np.tile(value > best, 2)
        z, best = np.where(better[:, None], trial, z), np.maximum(best, value)
    return best, float(np.max(shifts(z)))


@pytest.mark.parametrize(
    "choice",
    [
        KernelChoice(name="inner-product", dim=6),
        KernelChoice(name="inner-product", dim=48, bound=0.3),
        KernelChoice(name="inner-product", dim=48, bound=0.9),
        KernelChoice(name="laplacian", dim=3, repetitions=12, bias=0.25),
        KernelChoice(name="exponential", dim=3, repetitions=12, bias=0.25),
    ],
    ids=lambda choice: f"{choice.name}-{choice.bound}",
)
def test_squared_shifts_of_a_kernel_stay_within_its_facts(choice: KernelChoice) -> None:
    facts = choice.facts()
    found, largest = climbed(choice, np.random.default_rng(5))
    assert facts.squared_shift is not None
    assert np.max(found) <= facts.squared_shift <= facts.touched.total
    assert largest <= facts.largest_shift + 1e-6
    idle = 0.99 if choice.name == "inner-product" and choice.bound != 0.3 else 0.6
    assert np.max(found) > idle * facts.squared_shift


def test_only_the_unrotated_ball_counts_coins() -> None:
    assert kernel_named("inner-product").facts(dim=8).unit_ball
    for name, bound in (("inner-product", 0.5), ("gaussian", None), ("laplacian", None)):
        assert not kernel_named(name).facts(dim=8, bound=bound).unit_ball
    assert kernel_named("gaussian").facts(dim=8).touched.shift_budget == 8.0


def test_clipping_bias_is_what_clipping_takes_away_on_average() -> None:
    """d = 256, R√d = 1.5, mean over 400 random unit vectors; a prediction, so 5 % is close."""
    choice = KernelChoice(name="inner-product", dim=256, bound=1.5 / 16)
    x = np.random.default_rng(3).normal(size=(400, 256))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    family = choice.build(SEED)
    kept = choice.facts().bound * np.sum(family.scaled_features(x) * family.query_features(x), axis=1)
    assert 1.0 - float(np.mean(kept)) == pytest.approx(clipping_bias(256, 1.5 / 16), rel=0.05)
    assert clipping_bias(256, 1.0) == 0.0


def test_the_chosen_bound_balances_rounding_and_clipping() -> None:
    assert chosen_bound(1, 1000) == 1.0
    few, many = chosen_bound(768, 1_000), chosen_bound(768, 1_000_000)
    assert 1 / math.sqrt(768) < few < many < 6 / math.sqrt(768)


# --- requests -------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"users": 1500, "dim": 16, "epsilon": 2.0, "delta": 1e-5}


def test_delta_zero_and_pure_are_refused() -> None:
    with pytest.raises(InfeasibleError, match="delta > 0"):
        Geometric().excess(rr(10, 0.2), shifting(2, 1.0), 1.0, 0.0, certified=True)
    with pytest.raises(InfeasibleError, match="delta > 0"):
        Geometric().achieved_epsilon(rr(10, 0.2), shifting(2, 1.0), 0.0)
    asked = PlanRequest(**{**SMALL, "kernel": "inner-product", "bitsum": Pure.name, "accountant": "geometric"})
    with pytest.raises(InvalidInputError, match="pure"):
        choose(asked)


@pytest.mark.parametrize(("kernel", "rung"), [("inner-product", "geometric"), ("gaussian", "pld")])
def test_auto_takes_the_rung_of_least_noise(kernel: str, rung: str) -> None:
    _, chosen, _ = choose(PlanRequest(**{**SMALL, "kernel": kernel, "allow_useless": True}), certified=False)
    assert chosen.name == rung


@pytest.mark.parametrize("bound", [0.0, -1.0, 1.5, math.nan, True, "1"])
def test_a_bound_lies_between_zero_and_one(bound: object) -> None:
    with pytest.raises(InvalidInputError, match="bound"):
        PlanRequest(**{**SMALL, "kernel": "inner-product", "bound": bound})


def test_only_identity_features_take_a_bound() -> None:
    with pytest.raises(InvalidInputError, match="inner-product"):
        PlanRequest(**{**SMALL, "kernel": "gaussian", "bound": 0.5})
    asked = partial(PlanRequest, **{**SMALL, "kernel": "inner-product"})
    assert asked(bound=0.5).facts().bound == 0.5
    assert asked(accountant="geometric").facts().bound == chosen_bound(16, 1500)
    assert asked(accountant="pld").facts().bound == 1.0


def test_the_contract_names_what_the_others_must_do() -> None:
    def assumed(bound: float | None) -> str:
        facts = kernel_named("inner-product").facts(dim=4, bound=bound)
        contract = kde_contract(facts, rr(100, 0.2), Geometric(), epsilon=1.0, delta=1e-5, instance_point=(1.0, 1e-5))
        return " ".join(contract.assumed)

    assert "clients of all users counted on" in assumed(None)
    assert "clients of all users counted on" not in assumed(0.5)
    assert "target's client" in assumed(0.5)
