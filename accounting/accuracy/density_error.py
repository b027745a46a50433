"""Error of the published density: the paper's bounds and the exact variance.

Proofs and the variants of the paper's appendix A.1.7: docs/proofs/error.md.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from accounting.errors import require_quantity, require_real
from accounting.kernels import KernelFacts


def sup_error_bound(kernel: KernelFacts, n_users: int, rmse: float, *, bias: float = 0.0) -> float:
    """Bound on the root-mean-square error of K̃(y), for every y: sqrt(4β² + (16R⁴S/I)(S + (E/n)²) + 8R⁴S²b²/n²).

    E is the deviation of the bitsum's estimate around its mean and b its bias; b = 0 is the paper's Theorem 3.2.
    """
    e, b = _require_error("bitsum error", rmse), _require_error("bitsum bias", bias)
    r4, s, i, beta = kernel.bound**4, kernel.sparsity, kernel.n_repetitions, kernel.largest_bias
    noise = 16.0 * r4 * s / i * (s + (e / n_users) ** 2)
    return math.sqrt(4.0 * beta**2 + noise + 8.0 * r4 * s**2 * (b / n_users) ** 2)


def sup_absolute_error_bound(kernel: KernelFacts, n_users: int, mean_absolute_error: float) -> float:
    """Bound on the mean absolute error of K̃(y), for every y: sqrt(2β² + 8R⁴S²/I) + 2R²S·A/n.

    A is the mean absolute error of the bitsum's estimate. The last term needs no independence.
    """
    a = _require_error("bitsum error", mean_absolute_error)
    r, s, i, beta = kernel.bound, kernel.sparsity, kernel.n_repetitions, kernel.largest_bias
    return math.sqrt(2.0 * beta**2 + 8.0 * r**4 * s**2 / i) + 2.0 * r**2 * s * a / n_users


def _require_error(name: str, value: float) -> float:
    return require_real(name, value, low=0.0, high=1e18, low_open=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedError:
    """The exact decomposition of the error with data-free bounds on each part (all root-mean-square)."""

    bias: float
    feature: float
    rounding: float
    privacy: float
    labels: float = 0.0
    """How far users that reported another class may pull a class's density: this is also a bias."""

    def __post_init__(self) -> None:
        for part in dataclasses.fields(self):
            require_quantity(part.name, getattr(self, part.name))

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
