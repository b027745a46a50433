"""Is the published density unbiased, and is its error what is predicted and bounded? On the library's own engine."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from accounting import Plan
from privkde.draws.randomness import private_randomness
from privkde.learning import prediction
from privkde.protocol.record_vectors import RecordLayout
from verification.client_rows import client_rows
from verification.evidence import MeasuredErrors, QueryError
from verification.statistical.densities.robust_means import MISSED, MeanTest, mean_test, smallest_stretch
from verification.statistical.densities.samples import (
    Collections,
    Contrast,
    Dataset,
    Floats,
    fresh_maps,
    is_wide,
    same_maps,
    small_plan,
    sum_moments,
    widened,
    widest_variance,
)
from verification.statistical.kernel_means import empirical_bernstein
from verification.twins import mechanism_twin, needs_twins
from verification.twins.record_readings import DENSITY, MOMENT, SIZE
from verification.verdicts import CHECK_ALPHA, Effort, Finding, Layer, Subject, check, finding

PATHS = ("aggregated", "faithful")
RANDOM_QUERIES = 3
ASCENT_STEPS = 40
SINGLE = 2e-3
"""Relative error granted to densities in single precision, in units of R²."""
CLIPPED = 0.02
"""Relative error granted to the variance that a classifier of rotated records takes for known: clipping is left out."""
PREDICTED = 1e-3
"""Relative error granted to the library's prediction, whose features are in single precision."""


