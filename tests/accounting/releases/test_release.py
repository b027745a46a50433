"""Releases about the same people: profiles, composition, what is left."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Adjacency, Guarantee, InvalidInputError, UnlikeGuaranteesError, View
from accounting.numerics.profile import Pair, symmetric_delta
from accounting.releases.plan_curves import implied_curve
from accounting.releases.release import MOST_RELEASES, Profile, Release, spent
from tests.plans import plan_for

SMALL: dict[str, Any] = {"users": 2000, "dim": 4, "repetitions": 8, "epsilon": 1.0, "delta": 1e-6, "accountant": "pld"}


def promise(epsilon: float, delta: float = 0.0) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=delta, adjacency=Adjacency.RECORD, view=View.COMMUNICATION)


def plain(epsilon: float, delta: float = 0.0) -> Release:
    return Release.of_guarantee("plain", promise(epsilon, delta))


def worst_pair(epsilon: float, delta: float) -> Pair:
    """The pair that has exactly the profile which (ε, δ) implies."""
    high, low = (1.0 - delta) / (1.0 + math.exp(-epsilon)), (1.0 - delta) / (1.0 + math.exp(epsilon))
    return Pair(upper=np.array([delta, high, low, 0.0]), lower=np.array([0.0, low, high, delta]))


def product(pairs: list[Pair]) -> Pair:
    upper, lower = np.ones(1), np.ones(1)
    for pair in pairs:
        upper, lower = np.outer(upper, pair.upper).ravel(), np.outer(lower, pair.lower).ravel()
    return Pair(upper=upper, lower=lower)


@given(st.floats(0.01, 6.0), st.floats(0.0, 0.5), st.floats(0.0, 7.0))
def test_what_a_guarantee_implies_is_the_profile_of_its_worst_pair(epsilon: float, delta: float, at: float) -> None:
    profile = Profile.below(implied_curve(epsilon, delta))
    assert float(profile.at(np.array([at]))[0]) == pytest.approx(worst_pair(epsilon, delta).hockey_stick(at), abs=1e-8)


@given(
    st.lists(st.tuples(st.floats(0.05, 2.0), st.sampled_from([0.0, 1e-9])), min_size=1, max_size=4),
    st.sampled_from([1e-2, 1e-5, 1e-8]),
)
@settings(max_examples=60, deadline=None)
def test_mixed_releases_against_the_product_of_their_worst_pairs(
    promises: list[tuple[float, float]], delta: float
) -> None:
    """Never below the exact composition, and above it by at most 2 % and 0.001 (unless it is below 0.01)."""
    pair = product([worst_pair(*one) for one in promises])
    found = spent([plain(*one) for one in promises], delta)
    assert pair.hockey_stick(found.pld) <= delta * (1.0 + 1e-6)
    assert pair.hockey_stick(max(0.0, 0.98 * found.pld - 1e-3)) >= delta * (1.0 - 1e-6) or found.pld < 1e-2
    assert found.epsilon <= sum(epsilon for epsilon, _ in promises) * (1.0 + 1e-15)


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


def test_a_plan_alone_costs_what_it_promises_and_ten_cost_far_less_than_ten_times() -> None:
    release = Release.of_plan("telemetry", plan_for(**SMALL))
    assert release.guarantee == promise(1.0, 1e-6)
    assert spent([release], 1e-6).epsilon <= 1.0
    assert spent([release], 1e-6).pld == pytest.approx(1.0, rel=2e-3)
    ten = spent([release] * 10, 1e-5)
    assert ten.pld < 0.4 * ten.basic
    assert ten.basic == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("more", "epsilon"),
    [
        ({"classes": 2, "label_epsilon": 2.0}, 3.0),
        ({"kernel": "inner-product", "repetitions": None, "accountant": "geometric", "bound": 1.0}, 1.0),
        ({"bitsum": "pure", "delta": 0.0, "accountant": "basic", "users": 200, "allow_useless": True}, 1.0),
        ({"accountant": "advanced"}, 1.0),
    ],
)
def test_every_kind_of_plan_can_be_charged(more: dict[str, Any], epsilon: float) -> None:
    plan = plan_for(**(SMALL | more))
    release = Release.of_plan("a", plan)
    assert release.guarantee == promise(epsilon, plan.request.delta)
    assert spent([release], max(plan.request.delta, 1e-9)).epsilon <= epsilon
    assert Release.from_json(release.to_json()) == release


@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_features_and_label_together_against_their_exact_laws(delta: float) -> None:
    """One bit by randomized response and one label: the product of both laws is known. Never below it, within 2 %."""
    request = SMALL | {"dim": 1, "repetitions": 1, "classes": 2, "label_epsilon": 1.0, "users": 400}
    plan = plan_for(**request)
    label = plan.request.label_response()
    assert label is not None
    whole = [product([pair, label.pair()]) for pair in plan.protocol().pairs()]
    found = spent([Release.of_plan("a", plan)], delta).pld
    assert symmetric_delta(whole, found) <= delta * (1.0 + 1e-6)
    assert symmetric_delta(whole, 0.98 * found) > delta


@pytest.mark.parametrize("times", [1, 3, 5])
def test_bounds_that_are_no_profile_compose_to_a_bound(times: int) -> None:
    """The first chord is so steep that the masses exceed 1 (docs/proofs/releases.md, section 2)."""
    bounds = Profile(points=((0.0, 0.9), (0.1, 0.01), (1.0, 1e-6)))
    assert float(np.sum(bounds.loss(1e-3).masses)) > 1.1
    steep = Release(name="steep", guarantee=promise(1.0, 1e-6), profiles=(bounds,))
    for hidden in (worst_pair(0.05, 9e-7), worst_pair(0.09, 1e-7)):  # mechanisms below the bounds
        assert all(hidden.hockey_stick(epsilon) <= delta for epsilon, delta in bounds.points)
        pair = product([hidden] * times)
        assert pair.hockey_stick(spent([steep] * times, 1e-5).pld) <= 1e-5 * (1.0 + 1e-6)


def test_profiles_of_plans_fall_to_a_negligible_rest() -> None:
    (profile,) = Release.of_plan("a", plan_for(**SMALL)).profiles
    assert profile.points[-1][1] < 1e-4 * 1e-6
    assert len(profile.points) > 100


def test_an_altered_plan_cannot_be_charged() -> None:
    document = plan_for(**SMALL).to_json()
    document["instance"]["parameters"]["flip_probability"] *= 0.9
    with pytest.raises(InvalidInputError, match="altered"):
        Release.of_plan("a", type(plan_for(**SMALL)).from_json(document))


def test_unlike_promises_do_not_compose() -> None:
    other = Release.of_guarantee("label", promise(1.0).restated(adjacency=Adjacency.LABEL))
    with pytest.raises(UnlikeGuaranteesError):
        spent([plain(1.0), other], 1e-6)
    with pytest.raises(UnlikeGuaranteesError, match="view"):
        Release.of_plan("a", plan_for(**SMALL), view=View.LOCAL)


def test_nothing_costs_nothing_and_too_much_delta_costs_everything() -> None:
    assert spent([], 1e-6).epsilon == 0.0
    assert spent([plain(1.0, 1e-3)] * 2, 1e-3).epsilon == math.inf
    assert spent([plain(0.0, 0.0)], 1e-6).epsilon == 0.0


def test_pure_releases_at_delta_0_add_up() -> None:
    assert spent([plain(0.5), plain(0.25)], 0.0).epsilon == 0.75


def test_too_many_releases() -> None:
    with pytest.raises(InvalidInputError, match="more than"):
        spent([plain(0.1)] * (MOST_RELEASES + 1), 1e-6)


@pytest.mark.parametrize(
    "points", [(), ((0.1, 0.5),), ((0.0, 0.5), (0.0, 0.1)), ((0.0, 0.1), (1.0, 0.2)), ((0.0, 1.5),), ((0.0, math.nan),)]
)
def test_bad_profiles(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(InvalidInputError):
        Profile(points=points)


@pytest.mark.parametrize("document", [{}, {"name": "a"}, {"name": "a", "guarantee": {}, "profiles": [[[0, 1, 2]]]}])
def test_bad_documents(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Release.from_json(document)
