"""The ledger: budgets, and charges that never exceed them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from accounting import InvalidInputError, View
from accounting.releases.release import Release, Spent, basic_epsilon, spent
from privkde.ledger.records import Budget, Charge, Composition, Quote, Standing, require_key, require_sha256
from privkde.ledger.refusals import KeyReusedError

if TYPE_CHECKING:
    from privkde.ledger.store import Store


class Ledger:
    """Budgets and charges in one database. Threads may share a ledger; each process opens the database itself.

    A charge is one transaction that holds its budget's lock: charges of one budget happen one after the other, and a
    charge that was acknowledged is on the disk.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    @staticmethod
    def open(where: str | Path, *, create: bool = True) -> Ledger:
        """The ledger in a file or at a `postgresql://…` URL; with `create`, it is made if it does not exist."""
        try:
            from privkde.ledger.store import Store
        except ModuleNotFoundError as error:
            if error.name != "sqlalchemy":
                raise
            raise InvalidInputError(
                "a ledger needs sqlalchemy; install the extra with `pip install 'privkde[ledger]'`."
            ) from error
        return Ledger(Store(where, create=create))

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

    def create(
        self,
        name: str,
        *,
        epsilon: float,
        delta: float,
        view: View | str = View.COMMUNICATION,
        composition: Composition | str = Composition.PLD,
    ) -> Budget:
        """A new budget, or `BudgetExistsError`. A budget never changes.

        Use `composition="basic"` if releases may be chosen after seeing the results of earlier ones.
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
            last = rows.last_charge(budget)
        if last is None:
            return Standing(budget=budget, ladder=_nothing(budget), n_charges=0)
        return Standing(budget=budget, ladder=last.after, n_charges=last.number)

    def history(self, name: str) -> tuple[Charge, ...]:
        """The budget's charges, first to last."""
        with self._store.transaction() as rows:
            return rows.charges(rows.budget(name))

    def quote(self, name: str, release: Release) -> Quote:
        """What the release would cost now. Nothing is written or reserved: others may charge before you do."""
        with self._store.transaction() as rows:
            budget = rows.budget(name)
            charges = rows.charges(budget)
        return _quote(budget, charges, release)

    def charge(self, name: str, release: Release, *, key: str, plan_sha256: str | None = None) -> Charge:
        """Charge a release before it is published. Charging again with the same key returns the same charge.

        Raises `BudgetExceededError` if the release costs more than is left, and `KeyReusedError` if the key belongs
        to a charge for another release. In both cases nothing is written.
        """
        require_key(key)
        require_sha256(plan_sha256)
        with self._store.transaction() as rows:
            budget = rows.budget(name)
            charges = rows.charges(budget)
        earlier = _earlier(charges, key, release, plan_sha256)
        if earlier is not None:
            return earlier
        _quote(budget, charges, release)  # composing may take long: it is done and remembered before the lock
        with self._store.transaction(writing=True) as rows:
            budget = rows.budget(name, lock=True)
            charges += rows.charges(budget, after=len(charges))
            earlier = _earlier(charges, key, release, plan_sha256)
            if earlier is not None:
                return earlier
            quote = _quote(budget, charges, release)
            quote.refuse_excess()
            charge = Charge(
                budget=name,
                number=len(charges) + 1,
                key=key,
                release=release,
                plan_sha256=plan_sha256,
                spent_before=quote.before.epsilon,
                after=quote.after,
                created=_now(),
            )
            rows.add_charge(charge)
        return charge


def _earlier(charges: tuple[Charge, ...], key: str, release: Release, plan_sha256: str | None) -> Charge | None:
    """The charge that already has this key; refused if that charge is for something else."""
    earlier = next((charge for charge in charges if charge.key == key), None)
    if earlier is not None and not earlier.same_content(release, plan_sha256):
        raise KeyReusedError(
            f"key={key!r} was used for release {earlier.name!r} ({earlier.guarantee});"
            " use a fresh key for another release."
        )
    return earlier


def _quote(budget: Budget, charges: tuple[Charge, ...], release: Release) -> Quote:
    budget.refuse_unlike(release)
    after = composed((*(charge.release for charge in charges), release), budget.delta, budget.composition)
    return Quote(budget=budget, before=charges[-1].after if charges else _nothing(budget), after=after)


def _nothing(budget: Budget) -> Spent:
    return composed((), budget.delta, budget.composition)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@lru_cache(maxsize=16)
def composed(releases: tuple[Release, ...], delta: float, composition: Composition) -> Spent:
    """ε of all releases together at δ. With `basic` only basic composition counts; the other ways are infinite.

    Results are remembered, so that a charge can compose before it locks the budget and need not do so again.
    """
    if composition is Composition.BASIC:
        return Spent(delta=delta, basic=basic_epsilon(releases, delta), advanced=math.inf, pld=math.inf)
    return spent(releases, delta)
