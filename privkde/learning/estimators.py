"""`PrivateKDE` and `PrivateKDEClassifier`: the paper's protocols behind scikit-learn's conventions.

`fit` simulates all users of a collection in this process: enrollment, plan, randomizers, shuffler, analyzer,
publication. Only what is published is kept.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from accounting import InvalidInputError, Plan
from accounting.errors import require_choice
from accounting.request import ALL_THERE, SEPARATE, PlanRequest
from privkde.display.progress import tracked
from privkde.draws.randomness import private_randomness
from privkde.engines import ThroughFiles
from privkde.learning.labeled_estimator import LabeledEstimator
from privkde.learning.private_estimator import PrivateEstimator, refuse_further, require_dimension
from privkde.learning.ranking import Ranking
from privkde.protocol.label_round import randomize_labels
from privkde.protocol.model import RULES, DensityModel, Floats
from privkde.protocol.rounds import Collection

if TYPE_CHECKING:
    from privkde.ledger import Account


class PrivateKDE(PrivateEstimator):
    """A kernel density function of n users' vectors under shuffled differential privacy (the paper's Algorithm 1).

    Parameters
    ----------
    epsilon : float
        ε of everything that is published about a person's vector. It has no default: `fit` refuses to
        invent one.
    delta : float, default 1e-6
        δ of the same promise; 0 needs `bitsum="pure"`.
    kernel : str, default "gaussian"
        "gaussian", "laplacian", "exponential", "inner-product" or "inner-product-signs".
    bitsum : str, default "rr"
        Protocol that counts bits: "rr", "3nb", "poisson", "negative-binomial", "pure", or "auto".
    repetitions : int, optional
        Independent feature maps; as many as dimensions, if left out, as in plans. More of them cost messages and make
        the error of features smaller. Without effect for "inner-product".
    accountant : str, default "auto"
        Rung of the composition ladder that proves the promise.
    min_users : int, optional
        Users that must at least take part; noise counts on them. All, if left out.
    dropout, colluders : float, default 0
        Users that may stay away, or tell what they sent: a share below 1 or a number; instead of `min_users`.
    insecure_seed : int, optional
        Makes a fit reproducible and NOT PRIVATE: for studies only.
    bandwidth : float, default 1
        Bandwidth of the kernel; without effect for inner products.
    projection : int, optional
        Gaussian kernel only: project to so many random dimensions first.
    bias, bound, radius, noise_shape, excess_error, allow_useless
        As in `accounting.PlanRequest`.
    outside : {"reject", "project"}, default "reject"
        What a client does with a vector of norm above 1, or above the radius, where the kernel excludes it.
    path : {"aggregated", "faithful"}, default "aggregated"
        Draw counts of the same law, or send every single message.
    public_seed : str, optional
        32 hexadecimal digits for the public randomness; fresh ones if left out.
    engine : optional
        Where users are played (`privkde.engine`); this process if left out.
    verbose : bool, default False
        Show progress on standard error.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(500, 3))
    >>> kde = PrivateKDE(repetitions=16, epsilon=4.0, insecure_seed=1).fit(x)
    >>> kde.density(np.zeros((2, 3))).shape
    (2,)
    >>> print(str(kde.contract_).splitlines()[0])
    NOT PRIVATE (seeded randomness): gaussian KDE from 16 bitsum instances, 16 of them touched by one user
    """

    def fit(
        self, X: Any, y: Any = None, *, plan: Plan | None = None, budget: Account | None = None, **further: Any
    ) -> Self:
        """Collect from one user per row and publish.

        A `plan` that was made before replaces the parameters that a plan is made from. It must fit the data and keep
        what it promises (`Plan.verify`). A `budget` (`Ledger.account`) is charged before anybody answers; without
        enough left, nothing is collected or published. `sample_weight` is refused: it would not be private.
        """
        refuse_further(further)
        self._require_promise(plan)
        with self._all_or_nothing(), tracked(self.verbose) as tracker:
            rows = self._rows(X, reset=True)
            require_dimension(plan, rows.shape[1])
            randomness = private_randomness(self.insecure_seed)
            collection = Collection(self._terms(self._request(rows.shape[1], plan), randomness))
            collection.enroll(rows.shape[0])
            self._run(
                collection, rows, [np.arange(rows.shape[0])], randomness, tracker=tracker, plan=plan, budget=budget
            )
        return self

    @property
    def plan_(self) -> Plan:
        """The plan that the noise came from."""
        check_is_fitted(self, "model_")
        return self.model_.plans[0]

    def density(self, X: Any) -> Floats:
        """K̃(y) for every row y of `X`; any number of queries, at no further cost of privacy.

        An unbiased estimate of a mean of kernel values. It may be negative where few users are.
        """
        check_is_fitted(self, "model_")
        return self.model_.densities(self._rows(X, reset=False))[:, 0]

    def score_samples(self, X: Any) -> Floats:
        """Ln K̃(y) for every row y of `X`, as scikit-learn's densities have it; −∞ where K̃(y) ≤ 0.

        K̃ is a mean of kernel values and does not integrate to 1. Its logarithm is biased downwards by noise.
        """
        density = self.density(X)
        return np.log(density, out=np.full(density.shape, -math.inf), where=density > 0.0)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A fitted estimator from a file that `save` wrote."""
        model = DensityModel.load(path)
        if model.labels:
            raise InvalidInputError(f"{str(path)!r} holds a classifier; load it with {_loader(model)}.")
        return cls()._restore(model)


