"""The ledger: budgets, and charges that never exceed them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from accounting import InvalidInputError, Plan, View
from accounting.releases.adaptive import Price
from accounting.releases.composing import Spent, basic_delta, basic_epsilon, spent
from accounting.releases.release import Release
from privkde.ledger.account import Account
from privkde.ledger.digests import Head
from privkde.ledger.kept_proof import KeptProof
from privkde.ledger.records import (
    Budget,
    Charge,
    Composition,
    Quote,
    Schedule,
    Standing,
    Use,
    require_cohort,
    require_key,
    require_sha256,
)
from privkde.ledger.refusals import KeyReusedError, ScheduleUsedUpError

if TYPE_CHECKING:
    from accounting.checking import Proof
    from privkde.ledger.store import Store


class Ledger:
    """Budgets and charges in one database. Threads may share a ledger; each process opens the database itself.

    A charge is one transaction that holds its budget's lock: charges of one budget happen one after the other, and a
    charge that was acknowledged is on the disk.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @staticmethod
    def open(where: str | Path, *, create: bool = True, key: bytes | None = None) -> Ledger:
        """The ledger in a file or at a `postgresql://…` URL; with `create`, it is made if it does not exist.

        Rows are chained by digests, and all are checked: `LedgerAlteredError` names the first that does not fit. With
        a `key`, a secret of 32 bytes or more, only whoever holds it can add rows; it is then needed at every opening.
        """
        try:
            from privkde.ledger.store import Store
        except ModuleNotFoundError as error:
            if error.name != "sqlalchemy":
                raise
            raise InvalidInputError(
                "a ledger needs sqlalchemy; install the extra with `pip install 'privkde[ledger]'`."
            ) from error
        return Ledger(Store(where, create=create, key=key))

    def close(self) -> None:
        """Close all connections."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self._store.shown!r})"

    def head(self) -> Head:
        """The number of rows and the digest of the last, to be kept elsewhere and given to `verify` later."""
        with self._store.transaction() as rows:
            return rows.checked.head

    def verify(self, head: Head | None = None) -> Head:
        """Check all rows, or raise `LedgerAlteredError`; with a `head`, also that it was once this ledger's."""
        return self._store.verify(head)

    def seal(self, key: bytes) -> Head:
        """Check a ledger without a key and give it one, for good. Heads that were exported before no longer count."""
        return self._store.seal(key)

    def backup(self, path: str | Path) -> Head:
        """Copy a ledger in a file to a new file, whole or not at all, and check the copy; the copy's head.

        A ledger on a server is backed up by the server's own tools.
        """
        return self._store.backup(Path(path))

    def create(
        self,
        name: str,
        *,
        epsilon: float,
        delta: float,
        view: View | str = View.COMMUNICATION,
        composition: Composition | str = Composition.ADAPTIVE,
    ) -> Budget:
        """A new budget, or `BudgetExistsError`. A budget never changes.

        Use `composition="pld"` only if all releases are fixed before the first of them is made.
        """
        budget = Budget(
            name=name,
            epsilon=epsilon,
            delta=delta,
            view=view,  # type: ignore[arg-type] # checked and converted there
            composition=composition,  # type: ignore[arg-type]
            created=_now(),
        )
        with self._store.transaction(writing=True) as rows:
            rows.add_budget(budget)
        return budget

    def budgets(self) -> tuple[Budget, ...]:
        """All budgets, by name."""
        with self._store.transaction() as rows:
            return rows.budgets()

    def standing(self, name: str) -> Standing:
        """What is spent and what remains."""
        with self._store.transaction() as rows:
            budget = rows.budget(name)
            charges = rows.charges(budget)
            used = {charge.key: len(rows.uses(charge)) for charge in charges if charge.release.collections > 1}
        paths = {cohort: _path(charges, cohort) for cohort in _cohorts(charges)}
        ladders = {cohort: path[-1].after if path else _nothing(budget) for cohort, path in paths.items()}
        most = max(ladders, key=lambda cohort: _cost(ladders[cohort]))
        return Standing(
            budget=budget,
            ladder=ladders[most],
            n_charges=len(charges),
            by_sums=_by_sums(budget, paths[most]),
            cohorts={cohort: _cost(ladder) for cohort, ladder in ladders.items() if cohort is not None},
            schedules=tuple(Schedule.of(charge, used[charge.key]) for charge in charges if charge.key in used),
        )

    def history(self, name: str) -> tuple[Charge, ...]:
        """The budget's charges, first to last."""
        with self._store.transaction() as rows:
            return rows.charges(rows.budget(name))

    def quote(self, name: str, release: Release, *, cohort: str | None = None) -> Quote:
        """What the release would cost now. Nothing is written or reserved: others may charge before you do."""
        require_cohort(cohort)
        with self._store.transaction() as rows:
            budget = rows.budget(name)
            charges = rows.charges(budget)
        return _quote(budget, charges, release, cohort)

    def charge(
        self,
        name: str,
        release: Release,
        *,
        key: str,
        plan_sha256: str | None = None,
        cohort: str | None = None,
        certificate: Proof | None = None,
        plan: Plan | None = None,
    ) -> Charge:
        """Charge a release before it is published. Charging again with the same key returns the same charge.

        A release with `times` above 1 is a schedule: all of it is charged now, and `use` counts its times. A `cohort`
        names a fixed group of people that shares nobody with other cohorts; the release is then about them only. A
        `certificate` is kept with the charge, after it was proved again for `plan`, which takes seconds. A charge that
        was made before keeps what it had.

        Raises `BudgetExceededError` if the release costs more than is left, and `KeyReusedError` if the key belongs
        to a charge for another release. In both cases nothing is written.
        """
        require_key(key)
        require_sha256(plan_sha256)
        require_cohort(cohort)
        if plan is not None and plan.sha256() != plan_sha256:
            raise InvalidInputError("plan_sha256 is not the hash of the plan that is given; give `plan.sha256()`.")
        kept = None if certificate is None else KeptProof.of(certificate, plan)
        if kept is not None and not kept.covers(release.guarantee):
            raise InvalidInputError(
                f"release {release.name!r} promises less than the plan of its certificate; charge"
                " `Release.of_plan(name, plan)`."
            )
        if plan_sha256 is None and release.collections != release.times:
            raise InvalidInputError(
                f"release {release.name!r} is made {release.times} times and counts {release.collections} collections,"
                " which only a plan for several releases can; give its hash as plan_sha256."
            )
        with self._store.transaction() as rows:
            budget = rows.budget(name)
            charges = rows.charges(budget)
        earlier = _earlier(charges, key, release, plan_sha256, cohort)
        if earlier is not None:
            return earlier
        _quote(budget, charges, release, cohort)  # composing may take long: it is done and remembered before the lock
        with self._store.transaction(writing=True) as rows:
            budget = rows.budget(name, lock=True)
            charges += rows.charges(budget, after=len(charges))
            earlier = _earlier(charges, key, release, plan_sha256, cohort)
            if earlier is not None:
                return earlier
            quote = _quote(budget, charges, release, cohort)
            quote.refuse_excess()
            charge = Charge(
                budget=name,
                number=len(charges) + 1,
                key=key,
                release=release,
                price=None if budget.filter is None else budget.filter.price(release),
                cohort=cohort,
                plan_sha256=plan_sha256,
                spent_before=quote.before.epsilon,
                after=quote.after,
                created=_now(),
                certificate=kept,
            )
            rows.add_charge(charge)
        return charge

    def account(self, name: str, *, key: str | None = None, cohort: str | None = None) -> Account:
        """The budget of this name as something that collections are paid from, or `UnknownBudgetError`."""
        with self._store.transaction() as rows:
            rows.budget(name)
        return Account(ledger=self, budget=name, key=key, cohort=cohort)

    def uses(self, name: str) -> tuple[Use, ...]:
        """The collections of all schedules of a budget that were used, schedule by schedule."""
        with self._store.transaction() as rows:
            return tuple(use for charge in rows.charges(rows.budget(name)) for use in rows.uses(charge))

    def use(self, name: str, schedule: str, *, key: str, plan_sha256: str | None = None) -> Use:
        """Take one of the times of a schedule that was charged with the key `schedule`, before it is published.

        If the schedule was charged for a plan, `plan_sha256` is the hash of the plan that is run, and must be the same.
        Taking one again with the same key returns the same. Raises `ScheduleUsedUpError` if none is left.
        """
        require_key(key)
        require_sha256(plan_sha256)
        with self._store.transaction(writing=True) as rows:
            budget = rows.budget(name, lock=True)
            charge = next((charge for charge in rows.charges(budget) if charge.key == schedule), None)
            if charge is None:
                raise InvalidInputError(
                    f"budget {name!r} has no charge with key {schedule!r}; charge the schedule first."
                )
            if charge.plan_sha256 is not None and plan_sha256 is None:
                raise InvalidInputError(
                    f"schedule {schedule!r} was charged for a plan, and its collections must run that plan; give its"
                    f" hash (plan_sha256, on the command line --plan FILE), which is {charge.plan_sha256!r}."
                )
            if plan_sha256 != charge.plan_sha256:
                raise InvalidInputError(
                    f"plan_sha256={plan_sha256!r} is not the plan that {schedule!r} was charged for, which is"
                    f" {charge.plan_sha256!r}; run that plan, or charge this one."
                )
            uses = rows.uses(charge)
            earlier = next((use for use in uses if use.key == key), None)
            if earlier is not None:
                return earlier
            if len(uses) >= charge.release.collections:
                raise ScheduleUsedUpError(
                    f"all {charge.release.collections} collections of {charge.name!r} are used; charge another release."
                )
            use = Use(budget=name, schedule=schedule, number=len(uses) + 1, key=key, created=_now())
            rows.add_use(use)
        return use

    def finish(self, begun: Use, *, result: str) -> None:
        """Record the result of a use that was taken before there was one; the same again changes nothing.

        Raises `ScheduleUsedUpError` if it led to another result before.
        """
        require_key(result)
        with self._store.transaction(writing=True) as rows:
            rows.budget(begun.budget, lock=True)
            if begun not in rows.uses_of(begun.budget, begun.schedule):
                raise InvalidInputError(f"{begun.key!r} is no use of budget {begun.budget!r}; take one (Ledger.use).")
            results = _results_of(begun)
            earlier = [use.key for use in rows.uses_of(begun.budget, results)]
            if earlier == [result]:
                return
            if earlier:
                raise ScheduleUsedUpError(f"use {begun.key!r} of budget {begun.budget!r} has led to another result.")
            rows.add_use(Use(budget=begun.budget, schedule=results, number=1, key=result, created=_now()))


