"""Data and the budget that pays for all that is published about them, for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from sklearn.base import clone

from accounting import InvalidInputError, Plan
from privkde.learning.estimators import PrivateKDE, PrivateKDEClassifier
from privkde.learning.labeled_estimator import LabeledEstimator
from privkde.learning.private_classifier import PrivateClassifier
from privkde.ledger import Ledger, Standing

Estimator = TypeVar("Estimator", PrivateKDE, PrivateClassifier, PrivateKDEClassifier)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One vector per person (and perhaps a label), and a budget of an open ledger.

    Everything that is fitted here is charged first, and cannot be fitted if too little is left. A program that holds
    its data only in a session cannot forget to charge.

    >>> import tempfile
    >>> import numpy as np
    >>> from privkde import Ledger, Session
    >>> with tempfile.TemporaryDirectory() as folder, Ledger.open(f"{folder}/ledger.sqlite") as ledger:
    ...     budget = ledger.create("survey", epsilon=4, delta=1e-5)
    ...     x = np.random.default_rng(0).normal(size=(500, 3))
    ...     session = Session(ledger=ledger, budget="survey", vectors=x)
    ...     kde = session.density(epsilon=1.0, repetitions=4)
    ...     session.standing().n_charges
    1
    """

    ledger: Ledger
    budget: str
    vectors: Any = field(repr=False)
    labels: Any = field(default=None, repr=False)
    cohort: str | None = None
    """The only people that the data are about, if the budget is for more; cohorts share nobody."""

    def __post_init__(self) -> None:
        self.ledger.account(self.budget, cohort=self.cohort)  # refused here, not after the first fit

    def fit(self, estimator: Estimator, *, plan: Plan | None = None, key: str | None = None) -> Estimator:
        """A fitted copy of the estimator; `BudgetExceededError`, and nothing is collected, if too little is left.

        A `key` is charged once: with it, a fit that was interrupted can be repeated (`Account`), but not with separate
        labels, which are drawn once for a charge.
        """
        if isinstance(estimator, LabeledEstimator) and self.labels is None:
            raise InvalidInputError("this session holds no labels, which a classifier needs; give labels=….")
        account = self.ledger.account(self.budget, key=key, cohort=self.cohort)
        fresh: Estimator = clone(estimator)
        return fresh.fit(self.vectors, self.labels, plan=plan, budget=account)

    def density(self, *, plan: Plan | None = None, key: str | None = None, **parameters: Any) -> PrivateKDE:
        """A density of all vectors, with the parameters of `PrivateKDE`."""
        return self.fit(PrivateKDE(**parameters), plan=plan, key=key)

    def classifier(self, *, plan: Plan | None = None, key: str | None = None, **parameters: Any) -> PrivateClassifier:
        """A classifier of all vectors and labels, with the parameters of `PrivateClassifier`."""
        return self.fit(PrivateClassifier(**parameters), plan=plan, key=key)

    def standing(self) -> Standing:
        """What is spent of the budget, and what is left."""
        return self.ledger.standing(self.budget)
