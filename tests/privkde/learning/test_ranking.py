"""Which rule ranks the classes of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from accounting import InfeasibleError, InvalidInputError
from privkde import PrivateClassifier, PrivateKDEClassifier
from privkde.learning.ranking import QueryScaleWarning, Ranking
from tests.privkde.unplanned import little_noise

X = np.random.default_rng(4).normal(size=(300, 3)) / 9.0 + 0.3 * np.sign(np.arange(300) % 2 - 0.5)[:, None]
Y = np.arange(300) % 2
ASKED: dict[str, Any] = {"epsilon": 20.0, "classes": (0, 1), "insecure_seed": 1}


@pytest.fixture(autouse=True, scope="module")
def no_plans() -> Iterator[None]:
    with little_noise():
        yield


def test_a_linear_model_has_its_own_rule() -> None:
    model = PrivateClassifier(**ASKED, max_messages=200).fit(X, Y).model_
    ranking, linear = Ranking.of(model), model.linear_rule()
    assert linear is not None
    assert (ranking.rule, ranking.classes) == ("discriminant", (0, 1))
    done: list[int] = []
    np.testing.assert_allclose(ranking.scores(X, progress=done.append), linear.scores(X), atol=1e-5)
    assert sum(done) == 300
    assert ranking.scores(X[:0]).shape == (0, 2)
    with pytest.raises(InvalidInputError, match="rule='mean' for a model that is ranked by discriminant"):
        Ranking.of(model, "mean")
    with pytest.raises(InvalidInputError, match="the model is for"):
        ranking.scores(X[:, :2])


def test_queries_outside_the_domain_are_projected() -> None:
    ranking = Ranking.of(PrivateClassifier(**ASKED, max_messages=200).fit(X, Y).model_)
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(ranking.scores(5.0 * units), ranking.scores(units), atol=1e-4)


def test_queries_of_another_scale_are_warned_of() -> None:
    """Half or twice the users' norm passes; beyond that scores mean little."""
    fitted = PrivateClassifier(**ASKED, max_messages=200).fit(X, Y)
    low, high = fitted.ranking_.linear.squared_norm  # type: ignore[union-attr]
    norms = float(np.mean(np.sum(X**2, axis=1)))
    assert 0.3 * norms < low < norms < high < 3.0 * norms
    for scale in (0.6, 1.0, 1.5):
        fitted.predict(scale * X)
    with pytest.warns(QueryScaleWarning, match="scale queries as users' vectors were scaled"):
        fitted.predict(0.1 * X)
    short = PrivateClassifier(**ASKED, max_messages=200).fit(0.2 * X, Y)
    with pytest.warns(QueryScaleWarning, match="in.* the unit ball, have a norm of about 0"):
        short.predict_proba(2.0 * X)


def test_means_of_blocks() -> None:
    """Other rungs than the geometric count no shifts: a block for each class, and the nearest mean by densities."""
    plain = ASKED | {"accountant": "pld"}
    fitted = PrivateClassifier(**plain).fit(X, Y)
    ranking = Ranking.of(fitted.model_)
    assert (ranking.rule, ranking.linear) == ("mean", None)
    expected = fitted.model_.densities(X) - 0.5 * fitted.model_.squared_means()
    np.testing.assert_array_equal(fitted.scores(X), expected)
    assert fitted.score(X, Y) > 0.9


def test_separate_labels_have_a_rule_that_can_be_changed() -> None:
    model = PrivateKDEClassifier(**ASKED, repetitions=16).fit(X, Y).model_
    densities = model.densities(X)
    np.testing.assert_array_equal(Ranking.of(model).scores(X), densities)
    np.testing.assert_array_equal(Ranking.of(model, "mean").scores(X), model.ranked(densities, "mean"))
    with pytest.raises(InvalidInputError, match="rule='median'"):
        Ranking.of(model, "median")


def test_where_no_class_is_left_none_is_predicted() -> None:
    """A regression: a forged model without class sizes ended in an untyped error."""
    model = PrivateClassifier(**ASKED, model="density", max_messages=200).fit(X, Y).model_
    nobody = dataclasses.replace(model, sums=np.zeros_like(model.sums))
    with pytest.raises(InfeasibleError, match="no class stands out from its noise, so none can be predicted"):
        Ranking.of(nobody).scores(X)
