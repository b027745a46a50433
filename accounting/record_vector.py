"""One vector for a whole record: features, second moments and label of a user, to be rotated together.

    v(x, c) = (e_c ⊗ x, β·svec(xxᵀ), γ·e_c)        for ‖x‖ ≤ 1 and class c of m

svec lists each entry of a symmetric matrix once, those beside the diagonal times √2, so that ‖svec(xxᵀ)‖ = ‖x‖².
Rounded sums of such vectors are sums of each class, the matrix of second moments, and sizes of the classes.
Source: docs/proofs/moments.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.fft import next_fast_len

from accounting.errors import require_integer, require_real

FREE_WEIGHT = 0.5
"""The largest β² for which second moments cost nothing: replacing a record moves v no further than its class sum."""
LARGEST_WEIGHT = 4.0
LEAST_PADDED = 32_768
"""Fewest coordinates: padding spreads v further, so that rounding adds less."""
MOST_PADDED = 10**7
CLIPPED_AT = 3.0
"""R in standard deviations of a rotated coordinate; 0.27 % of them lie beyond if they are normal."""
TRANSFORM_ERROR = 3e-5
"""How far a client's rotation may be from the exact one, relative to ‖v‖: a hypothesis, which contracts name.

Source: docs/proofs/moments.md, Lemma 3.
"""


def coordinates(dim: int, n_classes: int, *, moments: bool) -> int:
    """D: coordinates of v(x, c) with or without second moments."""
    return n_classes * dim + n_classes + (dim * (dim + 1) // 2 if moments else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordVector:
    """The vector v(x, c) of a record, padded with zeros to `padded` coordinates."""

    dim: int
    n_classes: int
    moment_weight: float
    """β²; 0 if second moments are left out."""
    padded: int

    def __post_init__(self) -> None:
        require_real("moment_weight", self.moment_weight, low=0.0, high=LARGEST_WEIGHT, low_open=False)
        require_integer("padded", self.padded, low=self.n_coordinates, high=MOST_PADDED)

    @property
    def n_moments(self) -> int:
        """Entries of the upper triangle of xxᵀ."""
        return self.n_coordinates - coordinates(self.dim, self.n_classes, moments=False)

    @property
    def n_coordinates(self) -> int:
        """D: coordinates of v before it is padded."""
        return coordinates(self.dim, self.n_classes, moments=bool(self.moment_weight))

    @property
    def squared_distance(self) -> float:
        """Sup ‖v(x, c) − v(x', c')‖² over unit balls: 4 if β² ≤ ½, else 2 + 2β² + 1/(2β²).

        Source: docs/proofs/moments.md, Proposition 1.
        """
        weight = self.moment_weight
        return 4.0 if weight <= FREE_WEIGHT else 2.0 + 2.0 * weight + 0.5 / weight

    @property
    def size_weight(self) -> float:
        """γ²: the largest that leaves `squared_distance` as it is, so that another class is no further away."""
        return self.squared_distance / 2.0 - 1.0 - self.moment_weight

    @property
    def squared_norm(self) -> float:
        """‖v‖² for ‖x‖ = 1, half of `squared_distance`."""
        return 1.0 + self.moment_weight + self.size_weight

    @property
    def planned_bound(self) -> float:
        """R: `CLIPPED_AT` standard deviations of a coordinate after a random rotation."""
        return min(1.0, CLIPPED_AT * math.sqrt(self.squared_norm / self.padded))

    def clipped_share(self, bound: float) -> float:
        """What clipping at R is expected to take off each coordinate of v: 2Φ(−R√D'/‖v‖).

        A prediction, as if rotated coordinates were normal; in truth a little less.
        Source: docs/proofs/moments.md, "Clipping".
        """
        return math.erfc(bound * math.sqrt(self.padded / (2.0 * self.squared_norm)))

    def noise_deviation(self, bound: float, n_users: int, bitsum_variance: float) -> float:
        """Standard deviation of a coordinate of Σ v as it is read: rounding of all users, and the bitsum's noise.

        s² = 4R²E² + nR² − n‖v‖²/D', and as much more as is given back for clipping.
        Source: docs/proofs/moments.md, "Predicted noise".
        """
        square = bound**2
        rounding = n_users * (square - min(square, self.squared_norm / self.padded))
        return math.sqrt(rounding + 4.0 * square * bitsum_variance) / (1.0 - self.clipped_share(bound))

    def noise_of_mean(self, deviation: float, size: float) -> float:
        """Norm of the noise of a class mean, of so many users; vectors have norm 1."""
        return deviation * math.sqrt(self.dim) / size

    def noise_of_moments(self, deviation: float, n_users: int) -> float:
        """Spectral scale of the noise of the second moments, in units of their mean eigenvalue 1/d; 0 without them."""
        if not self.moment_weight:
            return 0.0
        return deviation * math.sqrt(self.dim / (2.0 * self.moment_weight)) * self.dim / n_users


def padded_length(vector: RecordVector, n_users: int, noise: float, most: float) -> int:
    """Coordinates to pad to: so many that rounding, of variance nR², adds no more than `noise`, if `most` allows.

    A length for which transforms are quick.
    """
    even = n_users * CLIPPED_AT**2 * vector.squared_norm / noise**2
    length = int(next_fast_len(math.ceil(min(most, max(vector.n_coordinates, LEAST_PADDED, even))), real=True))
    return length if length <= most else max(vector.n_coordinates, int(most))
