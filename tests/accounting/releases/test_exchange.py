"""Mechanisms of other tools: events of dp-accounting as releases, and what a group of people is promised."""

from __future__ import annotations

import json
import math
from itertools import product
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from accounting import Adjacency, InvalidInputError, View
from accounting.numerics.profile import Pair, symmetric_delta
from accounting.releases.adaptive import AdaptiveFilter
from accounting.releases.composing import spent
from accounting.releases.exchange import Sensitivity, event_costs
from accounting.releases.plan_curves import implied_curve
from accounting.releases.profile_points import Profile
from accounting.releases.release import Release

BOTH = Sensitivity.ADD_OR_REMOVE
SAMPLED = dp.PoissonSampledDpEvent(0.02, dp.GaussianDpEvent(1.5))


def gaussian_delta(shift: float, epsilon: float) -> float:
    """δ of normal noise of deviation 1 moved by `shift`: the textbook formula."""
    return float(ndtr(shift / 2 - epsilon / shift) - math.exp(epsilon) * ndtr(-shift / 2 - epsilon / shift))


def sampled_delta(share: float, noise: float, epsilon: float) -> float:
    """δ of a sampled Gaussian with opposite contributions, summed on a fine grid: never above the truth by much."""
    line = np.linspace(-12.0 * noise, 12.0 * noise, 400_001)

    def density(center: float) -> Any:
        return np.exp(-(((line - center) / noise) ** 2) / 2.0) / (noise * math.sqrt(2.0 * math.pi))

    upper = (1.0 - share) * density(0.0) + share * density(1.0)
    lower = (1.0 - share) * density(0.0) + share * density(-1.0)
    return float(np.sum(np.maximum(upper - math.exp(epsilon) * lower, 0.0)) * (line[1] - line[0]))


# Single laws ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sensitivity", "shift"), [(Sensitivity.REPLACE, 0.5), (Sensitivity.ADD_OR_REMOVE, 1.0)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 3.0])
def test_gaussian_noise_against_its_formula(sensitivity: Sensitivity, shift: float, epsilon: float) -> None:
    """Never below, and at most 1 % above. Replacing a record moves a sum twice as far as removing one."""
    profile, _ = event_costs(dp.GaussianDpEvent(2.0), sensitivity)
    truth = gaussian_delta(shift, epsilon)
    assert truth > 1e-12
    assert truth <= profile.delta(epsilon) <= 1.01 * truth


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.3, 0.5])
def test_a_sampled_gaussian_against_a_sum_over_its_densities(epsilon: float) -> None:
    profile, _ = event_costs(SAMPLED, BOTH)
    truth = sampled_delta(0.02, 1.5, epsilon)
    assert truth > 1e-9
    assert truth * (1.0 - 1e-6) <= profile.delta(epsilon) <= 1.02 * truth


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("contributions", [(1.0, 0.0), (1.0, 0.5), (0.6, -1.0), (0.3, 0.2)])
def test_opposite_contributions_are_the_worst(contributions: tuple[float, float], epsilon: float) -> None:
    """Whatever two records add (docs/proofs/releases.md, section 6), no other pair is above the one that is used."""
    line = np.linspace(-15.0, 15.0, 100_001)

    def law(center: float) -> Any:
        sampled = 0.02 * np.exp(-(((line - center) / 1.5) ** 2) / 2.0)
        return (sampled + 0.98 * np.exp(-((line / 1.5) ** 2) / 2.0)) / (1.5 * math.sqrt(2.0 * math.pi))

    excess = np.maximum(law(contributions[0]) - math.exp(epsilon) * law(contributions[1]), 0.0)
    profile, _ = event_costs(SAMPLED, BOTH)
    assert float(np.sum(excess) * (line[1] - line[0])) <= profile.delta(epsilon)


@given(st.floats(0.3, 20.0), st.floats(0.0, 1.0))
@settings(max_examples=15, deadline=None)
def test_laplace_noise_against_its_formula(noise: float, share: float) -> None:
    """1 − e^{(ε − ε₀)/2} up to ε₀, and pure from there on."""
    profile, _ = event_costs(dp.LaplaceDpEvent(noise), Sensitivity.REPLACE)
    epsilon = share / noise
    truth = -math.expm1((epsilon - 1.0 / noise) / 2.0)
    assert truth <= profile.delta(epsilon) <= 1.01 * truth + 1e-3
    assert profile.epsilon(0.0) == pytest.approx(1.0 / noise, rel=1e-8)


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.7])
def test_discrete_laplace_and_randomized_response_against_their_masses(epsilon: float) -> None:
    at = np.arange(-200, 201)
    upper, lower = (np.exp(-0.5 * np.abs(at - shift)) for shift in (0, 2))
    noise = Pair(upper=upper / upper.sum(), lower=lower / lower.sum())
    found, _ = event_costs(dp_event.DiscreteLaplaceDpEvent(0.5, 1), BOTH)
    assert noise.hockey_stick(epsilon) * (1.0 - 1e-7) <= found.delta(epsilon) <= 1.01 * noise.hockey_stick(epsilon)
    answers = Pair(upper=np.array([0.7, 0.1, 0.1, 0.1]), lower=np.array([0.1, 0.7, 0.1, 0.1]))
    found, _ = event_costs(dp_event.RandomizedResponseDpEvent(0.4, 4), Sensitivity.REPLACE)
    assert answers.hockey_stick(epsilon) * (1.0 - 1e-7) <= found.delta(epsilon) <= 1.01 * answers.hockey_stick(epsilon)


