"""Theorem 3 at a witness: never below enumeration of small systems, or its own definition, and planted errors."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import pytest
from flint import acb, ctx
from scipy import integrate

from tests.plans import plan_for
from tests.verification.certified.enclosures import planted
from tests.verification.certified.test_squared_shifts import SYSTEMS, bounded, budget_of, corners_of, systems
from verification.certified import checker
from verification.certified import complex_orders as contour
from verification.certified.balls import ONE, exact
from verification.certified.certificate import certify, recheck
from verification.certified.complex_orders import Contour, Piece, Spectrum, contouring
from verification.certified.neighbors import neighbors
from verification.certified.squared_shifts import Corners, Cut
from verification.certified.witness import Contouring


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer frequencies, intervals and parts: valid as well, and quicker."""
    monkeypatch.setattr(contour, "RANGES", ((0.3, 20), (2.0, 15), (6.0, 20)))
    monkeypatch.setattr(contour, "EDGES", (0.0, 0.05, 0.15, 0.4, 0.7, 1.0))
    monkeypatch.setattr(contour, "PARTS", 6)


@pytest.mark.parametrize("system", SYSTEMS[:3], ids=str)
def test_theorem_3_is_never_below_enumeration(system: Any) -> None:
    n_users, flip, instances, square, steps, largest = system
    corners, budget = corners_of(n_users, flip), budget_of(square, instances, largest)
    chosen = contouring(corners, budget, 1e-2)
    assert chosen is not None
    found = list(systems(n_users, flip, instances, square, steps))
    for order in (chosen[1].order, 2.5, 7.0):
        where = Contouring(order=order, square=chosen[1].square, linear=0.0, deviation=chosen[1].deviation)
        assert bounded(Contour.of(corners, budget, where), found)
    assert float(Contour.of(corners, budget, chosen[1]).delta(5.0)) < 0.5


@pytest.mark.parametrize(
    "where",
    [
        Contouring(order=1.2, square=0.0, linear=0.0, deviation=1.0),
        Contouring(order=3.0, square=0.02, linear=0.05, deviation=0.01),
        Contouring(order=40.0, square=0.3, linear=0.2, deviation=30.0),
    ],
    ids=str,
)
def test_any_witness_is_valid(where: Contouring) -> None:
    """A bad one proves less, or nothing."""
    corners, budget = corners_of(2, Fraction(1, 8)), budget_of(Fraction(1, 2), 2)
    bound = Contour.of(corners, budget, where)
    exact_ones = list(systems(2, Fraction(1, 8), 2, Fraction(1, 2), 2))
    assert not bound.log_integral.is_finite() or bounded(bound, exact_ones)


def spectrum_holds(module: Any) -> bool:
    """ln|M_t(α + iω)| from its definition, at nodes, for shifts inside the intervals, both corners of a skewed pair."""
    corners = Corners([exact(-0.3), exact(0.9)], [exact(3.0) / 4, ONE / 4], exact(0.0))
    budget, where = budget_of(Fraction(1), 2, 0.9), Contouring(order=4.0, square=0.0, linear=0.0, deviation=0.6)
    edges = (0.0, *(0.05 * 20.0 ** (i / 24) for i in range(24)), 1.0)
    module.RANGES, module.EDGES, module.PARTS = ((0.3, 20),), edges, 1
    found = module.Spectrum.of(corners, budget, where, Cut(0.0, 0.0))
    for j, share in itertools.product((0, 3, 9, 18), [0.02, *(i / 80 for i in range(8, 80))]):
        t, s = exact(0.9 * share), acb(exact(where.order), found.frequencies[j])
        for power in (s, ONE - s):
            grown = [(q, (ONE + t * g).log()) for g, q in zip(corners.gains, corners.lower, strict=True)]
            size = abs(sum((q * (power * x).exp() for q, x in grown), acb(0)))
            if not size.log() <= t * t * found.rates[j] + t * found.units[j] + exact(1e-20):
                return False
    return True


