"""Geometric accounting: never below enumeration, corners and rates against their definitions, shifts of the kernels."""

import itertools
import math
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from accounting.choosing import choose
from accounting.composition import Geometric, Touched
from accounting.composition.geometric import (
    COIN_SHARE,
    ORDERS,
    Atoms,
    Cut,
    GeometricBound,
    corners,
    log_moments,
    rest_delta,
    small_shift_rates,
)
from accounting.contracts import kde_contract
from accounting.designs import Target
from accounting.errors import InfeasibleError, InvalidInputError
from accounting.kernels import NORM_SLACK, chosen_bound, clipping_bias, kernel_facts
from accounting.mechanisms import BitsumProtocol, PoissonNoise, Pure, RandomizedResponse
from accounting.pmf import Array, binomial, poisson
from accounting.profile import DominatingLoss
from accounting.request import PlanRequest
from privkde.kernels import KernelChoice
from verification.exact import response_pairs

EPSILONS = (0.0, 0.3, 1.0, 2.0, 4.0)
SEED = "0123456789abcdef0123456789abcdef"


def rr(n_users: int, p: float | Fraction) -> RandomizedResponse:
    return RandomizedResponse(n_users=n_users, flip_probability=float(p))


def shifting(total: int, square: float | None, largest: float = 1.0, *, ball: bool = False) -> Touched:
    return Touched(groups=total, per_group=1, squared_shift=square, largest_shift=largest, unit_ball=ball)


def bound_of(law: BitsumProtocol, touched: Touched, delta: float = 1e-3) -> GeometricBound:
    return GeometricBound.of(law, touched, delta, certified=True)


def hockey_stick(upper: Array, lower: Array, epsilon: float) -> float:
    return float(np.sum(np.maximum(upper - math.exp(epsilon) * lower, 0.0)))


def product(laws: list[Array]) -> Array:
    joint = np.ones(1)
    for law in laws:
        joint = np.multiply.outer(joint, law).ravel()
    return joint


# --- against enumeration --------------------------------------------------------------------------


def pairs_of_probabilities(shifts: list[float]) -> list[tuple[list[float], list[float]]]:
    """(q, q') with the given shifts: both corners and the middle in every instance, both signs."""
    places = [[(0.0, t), (1.0 - t, 1.0), (0.5 - t / 2, 0.5 + t / 2)] for t in shifts]
    found = []
    for choice in itertools.product(*places):
        for signs in itertools.product((False, True), repeat=len(shifts)):
            moved = [(b, a) if flip else (a, b) for (a, b), flip in zip(choice, signs, strict=True)]
            found.append(([a for a, _ in moved], [b for _, b in moved]))
    return found


def response_laws(n_users: int, p: Fraction) -> list[tuple[Array, Array]]:
    """(A_1, A_0) for every number of ones among the others, from fractions."""
    return [
        (np.array([float(x) for x in pair.upper]), np.array([float(x) for x in pair.lower]))
        for pair in response_pairs(n_users, p)
    ]


def largest_delta(laws: list[tuple[Array, Array]], shifts: list[float]) -> Array:
    """sup over the others' data in each instance and over (q, q') of the composed hockey stick, for all EPSILONS."""
    worst = np.zeros(len(EPSILONS))
    for data in itertools.product(laws, repeat=len(shifts)):
        for q, moved in pairs_of_probabilities(shifts):
            upper = product([a * one + (1 - a) * zero for a, (one, zero) in zip(q, data, strict=True)])
            lower = product([b * one + (1 - b) * zero for b, (one, zero) in zip(moved, data, strict=True)])
            worst = np.maximum(worst, [hockey_stick(upper, lower, epsilon) for epsilon in EPSILONS])
    return worst


SHAPES = [
    (2, 1, [[1.0]]),
    (2, 3, [[0.577, 0.577, 0.577], [0.9, 0.3, 0.3], [1.0, 0.0, 0.0]]),
    (3, 2, [[0.7071, 0.7071], [0.95, 0.3], [1.0, 0.001]]),
    (6, 2, [[0.7, 0.7], [0.99, 0.1]]),
    (2, 4, [[0.5, 0.5, 0.5, 0.5]]),
]


@pytest.mark.parametrize("p", [Fraction(1, 8), Fraction(3, 8)])
@pytest.mark.parametrize(("n_users", "total", "candidates"), SHAPES)
def test_never_below_enumeration(n_users: int, total: int, candidates: list[list[float]], p: Fraction) -> None:
    """Every dataset of the others, corners and middles of (q, q'), whatever δ the bound was prepared for."""
    square = max(sum(t * t for t in shifts) for shifts in candidates)
    laws = response_laws(n_users, p)
    exact = np.max([largest_delta(laws, shifts) for shifts in candidates], axis=0)
    assert exact[0] > 0.05
    for delta in (1e-6, 1e-3, 0.1):
        found = bound_of(rr(n_users, p), shifting(total, square), delta)
        claimed = np.array([found.delta(epsilon) for epsilon in EPSILONS])
        assert np.all(exact <= claimed)
        assert np.all(np.diff(claimed) <= 0.0)
        if delta == 1e-3 and p == Fraction(3, 8):
            assert np.min(claimed / np.maximum(exact, 1e-300)) < 20.0  # not vacuous
            assert np.min(claimed) < 0.5


