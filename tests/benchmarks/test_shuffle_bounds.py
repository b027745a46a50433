"""Published shuffle bounds as peers: never below the exact law, and equal to what enumeration gives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from accounting.mechanisms import RandomizedResponse
from accounting.pmf import binomial
from accounting.profile import smallest_epsilon
from benchmarks.peers.amplification import PUBLISHED, bounded, least_flip
from benchmarks.peers.clones import clone_delta, clones, stronger_clones
from benchmarks.peers.closed_forms import (
    OutsideDomainError,
    cheu,
    clones_closed,
    erlingsson,
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


@pytest.mark.parametrize("name", BOUNDS)
def test_no_published_bound_is_below_the_exact_law(name: str) -> None:
    applicable = 0
    for users, flip, delta in GRID:
        found = bounded(BOUNDS[name], rr(users, flip), delta)
        if found is not None:
            exact = rr(users, flip).epsilon(delta)
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
    protocol = rr(users, flip)
    found = {name: bounded(bound, protocol, delta) for name, bound in BOUNDS.items()}
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


@pytest.mark.parametrize(
    ("bound", "protocol", "delta"),
    [
        (erlingsson, rr(10_000, 0.3), 1e-6),
        (erlingsson, rr(999, 0.45), 1e-6),
        (erlingsson, rr(10_000, 0.45), 0.01),
        (cheu, rr(1_000, 0.05), 1e-6),
        (clones_closed, rr(1_000, 0.1), 1e-6),
        (stronger_closed, rr(1_000, 0.1), 1e-6),
    ],
)
def test_a_theorem_is_not_used_outside_its_domain(bound: object, protocol: RandomizedResponse, delta: float) -> None:
    assert callable(bound)
    with pytest.raises(OutsideDomainError, match=r"asks for .*; use another bound"):
        bound(protocol, delta)


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
