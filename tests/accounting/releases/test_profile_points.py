"""Points of a profile: hull, chords, inverse, attacks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import InvalidInputError
from accounting.releases.plan_curves import implied_curve
from accounting.releases.profile_points import Profile
from tests.accounting.releases.known_releases import worst_pair


@given(st.floats(0.01, 6.0), st.floats(0.0, 0.5), st.floats(0.0, 7.0))
def test_what_a_guarantee_implies_is_the_profile_of_its_worst_pair(epsilon: float, delta: float, at: float) -> None:
    profile = Profile.below(implied_curve(epsilon, delta))
    assert profile.delta(at) == pytest.approx(worst_pair(epsilon, delta).hockey_stick(at), abs=1e-8)


@given(st.floats(0.01, 6.0), st.floats(1e-9, 0.5), st.floats(1e-9, 0.9))
def test_epsilon_is_the_inverse_of_delta(epsilon: float, delta: float, at: float) -> None:
    profile = Profile.below(implied_curve(epsilon, delta))
    smallest = profile.epsilon(at)
    if math.isinf(smallest):
        assert profile.points[-1][1] > at
        return
    assert profile.delta(smallest) <= at * (1.0 + 1e-6)
    assert smallest == 0.0 or profile.delta(0.999 * smallest) > at * (1.0 - 1e-6)


def test_the_tradeoff_of_a_worst_pair_starts_at_its_delta_and_falls() -> None:
    curve = Profile.below(implied_curve(1.0, 0.01)).tradeoff(11)
    assert curve[0][1] == pytest.approx(0.99)
    assert curve[-1] == (1.0, 0.0)
    assert all(after[1] <= before[1] for before, after in itertools.pairwise(curve))


@given(st.lists(st.tuples(st.floats(1e-3, 5.0), st.floats(0.0, 1.0)), min_size=1, max_size=12))
def test_the_hull_is_below_all_bounds_and_convex(bounds: list[tuple[float, float]]) -> None:
    profile = Profile.below([(0.0, 1.0), *bounds])
    for epsilon, delta in bounds:
        assert float(profile.at(np.array([epsilon]))[0]) <= delta * (1.0 + 1e-8) + 1e-12
    x, y = np.expm1([e for e, _ in profile.points]), np.array([d for _, d in profile.points])
    slopes = np.diff(y) / np.diff(x)
    assert np.all(np.diff(slopes) >= -1e-9 * np.abs(slopes[:-1]))


@given(st.floats(0.1, 4.0), st.floats(0.0, 0.2), st.floats(0.0, 1.0))
def test_the_best_attack_on_the_worst_pair(epsilon: float, delta: float, alpha: float) -> None:
    """Neyman and Pearson: accuse outcomes in the order of their likelihood ratio, the last one at random."""
    pair = worst_pair(epsilon, delta)
    found, left = 0.0, alpha
    for upper, lower in zip(pair.upper, pair.lower, strict=True):  # listed in that order
        share = 1.0 if lower == 0.0 else min(1.0, left / lower)
        found, left = found + share * upper, left - share * lower
    profile = Profile.below(implied_curve(epsilon, delta))
    assert profile.true_positive_rate(alpha) == pytest.approx(min(1.0, found), abs=1e-9)


@pytest.mark.parametrize(
    "points", [(), ((0.1, 0.5),), ((0.0, 0.5), (0.0, 0.1)), ((0.0, 0.1), (1.0, 0.2)), ((0.0, 1.5),), ((0.0, math.nan),)]
)
def test_bad_profiles(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(InvalidInputError):
        Profile(points=points)
