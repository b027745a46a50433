"""What a rung of the composition ladder offers, and which instances it composes."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, TypeVar

from accounting.contract import Evidence
from accounting.errors import InvalidInputError, require_integer, require_real
from accounting.mechanisms.bitsum_protocol import BitsumProtocol

if TYPE_CHECKING:
    from accounting.composition.target import Target
    from accounting.kernels import KernelFacts

SPARE_SHIFT = 1e-3
"""What Δ² may lack of k·T², as a share, so that all k instances are counted with the largest shift."""

L = TypeVar("L", bound=BitsumProtocol)
Curve = list[tuple[float, float]]
"""Points (ε, δ)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """The instances whose law one user's record can change: `groups` repetitions of `per_group` coordinates.

    In each the probability that the user's bit is one moves by some t_i ≤ `largest_shift`, and Σ t_i² ≤
    `squared_shift` (None: nothing better is known than one for every instance). `unit_ball` says that every user's
    2q − 1 over all instances is a vector of norm at most 1, `adaptive` that what some instances move may depend on what
    others showed.
    """

    groups: int
    per_group: int
    squared_shift: float | None = None
    largest_shift: float = 1.0
    unit_ball: bool = False
    adaptive: bool = False

    def __post_init__(self) -> None:
        require_integer("repetitions of all releases", self.groups, low=1, high=10**7)
        require_integer("coordinates per repetition", self.per_group, low=1, high=10**7)
        if self.squared_shift is not None:
            require_real("squared_shift", self.squared_shift, low=0.0, high=1e14)
        require_real("largest_shift", self.largest_shift, low=0.0, high=1.0)

    @property
    def total(self) -> int:
        """All touched instances."""
        return self.groups * self.per_group

    def repeated(self, times: int) -> Touched:
        """The same in each of `times` releases with independent noise.

        In every release some other instance may lack the coins of Theorem 2, so `unit_ball` is not kept; and records
        may depend on what earlier releases showed.
        Source: docs/proofs/composition.md, "Schedules".
        """
        if times == 1:
            return self
        return dataclasses.replace(
            self,
            groups=times * self.groups,
            squared_shift=None if self.squared_shift is None else times * self.squared_shift,
            unit_ball=False,
            adaptive=True,
        )

    @property
    def shift_budget(self) -> float:
        """Δ²: the largest sum of squared shifts."""
        return self._certain if self.squared_shift is None else min(self._certain, self.squared_shift)

    @property
    def _certain(self) -> float:
        return self.total * self.largest_shift**2

    @property
    def every_shift_may_be_largest(self) -> bool:
        """Whether Δ² allows all instances the largest shift: then nothing but their number counts."""
        return self.shift_budget >= self._certain * (1.0 - SPARE_SHIFT)


