"""Theorem 3: never below enumeration or any split, each of its parts from its definition, and planted errors."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import integrate

from accounting.composition import Geometric, Touched, contour
from accounting.composition.contour import Contour, Frequencies, Interval, Spectrum, edges, spectrum
from accounting.composition.geometric import GeometricBound
from accounting.composition.shifted import Cut, Remainders, remainders
from accounting.mechanisms import GaussianMechanism, PoissonNoise, RandomizedResponse
from accounting.numerics.losses import DominatingLoss, Repeated
from accounting.numerics.pmf import Array
from accounting.numerics.profile import LossGrid, Pair, ProfileTable, symmetric_table
from tests.verification.certified.enclosures import planted

EPSILONS = (0.05, 0.2, 0.5, 1.0)


def touching(total: int, square: float, largest: float = 1.0) -> Touched:
    return Touched(groups=total, per_group=1, squared_shift=square, largest_shift=largest)


def random_pair(rng: np.random.Generator) -> tuple[Array, Array]:
    size, scale = int(rng.integers(2, 6)), float(rng.choice([0.05, 0.2, 0.6]))
    upper, lower = np.exp(scale * rng.normal(size=(2, size)))
    return upper / np.sum(upper), lower / np.sum(lower)


def loss_of(upper: Array, lower: Array) -> DominatingLoss:
    pair = Pair(upper=upper, lower=lower)
    grid = LossGrid.for_pair(pair, n_compositions=1, negligible=1e-12)
    return DominatingLoss.from_table(symmetric_table([ProfileTable.of_pair(pair, grid)]))


def split(rng: np.random.Generator, total: int, square: float, largest: float) -> Array:
    """Shifts with Σ t² = square and t ≤ largest: even ones, uneven ones, a few as large as they may be."""
    squares = np.minimum(rng.dirichlet(np.full(total, rng.choice([0.3, 1.0, 50.0]))) * square, largest**2)
    for _ in range(60):
        room = largest**2 - squares
        squares += np.minimum(room, (square - np.sum(squares)) * room / max(float(np.sum(room)), 1e-300))
    return np.sqrt(squares)


def composed(upper: Array, lower: Array, shifts: Array, flips: tuple[bool, ...]) -> tuple[Array, Array]:
    """All outcomes of instances that shift *toward* or *away*."""
    ones, zeros = np.ones(1), np.ones(1)
    for t, flip in zip(shifts.tolist(), flips, strict=True):
        mixed = (1.0 - t) * lower + t * upper
        one, zero = (lower, mixed) if flip else (mixed, lower)
        ones, zeros = np.multiply.outer(ones, one).ravel(), np.multiply.outer(zeros, zero).ravel()
    return ones, zeros


def test_no_split_of_the_squared_shifts_exceeds_the_bound() -> None:
    """Random pairs, all corners, random and extreme splits, all outcomes enumerated; somewhere it is nearly tight."""
    rng, closest, seen = np.random.default_rng(1), math.inf, 0
    for _ in range(40):
        upper, lower = random_pair(rng)
        largest, total = float(rng.choice([0.5, 1.0])), int(rng.integers(1, 6))
        square = float(rng.uniform(0.2, 1.0)) * total * largest**2
        touched = touching(total, square, largest)
        cuts = (Cut(0.0, 0.0), Cut.spending(1e-6, touched, linear=0.0), Cut.spending(1e-3, touched, linear=0.5))
        bound = Contour.of(loss_of(upper, lower), touched, cuts)
        worst = np.zeros(len(EPSILONS))
        for _ in range(8):
            shifts = split(rng, total, square, largest)
            assert float(np.sum(shifts**2)) == pytest.approx(square)
            for flips in itertools.product((False, True), repeat=total):
                ones, zeros = composed(upper, lower, shifts, flips)
                sticks = [float(np.sum(np.maximum(ones - math.exp(e) * zeros, 0.0))) for e in EPSILONS]
                worst = np.maximum(worst, sticks)
        for epsilon, exact in zip(EPSILONS, worst.tolist(), strict=True):
            claimed, _ = bound.delta(epsilon)
            assert exact <= claimed
            if exact > 1e-9:
                seen, closest = seen + 1, min(closest, claimed / exact)
    assert seen > 60
    assert closest < 1.4


# --- the spectrum, from its definition ------------------------------------------------------------


def moment(corner: Remainders, interval: Interval, t: float, power: complex) -> complex:
    """E_q[(p̂/q)^s] of the cut corner at a shift, with s = `power` for *toward* and 1 − `power` for *away*."""
    gains = corner.gains
    if power.real > 0.0:
        return complex(corner.lower @ np.exp(power * np.log(1.0 + t * np.minimum(gains, interval.gains[-1]))))
    kept = 1.0 + t * np.maximum(gains, interval.gains[-1])
    return complex((corner.lower * (1.0 + t * gains)) @ np.exp((power - 1.0) * np.log(kept)))


def limits(found: Any, omega: float, t: float) -> float:
    """What a spectrum says of ln|M_t| at any frequency, node or not."""
    nodes = found.frequencies.values
    j = min(int(np.searchsorted(nodes, omega, side="right")) - 1, len(nodes) - 2)
    share = (omega - nodes[j]) / (nodes[j + 1] - nodes[j])
    rate, unit = ((1.0 - share) * values[j] + share * values[j + 1] for values in (found.rates, found.units))
    between = found._between(np.diff(nodes))[j] if 0.0 < share < 1.0 else 0.0
    return float((rate + between) * t**2 + unit * t)


def rare_pair(rng: np.random.Generator) -> tuple[Array, Array]:
    """A rare outcome tells much, in either direction."""
    mass, gain = float(rng.choice([1e-3, 1e-2])), float(rng.uniform(1.5, 20.0))
    lower = np.array([mass, 1.0 - mass - mass * gain, mass * gain])
    return lower[::-1].copy(), lower


def spectrum_holds(module: Any, draws: int = 25) -> bool:
    """Every shift and frequency, of both corners: random pairs, orders, cuts."""
    rng = np.random.default_rng(3)
    for _ in range(draws):
        upper, lower = random_pair(rng)
        loss, largest = loss_of(upper, lower), float(rng.choice([0.4, 1.0]))
        touched = touching(8, 4.0 * largest**2, largest)
        cut = Cut.spending(float(rng.choice([0.0, 1e-3, 0.1])), touched, linear=float(rng.choice([0.0, 0.5])))
        order, corners = float(rng.choice([1.5, 3.0, 7.0, 20.0])), remainders(loss)
        found = module.spectrum(corners, loss.infinite, touched, cut, order)
        nodes = found.frequencies.values[:60]
        omegas = np.concatenate([rng.choice(nodes, 6), rng.uniform(0.0, nodes[-1], 6)])
        ends = module.edges(largest)
        for omega, (u, v) in itertools.product(omegas.tolist(), itertools.pairwise(ends)):
            for corner, power in zip(corners, (order + 1j * omega, 1.0 - order - 1j * omega), strict=True):
                interval = Interval.of(corner, u, v, cut, -1.0)
                for t in (v, float(rng.uniform(u, v))):
                    size = abs(moment(corner, interval, t, power))
                    if math.log(max(size, 1e-300)) > limits(found, omega, t) + 1e-12:
                        return False
    return True


def pieces_hold(module: Any, parts: int, share: float, draws: int = 40) -> bool:
    """Single intervals [share·v, v] of one corner, at frequencies of the spectrum, by shifts inside."""
    rng = np.random.default_rng(4)
    module.PARTS = parts
    for _ in range(draws):
        loss = loss_of(*(rare_pair(rng) if rng.random() < 0.7 else random_pair(rng)))
        above, order = float(rng.choice([0.4, 0.9])), float(rng.choice([2.5, 3.0, 7.0, 20.0]))
        frequencies = module.Frequencies.of(float(rng.choice([0.3, 1.0, 3.0])))
        for corner, sign in zip(remainders(loss), (1.0, -1.0), strict=True):
            real = order if sign > 0.0 else 1.0 - order
            powers = real + sign * 1j * frequencies.values
            interval = module.Interval.of(corner, share * above, above, Cut(0.0, 0.0), real)
            (ends,) = module._moments([interval], powers, frequencies)
            bound = module._inside if share > 0.0 else module._lowest
            unit = interval.unit(powers, loss.infinite)
            with np.errstate(all="ignore"):
                rates = bound(interval, ends, powers, unit)
            for t, j in itertools.product(np.linspace(share * above, above, 9)[1:].tolist(), range(0, 50, 7)):
                size = abs(moment(corner, interval, t, complex(powers[j])))
                spare = unit[j] / t if share == 0.0 else 0.0
                if math.log(max(size, 1e-300)) / t**2 > rates[j] + spare + 1e-9:
                    return False
    return True


def wide(module: Any) -> None:
    """Few intervals and parts: no error can hide behind a fine partition."""
    module.SMALLEST_SHIFT, module.GROWTH, module.WIDEST, module.PARTS = 0.3, 2.0, 1.0, 2


@pytest.mark.parametrize("partition", ["fine", "wide"])
def test_the_spectrum_bounds_every_shift_and_frequency(partition: str) -> None:
    module = planted(contour, "PARTS = 16", "PARTS = 16  ")
    if partition == "wide":
        wide(module)
    assert spectrum_holds(module)


@pytest.mark.parametrize("order", [1.2, 1.9, 5.0, 40.0])
def test_an_outcome_that_only_one_law_has_is_cut_or_nothing_is_claimed(order: float) -> None:
    """At t = 1 its likelihood ratio is infinite, and so are all moments, also of orders near 1."""
    lower = np.array([0.5, 0.5 - 1e-6, 1e-6])
    loss, touched = loss_of(np.array([0.6, 0.4, 0.0]), lower), touching(4, 2.0)
    assert loss.infinite > 1e-7
    for cut, finite in ((Cut(0.0, 0.0), False), (Cut(1e-4, 1e-4), True)):
        found = spectrum(remainders(loss), loss.infinite, touched, cut, order)
        assert math.isfinite(found.log_integral(touched.shift_budget, touched.total)) is finite


def test_a_spread_that_is_no_number_bounds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, touched = loss_of(*random_pair(np.random.default_rng(5))), touching(4, 2.0)
    spreads = iter([0.1, math.nan, *[0.1] * 1000])
    monkeypatch.setattr(Interval, "spread", lambda self, power: next(spreads))
    assert spectrum(remainders(loss), loss.infinite, touched, Cut(0.0, 0.0), 3.0).spread == math.inf


@pytest.mark.parametrize(
    ("law", "total", "square", "delta"),
    [
        (PoissonNoise(n_users=2608, total_mean=14.218650225393604), 39, 39.0, 4.130992088952907e-05),
        (RandomizedResponse(n_users=5248, flip_probability=0.004208796824941194), 2, 0.014395715790677376, 0.06008),
        (RandomizedResponse(n_users=2, flip_probability=1e-4), 10, 1e-12, 1e-3),
    ],
    ids=["no mass left", "overflow", "all moments vanish"],
)
def test_cuts_that_leave_next_to_nothing_of_an_outcome(law: Any, total: int, square: float, delta: float) -> None:
    """What is cut may weigh more than a double holds: then nothing is claimed, and nothing fails."""
    bound = GeometricBound.of(law, touching(total, square), delta, certified=False)
    assert bound.contour.epsilon(delta) > 0.0
    assert 0.0 < bound.delta(3.0) <= 1.0


def test_the_spectrum_is_nearly_attained() -> None:
    """At real orders and at the integrand's frequencies: little is lost over shifts and between frequencies."""
    law = RandomizedResponse(n_users=30_000, flip_probability=0.0052)
    touched = touching(384, 28.83)
    loss = GeometricBound.of(law, touched, 1e-6, certified=False).loss
    corners, cut = remainders(loss), Cut.spending(1e-8, touched, linear=0.0)
    found = spectrum(corners, loss.infinite, touched, cut, 11.0)
    for j in (0, 5, 15):
        omega, largest = float(found.frequencies.values[j]), -math.inf
        for corner, power in zip(corners, (11.0 + 1j * omega, -10.0 - 1j * omega), strict=True):
            for t in np.linspace(0.02, 0.98, 49).tolist():
                interval = Interval.of(corner, t, t, cut, -1.0)
                largest = max(largest, math.log(abs(moment(corner, interval, t, power))) / t**2)
        assert math.isfinite(found.rates[j])
        assert largest <= found.rates[j] <= largest + 0.02 * abs(found.rates[0])
    assert math.isfinite(found.spread)


