"""`PrivateKDE` and `PrivateKDEClassifier`: the whole protocol behind scikit-learn's conventions.

`fit` simulates all users of a collection in this process: enrollment, plan, randomizers, shuffler, analyzer,
publication. Only what is published is kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from accounting import InfeasibleError, InvalidInputError, Plan
from accounting.errors import require_choice
from accounting.request import LABELS
from privkde.display.progress import tracked
from privkde.draws.randomness import private_randomness
from privkde.learning.decoding import decode_classes
from privkde.learning.private_estimator import PrivateEstimator, without_values
from privkde.protocol.label_round import randomize_labels
from privkde.protocol.model import RULES, DensityModel, Floats, Label
from privkde.protocol.rounds import Collection, ExcludedClassWarning

if TYPE_CHECKING:
    from privkde.ledger import Account


class UndeclaredClassesWarning(UserWarning):
    """The set of classes was read off private labels, and is published."""


class PrivateKDE(PrivateEstimator):
    """A kernel density function of n users' vectors under shuffled differential privacy (the paper's Algorithm 1).

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(500, 3))
    >>> kde = PrivateKDE(repetitions=16, epsilon=4.0, insecure_seed=1).fit(x)
    >>> kde.density(np.zeros((2, 3))).shape
    (2,)
    >>> print(str(kde.contract_).splitlines()[0])
    NOT PRIVATE (seeded randomness): gaussian KDE from 16 bitsum instances, 16 of them touched by one user
    """

    def fit(self, X: Any, y: Any = None, *, plan: Plan | None = None, budget: Account | None = None) -> Self:
        """Collect from one user per row and publish.

        A `plan` that was made before replaces the parameters that a plan is made from. It must fit the data and keep
        what it promises (`Plan.verify`). A `budget` (`Ledger.account`) is charged before anybody answers; without
        enough left, nothing is collected or published.
        """
        if plan is not None:
            plan.verify()
        with self._all_or_nothing(), tracked(self.verbose) as tracker:
            rows = self._rows(X, reset=True)
            if plan is not None and plan.request.dim != self.n_features_in_:
                raise InvalidInputError(
                    f"vectors have {self.n_features_in_} entries and the plan is for {plan.request.dim};"
                    " make a plan for these vectors."
                )
            randomness = private_randomness(self.insecure_seed)
            collection = Collection(self._terms(self._request(), randomness))
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
        """K̃(y) for every row y of `X`; any number of queries, at no further cost of privacy."""
        check_is_fitted(self, "model_")
        return self.model_.densities(self._rows(X, reset=False))[:, 0]

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A fitted estimator from a file that `save` wrote."""
        model = DensityModel.load(path)
        if model.labels:
            raise InvalidInputError(f"{str(path)!r} holds a classifier; load it with PrivateKDEClassifier.")
        return cls()._restore(model)


