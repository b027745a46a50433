"""The analyzer's linear rule: the textbook's where there is no noise, the largest class where there is nothing else.

Data and noise are drawn with fixed seeds; no test here is statistical about privacy. Margins are wide.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from privkde.protocol.linear_rule import (
    LEAST_SHARE,
    N_BANDS,
    RELATED_STEPS,
    UNRELATED,
    ClassMeans,
    LinearRule,
    Published,
    cleaned,
)

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


def sample(
    sizes: list[int], dim: int, *, apart: float, seed: int, spread: tuple[float, float] = (0.4, 1.6)
) -> tuple[Floats, Numbers]:
    """Gaussian classes with one covariance, whose eigenvalues are spread around 1/d; means about `apart` from 0."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    root = basis * np.sqrt(np.linspace(*spread, dim) / dim)
    means = rng.normal(size=(len(sizes), dim)) * apart / math.sqrt(dim)
    classes = np.repeat(np.arange(len(sizes)), sizes)
    return means[classes] + rng.normal(size=(len(classes), dim)) @ root.T, classes


def published(
    x: Floats, classes: Numbers, n_classes: int, *, deviation: float = 0.0, seed: int = 1, moments: bool = True
) -> Published:
    """What a collection would publish, with independent noise; β = γ = 1."""
    rng, dim = np.random.default_rng(seed), x.shape[1]
    own = classes[:, None] == np.arange(n_classes)
    noise = rng.normal(size=(dim, dim)) * deviation
    symmetric = np.triu(noise, 1) / math.sqrt(2.0)
    return Published(
        n_users=len(x),
        sizes=own.sum(axis=0) + deviation * rng.normal(size=n_classes),
        size_deviation=deviation,
        sums=own.T.astype(float) @ x + deviation * rng.normal(size=(n_classes, dim)),
        deviation=deviation,
        moments=x.T @ x + np.diag(np.diag(noise)) + symmetric + symmetric.T if moments else None,
        moment_deviation=deviation if moments else 0.0,
    )


def accuracy(rule: LinearRule, x: Floats, classes: Numbers) -> float:
    return float(np.mean(np.argmax(rule.scores(x), axis=1) == classes))


# --- no noise


@pytest.mark.parametrize("deviation", [0.0, 1e-4])
@pytest.mark.parametrize("scale", [0.5, 0.1, 0.01])
def test_predictions_do_not_depend_on_the_scale_of_vectors(scale: float, deviation: float) -> None:
    """A regression: the least eigenvalue was that for unit vectors, and short ones were predicted by nearest means."""
    x, classes = sample([900, 300, 100], 20, apart=0.7, seed=3, spread=(0.01, 2.0))
    given = published(x, classes, 3, deviation=deviation)
    assert given.moments is not None
    scaled = dataclasses.replace(
        given,
        sums=scale * given.sums,
        deviation=scale * given.deviation,
        moments=scale**2 * given.moments,
        moment_deviation=scale**2 * given.moment_deviation,
    )
    whole, short = LinearRule.of(given), LinearRule.of(scaled)
    assert whole.uses_moments
    assert short.uses_moments
    low, high = whole.squared_norm
    if not low <= 1.0 <= high:  # else the trace is taken for 1, and other scales for what they are
        np.testing.assert_allclose(short.scores(scale * x), whole.scores(x), atol=1e-6)
    agreed = np.mean(np.argmax(short.scores(scale * x), axis=1) == np.argmax(whole.scores(x), axis=1))
    assert agreed > 0.99


@pytest.mark.parametrize("sizes", [[500, 500], [900, 300, 100], [200] * 6])
@pytest.mark.parametrize("dim", [2, 5, 20])
def test_without_noise_it_is_the_textbook_s_discriminant(sizes: list[int], dim: int) -> None:
    """Differences of scores are those of scikit-learn, which divides the covariance by n as well."""
    x, classes = sample(sizes, dim, apart=0.7, seed=dim)
    found = LinearRule.of(published(x, classes, len(sizes)))
    textbook = LinearDiscriminantAnalysis(solver="lsqr").fit(x, classes)
    scores, expected = found.scores(x[:50]), x[:50] @ textbook.coef_.T + textbook.intercept_
    if len(sizes) == 2:
        assert scores[:, 1] - scores[:, 0] == pytest.approx(expected[:, 0], abs=1e-6)
    else:
        assert scores - scores[:, :1] == pytest.approx(expected - expected[:, :1], abs=1e-6)
    assert (found.noise, found.signal > 0.1) == (0.0, True)


