"""Checks of the central baseline's sensitivity and of the label mechanism."""

from __future__ import annotations

import dataclasses
import math

import mpmath
import numpy as np
from scipy import stats

from accounting import Plan
from accounting.accuracy import baselines as planned
from accounting.kernels import KernelFacts
from accounting.mechanisms import LabelResponse
from privkde.draws.randomness import ByteStream
from privkde.learning.baselines import central_sums
from verification.domain.client_view import ClientView, Floats, largest_over_pairs
from verification.statistical.execution.samplers import label_samples
from verification.statistical.execution.stages import private_stream
from verification.statistical.goodness_of_fit import MISSED, fits_of
from verification.verdicts import CHECK_ALPHA, Effort, Finding, Layer, Subject, check, finding

CENTRAL = "central"
"""The baseline of Gaussian noise added by a trusted curator."""
GAUSSIAN_DRAWS = 2_000
LABEL_DRAWS = 200_000
SINGLE_PRECISION = 1e-5
"""Granted to a sensitivity, relative: features, and the norms that they come from, are single precision."""
EXACT = 1e-12
"""Granted to a probability that is recomputed, relative."""


@check(
    "central-sensitivity",
    Layer.STATISTICAL,
    "the central baseline's noise fits the sensitivity of replacing one record",
    applies=lambda subject: bool(central_deviations(subject.plan)),
)
def check_central(subject: Subject, effort: Effort, seed: int) -> Finding:
    """δ of the central baseline for the sensitivity that a search finds, and the noise that it draws."""
    plan, stream = subject.plan, private_stream(seed, "central")
    view = ClientView(plan, stream)
    reached = _reached(view, effort, stream)
    facts, epsilon, delta = plan.request.facts(), plan.request.kde_epsilon, float(plan.request.delta)
    recomputed = planned.central(facts, plan.request.users_per_protocol, epsilon=epsilon, delta=delta)
    deviations = [*central_deviations(plan), _deviation(recomputed)]
    sensitivity = reached / (1.0 + SINGLE_PRECISION) * declared_sensitivity(facts)
    spent = max(gaussian_delta(sensitivity / deviation, epsilon) for deviation in deviations)
    drawn = _drawn(view, deviations[0], effort, stream)
    return finding(
        "The central baseline adds the noise that its (ε, δ) needs for the sensitivity of replacing one record.",
        statistic=max(spent / delta, drawn),
        bound=1.0,
        found=f"two records are {sensitivity:.6g} apart, so that δ = {spent:.3g} and {delta:.3g} was promised; the"
        f" spread of the noise that was drawn is {drawn:.3g} times as surprising as allowed",
        numbers={"sensitivity": sensitivity, "spent_delta": spent, "spread": drawn},
        alpha=CHECK_ALPHA,
        power=1.0 - MISSED,
        smallest_detectable_defect=max(1.0 - reached, _detectable_spread(effort)),
        note=f"Smallest defect: relative understatement of the sensitivity or of the noise. The search reached"
        f" {reached:.6f} of the declared sensitivity; 1e-5 of it are granted to single precision."
        + ("" if view.facts.joint_classes is None else " No noise was drawn: there is no such baseline to execute."),
    )


def central_deviations(plan: Plan) -> list[float]:
    """Standard deviations of the noise of the plan's central baselines."""
    return [_deviation(baseline) for baseline in plan.baselines if baseline.name == CENTRAL]


def _deviation(baseline: planned.Baseline) -> float:
    return float(baseline.contract.parameters["standard_deviation"])


def declared_sensitivity(facts: KernelFacts) -> float:
    """√I times the declared supremum of ‖f(x) − f(x')‖ over one repetition; √T times that for T releases."""
    return math.sqrt(facts.n_releases * facts.n_repetitions) * facts.replaced_norm


def _reached(view: ClientView, effort: Effort, stream: ByteStream) -> float:
    """The largest ‖f(x) − f(x')‖ that was found, over what is declared.

    Repetitions are not correlated in the declared value: the supremum over one of them counts for all. With joint
    labels, and where features are held in a ball, all instances are taken together.
    """
    facts = view.facts
    together = facts.joint_classes is not None or facts.ball is not None

    def norm(moved: Floats) -> Floats:
        parts = moved.reshape(len(moved), 1 if together else facts.n_repetitions, -1)
        return np.asarray(np.max(np.linalg.norm(parts, axis=2), axis=1))

    declared = declared_sensitivity(facts) if together else facts.replaced_norm
    return facts.bound * largest_over_pairs(view, effort, stream, norm) / declared


