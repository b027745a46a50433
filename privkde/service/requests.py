"""What the service is sent, beside `PlanRequest` and `SolveRequest` of the library: declared and checked in its way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict

from accounting import Adjacency, InvalidInputError, View
from accounting.fields import Record, Rule, check_fields
from accounting.releases.composing import MOST_RELEASES
from accounting.releases.profile_points import LARGEST_EPSILON
from accounting.releases.release import MOST_TIMES
from privkde.ledger.records import LARGEST_BUDGET, VIEWS, Composition
from privkde.service import documents
from privkde.service.reading import DescribedBy

RELEASE = {"name": "weekly counts", "guarantee": {"epsilon": 0.5, "delta": 1e-7}}
"""An example."""
CLOSED = ConfigDict(extra="forbid")
"""For records inside others: pydantic says that no other names are taken."""
_PLAN = Rule("a document that POST /v1/plan answered", unset="none")
_COMPOSITION = Rule("how releases are added up", choices=tuple(map(str, Composition)))
_VIEW = "what the adversary sees"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest(Record):
    """A plan whose profile is wanted."""

    plan: Annotated[dict[str, Any], DescribedBy(documents.Plan), _PLAN]


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifyRequest(ProfileRequest):
    """A plan that is to be proved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuaranteeRequest(Record):
    """A promise of something that was not planned here."""

    __pydantic_config__ = CLOSED

    epsilon: Annotated[float, Rule("ε of the release", 0, LARGEST_EPSILON)]
    delta: Annotated[float, Rule("δ of the release", 0, 1)] = 0.0
    adjacency: Annotated[str, Rule("what is replaced", choices=tuple(map(str, Adjacency)))] = "replace-one"
    view: Annotated[str, Rule(_VIEW, choices=tuple(map(str, View)))] = "communication"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """One thing that was or will be published: a plan, a guarantee or a document of the library."""

    __pydantic_config__ = CLOSED

    name: Annotated[str, Rule("what is released, in 1 to 200 printable characters")]
    plan: Annotated[dict[str, Any] | None, DescribedBy(documents.Plan), _PLAN] = None
    guarantee: Annotated[GuaranteeRequest | None, Rule("its promise, if it was not planned here", unset="none")] = None
    release: Annotated[
        dict[str, Any] | None, Rule("a document privkde.release/1, with its profile; `name` here counts", unset="none")
    ] = None
    view: Annotated[str | None, Rule(f"of a plan: {_VIEW}", choices=tuple(map(str, VIEWS)), unset="communication")] = (
        None
    )
    times: Annotated[int, Rule("how often it is released; more than once is a schedule", 1, MOST_TIMES)] = 1

    def __post_init__(self) -> None:
        check_fields(self)
        if [self.plan, self.guarantee, self.release].count(None) != 2:
            raise InvalidInputError(
                f"release {self.name!r} must have a plan, a guarantee or a release; give exactly one of them."
            )
        if self.view is not None and self.plan is None:
            raise InvalidInputError("view belongs to a plan: guarantees and releases name their own; put it there.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeRequest(ReleaseRequest):
    """A release that is charged to a budget."""

    cohort: Annotated[
        str | None, Rule("the only people it is about: a fixed group that shares nobody with others", unset="everybody")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposeRequest:
    """Releases about the same people, whose cost together is wanted."""

    releases: Annotated[tuple[ReleaseRequest, ...], Rule("what is to be released", most=MOST_RELEASES)]
    delta: Annotated[float, Rule("δ at which the cost is stated", 0, 0.5)]
    charged: Annotated[tuple[ReleaseRequest, ...], Rule("what was released before", most=MOST_RELEASES)] = ()
    epsilon: Annotated[
        float | None, Rule("refuse a total ε beyond it", 0, LARGEST_BUDGET, above_low=True, unset="none")
    ] = None
    composition: Annotated[
        str | None,
        Rule(_COMPOSITION.description, choices=_COMPOSITION.choices, unset="adaptive with epsilon, else pld"),
    ] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.releases:
            raise InvalidInputError("releases=[] cannot be composed; give at least one.")
        if self.composition == "adaptive" and self.epsilon is None:
            raise InvalidInputError("composition='adaptive' is a rule for one epsilon; give it.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRequest(Record):
    """A new budget."""

    name: Annotated[str, Rule("1 to 100 letters, digits, '.', '_' or '-', the first a letter or digit")]
    epsilon: Annotated[float, Rule("ε of all releases together", 0, LARGEST_BUDGET, above_low=True)]
    delta: Annotated[float, Rule("δ of all releases together; below 1", 0, 1)]
    view: Annotated[str, Rule(_VIEW, choices=tuple(map(str, VIEWS)))] = "communication"
    composition: Annotated[str, _COMPOSITION] = "adaptive"


@dataclass(frozen=True, slots=True, kw_only=True)
class UseRequest(Record):
    """One of the times of a schedule."""

    schedule: Annotated[str, Rule("the key with which the schedule was charged")]
    plan_sha256: Annotated[
        str | None, Rule("hash of the plan that is run, if the schedule was charged for a plan", unset="none")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRequest(Record):
    """What is to be read from a ledger; the service asks its own workers in this way, and nobody else can."""

    ledger: Annotated[str, Rule("file or URL of the ledger")]
    ledger_key: Annotated[str | None, Rule("key of its chain, in hexadecimal", unset="none")] = None
    name: Annotated[str | None, Rule("a budget", unset="all")] = None
    release: Annotated[dict[str, Any] | None, Rule("a document privkde.release/1 to quote", unset="none")] = None
    cohort: Annotated[str | None, Rule("the only people it is about", unset="everybody")] = None
