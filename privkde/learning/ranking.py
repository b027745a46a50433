"""How a published model ranks classes: by the linear rule of its plan, or by densities."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

from accounting import InfeasibleError, InvalidInputError
from accounting.errors import require_choice
from privkde.protocol.inputs import Rows
from privkde.protocol.linear_rule import LinearRule
from privkde.protocol.model import RULES, DensityModel, Floats, Label, query_blocks
from privkde.storage.user_blocks import Progress, rows_per_block


class QueryScaleWarning(UserWarning):
    """Queries are much shorter or longer than the vectors that a model was made from."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranking:
    """Scores of queries for each class of a model. Making it does what has to be done once for all queries."""

    model: DensityModel
    classes: tuple[Label, ...]
    """In the order of the columns of scores: all labels with a linear rule, else those that have a density."""
    rule: str
    """One of `accounting.classifier_model.MODELS`."""
    linear: LinearRule | None

    @staticmethod
    def of(model: DensityModel, rule: str | None = None) -> Ranking:
        """By the model's own rule or, where classes are ranked by densities, by another of `RULES`."""
        linear = model.linear_rule()
        if rule is not None and linear is not None:
            raise InvalidInputError(f"rule={rule!r} for a model that is ranked by {model.ranked_by}; leave it out.")
        if rule is not None:
            require_choice("rule", rule, RULES)
        classes = model.classes if linear is None else model.labels
        return Ranking(model=model, classes=classes, rule=rule or model.ranked_by, linear=linear)

    def scores(self, y: Rows, *, progress: Progress | None = None) -> Floats:
        """One row for each query and one column for each class, the best class having the highest."""
        if not self.classes:
            raise InfeasibleError("no class stands out from its noise, so none can be predicted; raise epsilon.")
        if self.linear is None:
            return self.model.ranked(self.model.densities(y, progress=progress), self.rule)
        family, rows = self.model.announcements[0].family(), rows_per_block(self.model.dim)
        scores, squares = [np.zeros((0, len(self.classes)))], 0.0
        for _, block in query_blocks(family, y, self.model.basis, rows=rows, progress=progress):
            scores.append(self.linear.scores(block))
            squares += float(np.sum(np.square(block, dtype=np.float64)))
        if y.shape[0]:
            self._warn_of_scale(squares / y.shape[0], self.linear.squared_norm)
        return np.concatenate(scores)

    def _warn_of_scale(self, queries: float, users: tuple[float, float]) -> None:
        """Scores are for queries of the users' scale; a factor of two in norms is taken for a mistake."""
        low, high = users
        if not low <= 4.0 * queries or not queries <= 4.0 * high:
            warnings.warn(
                f"queries, brought into the unit ball, have a norm of about {math.sqrt(queries):.2g} and users' vectors"
                f" had {math.sqrt(max(0.0, low + high) / 2.0):.2g}; scale queries as users' vectors were scaled.",
                QueryScaleWarning,
                stacklevel=4,
            )