def _results_of(begun: Use) -> str:
    """What the result of a use is listed under; no key of a charge is like it, since those are ASCII."""
    named = json.dumps([begun.schedule, begun.key])
    return f"→ {hashlib.sha256(named.encode()).hexdigest()}"


def _earlier(
    charges: tuple[Charge, ...], key: str, release: Release, plan_sha256: str | None, cohort: str | None
) -> Charge | None:
    """The charge that already has this key; refused if that charge is for something else."""
    earlier = next((charge for charge in charges if charge.key == key), None)
    if earlier is not None and not earlier.same_content(release, plan_sha256, cohort):
        raise KeyReusedError(
            f"key={key!r} was used for release {earlier.name!r} ({earlier.guarantee});"
            " use a fresh key for another release."
        )
    return earlier


def _cohorts(charges: Sequence[Charge]) -> set[str | None]:
    """The cohorts that were charged by themselves, and None for the people of no cohort."""
    return {None, *(charge.cohort for charge in charges)}


def _path(charges: Sequence[Charge], cohort: str | None) -> list[Charge]:
    """What is about the people of a cohort: charges for everybody and charges for the cohort."""
    return [charge for charge in charges if charge.cohort in (None, cohort)]


def _quote(budget: Budget, charges: tuple[Charge, ...], release: Release, cohort: str | None) -> Quote:
    """For the people of the cohort or, if the release is about everybody, of the cohort for which most is spent.

    Nobody is in two cohorts, so a release about one costs the others nothing.
    Source: docs/proofs/releases.md, section 9.
    """
    budget.refuse_unlike(release)
    quotes = []
    for group in _cohorts(charges) if cohort is None else (cohort,):
        path = _path(charges, group)
        before, paid = _releases(path), _prices(budget, path)
        after = composed(budget, (*before, release), paid)
        quotes.append(
            Quote(
                budget=budget,
                before=composed(budget, before, paid),
                after=after,
                by_sums=_by_sums(budget, path),
            )
        )
    return max(quotes, key=lambda quote: _cost(quote.after))


