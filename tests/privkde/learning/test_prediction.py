"""The expected error on data like a sample, against formulas and against measured errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from accounting import InvalidInputError, Plan
from accounting.accuracy.density_error import PredictedError
from accounting.mechanisms import PoissonNoise
from privkde.draws.randomness import private_randomness
from privkde.engines.local import collect
from privkde.learning.baselines import exact_densities
from privkde.learning.prediction import expected_error
from privkde.protocol.model import DensityModel
from privkde.protocol.rounds import Collection, Terms
from tests.plans import plan_for
from tests.privkde.unplanned import unplanned

SEED = "3c" * 16
RUNS = 60
QUICK: dict[str, Any] = {"bitsum": "poisson", "accountant": "pld"}

Floats = NDArray[np.float64]


def cloud(n_users: int, dim: int) -> Floats:
    """Unit vectors around one direction."""
    x = np.random.default_rng(4).normal(size=(n_users, dim))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[:, 0] += 1.0
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def published(terms: Terms, made: Plan, x: Floats, classes: NDArray[np.int64] | None, seed: int) -> DensityModel:
    """A seeded collection with a plan that was just made, so that it need not be proved again each time."""
    collection = Collection(terms)
    collection.enroll(len(x))
    with pytest.MonkeyPatch.context() as proved:
        proved.setattr(Plan, "verify", lambda _: None)
        (announcement,) = collection.fix_plan(made)
    stream = private_randomness(seed)
    collection.count(0, collect(announcement, x, np.arange(len(x)), classes, stream=stream))
    return collection.publish(private=False)


INNER: dict[str, Any] = {"kernel": "inner-product", "dim": 3, "bound": 1.0}


@pytest.mark.parametrize("planned", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_inner_products_by_hand(planned: bool) -> None:
    """R = 1, f = x: rounding Σ_j y_j²(1 − mean x_j²)/n, privacy 4E²‖y‖²/n², nothing else."""
    x, y = cloud(200, 3), cloud(7, 3)
    if planned:
        made = plan_for(users=1000, epsilon=1.0, delta=1e-6, **INNER, **QUICK)
    else:
        made = unplanned(PoissonNoise(n_users=1000, total_mean=40.0), **INNER, repetitions=None)
    found = expected_error(made, x, y, public_seed=SEED)
    assert found.bias < 1e-7
    assert found.feature == found.labels == 0.0
    rounding = np.mean((y**2) @ (1.0 - np.mean(x**2, axis=0))) / 1000
    assert found.rounding == pytest.approx(math.sqrt(rounding), rel=1e-6)
    assert found.privacy == pytest.approx(2.0 * made.bitsum_rmse / 1000, rel=1e-6)


def test_joint_labels_round_everywhere_and_estimate_sizes() -> None:
    """Of n users in two classes: rounding (n − n_c mean x_j²)/n_c², and the relative error of n̂_c times the density."""
    x, y = cloud(200, 3), cloud(7, 3)
    asked = {"users": 4000, "dim": 3, "kernel": "inner-product", "classes": 2, "labels": "joint", "bound": 1.0}
    made = plan_for(**asked, epsilon=1.0, delta=1e-6, **QUICK)
    weight, variance = made.request.facts().size_weight, made.bitsum_rmse**2
    assert weight == pytest.approx(0.5, rel=1e-3)
    found = expected_error(made, x, y, public_seed=SEED)
    density = y @ np.mean(x, axis=0)
    rounding = (y**2) @ (4000 - 2000 * np.mean(x**2, axis=0)) + density**2 * 4000 * (1 - weight**2) / (4 * weight**2)
    assert found.rounding == pytest.approx(math.sqrt(np.mean(rounding)) / 2000, rel=1e-6)
    privacy = 4.0 * variance + density**2 * variance / weight**2
    assert found.privacy == pytest.approx(math.sqrt(np.mean(privacy)) / 2000, rel=1e-6)


@pytest.mark.parametrize("n_users", [1000, pytest.param(2500, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("asked", "tolerance"),
    [
        ({"kernel": "inner-product", "dim": 40, "bound": 0.4}, 0.1),
        pytest.param({"kernel": "inner-product", "dim": 40, "bound": 1.0}, 0.1, marks=pytest.mark.slow),
        ({"kernel": "gaussian", "dim": 8, "repetitions": 64}, 0.1),
        ({"kernel": "inner-product-signs", "dim": 8, "repetitions": 64}, 0.1),
        ({"kernel": "laplacian", "dim": 4, "repetitions": 64, "bias": 0.01}, 0.1),
    ],
)
def test_predicted_and_measured_errors_agree(asked: dict[str, Any], tolerance: float, n_users: int) -> None:
    """Within 10 % over 60 seeded runs with fresh maps and fresh noise; the sample is not the users.

    The measured mean square has a relative deviation below 2·√(2/60)/√(effective queries); seeds are fixed.
    """
    dim = asked["dim"]
    everything = cloud(2 * n_users, dim)
    x, sample, y = everything[:n_users], everything[n_users:], everything[:60]
    request = {"epsilon": 2.0, "delta": 1e-6, "accountant": "pld", **asked}  # the rung only sets the noise level
    made = plan_for(users=len(x), **request)
    squares, told = [], []
    for seed in range(RUNS):
        public_seed = private_randomness(seed).public_seed()
        terms = Terms(request=request, public_seed=public_seed)
        model = published(terms, made, x, None, seed)
        exact = exact_densities(model.announcements[0].family(), x, [np.arange(len(x))], y)[:, 0]
        squares.append(np.mean((model.densities(y)[:, 0] - exact) ** 2))
        if seed < 12:
            told.append(expected_error(made, sample, y, public_seed=public_seed).total ** 2)
    assert math.sqrt(np.mean(told)) == pytest.approx(math.sqrt(np.mean(squares)), rel=tolerance)


def test_joint_prediction_is_what_a_joint_collection_makes() -> None:
    """Root-mean-square error of the first class's density over 60 seeded runs, within 10 %."""
    x, labels = cloud(3000, 40), np.arange(3000) % 3
    x[labels == 1] *= -1.0
    x[labels == 2] = np.roll(x[labels == 2], 5, axis=1)
    y, request = x[:60], {"dim": 40, "kernel": "inner-product", "labels": "joint", "epsilon": 3.0, "delta": 1e-6}
    request |= {"bound": 0.4, "accountant": "pld"}
    terms = Terms(request=request, labels=(0, 1, 2), public_seed=SEED)
    made = plan_for(users=3000, classes=3, **request)
    exact, squares = y @ np.mean(x[labels == 0], axis=0), []
    for seed in range(RUNS):
        model = published(terms, made, x, labels, seed)
        squares.append(np.mean((model.densities(y)[:, 0] - exact) ** 2))
    found = expected_error(made, x[labels == 0], y, public_seed=SEED)
    assert found.total == pytest.approx(math.sqrt(np.mean(squares)), rel=0.1)


def test_bandwidth_and_projection_reach_the_maps() -> None:
    x = cloud(300, 16)
    made = plan_for(users=1000, dim=16, repetitions=64, epsilon=2.0, delta=1e-6, **QUICK)
    wide = expected_error(made, x, x[:20], bandwidth=50.0, public_seed=SEED)
    usual = expected_error(made, x, x[:20], public_seed=SEED)
    projected = expected_error(made, x, x[:20], projection=4, public_seed=SEED)
    assert len({wide.feature, usual.feature, projected.feature}) == 3
    assert usual == expected_error(made, x, x[:20], public_seed=SEED)
    assert isinstance(usual, PredictedError)


def test_an_empty_sample_is_refused() -> None:
    made = plan_for(users=1000, dim=16, repetitions=64, epsilon=2.0, delta=1e-6, **QUICK)
    with pytest.raises(InvalidInputError, match="no users"):
        expected_error(made, np.zeros((0, 16)), np.zeros((1, 16)))
