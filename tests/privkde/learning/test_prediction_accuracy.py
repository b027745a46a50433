"""The expected accuracy of a planned classifier: against a collection bit by bit, and its refusals."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rich.console import Console

from accounting import InvalidInputError, PlanRequest
from accounting.accuracy.density_error import predicted_error
from accounting.comparing import compare_models
from accounting.mechanisms import BitsumProtocol, RandomizedResponse
from privkde.display.tables import models_table
from privkde.learning import prediction
from privkde.learning.prediction import FEW_ROWS, expected_accuracy, expected_error, small_sample
from privkde.protocol.linear_rule import Published
from tests.plans import plan_for

N_USERS, DIM = 3000, 6


def cloud(n: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Two classes whose means differ where vectors spread little, and are equal where they spread much."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, n)
    x = random.normal(size=(n, DIM)) * [3.0, 3.0, 3.0, 0.5, 0.5, 0.5]
    x[:, 3] += 1.2 * labels - 0.6
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), labels


def request_for(model: str) -> PlanRequest:
    return PlanRequest(users=N_USERS, dim=DIM, classes=2, epsilon=1.0, delta=1e-6, model=model).decided()


@pytest.fixture
def law() -> BitsumProtocol:
    """About as much noise as (1, 1e-6) needs here; nothing is proved of it."""
    return RandomizedResponse(n_users=N_USERS, flip_probability=0.41)


def test_the_discriminant_is_expected_to_see_what_the_mean_misses(law: BitsumProtocol) -> None:
    sample, labels = cloud(2000, seed=1)
    found = {
        model: expected_accuracy(request_for(model), law, sample, labels)
        for model in ("density", "mean", "discriminant")
    }
    assert found["discriminant"] > found["mean"] + 0.03, found
    assert min(found.values()) > 0.5


def test_more_noise_is_expected_to_cost(law: BitsumProtocol) -> None:
    sample, labels = cloud(2000, seed=1)
    request = request_for("discriminant")
    loud = RandomizedResponse(n_users=N_USERS, flip_probability=0.4999)
    assert expected_accuracy(request, loud, sample, labels) < expected_accuracy(request, law, sample, labels) - 0.1


def test_it_can_be_repeated(law: BitsumProtocol) -> None:
    sample, labels = cloud(600, seed=2)
    request = request_for("discriminant")
    first, again, *others = (expected_accuracy(request, law, sample, labels, seed=seed) for seed in (0, 0, 1, 2, 3))
    assert first == again
    assert {first} != {*others}, "of the same rows, each with other noise"


def test_every_row_is_classified_once_by_the_others(law: BitsumProtocol, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four fifths are known. A rule that always names the first class is right as often as there is that class."""
    sample, labels = cloud(103, seed=5)
    known: list[int] = []

    def first_class(*arguments: Any) -> Published:
        known.append(len(arguments[3]))
        return Published(
            n_users=2,
            sizes=np.array([1.0, 1.0]),
            size_deviation=0.0,
            sums=np.zeros((2, DIM)),
            deviation=0.0,
        )

    monkeypatch.setattr(prediction, "_forecast", first_class)
    found = expected_accuracy(request_for("density"), law, sample, labels)
    assert known == [82, 82, 82, 83, 83]
    assert found == pytest.approx(np.mean(labels == 0), rel=1e-12)


def test_two_rows_are_a_sample(law: BitsumProtocol) -> None:
    sample, _ = cloud(2, seed=6)
    assert 0.0 <= expected_accuracy(request_for("mean"), law, sample, np.array([0, 1])) <= 1.0


def test_few_rows_are_cautioned_about() -> None:
    """Ten known rows for each dimension, of four fifths of the sample."""
    enough = FEW_ROWS * 8 * 5 // 4
    assert small_sample(enough, 8) is None
    caution = small_sample(enough - 1, 8)
    assert caution is not None
    assert "caution: 99 public rows are few for 8 dimensions" in caution
    assert f"about {enough} rows are enough" in caution


def test_a_sample_that_does_not_fit_is_refused(law: BitsumProtocol) -> None:
    sample, labels = cloud(50, seed=3)
    with pytest.raises(InvalidInputError, match="2 classes"):
        expected_accuracy(request_for("mean"), law, sample, np.zeros(50, np.int64))
    with pytest.raises(InvalidInputError, match="one label for each row"):
        expected_accuracy(request_for("mean"), law, sample, labels[:40])
    blocks = dataclasses.replace(request_for("mean"), padded=0, moment_weight=None, bound=None)
    with pytest.raises(InvalidInputError, match="does not rotate"):
        expected_accuracy(blocks, law, sample, labels)


def test_models_are_listed_with_messages_noise_and_accuracy() -> None:
    request = PlanRequest(users=N_USERS, dim=DIM, classes=2, epsilon=1.0, delta=1e-6, max_messages=30.0)
    outcomes = compare_models(request)
    assert [outcome.name for outcome in outcomes] == ["density", "mean", "discriminant"]
    assert [outcome.messages_per_user for outcome in outcomes] == [30.0, 30.0, None]
    assert "35 messages" in outcomes[2].refusal
    assert "max_messages=30" in outcomes[2].refusal
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(models_table(outcomes, {"mean": 0.625}))
    text = console.export_text()
    assert "62.5%" in text
    assert "not possible" in text
    assert "35 messages" in text


def test_without_classes_there_are_no_models_to_compare() -> None:
    assert compare_models(PlanRequest(users=100, dim=2, epsilon=1.0, delta=1e-6)) == []


def test_the_error_of_a_density_is_bounded_by_the_plans() -> None:
    plan = plan_for(users=N_USERS, dim=DIM, classes=2, epsilon=1.0, delta=1e-6, max_messages=40.0)
    sample, _ = cloud(200, seed=4)
    found = expected_error(plan, sample, sample[:20])
    bound = predicted_error(plan.request.facts(), N_USERS / 2, plan.bitsum_rmse)
    assert (found.bias, found.feature) == (0.0, 0.0)
    assert 0.5 * bound.privacy < found.privacy <= bound.privacy
    assert 0.3 * bound.rounding < found.rounding <= bound.rounding