def test_never_below_enumeration_with_poisson_noise() -> None:
    """A law on all integers: what the enumeration cuts off can only lower it."""
    law = PoissonNoise(n_users=4, total_mean=9.0)
    noise = poisson(9.0).values[:60]
    one, zero = np.concatenate([[0.0], noise]), np.concatenate([noise, [0.0]])
    for shifts in ([0.7071, 0.7071], [1.0, 0.0], [0.9, 0.43]):
        exact = largest_delta([(one, zero)], shifts)
        found = bound_of(law, shifting(2, 1.0), 1e-2)
        claimed = np.array([found.delta(epsilon) for epsilon in EPSILONS])
        assert np.all(exact <= claimed)
        assert 0.0 < exact[2] <= claimed[2] < 3.0 * exact[2] + 0.1


def test_theorem_2_is_never_below_an_exact_composition() -> None:
    """n = 8 000, two coordinates; the others all at −e_1, so that instance 1 is quiet and instance 2 full of coins."""
    n, p, delta = 8_000, 2e-3, 1e-4
    law, touched = rr(n, p), shifting(2, 1.0, ball=True)
    found = bound_of(law, touched, delta)
    quiet = law.pair(0)
    coins = binomial(n - 1, 0.5).values
    same, up = np.concatenate([coins, [0.0]]), np.concatenate([[0.0], coins])
    loud = ((1 - p) * up + p * same, (1 - p) * same + p * up)
    gained = False
    for epsilon in (1.0, 1.5, 2.0):
        generic, ball = found._any_data(epsilon), found._ball(epsilon)
        gained |= ball < generic
        for angle in (0.0, 0.3, 0.8, 1.2):
            t, u = math.cos(angle), math.sin(angle)
            for a, b in ((0.0, t), (1 - t, 1.0), (t, 0.0), (1.0, 1 - t)):
                first = a * quiet.upper + (1 - a) * quiet.lower
                moved = b * quiet.upper + (1 - b) * quiet.lower
                second = [(0.5 + s * u / 2) * loud[0] + (0.5 - s * u / 2) * loud[1] for s in (1, -1)]
                exact = hockey_stick(product([first, second[0]]), product([moved, second[1]]), epsilon)
                assert exact <= min(ball, generic)
                if epsilon == 1.0 and angle == 0.0 and (a, b) == (0.0, t):
                    assert exact > 1e-6
    assert gained


def test_at_most_one_instance_lacks_coins() -> None:
    assert 2 * COIN_SHARE > NORM_SLACK**2


# --- pieces ---------------------------------------------------------------------------------------


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


def moment(atoms: Atoms, order: float) -> float:
    return math.fsum((atoms.lower * np.expm1(order * np.log(np.maximum(atoms.ratios, 1e-300)))).tolist())


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_small_shifts_are_bounded_for_all_orders(law: BitsumProtocol) -> None:
    """Also below order 2, where the remainder falls with t for g > 0 instead of rising."""
    loss = loss_of(law)
    largest = 0.05
    claimed = small_shift_rates(loss, largest)
    below_two = int(np.sum(ORDERS < 2.0))
    assert below_two > 2
    columns = [0, 1, below_two - 1, below_two, below_two + 1, 20, 40, len(ORDERS) - 1]
    tightest = math.inf
    for t in (1e-3, 5e-3, 0.02, 0.05):
        for atoms in corners(loss, t):
            for column in columns:
                true = moment(atoms, float(ORDERS[column])) / t**2
                assert true <= float(claimed[column]) * (1 + 1e-6) + 1e-6
                tightest = min(tightest, float(claimed[column]) / max(true, 1e-300))
    assert tightest < 1.2


def test_truncated_moments_by_their_definition() -> None:
    atoms = Atoms(np.array([0.5, 1.0, 2.0, 4.0]), np.array([0.4, 0.35, 0.15, 0.0375]), 0.0)
    upper = atoms.lower * atoms.ratios
    for allowed, cap in ((0.0, 4.0), (0.08, 2.0), (0.4, 1.0)):
        kept = np.minimum(upper, cap * atoms.lower)
        assert float(np.sum(upper - kept)) <= allowed + 1e-12
        direct = np.array([float(np.sum(kept**a * atoms.lower ** (1 - a))) for a in ORDERS]) + (1 - sum(atoms.lower))
        (found,) = log_moments(atoms, [allowed])
        assert found == pytest.approx(np.maximum(np.log(direct), 0.0), abs=1e-12)
    assert np.all(np.isinf(log_moments(Atoms(atoms.ratios, atoms.lower, 1e-3), [1e-4])))


