"""What all estimators share: parameters become the terms of a collection, users become a published model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted, validate_data

from accounting import Contract, InvalidInputError, Plan
from accounting.kernels import KERNELS, kernel_named
from accounting.mechanisms import BITSUMS
from accounting.request import PlanRequest
from privkde.display.progress import Tracker
from privkde.draws.randomness import ByteStream
from privkde.engines import Collector, ThroughFiles
from privkde.engines.local import LocalEngine
from privkde.engines.users import Users
from privkde.learning.model_card import ModelCard
from privkde.protocol.inputs import Rows, require_all
from privkde.protocol.model import DensityModel, require_feature_names
from privkde.protocol.rounds import Collection, Terms
from privkde.storage.datasets import StoredRows
from privkde.storage.user_blocks import Index

if TYPE_CHECKING:
    from privkde.ledger import Account

NO_LABELS = "no_validation"
"""How scikit-learn is asked not to validate labels."""
NO_EPSILON = (
    "epsilon=None: nothing is promised yet. Choose the ε of everything that is published about a person: whatever"
    " others conclude from it, its odds change by at most a factor e^ε. 1 is a usual choice, 0.1 is strict, beyond 10"
    " a promise means little; `privkde plan` shows what each of them costs."
)
OF_LABELS = {"classes", "label_epsilon"}
"""Parameters that a request has as well, where they mean the same for other kinds of values, or for all classes."""
NOT_PRIVATE = {
    "sample_weight": "a person with a large weight would count for more than the noise hides",
    "monitor": "it would see the data",
}
"""Arguments that scikit-learn's estimators take and these refuse, and why."""


