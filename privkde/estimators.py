"""`PrivateKDE` and `PrivateKDEClassifier`: the whole protocol behind scikit-learn's conventions.

`fit` simulates all users of a collection in this process: enrollment, plan, randomizers, shuffler, analyzer,
publication. What is kept is only what is published.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from accounting import Contract, InfeasibleError, InvalidInputError, Plan
from accounting.errors import require_choice
from accounting.request import LABELS
from privkde.blocks import Index
from privkde.columns import ColumnRows
from privkde.datasets import StoredRows
from privkde.decoding import decode_classes
from privkde.engines import Collector, local
from privkde.engines.users import Users
from privkde.inputs import Rows, require_all
from privkde.kernels import needs_unit_norm
from privkde.labels import randomize_labels
from privkde.model import RULES, DensityModel, Floats, Label
from privkde.progress import Tracker, tracked
from privkde.randomness import PrivateRandomness, private_randomness
from privkde.rounds import Collection, ExcludedClassWarning, Terms

NO_LABELS = "no_validation"
"""How scikit-learn is told that there is nothing to validate."""
_ASKED = (
    "kernel", "bitsum", "epsilon", "delta", "repetitions", "accountant", "min_users", "bias", "noise_shape",
    "excess_error", "allow_useless", "bound",
)  # fmt: skip


class _PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: parameters to terms, users to a published model."""

    model_: DensityModel

    def __init__(
        self,
        kernel: str = "gaussian",
        bitsum: str = "rr",
        *,
        epsilon: float = 2.0,
        delta: float = 1e-6,
        repetitions: int | None = 768,
        accountant: str = "auto",
        min_users: int | None = None,
        insecure_seed: int | None = None,
        bandwidth: float = 1.0,
        projection: int | None = None,
        bias: float | None = None,
        bound: float | None = None,
        noise_shape: int = 1,
        excess_error: float | None = None,
        allow_useless: bool = False,
        outside: str = "reject",
        path: str = "aggregated",
        public_seed: str | None = None,
        engine: Collector | None = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.bitsum = bitsum
        self.epsilon = epsilon
        self.delta = delta
        self.repetitions = repetitions
        self.accountant = accountant
        self.min_users = min_users
        self.insecure_seed = insecure_seed
        self.bandwidth = bandwidth
        self.projection = projection
        self.bias = bias
        self.bound = bound
        self.noise_shape = noise_shape
        self.excess_error = excess_error
        self.allow_useless = allow_useless
        self.outside = outside
        self.path = path
        self.public_seed = public_seed
        self.engine = engine
        self.verbose = verbose

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A fit that fails leaves the estimator as it was, the model of an earlier fit included."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _request(self, dim: int) -> dict[str, Any]:
        """The names of `PlanRequest`, without users; identity features have one repetition whatever is asked."""
        request = {name: getattr(self, name) for name in _ASKED} | {"dim": dim}
        if getattr(self, "labels", None) == "joint":
            request["labels"] = "joint"
        if self.kernel == "inner-product":
            request["repetitions"] = None
        return request

    def _terms(self, dim: int, randomness: PrivateRandomness, **labels: Any) -> Terms:
        return Terms(
            request=self._request(dim),
            bandwidth=self.bandwidth,
            projection=self.projection,
            public_seed=randomness.public_seed() if self.public_seed is None else self.public_seed,
            **labels,
        )

    def _run(
        self,
        collection: Collection,
        rows: Rows,
        groups: Sequence[Index],
        randomness: PrivateRandomness,
        *,
        tracker: Tracker,
        plan: Plan | None = None,
        classes: NDArray[np.int64] | None = None,
    ) -> None:
        """From enrolled users to the published model; bad rows are found before anything is planned."""
        kernel = self.kernel if plan is None else plan.request.kernel
        require_all(rows, self.n_features_in_, unit_norm=needs_unit_norm(kernel), outside=self.outside)
        announcements = collection.fix_plan(plan, progress=tracker.step)
        run: Collector = self.engine or local
        for position, (announcement, number) in enumerate(zip(announcements, collection.released, strict=True)):
            index = groups[number]
            users = Users(announcement=announcement, rows=rows, index=index, classes=classes, outside=self.outside)
            analyzer = run.play(
                users,
                stream=randomness.stream.child("group", number),
                path=self.path,
                progress=tracker.bar(f"collecting {announcement.group}".rstrip(), len(index)),
            )
            collection.count(position, analyzer)
        self.model_ = collection.publish(private=randomness.secret)

    def _rows(self, x: Any, y: Any = NO_LABELS, *, reset: bool) -> Any:
        """Validated data by scikit-learn's rules, with our errors; files are checked block by block instead."""
        if isinstance(x, StoredRows | ColumnRows):
            if reset:
                self.n_features_in_ = x.shape[1]
                self.__dict__.pop("feature_names_in_", None)
            if y is NO_LABELS:
                return x
            if np.shape(y) != x.shape[:1]:
                raise InvalidInputError(f"labels of shape {np.shape(y)} were given; one for each of {x.shape[0]} rows.")
            return x, np.asarray(y)
        options: dict[str, Any] = {"dtype": [np.float32, np.float64], "ensure_all_finite": False, "reset": reset}
        try:
            return validate_data(self, x, y=y, **options, **({"ensure_min_samples": 2} if reset else {}))
        except ValueError as error:
            raise InvalidInputError(_without_values(str(error))) from None

    def __sklearn_tags__(self) -> Any:
        """Fits differ from each other unless they are seeded."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.insecure_seed is None
        return tags

    @property
    def contract_(self) -> Contract:
        """The contract of everything that was published."""
        check_is_fitted(self, "model_")
        return self.model_.contract

    def save(self, path: str | Path) -> None:
        """Write the published model, whole or not at all."""
        check_is_fitted(self, "model_")
        self.model_.save(path)

    def _restore(self, model: DensityModel) -> Self:
        """Take over a published model and the parameters that its plan was asked with."""
        first = model.announcements[0]
        asked = first.plan.request.to_json()
        skipped = ("classes", "label_epsilon")  # a plan for one class, or for joint labels, has none to tell
        known = {name: asked[name] for name in self.get_params() if name in asked and name not in skipped}
        self.set_params(**known, bandwidth=first.bandwidth, projection=first.projection, public_seed=first.public_seed)
        self.n_features_in_ = first.plan.request.dim
        self.model_ = model
        return self


def _without_values(complaint: str) -> str:
    """Scikit-learn's complaint about data without the data that it quotes, which begin a line or end the first one."""
    if "could not convert" in complaint:
        return "vectors hold text that is no number; encode it first."
    first, *others = complaint.splitlines()
    return " ".join([first, *(line for line in others if line.startswith("Reshape"))])


class PrivateKDE(_PrivateEstimator):
    """A kernel density function of n users' vectors under shuffled differential privacy (the paper's Algorithm 1).

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(500, 3))
    >>> kde = PrivateKDE(repetitions=16, epsilon=4.0, insecure_seed=1).fit(x)
    >>> kde.density(np.zeros((2, 3))).shape
    (2,)
    >>> print(str(kde.contract_).splitlines()[0])
    NOT PRIVATE (seeded randomness): gaussian KDE from 16 bitsum instances, 16 of them touched by one user
    """

    def fit(self, X: Any, y: Any = None, *, plan: Plan | None = None) -> Self:
        """Collect from one user per row and publish.

        A `plan` made before decides instead of the parameters that it was asked with; it must fit the data and
        keep what it promises (`Plan.verify`).
        """
        if plan is not None:
            plan.verify()
        with self._all_or_nothing(), tracked(self.verbose) as tracker:
            rows = self._rows(X, reset=True)
            if plan is not None and plan.request.dim != self.n_features_in_:
                raise InvalidInputError(
                    f"vectors have {self.n_features_in_} entries and the plan is for {plan.request.dim}; plan anew."
                )
            randomness = private_randomness(self.insecure_seed)
            collection = Collection(self._terms(self.n_features_in_, randomness))
            collection.enroll(rows.shape[0])
            self._run(collection, rows, [np.arange(rows.shape[0])], randomness, tracker=tracker, plan=plan)
        return self

    @property
    def plan_(self) -> Plan:
        """The plan that the noise came from."""
        check_is_fitted(self, "model_")
        return self.model_.plans[0]

    def density(self, X: Any) -> Floats:
        """K̃(y) for every row y of `X`; any number of queries at no further cost of privacy."""
        check_is_fitted(self, "model_")
        return self.model_.densities(self._rows(X, reset=False))[:, 0]

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A fitted estimator from a file that `save` wrote."""
        model = DensityModel.load(path)
        if model.labels:
            raise InvalidInputError(f"{str(path)!r} holds a classifier; load it with PrivateKDEClassifier.")
        return cls()._restore(model)


class PrivateKDEClassifier(ClassifierMixin, _PrivateEstimator):  # type: ignore[misc]
    """One private density per class, prediction by the highest density (the paper's section 3.3).

    With `labels="separate"` each user first reports its label by randomized response with `label_epsilon`, then takes
    part in the density of the class that it reported. With `labels="joint"` there is one collection, in which
    (epsilon, delta) protects features and label together; `label_epsilon` has no effect. The set of classes is public;
    give it as `classes` if the data may lack one. `reported_counts_` are the users that reported each class or, with
    joint labels, estimates of their number, which may be off by the noise.
    """

    def __init__(
        self,
        kernel: str = "gaussian",
        bitsum: str = "rr",
        *,
        epsilon: float = 2.0,
        delta: float = 1e-6,
        repetitions: int | None = 768,
        accountant: str = "auto",
        min_users: int | None = None,
        insecure_seed: int | None = None,
        label_epsilon: float = 5.0,
        labels: str = "separate",
        classes: Sequence[Label] | None = None,
        rule: str = "density",
        small_classes: str = "refuse",
        bandwidth: float = 1.0,
        projection: int | None = None,
        bias: float | None = None,
        bound: float | None = None,
        noise_shape: int = 1,
        excess_error: float | None = None,
        allow_useless: bool = False,
        outside: str = "reject",
        path: str = "aggregated",
        public_seed: str | None = None,
        engine: Collector | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            kernel,
            bitsum,
            epsilon=epsilon,
            delta=delta,
            repetitions=repetitions,
            accountant=accountant,
            min_users=min_users,
            insecure_seed=insecure_seed,
            bandwidth=bandwidth,
            projection=projection,
            bias=bias,
            bound=bound,
            noise_shape=noise_shape,
            excess_error=excess_error,
            allow_useless=allow_useless,
            outside=outside,
            path=path,
            public_seed=public_seed,
            engine=engine,
            verbose=verbose,
        )
        self.label_epsilon = label_epsilon
        self.labels = labels
        self.classes = classes
        self.rule = rule
        self.small_classes = small_classes

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Label round, one plan and one collection for each reported class, publication; or one joint collection."""
        require_choice("labels", self.labels, LABELS)
        require_choice("rule", self.rule, RULES)
        with self._all_or_nothing(), tracked(self.verbose) as tracker:
            rows, targets = self._rows(X, y, reset=True)
            known, numbers = self._numbered(targets)
            randomness = private_randomness(self.insecure_seed)
            joint = self.labels == "joint"
            terms = self._terms(
                self.n_features_in_,
                randomness,
                labels=tuple(known.tolist()),
                label_epsilon=None if joint else self.label_epsilon,
                small_classes=self.small_classes,
            )
            collection = Collection(terms)
            if joint:
                collection.enroll(len(numbers))
                everybody = [np.arange(len(numbers))]
                self._run(collection, rows, everybody, randomness, tracker=tracker, classes=numbers)
                self._refuse_or_warn()
                self.reported_counts_ = {label: round(size) for label, size in self.model_.sizes().items()}
            else:
                reported = randomize_labels(numbers, terms.label_response(), stream=randomness.stream.child("labels"))
                collection.enroll_labels(reported)
                groups = [np.flatnonzero(reported == number) for number in range(len(known))]
                self._run(collection, rows, groups, randomness, tracker=tracker)
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
        try:
            check_classification_targets(targets)
        except ValueError as error:
            raise InvalidInputError(str(error)) from error
        found = np.unique(targets)
        known = found if self.classes is None else np.unique(np.asarray(list(self.classes)))
        if (found.dtype.kind in "OSU") != (known.dtype.kind in "OSU"):
            raise InvalidInputError("labels and declared classes must both be texts or both be numbers.")
        strange = np.flatnonzero(~np.isin(targets, known))
        if len(strange):
            raise InvalidInputError(
                f"the label of row {int(strange[0])} is not among the declared classes ({len(strange)} such rows);"
                " declare its class or drop these rows."
            )
        if len(known) < 2:
            raise InvalidInputError(f"labels hold {len(known)} class; a classifier needs at least two classes.")
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
        found = decode_classes(self.model_.feature_sums(), rows, words, k=k, contrast=contrast)
        return {
            label: [term.word for term in terms] for label, terms in zip(self.classes_.tolist(), found, strict=True)
        }

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A fitted classifier from a file that `save` wrote."""
        model = DensityModel.load(path)
        if not model.labels:
            raise InvalidInputError(f"{str(path)!r} holds a density without classes; load it with PrivateKDE.")
        restored = cls()._restore(model)
        restored.classes_ = np.array(model.classes)
        label = model.label_response()
        if label is not None:
            restored.label_epsilon = label.label_epsilon
        restored.reported_counts_ = {label: round(size) for label, size in model.sizes().items()}
        return restored
