"""The card of a model states what its contract states, and obeys nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from privkde import PrivateClassifier, PrivateKDE, PrivateKDEClassifier
from privkde.learning.model_card import SHOWN_CLASSES
from privkde.protocol.model import DensityModel
from tests.plans import made_once
from tests.privkde.unplanned import little_noise

USERS = 400
X = np.random.default_rng(3).normal(size=(USERS, 3)) / 9.0
Y = np.arange(USERS) % 2
FEW: dict[str, Any] = {"repetitions": 4, "epsilon": 8.0, "accountant": "basic", "allow_useless": True}


@pytest.fixture(autouse=True, scope="module")
def plans_made_once() -> Iterator[None]:
    with made_once():
        yield


def test_a_density() -> None:
    text = PrivateKDE(**FEW).fit(X).summary()
    assert text.splitlines()[0] == "(8, 1e-6)-differential privacy for a whole vector, in one collection of 400 users."
    assert "NOT PRIVATE" not in text
    assert "4 messages" in text
    assert "gaussian, d = 3" in text


def test_separate_labels() -> None:
    fitted = PrivateKDEClassifier(**FEW, classes=(0, 1)).fit(X, Y)
    first, *lines = fitted.summary().splitlines()
    assert first == (
        "(8, 1e-6)-differential privacy for a whole record: features and label, in a report of the label and a"
        " collection for each of 2 classes, 400 users together."
    )
    counts = fitted.reported_counts_
    assert any(f"0 ({counts[0]}), 1 ({counts[1]})" in line for line in lines)


@pytest.mark.filterwarnings("ignore:class")
def test_joint_labels_seeds_and_undeclared_classes() -> None:
    fitted = PrivateClassifier(epsilon=2.0, max_messages=200, insecure_seed=1).fit(X, Y)
    text, linear = fitted.summary(), fitted.ranking_.linear
    assert linear is not None
    assert text.startswith("NOT PRIVATE, because draws were seeded; otherwise (2, 1e-6)-differential privacy")
    assert "there is no protection" in text
    assert "read off the labels" in text
    assert f"± {fitted.model_.size_deviation():.0f}" in text
    assert f"{linear.signal**0.5:.3g} from their center, with noise of {linear.noise**0.5:.3g}" in text
    assert len(text.splitlines()) <= 11
    declared = PrivateClassifier(epsilon=2.0, max_messages=200, classes=(0, 1)).fit(X, Y).summary()
    assert "read off" not in declared
    assert "NOT PRIVATE" not in declared


@pytest.mark.filterwarnings("ignore:class")
def test_names_of_classes_are_not_obeyed_and_not_too_many() -> None:
    names = [f"<b>{i}</b>\x1b[31m" for i in range(SHOWN_CLASSES + 2)]
    fitted = PrivateClassifier(epsilon=2.0, max_messages=200, classes=names, insecure_seed=1)
    with little_noise():
        fitted.fit(X, np.array(names)[np.arange(USERS) % len(names)])
    assert all(line.isprintable() for line in fitted.summary().split("\n"))
    assert " and 2 more" in fitted.summary()
    assert "<b>" not in fitted._repr_html_()
    assert "&lt;b&gt;0" in fitted._repr_html_()
    assert fitted._repr_mimebundle_()["text/html"] == fitted._repr_html_()


@pytest.mark.filterwarnings("ignore:class")
def test_no_class_is_shown_with_fewer_than_no_users(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = PrivateClassifier(epsilon=2.0, max_messages=200, classes=(0, 1), insecure_seed=1).fit(X, Y)
    monkeypatch.setattr(DensityModel, "sizes", lambda _: {0: 405.2, 1: -5.2})
    assert "0 (405 ± " in fitted.summary()
    assert ", 1 (0 ± " in fitted.summary()


def test_the_reason_for_a_model_is_on_the_card() -> None:
    fitted = PrivateClassifier(**FEW | {"epsilon": 50.0}, kernel="gaussian", classes=(0, 1)).fit(X, Y)
    assert "density: a discriminant needs whole records" in fitted.summary()


def test_nothing_to_sum_up() -> None:
    with pytest.raises(NotFittedError):
        PrivateKDE().summary()
    assert "PrivateClassifier" in PrivateClassifier()._repr_html_()
