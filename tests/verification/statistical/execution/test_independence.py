"""Independence of draws: limits hold by enumeration and simulation, and every kind of dependence is refuted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from accounting.mechanisms import BITSUMS
from privkde.bitsum import Bitsum, Tally
from privkde.bitsum.pure import PureBitsum
from privkde.bitsum.three_negative_binomial import ThreeNegativeBinomialBitsum
from privkde.draws.randomness import ByteStream
from tests.verification.subjects import subject
from verification.sabotage.executed_faults import shared_coins
from verification.statistical.execution import independence
from verification.statistical.execution.independence import TOGETHER, Signs
from verification.statistical.execution.stages import private_stream
from verification.statistical.goodness_of_fit import MISSED
from verification.verdicts import CHECK_ALPHA, FULL, QUICK, Finding

CHECK = independence.check_independent
INSTANCES, USERS = "largest correlation of two instances", "largest correlation of two users"


def fair(rng: np.random.Generator, shape: tuple[int, int]) -> Signs:
    return independence._signs(rng.integers(0, 2, shape))


def alternating(instances: int) -> NDArray[np.float32]:
    return 1.0 - 2.0 * (np.arange(instances, dtype=np.float32) % 2.0)


def refuting(signs: Signs) -> set[str]:
    found = independence._statistics("signs", signs, private_stream(1))
    return {limited.statistic for limited in found if limited.ratio > 1.0}


def run(kind: str) -> Finding:
    return CHECK.run(subject(kind), QUICK, CHECK.seed(1))


# Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns"), [(8, 3), (200, 2), (256, 4_096), (2_048, 256)])
def test_the_largest_correlation_has_an_exact_limit(rows: int, columns: int) -> None:
    most, chosen = independence._most_equal(rows, columns), (math.comb(rows, count) for count in range(rows, -1, -1))
    tails = dict(zip(range(rows, -1, -1), itertools.accumulate(chosen), strict=True))  # ways to have so many or more

    def chance(count: int) -> Fraction:
        return Fraction(columns * (columns - 1) * tails.get(count, 0), 2**rows)

    assert chance(most + 1) <= Fraction(independence.LEVEL) < chance(most)
    detectable = independence._detectable(rows, columns)
    if most < rows:
        refuted = stats.binom.sf(most, rows, (1.0 + detectable) / 2.0)
        assert refuted == pytest.approx(1.0 - MISSED, rel=1e-9)
        assert independence._limit(rows, columns) < detectable < 1.0
    else:
        assert (rows, detectable) == (8, math.inf)


@pytest.mark.parametrize("level", [0.3, 0.05, 0.004])
@pytest.mark.parametrize("shape", [(1, 9), (3, 8), (6, 4)])
def test_sums_of_squares_have_a_limit_that_enumeration_confirms(shape: tuple[int, int], level: float) -> None:
    """All signs of one user and, of fewer instances, of two."""
    for users, instances in ((1, shape[1]), (2, 4)):
        fixed = fair(np.random.default_rng(1), (shape[0], instances))
        bits = np.array(list(itertools.product((0, 1), repeat=users * instances)))
        drawn = independence._signs(bits).reshape(-1, users, instances)
        with mock.patch.object(independence, "LEVEL", level):
            found = np.array([independence._excess(fixed, signs) for signs in drawn])
        assert np.mean(found[:, 0]) == pytest.approx(0.0, abs=1e-9)
        assert np.mean(found[:, 0] > found[:, 1]) <= level


def test_false_alarms_are_as_rare_as_stated() -> None:
    """At a level that shows: chance that one of four counts is too high, 4e-10."""
    rng, level, runs = np.random.default_rng(2), 0.05, 300
    alarms: dict[str, int] = {}
    with mock.patch.object(independence, "LEVEL", level):
        for _ in range(runs):
            for limited in independence._statistics("signs", fair(rng, (32, 24)), private_stream(1)):
                alarms[limited.statistic] = alarms.get(limited.statistic, 0) + (limited.ratio > 1.0)
    assert len(alarms) == independence.STATISTICS
    assert max(alarms.values()) <= stats.binom.isf(1e-10, runs, level)
    assert sum(alarms.values()) > 0  # the limits are not idle


def test_samples_and_statistics_share_the_level() -> None:
    assert math.isclose(independence.SAMPLES * independence.STATISTICS * independence.LEVEL, CHECK_ALPHA)
    for kind in ("rr", "3nb", "pure"):
        assert len(list(independence._samples(subject(kind), QUICK, 1))) <= independence.SAMPLES


# Dependence of signs --------------------------------------------------------------------------------------------------


def one_pair_of_instances(signs: Signs, rng: np.random.Generator) -> None:
    signs[:, 3] = -signs[:, 200]


def one_pair_of_users(signs: Signs, rng: np.random.Generator) -> None:
    signs[900] = signs[17]


def weak_groups(signs: Signs, rng: np.random.Generator) -> None:
    """Correlation ±1/9 in groups of 16 instances: too little for any pair to stand out; sums stay the same."""
    coins = np.repeat(fair(rng, (len(signs), 16)), 16, axis=1) * alternating(256)
    signs[:] = np.where(rng.random(signs.shape) < 1.0 / 3.0, coins, signs)


def common_coin(signs: Signs, rng: np.random.Generator) -> None:
    """Correlation 1/64 of all pairs: every instance follows the user's own coin with probability 1/8."""
    signs[:] = np.where(rng.random(signs.shape) < 0.125, fair(rng, (len(signs), 1)), signs)


