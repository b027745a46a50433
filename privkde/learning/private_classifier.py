"""`PrivateClassifier`: features and label of every user in one collection, and the best classifier that it allows."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.special import softmax
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from accounting import InfeasibleError, InvalidInputError, Plan, PlanRequest, PrivkdeError
from accounting.classifier_model import DENSITY, TELLING_DEVIATIONS
from accounting.registry import AUTO
from accounting.request import JOINT
from privkde.display.progress import tracked
from privkde.draws.randomness import private_randomness
from privkde.learning.labeled_estimator import LabeledEstimator
from privkde.learning.model_card import SHOWN_CLASSES
from privkde.learning.private_estimator import refuse_further, require_dimension
from privkde.learning.ranking import Ranking
from privkde.protocol.basis import on_basis, orthonormal
from privkde.protocol.linear_rule import LinearRule
from privkde.protocol.model import DensityModel, Floats
from privkde.protocol.rounds import Collection, ExcludedClassWarning

if TYPE_CHECKING:
    from privkde.ledger import Account


SHORT = 0.5
"""Vectors of norms below this waste most of the signal: noise is as large as for norm 1."""


class WeakSignalWarning(UserWarning):
    """Class means lie closer together than their noise."""


class FaintClassesWarning(UserWarning):
    """Classes can be predicted although their estimated size does not stand out from its noise."""


def _tells_probabilities(classifier: PrivateClassifier) -> bool:
    """Whether scores are log odds: those of a linear rule, once fitted or as the parameters say."""
    ranking = getattr(classifier, "ranking_", None)
    return classifier._collects_records() if ranking is None else ranking.linear is not None


@dataclass(repr=False, eq=False, kw_only=True)
class PrivateClassifier(LabeledEstimator):
    """A classifier from one collection, in which (epsilon, delta) protects features and label of a user together.

    Without further words it collects class sums, class sizes and second moments of vectors in the unit ball, and
    predicts by a linear discriminant that knows how large its noise is. Scale vectors to norm at most 1 first.

    Parameters
    ----------
    epsilon : float
        ε of everything that is published about a person: features and label. It has no default: `fit` refuses to
        invent one.
    model : {"auto", "discriminant", "mean", "density"}, default "auto"
        How classes are ranked. "auto" is the discriminant, or the mean where second moments take too many messages or
        drown in noise. Where no whole record is rotated (another kernel, delta = 0, another accountant), it is the mean
        for "inner-product" and the density for other kernels. `summary` says why.
    classes : sequence of str, int, float or bool, optional
        The public set of classes. Without it the set is read off the labels, with an `UndeclaredClassesWarning`: a
        class that only one user has is then published, and the contract says that nothing covers this.
    max_messages : float, optional
        Most messages of a user; 400,000 if left out.
    basis : array (d, r), optional
        Vectors are projected on these columns first, which lowers the noise, and the fewest messages that are possible
        to about r²/2 + mr for m classes; vectors are padded to at least 32,768 unless `max_messages` is lower. The
        columns must come from public data: they are published, and nothing protects whom they were computed from.
        They are made orthonormal.
    small_classes : {"refuse", "exclude"}, default "refuse"
        What to do with a class whose estimated size does not stand out from its noise, where classes are ranked by
        density and wherever no whole record is rotated (other kernels, delta = 0, other accountants). Elsewhere all
        classes can be predicted, and a `FaintClassesWarning` names such classes.
    delta : float, default 1e-6
        δ of the same promise; 0 needs `bitsum="pure"`.
    kernel : str, default "inner-product"
        Others ("gaussian", "laplacian", "exponential", "inner-product-signs") rank classes by their density.
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

    Attributes
    ----------
    classes_ : array
        The classes that can be predicted.
    class_sizes_ : dict
        Estimated users of each class, off by the noise that `summary` states; they need not add up to all users.
    model_ : DensityModel
        All that is published.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.arange(4000) % 2
    >>> x = np.random.default_rng(0).normal(size=(4000, 3)) / 10 + np.where(y, 0.3, -0.3)[:, None]
    >>> fitted = PrivateClassifier(epsilon=1.0, classes=[0, 1], max_messages=500, insecure_seed=1).fit(x, y)
    >>> fitted.predict([[-0.4, -0.4, -0.4], [0.4, 0.4, 0.4]])
    array([0, 1])
    """

    kernel: str = "inner-product"
    bitsum: str = "rr"
    model: str = AUTO
    max_messages: float | None = None
    basis: ArrayLike | None = None

    def fit(
        self, X: Any, y: ArrayLike, *, plan: Plan | None = None, budget: Account | None = None, **further: Any
    ) -> Self:
        """Collect from one user per row, features and label together, and publish.

        A `plan` that was made before replaces the parameters that a plan is made from; it must be for joint labels, fit
        the data and keep what it promises (`Plan.verify`). A `budget` (`Ledger.account`) is charged before anybody
        answers; without enough left, nothing is collected or published. `sample_weight` is refused: it would not be
        private.
        """
        refuse_further(further)
        if plan is not None and not plan.request.joint:
            raise InvalidInputError(
                "the plan is not for joint labels; plan with classes and labels='joint', or use PrivateKDEClassifier."
            )
        self._require_promise(plan)
        with self._all_or_nothing(), tracked(self.verbose) as tracker:
            rows, targets = self._rows(X, y, reset=True)
            basis = None if self.basis is None else orthonormal(self.basis, rows.shape[1])
            collected = on_basis(rows, basis)
            require_dimension(plan, collected.shape[1])
            request = self._request(collected.shape[1], plan) | {"labels": JOINT}
            known, numbers = self._numbered(targets)
            if plan is not None and plan.request.classes != len(known):
                raise InvalidInputError(
                    f"the plan is for {plan.request.classes} classes and there are {len(known)}; plan for that many."
                )
            randomness = private_randomness(self.insecure_seed)
            terms = self._terms(
                request,
                randomness,
                labels=tuple(known.tolist()),
                labels_declared=self.classes is not None,
                small_classes=self.small_classes,
                basis=basis,
            )
            collection = Collection(terms)
            collection.enroll(len(numbers))
            everybody = [np.arange(len(numbers))]
            self._run(
                collection,
                collected,
                everybody,
                randomness,
                tracker=tracker,
                plan=plan,
                classes=numbers,
                budget=budget,
            )
            self._publish(self.model_, known.dtype)
            self._refuse_or_warn()
        return self

    def _collects_records(self) -> bool:
        """Whether a fit with these parameters makes a linear rule, from records that are rotated as a whole."""
        named = {name: getattr(self, name) for name in ("kernel", "bitsum", "accountant", "delta", "model")}
        try:
            asked = PlanRequest(users=1_000, dim=2, classes=2, labels=JOINT, epsilon=self.epsilon or 1.0, **named)
        except PrivkdeError:
            return False
        return asked.model != DENSITY and asked.record is not None

    def _publish(self, model: DensityModel, kind: DTypeLike | None = None) -> None:
        """Keep a model, and what follows from it; `kind` is the type of labels, if they were seen."""
        self.model_ = model
        self.ranking_ = Ranking.of(model)
        self.classes_ = np.array(self.ranking_.classes, dtype=kind)
        self.class_sizes_ = model.sizes()

    def _refuse_or_warn(self) -> None:
        """Say which classes do not stand out from their noise, and whether the means do."""
        faint = [label for label in self.model_.labels if label not in self.model_.classes]
        linear = self.ranking_.linear
        if faint:
            self._tell_faint(faint, linear)
        if linear is not None and linear.signal < linear.noise:
            warnings.warn(weakness(linear, self.model_.n_users[0]), WeakSignalWarning, stacklevel=3)

    def _tell_faint(self, faint: list[Any], linear: LinearRule | None) -> None:
        least = TELLING_DEVIATIONS * self.model_.size_deviation()
        one = len(faint) == 1
        named = ", ".join(f"{label!r} ({max(0.0, self.class_sizes_[label]):.0f})" for label in faint[:SHOWN_CLASSES])
        text = (
            f"{'a class does' if one else 'classes do'} not stand out from the noise of {'its' if one else 'their'}"
            f" size, which takes {least:.0f} users: {named}"
            f"{', …' if len(faint) > SHOWN_CLASSES else ''} ({len(faint)} of {len(self.model_.labels)}); raise epsilon"
            " or take more users"
        )
        if linear is not None:
            warnings.warn(
                f"{text}, or do not rely on predictions of {'it' if one else 'them'}.",
                FaintClassesWarning,
                stacklevel=4,
            )
        elif not self.model_.classes:
            raise InfeasibleError(f"{text}; no class is left. Users have answered: this collection is spent.")
        elif self.small_classes == "refuse":
            raise InfeasibleError(
                f"{text}, or leave such classes out with small_classes='exclude'. Users have answered: this collection"
                " is spent."
            )
        else:
            warnings.warn(f"excluded: {text}.", ExcludedClassWarning, stacklevel=4)

    @property
    def plan_(self) -> Plan:
        """The plan of the collection."""
        check_is_fitted(self, "model_")
        return self.model_.plans[0]

    def _ranking(self) -> Ranking:
        return self.ranking_

    @available_if(_tells_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Probability of each class (columns, as in `classes_`) for every query: the softmax of its scores.

        They are posterior probabilities if classes are normal with one covariance and sums had no noise. Data are not
        like that, so take them for an order, not for frequencies: they are not calibrated. Not there for densities.
        """
        return np.asarray(softmax(self.scores(X), axis=1))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A fitted classifier from a file that `save` wrote: it predicts and promises the same.

        Its parameters are those of the plan: what "auto" chose is named. What a published model does not hold is at
        its default again: `outside`, `small_classes`, `path`, `engine`, `insecure_seed`, `verbose`. Set them before
        you fit it again.
        """
        model = DensityModel.load(path)
        if not model.plans[0].request.joint:
            other = "PrivateKDEClassifier" if model.labels else "PrivateKDE"
            raise InvalidInputError(f"{str(path)!r} holds no joint labels; load it with {other}.")
        restored = cls(basis=model.basis)._restore(model)
        if model.plans[0].request.record is not None:
            restored.bound = None  # it follows from the vector, which another number of users may change
        restored.classes = model.labels if model.classes_declared else None
        restored._publish(model)
        return restored


def weakness(linear: LinearRule, n_users: int) -> str:
    """What to do where class means drown: their squared noise falls with the square of the number of users."""
    text = (
        f"class means are {math.sqrt(linear.signal):.2g} from their center and their noise is"
        f" {math.sqrt(linear.noise):.2g}"
    )
    if linear.squared_norm[1] < SHORT**2:
        length = math.sqrt(max(0.0, linear.squared_norm[1]))
        return f"{text}: vectors are short, with norms of at most about {length:.2g}; scale them towards norm 1."
    if not linear.sure:
        return f"{text}: nothing can be told of the classes but their sizes; raise epsilon or take many more users."
    needed = math.ceil(n_users * math.sqrt(linear.noise / linear.signal))
    return (
        f"{text}: predictions could be better; with about {needed:,} users both would be equal. Take more than that,"
        " or a larger epsilon."
    )
