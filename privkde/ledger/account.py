"""A budget that collections are paid from: charged before anybody answers, used when the result is published."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accounting import InvalidInputError, Plan, View
from accounting.releases.release import Release
from privkde.ledger.records import Charge, Use, require_cohort, require_key
from privkde.ledger.refusals import KeyReusedError, ScheduleUsedUpError

if TYPE_CHECKING:
    from privkde.ledger.ledger import Ledger
    from privkde.protocol.model import DensityModel
    from privkde.protocol.rounds import Collection


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One budget of an open ledger, for `fit(…, budget=…)` and `Collection.publish(budget=…)`.

    A collection is charged once, by its key: the one given here or, without one, the collection's id. A charge with
    that key that was made before for the same plan, such as a schedule, pays as well. What it paid for is one result
    for each of its collections: publishing the same result again is free, another one is refused. Where labels are
    drawn here (`begin_labels`), their one round is what is paid for, whether a result follows or not.
    """

    ledger: Ledger
    budget: str
    key: str | None = None
    cohort: str | None = None

    def __post_init__(self) -> None:
        require_cohort(self.cohort)
        if self.key is not None:
            require_key(self.key)

    def charge(self, collection: Collection) -> Charge:
        """Charge a collection, unless that was done before: with separate labels before anybody reports one.

        Without them its plan must be fixed.

        Raises `BudgetExceededError` if it costs more than is left, and `KeyReusedError` if the charge that was made
        before is for something else; nothing may then be collected.
        """
        key, digest, release = self._key(collection), _digest(collection), self._release(collection)
        paid = self._paid(key)
        if paid is None or digest is None or (paid.plan_sha256, paid.cohort) != (digest, self.cohort):
            paid = self.ledger.charge(self.budget, release, key=key, plan_sha256=digest, cohort=self.cohort)
        self._require_cost(paid, release)
        return paid

    def require_enough(self, collection: Collection) -> None:
        """Refuse a collection that was not charged and costs more than is left; nothing is written."""
        if self._paid(self._key(collection)) is None:
            self.ledger.quote(self.budget, self._release(collection), cohort=self.cohort).refuse_excess()

    def _key(self, collection: Collection) -> str:
        return self.key or default_key(collection)

    def _paid(self, key: str) -> Charge | None:
        return next((charge for charge in self.ledger.history(self.budget) if charge.key == key), None)

    def _release(self, collection: Collection) -> Release:
        return _release(collection, self._key(collection), self.ledger.standing(self.budget).budget.view)

    def begin(self, collection: Collection, *, folder: str | None = None) -> None:
        """Charge a collection, unless that was done before, and refuse it before users answer again for one charge.

        Answers that are kept in a `folder`, by its name, take one of the results that were charged, before there are
        any: they can be continued, and published again. Otherwise one must be left.
        """
        charge = self.charge(collection)
        if collection.label_use is not None:
            return
        if folder is not None:
            collection.answers_use = self._use(charge, f"answers {folder}")
        elif sum(use.schedule == charge.key for use in self.ledger.uses(self.budget)) >= charge.release.collections:
            raise self._used_up(charge)

    def _use(self, charge: Charge, key: str) -> Use:
        try:
            return self.ledger.use(self.budget, charge.key, key=key, plan_sha256=charge.plan_sha256)
        except ScheduleUsedUpError as error:
            raise self._used_up(charge) from error

    def _used_up(self, charge: Charge) -> ScheduleUsedUpError:
        return ScheduleUsedUpError(
            f"charge {charge.key!r} of budget {self.budget!r} paid for {charge.release.collections} results, and as"
            " many others were published, or begun; continue the one that was begun, in its folder, or run a new"
            " collection, which is charged by itself."
        )

    def _require_cost(self, paid: Charge, release: Release) -> None:
        """Refuse a charge that names the plan and has the price of something else: a ledger does not see plans."""
        expected = dataclasses.replace(release.repeated(paid.release.times), name=paid.name)
        if paid.release != expected:
            raise KeyReusedError(
                f"charge {paid.key!r} of budget {self.budget!r} names the plan of this collection and was charged as"
                f" something else ({paid.guarantee}, {paid.release.collections} collections); charge the plan itself"
                " (Release.of_plan) with a new key."
            )

    def begin_labels(self, collection: Collection) -> Use:
        """Charge a collection with separate labels and take its result, before anybody's label is drawn.

        Raises `ScheduleUsedUpError` if labels were drawn for this charge before: reports that differ from round to
        round could be averaged, even where a class that is too small ends every round.
        """
        charge = self.charge(collection)
        try:
            return self.ledger.use(self.budget, charge.key, key=f"labels {secrets.token_hex(16)}")
        except ScheduleUsedUpError as error:
            raise ScheduleUsedUpError(
                f"charge {charge.key!r} of budget {self.budget!r} paid for one round of labels, and they were drawn;"
                " a fit with separate labels that was interrupted or refused has spent its charge: choose a new key."
            ) from error

    def pay(self, collection: Collection, model: DensityModel) -> Use:
        """Charge a collection, unless that was done before, and record that this model of it is published now.

        Raises `ScheduleUsedUpError` if all that was charged was published before, with other results.
        """
        self.require_private(model.private)
        charge, result = self.charge(collection), _outcome(collection, model)
        begun = collection.label_use or collection.answers_use
        if begun is None:
            return self._use(charge, result)
        try:
            self.ledger.finish(begun, result=result)
        except ScheduleUsedUpError as error:
            raise self._used_up(charge) from error
        return begun

    def require_private(self, private: bool) -> None:
        """Refuse a collection whose noise can be repeated: no charge covers it."""
        if not private:
            raise InvalidInputError(
                f"the collection is NOT PRIVATE (seeded randomness), and budget {self.budget!r} promises privacy;"
                " leave out the seed, or the budget."
            )


def default_key(collection: Collection) -> str:
    """One for each collection; a plan for several releases is charged once for all of them."""
    if not collection.terms.separate and _plan(collection).request.releases > 1:
        return f"plan {_plan(collection).sha256()}"
    return f"collection {collection.identity()}"


def _plan(collection: Collection) -> Plan:
    """The one plan of a collection without separate labels."""
    return collection.analyzers[0].announcement.plan


def _digest(collection: Collection) -> str | None:
    """The plan's hash; None where every class has its own."""
    return None if collection.terms.separate else _plan(collection).sha256()


def _release(collection: Collection, name: str, view: View) -> Release:
    terms = collection.terms
    if not terms.separate:
        return Release.of_plan(name, _plan(collection), view=view)
    return Release.of_separate_labels(name, terms.features_guarantee(view), terms.label_response())


def _outcome(collection: Collection, model: DensityModel) -> str:
    """A digest of what is published: another draw of the noise has another one."""
    published = hashlib.sha256(f"{collection.identity()} {model.n_users}".encode())
    published.update(model.sums.astype("<f8").tobytes())
    return published.hexdigest()
