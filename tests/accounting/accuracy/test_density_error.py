"""Error bounds: Theorem 3.2 as a formula, its variants, and one protocol whose true error is enumerated."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.accuracy.density_error import (
    PredictedError,
    predicted_error,
    sup_absolute_error_bound,
    sup_error_bound,
)
from accounting.errors import InvalidInputError
from accounting.kernels import KERNELS, KernelFacts, kernel_named
from accounting.mechanisms import RandomizedResponse


def facts(name: str, dim: int = 4, repetitions: int = 5) -> KernelFacts:
    return kernel_named(name).facts(dim=dim, repetitions=None if name == "inner-product" else repetitions)


# --- the paper's bound ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("error", [Fraction(0), Fraction(3, 2), Fraction(100)])
def test_the_bound_is_theorem_3_2(name: str, error: Fraction) -> None:
    """sqrt(4β² + (16R⁴S/I)(S + (E/n)²)), the radicand in fractions (R² is whole for every family)."""
    kernel, n = facts(name), 30
    square, s, i = Fraction(round(kernel.bound**2)), kernel.sparsity, kernel.n_repetitions
    assert float(square) == pytest.approx(kernel.bound**2, rel=1e-15)
    radicand = 4 * Fraction(kernel.bias) ** 2 + 16 * square**2 * s / i * (s + (error / n) ** 2)
    found = sup_error_bound(kernel, n, float(error))
    assert found**2 == pytest.approx(float(radicand), rel=1e-14)


def test_the_bound_of_the_papers_own_numbers() -> None:
    """Gaussian (R⁴ = 4, S = 1, β = 0): sqrt((64/I)(1 + (E/n)²)), as in Theorem 3.3's proof."""
    kernel = facts("gaussian", 768, 768)
    assert sup_error_bound(kernel, 30_000, 62.0) == pytest.approx(
        math.sqrt(64 / 768 * (1 + (62 / 30_000) ** 2)), rel=1e-14
    )


@pytest.mark.parametrize("name", KERNELS)
def test_an_unbiased_protocol_is_the_special_case(name: str) -> None:
    kernel = facts(name)
    plain = sup_error_bound(kernel, 50, 7.0)
    assert sup_error_bound(kernel, 50, 7.0, bias=0.0) == plain
    assert sup_error_bound(kernel, 50, 7.0, bias=1e-9) == pytest.approx(plain, rel=1e-12)
    biased = sup_error_bound(kernel, 50, 7.0, bias=10.0)
    extra = 8 * kernel.bound**4 * kernel.sparsity**2 * (10 / 50) ** 2
    assert biased**2 - plain**2 == pytest.approx(extra, rel=1e-10)


@pytest.mark.parametrize("name", KERNELS)
def test_mean_absolute_error_needs_no_independence(name: str) -> None:
    """sqrt(2β² + 8R⁴S²/I) + 2R²S·A/n: without noise it is below the root-mean-square bound by a factor √2."""
    kernel, n = facts(name), 50

    def absolute(value: float) -> float:
        return sup_absolute_error_bound(kernel, n, value)

    silent = sup_error_bound(kernel, n, 0.0)
    assert absolute(0.0) == pytest.approx(silent / math.sqrt(2), rel=1e-14)
    slope = 2 * kernel.bound**2 * kernel.sparsity / n
    assert absolute(7.0) - absolute(0.0) == pytest.approx(7.0 * slope, rel=1e-12)


positive = st.floats(-3, 4).map(lambda x: 10.0**x)


@given(st.sampled_from(list(KERNELS)), st.booleans(), st.integers(2, 10**6), st.tuples(*[positive] * 3))
def test_every_bound_grows_with_error_and_bias_and_shrinks_with_users_and_repetitions(
    name: str, absolute: bool, n: int, numbers: tuple[float, float, float]
) -> None:
    kernel, (value, bias, more) = facts(name), numbers

    def bound(kernel: KernelFacts, n: int, value: float, bias: float) -> float:
        if absolute:
            return sup_absolute_error_bound(kernel, n, value)
        return sup_error_bound(kernel, n, value, bias=bias)

    base = bound(kernel, n, value, bias)
    assert bound(kernel, n, value + more, bias) >= base
    assert bound(kernel, n, value, bias + more) >= base
    assert bound(kernel, n + 1, value, bias) <= base
    assert bound(replace(kernel, n_repetitions=2 * kernel.n_repetitions), n, value, bias) <= base