@dataclass(repr=False, eq=False)
class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """The fields are the parameters in scikit-learn's sense: kept as they are given, and checked by `fit`."""

    kernel: str = "gaussian"
    bitsum: str = "rr"
    _: KW_ONLY
    epsilon: float | None = None
    delta: float = 1e-6
    repetitions: int | None = None
    accountant: str = "auto"
    min_users: int | None = None
    dropout: float = 0.0
    colluders: float = 0.0
    insecure_seed: int | None = None
    bandwidth: float = 1.0
    projection: int | None = None
    bias: float | None = None
    bound: float | None = None
    radius: float | None = None
    noise_shape: int | None = None
    excess_error: float | None = None
    allow_useless: bool = False
    outside: str = "reject"
    path: str = "aggregated"
    public_seed: str | None = None
    engine: Collector | None = None
    verbose: bool = False

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """A fit that fails leaves the estimator as it was, including the model of an earlier fit."""
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _require_promise(self, plan: Plan | None) -> None:
        """Refuse a plan, if there is one, that promises something else than was asked of this estimator."""
        if plan is None:
            return
        defaults = {field.name: field.default for field in fields(self)}
        for name in ("epsilon", "delta"):
            asked, planned = getattr(self, name), getattr(plan.request, name)
            if asked not in (planned, defaults[name]):
                raise InvalidInputError(
                    f"{name}={asked!r} and a plan for {name}={planned:g}; leave one out, or plan for that {name}."
                )

    def _request(self, dim: int, plan: Plan | None = None) -> dict[str, Any]:
        """The fields of `PlanRequest` that this estimator has, those of a given plan first, and the dimension.

        The inner product has one repetition, whatever `repetitions` says.
        """
        if self.epsilon is None and plan is None:
            raise InvalidInputError(NO_EPSILON)
        shared = {field.name for field in fields(self)} & {field.name for field in fields(PlanRequest)} - OF_LABELS
        request = {name: getattr(self if plan is None else plan.request, name) for name in shared} | {"dim": dim}
        kernel = KERNELS.get(request["kernel"])  # an unknown kernel is refused by the plan
        return request if kernel is None or kernel.takes_repetitions else request | {"repetitions": None}

    def _terms(self, request: dict[str, Any], randomness: ByteStream, **further: Any) -> Terms:
        return Terms(
            request=request,
            bandwidth=self.bandwidth,
            projection=self.projection,
            public_seed=randomness.public_seed() if self.public_seed is None else self.public_seed,
            **further,
        )

    def _run(
        self,
        collection: Collection,
        rows: Rows,
        groups: Sequence[Index],
        randomness: ByteStream,
        *,
        tracker: Tracker,
        plan: Plan | None = None,
        classes: NDArray[np.int64] | None = None,
        budget: Account | None = None,
    ) -> None:
        """From enrolled users to the published model. Bad rows are refused before anything is planned.

        A budget is charged before anybody answers.
        """
        names = tuple(str(name) for name in getattr(self, "feature_names_in_", ()))
        require_feature_names(names, self.n_features_in_)  # a file must be able to hold them
        if budget is not None:
            budget.require_private(randomness.secret)
        asked = self if plan is None else plan.request
        longest = kernel_named(asked.kernel).largest_norm(asked.radius, self.bandwidth)
        require_all(rows, rows.shape[1], longest=longest, outside=self.outside)
        announcements = collection.fix_plan(plan, progress=tracker.step)
        collector: Collector = self.engine or LocalEngine()
        if budget is not None:
            folder = None
            if isinstance(collector, ThroughFiles) and collection.label_use is None:
                budget.require_enough(collection)  # before the folder is made
                folder = collector.begun(announcements[0], self.path)
            budget.begin(collection, folder=folder)
            if isinstance(collector, ThroughFiles) and folder is not None:
                collector = collector.charged(folder)
        for position, (announcement, number) in enumerate(zip(announcements, collection.released, strict=True)):
            index = groups[number]
            users = Users(announcement=announcement, rows=rows, index=index, classes=classes, outside=self.outside)
            analyzer = collector.play(
                users,
                stream=randomness.child("group", number),
                path=self.path,
                progress=tracker.bar(f"collecting {announcement.group}".rstrip(), len(index)),
            )
            collection.count(position, analyzer)
        published = collection.publish(private=randomness.secret, budget=budget)
        self.model_ = replace(published, feature_names=names)

    def _rows(self, x: Any, y: Any = NO_LABELS, *, reset: bool) -> Any:
        """Data validated by scikit-learn's rules, with our errors. Files are checked later, block by block."""
        if isinstance(x, StoredRows):
            if reset:
                self.n_features_in_ = x.shape[1]
                self.__dict__.pop("feature_names_in_", None)
            if y is NO_LABELS:
                return x
            if np.shape(y) != x.shape[:1]:
                raise InvalidInputError(f"labels of shape {np.shape(y)} for {x.shape[0]} rows; give one for each row.")
            return x, np.asarray(y)
        if type(x).__name__ == "LazyFrame":
            raise InvalidInputError("vectors are a LazyFrame, which holds no data yet; collect() it first.")
        if issparse(x):
            raise InvalidInputError(
                "vectors are sparse: every user sends as many messages whatever its entries, so that zeros stay"
                " private; give a dense array (X.toarray()) of fewer dimensions."
            )
        options: dict[str, Any] = {"dtype": [np.float32, np.float64], "ensure_all_finite": False, "reset": reset}
        try:
            return validate_data(self, x, y=y, **options, **({"ensure_min_samples": 2} if reset else {}))
        except TypeError as error:  # scikit-learn asks for this kind
            raise TypeError(without_values(str(error))) from None
        except ValueError as error:
            raise InvalidInputError(without_values(str(error))) from None
        except OverflowError:
            raise InvalidInputError("a number in the vectors is too large for a float; give finite numbers.") from None

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

    def _card(self) -> ModelCard:
        check_is_fitted(self, "model_")
        return ModelCard.of(self.model_)

    def summary(self) -> str:
        """What was promised, in one sentence, and then what was published, in about ten lines."""
        return str(self._card())

    def _repr_html_(self) -> str:
        """In a notebook: the summary, once there is something to sum up."""
        return self._card().html() if hasattr(self, "model_") else str(estimator_html_repr(self))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def save(self, path: str | Path) -> None:
        """Write the published model, whole or not at all."""
        check_is_fitted(self, "model_")
        self.model_.save(path)

    def _restore(self, model: DensityModel) -> Self:
        """Take over a published model and the parameters of its plan's request."""
        first = model.announcements[0]
        request = first.plan.request.to_json()
        known = {name: request[name] for name in self.get_params() if name in request and name not in OF_LABELS}
        if not BITSUMS[first.plan.bitsum].takes_noise_shape:
            known["noise_shape"] = None  # documents say 1
        self.set_params(**known, bandwidth=first.bandwidth, projection=first.projection, public_seed=first.public_seed)
        self.n_features_in_ = model.dim
        if model.feature_names:
            self.feature_names_in_ = np.array(model.feature_names, dtype=object)
        self.model_ = model
        return self


def refuse_further(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of `fit` that would not be private, with the reason, and all others as Python does."""
    for name in arguments:
        if name not in NOT_PRIVATE:
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
        if arguments[name] is not None:
            raise InvalidInputError(f"{name} was given to fit: {NOT_PRIVATE[name]}; leave it out.")


def require_dimension(plan: Plan | None, dim: int) -> None:
    """Refuse a plan, if there is one, for vectors of another length."""
    if plan is not None and plan.request.dim != dim:
        raise InvalidInputError(
            f"vectors have {dim} entries and the plan is for {plan.request.dim}; make a plan for these vectors."
        )


def without_values(complaint: str) -> str:
    """Scikit-learn's complaint about data without the data that it quotes, which begin a line or end the first line."""
    if "could not convert" in complaint:
        return "vectors hold text that is not a number; encode it first."
    first, *others = complaint.splitlines()
    return " ".join([first, *(line for line in others if line.startswith("Reshape"))])
