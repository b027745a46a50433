"""Bounds from below: never above enumeration in fractions, and close to it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from tests.slow_twins import compose, repeated_response_delta
from tests.strategies import exact_pairs, searched
from tests.verification.certified.enclosures import around, ends, laws_of, planted, surely_at_most
from verification.certified import composed_loss, noise_laws
from verification.certified.balls import ZERO, exact, total
from verification.certified.composed_loss import LowerProfile
from verification.certified.noise_laws import TwoLaws
from verification.exact.rational_twins import ExactPair, response_pairs

EPSILONS = (0.0, 0.4, 1.0, 1.7, 2.5)
WHOLE = 1e-200


@pytest.mark.parametrize("times", [1, 2, 3, pytest.param(5, marks=pytest.mark.slow)])
def test_never_above_the_exact_composition(times: int) -> None:
    pair = response_pairs(9, Fraction(1, 8))[0]
    for way in (pair, pair.reversed()):
        whole = compose([way] * times)
        found = LowerProfile.of(laws_of(way), times)
        for epsilon in EPSILONS:
            bound = found.delta(epsilon)
            assert surely_at_most(bound, whole.hockey_stick, epsilon)
            truth = float(around(whole.hockey_stick, epsilon)[0])
            if epsilon <= 1.0:
                assert float(bound) >= 0.95 * truth > 1e-3, "close, where it matters"


@searched(given(exact_pairs(infinite_losses=False)), examples=15, study=500)
def test_one_pair_is_bounded_whatever_it_is(pair: ExactPair) -> None:
    for times in (1, 2):
        whole, found = compose([pair] * times), LowerProfile.of(laws_of(pair), times)
        assert all(surely_at_most(found.delta(epsilon), whole.hockey_stick, epsilon) for epsilon in EPSILONS)


@pytest.mark.parametrize("delta", [0.1, 1e-2])
def test_the_epsilon_that_is_found_costs_more_than_delta(delta: float) -> None:
    pair = response_pairs(6, Fraction(1, 8))[0]
    found, whole = LowerProfile.of(laws_of(pair), 3), compose([pair] * 3)
    epsilon = found.epsilon(delta)
    assert epsilon > 0.5
    assert around(whole.hockey_stick, epsilon)[1] >= Fraction(delta)
    assert around(whole.hockey_stick, 1.03 * epsilon)[1] < Fraction(delta), "sharp to 3 %"


def test_nothing_is_found_where_nothing_is_lost() -> None:
    pair = response_pairs(6, Fraction(31, 64))[0]
    assert LowerProfile.of(laws_of(pair), 1).epsilon(0.5) == 0.0


@pytest.mark.parametrize("times", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_many_bits(times: int) -> None:
    """One bit, sent so often without others: δ(ε) is a binomial sum."""
    flip = Fraction(2, 5) if times == 60 else Fraction(31, 64)
    found = LowerProfile.of(noise_laws.response(1, exact(float(flip)), 0, 0, WHOLE), times)
    for epsilon in (2.0, 5.0, 8.0):
        truth = float(repeated_response_delta(Fraction(float(flip)), times, epsilon))
        assert 0.9 * truth < float(found.delta(epsilon)) <= truth * (1 + 1e-15)


@pytest.mark.parametrize(("times", "flip"), [(2_000, 0.49), pytest.param(100_000, 0.4985, marks=pytest.mark.slow)])
def test_many_losses_stay_in_their_window(times: int, flip: float) -> None:
    """Rounding moves the sum of so many losses by as much as its deviation, and the window follows it."""
    found = LowerProfile.of(noise_laws.response(1, exact(flip), 0, 0, WHOLE), times)
    for epsilon in (1.0, 4.0, 10.0):
        ones = np.arange(times + 1)
        losses = (2.0 * ones - times) * math.log((1.0 - flip) / flip)
        logs, over = stats.binom.logpmf(ones, times, 1.0 - flip), losses > epsilon
        truth = float(np.sum(np.exp(logs[over]) * -np.expm1(epsilon - losses[over])))
        assert 0.9 * truth < float(found.delta(epsilon)) <= truth * (1.0 + 1e-9)


def bounds_parts(module: Any, pair: ExactPair, times: int) -> bool:
    """Whether what is not listed never helps: without the outcomes where the lower law has most."""
    laws, whole = laws_of(pair), compose([pair] * times)
    for start, stop in ((1, None), (0, -1), (2, -2)):
        part = TwoLaws(one=laws.one[start:stop], zero=laws.zero[start:stop])
        found = module.LowerProfile.of(part, times)
        if not all(surely_at_most(found.delta(e), whole.hockey_stick, e) for e in EPSILONS):
            return False
    return True


def whole_window(module: Any) -> bool:
    """Whether the two laws are those of the same set of sums, also if much is cut."""
    pair = response_pairs(5, Fraction(1, 8))[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "REACH", 0.5)
        found, whole = module.LowerProfile.of(laws_of(pair), 4), compose([pair] * 4)
    return all(surely_at_most(found.delta(e), whole.hockey_stick, e) for e in EPSILONS)


def windows_of_draws(module: Any) -> bool:
    """Whether a law on a window is bounded: what the lower law puts outside may lie anywhere."""
    laws, pair = noise_laws.response(30, exact(0.25), 0, 0, 0.02), response_pairs(30, Fraction(1, 4))[0]
    found = module.LowerProfile.of(laws.reversed(), 1)
    whole = pair.reversed()
    return all(surely_at_most(found.delta(e), whole.hockey_stick, e) for e in (0.0, 0.3, 0.6))


ERRORS: dict[str, tuple[str, str, Any]] = {
    "fewer of the lower law": ("sums.zero[place - first] += q", "sums.zero[place - first] += q / 2", whole_window),
    "another window": (
        "one[start:stop], zero[start:stop])",
        "one[start:stop], [*zero[start + 1 : stop], ZERO])",
        whole_window,
    ),
    "more instances": ("_power(single, times) if times > 1", "_power(single, times + 1) if times > 1", whole_window),
}


@pytest.mark.parametrize("name", ERRORS)
def test_planted_errors_are_found(name: str) -> None:
    honest, wrong, law = ERRORS[name]
    assert law(composed_loss)
    assert not law(planted(composed_loss, honest, wrong))


def test_outcomes_that_are_not_listed_do_not_help() -> None:
    pair = response_pairs(7, Fraction(1, 8))[0]
    assert bounds_parts(composed_loss, pair, 2)
    assert bounds_parts(composed_loss, pair.reversed(), 2)
    assert windows_of_draws(composed_loss)


def test_mass_of_the_lower_law_that_is_not_listed_counts_for_it() -> None:
    """Its mass lies in some outcome, here in the first; without the charge the bound would be false."""
    listed = TwoLaws(one=[exact(0.5), exact(0.5)], zero=[exact(0.125), exact(0.5)])
    pair = ExactPair(upper=(Fraction(1, 2), Fraction(1, 2)), lower=(Fraction(1, 2), Fraction(1, 2)))
    honest = LowerProfile.of(listed, 1)
    assert ends(honest.delta(0.0))[0] <= pair.hockey_stick(Fraction(1)) == 0
    broken = planted(composed_loss, "laws.reversed().missing * times", "ZERO")
    assert ends(broken.LowerProfile.of(listed, 1).delta(0.0))[0] > 0


def test_groups_of_3nb_are_merged_for_bounds_from_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """What dominates the output may not be used from below: the bound would be above the truth."""
    flood, p = noise_laws.negative_binomial(exact(1), exact(0.5), 1e-12), exact(0.5)
    fine = noise_laws.three_negative_binomials(2, p, flood, 1e-12)
    monkeypatch.setattr(noise_laws, "SINGLES", 1)
    monkeypatch.setattr(noise_laws, "GROUPS_PER_DEVIATION", 0.25)
    upwards, downwards = (
        noise_laws.three_negative_binomials(2, p, flood, 1e-12, downwards=down) for down in (False, True)
    )
    assert len(downwards.one) < len(upwards.one) < len(fine.one)
    for epsilon in (0.1, 0.3, 0.6):
        growth = exact(epsilon).exp()
        truth = total([(a - growth * b).max(ZERO) for a, b in zip(fine.one, fine.zero, strict=True)])
        assert LowerProfile.of(downwards, 1).delta(epsilon) <= truth + fine.missing
    assert LowerProfile.of(upwards, 1).delta(0.3) > truth + fine.missing + exact(1e-3)