# --- the integral ---------------------------------------------------------------------------------


def gaussian_spectrum(order: float, frequencies: Frequencies) -> Spectrum:
    """One unit of t² is a Gaussian loss of variance 1: M_t = e^{t²(s² − s)/2}."""
    omega = frequencies.values
    rates = (order**2 - order - omega**2) / 2.0
    return Spectrum(order, frequencies, rates, np.zeros(len(omega)), 1.2, 0.05, 0.04 * 0.2 / frequencies.ranges[0][0])


@pytest.mark.parametrize(("budget", "epsilon"), [(0.2, 2.0), (0.05, 0.5), (1.0, 4.0)])
def test_the_integral_of_a_gaussian(budget: float, epsilon: float) -> None:
    """Many small shifts are the Gaussian mechanism, whose δ is known: the integral is that and little more."""
    exact = GaussianMechanism(sensitivity=math.sqrt(budget), standard_deviation=1.0).delta(epsilon)
    frequencies = Frequencies.of(math.sqrt(budget))
    found = [
        gaussian_spectrum(order, frequencies).log_integral(budget, 10**6) - (order - 1.0) * epsilon
        for order in (1.0 + np.geomspace(2.0, 60.0, 60)).tolist()
    ]
    assert exact <= math.exp(min(found)) <= 1.25 * exact


