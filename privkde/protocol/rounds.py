"""The rounds of a data collection, in the only order in which they keep the promise.

    enrollment    users opt in (and report a randomized label): how many there are becomes public
    collection    the plan is fixed from those counts and announced; users send messages, some drop out
    publication   the sums are published, if enough users took part

Going back, skipping a round or adding to what is closed raises `WrongRoundError`.
"""

from __future__ import annotations

import hashlib
import json
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from accounting import Adjacency, Contract, Guarantee, InfeasibleError, InvalidInputError, Plan, PrivkdeError, View
from accounting.choosing import Progress
from accounting.errors import require_choice, require_integer
from accounting.mechanisms import BITSUMS, LabelResponse
from accounting.planning import plan
from accounting.request import ALL_THERE, MOST_USERS, PlanRequest, read_request
from privkde.draws.randomness import new_public_seed, process_identity, public_stream
from privkde.kernels import KernelChoice
from privkde.protocol.announcement import Announcement
from privkde.protocol.basis import fingerprint, require_basis
from privkde.protocol.model import DensityModel, Floats, Label, promised
from privkde.protocol.parties import Analyzer

if TYPE_CHECKING:
    from privkde.ledger import Account
    from privkde.ledger.records import Use

SMALL_CLASSES = ("refuse", "exclude")


class WrongRoundError(PrivkdeError):
    """An operation that is not allowed in the collection's current round."""


class ExcludedClassWarning(UserWarning):
    """A class was too small to be released."""


class Round(StrEnum):
    """Where a collection stands."""

    ENROLLMENT = "enrollment"
    COLLECTION = "collection"
    PUBLICATION = "publication"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is promised and planned for before anybody enrolls.

    `request` holds the fields of `accounting.PlanRequest` except `users` and `classes`. If it holds `labels="joint"`,
    users do not report a label: it travels with their features.
    """

    request: Mapping[str, Any]
    labels: tuple[Label, ...] = ()
    labels_declared: bool = True
    """False if `labels` were read off the users' data: the contract then says so."""
    label_epsilon: float | None = None
    bandwidth: float = 1.0
    projection: int | None = None
    public_seed: str = field(default_factory=new_public_seed)
    small_classes: str = "refuse"
    basis: Floats | None = field(default=None, repr=False, compare=False)
    """Orthonormal columns on which users project their vectors first; `request` is for the projected ones."""

    def __post_init__(self) -> None:
        require_choice("small_classes", self.small_classes, SMALL_CLASSES)
        object.__setattr__(self, "request", MappingProxyType(dict(self.request)))  # the caller's may change
        object.__setattr__(self, "labels", tuple(self.labels))
        if self.joint and (len(self.labels) < 2 or self.label_epsilon is not None):
            raise InvalidInputError(
                f"{len(self.labels)} labels and label_epsilon={self.label_epsilon!r} with joint labels; give at least"
                " two labels and no label_epsilon: epsilon already protects labels."
            )
        largest = self.plan_request(MOST_USERS)
        KernelChoice.planned(largest, bandwidth=self.bandwidth, projection=self.projection)
        object.__setattr__(self, "bandwidth", float(self.bandwidth))
        public_stream(self.public_seed)
        if self.basis is not None:
            require_basis(self.basis, largest.dim)
        if self.separate:
            self.label_response()
        if len({str(label) for label in self.labels}) < len(self.labels):
            raise InvalidInputError(f"labels={self.labels!r} must differ as text, which names a class's collection.")

    @property
    def joint(self) -> bool:
        """Whether one collection protects features and label together."""
        return self.request.get("labels") == "joint"

    @property
    def separate(self) -> bool:
        """Whether users report a label, and every class is collected by itself."""
        return bool(self.labels) and not self.joint

    @property
    def n_groups(self) -> int:
        """Collections that run side by side: one for each label that users report, else one."""
        return 1 if self.joint else max(1, len(self.labels))

    def plan_request(self, n_users: int, **fixed: Any) -> PlanRequest:
        """The request to plan for a group of this size."""
        classes = {"classes": len(self.labels)} if self.joint else {}
        return read_request({**self.request, **classes, **fixed, "users": n_users})

    def label_response(self) -> LabelResponse:
        """The label mechanism."""
        if self.label_epsilon is None:
            raise InvalidInputError("label_epsilon=None with labels; give the ε of the labels' randomized response.")
        return LabelResponse(n_classes=len(self.labels), label_epsilon=float(self.label_epsilon))

    def features_guarantee(self, view: View) -> Guarantee:
        """What every group promises for features, whatever its size; with `auto`, some may promise a smaller δ."""
        request = self.plan_request(MOST_USERS)
        law, delta = BITSUMS.get(request.bitsum), float(request.delta)
        delta = delta if law is None else law.promised_delta(delta)
        return Guarantee(epsilon=float(request.epsilon), delta=delta, adjacency=Adjacency.FEATURES, view=view)

    def announcement(self, chosen: Plan, group: str) -> Announcement:
        """The announcement of a plan to a group; refused here, and not by every client, if its maps shift too far."""
        announcement = Announcement(
            plan=chosen,
            public_seed=self.public_seed,
            bandwidth=self.bandwidth,
            projection=self.projection,
            group=group,
            basis_sha256=None if self.basis is None else fingerprint(self.basis),
        )
        announcement.family()
        return announcement