@dataclass(frozen=True, slots=True)
class Rung(abc.ABC):
    """One way to account for the composition of all touched instances, and all that is said of it.

    A rung that calibrates one instance to an (ε₀, δ₀) states `instance_point` and `achieved_epsilon`. One that works
    on the composed law also overrides `excess`.
    """

    name: ClassVar[str]
    evidence: ClassVar[Evidence]
    """Why the rung is valid."""
    former_words: ClassVar[Mapping[str, str]] = {}
    """What contracts of earlier versions say in the place of parts of the evidence."""
    checked: ClassVar[str] = "the parameters pass a pessimistic evaluation of the composed profile"
    """What the library verified of a calibrated protocol."""
    keeps_zero_delta: ClassVar[bool] = False
    """Whether instances with δ = 0 compose to a promise with δ = 0."""
    uses_shifts: ClassVar[bool] = False
    """Whether it counts how far one user's bits shift, not how many there are."""
    auto_group: ClassVar[int | None] = None
    """When `auto` tries it: of the first group in which a rung works, the least noise wins; None: never."""

    @abc.abstractmethod
    def achieved_epsilon(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        """The ε that this rung proves at these parameters; None if it proves nothing."""

    @abc.abstractmethod
    def instance_point(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float
    ) -> tuple[float, float]:
        """The (ε₀, δ₀) of one instance that the rung uses, or that is implied."""

    @abc.abstractmethod
    def formula(self, law: type[BitsumProtocol], touched: Touched) -> str:
        """How ε and δ of all touched instances follow from those of one, in a sentence."""

    def excess(
        self, protocol: BitsumProtocol, touched: Touched, epsilon: float, delta: float, *, certified: bool
    ) -> float:
        """ln(δ achieved/δ allowed), here of one instance at ε₀: the plan holds iff this is ≤ 0.

        `certified=False` may skip the supremum over the others' data (to search with); `True` may not.
        """
        epsilon_0, delta_0 = self.instance_point(protocol, touched, epsilon, delta)
        return log_ratio(instance_delta(protocol, epsilon_0, certified=certified), delta_0)

    def touched(self, facts: KernelFacts) -> Touched:
        """The instances that it composes."""
        return facts.touched

    def covers(self, law: type[BitsumProtocol]) -> bool:
        """Whether it can account for a law at all."""
        return law.spends_delta or self.keeps_zero_delta

    def require_covered(self, law: type[BitsumProtocol]) -> None:
        """Refuse a law that it cannot account for."""
        if self.covers(law):
            return
        if law.spends_delta:
            raise InvalidInputError(
                f"accountant={self.name!r} with bitsum {law.name!r}: it adds up losses of laws that spend no δ, and"
                " this one spends δ; choose accountant 'geometric' or 'auto', or bitsum 'pure'."
            )
        raise InvalidInputError(
            f"accountant={self.name!r} with bitsum {law.name!r}: only adding up losses keeps delta = 0;"
            " choose accountant 'shifts', 'basic', 'paper' or 'auto'."
        )

    def group_for(self, touched: Touched) -> int | None:
        """The group in which `auto` tries it where these instances are touched."""
        return self.auto_group

    def design(self, law: type[L], target: Target, n_users: int, *, certified: bool = True) -> L:
        """The least noise of a law that meets a target of this rung, as the law searches for it."""
        self.require_covered(law)
        return law.design(target, n_users, certified=certified)

    def assumed(self, facts: KernelFacts) -> tuple[str, ...]:
        """What it assumes of clients, besides what every collection assumes; where it counts shifts, their domain."""
        if not self.uses_shifts:
            return ()
        own = "the target's client admits only records of the kernel's domain, so that squared shifts add up to at most"
        return (f"{own} Δ²{facts.shift_condition}",)

    def parameters(self, touched: Touched) -> dict[str, float]:
        """What it uses of the touched instances besides their number."""
        if not self.uses_shifts:
            return {}
        return {"squared_shift": touched.shift_budget, "largest_shift": touched.largest_shift}

    def share_without_delta(self, touched: Touched, epsilon: float) -> float:
        """The largest ε₀ at which instances that spend no δ keep ε together; here they add up to at most that, exactly.

        >>> 8.0 / 200 * 200 <= 8.0, Fraction(8.0 / 200) * 200 <= 8
        (True, False)
        """
        share, times = epsilon / touched.total, touched.total
        return share if Fraction(share) * times <= Fraction(epsilon) else math.nextafter(share, 0.0)

    def reason(self, touched: Touched) -> str:
        """What it does, in words, where these instances are touched."""
        return self.evidence.method

    def profile(
        self, protocol: BitsumProtocol, touched: Touched, *, near_epsilon: float, delta: float
    ) -> Callable[[float], float] | None:
        """δ(ε) of all touched instances for any ε, most accurate around one; None if it only solves for ε."""
        return None

    def cut_curves(self, protocol: BitsumProtocol, touched: Touched, delta: float) -> list[tuple[float, Curve]]:
        """Masses that may be cut off, and points (α, ρ) with ln Σ p̂^α q^{1−α} ≤ ρ for what is left; none by default.

        Source: docs/proofs/releases.md, section 7.
        """
        return []

    def curve(self, protocol: BitsumProtocol, touched: Touched, delta: float, *, proved: float | None) -> Curve:
        """Points (ε, δ') for pictures, with δ' from 1e-2 down to δ/100; `proved` is what it proves at δ.

        Here by solving for ε at given δ'.
        """
        deltas = [10.0**exponent for exponent in spread(math.log10(delta) - 2.0, -2.0, 9)]
        points = [(self.achieved_epsilon(protocol, touched, allowed), allowed) for allowed in deltas]
        return [(epsilon, allowed) for epsilon, allowed in points if epsilon is not None and math.isfinite(epsilon)]


def spread(low: float, high: float, count: int) -> list[float]:
    """Evenly spaced numbers, both ends included."""
    return [low + (high - low) * i / (count - 1) for i in range(count)]


def log_ratio(value: float, allowed: float) -> float:
    """ln(value/allowed), with 0 counted as the smallest positive number."""
    return math.log(max(value, 1e-300)) - math.log(max(allowed, 1e-300))


def instance_delta(protocol: BitsumProtocol, epsilon: float, *, certified: bool) -> float:
    """δ of one instance, with or without the supremum over the others' data."""
    return protocol.delta(epsilon) if certified else protocol.likely_delta(epsilon)
