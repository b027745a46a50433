"""Several releases that are fixed beforehand: basic, advanced, privacy losses, cut curves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Adjacency, InvalidInputError, UnlikeGuaranteesError
from accounting.releases.composing import MOST_RELEASES, basic_delta, exact_sum, spent
from accounting.releases.cut_curve import CutCurve
from accounting.releases.profile_points import Profile
from accounting.releases.release import Part, Release
from tests.accounting.releases.known_releases import plain, product, promise, worst_pair

GAUSSIAN_ORDERS = tuple(1.0 + 1.1**k / 10.0 for k in range(90))


def gaussian(deviation: float) -> Release:
    """A normal release of sensitivity 1: its profile at many points, and its exact Rényi curve."""
    scale = 1.0 / deviation
    points = [(0.0, math.erf(scale / math.sqrt(8.0)))]
    for epsilon in np.linspace(0.0, 12.0 * scale + scale**2, 400)[1:].tolist():
        upper = 0.5 * math.erfc((epsilon / scale - scale / 2.0) / math.sqrt(2.0))
        lower = 0.5 * math.erfc((epsilon / scale + scale / 2.0) / math.sqrt(2.0))
        points.append((epsilon, max(0.0, upper - math.exp(epsilon) * lower)))
    curve = CutCurve(cut=0.0, points=tuple((a, a * (a - 1.0) / (2.0 * deviation**2)) for a in GAUSSIAN_ORDERS))
    return Release(
        name="normal", guarantee=promise(5.0, 1e-9), parts=(Part(profile=Profile.below(points), curves=(curve,)),)
    )


def exact_gaussian_delta(deviation: float, epsilon: float) -> float:
    scale = 1.0 / deviation
    upper = 0.5 * math.erfc((epsilon / scale - scale / 2.0) / math.sqrt(2.0))
    return upper - math.exp(epsilon) * 0.5 * math.erfc((epsilon / scale + scale / 2.0) / math.sqrt(2.0))


def test_normal_releases_compose_to_a_normal_one_by_their_curves() -> None:
    """Sixteen of deviation 20 are one of deviation 5. Curves lie above it, and by less than 15 %."""
    together = spent([gaussian(20.0)] * 16, 1e-6, epsilon=1.0)
    assert exact_gaussian_delta(5.0, together.renyi) <= 1e-6
    assert exact_gaussian_delta(5.0, together.renyi / 1.15) > 1e-6
    assert exact_gaussian_delta(5.0, 1.0) <= (together.at_budget or 0.0) <= 1e-3


def test_a_mixture_of_curves_and_losses_lies_above_the_exact_composition() -> None:
    """Curves for the normal releases, a privacy loss for one worst pair: never below the exact δ, within 15 % of ε."""
    normal, pair = gaussian(20.0), worst_pair(0.4, 1e-8)
    mixed = spent([normal] * 16 + [plain(0.4, 1e-8)], 1e-6).renyi

    def exact(epsilon: float) -> float:
        finite = [(p, math.log(p / q)) for p, q in zip(pair.upper, pair.lower, strict=True) if p > 0 and q > 0]
        return 1e-8 + math.fsum(p * exact_gaussian_delta(5.0, epsilon - loss) for p, loss in finite)

    assert exact(mixed) <= 1e-6
    assert exact(mixed / 1.15) > 1e-6


def test_times_are_as_many_releases() -> None:
    once, schedule = plain(0.2, 1e-9), Release.of_guarantee("plain", promise(0.2, 1e-9), times=7)
    assert spent([schedule], 1e-6, epsilon=2.0) == spent([once] * 7, 1e-6, epsilon=2.0)


@given(st.permutations([plain(0.1), plain(0.3, 1e-8), plain(0.5, 1e-9), plain(0.2)]))
@settings(max_examples=10, deadline=None)
def test_order_does_not_matter(releases: list[Release]) -> None:
    assert spent(releases, 1e-6).epsilon == pytest.approx(spent(sorted(releases, key=repr), 1e-6).epsilon, rel=1e-9)


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 9)), min_size=1, max_size=9))
def test_sums_are_exact_in_decimals(numbers: list[tuple[int, int]]) -> None:
    total = sum(value * times for value, times in numbers)
    assert exact_sum((value / 100.0, times) for value, times in numbers) == total / 100.0


def test_sums_of_delta() -> None:
    assert basic_delta([plain(1.0, 1e-7)] * 10) == 1e-6
    assert exact_sum([(math.inf, 1), (1.0, 2)]) == math.inf


@given(
    st.lists(st.tuples(st.floats(0.05, 2.0), st.sampled_from([0.0, 1e-9])), min_size=1, max_size=4),
    st.sampled_from([1e-2, 1e-5, 1e-8]),
)
@settings(max_examples=60, deadline=None)
def test_mixed_releases_against_the_product_of_their_worst_pairs(
    promises: list[tuple[float, float]], delta: float
) -> None:
    """Never below the exact composition, and above it by at most 2 % and 0.001 (unless it is below 0.01)."""
    pair = product([worst_pair(*each) for each in promises])
    together = spent([plain(*each) for each in promises], delta)
    assert pair.hockey_stick(together.pld) <= delta * (1.0 + 1e-6)
    assert pair.hockey_stick(max(0.0, 0.98 * together.pld - 1e-3)) >= delta * (1.0 - 1e-6) or together.pld < 1e-2
    assert together.epsilon <= sum(epsilon for epsilon, _ in promises) * (1.0 + 1e-15)


@pytest.mark.parametrize("times", [1, 3, 5])
def test_bounds_that_are_no_profile_compose_to_a_bound(times: int) -> None:
    """The first chord is so steep that the masses exceed 1 (docs/proofs/releases.md, section 2)."""
    bounds = Profile(points=((0.0, 0.9), (0.1, 0.01), (1.0, 1e-6)))
    assert float(np.sum(bounds.loss(1e-3).masses)) > 1.1
    steep = Release(name="steep", guarantee=promise(1.0, 1e-6), parts=(Part(profile=bounds),))
    for hidden in (worst_pair(0.05, 9e-7), worst_pair(0.09, 1e-7)):  # mechanisms below the bounds
        assert all(hidden.hockey_stick(epsilon) <= delta for epsilon, delta in bounds.points)
        pair = product([hidden] * times)
        assert pair.hockey_stick(spent([steep] * times, 1e-5).pld) <= 1e-5 * (1.0 + 1e-6)


def test_unlike_promises_do_not_compose() -> None:
    other = Release.of_guarantee("label", promise(1.0).restated(adjacency=Adjacency.LABEL))
    with pytest.raises(UnlikeGuaranteesError):
        spent([plain(1.0), other], 1e-6)


def test_nothing_costs_nothing_and_too_much_delta_costs_everything() -> None:
    assert spent([], 1e-6).epsilon == 0.0
    assert spent([plain(1.0, 1e-3)] * 2, 1e-3).epsilon == math.inf
    assert spent([plain(0.0, 0.0)], 1e-6).epsilon == 0.0


def test_pure_releases_at_delta_0_add_up() -> None:
    assert spent([plain(0.5), plain(0.25)], 0.0).epsilon == 0.75


def test_too_many_releases() -> None:
    with pytest.raises(InvalidInputError, match="more than"):
        spent([plain(0.1)] * (MOST_RELEASES + 1), 1e-6)
