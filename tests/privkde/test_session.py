"""A session cannot spend what it does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import InvalidInputError
from privkde import Ledger, PrivateKDE, PrivateKDEClassifier, Session
from privkde.ledger import BudgetExceededError, UnknownBudgetError

ROWS = np.random.default_rng(17).normal(size=(400, 3))
SMALL: dict[str, Any] = {"repetitions": 2, "epsilon": 1.0, "delta": 1e-6}


def test_a_session_spends_until_nothing_is_left(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.create("a", epsilon=2.0, delta=2e-6, composition="basic")
        session = Session(ledger=ledger, budget="a", vectors=ROWS)
        template = PrivateKDE(**SMALL)
        fitted = session.fit(template)
        assert not hasattr(template, "model_")
        assert fitted.density(ROWS[:2]).shape == (2,)
        session.density(**SMALL, key="second")
        assert session.standing().remaining == 0.0
        with pytest.raises(BudgetExceededError):
            session.density(**SMALL)
        assert session.standing().n_charges == 2


@pytest.mark.filterwarnings("ignore::UserWarning")  # fresh noise decides whether a signal is called weak
def test_a_session_with_labels_fits_classifiers(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.create("a", epsilon=8.0, delta=1e-5)
        session = Session(ledger=ledger, budget="a", vectors=ROWS, labels=np.arange(400) % 2, cohort="north")
        fitted = session.classifier(epsilon=1.0, classes=(0, 1), max_messages=200, outside="project")
        assert fitted.predict(ROWS[:2]).shape == (2,)
        session.fit(PrivateKDEClassifier(repetitions=2, epsilon=2.0, label_epsilon=1.0, classes=(0, 1)))
        assert [charge.cohort for charge in ledger.history("a")] == ["north", "north"]
        with pytest.raises(InvalidInputError, match="NOT PRIVATE"):
            session.density(**SMALL, insecure_seed=1)
        bare = Session(ledger=ledger, budget="a", vectors=ROWS)
        with pytest.raises(InvalidInputError, match="no labels"):
            bare.classifier(epsilon=1.0, classes=(0, 1))


def test_a_session_shows_no_data_and_needs_a_budget(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger") as ledger:
        with pytest.raises(UnknownBudgetError):
            Session(ledger=ledger, budget="a", vectors=ROWS)
        ledger.create("a", epsilon=2.0, delta=1e-6)
        shown = repr(Session(ledger=ledger, budget="a", vectors=ROWS, labels=["secret"] * 400))
    assert "vectors" not in shown
    assert "secret" not in shown