def test_each_term_matters() -> None:
    kernel = facts("laplacian")
    base = sup_error_bound(kernel, 50, 10.0, bias=1.0)
    for changed in (
        sup_error_bound(kernel, 50, 20.0, bias=1.0),
        sup_error_bound(kernel, 50, 10.0, bias=4.0),
        sup_error_bound(replace(kernel, bias=0.5), 50, 10.0, bias=1.0),
        sup_error_bound(replace(kernel, sparsity=2), 50, 10.0, bias=1.0),
    ):
        assert changed > 1.001 * base


# --- the exact decomposition ----------------------------------------------------------------------


@given(st.sampled_from(list(KERNELS)), st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 10**9), positive)
def test_the_prediction_is_below_the_papers_bound(name: str, dim: int, repetitions: int, n: int, rmse: float) -> None:
    kernel = facts(name, dim, repetitions)
    predicted = predicted_error(kernel, n, rmse)
    assert 0.0 < predicted.total <= sup_error_bound(kernel, n, rmse)


def test_the_total_is_the_root_of_the_sum_of_squares() -> None:
    assert PredictedError(bias=1.0, feature=2.0, rounding=4.0, privacy=10.0).total == 11.0


def test_the_parts_scale_as_stated() -> None:
    base = predicted_error(facts("gaussian", 4, 10), 100, 5.0)
    longer = predicted_error(facts("gaussian", 4, 40), 100, 5.0)
    more = predicted_error(facts("gaussian", 4, 10), 400, 5.0)
    louder = predicted_error(facts("gaussian", 4, 10), 100, 10.0)
    by_four_times_the_repetitions, by_four_times_the_users, by_twice_the_noise = (
        {"feature": 0.5, "rounding": 0.5, "privacy": 0.5},
        {"feature": 1.0, "rounding": 0.5, "privacy": 0.25},
        {"feature": 1.0, "rounding": 1.0, "privacy": 2.0},
    )
    for part in ("feature", "rounding", "privacy"):
        before = getattr(base, part)
        assert before > 0
        assert getattr(longer, part) == pytest.approx(by_four_times_the_repetitions[part] * before, rel=1e-14)
        assert getattr(more, part) == pytest.approx(by_four_times_the_users[part] * before, rel=1e-14)
        assert getattr(louder, part) == pytest.approx(by_twice_the_noise[part] * before, rel=1e-14)


Vector = tuple[Fraction, ...]


def dot(x: Vector, y: Vector) -> Fraction:
    return sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))


def enumerated_moments(
    users: Sequence[Vector], y: Vector, features: Sequence[tuple[Fraction, Vector]], bound: Fraction, flip: Fraction
) -> tuple[Fraction, Fraction]:
    """Mean and mean square error of K̃(y) with RR bitsums and I = 1, over every feature draw, rounding and flip.

    A feature draw is (probability, σ) with f(x) = g(x) = σ·x; bit ~ Bern((1 + f/R)/2); K̃ = g(y)·R(2B̃/n − 1).
    """
    n, truth = len(users), sum((dot(x, y) for x in users), Fraction(0)) / len(users)
    mean = square = Fraction(0)
    for weight, sigma in features:
        g = dot(sigma, y)
        ones = [(1 + dot(sigma, x) / bound) / 2 for x in users]
        for bits, flips in itertools.product(itertools.product((0, 1), repeat=n), repeat=2):
            probability = weight
            for bit, flipped, one in zip(bits, flips, ones, strict=True):
                probability *= (one if bit else 1 - one) * (flip if flipped else 1 - flip)
            count = sum(bit ^ flipped for bit, flipped in zip(bits, flips, strict=True))
            total = (count - n * flip) / (1 - 2 * flip)
            estimate = g * bound * (2 * total / n - 1)
            mean += probability * estimate
            square += probability * (estimate - truth) ** 2
    return mean, square


