"""How fast a cost grows: the exponent of a power law fitted to measurements, with an interval.

line: y = b x^c, least squares of ln y on ln x. For a cost of which no growth is expected.
overhead: y = a + b x^c with a, b ≥ 0, least squares of relative errors. For a cost of which a part does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from accounting import InvalidInputError

MODELS = ("line", "overhead")
EXPONENTS = np.linspace(0.05, 4.0, 80)
"""Where the exponent beside an overhead is looked for: nearer to 0 the two parts could not be told apart."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """y = overhead + factor · x^exponent."""

    model: str
    exponent: float
    low: float
    """Lower end of the interval of the exponent."""
    high: float
    """Upper end."""
    overhead: float
    factor: float
    scatter: float
    """Root mean square of the relative errors, corrected for the number of parameters."""

    def at(self, x: float) -> float:
        """The fitted curve."""
        return self.overhead + self.factor * math.pow(x, self.exponent)


def fit(x: Sequence[float], y: Sequence[float], *, model: str, confidence: float = 0.95) -> Fit:
    """The exponent and its interval, as wide as the scatter around the curve asks for.

    If relative errors are independent, normal and equally large, the interval of `line` is exact and that of `overhead`
    right for small errors. Repeated causes, such as a cache that ends somewhere, are no such errors.
    """
    xs, ys = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
    parameters = {"line": 2, "overhead": 3}.get(model)
    if parameters is None:
        raise InvalidInputError(f"model={model!r} is none of {', '.join(MODELS)}.")
    if len(xs) != len(ys) or len(np.unique(xs)) <= parameters or not (np.all(xs > 0.0) and np.all(ys > 0.0)):
        raise InvalidInputError(
            f"{len(xs)} sizes and {len(ys)} costs: {model} needs more than {parameters} different sizes and as many"
            " costs, all positive; measure more."
        )
    return _line(xs, ys, confidence) if model == "line" else _overhead(xs, ys, confidence)


def _line(x: Floats, y: Floats, confidence: float) -> Fit:
    columns = np.stack([np.ones_like(x), np.log(x)], axis=1)
    found, *_ = np.linalg.lstsq(columns, np.log(y))
    errors = np.log(y) - columns @ found
    error, scatter = _spread(columns, errors, confidence)
    exponent = float(found[1])
    return Fit(
        model="line",
        exponent=exponent,
        low=exponent - error,
        high=exponent + error,
        overhead=0.0,
        factor=math.exp(float(found[0])),
        scatter=scatter,
    )


def _overhead(x: Floats, y: Floats, confidence: float) -> Fit:
    """For each exponent the rest is a linear problem with a, b ≥ 0; the best exponent by a scan, then refined."""
    center = math.exp(float(np.mean(np.log(x))))
    powers = x / center

    def solved(exponent: float) -> tuple[Floats, float]:
        (a, b), distance = optimize.nnls(np.stack([1.0 / y, powers**exponent / y], axis=1), np.ones_like(y))
        return np.array([a, b]), float(distance)

    start = min(EXPONENTS, key=lambda one: solved(float(one))[1])
    step = float(EXPONENTS[1] - EXPONENTS[0])
    refined = optimize.minimize_scalar(
        lambda one: solved(float(one))[1],
        bounds=(max(start - step, EXPONENTS[0]), start + step),
        method="bounded",
        options={"xatol": 1e-10},
    )
    exponent = float(refined.x)
    (a, b), _ = solved(exponent)
    if a == 0.0:
        return _line(x, y, confidence)
    growing = powers**exponent
    columns = np.stack([np.ones_like(x), growing, b * growing * np.log(powers)], axis=1) / y[:, None]
    error, scatter = _spread(columns, 1.0 - (a + b * growing) / y, confidence)
    return Fit(
        model="overhead",
        exponent=exponent,
        low=exponent - error,
        high=exponent + error,
        overhead=float(a),
        factor=float(b) / center**exponent,
        scatter=scatter,
    )


def _spread(columns: Floats, errors: Floats, confidence: float) -> tuple[float, float]:
    """Half the width of the interval of the last parameter (Student's t), and the scatter."""
    freedom = len(columns) - columns.shape[1]
    scatter = math.sqrt(float(np.sum(errors**2)) / freedom)
    variance = float(np.linalg.pinv(columns.T @ columns)[-1, -1])
    return float(stats.t.ppf(0.5 + confidence / 2.0, freedom)) * scatter * math.sqrt(variance), scatter