def nothing(signs: Signs, rng: np.random.Generator) -> None:
    """The honest system."""


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        (nothing, set()),
        (one_pair_of_instances, {INSTANCES}),
        (one_pair_of_users, {USERS}),
        (weak_groups, {TOGETHER}),
        (common_coin, {TOGETHER, "sums of users"}),
    ],
)
def test_each_statistic_finds_its_kind_of_dependence(
    planted: Callable[[Signs, np.random.Generator], None], found: set[str]
) -> None:
    """Seeded; by chance another statistic refutes with probability 4 · `LEVEL`, below 2e-9, in each case."""
    rng = np.random.default_rng(3)
    signs = fair(rng, (1_024, 256))
    planted(signs, rng)
    assert refuting(signs) == found


def test_pairs_among_many_instances_show_although_few_of_them_are_compared() -> None:
    rng = np.random.default_rng(4)
    signs = fair(rng, (256, 4_096))
    signs[:, 2_048:] = signs[:, :2_048] * alternating(2_048)
    with mock.patch.object(independence, "MOST_COMPARED", 16):
        assert refuting(signs) == {TOGETHER}


def test_who_has_more_is_fair_where_two_users_have_the_same() -> None:
    counts = np.array([[3, 0, 1], [1, 0, 2]])
    drawn = [independence._who_has_more(counts, private_stream(seed, "coins"))[0] for seed in range(64)]
    assert {(row[0], row[2]) for row in drawn} == {(1.0, -1.0)}
    assert {row[1] for row in drawn} == {1.0, -1.0}


# The executed system --------------------------------------------------------------------------------------------------


def test_as_many_instances_as_planned() -> None:
    assert independence._shape(subject("record"), QUICK) == (2_048, 256)
    assert independence._shape(subject("record"), FULL) == (4_096, 256)
    planned = mock.Mock(**{"plan.request.facts.return_value.n_instances": 100_000})
    assert independence._shape(planned, QUICK) == (256, independence.MOST_INSTANCES)


def by_two_draws(shared: str) -> Callable[[Bitsum, NDArray[np.float32], ByteStream], NDArray[Any]]:
    """Rounding and flipping by draws of their own, of which two neighboring instances share one."""

    def respond(self: Bitsum, scaled: NDArray[np.float32], stream: ByteStream) -> NDArray[Any]:
        words = stream.take(8 * scaled.size * 2).view(np.uint64).reshape(2, *scaled.shape)
        rounding, flipping = uniforms = words * 2.0**-64
        which = uniforms[("rounding", "flipping").index(shared)]
        which[:, 1::2] = which[:, ::2]
        return np.asarray((rounding < 0.5 + 0.5 * scaled) ^ (flipping < self.flip), dtype=np.uint8)

    return respond


@pytest.mark.parametrize(("shared", "sample"), [("rounding", "roundings"), ("flipping", "flips")])
def test_one_of_two_draws_that_is_shared_is_refuted(shared: str, sample: str) -> None:
    with mock.patch.object(Bitsum, "respond", by_two_draws(shared)):
        found = run("rr")
    assert found.refuted
    assert found.found.startswith(sample)


@pytest.mark.parametrize("kind", ["rr", *(pytest.param(k, marks=pytest.mark.slow) for k in BITSUMS if k != "rr")])
def test_coins_that_two_instances_share_are_refuted_for_every_protocol(kind: str) -> None:
    with shared_coins.plant():
        found = run(kind)
    assert found.refuted
    assert TOGETHER in found.found


def test_silence_that_two_instances_share_is_refuted() -> None:
    right = PureBitsum.inputs

    def together(self: PureBitsum, bits: NDArray[np.uint8], stream: ByteStream) -> Tally:
        drawn = right(self, bits, stream)
        drawn.ones[:, 1::2] = drawn.ones[:, ::2]
        return drawn

    with mock.patch.object(PureBitsum, "inputs", together):
        found = run("pure")
    assert found.refuted
    assert found.found.startswith("silence")


def test_zeros_that_two_instances_share_are_refuted() -> None:
    right = ThreeNegativeBinomialBitsum.noise

    def together(self: ThreeNegativeBinomialBitsum, n_users: int, shape: Any, stream: ByteStream) -> Tally:
        drawn = right(self, n_users, shape, stream)
        drawn.zeros[:, 1::2] = drawn.zeros[:, ::2]
        return drawn

    with mock.patch.object(ThreeNegativeBinomialBitsum, "noise", together):
        found = run("3nb")
    assert found.refuted
    assert found.found.startswith("noise, zeros")