def test_without_second_moments_it_is_the_nearest_mean_with_sizes() -> None:
    x, classes = sample([600, 300, 100], 6, apart=0.7, seed=3)
    given = published(x, classes, 3, moments=False)
    found = LinearRule.of(given)
    means = given.sums / given.sizes[:, None]
    shares = given.sizes / given.sizes.sum()
    variance = (1.0 - shares @ np.sum(means**2, axis=1)) / 6.0
    queries = x[::37]
    squares = np.sum((queries[:, None] - means) ** 2, axis=2)
    expected = -squares / (2.0 * max(variance, LEAST_SHARE / 6.0)) + np.log(shares)
    scores = found.scores(queries)
    assert scores - scores[:, :1] == pytest.approx(expected - expected[:, :1], abs=1e-6)


@pytest.mark.parametrize("moments", [True, False])
def test_classes_may_be_listed_in_any_order(moments: bool) -> None:
    x, classes = sample([500, 300, 200, 50], 12, apart=0.6, seed=4)
    given = published(x, classes, 4, deviation=10.0, moments=moments)
    order = np.array([2, 0, 3, 1])
    turned = dataclasses.replace(given, sizes=given.sizes[order], sums=given.sums[order])
    found = LinearRule.of(turned).scores(x[:40])
    assert found == pytest.approx(LinearRule.of(given).scores(x[:40])[:, order], rel=1e-6, abs=1e-6)


def test_a_rotation_of_all_vectors_changes_no_score() -> None:
    x, classes = sample([500, 300, 200], 12, apart=0.6, seed=5)
    given = published(x, classes, 3, deviation=5.0)
    turn, _ = np.linalg.qr(np.random.default_rng(6).normal(size=(12, 12)))
    assert given.moments is not None
    turned = dataclasses.replace(given, sums=given.sums @ turn, moments=turn.T @ given.moments @ turn)
    expected = LinearRule.of(given).scores(x[:40])
    assert LinearRule.of(turned).scores(x[:40] @ turn) == pytest.approx(expected, rel=1e-6, abs=1e-6)


# --- much noise


@pytest.mark.parametrize("moments", [True, False])
@pytest.mark.parametrize(("deviation", "below"), [(100.0, 0.001), (400.0, 0.01)])
def test_where_there_is_only_noise_the_largest_class_is_predicted(
    deviation: float, below: float, moments: bool
) -> None:
    """No class differs from another, and second moments do not help noise. At 400, sizes are noisy, too."""
    x, classes = sample([6_000, 2_000, 1_000, 1_000], 30, apart=0.0, seed=7)
    for seed in range(5):
        rule = LinearRule.of(published(x, classes, 4, deviation=deviation, seed=seed, moments=moments))
        assert np.mean(np.argmax(rule.scores(x), axis=1) == 0) > 1.0 - 2.0 * below
        assert accuracy(rule, x, classes) > 0.6 - below
        assert rule.signal < rule.noise


def unshrunk(given: Published, x: Floats) -> Floats:
    """Scores with means as they were published and a covariance whose noise is not known of."""
    means = given.sums / np.maximum(given.sizes, 1.0)[:, None]
    shares = np.maximum(given.sizes, 1.0) / np.maximum(given.sizes, 1.0).sum()
    assert given.moments is not None
    values, basis = np.linalg.eigh(given.moments / given.n_users - (means.T * shares) @ means)
    inverse = (basis / np.maximum(values, LEAST_SHARE / len(values))) @ basis.T
    return np.asarray(x @ inverse @ means.T - 0.5 * np.sum(means @ inverse * means, axis=1) + np.log(shares))


def test_known_noise_that_is_taken_for_known_beats_noise_that_is_not() -> None:
    """Many unequal classes, eight draws of the noise, and never below the largest class."""
    sizes = [4_000, 2_000, 1_000, 600, 400, 300, 300, 200, 100, 100]
    x, classes = sample(sizes, 30, apart=0.5, seed=8)
    largest, rules, plain = sizes[0] / sum(sizes), [], []
    for seed in range(8):
        given = published(x, classes, len(sizes), deviation=60.0, seed=seed)
        rules.append(accuracy(LinearRule.of(given), x, classes))
        plain.append(float(np.mean(np.argmax(unshrunk(given, x), axis=1) == classes)))
    exact = accuracy(LinearRule.of(published(x, classes, len(sizes))), x, classes)
    assert all(known > other for known, other in zip(rules, plain, strict=True))
    assert np.mean(rules) > np.mean(plain) + 0.05
    assert min(rules) > largest
    assert exact > largest + 0.1