def searched_queries(plan: Plan, dataset: Dataset, rng: np.random.Generator) -> Floats:
    """Where the error may be large: random points, the cluster, a far record, and the end of a random ascent.

    The ascent climbs the variance given freshly drawn maps, which no later collection uses.
    """
    dim = plan.request.dim
    drawn = rng.normal(size=(RANDOM_QUERIES, dim))
    drawn /= np.maximum(1.0, np.linalg.norm(drawn, axis=1, keepdims=True))
    starts = np.concatenate([drawn, dataset.x[[0, -1]]])
    seed = private_randomness(int(rng.integers(2**62))).public_seed()
    trial = Collections(*widened(plan, "faithful"), dataset, seed)

    def height(y: Floats) -> Floats:
        densities = [contrast for contrast in trial.contrasts(y) if contrast.kind == DENSITY][: len(y)]
        return np.array([float(np.mean(density.variances) + np.var(density.means)) for density in densities])

    best = starts[int(np.argmax(height(starts)))]
    for step in range(ASCENT_STEPS // 8):
        around = best + 0.5 / (1.0 + step) * rng.normal(size=(8, dim))
        around = np.concatenate([best[None], around / np.maximum(1.0, np.linalg.norm(around, axis=1, keepdims=True))])
        best = around[int(np.argmax(height(around)))]
    return np.concatenate([starts, best[None]])


@check("density-unbiased", Layer.STATISTICAL, "published densities have the right mean", needs=needs_twins)
def unbiased(subject: Subject, effort: Effort, seed: int) -> Finding:
    """E K̃(y) = KDE(y) + the known bias, over fresh maps and private draws, on both paths."""
    plan, rng, randomness = small_plan(subject.plan), np.random.default_rng(seed), private_randomness(seed)
    dataset = Dataset.of(plan, rng)
    y = searched_queries(plan, dataset, rng)
    tests, sizes = [], []
    seen: dict[str, list[float]] = {}
    for path in PATHS:
        collections = fresh_maps(plan, dataset, randomness, path=path, scale=effort.scale)
        parts = [collection.contrasts(y) for collection in collections]
        contrasts = [Contrast.joined(list(same)) for same in zip(*parts, strict=True)]
        alpha = CHECK_ALPHA / (len(PATHS) * (2 * len(contrasts) + 1))
        for contrast in contrasts:
            what, values = f"{contrast.what}, {path} path", contrast.values
            pair = [
                mean_test(
                    f"{what}, over maps",
                    values,
                    contrast.expected,
                    contrast.total_variance,
                    alpha,
                    slack=contrast.residual,
                ),
                mean_test(f"{what}, given the maps", values, contrast.means, contrast.variances, alpha),
            ]
            tests += pair
            seen.setdefault(contrast.kind, []).extend(test.smallest_defect for test in pair)
        tests.append(_gain(path, collections, alpha))
        sizes.append(contrasts[0].values.size)
        if not plan.request.joint:
            tests.append(_publication(collections[0], y, parts[0]))
    return _finding(
        f"the density of {_size(plan)} is unbiased up to the kernel's known bias, with the stated variance",
        tests,
        defect=min(seen[DENSITY]),
        note=f"{sizes[0]:,} densities of the aggregated and {sizes[1]:,} of the faithful path, {len(y)} queries."
        " Densities of joint classes are ratios; tested are their unbiased numerators and sizes. Statistic: largest"
        " test statistic as a share of its limit. Smallest defect: a bias of the density where it is seen best."
        + (f" The same for a class's share of the users: {_worded(min(seen[SIZE]))}." if SIZE in seen else "")
        + (f" For a second moment: {_worded(min(seen[MOMENT]))}." if MOMENT in seen else "")
        + (f" Clipping may leave a bias of {residual:.3g}." if (residual := contrasts[0].residual) else ""),
    )


def _gain(path: str, collections: list[Collections], alpha: float) -> MeanTest:
    """Errors of all sums, weighted by their means over their variances: sees whatever shrinks or stretches sums."""
    moments = (collection.moments for collection in collections)
    mean, variance, _ = (np.concatenate(moment) for moment in zip(*moments, strict=True))
    sums = np.concatenate([collection.sums[0] for collection in collections])
    test = mean_test(f"gain of all sums, {path} path", (sums - mean) * mean / variance, 0.0, mean**2 / variance, alpha)
    return dataclasses.replace(test, smallest_defect=0.0)


def _publication(collections: Collections, y: Floats, contrasts: list[Contrast]) -> MeanTest:
    """The density as the library evaluates it is the mean over the blocks; no randomness is left, only rounding."""
    blocks = np.array([float(np.mean(contrast.values[0, : collections.blocks])) for contrast in contrasts])
    gap = float(np.max(np.abs(collections.published_mean(y) - blocks)))
    allowed = SINGLE * max(1.0, float(np.max(np.abs(blocks))))
    return MeanTest(what="evaluation of the density", ratio=gap / allowed, deviation=gap, smallest_defect=0.0)


@check("sup-rmse", Layer.STATISTICAL, "error: bound, prediction and measurement", needs=needs_twins)
def sup_rmse(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The error at the worst query found: below Theorem 3.2, and of exactly the predicted variance."""
    plan, rng, randomness = small_plan(subject.plan), np.random.default_rng(seed), private_randomness(seed)
    dataset = Dataset.of(plan, rng)
    y = searched_queries(plan, dataset, rng)
    paths = {path: same_maps(plan, dataset, randomness, path=path, scale=effort.scale) for path in PATHS}
    contrasts = [(path, contrast) for path, collections in paths.items() for contrast in collections.contrasts(y)]
    sums = [(path, collections.all_sums()) for path, collections in paths.items()]
    alpha = CHECK_ALPHA / (3 * len(contrasts) + 2 * len(sums))
    tests = [test for path, contrast in [*contrasts, *sums] for test in _variance_tests(path, contrast, alpha)]
    if plan.request.record is not None:
        tests.append(_record_noise(paths[PATHS[0]]))
    if not plan.request.joint:
        tests += [_theorem(plan, contrast, alpha) for _, contrast in contrasts]
        tests.append(_prediction(paths[PATHS[0]], y))
    decrease = min(test.smallest_defect for test in tests if test.smallest_defect > 0.0)
    increase = min(_increase(contrast, alpha) for _, contrast in [*contrasts, *sums])
    errors = MeasuredErrors(
        bound=plan.sup_rmse_bound,
        planned=plan.error.total,
        queries=tuple(
            QueryError(predicted=_root(_predicted(contrast)), measured=_root(_errors(contrast)))
            for path, contrast in contrasts
            if path == PATHS[0]
        ),
    )
    upper = ""
    if is_wide(plan):
        highest = max(_upper(plan, contrast, alpha) for _, contrast in contrasts)
        upper = f", at most {highest:.4g} if the noise follows its law"
    return _finding(
        f"the error of {_size(plan)} is at most the bound and has the predicted variance, at every query searched",
        tests,
        defect=decrease if decrease <= 1.0 else math.inf,
        note=f"Theorem 3.2: {'nothing' if errors.bound is None else f'{errors.bound:.4g}'}; planned:"
        f" {errors.planned:.4g}; worst query: predicted {errors.worst.predicted:.4g}, measured"
        f" {errors.worst.measured:.4g}{upper}."
        f" {contrasts[0][1].values.size:,} aggregated and {contrasts[-1][1].values.size:,} faithful"
        f" densities, {len(y)} queries (random,"
        " records, ascent). Statistic: largest test statistic as a share of its limit. Smallest defect: relative"
        " decrease of the variance of rounding and noise, by errors that shrink. An increase, by errors that stretch,"
        f" found as surely: {_worded(increase)}. Curve: (bound, planned), then (predicted, measured) at each query.",
        evidence=errors,
    )


def _variance_tests(path: str, contrast: Contrast, alpha: float) -> list[MeanTest]:
    """E of the squared standardized error is 1, and of the difference of two collections with the same maps 2.

    The squares' own variance is known exactly from the fourth cumulant: no approximation in either test. The smallest
    defect is a relative decrease of the variance by errors that shrink, whose squares do not vary more than claimed.
    """
    excess = contrast.fourths / contrast.variances**2
    squares = (contrast.values - contrast.means) ** 2 / contrast.variances
    tests = [mean_test(f"variance, {contrast.what}, {path}", squares, 1.0, 2.0 + excess, alpha)]
    pairs = len(contrast.values) // 2
    if pairs:
        differences = (contrast.values[:pairs] - contrast.values[pairs : 2 * pairs]) ** 2 / (2.0 * contrast.variances)
        tests.append(mean_test(f"fresh noise, {contrast.what}, {path}", differences, 1.0, 2.0 + 0.5 * excess, alpha))
    return tests


def _increase(contrast: Contrast, alpha: float) -> float:
    """Relative increase of the variance, by errors that are stretched, which the first of these tests finds."""
    variance = 2.0 + float(np.mean(contrast.fourths / contrast.variances**2))
    return smallest_stretch(contrast.values.size, variance, alpha)


def _errors(contrast: Contrast) -> Floats:
    return (contrast.values - contrast.expected) ** 2


def _predicted(contrast: Contrast) -> Floats:
    """Mean square error given the maps of each block."""
    return contrast.variances + (contrast.means - contrast.expected) ** 2


def _root(squares: Floats) -> float:
    return math.sqrt(float(np.mean(squares)))


def _theorem(plan: Plan, contrast: Contrast, alpha: float) -> MeanTest:
    """A lower confidence bound on the mean square error over maps, as a share of what Theorem 3.2 allows.

    Squared errors are cut at 25 variances plus the squared bound, which only lowers them; blocks of one collection have
    independent maps, so its first row alone is used.
    """
    bound = plan.sup_rmse_bound
    assert bound is not None
    most = 25.0 * contrast.total_variance + bound**2
    samples = np.minimum(_errors(contrast)[0] if is_wide(plan) else _errors(contrast).reshape(-1), most)
    slack = empirical_bernstein(samples, width=most, failure_probability=alpha)
    lowest = math.sqrt(max(0.0, float(np.mean(samples)) - slack))
    return MeanTest(what=f"Theorem 3.2, {contrast.what}", ratio=lowest / bound, deviation=lowest, smallest_defect=0.0)


def _upper(plan: Plan, contrast: Contrast, alpha: float) -> float:
    """Upper confidence bound on the root-mean-square error over maps, given the law of rounding and noise; wide only.

    The range is known beforehand: |f·g| ≤ R²S, and given any maps a density of n users varies by at most
    R²S·`widest_variance`/(n²I), since Σ_j g_j(y)² ≤ R²S in each of I repetitions.
    """
    squares, facts = _predicted(contrast), plan.request.facts()
    most = facts.bound**2 * facts.sparsity
    private = most * widest_variance(plan) / (plan.request.users**2 * facts.n_repetitions)
    slack = empirical_bernstein(squares, width=(2.0 * most) ** 2 + private, failure_probability=alpha)
    return math.sqrt(float(np.mean(squares)) + slack)


def _prediction(collections: Collections, y: Floats) -> MeanTest:
    """The library's own prediction of rounding and privacy error against the exact variance, at the same maps.

    Where it is an upper bound, only a prediction that is too small refutes. Not for joint labels: there the
    sample of a prediction stands for one class among others of equal size, which this dataset is not.
    """
    plan, dataset = collections.plan, collections.dataset
    predicted = prediction.expected_error(plan, dataset.x, y, public_seed=collections.announcement.public_seed)
    claimed = predicted.rounding**2 + predicted.privacy**2
    variances = [np.sum(contrast.variances) for contrast in collections.contrasts(y)]
    exact = float(np.mean(variances)) / collections.blocks**2
    short = (exact - claimed) / exact
    off = max(0.0, short) if mechanism_twin(plan).prediction_is_bound else abs(short)
    return MeanTest(what="predicted variance", ratio=off / PREDICTED, deviation=-short, smallest_defect=0.0)


def _record_noise(collections: Collections) -> MeanTest:
    """The deviation that a classifier takes for known against the exact one, for vectors of norm 1 and these maps.

    Of one coordinate of a rotated record, averaged over all of them: the rotation keeps that. Clipping changes little.
    """
    plan, announcement, data = collections.plan, collections.announcement, collections.dataset
    layout = announcement.layout()
    assert isinstance(layout, RecordLayout)
    units = data.x / np.linalg.norm(data.x, axis=1, keepdims=True)
    exact = float(np.mean(sum_moments(plan, client_rows(announcement, units, data.classes)).variance))
    claimed = layout.noise_deviation(len(units), plan.protocol().variance(len(units))) ** 2
    gap = claimed / exact - 1.0
    return MeanTest(what="known noise of a record", ratio=abs(gap) / CLIPPED, deviation=gap, smallest_defect=0.0)


def _worded(defect: float) -> str:
    return f"{defect:.3g}" if math.isfinite(defect) else "none"


def _size(plan: Plan) -> str:
    request = plan.request
    return f"{request.users} users, {request.facts().n_instances} instances, {request.kernel}, {plan.bitsum}"


def _finding(
    claim: str, tests: list[MeanTest], *, defect: float, note: str, evidence: MeasuredErrors | None = None
) -> Finding:
    """Refuted exactly if one of the tests exceeds its limit."""
    worst = max(tests, key=lambda test: test.ratio)
    return finding(
        claim,
        statistic=worst.ratio,
        bound=1.0,
        found=f"{worst.what}: off by {worst.deviation:.4g}, {worst.ratio:.3g} times the limit of its test",
        numbers={"deviation": worst.deviation},
        alpha=CHECK_ALPHA,
        power=1.0 - MISSED,
        smallest_detectable_defect=defect,
        note=note,
        evidence=evidence,
    )


CHECKS = (unbiased, sup_rmse)
