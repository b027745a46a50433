"""m-ary randomized response on the label: pure ε_lbl in the local view, no shuffler needed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.contract import Contract, Evidence, EvidenceKind
from accounting.errors import require_integer, require_real
from accounting.guarantee import Adjacency, Guarantee, View
from accounting.numerics.profile import Pair, symmetric_delta

MOST_CLASSES = 10**6
LARGEST_LABEL_EPSILON = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelResponse:
    """Keep the label with probability e^ε/(e^ε − 1 + m), else report one of the other m − 1 uniformly."""

    n_classes: int
    label_epsilon: float

    def __post_init__(self) -> None:
        require_integer("classes", self.n_classes, low=2, high=MOST_CLASSES)
        require_real("label_epsilon", self.label_epsilon, low=0.0, high=LARGEST_LABEL_EPSILON)

    @property
    def keep_probability(self) -> float:
        """Probability that the true label is reported."""
        return 1.0 / (1.0 + (self.n_classes - 1) * math.exp(-self.label_epsilon))

    @property
    def other_probability(self) -> float:
        """Probability of each other label."""
        return math.exp(-self.label_epsilon) * self.keep_probability

    def pair(self) -> Pair:
        """Laws of the report for two true labels, on (first, second, any other)."""
        keep, other = self.keep_probability, self.other_probability
        rest = (self.n_classes - 2) * other
        return Pair(upper=np.array([keep, other, rest]), lower=np.array([other, keep, rest]))

    def delta(self, epsilon: float) -> float:
        """Exact profile: max(0, keep − e^ε·other), which is 0 from ε_lbl on."""
        return 0.0 if epsilon >= self.label_epsilon else symmetric_delta([self.pair()], epsilon)

    def expected_class_size(self, size: int, n_users: int) -> float:
        """Expected number of users who report a class that `size` of `n_users` truly belong to."""
        return size * self.keep_probability + (n_users - size) * self.other_probability

    def contract(self) -> Contract:
        """Pure ε_lbl against everybody, the shuffler and the analyzer included."""
        views = (View.LOCAL, View.COMMUNICATION, View.MODEL)
        return Contract(
            component="label randomized response",
            guarantees=tuple(
                Guarantee(epsilon=self.label_epsilon, delta=0.0, adjacency=Adjacency.LABEL, view=view) for view in views
            ),
            evidence=Evidence(
                kind=EvidenceKind.THEOREM,
                method="likelihood ratios of m-ary randomized response are e^ε_lbl or less",
                source="the paper, section 3.3",
            ),
            checked=("classes ≥ 2", "label_epsilon > 0"),
            assumed=("private random draws follow the declared law",),
            parameters={"classes": self.n_classes, "keep_probability": self.keep_probability},
        )