@pytest.mark.parametrize("deviation", [2.0, 4.0, 9.0, 16.0, 32.0])
def test_second_moments_do_no_harm_where_means_drown(deviation: float) -> None:
    """A regression: on scans of digits, few users and much noise, the discriminant was up to six points worse.

    Same sums, with and without second moments, twelve draws of the noise: their mean difference is off by a point.
    """
    scans, labels = load_digits(return_X_y=True)
    scans /= np.linalg.norm(scans, axis=1, keepdims=True)
    x, classes, y, expected = scans[:1300], labels[:1300], scans[1300:], labels[1300:]
    gains = []
    for seed in range(12):
        given = published(x, classes, 10, deviation=deviation, seed=seed)
        ignored = dataclasses.replace(given, moments=None, moment_deviation=0.0)
        gains.append(accuracy(LinearRule.of(given), y, expected) - accuracy(LinearRule.of(ignored), y, expected))
    assert np.mean(gains) > -0.02
    if deviation == 2.0:
        assert np.mean(gains) > 0.02, "and they help where they can"


def test_second_moments_help_where_means_are_weak_but_sure() -> None:
    """A regression: where shrinkage left less than 0.3 of the means, second moments were given up."""
    sizes = [1_500, 1_200, 1_000, 800, 600, 500, 400, 350, 300, 250, 200, 200, 150, 150]
    x, classes = sample(sizes, 60, apart=0.5, seed=16, spread=(0.02, 2.0))
    x[:, :6] += np.random.default_rng(17).normal(size=(len(x), 6))
    gains = []
    for seed in range(8):
        given = published(x, classes, len(sizes), deviation=90.0, seed=seed)
        means = ClassMeans.of(given).shrunk()
        assert float(means.shares @ (means.signal / (means.signal + means.noise_around))) < 0.3
        ignored = dataclasses.replace(given, moments=None, moment_deviation=0.0)
        rule = LinearRule.of(given)
        assert rule.uses_moments
        gains.append(accuracy(rule, x, classes) - accuracy(LinearRule.of(ignored), x, classes))
    assert np.mean(gains) > 0.1
    assert min(gains) > 0.0


def test_less_noise_is_never_much_worse() -> None:
    x, classes = sample([3_000, 1_000, 500], 20, apart=0.8, seed=9)
    found = [
        np.mean([accuracy(LinearRule.of(published(x, classes, 3, deviation=s, seed=i)), x, classes) for i in range(4)])
        for s in (0.0, 10.0, 50.0, 250.0)
    ]
    assert all(better > worse - 0.01 for better, worse in itertools.pairwise(found))
    assert found[0] > 0.95
    assert 0.7 < found[-1] < 0.95, "the largest class alone would be 0.67"


# --- steps


def test_shrinkage_has_its_limits() -> None:
    rng = np.random.default_rng(10)
    true = rng.normal(size=(4, 5_000))
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    for noise in (1e-4, 1.0, 1e4):
        noises = noise / shares
        values = true + rng.normal(size=true.shape) * np.sqrt(noises)[:, None]
        means = ClassMeans(shares=shares, values=values, noise=noises)
        shrunk = means.shrunk()
        kept = np.linalg.norm(shrunk.values - means.center, axis=1) / np.linalg.norm(values - means.center, axis=1)
        if noise < 1.0:
            assert kept == pytest.approx(np.ones(4), abs=2e-3)
        elif noise > 1.0:
            assert np.max(kept) < 0.2
        else:
            assert np.all(np.diff(kept) < 0.0), "smaller classes are noisier and shrunk more"
            truth = true - shares @ true
            apart = [np.sum((each.values - means.center - truth) ** 2) for each in (means, shrunk)]
            assert apart[1] < 0.6 * apart[0]
        assert shrunk.center.shape == (5_000,)


def test_means_without_noise_are_kept() -> None:
    """A regression: weights underflowed where the noise is 0, and all means were drawn to the center."""
    values = np.array([[0.5, 0.0], [-0.5, 0.2]])
    means = ClassMeans(shares=np.array([0.5, 0.5]), values=values, noise=np.zeros(2)).shrunk()
    assert means.values == pytest.approx(values, rel=1e-12)
    assert means.related(means.signals(N_BANDS)).values == pytest.approx(values, rel=1e-12)
    assert means.signal > 0.0