def _releases(charges: Sequence[Charge]) -> tuple[Release, ...]:
    return tuple(charge.release for charge in charges)


def _prices(budget: Budget, charges: Sequence[Charge]) -> tuple[Price, ...]:
    """What an adaptive budget paid; charges of ledgers that did not record it are priced now."""
    rule = budget.filter
    return () if rule is None else tuple(charge.price or rule.price(charge.release) for charge in charges)


def _by_sums(budget: Budget, charges: Sequence[Charge]) -> bool:
    return budget.filter is not None and budget.filter.by_sums(_releases(charges), _prices(budget, charges))


def _cost(ladder: Spent) -> float:
    return ladder.epsilon


def _nothing(budget: Budget) -> Spent:
    return composed(budget, ())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@lru_cache(maxsize=16)
def composed(budget: Budget, releases: tuple[Release, ...], paid: tuple[Price, ...] = ()) -> Spent:
    """What all releases together take from a budget; only ways that its composition allows count.

    `paid` are the prices of the first releases in an adaptive budget, as they were charged. Results are remembered, so
    that a charge can compose before it locks the budget and need not do so again.
    """
    delta = budget.delta
    if budget.composition is Composition.PLD:
        return spent(releases, delta, epsilon=budget.epsilon)
    if budget.filter is not None:
        rule = budget.filter
        return Spent(delta=delta, adaptive=rule.spent(releases, paid), at_budget=rule.delta_spent(releases, paid))
    return Spent(delta=delta, basic=basic_epsilon(releases, delta), at_budget=basic_delta(releases))
