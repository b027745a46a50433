"""From scores of an attack to a lower bound on ε that holds with proved confidence.

(ε, δ)-DP says P(E) ≤ e^ε Q(E) + δ for every event E. An event is chosen on one part of the samples and tested on the
rest, where its two frequencies are binomial: exact (Clopper–Pearson) bounds on both probabilities give
ε ≥ ln((P_low − δ)/Q_high). Whatever the scores are, the bound is valid; good scores only make it large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from accounting.errors import InvalidInputError, require_real

Scores = NDArray[np.float64]

CHOOSING_SHARE, CHOOSING_LEAST = 0.1, 10_000
"""The event is chosen on a tenth of the samples or on this many, never on more than a third; the others test it."""
THRESHOLDS = 400
CAUTION = 1.5
"""Standard deviations by which frequencies seen while choosing are discounted."""
ROUNDING = 1e-9
"""Relative error granted to the incomplete beta function."""
POWER = 0.9
"""Chance with which a defect called detectable is found at least, the choice of the event included."""
UNLUCKY = 0.01
"""Both frequencies of the best event together are worse than reckoned with at most this chance."""
MARGIN = 1.15
"""Events are chosen on few samples, and so not always well. With this much more separation than the best event needs,
`POWER` was reached in simulations of normal scores (180 to 1,600,000 of them, ε from 1/4 to 8); tests repeat some."""
DEVIATIONS = 2.0
"""Standard errors by which a measured separation is discounted."""
LARGEST_SEPARATION, LARGEST_FACTOR = 40.0, 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonBound:
    """ε is at least `epsilon` at a given δ, but for a given probability; 0 if nothing was shown."""

    epsilon: float
    upward: bool
    """Whether the event is "score ≥ threshold" under the first law; else "score ≤ threshold" under the second."""
    threshold: float
    likely: float
    """Lower bound on the probability of the event under the law that makes it likely."""
    unlikely: float
    """Upper bound on its probability under the other law."""


def choosing_size(count: int) -> int:
    """How many of `count` samples choose the event."""
    return min(max(int(CHOOSING_SHARE * count), CHOOSING_LEAST), count // 3)


def clopper_pearson(count: int, total: int, alpha: float) -> tuple[float, float]:
    """(low, high): each is on the wrong side of the probability with a chance of at most `alpha`.

    >>> low, high = clopper_pearson(0, 100, 0.05)
    >>> low, round(high, 4)
    (0.0, 0.0295)
    """
    low = 0.0 if count == 0 else float(special.betaincinv(count, total - count + 1, alpha))
    high = 1.0 if count == total else float(special.betainccinv(count + 1, total - count, alpha))
    return max(0.0, low * (1.0 - ROUNDING)), min(1.0, high * (1.0 + ROUNDING))


def _epsilons(likely: Scores, unlikely: Scores, total: int, delta: float, alpha: float) -> Scores:
    """ε that each pair of counts would prove, as for `clopper_pearson`; −inf where none."""
    low = special.betaincinv(np.maximum(likely, 1), total - np.maximum(likely, 1) + 1, alpha)
    high = np.where(unlikely >= total, 1.0, special.betainccinv(unlikely + 1, np.maximum(total - unlikely, 1), alpha))
    gain = np.where(likely > 0, low - delta, 0.0)
    with np.errstate(divide="ignore"):
        return np.where(gain > 0.0, np.log(np.maximum(gain, 1e-300) / high), -np.inf)


def _best_threshold(first: Scores, second: Scores, delta: float, alpha: float, total: int) -> tuple[float, float]:
    """The threshold t whose event {score ≥ t} promises the largest ε when tested on `total` samples; and that ε."""
    pooled = np.concatenate([first, second])
    thresholds = np.unique(np.quantile(pooled, np.linspace(0.0, 1.0, THRESHOLDS), method="higher"))
    scale = total / len(first)
    likely, unlikely = (len(s) - np.searchsorted(np.sort(s), thresholds) for s in (first, second))
    # Frequencies of the chosen event flatter: both are taken somewhat less favorable than they were seen.
    few = np.floor(scale * np.maximum(likely - CAUTION * np.sqrt(likely), 0.0))
    many = np.ceil(scale * np.minimum(unlikely + CAUTION * np.sqrt(unlikely + 1.0), float(len(second))))
    promised = _epsilons(few, np.minimum(many, float(total)), total, delta, alpha)
    best = int(np.argmax(promised))
    return float(thresholds[best]), float(promised[best])


def chosen_event(first: Scores, second: Scores, delta: float, alpha: float, total: int) -> tuple[bool, float]:
    """(upward, threshold) of the event that promises the largest ε on `total` fresh samples; see `EpsilonBound`."""
    up, promised_up = _best_threshold(first, second, delta, alpha / 2.0, total)
    down, promised_down = _best_threshold(-second, -first, delta, alpha / 2.0, total)
    return (True, up) if promised_up >= promised_down else (False, -down)


def epsilon_lower_bound(first: Scores, second: Scores, *, delta: float, alpha: float) -> EpsilonBound:
    """A lower bound on ε from scores of as many independent views of two neighbors, large for the first.

    Both directions are chosen from; the better one is tested, so one event with two one-sided bounds spends alpha.
    """
    require_real("alpha", alpha, low=0.0, high=0.5)
    if len(first) != len(second) or len(first) < 20:
        raise InvalidInputError(f"{len(first)} and {len(second)} scores; give equally many, at least 20.")
    cut = choosing_size(len(first))
    total = len(first) - cut
    upward, threshold = chosen_event(first[:cut], second[:cut], delta, alpha, total)
    likely = int(np.count_nonzero(first[cut:] >= threshold if upward else second[cut:] <= threshold))
    unlikely = int(np.count_nonzero(second[cut:] >= threshold if upward else first[cut:] <= threshold))
    low, high = clopper_pearson(likely, total, alpha / 2.0)[0], clopper_pearson(unlikely, total, alpha / 2.0)[1]
    return EpsilonBound(
        epsilon=max(0.0, math.log((low - delta) / high)) if low > delta else 0.0,
        upward=upward,
        threshold=threshold,
        likely=low,
        unlikely=high,
    )


def detectable_separation(count: int, *, epsilon: float, delta: float, alpha: float) -> float | None:
    """Distance of two normal laws, in deviations, at which `count` scores of each refute (ε, δ) with chance `POWER`.

    What the best event would need, times `MARGIN`: an estimate that simulations confirm, not a bound. None if there is
    none up to `LARGEST_SEPARATION`.
    """
    total = count - choosing_size(count)
    unlucky = special.ndtri(1.0 - UNLUCKY / 2.0)

    def refuted(separation: float) -> bool:
        levels = np.linspace(-1.0, 6.0 + separation, 141)
        likely, unlikely = special.ndtr(separation - levels), special.ndtr(-levels)
        few = total * likely - unlucky * np.sqrt(total * likely * (1.0 - likely))
        many = total * unlikely + unlucky * np.sqrt(total * unlikely * (1.0 - unlikely)) + unlucky
        counts = np.maximum(np.floor(few), 0.0), np.minimum(np.ceil(many), float(total))
        return bool(np.max(_epsilons(counts[0], counts[1], total, delta, alpha / 2.0)) > epsilon)

    low, high = 1e-4, LARGEST_SEPARATION
    if not refuted(high):
        return None
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return MARGIN * high


def certain_separation(distance: float, count: int) -> float:
    """A measured distance of means, in deviations, less `DEVIATIONS` standard errors: what may be relied on."""
    return max(0.0, distance - DEVIATIONS * math.sqrt(2.0 / count))


def detectable_factor(first: Scores, second: Scores, *, epsilon: float, delta: float, alpha: float) -> float | None:
    """How many times too small the noise must be for this attack to refute (ε, δ) with probability `POWER`.

    Scores are taken as normal with the separation that was measured, which less noise multiplies. None if nothing can
    be relied on, or if even `LARGEST_FACTOR` times less noise is not enough.
    """
    spread = math.sqrt(0.5 * (float(np.var(first)) + float(np.var(second))))
    distance = abs(float(np.mean(first)) - float(np.mean(second))) / spread if spread > 0.0 else 0.0
    separation = certain_separation(distance, len(first))
    needed = detectable_separation(len(first), epsilon=epsilon, delta=delta, alpha=alpha)
    return None if needed is None or needed > LARGEST_FACTOR * separation else needed / separation