def test_excess_mass_counts_as_moment() -> None:
    atoms = Atoms(np.array([1.0]), np.array([1.0 + 1e-6]), 0.0)
    assert log_moments(atoms, [0.0])[0] == pytest.approx(np.full(len(ORDERS), 1e-6), rel=1e-3)


def test_orders_without_a_moment_claim_nothing() -> None:
    """inf − inf must not become a number that a maximum forgets."""
    rate = np.full(len(ORDERS), math.inf)
    assert np.all(rest_delta(rate, 1.0, np.array([0.0, math.inf])) == 1.0)
    assert float(rest_delta(rate, 0.0, 1.0)) == 1.0
    rate[3] = 0.1
    assert 0.0 < float(rest_delta(rate, 1.0, 3.0)) < 1.0


def test_an_unreachable_delta_is_not_claimed() -> None:
    """δ below the mass at infinity: nothing can be cut, and Theorem 2 must not vanish into nan."""
    found = bound_of(rr(30_000, 6e-4), shifting(768, 1.0, ball=True), 1e-18)
    assert 1e-7 < found.delta(2.0) <= 1.0


def test_cuts_add_up_to_what_may_be_spent() -> None:
    touched = shifting(50, 2.0)
    cut = Cut.spending(1e-7, touched, linear=0.5)
    assert cut.total(2.0, 50) == pytest.approx(1e-7)
    for shifts in (np.full(50, 0.2), np.array([1.0, 1.0]), np.linspace(0.0, 0.34, 50)):
        assert float(np.sum(shifts**2)) <= 2.0 + 1e-9
        assert sum(cut.allowed(float(t)) for t in shifts) <= 1e-7 * (1 + 1e-9)


# --- laws of the bound ----------------------------------------------------------------------------


def test_more_shift_less_noise_and_fewer_users_cost_more() -> None:
    """For n at a fixed p too: further reports can be handed to the adversary. Up to the grid, 0.1 %."""

    def claimed(n: int = 2000, p: float = 0.008, square: float = 1.0) -> float:
        return bound_of(rr(n, p), shifting(100, square), 1e-5).delta(1.5)

    for values in (
        [claimed(square=s) for s in (0.25, 0.5, 1.0, 2.0, 4.0)],
        [claimed(p=p) for p in (0.012, 0.01, 0.008, 0.006, 0.004)],
        [claimed(n=n) for n in (4000, 3000, 2000, 1500)],
    ):
        assert 0.0 < values[0] < 1.0
        assert all(a <= b * 1.001 for a, b in itertools.pairwise(values))
        assert values[-1] > 1.5 * values[0]


def test_the_number_of_instances_hardly_matters() -> None:
    few, many = (bound_of(rr(2000, 0.01), shifting(k, 1.0), 1e-5).delta(1.5) for k in (4, 4000))
    assert few <= many <= 1.5 * few


# --- numbers --------------------------------------------------------------------------------------


@cache
def ball_plan() -> RandomizedResponse:
    touched = kernel_facts("inner-product", dim=768).touched
    assert touched.unit_ball
    found = Target(rung=Geometric(), touched=touched, epsilon=2.0, delta=1e-6).calibrate(
        partial(RandomizedResponse.with_rmse, n_users=30_000), certified=True
    )
    assert isinstance(found, RandomizedResponse)
    return found


def test_noise_at_30_000_users() -> None:
    """redteam.md: 6.43e-4 for any data, 5.77e-4 in the ball, where 5.76e-4 is necessary; published 0.489."""
    generic = shifting(768, NORM_SLACK**2)
    assert Geometric().excess(rr(30_000, 6.6e-4), generic, 2.0, 1e-6, certified=True) <= 0.0
    assert Geometric().excess(rr(30_000, 5.75e-4), generic, 2.0, 1e-6, certified=True) > 0.0
    assert 5.75e-4 < ball_plan().flip_probability < 5.8e-4


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
    assert kernel_facts("inner-product", dim=8).unit_ball
    for name, bound in (("inner-product", 0.5), ("gaussian", None), ("laplacian", None)):
        assert not kernel_facts(name, dim=8, bound=bound).unit_ball
    assert kernel_facts("gaussian", dim=8).touched.shift_budget == 8.0


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
    assert asked().facts().bound == asked(accountant="pld").facts().bound == 1.0


def test_the_contract_names_what_the_others_must_do() -> None:
    def assumed(bound: float | None) -> str:
        facts = kernel_facts("inner-product", dim=4, bound=bound)
        contract = kde_contract(facts, rr(100, 0.2), Geometric(), epsilon=1.0, delta=1e-5, instance_point=(1.0, 1e-5))
        return " ".join(contract.assumed)

    assert "clients of all users counted on" in assumed(None)
    assert "clients of all users counted on" not in assumed(0.5)
    assert "target's client" in assumed(0.5)