# Composition ----------------------------------------------------------------------------------------------------------


MANY = dp.SelfComposedDpEvent(SAMPLED, 50)
MIXED = dp.ComposedDpEvent([dp.GaussianDpEvent(3.0), dp.SelfComposedDpEvent(SAMPLED, 20), dp.NoOpDpEvent()])


@pytest.mark.parametrize(
    ("event", "delta"),
    [
        (MANY, 1e-9),
        (MIXED, 1e-3),
        *(pytest.param(MANY, delta, marks=pytest.mark.slow) for delta in (1e-3, 1e-6)),
        *(pytest.param(MIXED, delta, marks=pytest.mark.slow) for delta in (1e-6, 1e-9)),
    ],
)
def test_composed_events_beside_the_accountant_of_dp_accounting(event: Any, delta: float) -> None:
    """Both round up: within 1 % of each other, ours not below by more than the rounding of theirs."""
    profile, _ = event_costs(event, BOTH)
    theirs = PLDAccountant(dp.NeighboringRelation.REPLACE_ONE).compose(event).get_epsilon(delta)
    assert profile.epsilon(delta) == pytest.approx(theirs, rel=1e-2)
    assert profile.epsilon(delta) >= theirs - 2e-3


@pytest.mark.parametrize("times", [2, 7])
def test_repetitions_are_counted(times: int) -> None:
    """Also of randomized response, whose repetitions dp-accounting 0.6.0 forgets: against all outcomes, enumerated."""
    response = dp_event.RandomizedResponseDpEvent(0.5, 2)
    found, _ = event_costs(dp.SelfComposedDpEvent(response, times), Sensitivity.REPLACE)
    listed, _ = event_costs(dp.ComposedDpEvent([response] * times), Sensitivity.REPLACE)
    truths = [sum(answers) for answers in product((0, 1), repeat=times)]
    pair = Pair(
        upper=np.array([0.75**n * 0.25 ** (times - n) for n in truths]),
        lower=np.array([0.25**n * 0.75 ** (times - n) for n in truths]),
    )
    assert found == listed
    for epsilon in (0.0, 0.5, 0.9 * times * math.log(3.0)):
        truth = pair.hockey_stick(epsilon)
        assert truth * (1.0 - 1e-7) <= found.delta(epsilon) <= 1.02 * truth


def test_order_and_nesting_do_not_matter() -> None:
    one, other = dp.GaussianDpEvent(4.0), dp.LaplaceDpEvent(5.0)
    nested = dp.SelfComposedDpEvent(dp.ComposedDpEvent([one, other]), 3)
    listed = dp.ComposedDpEvent([other, dp.SelfComposedDpEvent(one, 3), dp.SelfComposedDpEvent(other, 2)])
    for epsilon in (0.0, 1.0, 2.0):
        ours, theirs = (event_costs(event, BOTH)[0].delta(epsilon) for event in (nested, listed))
        assert ours == pytest.approx(theirs, rel=1e-6)


def test_the_curve_is_that_of_the_same_noise() -> None:
    """ρ = α(α − 1)s²/2 for normal noise moved by s; what it implies is above the profile, and of use."""
    profile, curves = event_costs(dp.SelfComposedDpEvent(dp.GaussianDpEvent(8.0), 4), BOTH)
    (curve,) = curves
    assert curve.cut == 0.0
    for order, rho in curve.points[::20]:
        assert rho == pytest.approx(order * (order - 1.0) * 0.25 / 2.0, rel=1e-6)
    release = Release.of_event(
        "query", dp.SelfComposedDpEvent(dp.GaussianDpEvent(8.0), 4), sensitivity=BOTH, delta=1e-6
    )
    found = spent([release], 1e-6)
    assert profile.epsilon(1e-6) <= found.renyi <= 1.2 * profile.epsilon(1e-6)


