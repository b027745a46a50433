"""E[f(x)·g(y)] of every family against its kernel, saboteurs that must be refuted, and the bound itself, exactly."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest

from accounting.errors import InvalidInputError
from privkde.draws.randomness import public_stream
from privkde.kernels import KernelChoice, LsqFamily
from privkde.kernels import public_draws as draws
from privkde.kernels.gaussian import GaussianFamily
from privkde.kernels.hashed import ExponentialFamily, LaplacianFamily
from privkde.kernels.inner_product import SignFamily
from privkde.kernels.lsq_family import Float64
from verification.exact.rational_twins import sum_of_bits
from verification.statistical.kernel_means import (
    MeanCheck,
    check_kernel_means,
    check_mean,
    claimed_means,
    empirical_bernstein,
)

SEEDS = ("5eed" * 8, "0bad" * 8)
LEVEL = 1e-10
"""Of each test in this file; they add up to less than 1e-8."""


def pairs(dim: int) -> tuple[Float64, Float64]:
    """Pairs in the unit ball at distances from 0 to 2: equal, opposite, near, far, at the origin."""
    points = public_stream("00" * 16).child("pairs", dim)
    x = draws.normals(points.child("x"), 3 * dim).reshape(3, dim)
    x /= np.linalg.norm(x, axis=1)[:, None]
    step = draws.normals(points.child("y"), 3 * dim).reshape(3, dim)
    step /= np.linalg.norm(step, axis=1)[:, None]
    near = x + np.array([[0.1], [0.4], [0.9]]) * step
    near /= np.maximum(1.0, np.linalg.norm(near, axis=1))[:, None]
    left = np.concatenate([x, x[:1], x[:1], np.zeros((1, dim))])
    right = np.concatenate([near, x[:1], -x[:1], 0.5 * x[1:2]])
    return left, right


def built(name: str, dim: int, repetitions: int, **settings: Any) -> list[LsqFamily]:
    choice = KernelChoice(name=name, dim=dim, repetitions=repetitions, **settings)
    return [choice.build(seed) for seed in SEEDS]


def refuted(checks: tuple[MeanCheck, ...]) -> bool:
    return any(check.refuted for check in checks)


def smallest_defect(checks: tuple[MeanCheck, ...]) -> float:
    """A defect of this size, at whichever pair, is found."""
    return max(check.smallest_defect for check in checks)


@pytest.mark.parametrize(
    ("name", "dim", "settings"),
    [
        ("gaussian", 1, {}),
        ("gaussian", 3, {"bandwidth": 0.4}),
        ("gaussian", 3, {"bandwidth": 2.0}),
        pytest.param("gaussian", 32, {}, marks=pytest.mark.slow),
        ("inner-product-signs", 1, {}),
        ("inner-product-signs", 3, {}),
        pytest.param("inner-product-signs", 16, {}, marks=pytest.mark.slow),
        ("laplacian", 1, {"bandwidth": 1.0, "bias": 0.5}),
        ("laplacian", 3, {"bandwidth": 0.5, "bias": 0.3}),
        pytest.param("laplacian", 16, {"bandwidth": 3.0, "bias": 0.1}, marks=pytest.mark.slow),
        ("exponential", 1, {"bias": 0.3}),
        ("exponential", 2, {"bandwidth": 0.5, "bias": 0.5}),
        ("exponential", 3, {"bandwidth": 2.0, "bias": 0.1}),
        pytest.param("exponential", 16, {"bias": 0.3}, marks=pytest.mark.slow),
    ],
)
def test_feature_products_average_to_the_kernel(name: str, dim: int, settings: dict[str, Any]) -> None:
    """Level 1e-10. Power: a mean that is off by more than `smallest_defect` is missed with probability ≤ 1e-10."""
    x, y = pairs(dim)
    found = check_kernel_means(built(name, dim, 60_000, **settings), x, y, false_alarm_rate=LEVEL)
    assert not refuted(found)
    assert {check.samples for check in found} == {120_000}
    assert smallest_defect(found) < (0.12 if name == "inner-product-signs" else 0.05)
    claimed = [check.claimed for check in found]
    assert max(claimed) - min(claimed) > 0.3, "kernel values that differ are told apart"


@pytest.mark.slow
def test_large_dimension() -> None:
    """The paper's 768 dimensions. Level 2·1e-10; smallest defects below 0.2 and 0.4."""
    x, y = pairs(768)
    gaussian = check_kernel_means(built("gaussian", 768, 6000), x, y, false_alarm_rate=LEVEL)
    exponential = check_kernel_means(built("exponential", 768, 500, bias=0.2), x, y, false_alarm_rate=LEVEL)
    assert not refuted(gaussian)
    assert smallest_defect(gaussian) < 0.2
    assert not refuted(exponential)
    assert smallest_defect(exponential) < 0.4


