"""Laws of one instance: their balls contain fractions, and what they do not list is their missing mass."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache

import mpmath
import pytest

from tests.slow_twins import response_pair
from tests.verification.certified.enclosures import ends, growth, holds
from verification.certified import noise_laws
from verification.certified.balls import ONE, ZERO, Ball, NotCertifiedError, exact, total
from verification.certified.noise_laws import Masses, TwoLaws
from verification.exact.brute_force import precise_negative_binomial, precise_poisson
from verification.twins.bitsum_twins import ThreeNegativeBinomialTwin

WHOLE = 1e-200
"""A tail that leaves nothing out of a finite law."""


def stick(laws: TwoLaws, epsilon: float) -> Ball:
    """The hockey stick, if who sees the output is told whether it is listed."""
    gamma = exact(epsilon).exp()
    return laws.missing + total([(p - gamma * q).max(ZERO) for p, q in zip(laws.one, laws.zero, strict=True)])


@pytest.mark.parametrize("trials", [0, 1, 2, 7, 30])
@pytest.mark.parametrize("p", [Fraction(1, 64), Fraction(3, 8), Fraction(15, 16)])
def test_binomial_masses(trials: int, p: Fraction) -> None:
    found = noise_laws.binomial(trials, exact(float(p)), WHOLE)
    truth = [math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]
    assert found.start == 0
    assert all(holds(value, mass) for value, mass in zip(found.values, truth, strict=True))
    assert holds(found.missing, Fraction(0))


def test_a_window_lacks_what_it_does_not_list() -> None:
    p = Fraction(3, 8)
    found = noise_laws.binomial(60, exact(0.375), 1e-3)
    truth = [math.comb(60, k) * p**k * (1 - p) ** (60 - k) for k in range(61)]
    listed = truth[found.start : found.start + len(found.values)]
    assert 0 < found.start < found.start + len(found.values) < 61
    assert all(holds(value, mass) for value, mass in zip(found.values, listed, strict=True))
    assert holds(found.missing, 1 - sum(listed, Fraction(0)))


def contains_precise(found: Masses, precise: object) -> None:
    with mpmath.workdps(60):
        for k, value in enumerate(found.values, found.start):
            low, high = (mpmath.mpf(end.numerator) / end.denominator for end in ends(value))
            mass = precise(k)  # type: ignore[operator]
            assert low - mass * mpmath.mpf(10) ** -55 <= mass <= high + mass * mpmath.mpf(10) ** -55
            assert high - low < mass * mpmath.mpf(10) ** -25
        left = 1 - mpmath.fsum(precise(k) for k in range(found.start, found.start + len(found.values)))  # type: ignore[operator]
        low, high = (mpmath.mpf(end.numerator) / end.denominator for end in ends(found.missing))
        assert low <= left <= high


@pytest.mark.parametrize("mean", [0.25, 7.5, 300.0])
def test_poisson_masses(mean: float) -> None:
    contains_precise(noise_laws.poisson(exact(mean), 1e-12), precise_poisson(mean))


@pytest.mark.parametrize(("shape", "p"), [(1.0, 0.5), (2.0, 0.75), (0.3, 0.5), (16.5, 0.9), (747.3, 0.25)])
def test_negative_binomial_masses(shape: float, p: float) -> None:
    with mpmath.workdps(60):
        contains_precise(
            noise_laws.negative_binomial(exact(shape), exact(p), 1e-12), precise_negative_binomial(shape, p)
        )


@pytest.mark.parametrize("shape", [1, 2])
def test_negative_binomial_masses_of_whole_shape_are_rational(shape: int) -> None:
    p = Fraction(3, 4)
    found = noise_laws.negative_binomial(exact(shape), exact(0.75), 1e-9)
    truth = [math.comb(k + shape - 1, k) * (1 - p) ** shape * p**k for k in range(len(found.values))]
    assert found.start == 0
    assert all(holds(value, mass) for value, mass in zip(found.values, truth, strict=True))


def test_a_law_that_is_too_wide_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_laws, "MOST_MASSES", 1000)
    with pytest.raises(NotCertifiedError):
        noise_laws.poisson(exact(1e6), 1e-12)


@pytest.mark.parametrize(("ones", "dropped"), [(0, 0), (1, 0), (3, 2), (0, 4), (8, 0), (2, 6)])
def test_response_with_ones_and_reports_that_were_given_away(ones: int, dropped: int) -> None:
    """Without `dropped` of 8 others, of whom `ones` hold 1."""
    flip = Fraction(5, 32)
    found = noise_laws.response(9, exact(float(flip)), ones, dropped, WHOLE)
    pair = response_pair([1] * ones + [0] * (8 - dropped - ones), flip)
    for balls, law in ((found.one, pair.upper), (found.zero, pair.lower)):
        assert all(holds(ball, mass) for ball, mass in zip(balls, law, strict=True))


def test_response_in_a_window_is_not_better_than_it_is() -> None:
    flip, n = Fraction(1, 4), 40
    found = noise_laws.response(n, exact(0.25), 12, 0, 1e-3)
    pair = response_pair([1] * 12 + [0] * (n - 13), flip)
    assert len(found.one) < n + 1
    for epsilon in (0.0, 0.05, 0.2):
        low, high = growth(epsilon)
        for laws, way in ((found, pair), (found.reversed(), pair.reversed())):
            assert way.hockey_stick(high) <= ends(stick(laws, epsilon))[1]
            assert ends(stick(laws, epsilon))[0] <= way.hockey_stick(low) + 2 * Fraction(1, 50)


def test_other_directions_and_mixtures() -> None:
    laws = noise_laws.response(3, exact(0.25), 0, 0, WHOLE)
    assert (laws.reversed().one, laws.reversed().zero) == (laws.zero, laws.one)
    mixed, pair = laws.mixed(ONE / 2, ONE), response_pair([0, 0], Fraction(1, 4))
    assert all(holds(x, (p + q) / 2) for x, p, q in zip(mixed.one, pair.upper, pair.lower, strict=True))
    assert all(holds(x, p) for x, p in zip(mixed.zero, pair.upper, strict=True))
    few = TwoLaws(one=[ONE / 2], zero=[ONE / 4])
    assert (few.missing, few.reversed().missing) == (ONE / 2, 3 * ONE / 4)


def test_a_shifted_count() -> None:
    noise = Masses(start=3, values=[ONE / 2, ONE / 4])
    assert noise_laws.shifted(noise) == TwoLaws(one=[ZERO, ONE / 2, ONE / 4], zero=[ONE / 2, ONE / 4, ZERO])


# --- 3NB ------------------------------------------------------------------------------------------

P, FLOOD, SIZE = Fraction(1, 4), Fraction(1, 4), 28


@cache
def plane(k: int, flood_shape: int) -> list[list[Fraction]]:
    """f_0 on {0, …, SIZE − 1}² by its definition, in fractions."""

    def law(shape: int, p: Fraction) -> list[Fraction]:
        return [math.comb(j + shape - 1, j) * (1 - p) ** shape * p**j for j in range(SIZE)]

    g, flood = law(k, P), law(flood_shape, FLOOD)
    return [
        [sum((flood[z] * g[u - z] * g[v - z] for z in range(min(u, v) + 1)), Fraction(0)) for v in range(SIZE)]
        for u in range(SIZE)
    ]


def plane_sticks(k: int, flood_shape: int, gamma: Fraction) -> tuple[Fraction, Fraction]:
    """Both hockey sticks on this square, and nothing beyond."""
    f = plane(k, flood_shape)
    up = down = Fraction(0)
    for u, v in itertools.product(range(SIZE), repeat=2):
        one, zero = (f[u - 1][v] if u else Fraction(0)), f[u][v]
        up += max(one - gamma * zero, Fraction(0))
        down += max(zero - gamma * one, Fraction(0))
    return up, down


def three(k: int, flood_shape: float, tail: float = 1e-16) -> TwoLaws:
    flood = noise_laws.negative_binomial(exact(flood_shape), exact(float(FLOOD)), tail)
    return noise_laws.three_negative_binomials(k, exact(float(P)), flood, tail)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("flood_shape", [1, 2])
def test_three_negative_binomials_have_the_hockey_sticks_of_the_plane(k: int, flood_shape: int) -> None:
    """The square lacks less than 1e-10 of either law."""
    laws = three(k, flood_shape)
    for epsilon in (0.0, 0.4, 1.0, 1.8, 2.5):
        low, high = growth(epsilon)
        for found, least, most in zip(
            (laws, laws.reversed()), plane_sticks(k, flood_shape, high), plane_sticks(k, flood_shape, low), strict=True
        ):
            bottom, top = ends(stick(found, epsilon))
            assert least <= top
            assert bottom <= most + Fraction(1, 10**10)
    assert plane_sticks(k, flood_shape, growth(0.4)[0])[0] > Fraction(1, 1000)


@pytest.mark.parametrize("k", [2, 3])
def test_groups_of_smaller_counts_are_rounded_upwards(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = three(k, 1)
    monkeypatch.setattr(noise_laws, "SINGLES", 1)
    monkeypatch.setattr(noise_laws, "GROUPS_PER_DEVIATION", 0.25)
    coarse = three(k, 1)
    assert len(coarse.one) < len(fine.one)
    for side in ("one", "zero"):
        assert ends(total(getattr(coarse, side)) - total(getattr(fine, side))) < (Fraction(1, 10**15),) * 2
    worst = 0.0
    for epsilon in (0.0, 0.2, 0.4, 0.6, 1.0, 1.2, 1.8, 2.5):
        for crude, way in ((coarse, fine), (coarse.reversed(), fine.reversed())):
            excess = stick(crude, epsilon) - stick(way, epsilon)
            assert ends(excess)[1] >= 0
            worst = max(worst, float(excess))
    assert worst > 1e-3, "the groups were too small to be seen"


@pytest.mark.parametrize(("k", "refused"), [(1, False), (2, True)])
def test_groups_need_a_flood_that_is_log_concave(k: int, refused: bool) -> None:
    """Below shape 1 the likelihood ratio need not grow along a row, and ends of groups bound nothing."""
    twin = ThreeNegativeBinomialTwin(
        n_users=10, noise_shape=k, continue_probability=0.5, flood_shape=0.3, flood_continue_probability=0.5
    )
    if refused:
        with pytest.raises(NotCertifiedError, match="flood"):
            twin.certified_laws(1e-9)
    else:
        assert ends(twin.certified_laws(1e-9).missing)[1] < Fraction(1, 10**6)