HALF = Fraction(1, 2)
DENSE = [tuple(Fraction(e, 2) for e in signs) for signs in ((1, 1, 1, 1), (1, 1, 1, -1), (1, -1, -1, 1))]


@pytest.mark.parametrize("flip", [Fraction(1, 10), Fraction(3, 10)])
@pytest.mark.parametrize(
    ("users", "y"), [([DENSE[0], DENSE[1]], DENSE[0]), ([DENSE[0], DENSE[2]], DENSE[1]), ([DENSE[1]] * 3, DENSE[1])]
)
def test_the_true_error_of_a_tiny_protocol_is_below_the_prediction(
    users: list[Vector], y: Vector, flip: Fraction
) -> None:
    """Random signs in four dimensions (R = 2), all 16 signs × 2^n roundings × 2^n flips, in fractions."""
    signs = [(Fraction(1, 16), tuple(map(Fraction, s))) for s in itertools.product((-1, 1), repeat=4)]
    kernel, n = facts("inner-product-signs", 4, 1), len(users)
    mean, square = enumerated_moments(users, y, signs, Fraction(2), flip)
    assert mean == sum(dot(x, y) for x in users) / n
    law = RandomizedResponse(n_users=n, flip_probability=float(flip))
    predicted = predicted_error(kernel, n, law.rmse())
    bound = sup_error_bound(kernel, n, law.rmse())
    assert 0 < float(square) <= predicted.total**2 <= bound**2
    assert float(square) > 0.5 * predicted.total**2, "the prediction is idle"


def test_the_three_parts_of_a_tiny_protocol_are_exact() -> None:
    """feature + rounding + privacy, each from its own formula, is the enumerated mean square error: nothing missing."""
    flip, users, y, dim = Fraction(1, 5), [DENSE[0], DENSE[1]], DENSE[2], 4
    signs = [(Fraction(1, 16), tuple(map(Fraction, s))) for s in itertools.product((-1, 1), repeat=4)]
    n = len(users)
    _, square = enumerated_moments(users, y, signs, Fraction(2), flip)
    truth = sum((dot(x, y) for x in users), Fraction(0)) / n
    feature = sum(w * (sum(dot(s, x) for x in users) * dot(s, y) / n) ** 2 for w, s in signs) - truth**2
    rounding = sum(w * dot(s, y) ** 2 * sum(dim - dot(s, x) ** 2 for x in users) for w, s in signs) / n**2
    variance = n * flip * (1 - flip) / (1 - 2 * flip) ** 2
    privacy = sum(w * dot(s, y) ** 2 for w, s in signs) * 4 * dim * variance / n**2
    assert feature + rounding + privacy == square
    assert min(feature, rounding, privacy) > 0
    predicted = predicted_error(facts("inner-product-signs", dim, 1), n, math.sqrt(variance))
    assert float(feature) <= predicted.feature**2
    assert float(rounding) <= predicted.rounding**2
    assert float(privacy) == pytest.approx(predicted.privacy**2, rel=1e-14)


def test_the_estimate_without_the_correction_is_biased() -> None:
    """A control: the same enumeration sees the paper's missing (count − np)/(1 − 2p)."""
    users, y, flip = [(HALF,)], (Fraction(1),), Fraction(1, 5)
    mean, square = enumerated_moments(users, y, [(Fraction(1), (Fraction(1),))], Fraction(1), flip)
    assert mean == HALF
    uncorrected = (1 - 2 * flip) * HALF
    assert uncorrected != mean
    assert square > (mean - uncorrected) ** 2


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan, True, "1"])
def test_an_error_that_is_none_is_rejected(bad: object) -> None:
    kernel = facts("gaussian")
    for bound in (sup_error_bound, sup_absolute_error_bound):
        with pytest.raises(InvalidInputError, match="bitsum error="):
            bound(kernel, 50, bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="bitsum bias="):
        sup_error_bound(kernel, 50, 1.0, bias=bad)  # type: ignore[arg-type]
