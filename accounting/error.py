"""Error of the published density: the paper's bounds and the exact variance, as contracts of their own.

Proofs and the variants of the paper's appendix A.1.7: docs/proofs/error.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from accounting.errors import require_real
from accounting.kernels import KernelFacts


class ErrorMeasure(StrEnum):
    """In which terms a bitsum protocol states its error."""

    RMSE = "rmse"
    """sqrt(E|B̃ − B|²)."""
    ABSOLUTE = "mean-absolute"
    """E|B̃ − B|."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BitsumError:
    """What a bitsum protocol promises about its estimate: size of the error, and of its bias if it has one.

    For `RMSE`, `value` is the deviation around the mean (equal to the RMSE of an unbiased protocol).
    """

    value: float
    bias: float = 0.0
    measure: ErrorMeasure = ErrorMeasure.RMSE

    def __post_init__(self) -> None:
        require_real("bitsum error", self.value, low=0.0, high=1e18, low_open=False)
        require_real("bitsum bias", self.bias, low=0.0, high=1e18, low_open=False)


def sup_error_bound(kernel: KernelFacts, n_users: int, bitsum: BitsumError) -> float:
    """Bound on sup_y of the error of K̃(y), root-mean-square or mean-absolute like the bitsum's.

    RMSE: sqrt(4β² + (16R⁴S/I)(S + (E/n)²) + 8R⁴S²b²/n²); b = 0 is the paper's Theorem 3.2.
    Mean absolute: sqrt(2β² + 8R⁴S²/I) + 2R²S·A/n (no independence is used for the second term).
    """
    r4, s, i, b = kernel.bound**4, kernel.sparsity, kernel.n_repetitions, kernel.largest_bias
    if bitsum.measure is ErrorMeasure.ABSOLUTE:
        return math.sqrt(2.0 * b**2 + 8.0 * r4 * s**2 / i) + 2.0 * kernel.bound**2 * s * bitsum.value / n_users
    noise = 16.0 * r4 * s / i * (s + (bitsum.value / n_users) ** 2)
    return math.sqrt(4.0 * b**2 + noise + 8.0 * r4 * s**2 * (bitsum.bias / n_users) ** 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedError:
    """The exact decomposition of the error with data-free bounds on each part (all root-mean-square)."""

    bias: float
    feature: float
    rounding: float
    privacy: float
    labels: float = 0.0
    """How far users that reported another class may pull a class's density: a bias, too."""

    @property
    def total(self) -> float:
        """Root of the sum of squares."""
        bias = self.bias + self.labels
        return math.sqrt(bias**2 + self.feature**2 + self.rounding**2 + self.privacy**2)


def predicted_error(
    kernel: KernelFacts, n_users: float, bitsum_rmse: float, *, mislabeled: float = 0.0
) -> PredictedError:
    """Feature, rounding and privacy error of K̃(y) for n users, of whom a share `mislabeled` belongs elsewhere."""
    i = kernel.n_repetitions
    return PredictedError(
        bias=kernel.bias,
        feature=math.sqrt(kernel.feature / i),
        rounding=math.sqrt(kernel.rounding / (n_users * i)),
        privacy=math.sqrt(kernel.privacy / i) * bitsum_rmse / n_users,
        labels=mislabeled,
    )
