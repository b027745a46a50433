"""What classifiers share: public classes, scores, predictions and words for each class."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from accounting import InvalidInputError
from privkde.learning.decoding import decode_classes
from privkde.learning.model_card import ModelCard
from privkde.learning.private_estimator import PrivateEstimator, without_values
from privkde.learning.ranking import Ranking
from privkde.protocol.model import Floats, Label
from privkde.storage.arrays import has_characters_only


class UndeclaredClassesWarning(UserWarning):
    """The set of classes was read off private labels, and is published."""


@dataclass(repr=False, eq=False, kw_only=True)
class LabeledEstimator(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier whose set of classes is public."""

    classes: Sequence[Label] | None = None
    small_classes: str = "refuse"

    def _numbered(self, targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The public classes and each label's number among them."""
        if targets.dtype.kind not in "biufUO":
            raise InvalidInputError(f"labels have type {targets.dtype}; give texts, numbers or truth values.")
        if not has_characters_only(targets):
            raise InvalidInputError("labels hold characters that do not exist; read them again.")
        if isinstance(self.classes, int | np.integer):
            raise InvalidInputError(
                f"classes={self.classes} is a number; give the classes, for instance range({self.classes})."
            )
        try:
            with np.errstate(invalid="ignore"):  # numbers that no integer equals are refused, not warned of
                check_classification_targets(targets)
            known = np.unique(targets if self.classes is None else np.asarray(list(self.classes)))
        except (TypeError, ValueError, SystemError) as error:  # the last from characters that do not exist
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

    def _ranking(self) -> Ranking:
        """How the published model ranks classes."""
        raise NotImplementedError

    def _card(self) -> ModelCard:
        check_is_fitted(self, "model_")
        ranking = self._ranking()
        return ModelCard.of(self.model_, ranking.rule, ranking.linear)

    def scores(self, X: Any) -> Floats:
        """One score for each query (rows) and class (columns, as in `classes_`)."""
        check_is_fitted(self, "model_")
        return self._ranking().scores(self._rows(X, reset=False))

    def decision_function(self, X: Any) -> Floats:
        """The scores; for two classes, as scikit-learn has it, the second's less the first's."""
        scores = self.scores(X)
        return scores if scores.shape[1] != 2 else np.asarray(scores[:, 1] - scores[:, 0])

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of the highest score; ties go to the first class."""
        best = np.argmax(self.scores(X), axis=1)
        return np.asarray(self.classes_[best])

    def decode(
        self, vocabulary: Any, words: Sequence[str], k: int = 3, *, contrast: bool = False
    ) -> dict[Any, list[str]]:
        """The k vocabulary terms that each class's density ranks highest, best first.

        Classes whose estimated size does not stand out from its noise have no density and no terms.
        """
        check_is_fitted(self, "model_")
        rows = self._rows(vocabulary, reset=False)
        best = decode_classes(self.model_.feature_sums(), rows, words, k=k, contrast=contrast)
        return {label: [term.word for term in terms] for label, terms in zip(self.model_.classes, best, strict=True)}


def _can_be_written(label: Label) -> bool:
    """Whether a label is not half a surrogate pair, which no document can hold."""
    return not isinstance(label, str) or label == label.encode("utf-8", "ignore").decode("utf-8")
