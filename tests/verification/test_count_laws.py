"""Twins of the laws of counts: against 40-digit tables, enumeration, and the tails that they are meant to bound."""

import itertools
import math
from collections import Counter

import mpmath
import numpy as np
import pytest
from scipy import stats

from accounting.mechanisms import BITSUMS
from accounting.pmf import Pmf
from verification.brute_force import Mass, precise_negative_binomial, precise_poisson
from verification.execution import count_laws as laws
from verification.execution.conduct import _descents, _matches
from verification.execution.stages import transparent

from .subjects import subject


def differs(law: Pmf, mass: Mass) -> float:
    """Largest relative error of a table at 60 of its places."""
    places = np.unique(np.linspace(law.start, law.stop - 1, 60).astype(int)).tolist()
    with mpmath.workdps(40):
        return max(abs(float(law.values[k - law.start] / mass(k) - 1)) for k in places if mass(k) > 1e-250)


@pytest.mark.parametrize(
    ("shape", "p"), [(1 / 30_000, 0.94), (1.5, 0.0625), (16.0, 0.97), (520.0, 0.997), (0.02, 0.99)]
)
def test_negative_binomial_is_that_of_its_definition(shape: float, p: float) -> None:
    law = laws.negative_binomial_table(shape, stop_probability=1.0 - p)
    assert differs(law, precise_negative_binomial(shape, 1.0 - (1.0 - p))) < 1e-11
    assert abs(float(np.sum(law.values)) - 1.0) < 1e-12
    assert law.missing <= 1e-20


@pytest.mark.parametrize("mean", [0.01, 1.5, 330.0])
def test_poisson_is_that_of_its_definition(mean: float) -> None:
    assert differs(laws.poisson_table(mean), precise_poisson(mean)) < 1e-11


@pytest.mark.parametrize("bitsum", BITSUMS)
@pytest.mark.parametrize(("total", "n_users"), [(0, 3), (2, 3), (3, 3)])
def test_a_tally_is_the_sum_of_its_users(bitsum: str, total: int, n_users: int) -> None:
    """Shares of noise add up, and so do inputs: n users at once equal one user after another."""
    law = transparent(subject(bitsum).plan, 5)
    at_once = laws.tally_tables(law, total, n_users)
    for name, table in at_once.items():
        single = [laws.tally_tables(law, int(user < total), 1)[name] for user in range(n_users)]
        assert difference(laws.plus(*single), table) < 1e-12


def difference(first: Pmf, second: Pmf) -> float:
    """Total variation distance."""
    start, stop = min(first.start, second.start), max(first.stop, second.stop)
    padded = [np.pad(law.values, (law.start - start, stop - law.stop)) for law in (first, second)]
    return float(np.sum(np.abs(padded[0] - padded[1]))) / 2.0


def test_a_long_convolution_agrees_with_a_short_one() -> None:
    long = laws.negative_binomial_table(20.0, stop_probability=0.004)
    assert len(long.values) ** 2 > laws.DIRECT
    both = laws.plus(long, long)
    assert both.missing >= laws.TRANSFORM_ERROR
    assert difference(both, laws.negative_binomial_table(40.0, stop_probability=0.004)) < 1e-12


@pytest.mark.parametrize("failure", [1e-2, 1e-8])
def test_the_radius_of_a_mean_bounds_the_exact_tail_and_is_not_idle(failure: float) -> None:
    n, p = 400, 0.1875
    radius = laws.mean_radius(laws.binomial_table(1, p), n, failure)
    tail = stats.binom.sf(math.floor(n * (p + radius)), n, p) + stats.binom.cdf(math.ceil(n * (p - radius)) - 1, n, p)
    assert tail <= failure
    shorter = 0.8 * radius
    tail = stats.binom.sf(math.floor(n * (p + shorter)), n, p) + stats.binom.cdf(math.ceil(n * (p - shorter)) - 1, n, p)
    assert tail > failure / 100.0
    assert laws.mean_radius(laws.point(3), n, failure) == 0.0


def test_descents_and_matches_by_enumeration() -> None:
    orders = list(itertools.permutations(range(5)))
    descents = Counter(sum(a > b for a, b in itertools.pairwise(order)) for order in orders)
    matches = Counter(sum(a == b for a, b in enumerate(order)) for order in orders)
    for law, counted in ((_descents(5), descents), (_matches(5), matches)):
        assert law.start == 0
        assert np.allclose(law.values, [counted[k] / len(orders) for k in range(len(law.values))], atol=1e-15)
