"""Which kernel with which settings (`KernelChoice`), and what every LSQ family can do (`LsqFamily`).

Source: Definition 2.1 of the paper; docs/proofs/kernels.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidInputError, require_integer, require_real
from accounting.kernels import KernelFacts, kernel_named
from accounting.request import PlanRequest
from privkde.draws.randomness import ByteStream, public_stream

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

LEAST_BANDWIDTH = 1e-3
LARGEST_BANDWIDTH = 1e6
MOST_PARAMETERS = 1 << 28
"""Numbers that one family may hold: 1 GiB in single precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChoice:
    """A kernel by name with its settings: all that is needed, besides a public seed, to build its family.

    With h = `bandwidth`: `gaussian` exp(−‖x−y‖₂²/h²), `laplacian` exp(−‖x−y‖₁/h), `exponential` exp(−‖x−y‖₂/h),
    `inner-product` and `inner-product-signs` x·y. `projection` lets the Gaussian work in that many dimensions.

    >>> KernelChoice(name="gaussian", dim=2, repetitions=3).build("00" * 16).scaled_features(np.zeros((1, 2))).shape
    (1, 3)
    """

    name: str
    dim: int
    repetitions: int | None = None
    bias: float | None = None
    bandwidth: float = 1.0
    """Scale of a kernel, exp(−‖x−y‖²/h²) for the Gaussian."""
    projection: int | None = None
    bound: float | None = None
    radius: float | None = None
    """Largest norm of a record in bandwidths, if it is declared."""

    def __post_init__(self) -> None:
        self.facts()
        require_real("bandwidth", self.bandwidth, low=LEAST_BANDWIDTH, high=LARGEST_BANDWIDTH, low_open=False)
        kernel = kernel_named(self.name)
        if not kernel.takes_bandwidth and self.bandwidth != 1:
            raise InvalidInputError(
                f"bandwidth={self.bandwidth!r} with kernel {self.name!r}: an inner product has no bandwidth;"
                " leave it out, or scale the query."
            )
        if self.projection is not None:
            if not kernel.takes_projection:
                raise InvalidInputError(
                    f"projection={self.projection!r} with kernel {self.name!r}: only 'gaussian' can be projected"
                    " (Theorem 3.3 of the paper); leave projection out."
                )
            require_integer("projection", self.projection, low=1, high=self.dim)

    @staticmethod
    def planned(request: PlanRequest, *, bandwidth: float = 1.0, projection: int | None = None) -> KernelChoice:
        """The kernel of a request, with the settings that the accountant does not need to know.

        Where a whole record is rotated as one vector, its features are the vector itself.
        """
        return KernelChoice(
            name=request.kernel,
            dim=request.dim,
            repetitions=request.repetitions,
            bias=request.bias,
            bandwidth=bandwidth,
            projection=projection,
            bound=None if request.record else request.rounding_bound,
            radius=request.radius,
        )

    @property
    def largest_norm(self) -> float | None:
        """The largest norm of a record; None if there is no limit."""
        return kernel_named(self.name).largest_norm(self.radius, self.bandwidth)

    def facts(self) -> KernelFacts:
        """(Q, R, S, β), I and the error constants; the bandwidth changes none of them.

        For a projected Gaussian they speak of the kernel after projection. What projecting adds is bounded by
        `privkde.kernels.projection.distortion_bound`.
        """
        return kernel_named(self.name).facts(
            dim=self.dim, repetitions=self.repetitions, bias=self.bias, bound=self.bound, radius=self.radius
        )

    def build(self, public_seed: str) -> LsqFamily:
        """The family that everybody draws from this seed, the same on every machine."""
        self.require_room()
        return FAMILIES[self.name](self, public_stream(public_seed).child("kernel", self.name))

    def n_parameters(self) -> float:
        """Public numbers that the family holds, about; known without drawing any."""
        return FAMILIES[self.name].n_parameters(self)

    def require_room(self) -> None:
        """Refuse a family of more than `MOST_PARAMETERS` numbers before any of them is drawn."""
        if self.n_parameters() > MOST_PARAMETERS:
            raise InvalidInputError(
                f"{self} needs about {self.n_parameters():.2g} public numbers, more than {MOST_PARAMETERS:.2g};"
                " choose fewer repetitions, fewer dimensions or, for a hashed kernel, a larger bandwidth."
            )


