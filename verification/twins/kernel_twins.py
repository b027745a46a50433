"""What the checks know of a kernel: its values, its features' variance, and how far one record can move its bits."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from accounting import InvalidInputError
from privkde.kernels import LsqFamily
from privkde.kernels.gaussian import GaussianFamily
from privkde.kernels.inner_product import IdentityFamily, SignFamily
from verification.certified.balls import Ball, exact

Floats = NDArray[np.float64]
Float32 = NDArray[np.float32]
Declared = Callable[[str], float]
"""A parameter that the plan's contract declares, by its name."""

NORM = 1.0001
"""Norms are held to 1 in single precision; the promise is for vectors up to this."""
CANDIDATES = 400


class KernelTwin(abc.ABC):
    """A kernel k and its features f, whose scaled coordinates f/R in [−1, 1] are rounded to bits."""

    identity: ClassVar[bool] = False
    """Whether f(x) = x, perhaps rotated and clipped: one repetition of d coordinates."""
    hashed: ClassVar[bool] = False
    """Whether f is one-hot in Q buckets: the mean of f(x)·g(y) is then k + (1−k)/Q."""
    feature_variance: ClassVar[float]
    """Bound on the variance of f(x)·g(y) over draws of one repetition (docs/proofs/error.md, "Data-free constants")."""
    touched_share: ClassVar[int] = 1
    """Bits that replacing a record can move, for each non-zero coordinate."""
    largest_shift: ClassVar[float] = 1.0
    """How far one of them moves at most."""

    def within(self, radius: float | None) -> KernelTwin:
        """The twin where records have this norm at most, in bandwidths; most kernels take none."""
        return self

    @abc.abstractmethod
    def values(self, x: Floats, y: Floats) -> Floats:
        """k(x, y) for every record (rows) and query (columns), at bandwidth 1."""

    @abc.abstractmethod
    def attained(self, declared: Declared, dim: int, moving: int) -> int:
        """Of `moving` bits, those that two records move by `largest_shift`, under some draw of the maps."""

    def moving(self, dim: int, repetitions: int | None) -> int:
        """Non-zero coordinates of f(x), over all repetitions."""
        return dim if self.identity or repetitions is None else repetitions

    def squared_shift(self, declared: Declared, moving: int) -> Ball:
        """Δ²: the largest Σt² of a replaced record."""
        return exact(self.largest_shift) ** 2 * self.touched_share * moving

    def moved_to_zero(self, squared_shift: Ball, moving: int) -> Ball:
        """Σt² of a record whose features all move to zero in one class, and from zero in another."""
        return exact(moving) / 2

    def unit_ball(self, declared: Declared) -> bool:
        """Whether all bits together are roundings of a vector of norm at most 1."""
        return False

    def far_apart(self, family: LsqFamily, seed: int) -> Float32:
        """Two admitted vectors (rows) whose features differ as much as a search finds."""
        directions = np.random.default_rng(seed).normal(size=(CANDIDATES, family.choice.dim))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        there, back = (family.scaled_features(0.999 * sign * directions) for sign in (1.0, -1.0))
        return _opposite(directions[int(np.argmax(np.sum((there - back) ** 2, axis=1)))])


def _opposite(direction: Floats) -> Float32:
    return np.stack([direction, -direction]).astype(np.float32) * np.float32(0.9999)


class GaussianTwin(KernelTwin):
    """exp(−‖x−y‖²) by random Fourier features."""

    feature_variance: ClassVar[float] = 1.0

    def within(self, radius: float | None) -> KernelTwin:
        """With a radius, features are held in a ball."""
        return self if radius is None else HeldGaussianTwin(radius=radius)

    def values(self, x: Floats, y: Floats) -> Floats:
        """At bandwidth 1.

        >>> GaussianTwin().values(np.zeros((1, 2)), np.ones((1, 2))).round(4).tolist()
        [[0.1353]]
        """
        return np.asarray(np.exp(-cdist(x, y, "sqeuclidean")))

    def attained(self, declared: Declared, dim: int, moving: int) -> int:
        """As many phases as there are dimensions can be chosen freely."""
        return min(moving, dim)

    def far_apart(self, family: LsqFamily, seed: int) -> Float32:
        """All cosines at +1 and at −1, if the maps are not projected."""
        assert isinstance(family, GaussianFamily)
        if family.projection is not None:
            return super().far_apart(family, seed)
        angles = np.stack([np.zeros(len(family.phases)), np.full(len(family.phases), np.pi)]) - family.phases
        return np.linalg.lstsq(family.weights.T.astype(np.float64), angles.T, rcond=None)[0].T.astype(np.float32)


