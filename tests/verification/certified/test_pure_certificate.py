"""Pure's condition for every count: against enumeration, and what it refuses."""

from __future__ import annotations

import dataclasses
import math

import mpmath
import pytest
from flint import ctx

from accounting import InvalidInputError
from verification.certified import pure_certificate
from verification.certified.balls import ONE, exact
from verification.certified.pure_certificate import Condition

HONEST = Condition(
    epsilon=2.0, noise_epsilon=1.5, silence=0.6, base=2, shape=4.0, continuing=0.5, largest_loss=0.0, kept={}
)  # fmt: skip


def condition(**changes: float) -> Condition:
    return dataclasses.replace(HONEST, largest_loss=0.0, kept={}, **changes)  # type: ignore[arg-type]


def largest_loss(c: Condition, size: int = 48) -> float:
    """The largest loss of one instance on {0, …, size − 1}², from the definition: who speaks sends s + b and s."""
    with mpmath.workdps(60):
        x, q, s = mpmath.exp(-mpmath.mpf(c.noise_epsilon)), mpmath.mpf(c.silence), c.base
        p, r = mpmath.mpf(c.continuing), mpmath.mpf(c.shape)
        flood = [mpmath.gammaprod([j + r], [r, j + 1]) * p**j for j in range(size + s + 1)]
        noise = [
            [mpmath.fsum(flood[z] * x ** (u + v - 2 * z) for z in range(min(u, v) + 1)) for v in range(size)]
            for u in range(size)
        ]

        def speaking(u: int, v: int, bit: int) -> mpmath.mpf:
            return noise[u - s - bit][v - s] if u >= s + bit and v >= s else mpmath.mpf(0)

        worst = mpmath.mpf(0)
        for u in range(size):
            for v in range(size):
                one, zero = (q * noise[u][v] + (1 - q) * speaking(u, v, bit) for bit in (1, 0))
                worst = max(worst, abs(mpmath.log(one / zero)))
        return float(worst)


@pytest.mark.parametrize(
    ("changes", "proved"),
    [
        ({}, True),
        ({"silence": 0.05}, False),
        ({"silence": 0.1, "base": 1}, True),
        ({"silence": 0.05, "shape": 1.0}, False),
        ({"continuing": 0.75, "silence": 0.1}, True),
        ({"silence": 0.1, "noise_epsilon": 1.9}, True),
    ],
    ids=str,
)
def test_losses_are_those_of_enumeration(changes: dict[str, float], proved: bool) -> None:
    """No loss that is evaluated is larger than all of them; none is above ε where the condition holds."""
    bounds, truth = condition(**changes).bounds(), largest_loss(condition(**changes), 20)
    assert 0.7 * truth < bounds.lower <= truth * (1.0 + 1e-12)
    assert (bounds.upper is not None) == proved == (truth <= HONEST.epsilon)


@pytest.mark.parametrize("changes", [{"silence": 0.9}, {"silence": 0.95, "epsilon": 1.6}], ids=str)
def test_conditions_that_hold_are_proved(changes: dict[str, float]) -> None:
    c = condition(**changes)
    assert largest_loss(c, 32) <= c.epsilon
    assert c.bounds().upper == c.epsilon
    assert 0.0 < c.bounds().lower <= c.epsilon


def test_the_smallest_silence_is_found_to_a_thousandth() -> None:
    """Between the silence that is proved and the one whose losses exceed ε there is next to nothing."""
    low, high = 0.0, 1.0
    while high - low > 1e-4:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if condition(silence=middle).bounds().upper is not None else (middle, high)
    assert 0.01 < low < high < 0.999
    assert condition(silence=low - 1e-3).bounds().lower > HONEST.epsilon
    assert largest_loss(condition(silence=low - 1e-3), 32) > HONEST.epsilon


@pytest.mark.parametrize(
    "changes",
    [{"silence": 0.01}, {"noise_epsilon": 2.1, "silence": 0.9}],
    ids=str,
)
def test_what_is_not_so_is_not_proved(changes: dict[str, float]) -> None:
    bounds = condition(**changes).bounds()
    assert bounds.upper is None
    assert pure_certificate.NOT_DECIDED in bounds.notes


def test_series_against_sums() -> None:
    """a(u)/P_F(u) by its definition."""
    c = condition()
    with mpmath.workdps(50):
        x, p, r = mpmath.exp(-mpmath.mpf(c.noise_epsilon)), mpmath.mpf(c.continuing), mpmath.mpf(c.shape)
        flood = [mpmath.gammaprod([j + r], [r, j + 1]) * p**j for j in range(60)]
        for u in (0, 1, 2, 7, 59):
            truth = mpmath.fsum(x ** (2 * j) * flood[u - j] for j in range(u + 1)) / flood[u]
            assert float(c.series(u)) == pytest.approx(float(truth), rel=1e-14)
    with mpmath.workdps(200), ctx.workprec(640):
        u, square = 600, (-2 * exact(c.noise_epsilon)).exp()
        value, term = ONE, ONE
        for k in range(u, 0, -1):
            term *= square * k / ((exact(c.shape) + (k - 1)) * exact(c.continuing))
            value += term
        assert c.series(u).overlaps(value), "what is left of the series is counted"


def test_long_intervals_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pure_certificate, "MOST_INTERVALS", 1)
    assert condition(silence=0.07).bounds().upper is None
    monkeypatch.setattr(pure_certificate, "LONGEST_SERIES", 1)
    bounds = condition(silence=0.9).bounds()
    assert bounds.upper is None
    assert "series" in bounds.notes[0]
    assert math.isfinite(bounds.lower)


def test_a_flood_that_is_not_log_concave_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="flood_shape"):
        condition(shape=0.9, silence=0.9).bounds()