def test_hashed_kernels_claim_the_mean_with_false_collisions() -> None:
    family = KernelChoice(name="laplacian", dim=3, repetitions=2, bias=0.25).build(SEEDS[0])
    x, y = pairs(3)
    kernel = np.diag(family.kernel(x, y))
    np.testing.assert_allclose(claimed_means(family, x, y), kernel + (1 - kernel) / 4, rtol=1e-14)
    gaussian = KernelChoice(name="gaussian", dim=3).build(SEEDS[0])
    np.testing.assert_allclose(claimed_means(gaussian, x, y), np.diag(gaussian.kernel(x, y)), rtol=1e-14)


# --- saboteurs -------------------------------------------------------------------------------------


def frequencies_without_root_two(family: LsqFamily) -> None:
    assert isinstance(family, GaussianFamily)
    family.weights = (family.weights / math.sqrt(2)).astype(np.float32)


def wrong_bandwidth(family: LsqFamily) -> None:
    assert isinstance(family, GaussianFamily)
    family.weights = (family.weights / 1.15).astype(np.float32)


def no_phase(family: LsqFamily) -> None:
    assert isinstance(family, GaussianFamily)
    family.phases = np.zeros_like(family.phases)


def phases_too_narrow(family: LsqFamily) -> None:
    """φ in [0, π/4). A quarter of the circle, [0, π/2), would do no harm: E cos(2φ) = 0 there too."""
    assert isinstance(family, GaussianFamily)
    family.phases = family.phases / np.float32(8)


def one_frequency_short(family: LsqFamily) -> None:
    assert isinstance(family, GaussianFamily)
    weights = family.weights.copy()
    weights[-1] = 0.0
    family.weights = weights


def features_without_root_two(family: LsqFamily) -> None:
    family._bound = np.float32(1.0)


def signs_not_independent(family: LsqFamily) -> None:
    assert isinstance(family, SignFamily)
    weights = family.weights.copy()
    weights[1] = weights[0]
    family.weights = weights


def more_plus_than_minus(family: LsqFamily) -> None:
    """Half of the minus signs become plus: E[σ_jσ_k] = 1/4 instead of 0."""
    assert isinstance(family, SignFamily)
    turned = draws.uniforms(public_stream("ff" * 16), family.weights.size).reshape(family.weights.shape) < 0.5
    family.weights = np.where(turned, np.abs(family.weights), family.weights)


def residues_all_one(family: LsqFamily) -> None:
    """The number of cuts modulo Q: cells that differ by Q cuts always collide, neighbors never."""
    assert isinstance(family, LaplacianFamily | ExponentialFamily)
    family.cuts = replace(family.cuts, residues=np.ones_like(family.cuts.residues))


def residues_never_zero(family: LsqFamily) -> None:
    assert isinstance(family, LaplacianFamily | ExponentialFamily)
    family.cuts = replace(family.cuts, residues=np.maximum(family.cuts.residues, 1))


def cuts_missing(family: LsqFamily) -> None:
    """One cut in five is never crossed."""
    assert isinstance(family, LaplacianFamily | ExponentialFamily)
    thresholds = family.cuts.thresholds.copy()
    thresholds[::5] = 2.0
    family.cuts = replace(family.cuts, thresholds=thresholds)