def test_powers_by_multiplication() -> None:
    logs = np.linspace(-2.0, 2.0, 7)
    frequencies = Frequencies.of(0.7)
    exact = np.exp(1j * np.multiply.outer(logs, frequencies.values))
    assert np.max(np.abs(frequencies.waves(logs) - exact)) < 1e-11
    assert frequencies.values[0] == 0.0
    assert len(set(np.diff(frequencies.values).round(9))) == len(contour.RANGES)


def test_an_outcome_that_vanishes_at_the_largest_shift_claims_nothing() -> None:
    """*Away* at t = 1 with g = −1 kept, while something may be lost: an infinite bound, not an error."""
    interval = Interval(0.9, 1.0, np.array([0.5, -1.0]), np.array([0.7, 0.3]), 1e-9)
    assert np.all(np.isinf(interval.unit(np.array([-3.0 + 1.0j]), 0.0)))
    assert np.all(np.isfinite(interval.unit(np.array([4.0 + 1.0j]), 0.0)))


@pytest.mark.parametrize("largest", [0.5, 1.0])
def test_intervals_cover_all_shifts(largest: float) -> None:
    ends = edges(largest)
    assert ends[0] == 0.0
    assert ends[-1] == largest
    assert ends == sorted(set(ends))


# --- planted errors -------------------------------------------------------------------------------


