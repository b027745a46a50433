"""Joint labels: one collection for features and label together (docs/proofs/geometric.md, "Joint labels").

A user of class c sends its features in the block of instances that belongs to c, and fair coins in the blocks of all
other classes. For every class it also sends one bit, biased towards whether the class is its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.kernels import KernelFacts

Floats = NDArray[np.float64]

TELLING_DEVIATIONS = 4.0
"""A class whose estimated size is not this many standard deviations above zero has no density."""


@dataclass(frozen=True, slots=True)
class JointLayout:
    """What each instance is for: a block of `width` instances per class, then one instance per class for its size.

    With w = `weight`, the bit for the user's own class is 1 with probability (1 + w)/2, for another with (1 − w)/2.
    """

    n_classes: int
    width: int
    weight: float
    bound: float

    @staticmethod
    def of(facts: KernelFacts) -> JointLayout | None:
        """The layout of a plan with joint labels; None for other plans."""
        if facts.joint_classes is None:
            return None
        width = facts.n_repetitions * facts.n_coordinates
        return JointLayout(facts.joint_classes, width, facts.size_weight, facts.bound)

    def scaled(self, features: NDArray[np.float32], classes: NDArray[np.integer] | None) -> NDArray[np.float32]:
        """f(x)/R of every user (rows) in the block of its class, zeros in the others, ±w for the sizes."""
        numbers = self._checked(classes, len(features))
        users = np.arange(len(features))
        blocks = np.zeros((len(features), self.n_classes, self.width), np.float32)
        blocks[users, numbers] = features
        sizes = np.full((len(features), self.n_classes), -self.weight, np.float32)
        sizes[users, numbers] = self.weight
        return np.concatenate([blocks.reshape(len(features), -1), sizes], axis=1)

    def _checked(self, classes: NDArray[np.integer] | None, n_users: int) -> NDArray[np.integer]:
        if classes is None or classes.shape != (n_users,) or classes.dtype.kind not in "iu":
            raise InvalidInputError(
                f"{'no classes' if classes is None else f'classes of shape {classes.shape}, type {classes.dtype}'} were"
                f" given for {n_users} users; joint labels need one class number for each."
            )
        unknown = np.flatnonzero((classes < 0) | (classes >= self.n_classes))
        if len(unknown):
            raise InvalidInputError(
                f"the class of row {int(unknown[0])} is not one of the {self.n_classes}, 0 to {self.n_classes - 1}."
            )
        return classes

    def split(self, sums: Floats, n_users: int) -> tuple[Floats, Floats]:
        """F̃ of each class (rows) and the estimated number of users of each class, from published sums.

        The sum of ±w over all users has expectation w(2n_c − n).
        """
        features = sums[: self.n_classes * self.width].reshape(self.n_classes, self.width)
        size_sums = sums[self.n_classes * self.width :] / self.bound
        return features, (size_sums / self.weight + n_users) / 2.0

    def size_deviation(self, n_users: int, bitsum_variance: float) -> float:
        """Standard deviation of an estimated size: the rounding of ±w and the noise of the bitsum, divided by w."""
        return float(np.sqrt(n_users * (1.0 - self.weight**2) / 4.0 + bitsum_variance) / self.weight)