def cuts_too_central(family: LsqFamily) -> None:
    assert isinstance(family, LaplacianFamily | ExponentialFamily)
    family.cuts = replace(family.cuts, thresholds=family.cuts.thresholds * np.float32(0.7))


def directions_not_normalized(family: LsqFamily) -> None:
    assert isinstance(family, ExponentialFamily)
    family.directions = family.directions * np.float32(1.3)


SABOTEURS = [
    ("gaussian", {}, frequencies_without_root_two),
    ("gaussian", {}, wrong_bandwidth),
    ("gaussian", {}, no_phase),
    ("gaussian", {}, phases_too_narrow),
    ("gaussian", {}, one_frequency_short),
    ("gaussian", {}, features_without_root_two),
    ("inner-product-signs", {}, features_without_root_two),
    ("inner-product-signs", {}, signs_not_independent),
    ("inner-product-signs", {}, more_plus_than_minus),
    ("laplacian", {"bias": 0.3}, residues_all_one),
    ("laplacian", {"bias": 0.3}, residues_never_zero),
    ("laplacian", {"bias": 0.3}, cuts_missing),
    ("laplacian", {"bias": 0.3}, cuts_too_central),
    ("exponential", {"bias": 0.3}, residues_all_one),
    ("exponential", {"bias": 0.3}, residues_never_zero),
    ("exponential", {"bias": 0.3}, cuts_missing),
    ("exponential", {"bias": 0.3}, cuts_too_central),
    ("exponential", {"bias": 0.3}, directions_not_normalized),
]


@pytest.mark.parametrize(
    ("name", "settings", "sabotage"), SABOTEURS, ids=[f"{name}-{sabotage.__name__}" for name, _, sabotage in SABOTEURS]
)
def test_saboteurs_are_refuted(name: str, settings: dict[str, Any], sabotage: Any) -> None:
    families, (x, y) = built(name, 3, 60_000, **settings), pairs(3)
    assert not refuted(check_kernel_means(families, x, y, false_alarm_rate=LEVEL))
    for family in families:
        sabotage(family)
    assert refuted(check_kernel_means(families, x, y, false_alarm_rate=LEVEL))


def test_a_wrong_dimension_constant_is_refuted() -> None:
    """Density c_3 = 2 replaced by 1, as if E|u·e| were 1: the kernel would decay half as fast."""
    families, (x, y) = built("exponential", 3, 60_000, bandwidth=2.0, bias=0.3), pairs(3)
    claimed = KernelChoice(name="exponential", dim=3, bandwidth=1.0, bias=0.3).build(SEEDS[0])
    products = [family.buckets(x) == family.buckets(y) for family in families if isinstance(family, ExponentialFamily)]
    samples = np.concatenate(products, axis=1).astype(np.float64)
    means = claimed_means(claimed, x, y)
    checks = [
        check_mean(row, claimed=float(mean), low=0.0, high=1.0, false_alarm_rate=LEVEL)
        for row, mean in zip(samples, means, strict=True)
    ]
    assert any(check.refuted for check in checks)


def test_features_beyond_their_range_are_refuted_whatever_the_mean() -> None:
    check = check_mean(np.array([0.0] * 999 + [1.1]), claimed=0.0, low=-1.0, high=1.0, false_alarm_rate=LEVEL)
    assert check.deviation < check.bound
    assert check.outside == 1
    assert check.refuted
    assert check_mean(np.full(9, np.nan), claimed=0.0, low=-1.0, high=1.0, false_alarm_rate=LEVEL).refuted


def test_means_cannot_see_a_missing_offset() -> None:
    """Collisions depend on differences of buckets only: this defect needs the exact test in test_kernels.py."""
    families, (x, y) = built("laplacian", 3, 5000, bias=0.3), pairs(3)
    before = check_kernel_means(families, x, y)
    for family in families:
        assert isinstance(family, LaplacianFamily)
        family.cuts = replace(family.cuts, offsets=np.zeros_like(family.cuts.offsets))
    assert check_kernel_means(families, x, y) == before


# --- the bound itself -------------------------------------------------------------------------------


@cache
def coins(p: Fraction, count: int) -> list[Fraction]:
    """The law of the number of ones."""
    return list(sum_of_bits([p] * count))