def noisy_means(true: Floats, noise: Floats, seed: int) -> tuple[ClassMeans, Floats]:
    """Classes of unequal sizes, seen with noise, and their true means less the common one."""
    shares = np.linspace(2.0, 1.0, len(true))
    shares /= shares.sum()
    values = true + np.random.default_rng(seed).normal(size=true.shape) * np.sqrt(noise)[:, None]
    return ClassMeans(shares=shares, values=values, noise=noise), true - shares @ true


def off(means: ClassMeans, truth: Floats) -> float:
    return float(np.mean((means.values - means.center - truth) ** 2))


def test_similar_classes_lend_each_other_what_they_know() -> None:
    """Ten classes in two groups: noise of one is averaged away by the others. Where they are unrelated it costs 3 %."""
    rng, noise = np.random.default_rng(18), np.linspace(0.2, 2.0, 10)
    for grouped, most in ((0.95, 0.65), (0.0, 1.03)):
        groups = np.repeat(rng.normal(size=(2, 400)), 5, axis=0)
        true = math.sqrt(grouped) * groups + math.sqrt(1.0 - grouped) * rng.normal(size=(10, 400))
        means, truth = noisy_means(true, noise, seed=19)
        signals = np.full(400, means.shrunk().signal)
        assert off(means.related(signals), truth) < most * off(means.shrunk(), truth)


def test_relations_are_found_as_by_explicit_inverses() -> None:
    """A slow twin: expectation maximization of T, coordinate by coordinate, with pseudo-inverses of q·T + N."""
    rng, noise = np.random.default_rng(20), np.array([0.3, 1.0, 2.0, 5.0])
    means, _ = noisy_means(rng.normal(size=(4, 12)) * np.linspace(0.5, 2.0, 12), noise, seed=21)
    signals = np.append(np.linspace(0.2, 2.0, 11), 0.0)
    scale = signals / signals.mean()
    centering = np.eye(4) - means.shares
    unrelated, noise_matrix = centering @ centering.T, centering @ np.diag(noise) @ centering.T
    related, prior = signals.mean() * unrelated, UNRELATED * 3
    seen, found = means.values - means.center, np.zeros((4, 12))
    for _ in range(RELATED_STEPS):
        squares = np.zeros((4, 4))
        for i in range(11):
            kept = scale[i] * related @ np.linalg.pinv(scale[i] * related + noise_matrix, rcond=1e-12)
            found[:, i] = kept @ seen[:, i]
            squares += np.outer(found[:, i], found[:, i]) / scale[i] + related - kept @ related
        variance = np.trace(np.linalg.pinv(unrelated, rcond=1e-12) @ related) / 3
        related = (squares + prior * variance * unrelated) / (11 + prior)
    assert means.related(signals).values == pytest.approx(means.center + found, abs=1e-9)


def test_more_classes_than_coordinates_are_not_related() -> None:
    """A regression: the matrix of 20,000 classes takes 3 GB, and a file of a few megabytes can claim that many."""
    rng, noise = np.random.default_rng(25), np.linspace(0.5, 2.0, 20_000)
    means, _ = noisy_means(rng.normal(size=(20_000, 3)), noise, seed=26)
    signals = np.array([0.0, 1.0, 3.0])
    apart = signals / (signals + means.noise_around[:, None]) * (means.values - means.center)
    assert means.related(signals).values == pytest.approx(means.center + apart, abs=1e-12)


def test_signals_of_bands_differ_only_as_far_as_errors_do_not_explain_it() -> None:
    rng, noise = np.random.default_rng(22), np.full(6, 4.0)
    same, _ = noisy_means(rng.normal(size=(6, 160)), noise, seed=23)
    alone = np.array([same.band(part).shrunk().signal for part in np.array_split(np.arange(160), 8)])
    assert np.std(same.signals(8)) < 0.5 * np.std(alone)
    variances = np.repeat([0.0, 20.0], 80)
    other, _ = noisy_means(rng.normal(size=(6, 160)) * np.sqrt(variances), noise, seed=24)
    found = other.signals(8)
    assert np.mean(found[:80]) < 1.5
    assert 12.0 < np.mean(found[80:]) < 28.0
    assert found.shape == (160,)


