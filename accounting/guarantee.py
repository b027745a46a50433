"""What is promised: (ε, δ), to whom (adjacency) and against whom (view)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from accounting.errors import InvalidInputError, UnlikeGuaranteesError, require_choice, require_integer, require_real

LARGEST_GROUP = 1000
ROUNDED_UP = 1.0 + 1e-12


class Adjacency(StrEnum):
    """Which two datasets count as neighbors; always *replace*, never add or remove."""

    RECORD = "replace-one"
    """One user's whole record (x, c) is replaced."""
    FEATURES = "replace-one-features"
    """One user's x is replaced, the label stays."""
    LABEL = "replace-one-label"
    """One user's label is replaced, x stays."""
    BIT = "replace-one-bit"
    """One user's bit in one bitsum instance is flipped."""


class View(StrEnum):
    """What the adversary sees."""

    COMMUNICATION = "communication"
    """All messages that leave the shuffler and all direct messages to the analyzer."""
    MODEL = "model"
    """Only what the analyzer publishes."""
    LOCAL = "local"
    """What one user sends, if the shuffler colludes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """(ε, δ)-differential privacy for one adjacency, in one view.

    `Guarantee(epsilon=0, delta=1, ...)` is the empty promise: it holds for every mechanism.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    view: View

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", require_real("epsilon", self.epsilon, low=0, high=1e12, low_open=False))
        object.__setattr__(self, "delta", require_real("delta", self.delta, low=0, high=1, low_open=False))
        adjacency = require_choice("adjacency", self.adjacency, map(str, Adjacency))
        object.__setattr__(self, "adjacency", Adjacency(adjacency))
        object.__setattr__(self, "view", View(require_choice("view", self.view, map(str, View))))
        if self.is_empty:
            object.__setattr__(self, "epsilon", 0.0)  # all empty promises are equal

    def refuse_unlike(self, other: Guarantee) -> None:
        """Raise unless both speak of the same adjacency and view."""
        if (self.adjacency, self.view) != (other.adjacency, other.view):
            raise UnlikeGuaranteesError(
                f"a guarantee for {self.adjacency} in the {self.view} view says nothing about {other.adjacency}"
                f" in the {other.view} view; restate both for the same adjacency and view first."
            )

    def implies(self, other: Guarantee) -> bool:
        """Whether this promise is at least as strong; raises for unlike adjacency or view."""
        self.refuse_unlike(other)
        return other.is_empty or (self.epsilon <= other.epsilon and self.delta <= other.delta)

    def restated(self, *, adjacency: Adjacency | None = None, view: View | None = None) -> Guarantee:
        """The same numbers for another adjacency or view; why that is valid is for the caller to argue."""
        return dataclasses.replace(self, adjacency=adjacency or self.adjacency, view=view or self.view)

    def for_group(self, size: int) -> Guarantee:
        """What `size` people who change their records together are promised, such as a household.

        Also what one person with `size` records is promised: (kε, δ(e^{kε} − 1)/(e^ε − 1)), rounded up. It holds for a
        single record, too. `Profile.for_group` is tighter. Source: docs/proofs/releases.md, section 6.
        """
        require_integer("size", size, low=1, high=LARGEST_GROUP)
        if size == 1:
            return self
        epsilon = math.nextafter(size * self.epsilon, math.inf) if self.epsilon > 0.0 else 0.0
        if self.delta == 0.0 or epsilon > 700.0:  # beyond, e^ε is no floating-point number
            delta = 1.0 if self.delta > 0.0 else 0.0
        else:
            delta = min(1.0, self.delta * math.fsum(math.exp(step * self.epsilon) for step in range(size)) * ROUNDED_UP)
        return dataclasses.replace(self, epsilon=epsilon, delta=delta)

    @property
    def is_empty(self) -> bool:
        """Whether the promise holds for every mechanism."""
        return self.delta >= 1.0

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return plain_values(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Guarantee:
        """Inverse of `to_json`."""
        return Guarantee(epsilon=data["epsilon"], delta=data["delta"], adjacency=data["adjacency"], view=data["view"])

    def __str__(self) -> str:
        if self.is_empty:
            return f"no protection ({self.adjacency}, {self.view} view)"
        return f"({self.epsilon:.6g}, {self.delta:.3g})-DP ({self.adjacency}, {self.view} view)"


def plain_values(record: Any) -> dict[str, Any]:
    """A dataclass, and all dataclasses in it, as plain JSON values: names of enumerations as text, tuples as lists."""

    def plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {
            name: str(value) if isinstance(value, StrEnum) else list(value) if isinstance(value, tuple) else value
            for name, value in items
        }

    return dataclasses.asdict(record, dict_factory=plain)


def promised(guarantees: Sequence[Guarantee], view: View) -> Guarantee:
    """The promise for a whole record in this view if there is one, else the first in this view, else the first."""
    seen = [promise for promise in guarantees if promise.view is view]
    records = [promise for promise in seen if promise.adjacency is Adjacency.RECORD]
    return (records or seen or guarantees)[0]


def compose_basic(guarantees: Iterable[Guarantee]) -> Guarantee:
    """Basic composition: ε and δ add. Raises for unlike adjacencies or views."""
    listed = list(guarantees)
    if not listed:
        raise InvalidInputError("guarantees=[] cannot be composed; give at least one guarantee.")
    first = listed[0]
    for other in listed[1:]:
        first.refuse_unlike(other)
    return Guarantee(
        epsilon=math.fsum(g.epsilon for g in listed),
        delta=min(1.0, math.fsum(g.delta for g in listed)),
        adjacency=first.adjacency,
        view=first.view,
    )
