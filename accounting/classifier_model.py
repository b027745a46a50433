"""Which model of a classifier to collect for: chosen from public quantities only, before anybody answers."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache

from accounting.errors import InfeasibleError
from accounting.mechanisms import GaussianMechanism
from accounting.record_vector import FREE_WEIGHT, MOST_PADDED, RecordVector, coordinates, padded_length
from accounting.registry import AUTO

DENSITY, MEAN, DISCRIMINANT = MODELS = ("density", "mean", "discriminant")
"""How classes are ranked: by their density, by the distance to their means, or by a linear discriminant."""
TELLING_DEVIATIONS = 4.0
"""A class whose estimated size is not this many standard deviations above zero has no density."""
WEIGHTY = 1.0
"""β² where the means are clear and the second moments are not."""
CLEAR_MEANS = 0.01
"""Means are clear if the squared norm of their noise is at most this; vectors have norm 1."""
BLURRED = 0.15
"""Noise of the second moments, in units of their mean eigenvalue 1/d, from where on more weight pays."""
DROWNED = 0.05
"""The same noise, in units of the trace of second moments, 1 for unit vectors: from where on they do harm.

Never less than their mean eigenvalue: in a few dimensions they also tell how long vectors are.

Source: docs/proofs/moments.md, "Which model".
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """The model, the vector that is collected for it, and why."""

    model: str
    vector: RecordVector
    reason: str


@lru_cache(maxsize=256)
def chosen_model(
    model: str,
    *,
    dim: int,
    n_classes: int,
    n_users: int,
    epsilon: float,
    delta: float,
    n_releases: int,
    most_messages: float,
) -> ModelChoice:
    """The given model, or the best for `auto`, with the vector to collect, of at most `most_messages` coordinates.

    Noise is predicted by that of the central Gaussian mechanism. Second moments of weight β² = ½ cost nothing, so
    `auto` leaves them out only if they take too many messages or drown in their noise. β² = 1 takes a quarter of the
    noise off the moments and adds 6 % to that of the means. The limits were fixed on parts of training sets.
    """
    most = min(most_messages, MOST_PADDED)
    counts = {moments: coordinates(dim, n_classes, moments=moments) for moments in (False, True)}
    reason = f"model {model}: as asked for"
    if model == AUTO and counts[True] > most:
        model = MEAN
        reason = f"model mean: second moments would take {counts[True]:,} messages, more than {most:,.0f}"
    if counts[model in (AUTO, DISCRIMINANT)] > most:
        raise InfeasibleError(
            f"model={model!r} takes {counts[model == DISCRIMINANT]:,} messages per user, more than"
            f" max_messages={most:g}; raise max_messages, or project the vectors to fewer dimensions (basis)."
        )
    sigma = GaussianMechanism.calibrate(epsilon, delta, 2.0 * math.sqrt(n_releases)).standard_deviation
    vector = RecordVector(dim=dim, n_classes=n_classes, moment_weight=0.0, padded=counts[False])
    if model in (AUTO, DISCRIMINANT):
        free = RecordVector(dim=dim, n_classes=n_classes, moment_weight=FREE_WEIGHT, padded=counts[True])
        blur = free.noise_of_moments(sigma, n_users)
        clear = free.noise_of_mean(sigma, n_users / n_classes) ** 2 <= CLEAR_MEANS
        weighty = clear and blur >= BLURRED
        whole = dataclasses.replace(free, moment_weight=WEIGHTY) if weighty else free
        if model == AUTO and blur > max(DROWNED * dim, 1.0):
            model = MEAN
            reason = (
                f"model mean: the noise of second moments would be {blur:.2g} times their mean eigenvalue,"
                f" more than {max(DROWNED * dim, 1.0):.2g}"
            )
        elif model == AUTO:
            model = DISCRIMINANT
            reason = f"model discriminant: second moments cost {'little' if weighty else 'nothing'}"
        vector = whole if model == DISCRIMINANT else vector
    padded = padded_length(vector, n_users, _noise(vector, sigma), most)
    return ModelChoice(model=model, vector=dataclasses.replace(vector, padded=padded), reason=reason)


def _noise(vector: RecordVector, sigma: float) -> float:
    """Standard deviation for this vector, if `sigma` is that for vectors which move by 2."""
    return sigma * math.sqrt(vector.squared_distance) / 2.0