@dataclass(repr=False, eq=False, kw_only=True)
class PrivateKDEClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """One private density per class, prediction by the highest density (the paper's section 3.3).

    With `labels="separate"` each user first reports its label by randomized response with `label_epsilon`, then takes
    part in the density of the class that it reported. With `labels="joint"` there is one collection, in which
    (epsilon, delta) protects features and label together; `label_epsilon` has no effect. The set of classes is public
    and declared beforehand as `classes`. Without it the set is read off the labels, with an `UndeclaredClassesWarning`:
    a class that only one user has is then published, and the contract says that nothing covers this.
    `reported_counts_` are the users that reported each class or, with joint labels, estimates of their number, which
    may be off by the noise.
    """

    label_epsilon: float = 5.0
    labels: str = "separate"
    classes: Sequence[Label] | None = None
    rule: str = "density"
    small_classes: str = "refuse"

    def fit(self, X: Any, y: ArrayLike, *, plan: Plan | None = None, budget: Account | None = None) -> Self:
        """Label round, one plan and one collection for each reported class, publication; or one joint collection.

        With joint labels a `plan` that was made before may be given, as to `PrivateKDE`. A `budget` pays as there.
        """
        if plan is not None and not (self.labels == "joint" and plan.request.joint):
            raise InvalidInputError(
                "a plan was given and labels are separate: each class is planned for those who report it;"
                " leave the plan out, or choose labels='joint'."
            )
        if plan is not None:
            plan.verify()
        require_choice("labels", self.labels, LABELS)
        require_choice("rule", self.rule, RULES)
        with self._all_or_nothing(), tracked(self.verbose) as tracker:
            rows, targets = self._rows(X, y, reset=True)
            known, numbers = self._numbered(targets)
            randomness = private_randomness(self.insecure_seed)
            joint = self.labels == "joint"
            terms = self._terms(
                self._request() | ({"labels": "joint"} if joint else {}),
                randomness,
                labels=tuple(known.tolist()),
                labels_declared=self.classes is not None,
                label_epsilon=None if joint else self.label_epsilon,
                small_classes=self.small_classes,
            )
            collection = Collection(terms)
            if joint:
                collection.enroll(len(numbers))
                everybody = [np.arange(len(numbers))]
                self._run(
                    collection, rows, everybody, randomness, tracker=tracker, plan=plan, classes=numbers, budget=budget
                )
                self._refuse_or_warn()
                self.reported_counts_ = _rounded_sizes(self.model_)
            else:
                if budget is not None:
                    budget.require_private(randomness.secret)
                    budget.charge(collection)  # reports of labels are paid for, whatever becomes of them
                reported = randomize_labels(numbers, terms.label_response(), stream=randomness.child("labels"))
                collection.enroll_labels(reported)
                groups = [np.flatnonzero(reported == number) for number in range(len(known))]
                self._run(collection, rows, groups, randomness, tracker=tracker, budget=budget)
                self.reported_counts_ = dict(zip(known.tolist(), collection.enrolled.tolist(), strict=True))
            self.classes_ = np.array(self.model_.classes, dtype=known.dtype)
        return self

    def _refuse_or_warn(self) -> None:
        """Joint labels: classes whose estimated size does not stand out from its error have no density."""
        lost = [label for label in self.model_.labels if label not in self.model_.classes]
        if not lost:
            return
        text = (
            f"class {lost[0]!r} ({len(lost)} such): its estimated size, {self.model_.sizes()[lost[0]]:.0f} ±"
            f" {self.model_.size_deviation():.0f}, does not stand out from its noise; raise epsilon or take more users"
        )
        if len(self.model_.classes) == 0:
            raise InfeasibleError(f"{text}; no class is left.")
        if self.small_classes == "refuse":
            raise InfeasibleError(f"{text}, or leave such classes out with small_classes='exclude'.")
        warnings.warn(f"excluded: {text}.", ExcludedClassWarning, stacklevel=3)

    def _numbered(self, targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The public classes and each label's number among them."""
        if targets.dtype.kind not in "biufUO":
            raise InvalidInputError(f"labels have type {targets.dtype}; give texts, numbers or truth values.")
        try:
            with np.errstate(invalid="ignore"):  # numbers that no integer equals are refused, not warned of
                check_classification_targets(targets)
            known = np.unique(targets if self.classes is None else np.asarray(list(self.classes)))
        except (TypeError, ValueError) as error:
            raise InvalidInputError(without_values(str(error))) from None
        if not all(_can_be_written(label) for label in known.tolist()):
            raise InvalidInputError("a class has a name that is not text in UTF-8; rename it.")
        if known.dtype.kind == "f" and not np.all(np.isfinite(known)):
            raise InvalidInputError("a declared class is NaN or infinite; declare finite numbers or texts.")
        if (targets.dtype.kind in "OSU") != (known.dtype.kind in "OSU"):
            raise InvalidInputError("labels and declared classes must both be texts or both be numbers.")
        strange = np.flatnonzero(~np.isin(targets, known))
        if len(strange):
            raise InvalidInputError(
                f"the label of row {int(strange[0])} is not among the declared classes ({len(strange)} such rows);"
                " declare its class or drop these rows."
            )
        if len(known) < 2:
            raise InvalidInputError(f"labels hold {len(known)} class; a classifier needs at least two.")
        if self.classes is None:
            warnings.warn(
                "classes were not declared (classes=, --classes): their set is read off the users' labels and"
                " published, which (epsilon, delta) does not cover.",
                UndeclaredClassesWarning,
                stacklevel=3,
            )
        return known, np.searchsorted(known, targets).astype(np.int64)

    @property
    def plan_(self) -> dict[Any, Plan]:
        """The plan of each released class; with joint labels the same for all."""
        check_is_fitted(self, "model_")
        plans = self.model_.plans * (len(self.classes_) if self.labels == "joint" else 1)
        return dict(zip(self.classes_.tolist(), plans, strict=True))

    def scores(self, X: Any) -> Floats:
        """One score for each query y (rows) and class (columns): K̃_c(y), or K̃_c(y) − ½‖μ_c‖² with `rule="mean"`.

        The second ranks classes by the distance of y to their means in feature space.
        """
        check_is_fitted(self, "model_")
        return self.model_.ranked(self.model_.densities(self._rows(X, reset=False)), self.rule)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of the highest score; ties go to the first class."""
        best = np.argmax(self.scores(X), axis=1)
        return np.asarray(self.classes_[best])

    def decode(
        self, vocabulary: Any, words: Sequence[str], k: int = 3, *, contrast: bool = False
    ) -> dict[Any, list[str]]:
        """The k vocabulary terms that each class's density ranks highest, best first."""
        check_is_fitted(self, "model_")
        rows = self._rows(vocabulary, reset=False)
        best = decode_classes(self.model_.feature_sums(), rows, words, k=k, contrast=contrast)
        return {label: [term.word for term in terms] for label, terms in zip(self.classes_.tolist(), best, strict=True)}

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A fitted classifier from a file that `save` wrote."""
        model = DensityModel.load(path)
        if not model.labels:
            raise InvalidInputError(f"{str(path)!r} holds a density without classes; load it with PrivateKDE.")
        restored = cls()._restore(model)
        restored.classes_ = np.array(model.classes)
        response = model.label_response()
        if response is not None:
            restored.label_epsilon = response.label_epsilon
        restored.reported_counts_ = _rounded_sizes(model)
        return restored


def _can_be_written(label: Label) -> bool:
    """Whether a label is not half a surrogate pair, which no document can hold."""
    return not isinstance(label, str) or label == label.encode("utf-8", "ignore").decode("utf-8")


def _rounded_sizes(model: DensityModel) -> dict[Label, int]:
    return {label: round(size) for label, size in model.sizes().items()}
