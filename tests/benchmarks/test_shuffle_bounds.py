"""Published shuffle bounds as peers: never below the exact law, and equal to what enumeration gives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest
from hypothesis import given

from accounting.mechanisms import RandomizedResponse
from accounting.numerics.pmf import binomial
from accounting.numerics.profile import smallest_epsilon
from benchmarks.peers.amplification import PUBLISHED, Bound, bounded, least_flip
from benchmarks.peers.blanket import Blanket, bennett, hoeffding
from benchmarks.peers.clones import clone_delta, clones, stronger_clones
from benchmarks.peers.closed_forms import (
    OutsideDomainError,
    cheu,
    clones_closed,
    erlingsson,
    girgis,
    renyi_bound,
    stronger_closed,
)
from tests.strategies import dyadic_flip_probabilities, user_counts

GRID = [
    (n, p, delta) for n in (60, 1_000, 4_000) for p in (0.02, 0.15, 0.3, 0.4, 0.47) for delta in (1e-3, 1e-6, 1e-10)
]
BOUNDS = {one.name: one.bound for one in PUBLISHED}


def rr(users: int, flip: float) -> RandomizedResponse:
    return RandomizedResponse(n_users=users, flip_probability=flip)


@cache
def exact_epsilon(users: int, flip: float, delta: float) -> float:
    return rr(users, flip).epsilon(delta)


@cache
def published(name: str, users: int, flip: float, delta: float) -> float | None:
    return bounded(BOUNDS[name], rr(users, flip), delta)


@pytest.mark.parametrize("name", BOUNDS)
def test_no_published_bound_is_below_the_exact_law(name: str) -> None:
    applicable = 0
    for users, flip, delta in GRID:
        found = published(name, users, flip, delta)
        if found is not None:
            exact = exact_epsilon(users, flip, delta)
            assert found >= exact * (1.0 - 1e-6), (users, flip, delta)
            applicable += exact > 0.0
    assert applicable >= 6  # else nothing was compared


def test_too_many_clones_fall_below_the_exact_law() -> None:
    """Negative control of the test above: coins of which there are not so many would promise too much."""
    users, flip, delta = 1_000, 0.15, 1e-6
    coins = binomial(users - 1, 4.2 * flip)
    wrong = smallest_epsilon(lambda epsilon: clone_delta(coins, 1.0 - flip, epsilon), delta)
    assert wrong < 0.99 * rr(users, flip).epsilon(delta)


def outcomes(users: int, coin: Fraction, likely: Fraction) -> Iterator[tuple[tuple[int, int], Fraction, Fraction]]:
    """Every outcome (ones, zeros) of the clone pair with its two probabilities, from the definition."""
    laws: dict[tuple[int, int], list[Fraction]] = {}
    for clone_count in range(users):
        mass = math.comb(users - 1, clone_count) * coin**clone_count * (1 - coin) ** (users - 1 - clone_count)
        for ones, target in itertools.product(range(clone_count + 1), (0, 1)):
            share = mass * Fraction(math.comb(clone_count, ones), 2**clone_count)
            both = (likely, 1 - likely) if target else (1 - likely, likely)
            seen = laws.setdefault((ones + target, clone_count - ones + 1 - target), [Fraction(0), Fraction(0)])
            for direction in (0, 1):
                seen[direction] += share * both[direction]
    yield from ((outcome, first, second) for outcome, (first, second) in laws.items())


@given(users=user_counts(7), flip=dyadic_flip_probabilities(), coin=dyadic_flip_probabilities())
def test_the_clone_pair_is_what_enumeration_gives(users: int, flip: Fraction, coin: Fraction) -> None:
    for growth in (Fraction(1), Fraction(9, 8), Fraction(2)):
        exact = sum(max(first - growth * second, Fraction(0)) for _, first, second in outcomes(users, coin, 1 - flip))
        found = clone_delta(binomial(users - 1, float(coin)), 1.0 - float(flip), math.log(growth))
        assert found == pytest.approx(float(exact), rel=1e-7, abs=1e-14)
        assert found >= float(exact) * (1.0 - 1e-12)


@given(users=user_counts(9), flip=dyadic_flip_probabilities())
def test_stronger_clones_are_the_blanket_with_its_expectation_exact(users: int, flip: Fraction) -> None:
    """Lemma 5.3 of Balle et al., with E[L₁ + … + L_m]_+ enumerated, is another way to the same number."""
    for growth in (Fraction(9, 8), Fraction(2)):
        high, low = 2 * (1 - flip) - 2 * flip * growth, 2 * flip - 2 * (1 - flip) * growth
        total, weight = Fraction(0), 2 * flip
        for members in range(1, users + 1):
            expected = sum(
                Fraction(math.comb(members, heads), 2**members)
                * max(heads * high + (members - heads) * low, Fraction(0))
                for heads in range(members + 1)
            )
            chance = math.comb(users, members) * weight**members * (1 - weight) ** (users - members)
            total += chance * expected / (weight * users)
        found = clone_delta(binomial(users - 1, float(weight)), 1.0 - float(flip), math.log(growth))
        assert found == pytest.approx(float(total), rel=1e-7, abs=1e-14)


@pytest.mark.parametrize(("users", "flip", "delta"), GRID)
def test_simpler_is_looser(users: int, flip: float, delta: float) -> None:
    """Any randomizer ≥ this one; closed form ≥ numerical; a concentration inequality ≥ the expectation itself."""
    found = {name: published(name, users, flip, delta) for name in BOUNDS}
    for looser, tighter in (
        ("clones, numerical", "stronger clones, numerical"),
        ("clones, closed form", "clones, numerical"),
        ("stronger clones, closed form", "stronger clones, numerical"),
        ("clones, closed form", "stronger clones, closed form"),
        ("blanket for RR, Hoeffding", "stronger clones, numerical"),
        ("blanket for RR, Bennett", "stronger clones, numerical"),
        ("blanket, Hoeffding", "blanket for RR, Hoeffding"),
        ("blanket, Bennett", "blanket for RR, Bennett"),
    ):
        above, below = found[looser], found[tighter]
        assert above is None or below is None or above >= below * (1.0 - 1e-9), (looser, tighter)
    assert found["clones, numerical"] is not None


@pytest.mark.parametrize("name", BOUNDS)
def test_more_users_and_more_flips_never_hurt(name: str) -> None:
    delta = 1e-6
    for steps in (
        [rr(users, 0.4) for users in (2_000, 8_000, 32_000)],
        [rr(20_000, flip) for flip in (0.1, 0.2, 0.3, 0.4, 0.45)],
    ):
        found = [value for one in steps if (value := bounded(BOUNDS[name], one, delta)) is not None]
        assert len(found) >= 2
        assert all(later <= earlier for earlier, later in itertools.pairwise(found))


def erlingsson_by_hand(users: int, ratio: mpmath.mpf, delta: mpmath.mpf) -> mpmath.mpf:
    return 12 * mpmath.log(ratio) * mpmath.sqrt(mpmath.log(1 / delta) / users)


def clones_by_hand(users: int, ratio: mpmath.mpf, delta: mpmath.mpf) -> mpmath.mpf:
    noise = 8 * mpmath.sqrt(ratio * mpmath.log(4 / delta)) / mpmath.sqrt(users) + 8 * ratio / users
    return mpmath.log(1 + (ratio - 1) / (ratio + 1) * noise)


def stronger_by_hand(users: int, ratio: mpmath.mpf, delta: mpmath.mpf) -> mpmath.mpf:
    noise = 4 * mpmath.sqrt(2 * mpmath.log(4 / delta)) / mpmath.sqrt((ratio + 1) * users) + mpmath.mpf(4) / users
    return mpmath.log(1 + (ratio - 1) * noise)


def girgis_by_hand(users: int, ratio: mpmath.mpf, delta: mpmath.mpf) -> mpmath.mpf:
    alike = mpmath.floor((users - 1) / (2 * ratio)) + 1
    found = []
    for order in range(2, 500):
        moment = mpmath.exp(order**2 * (ratio - 1) ** 2 / alike) + ratio**order * mpmath.exp(-(users - 1) / (8 * ratio))
        # Canonne, Kamath, Steinke: δ = e^{(λ−1)(ε(λ)−ε)}/(λ−1) · (1 − 1/λ)^λ, solved for ε.
        tail = mpmath.log(moment * (1 - mpmath.mpf(1) / order) ** order / ((order - 1) * delta))
        found.append(tail / (order - 1))
    assert 0 < found.index(min(found)) < len(found) - 1  # the best order is among those tried
    return min(found)


@pytest.mark.parametrize(
    ("bound", "by_hand", "settings"),
    [
        (erlingsson, erlingsson_by_hand, [(1_000, 0.4, 1e-3), (50_000, 0.45, 1e-8)]),
        (clones_closed, clones_by_hand, [(1_000, 0.3, 1e-6), (40_000, 0.05, 1e-9)]),
        (stronger_closed, stronger_by_hand, [(1_000, 0.3, 1e-6), (40_000, 0.05, 1e-9)]),
        (girgis, girgis_by_hand, [(4_100, 0.4, 1e-6), (50_000, 0.2, 1e-8)]),
    ],
)
def test_closed_forms_are_the_formulas_of_their_theorems(
    bound: Bound, by_hand: Callable[..., mpmath.mpf], settings: list[tuple[int, float, float]]
) -> None:
    """Written again from the theorems, in e^{ε₀} = (1−p)/p and with 40 digits: constants too large are found too."""
    for users, flip, delta in settings:
        with mpmath.workdps(40):
            value = by_hand(users, (1 - mpmath.mpf(flip)) / mpmath.mpf(flip), mpmath.mpf(delta))
        assert bound(rr(users, flip), delta) == pytest.approx(float(value), rel=1e-11)


@pytest.mark.parametrize(("users", "epsilon", "delta", "few"), [(10_000, 1.0, 1e-6, True), (10_000, 0.2, 1e-6, False)])
def test_the_calibration_of_cheu_et_al_leads_back_to_its_epsilon(
    users: int, epsilon: float, delta: float, few: bool
) -> None:
    """Lemma 4.8 forward, on both of its branches: λ coins among n reports, p = λ/(2n)."""
    with mpmath.workdps(40):
        log_term = mpmath.log(4 / mpmath.mpf(delta))
        assert (epsilon >= mpmath.sqrt(192 * log_term / users)) == few
        coins = (
            64 * log_term / mpmath.mpf(epsilon) ** 2
            if few
            else users - epsilon * mpmath.mpf(users) ** 1.5 / mpmath.sqrt(432 * log_term)
        )
    assert cheu(rr(users, float(coins / (2 * users))), delta) == pytest.approx(epsilon, rel=1e-11)


def blanket_by_hand(users: int, flip: float, epsilon: float, binary: bool) -> tuple[mpmath.mpf, ...]:
    """γ, a, and of L: least, largest and second moment; for any randomizer from R/ω in [γ, γe^{ε₀}] and γ ≤ 1."""
    p, growth = mpmath.mpf(flip), mpmath.exp(mpmath.mpf(epsilon))
    if binary:
        values = [((1 - p) - growth * p) * 2, (p - growth * (1 - p)) * 2]
        return 2 * p, growth - 1, values[1], values[0], (values[0] ** 2 + values[1] ** 2) / 2
    ratio = (1 - p) / p
    return 1 / ratio, growth - 1, 1 - growth * ratio, ratio - growth, ratio + growth**2 * ratio - 2 * growth / ratio


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(("users", "flip", "delta"), [(800, 0.4, 1e-4), (1_500, 0.3, 1e-6)])
def test_blankets_are_the_sums_of_their_lemma(users: int, flip: float, delta: float, binary: bool) -> None:
    """At the ε that is found, Lemma 5.3 summed term by term over the coins gives δ."""
    kind = Blanket.of_randomized_response if binary else Blanket.of_any
    for bound in (hoeffding, bennett):
        epsilon = bound(rr(users, flip), delta, kind)
        with mpmath.workdps(30):
            weight, a, least, largest, second = blanket_by_hand(users, flip, epsilon, binary)
            if bound is hoeffding:
                # Any randomizer: the ends of L are not reached together, and its spread is (e^ε+1)(e^{ε₀}−1).
                spread = largest - least if binary else (a + 2) * ((1 - mpmath.mpf(flip)) / mpmath.mpf(flip) - 1)
                front, rate = spread**2 / (4 * a), 2 * a**2 / spread**2
            else:
                u = a * largest / second
                front = largest / mpmath.log(1 + u)
                rate = second / largest**2 * ((1 + u) * mpmath.log(1 + u) - u)
            total = mpmath.fsum(
                math.comb(users, coins) * weight**coins * (1 - weight) ** (users - coins) * mpmath.exp(-rate * coins)
                for coins in range(users + 1)
            )
            found = front * total / (weight * users)
        assert float(found) == pytest.approx(delta, rel=1e-5)


LOG_2, LOG_4 = math.log(2.0 / 1e-6), math.log(4.0 / 1e-6)


def flip_of(ratio: float) -> float:
    """p with (1−p)/p = ratio = e^{ε₀}."""
    return 1.0 / (1.0 + ratio)


@pytest.mark.parametrize(
    ("bound", "inside", "outside"),
    [
        (erlingsson, (10_000, flip_of(math.exp(0.4999)), 1e-6), (10_000, flip_of(math.exp(0.5001)), 1e-6)),
        (erlingsson, (1_000, 0.45, 1e-6), (999, 0.45, 1e-6)),
        (erlingsson, (10_000, 0.45, 0.00999), (10_000, 0.45, 0.01)),
        (cheu, (1_000, 7.0 * LOG_4 / 999.0, 1e-6), (1_000, 7.0 * LOG_4 / 1_001.0, 1e-6)),
        (
            clones_closed,
            (5_000, flip_of(312.4 / LOG_2), 1e-6),
            (5_000, flip_of(312.6 / LOG_2), 1e-6),
        ),
        (stronger_closed, (5_000, 8.0 * LOG_2 / 4_999.0, 1e-6), (5_000, 8.0 * LOG_2 / 5_001.0, 1e-6)),
    ],
)
def test_a_theorem_is_used_up_to_the_edge_of_its_domain(
    bound: Bound, inside: tuple[int, float, float], outside: tuple[int, float, float]
) -> None:
    assert bound(rr(*inside[:2]), inside[2]) > 0.0
    with pytest.raises(OutsideDomainError, match=r"asks for .*; use another bound"):
        bound(rr(*outside[:2]), outside[2])


def test_the_renyi_bound_is_above_the_moments_of_the_law() -> None:
    """Order by order, against ln(Σ Q (P/Q)^λ)/(λ−1) of the count, all others at 0, in both directions."""
    protocol = rr(400, 0.35)
    for order in (2, 3, 8):
        for pair in (protocol.pair(0), protocol.pair(0).reversed()):
            seen = pair.lower > 0.0
            ratio = pair.upper[seen] / pair.lower[seen]
            divergence = math.log(float(np.sum(pair.lower[seen] * ratio**order))) / (order - 1)
            assert 0.0 < divergence <= renyi_bound(protocol, order)


@pytest.mark.parametrize("bound", [stronger_clones, clones])
def test_the_least_flip_probability_is_least(bound: object) -> None:
    assert callable(bound)
    users, epsilon, delta = 5_000, 0.5, 1e-6
    flip = least_flip(bound, users, epsilon, delta)
    assert flip is not None
    assert bound(rr(users, flip), delta) <= epsilon < bound(rr(users, flip * 0.999), delta)


def test_no_flip_probability_satisfies_a_bound_that_never_applies() -> None:
    assert least_flip(erlingsson, 500, 1.0, 1e-6) is None
