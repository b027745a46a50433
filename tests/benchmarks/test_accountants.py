"""Accountants as peers, as far as they need no further package: brackets hold, moments are bounded."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.peers.accountants import (
    StepLoss,
    dp_accounting_gaussian,
    dp_accounting_pld,
    dp_accounting_rdp,
    ours_advanced,
    ours_any_data,
    ours_ends,
    ours_gaussian,
    ours_gaussian_loss,
)
from benchmarks.peers.cases import Case, concentrated, worse_renyi

SUMS = Case.read({"users": 300, "flip_probability": 0.25, "times": 8, "delta": 1e-5})
NOISE = Case.read({"sigma": 8.0, "times": 30, "delta": 1e-6})


def test_every_accountant_of_sums_is_above_the_lower_end() -> None:
    bracket = dp_accounting_pld(SUMS, 1e-4)
    assert bracket.low is not None
    low = bracket.low()
    assert low <= bracket.high <= 1.01 * low  # tells something
    for answer in (ours_any_data, ours_ends, ours_advanced, dp_accounting_rdp):
        assert answer(SUMS).high >= low
    assert ours_any_data(SUMS).high >= ours_ends(SUMS).high * (1.0 - 1e-6)
    assert ours_ends(SUMS).high == pytest.approx(low, rel=5e-3)


def test_every_accountant_of_gaussians_is_above_the_closed_form() -> None:
    exact = ours_gaussian(NOISE).high
    for found in (ours_gaussian_loss(NOISE), dp_accounting_gaussian(NOISE, 1e-3), dp_accounting_rdp(NOISE)):
        assert found.high >= exact * (1.0 - 1e-9)
    assert ours_gaussian_loss(NOISE).high == pytest.approx(exact, rel=2e-3)


def test_concentration_bounds_the_divergence_of_every_order() -> None:
    pairs = SUMS.directions()
    rho = concentrated(pairs)
    orders = 1.0 + np.geomspace(1e-3, 1e6, 57)
    ratios = [worse_renyi(pairs, order) / order for order in orders]
    assert max(ratios) <= rho <= 1.01 * max(ratios)
    assert worse_renyi(pairs, math.inf) == pytest.approx(SUMS.sums.local_guarantee().epsilon, rel=1e-6)


def test_the_loss_as_a_distribution_function() -> None:
    pair, _ = SUMS.directions()
    loss = StepLoss(pair)
    assert loss.cdf(-math.inf) == 0.0
    assert loss.cdf(math.inf) == pytest.approx(1.0)
    for t in (-0.1, 0.0, 0.05):
        assert loss.cdf(t) == pytest.approx(float(np.sum(pair.upper[pair.losses() <= t])))
    assert loss.probability(-0.1, 0.05) == pytest.approx(loss.cdf(0.05) - loss.cdf(-0.1))
