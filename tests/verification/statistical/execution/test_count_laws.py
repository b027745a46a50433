"""Twins of the laws of counts: against 40-digit tables, enumeration, and the tails that they are meant to bound."""

import itertools
import math
from collections import Counter

import mpmath
import numpy as np
import pytest
from scipy import stats

from accounting.mechanisms import BITSUMS
from accounting.numerics.pmf import Pmf
from tests.verification.subjects import subject
from verification.exact.brute_force import Mass, precise_negative_binomial, precise_poisson
from verification.statistical.execution import count_laws as laws
from verification.statistical.execution.order import LARGE_MARKED, _descents, _hypergeometric, _matches
from verification.statistical.execution.stages import transparent
from verification.twins import mechanism_twin


def differs(law: Pmf, mass: Mass) -> float:
    """Largest relative error of a table at 60 of its places."""
    places = np.unique(np.linspace(law.start, law.stop - 1, 60).astype(int)).tolist()
    with mpmath.workdps(40):
        return max(abs(float(law.values[k - law.start] / mass(k) - 1)) for k in places if mass(k) > 1e-250)


@pytest.mark.parametrize(
    ("shape", "p"), [(1 / 30_000, 0.94), (1.5, 0.0625), (16.0, 0.97), (520.0, 0.997), (0.02, 0.99)]
)
def test_negative_binomial_is_that_of_its_definition(shape: float, p: float) -> None:
    law = laws.window(stats.nbinom(shape, 1.0 - p), laws.TAIL)
    assert differs(law, precise_negative_binomial(shape, 1.0 - (1.0 - p))) < 1e-11
    assert abs(float(np.sum(law.values)) - 1.0) < 1e-12
    assert law.missing <= 1e-20


@pytest.mark.parametrize("mean", [0.01, 1.5, 330.0])
def test_poisson_is_that_of_its_definition(mean: float) -> None:
    assert differs(laws.window(stats.poisson(mean), laws.TAIL), precise_poisson(mean)) < 1e-11


@pytest.mark.parametrize("bitsum", BITSUMS)
@pytest.mark.parametrize(("total", "n_users"), [(0, 3), (2, 3), (3, 3)])
def test_a_tally_is_the_sum_of_its_users(bitsum: str, total: int, n_users: int) -> None:
    """Shares of noise add up, and so do inputs: n users at once equal one user after another."""
    twin = mechanism_twin(transparent(subject(bitsum).plan, 5))
    at_once = twin.tally_tables(total, n_users)
    for name, table in at_once.items():
        single = [twin.tally_tables(int(user < total), 1)[name] for user in range(n_users)]
        assert difference(laws.plus(*single), table) < 1e-12


def difference(first: Pmf, second: Pmf) -> float:
    """Total variation distance."""
    start, stop = min(first.start, second.start), max(first.stop, second.stop)
    padded = [np.pad(law.values, (law.start - start, stop - law.stop)) for law in (first, second)]
    return float(np.sum(np.abs(padded[0] - padded[1]))) / 2.0


def test_a_long_convolution_agrees_with_a_short_one() -> None:
    long = laws.window(stats.nbinom(20.0, 0.004), laws.TAIL)
    assert len(long.values) ** 2 > laws.DIRECT
    both = laws.plus(long, long)
    exact = laws.window(stats.nbinom(40.0, 0.004), laws.TAIL)
    assert difference(both, exact) < 1e-12
    assert both.missing >= 2.0 * laws.TRANSFORM_ERROR


@pytest.mark.parametrize(("shape", "stop"), [(20.0, 0.004), (1e-5, 0.006), (1.0, 0.006)])
def test_a_transform_errs_by_much_less_than_is_granted(shape: float, stop: float) -> None:
    """Against sums of products, at some places: the values are lower bounds, also of narrow peaks and far tails."""
    law = laws.window(stats.nbinom(shape, stop), laws.TAIL)
    assert len(law.values) ** 2 > laws.DIRECT
    both = laws.plus(law, laws.times(law, -1))
    for k in (0, 1, 100, 3000, -3000, both.stop - 1):
        first, second = law.values[max(k, 0) :], law.values[max(-k, 0) :]
        size = min(len(first), len(second))
        exact, share = float(np.dot(first[:size], second[:size])), laws.TRANSFORM_ERROR / len(both.values)
        assert both.values[k - both.start] <= exact * (1.0 + 1e-14)
        assert exact * (1.0 - 1e-14) - 1.2 * share <= both.values[k - both.start]