def test_an_event_that_only_the_profile_knows_has_no_curve() -> None:
    assert event_costs(dp.ComposedDpEvent([SAMPLED, dp.GaussianDpEvent(2.0)]), BOTH)[1] == ()


def test_the_accountants_of_dp_accounting_disagree_on_replacing() -> None:
    """Why `sensitivity` is stated: for REPLACE_ONE, one of them doubles the shift of normal noise."""
    event, relation = dp.GaussianDpEvent(4.0), dp.NeighboringRelation.REPLACE_ONE
    doubled = PLDAccountant(relation).compose(event).get_epsilon(1e-6)
    assert doubled == pytest.approx(event_costs(event, Sensitivity.ADD_OR_REMOVE)[0].epsilon(1e-6), rel=2e-3)
    assert RdpAccountant([2.0], relation).compose(event).rdp[0] == pytest.approx(2.0 / (2.0 * 4.0**2))


# Releases -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event", [dp.GaussianDpEvent(5.0), dp.LaplaceDpEvent(3.0), dp.SelfComposedDpEvent(SAMPLED, 10), dp.NoOpDpEvent()]
)
def test_a_release_from_an_event(event: Any) -> None:
    release = Release.of_event("elsewhere", event, sensitivity="add-or-remove-one", delta=1e-6, times=3)
    assert (release.guarantee.adjacency, release.guarantee.view) == (Adjacency.RECORD, View.MODEL)
    (part,) = release.parts
    assert part.profile.delta(release.guarantee.epsilon) <= 1e-6 * (1.0 + 1e-8)
    document = json.loads(json.dumps(release.to_json(), allow_nan=False))
    assert Release.from_json(document) == release
    rule = AdaptiveFilter.for_budget(20.0, 1e-5)
    assert release.guarantee.epsilon <= rule.spent([release]) <= 20.0 or event == dp.NoOpDpEvent()


@pytest.mark.parametrize(
    ("event", "sensitivity", "message"),
    [
        (SAMPLED, "replace-one", "contribution of one record"),
        (dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1.0)), "add-or-remove-one", "no law"),
        (dp.SampledWithoutReplacementDpEvent(100, 5, dp.GaussianDpEvent(1.0)), "add-or-remove-one", "no law"),
        (dp.PoissonSampledDpEvent(0.1, dp.ComposedDpEvent([SAMPLED])), "add-or-remove-one", "no law"),
        (dp.NonPrivateDpEvent(), "replace-one", "no law"),
        (dp.GaussianDpEvent(0.0), "replace-one", "noise=0"),
        (dp.GaussianDpEvent(0.05), "replace-one", "more noise"),
        (dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), 0), "replace-one", "count=0"),
        (dp.PoissonSampledDpEvent(1.5, dp.GaussianDpEvent(1.0)), "add-or-remove-one", "sampling_probability"),
        (dp.GaussianDpEvent(1.0), "remove-one", "sensitivity"),
        ("gaussian", "replace-one", "no law"),
    ],
)
def test_what_has_no_law_is_refused(event: Any, sensitivity: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Release.of_event("a", event, sensitivity=sensitivity, delta=1e-6)


def test_normal_noise_promises_nothing_at_delta_0() -> None:
    with pytest.raises(InvalidInputError, match="larger delta"):
        Release.of_event("a", dp.GaussianDpEvent(1.0), sensitivity="replace-one", delta=0.0)


# To dp-accounting -----------------------------------------------------------------------------------------------------


@given(st.floats(0.05, 3.0), st.sampled_from([0.0, 1e-9, 1e-3]), st.floats(0.0, 4.0))
@settings(max_examples=40, deadline=None)
def test_a_profile_in_dp_accounting_is_never_below_itself(epsilon: float, delta: float, at: float) -> None:
    profile = Profile.below(implied_curve(epsilon, delta))
    exported = profile.to_pld(1e-3).get_delta_for_epsilon(at)
    assert profile.delta(at) <= exported <= profile.delta(at) * (1.0 + 1e-6) + 1e-3 * epsilon


def test_profiles_compose_in_dp_accounting() -> None:
    """With each other, with themselves and with a mechanism of theirs: at or above, and close to, the exact product."""
    profile = Profile.below(implied_curve(0.5, 0.0))
    pair = Pair(
        upper=np.array([1.0, math.exp(0.5)]) / (1 + math.exp(0.5)),
        lower=np.array([math.exp(0.5), 1.0]) / (1 + math.exp(0.5)),
    )
    three = Pair(
        upper=np.kron(np.kron(pair.upper, pair.upper), pair.upper),
        lower=np.kron(np.kron(pair.lower, pair.lower), pair.lower),
    )
    own = profile.to_pld()
    for composed in (own.self_compose(3), own.compose(own).compose(own)):
        found = composed.get_epsilon_for_delta(1e-2)
        assert three.hockey_stick(found) <= 1e-2 * (1.0 + 1e-6)
        assert three.hockey_stick(found - 1e-2) > 1e-2
    with_noise = own.compose(privacy_loss_distribution.from_gaussian_mechanism(2.0))
    assert with_noise.get_epsilon_for_delta(1e-6) > own.get_epsilon_for_delta(1e-6)


# Groups ---------------------------------------------------------------------------------------------------------------


def test_a_group_of_one_is_the_promise_itself() -> None:
    profile = Profile.below(implied_curve(1.0, 1e-6))
    assert profile.for_group(1) is profile


@pytest.mark.parametrize("size", [2, 3, 10])
@pytest.mark.parametrize("step", [0.1, 0.5])
def test_a_group_under_discrete_laplace_noise(size: int, step: float) -> None:
    """Shifted by k: never below the exact law, and above it by less than 1 %."""
    at = np.arange(-600, 601)
    masses = np.exp(-step * np.abs(at))

    def shifted(by: int) -> Pair:
        upper, lower = np.exp(-step * np.abs(at)), np.exp(-step * np.abs(at - by))
        return Pair(upper=upper / masses.sum(), lower=lower / masses.sum(), missing=1e-20)

    alone = Profile.below([(0.0, shifted(1).hockey_stick(0.0)), (step, 0.0)])
    group = alone.for_group(size)
    for share in (0.0, 0.3, 0.7, 0.95):
        truth = shifted(size).hockey_stick(share * size * step)
        assert truth * (1.0 - 1e-7) <= group.delta(share * size * step) <= 1.01 * truth
    assert group.epsilon(0.0) == pytest.approx(size * step, rel=1e-6)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 4.0])
