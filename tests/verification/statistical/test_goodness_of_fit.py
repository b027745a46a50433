"""Goodness of fit: honest samplers pass, saboteurs are refuted, and the false-alarm rate is what it says."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import permutations

import mpmath
import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray

from accounting.errors import InvalidInputError
from accounting.mechanisms import LabelResponse
from accounting.numerics.pmf import Pmf
from privkde.draws.laws import DiscreteLaw, KeepLabel, NegativeBinomial, Poisson
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import bernoulli, column_sums, integers_below, permutation
from verification.exact.brute_force import Mass, precise_negative_binomial, precise_poisson, table
from verification.statistical.goodness_of_fit import MISSED, GoodnessOfFit, coin, goodness_of_fit

LEVEL = 1e-9
SAMPLES = 1_000_000
Samples = NDArray[np.int64]


def stream(label: str) -> ByteStream:
    return ByteStream(bytes(range(32))).child(label)


def declared(mass: Mass, length: int) -> Pmf:
    """A law from its definition at 40 digits; the caller chooses a length that leaves out less than 1e-20."""
    values = table(mass, length)
    with mpmath.workdps(40):
        assert sum((mass(k) for k in range(length)), mpmath.mpf(0)) > 1 - mpmath.mpf(10) ** -20
    return Pmf(start=0, values=values, missing=1e-20)


@cache
def share_law() -> Pmf:
    return declared(precise_negative_binomial(Fraction(1, 100), 0.9), 450)


@cache
def poisson_law() -> Pmf:
    return declared(precise_poisson(30.5), 130)


def uniform_law(size: int) -> Pmf:
    return Pmf(start=0, values=np.full(size, 1 / size), missing=0.0)


def verdict(samples: NDArray[np.int64] | NDArray[np.uint8], law: Pmf) -> GoodnessOfFit:
    return goodness_of_fit(samples, law, level=LEVEL)


# Our samplers ------------------------------------------------------------------------------------------------------


SAMPLED: list[tuple[DiscreteLaw, Callable[[], Pmf]]] = [
    (NegativeBinomial(shape=Fraction(1, 100), continue_probability=0.9), share_law),
    (Poisson(rate=30.5), poisson_law),
    (Poisson(rate=Fraction(1, 300)), lambda: declared(precise_poisson(1 / 300), 20)),
    (
        NegativeBinomial(shape=1, continue_probability=0.75),
        lambda: declared(precise_negative_binomial(1, 0.75), 200),
    ),
    (
        NegativeBinomial(shape=7.5, decay=0.25),
        lambda: declared(precise_negative_binomial(7.5, Fraction(float(mpmath.exp(-0.25)))), 350),
    ),
]


@pytest.mark.parametrize(
    ("law", "target"), SAMPLED, ids=lambda part: str(part) if isinstance(part, DiscreteLaw) else ""
)
def test_laws_are_not_refuted(law: DiscreteLaw, target: Callable[[], Pmf]) -> None:
    found = verdict(law.sample(SAMPLES, stream(str(law))), target())
    assert not found.refuted, found.describe()
    assert found.smallest_defect < 0.01


def test_sum_of_shares_is_not_refuted_as_the_whole() -> None:
    """50 shares NB(1/50, 0.8) against NB(1, 0.8)."""
    share = NegativeBinomial(shape=Fraction(1, 50), continue_probability=0.8)
    totals = share.sample((50, 100_000), stream("shares")).sum(axis=0)
    assert not verdict(totals, declared(precise_negative_binomial(1, 0.8), 250)).refuted


def test_labels_are_not_refuted() -> None:
    kept = KeepLabel(n_classes=10, label_epsilon=1.5).sample(SAMPLES, stream("label"))
    response = LabelResponse(n_classes=10, label_epsilon=1.5)
    assert not verdict(kept, coin(response.keep_probability)).refuted
    assert verdict(kept, coin(1.02 * response.keep_probability)).refuted


@pytest.mark.parametrize("flip", [0.0, 0.003, 0.1, 0.4])
@pytest.mark.parametrize("scaled", [-1.0, -0.99, -0.3, 0.0, 0.125, 0.7, 1.0])
def test_bits_are_not_refuted(scaled: float, flip: float) -> None:
    feature = np.float32(scaled)
    bits = bernoulli(np.full((200, 1000), feature), stream(f"bits {scaled} {flip}"), flip=flip)
    found = verdict(bits, coin(0.5 + (0.5 - flip) * float(feature)))
    assert not found.refuted, found.describe()


def test_mixed_columns_of_bits_are_not_refuted() -> None:
    """Each column its own feature: entry by entry, not on average."""
    columns = np.linspace(-1, 1, 9, dtype=np.float32)
    source = stream("mixed")
    for flip in (0.0, 0.05, 0.3):
        bits = np.stack([bernoulli(columns, source, flip=flip) for _ in range(20_000)])
        coins = [coin(0.5 + (0.5 - flip) * float(feature)) for feature in columns]
        for column, own in enumerate(coins):
            assert not verdict(bits[:, column], own).refuted
            assert verdict(bits[:, column], coins[column - 1]).refuted  # the neighbor's feature


def test_neighboring_bits_are_not_refuted_as_independent() -> None:
    """Pairs of neighbors, most of them decided at different levels, as one of four outcomes."""
    ones = 0.5 + 0.5 * float(np.float32(0.4))
    bits = bernoulli(np.full((500, 1000), np.float32(0.4)), stream("pairs")).astype(np.int64)
    pairs = 2 * bits[:, 0::2] + bits[:, 1::2]
    law = np.array([(1 - ones) ** 2, (1 - ones) * ones, ones * (1 - ones), ones**2])
    assert not verdict(pairs, Pmf(start=0, values=law, missing=0.0)).refuted


@pytest.mark.parametrize("bound", [2, 10, 100, 300])
def test_integers_are_not_refuted(bound: int) -> None:
    drawn = integers_below(bound, SAMPLES // 4, stream(f"integers {bound}"))
    assert not verdict(drawn, uniform_law(bound)).refuted
    assert verdict(drawn, uniform_law(bound + 1)).refuted


@pytest.mark.parametrize("length", [3, 4])
def test_permutations_are_not_refuted(length: int) -> None:
    code = {order: index for index, order in enumerate(permutations(range(length)))}
    source = stream(f"permutations {length}")
    drawn = np.array([code[tuple(permutation(length, source).tolist())] for _ in range(20_000)])
    assert not verdict(drawn, uniform_law(math.factorial(length))).refuted


def test_column_sums_of_bits_are_binomial() -> None:
    bits = bernoulli(np.zeros((300, 50_000), dtype=np.float32), stream("sums"))
    law = np.array([math.comb(300, k) / 2**300 for k in range(301)])
    assert not verdict(column_sums(bits), Pmf(start=0, values=law, missing=0.0)).refuted


# Negative controls ---------------------------------------------------------------------------------------------------


def honest_share(rng: Generator) -> Samples:
    return rng.negative_binomial(0.01, 1 - 0.9, SAMPLES)


def honest_poisson(rng: Generator) -> Samples:
    return rng.poisson(30.5, SAMPLES)


SABOTEURS: dict[str, tuple[Callable[[Generator], Samples], Callable[[], Pmf]]] = {
    "NumPy's p is our 1 − p": (lambda rng: rng.negative_binomial(0.01, 0.9, SAMPLES), share_law),
    "shape without the 1/n": (lambda rng: rng.negative_binomial(1, 0.1, SAMPLES), share_law),
    "share of 90 users": (lambda rng: rng.negative_binomial(1 / 90, 0.1, SAMPLES), share_law),
    "one too many": (lambda rng: honest_share(rng) + 1, share_law),
    "one too few": (lambda rng: np.maximum(honest_poisson(rng) - 1, 0), poisson_law),
    "negative values": (lambda rng: np.where(np.arange(SAMPLES) < 1, -1, honest_share(rng)), share_law),
    "tail cut at 1e-4": (lambda rng: np.minimum(honest_share(rng), 36), share_law),
    "tail drawn again": (
        lambda rng: np.where((x := honest_share(rng)) > 30, honest_share(rng), x),
        share_law,
    ),
    "one value far too large": (lambda rng: np.where(np.arange(SAMPLES) < 1, 400, honest_share(rng)), share_law),
    "even values only": (lambda rng: honest_poisson(rng) // 2 * 2, poisson_law),
    "rounded normal": (lambda rng: np.rint(rng.normal(30.5, 30.5**0.5, SAMPLES)).astype(np.int64), poisson_law),
    "Poisson of a rounded mean": (lambda rng: rng.poisson(30, SAMPLES), poisson_law),
    "zero inflated by 1 %": (lambda rng: np.where(rng.random(SAMPLES) < 0.01, 0, honest_poisson(rng)), poisson_law),
    "geometric that starts at 1": (
        lambda rng: rng.geometric(0.25, SAMPLES),
        lambda: declared(precise_negative_binomial(1, 0.75), 200),
    ),
    "flip applied twice": (lambda rng: (rng.random(SAMPLES) < 0.82).astype(np.int64), lambda: coin(0.9)),
    "flip without the factor 1/2": (
        lambda _: bernoulli(np.ones(SAMPLES, dtype=np.float32), stream("half"), flip=0.05).astype(np.int64),
        lambda: coin(0.9),
    ),
}


@pytest.mark.parametrize("name", SABOTEURS)
def test_saboteur_is_refuted(name: str) -> None:
    sabotage, law = SABOTEURS[name]
    found = verdict(sabotage(np.random.default_rng(11)), law())
    assert found.refuted, f"{name}: {found.describe()}"


@pytest.mark.parametrize(("honest", "law"), [(honest_share, share_law), (honest_poisson, poisson_law)])
def test_honest_floating_point_is_not_refuted(honest: Callable[[Generator], Samples], law: Callable[[], Pmf]) -> None:
    """NumPy's samplers differ from the laws by about 2^−53, far below what samples can show.

    That is why the exactness of ours rests on decision tests (tests/privkde/draws/test_sampling.py), not on these.
    """
    found = verdict(honest(np.random.default_rng(3)), law())
    assert not found.refuted, found.describe()
    assert found.smallest_defect > 1e6 * 2.0**-53


# The test itself -----------------------------------------------------------------------------------------------------


def test_false_alarms_are_rarer_than_the_level() -> None:
    """At level 0.2, 400 honest samples: more than 120 alarms would have a probability below 1e-5."""
    law = declared(precise_poisson(2.5), 60)
    alarms = sum(
        goodness_of_fit(np.random.default_rng(seed).poisson(2.5, 500), law, level=0.2).refuted for seed in range(400)
    )
    assert alarms <= 120


def test_p_values_are_binomial_tails() -> None:
    """Against sums of exact fractions."""
    law = Pmf(start=0, values=np.array([0.75, 0.25]), missing=0.0)
    n, ones = 40, 22
    found = goodness_of_fit((np.arange(n) < ones).astype(np.int64), law)
    exact = sum(math.comb(n, k) * Fraction(1, 4) ** k * Fraction(3, 4) ** (n - k) for k in range(ones, n + 1))
    assert found.p_value == pytest.approx(float(exact), rel=1e-6)
    assert found.p_value >= float(exact)
    assert found.distance == pytest.approx(ones / n - 0.25)


def test_family_does_not_depend_on_the_samples() -> None:
    rng = np.random.default_rng(8)
    sizes = {verdict(samples, poisson_law()).n_events for samples in (honest_poisson(rng), rng.poisson(3, 10))}
    assert len(sizes) == 1


def test_smallest_defect_is_seen() -> None:
    """A coin off by the distance that is promised to be seen, and an event at the promised increase."""
    fair = coin(0.5)
    found = goodness_of_fit(np.arange(1000) % 2, fair, level=LEVEL)
    off = 0.5 + found.smallest_defect
    higher = 0.5 + found.detectable_increase(0.5)
    assert 0.5 < higher < off, "the exact binomial test is the sharper one"
    for probability in (off, higher):
        seen = [
            goodness_of_fit((np.random.default_rng(seed).random(1000) < probability) * 1, fair, level=LEVEL).refuted
            for seed in range(300)
        ]
        assert sum(seen) >= 300 - 6  # 0.3 misses are expected at most
    assert math.isinf(goodness_of_fit(np.arange(10) % 2, fair, level=LEVEL).detectable_increase(0.5))


def test_undetectable_decreases_are_known() -> None:
    """A missing tail of mass 1e-6 is invisible in a million samples; one of mass 1e-3 is not."""
    found = verdict(honest_share(np.random.default_rng(1)), share_law())
    assert math.isinf(found.detectable_increase(1 - 1e-6))
    assert found.detectable_increase(1 - 1e-3) < 1e-3
    assert 1e-6 < found.detectable_increase(1e-6) < 9.9e-5
    assert MISSED < 0.01


def test_unusable_input_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no samples"):
        goodness_of_fit(np.empty(0, dtype=np.int64), coin(0.5))
    with pytest.raises(InvalidInputError, match="level"):
        goodness_of_fit(np.ones(3, dtype=np.int64), coin(0.5), level=0.0)
