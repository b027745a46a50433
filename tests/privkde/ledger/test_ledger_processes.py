"""Several processes at once, and one that is killed: nothing is overspent, charged twice, lost or half-written."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from itertools import pairwise
from pathlib import Path

import pytest

from privkde.ledger import Ledger
from privkde.ledger.ledger import composed
from tests.privkde.ledger.charging import open_new, pay_all, release

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def n_workers(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def workers(n_workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that share nothing with this one or with each other."""
    with ProcessPoolExecutor(n_workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("fit", [4, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("composition", ["basic", "pld", "adaptive"])
def test_processes_never_overspend_and_never_pay_twice(
    where: str, workers: ProcessPoolExecutor, n_workers: int, composition: str, fit: int
) -> None:
    """Every process tries every key; the budget is enough for two in three (otherwise for some more)."""
    keys_tried, epsilon = 3 * fit // 2, fit / 10
    with Ledger.open(where) as ledger:
        ledger.create("a", epsilon=epsilon, delta=1e-6, composition=composition)
        results = [workers.submit(pay_all, where, fit // 2 * i, keys_tried) for i in range(n_workers)]
        outcomes = [result.result() for result in results]
        charges, standing = ledger.history("a"), ledger.standing("a")
    keys = [one.key for one in charges]
    assert [one.number for one in charges] == list(range(1, len(charges) + 1))
    assert len(set(keys)) == len(keys)
    assert len(keys) == fit if composition == "basic" else fit <= len(keys) < keys_tried
    assert standing.spent <= epsilon
    assert composed(standing.budget, (*(one.release for one in charges), release(0.1))).epsilon > epsilon
    for before, after in pairwise(charges):
        assert after.spent_before == before.spent_after
    for paid, refused in outcomes:
        assert set(paid) <= set(keys)
        assert len(paid) + len(refused) == keys_tried
    assert all(any(key in paid for paid, _ in outcomes) for key in keys)  # each of them was acknowledged


def test_processes_may_open_a_new_ledger_at_once(where: str, workers: ProcessPoolExecutor, n_workers: int) -> None:
    results = [workers.submit(open_new, where, f"budget-{i}") for i in range(4 * n_workers)]
    wait(results)
    assert [result.exception() for result in results] == [None] * len(results)
    with Ledger.open(where) as ledger:
        assert len(ledger.budgets()) == 4 * n_workers


@pytest.mark.parametrize("seen", [6, pytest.param(12, marks=pytest.mark.slow)])
def test_a_killed_process_loses_nothing_that_it_acknowledged(where: str, seen: int) -> None:
    with Ledger.open(where) as ledger:
        budget = ledger.create("a", epsilon=100.0, delta=1e-3, composition="basic")
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.privkde.ledger.charging", where], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        acknowledged = [child.stdout.readline().strip() for _ in range(seen)]
        child.kill()
        acknowledged += [line.strip() for line in child.stdout if line.endswith("\n")]
    assert child.returncode == -9
    with Ledger.open(where, create=False) as ledger:
        next_number = ledger.charge("a", release(0.5), key="after").number  # no lock is left behind
        charges = ledger.history("a")
    assert acknowledged == [f"key {i}" for i in range(len(acknowledged))]
    assert [one.key for one in charges[: len(acknowledged)]] == acknowledged
    assert next_number == len(charges)
    assert len(charges) - len(acknowledged) in (1, 2)  # at most one was written and not yet acknowledged
    assert [one.number for one in charges] == list(range(1, len(charges) + 1))
    releases = tuple(one.release for one in charges)
    assert charges[-1].spent_after == composed(budget, releases).epsilon
