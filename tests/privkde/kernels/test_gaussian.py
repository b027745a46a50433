"""Features in a ball: held whatever maps and vectors, touched hardly ever in the domain, and exact views within ε."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from accounting import InvalidInputError, PlanRequest
from accounting.composition import LADDER
from accounting.mechanisms import RandomizedResponse
from accounting.planning import plan as make_plan
from privkde.kernels import KernelChoice
from privkde.kernels.gaussian import GaussianFamily
from privkde.protocol.announcement import Announcement
from privkde.protocol.inputs import checked_vectors
from privkde.protocol.parties import Randomizer
from tests.privkde.unplanned import SEED

Floats = NDArray[np.float64]
SEEDS = st.binary(min_size=16, max_size=16).map(bytes.hex)
REQUEST = PlanRequest(users=2_000, dim=8, repetitions=32, kernel="gaussian", epsilon=1.0, delta=1e-5, radius=0.5)


def family_of(seed: str = SEED, **choice: Any) -> GaussianFamily:
    built = KernelChoice(**{"name": "gaussian", "dim": 8, "repetitions": 32, "radius": 0.5, **choice}).build(seed)
    assert isinstance(built, GaussianFamily)
    return built


def distances(family: GaussianFamily, features: Floats) -> Floats:
    """‖s − c‖², in double precision, from the center as it is defined."""
    assert family.facts.ball is not None
    center = family.facts.ball.share * np.cos(family.phases.astype(np.float64))
    return np.asarray(np.sum((features - center) ** 2, axis=1))


@settings(max_examples=60, deadline=None)
@given(
    seed=SEEDS,
    radius=st.floats(0.01, 3.0),
    bandwidth=st.floats(1e-3, 1e3),
    repetitions=st.integers(1, 80),
    length=st.floats(-3.0, 6.0),
)
def test_features_never_leave_the_ball(
    seed: str, radius: float, bandwidth: float, repetitions: int, length: float
) -> None:
    """Vectors of any length and maps of any seed; so Σ t² ≤ Δ² for each two of them."""
    family = family_of(seed, radius=radius, bandwidth=bandwidth, repetitions=repetitions)
    x = np.random.default_rng(3).normal(size=(40, 8)) * radius * bandwidth * 10.0**length
    features = family.scaled_features(x).astype(np.float64)
    declared = family.facts.squared_shift
    assert declared is not None
    assert np.all(np.abs(features) <= 1.0)
    assert np.all(distances(family, features) <= declared)
    shifts = (features[:, None] - features) / 2.0
    assert float(np.max(np.sum(shifts**2, axis=2))) <= declared


def test_the_ball_is_used_up() -> None:
    """Vectors beyond the domain reach its edge: holding is what keeps them there."""
    family = family_of(radius=0.1)
    features = family.scaled_features(np.random.default_rng(4).normal(size=(200, 8))).astype(np.float64)
    declared = family.facts.squared_shift
    assert declared is not None
    assert float(np.max(distances(family, features))) >= 0.999 * declared
    free = np.cos(np.random.default_rng(4).normal(size=(200, 8)) @ family.weights + family.phases)
    assert float(np.max(distances(family, free))) > 5.0 * declared


@pytest.mark.parametrize("repetitions", [1, 20_011])
def test_few_and_many_features_are_held(repetitions: int) -> None:
    family = family_of(repetitions=repetitions, radius=0.01)
    declared = family.facts.squared_shift
    assert declared is not None
    features = family.scaled_features(np.random.default_rng(5).normal(size=(30, 8))).astype(np.float64)
    assert float(np.max(distances(family, features))) <= declared


@pytest.mark.parametrize("radius", [0.05, 0.3, 1.0])
def test_features_of_the_domain_are_hardly_ever_touched(radius: float) -> None:
    """Of 20 draws of 256 maps with 200 records each on the edge of the domain: fewer than one in a thousand."""
    free, held = 0, 0
    for number in range(20):
        family = family_of(f"{number:032x}", repetitions=256, radius=radius, dim=16)
        x = np.random.default_rng(number).normal(size=(200, 16))
        x *= radius / np.linalg.norm(x, axis=1, keepdims=True)
        plain = KernelChoice(name="gaussian", dim=16, repetitions=256).build(f"{number:032x}").scaled_features(x)
        moved = np.max(np.abs(family.scaled_features(x) - plain), axis=1)
        held += int(np.count_nonzero(moved > 1e-6))
        free += int(np.count_nonzero(moved <= 1e-6))
    assert held <= 4
    assert free >= 3_990


def test_queries_are_neither_held_nor_limited() -> None:
    family, plain = family_of(radius=0.05), KernelChoice(name="gaussian", dim=8, repetitions=32).build(SEED)
    y = np.random.default_rng(6).normal(size=(20, 8))
    np.testing.assert_array_equal(family.query_features(y), plain.query_features(y))
    assert family.largest_query is None
    assert family.largest_norm == 0.05


def test_clients_refuse_or_project_what_lies_outside() -> None:
    announcement = Announcement(plan=make_plan(REQUEST), public_seed=SEED, bandwidth=3.0)
    rows = np.eye(2, 8) * np.array([[1.499], [1.6]])
    client, projecting = (Randomizer(announcement, outside=outside) for outside in ("reject", "project"))
    assert len(client.packets(rows[:1])) == 1
    with pytest.raises(InvalidInputError, match=r"row 0 has a norm above 1\.5"):
        client.packets(rows[1:])
    assert len(projecting.packets(rows)) == 2


@pytest.mark.parametrize("longest", [1e-3, 0.7, 250.0])
def test_vectors_are_projected_on_the_declared_ball(longest: float) -> None:
    x = np.random.default_rng(7).normal(size=(100, 5)) * longest
    found = checked_vectors(x, 5, longest=longest, outside="project").astype(np.float64)
    lengths = np.linalg.norm(x, axis=1)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), np.minimum(lengths, longest), rtol=1e-6)
    np.testing.assert_array_equal(found[lengths < longest], x[lengths < longest].astype(np.float32))


def outcomes(chances: Floats, others: Floats, flip: float) -> Floats:
    """The law of the counts of all instances, by enumeration: rows of bit probabilities, all flipped with `flip`."""
    law = np.ones(1)
    for instance in range(chances.shape[-1]):
        count = np.ones(1)
        for chance in (*others[:, instance], chances[instance]):
            reported = flip + (1.0 - 2.0 * flip) * chance
            count = np.convolve(count, [1.0 - reported, reported])
        law = np.outer(law, count).ravel()
    return law


@pytest.mark.parametrize("radius", [0.3, 0.8])
@pytest.mark.parametrize("flip", [0.1, 0.3])
def test_exact_views_keep_what_the_rung_says(radius: float, flip: float) -> None:
    """Two instances, three users, all ordered pairs and all data of the others among records that fill the ball."""
    family = family_of(dim=2, repetitions=2, radius=radius)
    x = np.concatenate([radius * np.eye(2), -radius * np.eye(2), 40.0 * np.random.default_rng(8).normal(size=(3, 2))])
    chances = (1.0 + family.scaled_features(x).astype(np.float64)) / 2.0
    touched, law = family.facts.touched, RandomizedResponse(n_users=3, flip_probability=flip)
    told = 0
    for delta in (0.3, 0.1, 0.02):
        claimed = LADDER["geometric"].achieved_epsilon(law, touched, delta)
        assert claimed is not None
        for i, j in itertools.permutations(range(len(x)), 2):
            for others in itertools.combinations_with_replacement(range(len(x)), 2):
                p, q = (outcomes(chances[u], chances[list(others)], flip) for u in (i, j))
                exact = float(np.sum(np.maximum(p - math.exp(claimed) * q, 0.0)))
                assert exact <= delta
                told += float(np.sum(np.maximum(p - math.exp(claimed / 4.0) * q, 0.0))) > 0.0
    assert told, "some pair differs"


def test_joint_labels_and_projection_keep_their_plans() -> None:
    joint = dataclasses.replace(REQUEST, classes=2, labels="joint", epsilon=4.0)
    plan = make_plan(joint.decided())
    plan.verify()
    family = Announcement(plan=plan, public_seed=SEED, projection=6).family()
    assert isinstance(family, GaussianFamily)
    features = family.scaled_features(np.random.default_rng(9).normal(size=(50, 8))).astype(np.float64)
    assert family.facts.squared_shift is not None
    assert np.all(distances(family, features) <= family.facts.squared_shift)