def test_a_group_under_normal_noise(size: int, epsilon: float) -> None:
    knots = np.linspace(0.0, 9.0, 900)
    alone = Profile.below((float(knot), gaussian_delta(0.7, float(knot))) for knot in knots)
    truth = gaussian_delta(0.7 * size, epsilon)
    assert truth > 1e-10
    assert truth <= alone.for_group(size).delta(epsilon) <= 1.01 * truth


def shuffled(bits: list[int], flip: float) -> Any:
    """The law of how many ones leave a shuffler, by convolution of each user's answer."""
    law = np.ones(1)
    for bit in bits:
        one = 1.0 - flip if bit else flip
        law = np.convolve(law, [1.0 - one, one])
    return law


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("others", [[0, 0, 0], [0, 0, 1], [1, 1, 1]])
def test_a_group_in_a_shuffle_against_brute_force(size: int, others: list[int]) -> None:
    """k users of a shuffled randomized response replace their bits at once: never below the truth, over all ε."""
    users, flip, epsilons = size + 3, 0.3, np.linspace(0.0, 4.0, 81)
    neighbors = [
        Pair(upper=shuffled([0, *rest], flip), lower=shuffled([1, *rest], flip))
        for rest in ([1] * ones + [0] * (users - 1 - ones) for ones in range(users))
    ]
    alone = Profile.below((float(at), symmetric_delta(neighbors, float(at))) for at in epsilons)
    group = alone.for_group(size)
    changed = Pair(upper=shuffled([0] * size + others, flip), lower=shuffled([1] * size + others, flip))
    truths = [symmetric_delta([changed], float(at)) for at in epsilons]
    assert max(truths) > 0.3
    for at, truth in zip(epsilons, truths, strict=True):
        assert truth * (1.0 - 1e-9) <= group.delta(float(at))


@given(st.floats(0.05, 2.0), st.sampled_from([0.0, 1e-8, 1e-3]), st.integers(2, 12))
@settings(max_examples=30, deadline=None)
def test_the_profile_of_a_group_is_no_worse_than_the_formula_for_one_point(
    epsilon: float, delta: float, size: int
) -> None:
    group = Profile.below(implied_curve(epsilon, delta)).for_group(size)
    formula = delta * math.expm1(size * epsilon) / math.expm1(epsilon)
    assert group.delta(min(200.0, size * epsilon * (1.0 + 1e-8) + 1e-9)) <= min(1.0, formula) * (1.0 + 1e-6)
    assert group.delta(0.0) >= Profile.below(implied_curve(epsilon, delta)).delta(0.0)


def test_a_group_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="size"):
        Profile.below(implied_curve(1.0, 0.0)).for_group(1001)


def test_the_largest_group_of_a_profile_without_end() -> None:
    far = Profile.below(implied_curve(150.0, 1e-30)).for_group(1000)
    assert far.delta(0.0) == pytest.approx(1.0)
    assert far.end <= 200.0
