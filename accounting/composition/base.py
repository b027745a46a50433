"""What a rung of the composition ladder offers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

from accounting.contract import Evidence
from accounting.errors import require_integer, require_real
from accounting.mechanisms.base import BitsumProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """The instances whose law one user's record can change: `groups` repetitions of `per_group` coordinates.

    In each the probability that the user's bit is one moves by some t_i ≤ `largest_shift`, and Σ t_i² ≤
    `squared_shift` (None: nothing better is known than one for every instance). `unit_ball` says that every user's
    2q − 1 over all instances is a vector of norm at most 1.
    """

    groups: int
    per_group: int
    squared_shift: float | None = None
    largest_shift: float = 1.0
    unit_ball: bool = False

    def __post_init__(self) -> None:
        require_integer("repetitions", self.groups, low=1, high=10**7)
        require_integer("coordinates per repetition", self.per_group, low=1, high=10**7)
        if self.squared_shift is not None:
            require_real("squared_shift", self.squared_shift, low=0.0, high=1e14)
        require_real("largest_shift", self.largest_shift, low=0.0, high=1.0)

    @property
    def total(self) -> int:
        """All touched instances."""
        return self.groups * self.per_group

    @property
    def shift_budget(self) -> float:
        """Δ²: the largest sum of squared shifts."""
        certain = self.total * self.largest_shift**2
        return certain if self.squared_shift is None else min(certain, self.squared_shift)


class Rung(Protocol):
    """One way to account for the composition of all touched instances."""

    name: ClassVar[str]

    def excess(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float, *, certified: bool
    ) -> float:
        """ln(δ achieved/δ allowed): the plan holds iff this is ≤ 0.

        `certified=False` may skip the supremum over the others' data (to search with); `True` may not.
        """

    def achieved_epsilon(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        """The ε that this rung proves at these parameters; None if the rung does not apply."""

    def instance_point(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float
    ) -> tuple[float, float]:
        """The (ε₀, δ₀) of one instance that the rung uses, or that is implied."""

    @property
    def evidence(self) -> Evidence:
        """Why the rung is valid."""


def log_ratio(value: float, allowed: float) -> float:
    """ln(value/allowed), with 0 counted as the smallest positive number."""
    return math.log(max(value, 1e-300)) - math.log(max(allowed, 1e-300))


def instance_delta(protocol: BitsumProtocol, epsilon: float, *, certified: bool) -> float:
    """δ of one instance, with or without the supremum over the others' data."""
    return protocol.delta(epsilon) if certified else protocol.likely_delta(epsilon)
