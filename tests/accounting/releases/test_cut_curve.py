"""Cut curves: moments after a little of the mass is cut off."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import InvalidInputError
from accounting.composition.shifted import conversion
from accounting.numerics.profile import Pair
from accounting.releases.cut_curve import CutCurve, Ratios
from accounting.releases.plan_curves import implied_curve
from accounting.releases.profile_points import Profile
from tests.accounting.releases.known_releases import worst_pair
from tests.strategies import searched

ORDERS = np.array([1.2, 2.0, 7.5, 40.0])


def cut_moment(pair: Pair, cap: float, order: float) -> float:
    """Σ min(p, e^cap·q)^α q^{1−α}: the definition."""
    kept = np.minimum(pair.upper, math.exp(cap) * pair.lower)
    seen = kept > 0.0
    return float(np.sum(kept[seen] ** order * pair.lower[seen] ** (1.0 - order)))


def symmetric_profile(pair: Pair, epsilons: list[float]) -> Profile:
    return Profile.below((e, max(pair.hockey_stick(e), pair.reversed().hockey_stick(e))) for e in epsilons)


@given(st.floats(0.05, 4.0), st.sampled_from([0.0, 1e-6, 0.1]))
def test_the_moments_of_a_worst_pair_are_those_of_its_definition(epsilon: float, delta: float) -> None:
    ratios = Ratios.of(Profile.below(implied_curve(epsilon, delta)))
    for order in ORDERS.tolist():
        exact = cut_moment(worst_pair(epsilon, delta), epsilon, order)
        assert float(ratios.log_moments(np.array([order]), epsilon)[0]) == pytest.approx(math.log(exact), abs=1e-6)


@searched(
    given(
        st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.01, 1.0)), min_size=2, max_size=6),
        st.lists(st.floats(0.01, 3.0), min_size=2, max_size=6, unique=True),
        st.floats(1.05, 30.0),
    ),
    examples=60,
    study=200,
)
def test_what_the_points_imply_holds_for_every_pair_below_them(
    masses: list[tuple[float, float]], knots: list[float], order: float
) -> None:
    """Theorem 2a: cutting as much as at a point, some p̂ has no larger moment. The p̂ of the proof is tried."""
    upper, lower = (np.array(column) / sum(column) for column in zip(*masses, strict=True))
    pair = Pair(upper=upper, lower=lower)
    profile = symmetric_profile(pair, [0.0, *sorted(knots)])
    for index, (epsilon, delta) in enumerate(profile.points):
        claimed = float(Ratios.of(profile).log_moments(np.array([order]), epsilon)[0])
        for way in (pair, pair.reversed()):
            cap = _cap_that_cuts(way, delta, epsilon)
            assert math.log(cut_moment(way, cap, order)) <= claimed + 1e-7, index


def _cap_that_cuts(pair: Pair, mass: float, most: float) -> float:
    """The smallest cap at which no more than `mass` is cut off; at most `most`."""
    low, high = -60.0, most
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if _cut(pair, middle) <= mass else (middle, high)
    return high


def _cut(pair: Pair, cap: float) -> float:
    return float(np.sum(np.maximum(pair.upper - math.exp(cap) * pair.lower, 0.0)))


def test_the_conversion_is_the_largest_value_of_the_quotient() -> None:
    """(x − 1)₊/x^α is largest at α/(α−1)."""
    for order in (1.5, 3.0, 20.0):
        x = mpmath.mpf(order) / (order - 1)
        assert float(conversion(np.array([order]))[0]) == pytest.approx(
            float(mpmath.log((x - 1) / x**order)), rel=1e-12
        )


def test_between_two_orders_the_chord_bounds_a_normal_curve() -> None:
    curve = CutCurve(cut=0.0, points=((2.0, 1.0), (8.0, 28.0)))  # α(α−1)/2
    for order in np.linspace(1.01, 8.0, 50).tolist():
        assert float(curve.at(np.array([order]))[0]) >= order * (order - 1.0) / 2.0
    assert float(curve.at(np.array([8.1]))[0]) == math.inf


@pytest.mark.parametrize(
    ("cut", "points"),
    [
        (-0.1, ((2.0, 1.0),)),
        (0.0, ()),
        (0.0, ((1.0, 1.0),)),
        (0.0, ((3.0, 1.0), (2.0, 1.0))),
        (0.0, ((2.0, math.inf),)),
    ],
)
def test_bad_curves(cut: float, points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(InvalidInputError):
        CutCurve(cut=cut, points=points)
