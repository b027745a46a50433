"""Many samples against many laws as one finding, at one level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accounting.mechanisms import LabelResponse
from accounting.pmf import Pmf
from privkde.labels import randomize_labels
from privkde.randomness import ByteStream
from verification.goodness_of_fit import MISSED, GoodnessOfFit, goodness_of_fit
from verification.verdicts import CHECK_ALPHA, Finding, Layer, finding

TRIED_LABELS = 3
"""True labels whose reports are drawn; all if there are no more."""


class Sample(NamedTuple):
    """Independent draws and the law that they are said to follow."""

    name: str
    drawn: NDArray[np.integer[Any]]
    law: Pmf


def fits_of(samples: Iterable[Sample]) -> dict[str, GoodnessOfFit]:
    """Every sample against its law; together they raise a false alarm with probability `CHECK_ALPHA` at most."""
    listed = list(samples)
    level = CHECK_ALPHA / len(listed)
    return {one.name: goodness_of_fit(one.drawn, one.law, level=level) for one in listed}


def surprise(fit: GoodnessOfFit) -> float:
    """Above 1 exactly if the fit is refuted: ln p over ln level, or the distance over the allowed one.

    >>> fair = Pmf(start=0, values=np.array([0.5, 0.5]), missing=0.0)
    >>> surprise(goodness_of_fit(np.arange(100) % 2, fair)) <= 1.0 < surprise(goodness_of_fit(np.ones(100, int), fair))
    True
    """
    p_value = fit.worst.p_value(fit.n_samples)
    beyond = math.inf if p_value == 0.0 else math.log(p_value) / math.log(fit.event_level)
    return max(beyond, fit.distance / fit.allowed_distance)


def fitted_finding(
    name: str,
    claim: str,
    fits: Mapping[str, GoodnessOfFit],
    *,
    seed: int,
    note: str,
    smallest_defect: float | None = None,
) -> Finding:
    """Refuted if any of the samples does not follow its law. Power: 1 − `MISSED` at the smallest defect.

    A smallest defect of inf says that no defect of its kind would show: then there is none to state, and no power.
    """
    defect = max(fit.smallest_defect for fit in fits.values()) if smallest_defect is None else smallest_defect
    shows = math.isfinite(defect)
    worst = max(fits, key=lambda one: surprise(fits[one]))
    return finding(
        name,
        Layer.STATISTICAL,
        claim,
        statistic=surprise(fits[worst]),
        bound=1.0,
        found=f"{worst}: {fits[worst].describe()}",
        alpha=CHECK_ALPHA,
        power=1.0 - MISSED if shows else 0.0,
        smallest_detectable_defect=defect if shows else None,
        seed=seed,
        note=note + " The statistic is ln p over ln level, or a distance over the allowed one; the worst of all laws.",
    )


def label_samples(response: LabelResponse, size: int, stream: ByteStream) -> list[Sample]:
    """Reports of users of some true labels; the law from its definition, weights e^ε for the own label and 1 else."""
    m, samples = response.n_classes, []
    for label in sorted({0, m // 2, m - 1})[:TRIED_LABELS]:
        weights = np.ones(m)
        weights[label] = math.exp(response.label_epsilon)
        law = Pmf(start=0, values=weights / np.sum(weights), missing=0.0)
        drawn = randomize_labels(np.full(size, label), response, stream=stream.child(label))
        samples.append(Sample(f"reports of label {label}", drawn, law))
    return samples