DEVIATIONS = 4
"""Of the squared distance from the center, which the ball has room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldGaussianTwin(GaussianTwin):
    """The same with features held in a ball around e^{−r²}·cos φ, for records of norm at most r bandwidths."""

    radius: float

    def squared_shift(self, declared: Declared, moving: int) -> Ball:
        """Δ², from the moments of (s − c)² = z·cos²ψ with ψ uniform and z = 1 − 2a·cos y + a², y ~ N(0, 2r²)."""
        square = exact(self.radius) ** 2
        a, second = (-square).exp(), ((-4 * square).exp() + 1) / 2  # E cos y and E cos² y
        z, z_squared = 1 - a**2, (1 + a**2) ** 2 - 4 * a**2 * (1 + a**2) + 4 * a**2 * second
        mean, spread = z / 2, 3 * z_squared / 8 - z**2 / 4
        longest = (moving * mean + DEVIATIONS * (moving * spread).sqrt()) * exact(NORM) ** 2
        return longest.min(exact(float(moving)))

    def attained(self, declared: Declared, dim: int, moving: int) -> int:
        """No bit is known to flip completely."""
        return 0

    def far_apart(self, family: LsqFamily, seed: int) -> Float32:
        """± the direction that moves features furthest near zero, if the maps are not projected."""
        assert isinstance(family, GaussianFamily)
        longest = family.largest_norm or 0.0
        if family.projection is not None:
            return KernelTwin.far_apart(self, family, seed) * np.float32(min(1.0, longest))
        slopes = family.weights.astype(np.float64) * np.sin(family.phases.astype(np.float64))
        return _opposite(longest * np.linalg.svd(slopes)[0][:, 0])


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedTwin(KernelTwin):
    """exp(−‖x−y‖) in some norm: the probability that a hash collides. Replacing x moves two buckets by ½."""

    hashed: ClassVar[bool] = True
    feature_variance: ClassVar[float] = 0.25
    touched_share: ClassVar[int] = 2
    largest_shift: ClassVar[float] = 0.5

    distance: str
    """As SciPy calls it."""

    def values(self, x: Floats, y: Floats) -> Floats:
        """At bandwidth 1."""
        return np.asarray(np.exp(-cdist(x, y, self.distance)))

    def attained(self, declared: Declared, dim: int, moving: int) -> int:
        """The bucket of x′ in each repetition, if x falls into another."""
        return moving


class _InnerProduct(KernelTwin, abc.ABC):
    """x·y by linear features."""

    def values(self, x: Floats, y: Floats) -> Floats:
        """x·y."""
        return np.asarray(x @ y.T)

    def moved_to_zero(self, squared_shift: Ball, moving: int) -> Ball:
        """Zero is halfway between f(x) and f(−x), and two records do this."""
        return squared_shift / 2


class IdentityTwin(_InnerProduct):
    """x·y with f(x) = x; for R < 1 after a public rotation, clipped to [−R, R]."""

    identity: ClassVar[bool] = True
    feature_variance: ClassVar[float] = 0.0

    def _bound(self, declared: Declared) -> float:
        """R, as the contract declares it."""
        bound = declared("bound")
        if not 0.0 < bound <= 1.0:
            raise InvalidInputError(f"the contract declares bound={bound!r}, which is not in (0, 1].")
        return bound

    def squared_shift(self, declared: Declared, moving: int) -> Ball:
        """Shifts are |x_j − x′_j|/(2R), and ‖x − x′‖ ≤ 2."""
        return (exact(NORM) / exact(self._bound(declared))) ** 2

    def attained(self, declared: Declared, dim: int, moving: int) -> int:
        """±R in each of ⌊1/R²⌋ coordinates has norm at most 1."""
        return min(moving, math.floor(1 / Fraction(self._bound(declared)) ** 2))

    def unit_ball(self, declared: Declared) -> bool:
        """If nothing is clipped."""
        return self._bound(declared) >= 1.0

    def far_apart(self, family: LsqFamily, seed: int) -> Float32:
        """± the first unit vector or, with R < 1, ± what the rotation takes to as many coordinates ±R as fit.

        Then Σt² = 1/R², and the others' roundings hide least.
        """
        assert isinstance(family, IdentityFamily)
        bound, dim = family.facts.bound, family.choice.dim
        if family.rotation is None:
            return _opposite(np.eye(1, dim)[0])
        squares = np.clip(1.0 - bound**2 * np.arange(dim), 0.0, bound**2)
        rotation = family.query_features(np.eye(dim, dtype=np.float32)).astype(np.float64)
        return _opposite(np.asarray(rotation @ np.sqrt(squares)))


class SignsTwin(_InnerProduct):
    """x·y with random signs, f(x) = σ·x."""

    feature_variance: ClassVar[float] = 2.0

    def squared_shift(self, declared: Declared, moving: int) -> Ball:
        """Δ² that the contract declares: the signs are drawn after the plan, and no party takes signs beyond it."""
        return exact(min(declared("squared_shift"), float(moving)))

    def attained(self, declared: Declared, dim: int, moving: int) -> int:
        """Two records ±σ_1/√d flip the bit of the first repetition."""
        return 1

    def far_apart(self, family: LsqFamily, seed: int) -> Float32:
        """± the first singular vector."""
        assert isinstance(family, SignFamily)
        return _opposite(np.linalg.svd(family.weights.astype(np.float64))[0][:, 0])