def test_the_noise_around_the_common_mean_is_that_of_a_simulation() -> None:
    """P·diag(s²)·Pᵀ, against 400,000 draws: within 2 %, many times their standard deviation of 0.2 %."""
    shares, noise = np.array([0.6, 0.3, 0.1]), np.array([0.5, 1.0, 9.0])
    draws = np.random.default_rng(11).normal(size=(3, 400_000)) * np.sqrt(noise)[:, None]
    means = ClassMeans(shares=shares, values=draws, noise=noise)
    assert np.var(draws - means.center, axis=1) == pytest.approx(means.noise_around, rel=0.02)
    size = np.sqrt(np.outer(means.noise_around, means.noise_around))
    assert np.cov(draws - means.center) / size == pytest.approx(means.covariance_around / size, abs=0.02)
    assert np.var(means.center) == pytest.approx(means.center_noise, rel=0.02)


def test_cleaned_eigenvalues_are_nearer_to_the_truth() -> None:
    """Against vᵀAv, which no estimate with the noisy eigenvectors v can beat."""
    rng, dim, sigma = np.random.default_rng(12), 300, 0.5
    truth = np.diag(np.linspace(0.2, 2.0, dim))
    noise = np.triu(rng.normal(size=(dim, dim)), 1) * sigma / math.sqrt(dim)
    noise += noise.T + np.diag(rng.normal(size=dim) * sigma * math.sqrt(2.0 / dim))
    values, vectors = np.linalg.eigh(truth + noise)
    best = np.sum(vectors * (truth @ vectors), axis=0)
    found = cleaned(values, sigma)
    assert np.mean((found - best) ** 2) < 0.1 * np.mean((values - best) ** 2)
    assert np.array_equal(cleaned(values, 0.0), values)


def test_the_scale_keeps_log_odds_honest() -> None:
    """With a cautious inverse the mean log odds still tell how often the prediction is right, within a tenth."""
    x, classes = sample([2_000, 2_000], 20, apart=0.5, seed=13)
    rule = LinearRule.of(published(x, classes, 2, deviation=30.0))
    scores = rule.scores(x)
    sure = 1.0 / (1.0 + np.exp(-np.abs(scores[:, 1] - scores[:, 0])))
    assert np.mean(sure) == pytest.approx(accuracy(rule, x, classes), abs=0.1)


# --- unusual input


@pytest.mark.parametrize("moments", [True, False])
@pytest.mark.parametrize("dim", [1, 2, N_BANDS - 1, N_BANDS])
def test_few_dimensions(dim: int, moments: bool) -> None:
    x, classes = sample([500, 400], dim, apart=2.0, seed=14 + dim)
    rule = LinearRule.of(published(x, classes, 2, deviation=2.0, moments=moments))
    assert rule.weights.shape == (2, dim)
    assert accuracy(rule, x, classes) > 0.56


@pytest.mark.parametrize("moments", [True, False])
@pytest.mark.parametrize("deviation", [0.0, 20.0])
def test_a_class_without_users_is_hardly_ever_predicted(deviation: float, moments: bool) -> None:
    x, classes = sample([1_000, 0, 900], 10, apart=1.0, seed=15)
    x /= np.linalg.norm(x, axis=1)[:, None]
    rule = LinearRule.of(published(x, classes, 3, deviation=deviation, moments=moments))
    assert np.mean(np.argmax(rule.scores(x), axis=1) == 1) < 0.02
    assert accuracy(rule, x, classes) > 0.7


@pytest.mark.parametrize("deviation", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("moments", [None, np.zeros((5, 5)), np.full((5, 5), -1e3), 1e6 * np.eye(5)])
@pytest.mark.parametrize("size", [-50.0, 0.0, 10.0, 1e9])
def test_whatever_is_published_scores_are_finite(size: float, moments: Floats | None, deviation: float) -> None:
    for sums in (np.zeros((3, 5)), np.full((3, 5), 1e6), np.arange(15.0).reshape(3, 5)):
        given = Published(
            n_users=100, sizes=np.array([size, 50.0, 50.0]), size_deviation=deviation, sums=sums, deviation=deviation,
            moments=moments, moment_deviation=0.0 if moments is None else deviation,
        )  # fmt: skip
        rule = LinearRule.of(given)
        assert np.all(np.isfinite(rule.scores(np.vstack([np.eye(5), np.zeros(5)]))))
        assert math.isfinite(rule.signal)
        assert math.isfinite(rule.noise)