def gaussian_delta(ratio: float, epsilon: float) -> float:
    """H_{e^ε}(N(μ, 1)‖N(0, 1)), μ = `ratio`: P(X > c) − e^ε P(Y > c) at the c where the ratio of densities is e^ε."""
    with mpmath.workdps(40):
        mu, eps = mpmath.mpf(ratio), mpmath.mpf(epsilon)
        c = eps / mu + mu / 2
        return float(mpmath.ncdf(mu - c) - mpmath.exp(eps) * mpmath.ncdf(-c))


def _drawn(view: ClientView, deviation: float, effort: Effort, stream: ByteStream) -> float:
    """How surprising the spread of the executed noise is, over what is allowed: χ² for N(0, σ²), both sides."""
    if view.facts.joint_classes is not None:
        return 0.0
    rows = np.zeros((2, view.facts.dim))
    exact = view.facts.bound * view.family.scaled_features(rows).sum(axis=0, dtype=np.float64)
    noise, runs = [], -(-GAUSSIAN_DRAWS * effort.scale // len(exact))
    for run in range(runs):
        plans, groups = [view.announcement.plan], [np.arange(2)]
        sums = central_sums(view.family, plans, rows, groups, stream=stream.child("run", run)).sums[0]
        noise.append((sums - exact) / deviation)
    drawn = np.concatenate(noise)
    square, count = float(np.sum(drawn**2)), len(drawn)
    p_value = 2.0 * min(stats.chi2.cdf(square, count), stats.chi2.sf(square, count))
    return math.inf if p_value == 0.0 else math.log(p_value) / math.log(CHECK_ALPHA)


def _detectable_spread(effort: Effort) -> float:
    """The relative lack of standard deviation that is found with probability 1 − `MISSED`."""
    count = GAUSSIAN_DRAWS * effort.scale
    return 1.0 - math.sqrt(stats.chi2.ppf(CHECK_ALPHA / 2.0, count) / stats.chi2.ppf(1.0 - MISSED, count))


@check(
    "label-response",
    Layer.STATISTICAL,
    "labels are kept and replaced with the declared probabilities",
    applies=lambda subject: subject.reports_labels,
)
def check_label(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The label mechanism's probabilities against their definition, and its reports against both."""
    label = dataclasses.replace(subject.plan.request, releases=1).label_response()  # of one release
    assert label is not None, "no labels are reported; the check does not apply"
    errors = _label_errors(label)
    wrong = {name: error / EXACT for name, error in errors.items()}
    fits = fits_of(label_samples(label, LABEL_DRAWS * effort.scale, private_stream(seed, "labels")))
    keep = 1.0 / (1.0 + (label.n_classes - 1) * math.exp(-label.label_epsilon))
    wrong |= {name: fit.surprise for name, fit in fits.items()}
    worst = max(wrong, key=lambda name: wrong[name])
    return finding(
        f"A label is kept with probability e^ε/(e^ε − 1 + m), m = {label.n_classes}, else replaced uniformly.",
        statistic=wrong[worst],
        bound=1.0,
        found=f"{worst}: {fits[worst].describe() if worst in fits else f'{wrong[worst] * EXACT:.3g} off'}",
        alpha=CHECK_ALPHA,
        power=1.0 - MISSED,
        smallest_detectable_defect=min(fit.detectable_increase(keep) for fit in fits.values()),
        note="Smallest defect: increase of the probability to keep a label. Probabilities are compared to 1e-12.",
    )


def _label_errors(label: LabelResponse) -> dict[str, float]:
    """What the mechanism says of itself against its definition, relative; a profile may be rounded up."""
    with mpmath.workdps(40):
        power, others = mpmath.exp(mpmath.mpf(label.label_epsilon)), label.n_classes - 1
        keep, other = power / (power + others), 1 / (power + others)
        half = mpmath.exp(mpmath.mpf(label.label_epsilon) / 2)
        errors = {
            "probability to keep": abs(label.keep_probability / keep - 1),
            "probability of another": abs(label.other_probability / other - 1),
            "total": abs(label.keep_probability + others * label.other_probability - 1),
        }
        if max(errors.values()) <= EXACT:  # else it is not a law and has no profile
            errors["δ at half the ε"] = 1 - label.delta(label.label_epsilon / 2.0) / (keep - half * other)
            errors["δ at ε"] = mpmath.mpf(label.delta(label.label_epsilon))
    return {name: float(error) for name, error in errors.items()}