ERRORS = {
    "one corner only": ("for away in (False, True):", "for away in (True,):"),
    "parts are straight": ("rest = step * step / 8 * curvature", "rest = 0 * curvature"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_planted_errors_are_found(name: str) -> None:
    assert spectrum_holds(planted(contour, "PARTS = 16", "PARTS = 16  "))
    assert not spectrum_holds(planted(contour, *ERRORS[name]))


def test_the_interpolation_error_covers_heavy_tails() -> None:
    """One wide interval and a rare outcome: m inside differs from the cubic by no more than is said."""
    with ctx.workprec(96):
        gains, lower = [exact(-0.3), exact(9.0)], [exact(30.0) / 31, ONE / 31]
        corners = Corners(gains, lower, exact(0.0))
        order, steps = exact(12.0), [exact(0.5)] * 20
        piece = Piece.of(corners, (0.05, 0.9), Cut(0.0, 0.0), order)
        powers = [acb(order, exact(0.5) * j) for j in range(21)]
        sixth, forgotten = piece.derivative(order, 4), 0
        for a, ends in zip(powers, piece.moments(powers, steps), strict=True):
            (p, q), (dp, dq) = ends.values, ends.steps
            for share in (0.25, 0.5, 0.75):
                x, t = exact(share), exact(0.05) + (exact(0.9) - exact(0.05)) * exact(share)
                cubic = p + x * (dp + x * (3 * (q - p) - 2 * dp - dq + x * (2 * (p - q) + dp + dq)))
                true = sum(
                    (w * ((ONE + t * g) ** a - ONE - a * t * g) for g, w in zip(gains, lower, strict=True)), acb(0)
                ) / (t * t)
                width = exact(0.9) - exact(0.05)
                error = width**4 / 384 * contour._falling(a, 6) * sixth
                assert abs(cubic - true) <= error
                forgotten += bool(abs(cubic - true) > exact(0.01))
        assert forgotten > 10


def log_integral(module: Any, spread: float, step: float, count: int) -> float:
    """A spectrum that is e² at ω = 0 and nearly nothing at all other nodes."""
    with ctx.workprec(96):
        omegas = [exact(step) * j for j in range(count + 1)]
        rates = [exact(2.0), *[exact(-20.0)] * count]
        one = module.Spectrum(exact(2.0), omegas, rates, [exact(0.0)] * len(omegas), exact(spread), exact(0.0))
        return float(one.log_integral(budget_of(Fraction(1), 1, 0.05)))


@pytest.mark.parametrize(
    ("honest", "wrong", "spread", "step", "count"),
    [
        ("eighth * self.spread", "0 * self.spread", 1e3, 1.5, 400),
        ("whole += (exponents[0] - smooth * end * end).exp() / end", "whole += ZERO", 1.0, 0.2, 5),
    ],
    ids=["nothing between frequencies", "the tail forgotten"],
)
def test_what_is_not_known_counts_as_at_frequency_zero(
    honest: str, wrong: str, spread: float, step: float, count: int
) -> None:
    """Between the nodes, if the second derivative may be large, and beyond the last one: e²/|s(s − 1)| there."""
    start, end = (0.0, 400.0) if spread > 1.0 else (1.0, 400.0)
    unknown, _ = integrate.quad(
        lambda w: math.exp(2.0) / math.sqrt((4.0 + w * w) * (1.0 + w * w)) / math.pi, start, end
    )
    assert log_integral(contour, spread, step, count) >= math.log(unknown)
    assert log_integral(planted(contour, honest, wrong), spread, step, count) < math.log(unknown)


@pytest.mark.slow
def test_a_plan_of_many_small_shifts_is_proved_by_theorem_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    plan = plan_for(kernel="inner-product", users=3000, dim=64, epsilon=2.0, delta=1e-5, bitsum="rr")
    found = certify(plan)
    assert found.proves, found.headline
    assert found.witness is not None
    assert found.witness.contour is not None
    assert found.witness.cutting is None
    assert recheck(plan, found) == []


def test_schedules_are_left_to_theorem_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of a later release may depend on an earlier one, and Theorem 3 is about fixed shifts."""
    asked: list[int] = []
    monkeypatch.setattr(checker, "_contour", lambda *_: asked.append(1))
    for releases, tried in ((1, 1), (2, 0)):
        asked.clear()
        plan = plan_for(
            kernel="inner-product", users=300, dim=40, epsilon=2.0, delta=1e-3, bitsum="rr", releases=releases,
            accountant="geometric", allow_useless=True,
        )  # fmt: skip
        with ctx.workprec(160):
            found = checker.upper(plan, neighbors(plan), 1e-3).witness
        assert len(asked) == tried
        assert found.cutting is not None


def test_a_spectrum_keeps_its_frequencies() -> None:
    corners, budget = corners_of(3, Fraction(1, 4)), budget_of(Fraction(1), 2)
    where = Contouring(order=4.0, square=0.0, linear=0.0, deviation=0.5)
    found = Spectrum.of(corners, budget, where, Cut(0.0, 0.0))
    assert found.frequencies[0] == exact(0.0)
    assert float(found.frequencies[1]) == pytest.approx(0.6)
    assert len(found.frequencies) == len(found.rates) == 1 + 20 + 15 + 20
