"""Any order of creating, charging, repeating and reopening, against a model that is a dictionary of lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from accounting.releases.adaptive import AdaptiveFilter
from accounting.releases.composing import spent
from accounting.releases.release import Release
from privkde.ledger import BudgetExceededError, BudgetExistsError, Composition, KeyReusedError, Ledger
from tests.privkde.ledger.charging import release

EXAMPLES, STEPS = 15, 15
DELTA = 1e-6
SIZES = ["0.1", "0.25", "0.5"]
_fresh = count()


@dataclass
class Account:
    """What the model knows of one budget."""

    epsilon: str
    composition: Composition
    paid: list[tuple[str, Release]] = field(default_factory=list)

    def fits(self, more: Release) -> bool:
        """By the definition: exact sums of decimals, or the least that `accounting` proves."""
        releases = [release for _, release in self.paid] + [more]
        if self.composition is Composition.ADAPTIVE:
            rule = AdaptiveFilter.for_budget(float(self.epsilon), DELTA)
            return rule.spent(releases) <= rule.epsilon
        sums = [
            sum(Fraction(repr(getattr(release.guarantee, name))) for release in releases)
            for name in ("epsilon", "delta")
        ]
        if sums[0] <= Fraction(self.epsilon) and sums[1] <= Fraction(repr(DELTA)):
            return True
        return self.composition is Composition.PLD and spent(releases, DELTA).epsilon <= float(self.epsilon)


class Machine(RuleBasedStateMachine):
    """A ledger beside its model. Budgets of earlier examples stay in the ledger; names are fresh."""

    where: str
    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger.open(self.where)
        self.accounts: dict[str, Account] = {}

    def teardown(self) -> None:
        self.ledger.close()

    @rule(target=names, epsilon=st.sampled_from(["0.3", "0.5", "1.0"]), composition=st.sampled_from(Composition))
    def create(self, epsilon: str, composition: Composition) -> str:
        name = f"budget-{next(_fresh)}"
        self.ledger.create(name, epsilon=float(epsilon), delta=DELTA, composition=composition)
        self.accounts[name] = Account(epsilon, composition)
        return name

    @rule(name=names)
    def create_again(self, name: str) -> None:
        with pytest.raises(BudgetExistsError):
            self.ledger.create(name, epsilon=5.0, delta=DELTA)

    @rule(
        name=names,
        key=st.sampled_from(["k1", "k2", "k3", "k4", "k5"]),
        size=st.sampled_from(SIZES),
        delta=st.sampled_from([0.0, 4e-7]),
    )
    def charge(self, name: str, key: str, size: str, delta: float) -> None:
        account, requested = self.accounts[name], release(float(size), delta)
        earlier = dict(account.paid).get(key)
        quote = self.ledger.quote(name, requested)
        assert quote.fits == account.fits(requested)
        if earlier is not None and earlier != requested:
            with pytest.raises(KeyReusedError):
                self.ledger.charge(name, requested, key=key)
        elif earlier is not None:
            numbers = [number for number, (paid, _) in enumerate(account.paid, 1) if paid == key]
            assert [self.ledger.charge(name, requested, key=key).number] == numbers
        elif quote.fits:
            assert self.ledger.charge(name, requested, key=key).spent_after == quote.after.epsilon
            account.paid.append((key, requested))
        else:
            with pytest.raises(BudgetExceededError) as caught:
                self.ledger.charge(name, requested, key=key)
            assert caught.value.difference > 0.0
            assert (caught.value.requested, caught.value.remaining) == (quote.requested, quote.remaining)

    @rule()
    def reopen(self) -> None:
        self.ledger.close()
        self.ledger = Ledger.open(self.where, create=False)

    @invariant()
    def the_ledger_is_its_model(self) -> None:
        for name, account in self.accounts.items():
            charges, standing = self.ledger.history(name), self.ledger.standing(name)
            assert [(one.key, one.release) for one in charges] == account.paid
            assert [one.number for one in charges] == list(range(1, len(account.paid) + 1))
            assert standing.n_charges == len(account.paid)
            assert 0.0 <= standing.spent <= float(account.epsilon)
            if charges:
                assert standing.spent == charges[-1].spent_after


def test_any_order_of_commands(where: str) -> None:
    """On both kinds of database."""
    machine = type("Machine", (Machine,), {"where": where})
    run_state_machine_as_test(machine, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS))
