"""Laplacian and exponential kernels by Poisson cuts: random hyperplanes divide space into cells, cells are hashed.

If the number of cuts between x and y is Poisson with mean ‖x−y‖/h, no cut separates them with probability
exp(−‖x−y‖/h), the kernel. Each cut adds a random residue to the bucket of whoever lies beyond it; so the buckets of
two different cells differ by a uniform residue, and x and y collide with probability k + (1−k)/Q exactly.

Source: docs/proofs/kernels.md, "Poisson cuts" and "Buckets".
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privkde.draws.randomness import ByteStream
from privkde.kernels.lsq_family import Float32, Float64, KernelChoice, LsqFamily, read_only
from privkde.kernels.public_draws import integers_below, normal_rows, poisson_process

Integers = NDArray[np.int64]

CUTS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cuts:
    """Cuts of all repetitions in order. Cut c lies in `segments[c]` at height `thresholds[c]` in [−1, 1]."""

    segments: Integers
    thresholds: Float32
    residues: Integers
    offsets: Integers
    """One per repetition: the bucket of whoever is beyond no cut. It makes every bucket equally likely."""
    starts: Integers
    """The cuts of repetition i are those from starts[i] to starts[i+1]."""


class CutFamily(LsqFamily):
    """f(x) = g(x) = indicator of the bucket of x: Q = ⌈1/β⌉, S = R = 1.

    Bucket of x in one repetition: (offset + Σ of the residues of the cuts that x lies beyond) modulo Q.
    Requires: every record in the unit ball (the caller's check), since there are no cuts elsewhere.
    """

    cuts: Cuts

    @abstractmethod
    def heights(self, rows: Float32, part: slice) -> Float32:
        """For each row and each cut in `part`, the coordinate that is compared with the threshold."""

    def crossed(self, rows: Float32, part: slice) -> NDArray[np.bool_]:
        """Which cuts in `part` each row lies beyond."""
        return self.heights(rows, part) > self.cuts.thresholds[part]

    def buckets(self, x: Float32 | Float64) -> Integers:
        """The bucket, in [0, Q), of every record in every repetition."""
        rows, cuts = self.rows(x), self.cuts
        repetitions = self.facts.n_repetitions
        step = max(1, CUTS_AT_ONCE * repetitions // (len(cuts.thresholds) + 1))
        buckets = np.empty((len(rows), repetitions), dtype=np.int64)
        for start in range(0, repetitions, step):
            ends = cuts.starts[start : start + step + 1]
            part = slice(int(ends[0]), int(ends[-1]))
            sums = np.zeros((len(rows), part.stop - part.start + 1), dtype=np.int64)
            np.cumsum(self.crossed(rows, part) * cuts.residues[part], axis=1, out=sums[:, 1:])
            buckets[:, start : start + step] = np.diff(sums[:, ends - ends[0]], axis=1)
        buckets += cuts.offsets
        buckets %= self.facts.n_coordinates
        return buckets

    def scaled_features(self, x: Float32 | Float64) -> Float32:
        """One-hot: 1 in the bucket of x, 0 in the other Q − 1 coordinates of each repetition."""
        buckets = self.buckets(x)
        features = np.zeros((len(buckets), self.facts.n_instances), dtype=np.float32)
        columns = buckets + np.arange(self.facts.n_repetitions) * self.facts.n_coordinates
        np.put_along_axis(features, columns, 1.0, axis=1)
        return features

    def _decay(self, x: Float32 | Float64, y: Float32 | Float64, metric: str) -> Float64:
        """exp(−distance/h)."""
        from scipy.spatial.distance import cdist  # slow to import, and a collection needs features only

        distances: Float64 = cdist(self.wide_rows(x), self.wide_rows(y), metric)
        distances /= -float(self.choice.bandwidth)
        return np.exp(distances, out=distances)

    def _draw(self, stream: ByteStream, *, segments: int, density: float) -> Cuts:
        """Cuts at `density` per unit of height in each of `segments` copies of [−1, 1] per repetition.

        The copies are laid end to end on a line, which one Poisson process of rate 1 fills. A family of more
        repetitions extends one of fewer.
        """
        repetitions, n_coordinates, length = self.facts.n_repetitions, self.facts.n_coordinates, 2.0 * density
        points = poisson_process(stream.child("points"), repetitions * segments * length)
        places = np.minimum(np.floor(points / length), repetitions * segments - 1)
        heights = (points - places * length) / density - 1.0
        numbers = places.astype(np.int64)
        starts = np.searchsorted(numbers, np.arange(repetitions + 1) * segments)
        return Cuts(
            segments=read_only(numbers % segments),
            thresholds=read_only(heights.astype(np.float32)),
            residues=read_only(integers_below(stream.child("residues"), len(points), n_coordinates)),
            offsets=read_only(integers_below(stream.child("offsets"), repetitions, n_coordinates)),
            starts=read_only(starts.astype(np.int64)),
        )


class LaplacianFamily(CutFamily):
    """exp(−‖x−y‖₁/h): on each axis, cuts of the cube [−1, 1]^d at density 1/h.

    The cuts between x and y on axis j are Poisson with mean |x_j−y_j|/h; axes are independent.
    """

    @staticmethod
    def n_parameters(choice: KernelChoice) -> float:
        """Five numbers for each cut, of which 2d/h are expected in a repetition."""
        return choice.facts().n_repetitions * choice.dim * 2.0 / choice.bandwidth * 5

    def __init__(self, choice: KernelChoice, stream: ByteStream) -> None:
        super().__init__(choice, stream)
        self.cuts = self._draw(stream, segments=choice.dim, density=1.0 / choice.bandwidth)

    def heights(self, rows: Float32, part: slice) -> Float32:
        """The coordinate of each row on the axis of each cut."""
        return np.take(rows, self.cuts.segments[part], axis=1)

    def kernel(self, x: Float32 | Float64, y: Float32 | Float64) -> Float64:
        """exp(−‖x−y‖₁/h)."""
        return self._decay(x, y, "cityblock")


class ExponentialFamily(CutFamily):
    """exp(−‖x−y‖₂/h): hyperplanes {z: u·z = t} with u uniform on the sphere, t of density c_d/h on [−1, 1].

    Given u, the cuts between x and y have mean |u·(x−y)| c_d/h; and c_d = 1/E|u·e| for a unit vector e.
    """

    @staticmethod
    def n_parameters(choice: KernelChoice) -> float:
        """Five numbers and a direction for each cut, of which 2c_d/h are expected in a repetition."""
        cuts = choice.facts().n_repetitions * 2.0 * inverse_mean_projection(choice.dim) / choice.bandwidth
        return cuts * (5 + choice.dim)

    def __init__(self, choice: KernelChoice, stream: ByteStream) -> None:
        super().__init__(choice, stream)
        density = inverse_mean_projection(choice.dim) / choice.bandwidth
        self.cuts = self._draw(stream, segments=1, density=density)
        self.directions: Float32 = read_only(_sphere(stream.child("directions"), len(self.cuts.thresholds), choice.dim))

    def heights(self, rows: Float32, part: slice) -> Float32:
        """u·x for each row x and each cut."""
        return np.asarray(rows @ self.directions[part].T)

    def kernel(self, x: Float32 | Float64, y: Float32 | Float64) -> Float64:
        """exp(−‖x−y‖₂/h)."""
        return self._decay(x, y, "euclidean")


def inverse_mean_projection(dim: int) -> float:
    """c_d = 1/E|u·e| = √π Γ((d+1)/2)/Γ(d/2) for u uniform on the sphere: c_1 = 1, c_2 = π/2, c_{d+2} = c_d (d+1)/d.

    >>> inverse_mean_projection(3)
    2.0
    """
    constant = 1.0 if dim % 2 else math.pi / 2.0
    for d in range(2 - dim % 2, dim, 2):
        constant = constant * (d + 1) / d
    return constant


def _sphere(stream: ByteStream, count: int, dim: int) -> Float32:
    """Rows of normal numbers, each divided by its length; squares are added from left to right."""
    directions = np.empty((count, dim), dtype=np.float32)
    for part, rows in normal_rows(stream, count, dim):
        directions[part] = rows / np.sqrt(np.add.accumulate(rows * rows, axis=1)[:, -1:])
    return directions