def miss_probability(p: Fraction, count: int, failure: float, *, correction: bool) -> Fraction:
    """P(|mean − p| > bound) for `count` coins, exactly: the bound is a function of the number of ones."""
    missed = Fraction(0)
    for ones, mass in enumerate(coins(p, count)):
        samples = np.array([1.0] * ones + [0.0] * (count - ones))
        bound = empirical_bernstein(samples, width=1.0 if correction else 0.0, failure_probability=failure)
        if abs(ones / count - float(p)) > bound:
            missed += mass
    return missed


@pytest.mark.parametrize("count", [2, 10, 60, pytest.param(200, marks=pytest.mark.slow)])
def test_the_bound_fails_as_rarely_as_it_says(count: int) -> None:
    """Exact binomial probabilities. Without its second term the bound fails: ones that are rare are not seen."""
    for p, failure in itertools.product(
        [Fraction(1, 200), Fraction(1, 20), Fraction(3, 10), Fraction(1, 2)], [0.9, 0.1]
    ):
        assert miss_probability(p, count, failure, correction=True) <= failure
    assert miss_probability(Fraction(1, 200), count, 0.1, correction=False) > Fraction(1, 10)


def test_the_bound_is_the_cited_formula() -> None:
    """Maurer and Pontil's Theorem 4 for each side at half the failure probability, by hand."""
    samples = [Fraction(k, 7) for k in (0, 1, 1, 3, 7)]
    mean = sum(samples, Fraction(0)) / 5
    variance = sum(((s - mean) ** 2 for s in samples), Fraction(0)) / 4
    with mpmath.workdps(30):
        scale = mpmath.log(2 / (mpmath.mpf("0.05") / 2))
        exact = mpmath.sqrt(2 * mpmath.mpf(variance.numerator) / variance.denominator * scale / 5)
        exact += 3 * 7 * scale / (3 * 4)
        found = empirical_bernstein(np.array(samples, dtype=np.float64), width=3.0, failure_probability=0.05)
        assert found == pytest.approx(float(exact), rel=1e-12)


def test_the_bound_is_not_vacuous() -> None:
    """At 400 coins and failure probability 0.9 a deviation that happens is sometimes beyond the bound."""
    samples = np.array([0.0, 1.0] * 5000)
    assert empirical_bernstein(samples, width=1.0, failure_probability=1e-9) < 0.04
    assert miss_probability(Fraction(1, 2), 400, 0.9, correction=True) > Fraction(1, 100)


def test_a_check_reports_its_power() -> None:
    check = check_mean(
        np.array([0.0, 1.0] * 5000), claimed=0.5, low=0.0, high=1.0, false_alarm_rate=1e-9, rounding=0.01
    )
    assert check.deviation == 0.0
    assert not check.refuted
    assert check.smallest_defect == 2 * check.bound > 0.02
    assert (check.samples, check.outside, check.false_alarm_rate) == (10_000, 0, 1e-9)


# --- what is refused --------------------------------------------------------------------------------


def test_checks_that_would_mean_nothing_are_refused() -> None:
    x, y = pairs(3)
    gaussian, other = (KernelChoice(name="gaussian", dim=3, bandwidth=h).build(SEEDS[0]) for h in (1.0, 2.0))
    projected = KernelChoice(name="gaussian", dim=3, projection=2).build(SEEDS[0])
    single = KernelChoice(name="gaussian", dim=3, repetitions=1).build(SEEDS[0])
    with pytest.raises(InvalidInputError, match="share one KernelChoice"):
        check_kernel_means([gaussian, other], x, y)
    with pytest.raises(InvalidInputError, match="share one KernelChoice"):
        check_kernel_means([], x, y)
    with pytest.raises(InvalidInputError, match="not independent"):
        check_kernel_means([projected], x, y)
    with pytest.raises(InvalidInputError, match="draw at least 2"):
        check_kernel_means([single], x, y)
    with pytest.raises(InvalidInputError, match="failure_probability=0"):
        check_kernel_means([gaussian], x, y, false_alarm_rate=0.0)
