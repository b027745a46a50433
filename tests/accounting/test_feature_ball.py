"""The ball of features: its moments against quadrature, its margin against what any law may do, and its requests."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import InvalidInputError, PlanRequest
from accounting.feature_ball import LARGEST_RADIUS, LEAST_RADIUS, FeatureBall
from accounting.kernels import KERNELS, NORM_SLACK, kernel_named

RADII = st.floats(LEAST_RADIUS, LARGEST_RADIUS)
REQUEST: dict[str, Any] = {"users": 30_000, "dim": 16, "kernel": "gaussian", "epsilon": 1.0, "delta": 1e-6}


def moments(norm: float, share: float) -> tuple[float, float]:
    """E and Var of (cos(φ + y) − a·cos φ)², y ~ N(0, 2ρ²), by quadrature: Gauss–Hermite and the trapezoid rule."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(150)
    phases = np.linspace(0.0, 2.0 * math.pi, 64, endpoint=False)
    y = math.sqrt(2.0) * norm * nodes[:, None]
    squares = (np.cos(phases + y) - share * np.cos(phases)) ** 2
    chances = weights / weights.sum()
    mean, fourth = (float(chances @ np.mean(squares**power, axis=1)) for power in (1, 2))
    return mean, fourth - mean**2


@pytest.mark.parametrize("radius", [0.01, 0.1, 0.5, 1.0, 2.0])
def test_moments_against_quadrature(radius: float) -> None:
    ball = FeatureBall(n_features=1, radius=radius)
    mean, variance = moments(radius, ball.share)
    assert ball.mean == pytest.approx(mean, rel=1e-9)
    assert ball.variance == pytest.approx(variance, rel=1e-6)


@pytest.mark.parametrize("radius", [0.05, 0.3, 1.0, 2.0])
def test_records_inside_lie_no_further_from_the_center(radius: float) -> None:
    """Mean and variance grow with the norm, so the largest norm is the worst."""
    share = FeatureBall(n_features=1, radius=radius).share
    found = [moments(norm, share) for norm in np.linspace(0.0, radius, 20)]
    for (mean, variance), (more, wider) in itertools.pairwise(found):
        assert more >= mean
        assert wider >= variance * (1.0 - 1e-12)


@given(radius=RADII, n_features=st.integers(1, 10**6))
def test_the_ball_has_room_for_the_mean_and_never_more_than_all_flips(radius: float, n_features: int) -> None:
    ball = FeatureBall(n_features=n_features, radius=radius)
    assert n_features * ball.mean < ball.squared_radius <= n_features * (1.0 + 1e-12)
    facts = kernel_named("gaussian").facts(dim=4, repetitions=n_features, radius=radius)
    assert facts.squared_shift == pytest.approx(min(n_features, ball.squared_radius * NORM_SLACK**2))
    assert facts.touched.total == n_features
    assert 0.0 <= facts.largest_bias <= 0.25


@given(radius=RADII, further=st.floats(1.0, 3.0), n_features=st.integers(1, 5_000))
def test_a_larger_radius_is_never_cheaper(radius: float, further: float, n_features: int) -> None:
    wider = min(LARGEST_RADIUS, radius * further)
    first, second = (FeatureBall(n_features=n_features, radius=r).squared_radius for r in (radius, wider))
    if n_features >= 300:  # in small ones the margin, which is largest near a bandwidth, counts most
        assert first <= second * (1.0 + 1e-12)


@pytest.mark.parametrize("radius", [0.1, 0.5, 2.0])
def test_clipping_is_below_its_bound(radius: float) -> None:
    """Measured where it is seen: in few features. 4,000 draws of the maps and one record each, a fixed seed."""
    rng, k = np.random.default_rng(11), 24
    ball = FeatureBall(n_features=k, radius=radius)
    phases = rng.uniform(0.0, 2.0 * math.pi, size=(4_000, k))
    angles = math.sqrt(2.0) * radius * rng.normal(size=phases.shape)
    away = np.cos(phases + angles) - ball.share * np.cos(phases)
    beyond = np.maximum(np.linalg.norm(away, axis=1) - math.sqrt(ball.squared_radius), 0.0)
    assert 2.0 * float(np.mean(beyond)) / math.sqrt(k) <= ball.largest_clipping
    assert float(np.mean(beyond > 0.0)) < 0.02


def test_a_request_without_a_radius_is_what_it_was() -> None:
    request = PlanRequest(**REQUEST)
    assert "radius" not in request.to_json()
    assert request.facts().squared_shift is None
    assert PlanRequest(**json.loads(json.dumps(PlanRequest(**REQUEST, radius=0.5).to_json()))).radius == 0.5


@pytest.mark.parametrize("radius", [0.0, -1.0, 1e-3, 1e4, math.nan, math.inf, "1", True])
def test_radii_that_are_refused(radius: Any) -> None:
    with pytest.raises(InvalidInputError, match="radius"):
        PlanRequest(**REQUEST, radius=radius)


@pytest.mark.parametrize("kernel", sorted(set(KERNELS) - {"gaussian"}))
def test_other_kernels_take_no_radius(kernel: str) -> None:
    with pytest.raises(InvalidInputError, match="only 'gaussian' takes one"):
        PlanRequest(**{**REQUEST, "kernel": kernel}, radius=0.5)


@pytest.mark.parametrize("radius", [0.05, 0.7, 1.04, 1.2, 5.0])
def test_joint_labels_weigh_sizes_enough(radius: float) -> None:
    """Whatever Δ² leaves for sizes: their noise must not explode where that is next to nothing."""
    facts = PlanRequest(**REQUEST, classes=3, labels="joint", radius=radius).facts()
    assert facts.squared_shift is not None
    assert facts.size_weight >= 0.5
    assert facts.squared_shift >= 16 / 2 + 2.0 * facts.size_weight**2 - 1e-9
