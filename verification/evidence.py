"""What a finding measured besides its one number: certified bounds, bounds shown by attacks, or measured errors.

Each type writes its points as the member `curve` of the audit document, too: a list of pairs that older readers know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from accounting.guarantee import Guarantee, plain_values

Curve = tuple[tuple[float, float], ...]
"""Points of a profile: (ε, δ)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedBounds:
    """Rigorous bounds on the profile of the plan's own parameters, at its own size."""

    claimed: float
    """The ε that the plan claims at `delta`."""
    delta: float
    upper: float | None
    """The ε at `delta` is at most this, for all records; None if no upper bound is certified."""
    below: Curve
    """Two records that people may hold attain these points: the true profile is not below them."""
    above: Curve
    """These points hold for all records: the true profile is not above them."""
    certificate: dict[str, Any] = field(default_factory=dict, hash=False)
    """The certificate itself, as a document."""

    @property
    def proved(self) -> bool:
        """Whether the claim is proved: the upper bound is not above it."""
        return self.upper is not None and self.upper <= self.claimed

    @property
    def curve(self) -> Curve:
        """Points below the true profile, then points above it."""
        return (*self.below, *self.above)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return _document("certified-bounds", self, left_out="claimed")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackBound:
    """What one attack on a miniature shows: the ε of `promise` is at least `epsilon`, at the promise's δ."""

    name: str
    promise: Guarantee
    epsilon: float
    """A lower bound; its level is shared by all attacks of the check."""

    @property
    def reached(self) -> float:
        """The share of the promised ε; above 1 it refutes the promise."""
        return self.epsilon / self.promise.epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackBounds:
    """What the attacks of one check show, and the points that the closest one reaches."""

    attacks: tuple[AttackBound, ...]
    closest: AttackBound
    """The attack that comes closest to the promise that it was held against, or exceeds it most."""
    curve: Curve
    """Lower bounds of the closest attack, each at the level of the whole check: the true profile is not below them."""

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return _document("attack-bounds", self, left_out="curve")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryError:
    """The root-mean-square error of the density at one query."""

    predicted: float
    measured: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredErrors:
    """Errors of a miniature: what its plan says, and what was measured at each query."""

    bound: float | None
    """Of Theorem 3.2; None for joint labels, of which the theorem does not speak."""
    planned: float
    queries: tuple[QueryError, ...]

    @property
    def worst(self) -> QueryError:
        """The query with the largest measured error."""
        return max(self.queries, key=lambda query: query.measured)

    @property
    def curve(self) -> Curve:
        """(bound, planned) if there is a bound, then (predicted, measured) for each query."""
        planned = () if self.bound is None else ((self.bound, self.planned),)
        return (*planned, *((query.predicted, query.measured) for query in self.queries))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return _document("measured-errors", self)


Evidence = CertifiedBounds | AttackBounds | MeasuredErrors


def _document(kind: str, evidence: Evidence, *, left_out: str = "") -> dict[str, Any]:
    """Its kind and its members, but for one that stands elsewhere in the finding."""
    members = plain_values(evidence)
    return {"kind": kind} | {name: value for name, value in members.items() if name != left_out}
