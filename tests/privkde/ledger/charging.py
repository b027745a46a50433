"""What processes of their own do with a ledger; they import nothing else."""

from __future__ import annotations

import sys
from itertools import count

from accounting import Adjacency, Guarantee, View
from accounting.releases.release import Release
from privkde.ledger import BudgetExceededError, Ledger


def release(epsilon: float, delta: float = 0.0, *, name: str = "a release", view: View = View.COMMUNICATION) -> Release:
    promise = Guarantee(epsilon=epsilon, delta=delta, adjacency=Adjacency.RECORD, view=view)
    return Release.of_guarantee(name, promise)


def pay_all(where: str, first: int, keys: int) -> tuple[list[str], list[str]]:
    """Try every key, starting with another one in each process: which were acknowledged, and which refused."""
    paid, refused = [], []
    with Ledger.open(where, create=False) as ledger:
        for i in range(keys):
            key = f"key {(first + i) % keys}"
            try:
                paid.append(ledger.charge("a", release(0.1), key=key).key)
            except BudgetExceededError:
                refused.append(key)
    return paid, refused


def open_new(where: str, name: str) -> None:
    """Open a ledger that may not be there yet, and add a budget."""
    with Ledger.open(where) as ledger:
        ledger.create(name, epsilon=1.0, delta=1e-6)


def charge_without_end(where: str) -> None:
    """Print every key once its charge is acknowledged."""
    with Ledger.open(where, create=False) as ledger:
        for i in count():
            charge = ledger.charge("a", release(0.01, 1e-9), key=f"key {i}")
            print(charge.key, flush=True)


if __name__ == "__main__":
    charge_without_end(sys.argv[1])
