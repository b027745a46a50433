"""What a ledger holds: budgets and charges; what it answers: a budget's standing, and the quote for a release."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from accounting import Adjacency, Guarantee, InvalidInputError, UnlikeGuaranteesError, View
from accounting.errors import require_choice, require_real
from accounting.releases.adaptive import CUT_SHARE, AdaptiveFilter, Price
from accounting.releases.composing import Spent, finite
from accounting.releases.release import Release
from privkde.ledger.kept_proof import KeptProof
from privkde.ledger.refusals import BudgetExceededError

BUDGET_SCHEMA = "privkde.budget/1"
CHARGE_SCHEMA = "privkde.charge/1"
LARGEST_BUDGET = 1000.0
VIEWS = (View.COMMUNICATION, View.MODEL)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_KEY = re.compile(r"[ -~]{1,200}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Composition(StrEnum):
    """How the costs of a budget's releases are composed."""

    ADAPTIVE = "adaptive"
    """A filter: proved however each release is chosen, also after seeing the results of all earlier ones."""
    PLD = "pld"
    """The least of basic, advanced, privacy-loss and Rényi composition. For releases that are all fixed beforehand:
    false if any is chosen after seeing the results of earlier ones."""
    BASIC = "basic"
    """ε and δ add up. Proved however each release is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """(ε, δ) that all releases about the same people may cost together, for replacing one record, in one view.

    Source: docs/proofs/releases.md. Requires: with composition `pld`, that releases do not depend on the results of
    earlier ones; `adaptive` and `basic` do not require this.
    """

    name: str
    epsilon: float
    delta: float
    view: View = View.COMMUNICATION
    composition: Composition = Composition.ADAPTIVE
    order: float | None = None
    """Order of the adaptive filter, fixed when the budget is made; None with other compositions."""
    created: str

    def __post_init__(self) -> None:
        require_name(self.name)
        epsilon = require_real("epsilon", self.epsilon, low=0, high=LARGEST_BUDGET)
        delta = require_real("delta", self.delta, low=0, high=1, low_open=False)
        if delta == 1.0:
            raise InvalidInputError("delta=1 of a budget promises nothing; choose a small one, for example 1e-6.")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)
        object.__setattr__(self, "view", View(require_choice("view", self.view, list(map(str, VIEWS)))))
        composition = require_choice("composition", self.composition, list(map(str, Composition)))
        object.__setattr__(self, "composition", Composition(composition))
        if self.composition is Composition.ADAPTIVE:
            order = AdaptiveFilter.for_budget(epsilon, delta).order if self.order is None else self.order
            object.__setattr__(self, "order", order)

    @property
    def filter(self) -> AdaptiveFilter | None:
        """The rule of an adaptive budget."""
        if self.order is None or self.composition is not Composition.ADAPTIVE:
            return None
        return AdaptiveFilter(epsilon=self.epsilon, delta=self.delta, order=self.order)

    @property
    def guarantee(self) -> Guarantee:
        """What everybody is promised while the budget is kept."""
        return Guarantee(epsilon=self.epsilon, delta=self.delta, adjacency=Adjacency.RECORD, view=self.view)

    def refuse_unlike(self, release: Release) -> None:
        """Raise `UnlikeGuaranteesError` unless the release's guarantee has the budget's adjacency and view."""
        promise = release.guarantee
        if (promise.adjacency, promise.view) != (Adjacency.RECORD, self.view):
            raise UnlikeGuaranteesError(
                f"release {release.name!r} has a guarantee for {promise.adjacency} in the {promise.view} view;"
                f" budget {self.name!r} counts {Adjacency.RECORD} in the {self.view} view; state it for that."
            )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "schema": BUDGET_SCHEMA,
            "name": self.name,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "adjacency": str(Adjacency.RECORD),
            "view": str(self.view),
            "composition": str(self.composition),
            "order": self.order,
            "created": self.created,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """A release that a budget has paid for. `number` counts the budget's charges from 1. Charges never change.

    `spent_before` and `after.epsilon` are ε at the budget's δ. A charge for a `cohort` is about the people of that
    group only; one without is about everybody.
    """

    budget: str
    number: int
    key: str
    release: Release
    price: Price | None = None
    """What an adaptive budget paid, as the library computed it then; None with other compositions."""
    cohort: str | None = None
    plan_sha256: str | None
    spent_before: float
    after: Spent
    created: str
    certificate: KeptProof | None = None
    """The plan's certificate, if one was given."""

    @property
    def name(self) -> str:
        """The release's name."""
        return self.release.name

    @property
    def guarantee(self) -> Guarantee:
        """What the release promises by itself."""
        return self.release.guarantee

    @property
    def spent_after(self) -> float:
        """ε of this and all earlier releases together."""
        return self.after.epsilon

    def same_content(self, release: Release, plan_sha256: str | None, cohort: str | None) -> bool:
        """Whether this charge is for the same release to the same people.

        Name, guarantee, times and plan decide; without a plan, the profiles decide, too. Profiles of the same plan that
        were computed on different machines may differ in the last digit. A certificate is no part of the content.
        """
        ours = (self.name, self.guarantee, self.release.times, self.release.collections, self.plan_sha256, self.cohort)
        theirs = (release.name, release.guarantee, release.times, release.collections, plan_sha256, cohort)
        return ours == theirs and (plan_sha256 is not None or self.release.parts == release.parts)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; without the profiles."""
        return {
            "schema": CHARGE_SCHEMA,
            "budget": self.budget,
            "number": self.number,
            "key": self.key,
            "name": self.name,
            "guarantee": self.guarantee.to_json(),
            "times": self.release.times,
            "collections": self.release.collections,
            "cohort": self.cohort,
            "plan_sha256": self.plan_sha256,
            "price": None if self.price is None else self.price.to_json(),
            "spent_before": self.spent_before,
            "spent_after": self.spent_after,
            "delta_after": self.after.at_budget,
            "created": self.created,
            "certificate": None if self.certificate is None else self.certificate.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One of the times of a schedule that was charged beforehand; `number` counts them from 1."""

    budget: str
    schedule: str
    number: int
    key: str
    created: str

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A charge for several collections, and how many of them were used."""

    name: str
    key: str
    used: int
    times: int

    @staticmethod
    def of(charge: Charge, used: int) -> Schedule:
        """The schedule that a charge paid for."""
        return Schedule(name=charge.name, key=charge.key, used=used, times=charge.release.collections)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is spent of a budget, and what is left.

    The budget is the promise for all that may follow. With cohorts, all numbers are those of the cohort for which most
    is spent.
    """

    budget: Budget
    ladder: Spent
    n_charges: int
    by_sums: bool = False
    """Whether ε and δ of an adaptive budget just add up, because its first release fits in no other way."""
    cohorts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """ε spent for the people of each cohort, releases about everybody included."""
    schedules: tuple[Schedule, ...] = ()

    @property
    def spent(self) -> float:
        """ε of all releases so far at the budget's δ."""
        return self.ladder.epsilon

    @property
    def remaining(self) -> float:
        """ε that is left; a release may cost less than its own ε, because releases compose."""
        return self.budget.epsilon - self.spent

    @property
    def odometer(self) -> float | None:
        """What is spent, where that holds with δ whenever one stops to read it; None with `pld`, where it does not.

        Source: docs/proofs/releases.md, Theorem 4.
        """
        return None if self.budget.composition is Composition.PLD else self.spent

    @property
    def delta_spent(self) -> float | None:
        """δ of all releases so far at the budget's ε; None if it was not recorded."""
        return self.ladder.at_budget

    @property
    def delta_remaining(self) -> float | None:
        """δ that is left."""
        return None if self.delta_spent is None else self.budget.delta - self.delta_spent

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; None where a composition theorem proves nothing."""
        return {
            "budget": self.budget.to_json(),
            "spent": self.spent,
            "remaining": self.remaining,
            "delta_spent": self.delta_spent,
            "delta_remaining": self.delta_remaining,
            "odometer": None if self.odometer is None else finite(self.odometer),
            "n_charges": self.n_charges,
            "by_sums": self.by_sums,
            "cohorts": dict(self.cohorts),
            "schedules": [dataclasses.asdict(schedule) for schedule in self.schedules],
            "ladder": self.ladder.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What a release would cost now, at the budget's δ."""

    budget: Budget
    before: Spent
    after: Spent
    by_sums: bool = False
    """Whether ε and δ of an adaptive budget just add up."""

    @property
    def requested(self) -> float:
        """ε that the release adds; infinite if nothing could be promised at the budget's δ after it."""
        return self.after.epsilon - self.before.epsilon

    @property
    def remaining(self) -> float:
        """ε that is left before the release."""
        return self.budget.epsilon - self.before.epsilon

    @property
    def difference(self) -> float:
        """ε that is missing; negative if some would be left."""
        return self.requested - self.remaining

    @property
    def fits(self) -> bool:
        """Whether the release can be charged. What is spent is rounded up, and nothing beyond ε is tolerated."""
        return self.after.epsilon <= self.budget.epsilon

    def refuse_excess(self) -> None:
        """Raise `BudgetExceededError` unless the release fits."""
        if not self.fits:
            raise BudgetExceededError(
                self.budget.name,
                requested=self.requested,
                remaining=self.remaining,
                delta=self.budget.delta,
                delta_spent=self.before.at_budget,
                delta_share=CUT_SHARE if self.budget.filter is not None and not self.by_sums else 1.0,
            )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; None for what is infinite."""
        return {
            "budget": self.budget.name,
            "fits": self.fits,
            "requested": finite(self.requested),
            "remaining": self.remaining,
            "difference": finite(self.difference),
            "spent_before": self.before.epsilon,
            "spent_after": finite(self.after.epsilon),
            "delta_before": self.before.at_budget,
            "delta_after": self.after.at_budget,
            "ladder": self.after.to_json(),
        }


def require_name(name: object) -> str:
    """Return the name of a budget, or raise."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"name={name!r} of a budget must be 1 to 100 letters, digits, '.', '_' or '-', the first a letter or digit."
        )
    return name


def require_cohort(cohort: object) -> str | None:
    """Return the name of a cohort, or None for everybody, or raise."""
    if cohort is None or (isinstance(cohort, str) and _NAME.fullmatch(cohort)):
        return cohort
    raise InvalidInputError(
        f"cohort={cohort!r} must be 1 to 100 letters, digits, '.', '_' or '-', the first a letter or digit."
    )


def require_key(key: object) -> str:
    """Return the key of a charge, or raise."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise InvalidInputError(f"key={key!r} of a charge must be 1 to 200 printable ASCII characters.")
    return key


def require_sha256(digest: object) -> str | None:
    """Return the digest of a plan, or None for no plan, or raise."""
    if digest is None or (isinstance(digest, str) and _SHA256.fullmatch(digest)):
        return digest
    raise InvalidInputError(f"plan_sha256={digest!r} must be 64 hexadecimal digits; use `plan.sha256()`.")