def coarsely(module: Any) -> bool:
    wide(module)
    return spectrum_holds(module, 80)


def sparsely(module: Any) -> bool:
    """Frequencies that are far apart, or end early: still at least the integral of the Gaussian's spectrum."""
    for order, ranges in itertools.product((2.0, 3.0), (((1.5, 6000.0),), ((0.2, 1.0),))):
        frequencies = module.Frequencies.of(1.0, ranges)
        omega = frequencies.values
        one = module.Spectrum(order, frequencies, (order**2 - order - omega**2) / 2.0, 0.0 * omega, 1.0, 0.05, 0.0)

        def integrand(w: float, a: float = order) -> float:
            return math.exp((a**2 - a - w**2) / 2.0) / math.sqrt((a**2 + w**2) * ((a - 1.0) ** 2 + w**2)) / math.pi

        exact, _ = integrate.quad(integrand, 0.0, 40.0)
        if one.log_integral(1.0, 1) < math.log(exact) - 1e-6:
            return False
    return True


ERRORS: dict[str, tuple[str, str, Any]] = {
    "one corner only": (
        "for corner, powers in zip(corners, (complex_order, np.asarray(1.0 - complex_order)), strict=True):",
        "for corner, powers in [(corners[0], complex_order)]:",
        coarsely,
    ),
    "the linear term forgotten": (
        "unit = np.abs(powers) * (infinite", "unit = 0.0 * np.abs(powers) * (infinite", coarsely,
    ),
    "the error of interpolation forgotten": (
        "error = width**4 / 384.0", "error = 0.0 * width**4", partial(pieces_hold, parts=400, share=0.05),
    ),
    "parts are straight": ("step**2 / 8.0 * curvature", "0.0 * curvature", partial(pieces_hold, parts=1, share=0.6)),
    "the error of the lowest chord forgotten": (
        "error = v**2 / 8.0", "error = 0.0", partial(pieces_hold, parts=1, share=0.0),
    ),
    "nothing between frequencies": (
        "bulge += widths**2 / 8.0 * self.spread", "bulge += 0.0 * widths * self.spread", sparsely,
    ),
    "the tail forgotten": ("total += math.exp(-smooth * omega[-1] ** 2) / omega[-1]", "total += 0.0", sparsely),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_planted_errors_are_found(name: str) -> None:
    honest, wrong, law = ERRORS[name]
    assert law(planted(contour, "PARTS = 16", "PARTS = 16  "))
    assert not law(planted(contour, honest, wrong))


# --- plans ----------------------------------------------------------------------------------------


def test_the_bound_is_the_smaller_of_both_theorems() -> None:
    """Many shifts: Theorem 3, and Theorem 1 is not even computed; few: Theorem 1 counts again."""
    law = RandomizedResponse(n_users=30_000, flip_probability=0.0052)
    many = GeometricBound.of(law, touching(384, 28.83), 1e-6, certified=False)
    assert many.delta(2.0) == pytest.approx(many.contour.delta(2.0)[0], rel=1e-8)
    assert not many.moments
    few = GeometricBound.of(
        RandomizedResponse(n_users=30_000, flip_probability=6e-4), touching(768, 1.0), 1e-6, certified=False
    )
    assert few.delta(2.0) < few.contour.delta(2.0)[0]
    assert few.moments


def test_shifts_that_depend_on_what_was_seen_are_left_to_theorem_1() -> None:
    """In a schedule a later record may depend on an earlier release: then the phases of moments need not cancel."""
    law, once = RandomizedResponse(n_users=3_000, flip_probability=0.05), touching(64, 4.0)
    assert not once.adaptive
    schedule, at_once = once.repeated(2), touching(128, 8.0)
    found, more = (GeometricBound.of(law, some, 1e-6, certified=False) for some in (schedule, at_once))
    epsilon = more.epsilon(1e-6)
    moments = float(np.min(found.any_data.delta(8.0, np.array([epsilon]))))
    assert found.delta(epsilon) == pytest.approx(moments, rel=1e-8)
    assert found.delta(epsilon) > 2.0 * more.delta(epsilon)
    assert found.epsilon(1e-6) > epsilon


def test_epsilon_is_where_the_bound_reaches_delta() -> None:
    law, touched = PoissonNoise(n_users=1000, total_mean=40.0), touching(100, 4.0)
    bound = GeometricBound.of(law, touched, 1e-6, certified=True)
    found = bound.epsilon(1e-6)
    assert bound.delta(found) <= 1e-6 < bound.delta(found * (1.0 - 2e-5))
    assert Geometric().achieved_epsilon(law, touched, 1e-6) == found


def test_noise_for_many_small_shifts_is_nearly_what_a_spike_among_them_needs() -> None:
    """Inner product in 384 dimensions: planned noise is within 3 % of what one composed split of Δ² needs."""
    touched, delta, epsilon = touching(384, 28.829184), 1e-6, 2.0
    planned, needed = 0.00508, 0.00480
    holds = RandomizedResponse(n_users=30_000, flip_probability=planned)
    assert Geometric().excess(holds, touched, epsilon, delta, certified=True) <= 0.0
    law = RandomizedResponse(n_users=30_000, flip_probability=needed)
    pair = law.pair(0)
    few, rest = 14, 384 - 14
    small = math.sqrt((touched.shift_budget - few) / rest)
    sticks = 0.0
    for upper, lower in ((pair.upper, pair.lower), (pair.lower, pair.upper)):
        laws = []
        for t in (1.0, small):
            mixed = (1.0 - t) * lower + t * upper
            laws.append((Pair(upper=lower, lower=mixed, missing=1e-20), Pair(upper=mixed, lower=lower, missing=1e-20)))
        for ways in itertools.product((0, 1), repeat=2):
            both = [laws[i][way] for i, way in enumerate(ways)]
            grid = LossGrid.for_pair(both[0], n_compositions=28, negligible=1e-12)
            tables = [DominatingLoss.from_table(ProfileTable.of_pair(one, grid)) for one in both]
            sticks = max(sticks, Repeated([(tables[0], few), (tables[1], rest)]).delta(epsilon))
    assert sticks > 0.9 * delta
    noise = [RandomizedResponse(n_users=30_000, flip_probability=p).rmse() for p in (planned, needed)]
    assert noise[0] < 1.03 * noise[1]