@dataclass(repr=False, eq=False, kw_only=True)
class PrivateKDEClassifier(LabeledEstimator):
    """One private density per class, prediction by the highest density (the paper's section 3.3).

    Each user first reports its label by randomized response, then takes part in the density of the class that it
    reported. `PrivateClassifier` protects features and label in one collection and predicts better for the same ε; this
    class is for the paper's protocol. `reported_counts_` are the users that reported each class.

    Parameters
    ----------
    epsilon : float
        ε of everything that is published about a person: features and label. It has no default: `fit` refuses to
        invent one.
    label_epsilon : float, optional
        The part of `epsilon` for the label's randomized response; the rest is for the features. Planned if left out.
    classes : sequence of str, int, float or bool, optional
        The public set of classes. Without it the set is read off the labels, with an `UndeclaredClassesWarning`: a
        class that only one user has is then published, and the contract says that nothing covers this.
    rule : {"density", "mean"}, default "density"
        Rank classes by K̃_c(y), or by the distance of y to their means in feature space, K̃_c(y) − ½‖μ_c‖².
    small_classes : {"refuse", "exclude"}, default "refuse"
        What to do if too few users report a class.

    All others are those of `PrivateKDE`.
    """

    label_epsilon: float | None = None
    rule: str = RULES[0]

    def fit(
        self, X: Any, y: ArrayLike, *, plan: Plan | None = None, budget: Account | None = None, **further: Any
    ) -> Self:
        """Label round, one plan and one collection for each reported class, publication.

        A `plan` is refused: each class is planned for those who report it. A `budget` pays as for `PrivateKDE`,
        for one round of labels: a fit that is interrupted or refused after it has spent its charge.
        """
        refuse_further(further)
        if plan is not None:
            raise InvalidInputError(
                "a plan was given and labels are separate: each class is planned for those who report it;"
                " leave the plan out, or use PrivateClassifier."
            )
        require_choice("rule", self.rule, RULES)
        with self._all_or_nothing(), tracked(self.verbose) as tracker:
            rows, targets = self._rows(X, y, reset=True)
            request = self._request(rows.shape[1])
            known, numbers = self._numbered(targets)
            randomness = private_randomness(self.insecure_seed)
            label_epsilon, features_epsilon = self._parts(request, rows.shape[0], len(known))
            terms = self._terms(
                request | {"epsilon": features_epsilon},
                randomness,
                labels=tuple(known.tolist()),
                labels_declared=self.classes is not None,
                label_epsilon=label_epsilon,
                small_classes=self.small_classes,
            )
            collection = Collection(terms)
            if budget is not None:
                budget.require_private(randomness.secret)
                if isinstance(self.engine, ThroughFiles):
                    self.engine.require_empty(self.path)
                collection.begin_labels(budget)  # reports are paid for, whatever becomes of them
            reported = randomize_labels(numbers, terms.label_response(), stream=randomness.child("labels"))
            collection.enroll_labels(reported)
            groups = [np.flatnonzero(reported == number) for number in range(len(known))]
            self._run(collection, rows, groups, randomness, tracker=tracker, budget=budget)
            self.reported_counts_ = dict(zip(known.tolist(), collection.enrolled.tolist(), strict=True))
            self.classes_ = np.array(self.model_.classes, dtype=known.dtype)
        return self

    def _parts(self, request: dict[str, Any], n_users: int, n_classes: int) -> tuple[float, float]:
        """ε of the label and of the features, as a plan for all classes divides it."""
        whole = PlanRequest(
            **{**request, **ALL_THERE},
            users=max(n_users, 2 * n_classes),
            classes=n_classes,
            labels=SEPARATE,
            label_epsilon=self.label_epsilon,
        )
        return whole.label_epsilon or 0.0, whole.kde_epsilon

    @property
    def plan_(self) -> dict[Any, Plan]:
        """The plan of each released class."""
        check_is_fitted(self, "model_")
        return dict(zip(self.classes_.tolist(), self.model_.plans, strict=True))

    def _ranking(self) -> Ranking:
        return Ranking.of(self.model_, self.rule)

    def save(self, path: str | Path) -> None:
        """Write the published model with the rule, whole or not at all."""
        check_is_fitted(self, "model_")
        dataclasses.replace(self.model_, rule=self.rule).save(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A fitted classifier from a file that `save` wrote.

        `outside`, `small_classes` and others that a published model does not hold are at their defaults.
        """
        model = DensityModel.load(path)
        response = model.label_response()
        if response is None:
            raise InvalidInputError(f"{str(path)!r} holds no separate labels; load it with {_loader(model)}.")
        restored = cls(rule=model.rule)._restore(model)
        restored.epsilon = math.fsum([model.plans[0].request.epsilon, response.label_epsilon])
        restored.label_epsilon = response.label_epsilon
        if model.classes_declared and len(model.labels) == response.n_classes:
            restored.classes = model.labels
        restored.classes_ = np.array(model.classes)
        restored.reported_counts_ = {label: round(size) for label, size in model.sizes().items()}
        return restored


def _loader(model: DensityModel) -> str:
    """The estimator that a model belongs to."""
    if not model.labels:
        return "PrivateKDE"
    return "PrivateClassifier" if model.label_response() is None else "PrivateKDEClassifier"