@pytest.mark.parametrize("failure", [1e-2, 1e-8])
def test_the_radius_of_a_mean_bounds_the_exact_tail_and_is_not_idle(failure: float) -> None:
    n, p = 400, 0.1875
    radius = laws.mean_radius([laws.binomial_table(1, p)], n, failure)
    tail = stats.binom.sf(math.floor(n * (p + radius)), n, p) + stats.binom.cdf(math.ceil(n * (p - radius)) - 1, n, p)
    assert tail <= failure
    shorter = 0.8 * radius
    tail = stats.binom.sf(math.floor(n * (p + shorter)), n, p) + stats.binom.cdf(math.ceil(n * (p - shorter)) - 1, n, p)
    assert tail > failure / 100.0
    assert laws.mean_radius([laws.point(3)], n, failure) == 0.0


def test_the_radius_of_a_sum_is_that_of_its_parts() -> None:
    parts = [laws.binomial_table(7, 0.25), laws.times(laws.window(stats.poisson(1.5), laws.TAIL), -1)]
    assert laws.mean_radius(parts, 500, 1e-8) == pytest.approx(laws.mean_radius([laws.plus(*parts)], 500, 1e-8))


@pytest.mark.parametrize("shape", [1e-5, 1e-2, 1.0])
def test_the_radius_of_wide_and_rare_noise_bounds_its_mean(shape: float) -> None:
    """The sum of N draws of NB(r, p) is NB(Nr, p): its exact tails at the radius, which is not idle either."""
    n, failure, stop = 10_000, 1e-9, 0.006
    law, odds = laws.window(stats.nbinom(shape, stop), laws.TAIL), (1.0 - stop) / stop
    radius, total = laws.mean_radius([law], n, failure), stats.nbinom(n * shape, stop)
    assert total.sf(n * (shape * odds + radius)) + total.cdf(n * (shape * odds - radius)) <= failure
    assert total.sf(n * (shape * odds + 0.7 * radius)) > failure / 100.0
    both = laws.mean_radius([law, laws.times(law, -1)], n, failure)
    assert 0.9 * radius < both < 2.0 * radius  # the search over θ is not exact


def test_a_window_is_no_wider_than_it_must_be() -> None:
    law = stats.nbinom(0.5, 0.01)
    table = laws.window(law, 1e-12)
    assert table.start == 0
    assert law.sf(table.stop - 1) <= 1e-12 < law.sf(table.stop - 2)
    wide = laws.window(stats.poisson(1e4), 1e-12)
    assert stats.poisson(1e4).cdf(wide.start - 1) <= 1e-12 < stats.poisson(1e4).cdf(wide.start)
    assert abs(float(np.sum(wide.values)) - 1.0) < 1e-10


@pytest.mark.parametrize(("half", "step"), [(1, 1), (2, 1), (7, 1), (40, 1), (2_000, 1), (LARGE_MARKED, 128)])
def test_the_law_of_a_mixture_is_hypergeometric(half: int, step: int) -> None:
    law, total, ways = _hypergeometric(half), math.comb(2 * half, half), [1]
    for k in range(half):
        ways.append(ways[-1] * (half - k) // (k + 1))  # C(half, k + 1)
    exact = [chosen**2 / total for chosen in ways[::step]]
    assert law.values[::step] == pytest.approx(exact, rel=1e-11, abs=1e-300)
    assert float(np.sum(law.values)) == pytest.approx(1.0, abs=1e-12)
    assert (law.start, law.stop, law.missing) == (0, half + 1, 0.0)


def test_descents_and_matches_by_enumeration() -> None:
    orders = list(itertools.permutations(range(5)))
    descents = Counter(sum(a > b for a, b in itertools.pairwise(order)) for order in orders)
    matches = Counter(sum(a == b for a, b in enumerate(order)) for order in orders)
    for law, counted in ((_descents(5), descents), (_matches(5), matches)):
        assert law.start == 0
        assert np.allclose(law.values, [counted[k] / len(orders) for k in range(len(law.values))], atol=1e-15)