P = ParamSpec("P")
T = TypeVar("T")


def _one_at_a_time(step: Callable[Concatenate[Collection, P], T]) -> Callable[Concatenate[Collection, P], T]:
    """A step of a collection that waits for those of other threads, and is refused in a copy of the process."""

    @wraps(step)
    def alone(collection: Collection, /, *args: P.args, **named: P.kwargs) -> T:
        if process_identity() != collection._process:
            raise InvalidInputError("this process is a copy of the one that began the collection; go on in that one.")
        with collection._stepping:
            return step(collection, *args, **named)

    return alone


class Collection:
    """One collection from its first user to its published model. Threads may share it."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.round = Round.ENROLLMENT
        self.enrolled = np.zeros(terms.n_groups, np.int64)
        self.released: tuple[int, ...] = ()
        """Which classes (by number) are collected; all, unless small ones were excluded."""
        self.analyzers: tuple[Analyzer, ...] = ()
        self.label_use: Use | None = None
        """Separate labels that are drawn here: the use of a charge that was taken for them."""
        self.answers_use: Use | None = None
        """Answers that are kept in a folder: the use of a charge that was taken for them."""
        self._process, self._stepping = process_identity(), threading.RLock()

    @_one_at_a_time
    def begin_labels(self, budget: Account) -> None:
        """Charge for separate labels before they are drawn. They are drawn once for a charge, whatever follows."""
        self._require(Round.ENROLLMENT)
        self.label_use = budget.begin_labels(self)

    @_one_at_a_time
    def enroll(self, n_users: int) -> None:
        """Users opt in without reporting a label."""
        self._require(Round.ENROLLMENT)
        if self.terms.separate:
            raise WrongRoundError("in this collection users enroll by reporting a label; use enroll_labels.")
        self.enrolled += require_integer("users", n_users, low=0, high=10**9)

    @_one_at_a_time
    def enroll_labels(self, reported: NDArray[np.integer]) -> None:
        """Users opt in with their randomized label, as a class number."""
        self._require(Round.ENROLLMENT)
        if not self.terms.separate:
            raise WrongRoundError("in this collection users enroll without reporting a label; use enroll.")
        numbers, n_classes = np.asarray(reported), len(self.terms.labels)
        if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise InvalidInputError(f"reports of shape {numbers.shape}, type {numbers.dtype}; give class numbers.")
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < n_classes:
            raise InvalidInputError(f"a reported label is not one of the {n_classes} classes, 0 to {n_classes - 1}.")
        self.enrolled += np.bincount(numbers.astype(np.int64), minlength=n_classes)

    @_one_at_a_time
    def fix_plan(self, fixed: Plan | None = None, progress: Progress | None = None) -> tuple[Announcement, ...]:
        """Close enrollment, plan for the public counts, and announce the plans.

        A `fixed` plan was made before. It must keep what it promises (`Plan.verify`), promise no less than the terms,
        and fit the number of enrolled users. A schedule of several releases has one plan for all of them, so it must
        be given.
        """
        self._require(Round.ENROLLMENT)
        self._require_plan_of_schedule(fixed)
        if fixed is not None:
            self._require_promise(fixed)
        announcements, released = [], []
        typical = max(2 * max(1, len(self.terms.labels)), int(self.enrolled.mean()))
        bound = self.terms.plan_request(typical, **ALL_THERE).rounding_bound  # the same for all groups
        for number, count in enumerate(self.enrolled.tolist()):
            name = str(self.terms.labels[number]) if self.terms.n_groups > 1 else ""
            try:
                if fixed is not None and count < fixed.request.least_packets:
                    raise InfeasibleError(
                        f"{count} users enrolled and the plan counts on {fixed.request.least_packets};"
                        " enroll more, or plan for fewer."
                    )
                chosen = fixed or plan(self.terms.plan_request(count, bound=bound), progress=progress)
                announcements.append(self.terms.announcement(chosen, name))
                released.append(number)
            except PrivkdeError as error:
                self._refuse_or_exclude(number, count, error)
        if not announcements:
            raise InfeasibleError("every class is too small for this promise; raise epsilon or enroll more users.")
        self.released = tuple(released)
        self.analyzers = tuple(Analyzer(announcement) for announcement in announcements)
        self.round = Round.COLLECTION
        return tuple(announcements)

    def _require_plan_of_schedule(self, fixed: Plan | None) -> None:
        """Releases compose to what was promised if all of them have the plan that was composed.

        Source: docs/proofs/composition.md, "Schedules".
        """
        releases = self.terms.request.get("releases", 1)
        if fixed is None and releases != 1:
            raise InvalidInputError(
                f"releases={releases} and no plan: all releases of a schedule have the same one; make it beforehand"
                " with accounting.plan_budget and give it."
            )
        if fixed is not None and self.terms.n_groups > 1 and fixed.request.releases != releases:
            raise InvalidInputError(
                f"the plan is for {fixed.request.releases} releases and the terms for {releases}: the labels'"
                " response is repeated as often; give the same number."
            )

    def _require_promise(self, fixed: Plan) -> None:
        """Terms are what is charged for: a plan may not promise less, whatever its document says."""
        agreed, epsilon = self.terms.features_guarantee(View.COMMUNICATION), fixed.request.epsilon
        delta = fixed.protocol().promised_delta(fixed.request.delta)
        if epsilon > agreed.epsilon or delta > agreed.delta:
            raise InvalidInputError(
                f"the plan promises epsilon={epsilon:g}, delta={delta:g} and the terms epsilon={agreed.epsilon:g},"
                f" delta={agreed.delta:g}; plan for what was agreed on."
            )
        ours = self.terms.plan_request(fixed.request.users)
        if fixed.request.n_colluders < ours.n_colluders or fixed.request.counted_users > ours.counted_users:
            raise InvalidInputError(
                f"the plan counts on {fixed.request.counted_users} honest users and on {fixed.request.n_colluders}"
                f" colluders, the terms on {ours.counted_users} and {ours.n_colluders}; plan for what was agreed on."
            )
        fixed.verify()

    def _refuse_or_exclude(self, number: int, count: int, error: PrivkdeError) -> None:
        if self.terms.n_groups == 1:
            raise error
        text = f"class {self.terms.labels[number]!r}, reported by {count} users: {error}"
        small = isinstance(error, InfeasibleError) or count < max(2, self.terms.request.get("min_users") or 0)
        if not small or self.terms.small_classes == "refuse":
            charge = "" if self.label_use is None else ", and the charge for them is spent, too"
            text += f" Labels were reported: their part of epsilon is spent{charge}."
            text += " small_classes='exclude' leaves such classes out." if small else ""
            raise type(error)(text) from error
        warnings.warn(f"excluded: {text}", ExcludedClassWarning, stacklevel=4)

    @_one_at_a_time
    def count(self, position: int, analyzer: Analyzer) -> None:
        """Add what was counted for the group at this position among the released ones."""
        self._require(Round.COLLECTION)
        require_integer("position", position, low=0, high=len(self.analyzers) - 1)
        mine, enrolled = self.analyzers[position], int(self.enrolled[self.released[position]])
        counted = analyzer.snapshot()
        together = mine.n_users + counted.n_users
        if together > enrolled:
            raise InvalidInputError(
                f"{together} users would be counted and {enrolled} enrolled;"
                " somebody was counted twice or never enrolled."
            )
        mine.merge(counted)

    def identity(self) -> str:
        """Names the collection: 64 hexadecimal digits; without groups those in its packets, once its plan is fixed."""
        if not self.terms.separate:
            return self.analyzers[0].announcement.collection().hex()
        public = [dict(self.terms.request), list(map(str, self.terms.labels)), self.terms.label_epsilon]
        text = json.dumps([*public, self.terms.public_seed], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    @_one_at_a_time
    def publish(self, *, private: bool, budget: Account | None = None) -> DensityModel:
        """Close the collection and publish the sums; refused (and still open) if too few users took part.

        `private` says whether draws that are in no packet, such as those of labels, came from secret randomness. The
        model is private if they did and all that was counted is marked so; a mark of seeded draws cannot be removed.
        Whether clients told the truth about theirs, the analyzer cannot see.

        A `budget` (`Ledger.account`) is charged first, if it was not charged before; without enough left, nothing is
        published.
        """
        self._require(Round.COLLECTION)
        analyzers = [analyzer.snapshot() for analyzer in self.analyzers]  # which may still be given packets
        private = private and all(analyzer.secret for analyzer in analyzers)
        sums = np.stack([analyzer.sums() for analyzer in analyzers])
        every = self.terms.labels
        labels = every if self.terms.n_groups == 1 else tuple(every[number] for number in self.released)
        model = DensityModel(
            announcements=tuple(analyzer.announcement for analyzer in analyzers),
            sums=sums,
            n_users=tuple(analyzer.n_users for analyzer in analyzers),
            contract=self.contract(private=private),
            private=private,
            labels=labels,
            basis=self.terms.basis,
        )
        if budget is not None:
            budget.pay(self, model)
        self.round = Round.PUBLICATION
        return model

    def contract(self, *, private: bool) -> Contract:
        """What the whole collection promises, once the plan is fixed."""
        if self.round is Round.ENROLLMENT:
            raise WrongRoundError("the promise follows from the plan, which is fixed after enrollment (fix_plan).")
        plans = [analyzer.announcement.plan for analyzer in self.analyzers]
        response = self.terms.label_response() if self.terms.separate else None
        return promised(plans, response, private=private, declared=self.terms.labels_declared)

    def __reduce__(self) -> NoReturn:
        raise InvalidInputError("a collection cannot be copied or pickled: what is charged is published once.")

    def _require(self, needed: Round) -> None:
        if self.round is not needed:
            raise WrongRoundError(f"this belongs to the {needed} round; the collection is in the {self.round} round.")
