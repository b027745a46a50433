"""Who keeps count: named privacy budgets that releases are charged against (extra `ledger`; `postgres` for a server).

>>> from privkde.ledger import Ledger
>>> with Ledger.open("ledger.sqlite") as ledger:  # doctest: +SKIP
...     ledger.create("telemetry", epsilon=4.0, delta=1e-6)
...     ledger.charge("telemetry", release, key="week 1")
"""

from privkde.ledger.account import Account
from privkde.ledger.digests import Head
from privkde.ledger.ledger import Ledger
from privkde.ledger.records import Budget, Charge, Composition, Quote, Standing, Use
from privkde.ledger.refusals import (
    BudgetExceededError,
    BudgetExistsError,
    KeyReusedError,
    LedgerAlteredError,
    LedgerKeyError,
    LedgerUnavailableError,
    ScheduleUsedUpError,
    UnknownBudgetError,
)

__all__ = [
    "Account",
    "Budget",
    "BudgetExceededError",
    "BudgetExistsError",
    "Charge",
    "Composition",
    "Head",
    "KeyReusedError",
    "Ledger",
    "LedgerAlteredError",
    "LedgerKeyError",
    "LedgerUnavailableError",
    "Quote",
    "ScheduleUsedUpError",
    "Standing",
    "UnknownBudgetError",
    "Use",
]