class LsqFamily(ABC):
    """I independent draws (f_i, g_i) from an LSQ family: E[f_i(x)·g_i(y)] is the kernel, up to the bias.

    Instance (i, j) is coordinate j of draw i, in column i·Q + j. Rows of x are records; whether their numbers are
    finite, and their norms at most `largest_norm`, is checked by the caller.
    """

    def __init__(self, choice: KernelChoice, stream: ByteStream) -> None:
        """Draw the maps of a choice from a public stream."""
        self.choice = choice
        self.facts = choice.facts()
        largest = np.float32(self.facts.bound)
        beyond = float(largest) > self.facts.bound
        self._bound = np.nextafter(largest, np.float32(0)) if beyond else largest

    @staticmethod
    @abstractmethod
    def n_parameters(choice: KernelChoice) -> float:
        """Numbers that the family of this choice holds, about."""

    @property
    def needs_unit_norm(self) -> bool:
        """Whether records and queries must have norm at most 1."""
        return kernel_named(self.choice.name).needs_unit_norm

    @property
    def largest_norm(self) -> float | None:
        """The largest norm of a record; None if there is no limit."""
        return self.choice.largest_norm

    @property
    def largest_query(self) -> float | None:
        """The largest norm of a query; None if there is no limit. A declared radius is for records only."""
        return 1.0 if self.needs_unit_norm else None

    def squared_shift(self) -> float | None:
        """Bound on Σ t² for the maps that were drawn; None if nothing is known, as for every number of bits."""
        return self.facts.squared_shift

    def require_declared_shift(self) -> None:
        """Refuse maps by which one user can shift its bits further than was declared to the accountant."""
        drawn, declared = self.squared_shift(), self.facts.squared_shift
        if declared is not None and (drawn is None or drawn > declared):
            raise InvalidInputError(
                f"the public seed draws maps with squared shift {drawn} and {declared:.6g} was declared; draw another."
            )

    @abstractmethod
    def scaled_features(self, x: Float32 | Float64) -> Float32:
        """f(x)/R, never outside [−1, 1], one row of I·Q numbers per record."""

    def query_features(self, y: Float32 | Float64) -> Float32:
        """g(y), one row of I·Q numbers per query. Here g = f in every family; one with g ≠ f overrides this."""
        features = self.scaled_features(y)
        features *= self._bound
        return features

    @abstractmethod
    def kernel(self, x: Float32 | Float64, y: Float32 | Float64) -> Float64:
        """The kernel itself for every record and every query, in double precision."""

    def rows(self, x: Float32 | Float64) -> Float32:
        """`x` in single precision; raises `InvalidInputError` unless it holds rows of `dim` numbers."""
        return np.asarray(self._checked(x), dtype=np.float32)

    def wide_rows(self, x: Float32 | Float64) -> Float64:
        """`x` in double precision, with the same check."""
        return np.asarray(self._checked(x), dtype=np.float64)

    def _checked(self, x: Float32 | Float64) -> Float32 | Float64:
        shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", type(x).__name__)
        if shape is None or len(shape) != 2 or shape[1] != self.choice.dim or dtype not in (np.float32, np.float64):
            raise InvalidInputError(
                f"an array of shape {shape} and type {dtype} was given; kernel {self.choice.name!r} takes one"
                f" record per row, shape (records, {self.choice.dim}), type float32 or float64."
            )
        return x


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The array, contiguous and closed for writing: public parameters are shared between threads."""
    array = np.ascontiguousarray(array)
    array.flags.writeable = False
    return array


FAMILIES: dict[str, type[LsqFamily]] = {}
"""The family of each kernel in `accounting.kernels`, by its name."""
