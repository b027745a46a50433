"""Lower bounds on ε from the same scores of the same attacks, for mechanisms whose ε is known.

A bound that is called valid with confidence 1 − α may exceed the true ε in at most a share α of all trials
(*coverage*); among valid ones, larger is better (*power*).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.progress import track

from accounting import plan_budget
from accounting.guarantee import View
from accounting.mechanisms import RandomizedResponse
from accounting.numerics.profile import smallest_epsilon, symmetric_delta
from privkde.learning.scoring import clopper_pearson
from verification.statistical.distinguishers.arena import Arena
from verification.statistical.distinguishers.epsilon_bounds import (
    Scores,
    choosing_size,
    chosen_event,
    epsilon_lower_bound,
)
from verification.verdicts import Subject

Row = dict[str, Any]
Bound = Callable[[Scores, Scores, float, int], float]
"""Scores under both laws, δ, seed ↦ lower bound on ε."""

ALPHA = 0.05
SEED = 0
SINGLE = {
    "one report, no shuffler": (1, 0.25),
    "one sum of 100 users": (100, 0.05),
    "control: next to nothing to find": (100, 0.4999),
}
"""Users and flip probability."""
PROGRAM: dict[str, Any] = {"users": 200, "dim": 32, "repetitions": 16, "kernel": "gaussian", "epsilon": 4.0}
DELTA = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is tried."""

    samples: int
    """Scores of each law in a trial."""
    trials: int
    slow_trials: int
    """Trials of estimators that take a second."""
    slowest_trials: int
    """Trials of those that take longer."""


FULL = Size(samples=5_000, trials=300, slow_trials=20, slowest_trials=2)
TINY = Size(samples=1_000, trials=20, slow_trials=2, slowest_trials=1)


@dataclass(frozen=True, slots=True)
class Attacked:
    """Scores of an attack, trial by trial, and what is known of the truth."""

    name: str
    epsilon: float
    """No smaller than the true ε at δ."""
    first: Scores
    second: Scores


def single(name: str, size: Size) -> Attacked:
    """One sum, all others at 0: log-likelihood ratios drawn from their exact law."""
    users, flip = SINGLE[name]
    pair, rng = RandomizedResponse(n_users=users, flip_probability=flip).pair(0), np.random.default_rng(SEED)
    truth = smallest_epsilon(lambda epsilon: symmetric_delta([pair], epsilon), DELTA)
    losses, shape = np.clip(pair.losses(), -40.0, 40.0), (size.trials, size.samples)
    first, second = (rng.choice(losses, size=shape, p=law / np.sum(law)) for law in (pair.upper, pair.lower))
    return Attacked(name, truth, first, second)


def program(size: Size) -> Attacked:
    """16 sums of messages drawn by privkde's own randomizers, scored by an audit's likelihood ratio."""
    arena = Arena.of(Subject(plan=plan_budget(**PROGRAM, delta=DELTA)), SEED)
    attack = arena.attacks((View.COMMUNICATION,), size.trials * size.samples)[0]
    first, second = (scores.reshape(size.trials, size.samples) for scores in (attack.first, attack.second))
    return Attacked("16 sums of 200 users, by the program", attack.promise.epsilon, first, second)


def ours(first: Scores, second: Scores, delta: float, seed: int) -> float:
    """privkde: an event chosen on a part, two Clopper–Pearson bounds on the rest."""
    return epsilon_lower_bound(first, second, delta=delta, alpha=ALPHA).epsilon


def same_counts(method: str) -> Bound:
    """privacy-estimates, told the counts of the event that privkde chooses."""

    def bound(first: Scores, second: Scores, delta: float, seed: int) -> float:
        from privacy_estimates import AttackResults, compute_eps_lo

        cut = choosing_size(len(first))
        total = len(first) - cut
        upward, threshold = chosen_event(first[:cut], second[:cut], delta, ALPHA, total)
        a, b = (first[cut:], second[cut:]) if upward else (-second[cut:], -first[cut:])
        edge = threshold if upward else -threshold
        likely, unlikely = int(np.count_nonzero(a >= edge)), int(np.count_nonzero(b >= edge))
        counts = AttackResults(TP=likely, FN=total - likely, FP=unlikely, TN=total - unlikely)
        return max(0.0, float(compute_eps_lo(counts, delta, ALPHA, method)))

    return bound


def by_jax_privacy(strategy: str) -> Bound:
    """jax-privacy, both directions, with one of its ways to choose the threshold."""

    def bound(first: Scores, second: Scores, delta: float, seed: int) -> float:
        from jax_privacy import auditing

        ways = {
            "Bonferroni": auditing.Bonferroni(),
            "split": auditing.Split(seed=seed),
            "multi-split": auditing.MultiSplit(seed=seed),
        }
        auditor = auditing.CanaryScoreAuditor(first, second)
        found = auditor.epsilon_clopper_pearson(ALPHA, delta, one_sided=False, threshold_strategy=ways[strategy])
        return max(0.0, float(found))

    return bound


def by_gaussian_curve(first: Scores, second: Scores, delta: float, seed: int) -> float:
    """jax-privacy: the Gaussian trade-off curve through the best threshold."""
    from jax_privacy import auditing

    return float(auditing.CanaryScoreAuditor(first, second).epsilon_from_gdp(ALPHA, delta))


def estimators(size: Size) -> dict[str, tuple[Bound, int]]:
    """Each with the number of trials it gets."""
    return {
        "privkde": (ours, size.trials),
        "privacy-estimates, Clopper–Pearson": (same_counts("beta"), size.trials),
        "privacy-estimates, Jeffreys": (same_counts("jeffreys"), size.trials),
        "privacy-estimates, joint beta": (same_counts("joint-beta"), size.slowest_trials),
        "jax-privacy, Bonferroni": (by_jax_privacy("Bonferroni"), size.trials),
        "jax-privacy, split": (by_jax_privacy("split"), size.trials),
        "jax-privacy, multi-split": (by_jax_privacy("multi-split"), size.slow_trials),
        "jax-privacy, Gaussian curve": (by_gaussian_curve, size.trials),
    }


def audits(size: Size) -> Row:
    """Every estimator on the scores of every attack."""
    attacks = [*(single(name, size) for name in SINGLE), program(size)]
    rows = [row for attacked in attacks for row in _bounds(attacked, size)]
    told = {"delta": DELTA, "alpha": ALPHA, "seed": SEED, "samples": size.samples}
    return {"auditing": {**told, "single": SINGLE, "program": PROGRAM, "rows": rows}}


def _bounds(attacked: Attacked, size: Size) -> Iterator[Row]:
    for name, (bound, trials) in track(list(estimators(size).items()), description=attacked.name, transient=True):
        found, seconds = [], []
        for trial in range(trials):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # quadrature of narrow densities, SciPy's deprecations: theirs to mend
                start = time.perf_counter()
                found.append(bound(attacked.first[trial], attacked.second[trial], DELTA, trial))
                seconds.append(time.perf_counter() - start)
        above = int(np.count_nonzero(np.array(found) > attacked.epsilon))
        low, high = clopper_pearson(above, trials, 0.95)
        yield {
            "attack": attacked.name,
            "epsilon": attacked.epsilon,
            "estimator": name,
            "trials": trials,
            "mean": float(np.mean(found)),
            "deviation": float(np.std(found)),
            "above": above,
            "above_low": low,
            "above_high": high,
            "seconds": float(np.median(seconds)),
        }
