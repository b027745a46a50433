"""The choice of a classifier's model: from public quantities, within a limit on messages, with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from accounting import InfeasibleError
from accounting.classifier_model import BLURRED, DROWNED, ModelChoice, chosen_model
from accounting.record_vector import FREE_WEIGHT, LEAST_PADDED

ASKED: dict[str, Any] = {
    "dim": 64, "n_classes": 4, "n_users": 50_000, "epsilon": 1.0, "delta": 1e-6, "n_releases": 1,
    "most_messages": 400_000,
}  # fmt: skip
MEANS = 4 * 64 + 4
MOMENTS = MEANS + 64 * 65 // 2


def choice(model: str = "auto", **changes: Any) -> ModelChoice:
    return chosen_model(model, **{**ASKED, **changes})


def test_auto_takes_the_discriminant_where_messages_and_noise_allow() -> None:
    found = choice()
    assert found.model == "discriminant"
    assert found.vector.n_coordinates == MOMENTS
    assert found.vector.padded >= LEAST_PADDED
    assert found.reason == "model discriminant: second moments cost nothing"
    assert "second moments cost little" in choice(n_users=5_000).reason, "they get more weight than is free"


def test_auto_takes_means_where_second_moments_need_too_many_messages() -> None:
    found = choice(most_messages=MOMENTS - 1)
    assert found.model == "mean"
    assert (found.vector.moment_weight, found.vector.n_coordinates) == (0.0, MEANS)
    assert f"second moments would take {MOMENTS:,} messages, more than {MOMENTS - 1:,}" in found.reason
    assert choice(most_messages=MOMENTS).model == "discriminant"
    assert choice(most_messages=MOMENTS).vector.padded == MOMENTS


def test_auto_takes_means_where_second_moments_drown() -> None:
    found = choice(n_users=100)
    assert (found.model, found.vector.moment_weight) == ("mean", 0.0)
    assert "the noise of second moments would be" in found.reason
    assert float(found.reason.split(" times")[0].rsplit(" ", 1)[1]) > DROWNED * 64
    assert found.reason.endswith("times their mean eigenvalue, more than 3.2")


@pytest.mark.parametrize(
    ("dim", "n_classes", "epsilons"), [(128, 10, (0.25, 0.1)), (384, 14, (0.5, 0.25)), (64, 10, (0.2, 0.1))]
)
def test_noise_drowns_moments_by_itself_whatever_their_dimension(
    dim: int, n_classes: int, epsilons: tuple[float, float]
) -> None:
    """At 8,000 users, as measured on parts of training sets: with less ε of the two, moments did harm."""
    models = [choice(dim=dim, n_classes=n_classes, n_users=8_000, epsilon=epsilon).model for epsilon in epsilons]
    assert models == ["discriminant", "mean"]


def test_noise_below_the_mean_eigenvalue_drowns_nothing() -> None:
    models = {n: choice(dim=4, n_users=n, epsilon=0.1).model for n in (100, 900)}
    assert models == {100: "mean", 900: "discriminant"}


def test_more_weight_only_where_means_are_clear_and_moments_are_not() -> None:
    weights = {n: choice(n_users=n).vector.moment_weight for n in (2_000, 5_000, 100_000)}
    assert weights == {2_000: FREE_WEIGHT, 5_000: 1.0, 100_000: FREE_WEIGHT}
    assert BLURRED < DROWNED * 64


@pytest.mark.parametrize(("model", "count"), [("mean", MEANS), ("density", MEANS), ("discriminant", MOMENTS)])
def test_a_model_that_is_asked_for_is_taken_or_refused(model: str, count: int) -> None:
    for n_users in (100, 50_000):
        found = choice(model, n_users=n_users)
        assert (found.model, found.reason) == (model, f"model {model}: as asked for")
        assert found.vector.n_coordinates == count
    with pytest.raises(InfeasibleError, match=rf"model='{model}' takes {count:,} messages .* raise max_messages"):
        choice(model, most_messages=count - 1)


def test_means_that_do_not_fit_are_refused_for_auto_too() -> None:
    with pytest.raises(InfeasibleError, match=f"model='mean' takes {MEANS:,} messages"):
        choice(most_messages=MEANS - 1)


def test_more_releases_are_as_more_noise() -> None:
    assert choice(n_users=3_000).model == "discriminant"
    assert choice(n_users=3_000, n_releases=1_000).model == "mean"
