"""What kernels are judged by: order and outliers on data whose answers are known."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from accounting import InvalidInputError, PlanRequest
from accounting.comparing import compare_kernels
from accounting.kernels import KERNELS
from accounting.mechanisms import PoissonNoise
from privkde.learning import kernel_merits as merits_of
from privkde.learning.kernel_merits import kernel_merits

ASKED: dict[str, Any] = {"users": 100_000, "dim": 8, "epsilon": 4.0, "delta": 1e-6}


def pairs_of_signs(rows: int, seed: int = 0) -> NDArray[np.float32]:
    """Each coordinate is a fair sign and equals its neighbor: only two at a time tell rows from mixed vectors."""
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (rows, 4))
    return np.asarray(np.repeat(signs, 2, axis=1) / math.sqrt(8.0), dtype=np.float32)


def judged(kernel: str, sample: NDArray[np.float32], rmse: float, **further: Any) -> merits_of.KernelMerits:
    request = PlanRequest(**{**ASKED, **further}, kernel=kernel)
    return kernel_merits(request, PoissonNoise.with_rmse(rmse, request.users), sample)


def test_the_gaussian_kernel_finds_what_the_inner_product_cannot_see() -> None:
    """One in 16 mixed vectors is a row by chance; of the others a Gaussian density finds most."""
    sample = pairs_of_signs(1_000)
    gaussian, linear = judged("gaussian", sample, 10.0, repetitions=2_000), judged("inner-product", sample, 10.0)
    assert gaussian.outliers_found_exactly > 0.8
    assert gaussian.outliers_found > 0.75
    assert 0.4 < linear.outliers_found_exactly < 0.6
    assert gaussian.bandwidth is not None
    assert linear.bandwidth is None


@pytest.mark.parametrize("kernel", KERNELS)
def test_noise_that_drowns_everything_leaves_guessing(kernel: str) -> None:
    """The negative control; with little noise the order of densities is better than guessing."""
    sample = np.asarray(np.random.default_rng(1).normal(0.2, 0.2, (400, 8)), dtype=np.float32)
    further = {"repetitions": 200} if KERNELS[kernel].takes_repetitions else {}
    drowned, clear = judged(kernel, sample, 5e7, **further), judged(kernel, sample, 10.0, **further)
    assert 0.35 < drowned.wrong_order < 0.65
    assert 0.3 < drowned.outliers_found < 0.7
    assert clear.wrong_order < min(0.35, drowned.wrong_order)
    assert clear.outliers_found_exactly == drowned.outliers_found_exactly


def test_shares_of_pairs_are_counted_as_defined() -> None:
    exact, published = np.array([1.0, 2.0, 3.0, 3.0]), np.array([5.0, 4.0, 6.0, 0.0])
    # (1,2) wrong, (1,3) right, (1,3') wrong, (2,3) right, (2,3') wrong, (3,3') not counted
    assert merits_of._wrong_order(exact, published) == pytest.approx(3 / 5)
    assert merits_of._wrong_order(exact, np.zeros(4)) == 0.5
    assert merits_of._wrong_order(np.ones(3), np.arange(3.0)) == 0.5
    assert merits_of._found(np.array([1.0, 3.0, 2.0, 1.0]), 2) == pytest.approx((0.0 + 0.5 + 1.0 + 1.0) / 4)


def test_outliers_have_the_coordinates_and_the_lengths_of_rows() -> None:
    rows = pairs_of_signs(200)
    mixed = merits_of._outliers(rows, np.random.default_rng(2))
    assert np.linalg.norm(mixed, axis=1) == pytest.approx(np.linalg.norm(rows, axis=1), rel=1e-6)
    assert set(np.unique(np.round(mixed, 5))) == set(np.unique(np.round(rows, 5)))
    assert np.mean(mixed[:, 0] == mixed[:, 1]) < 0.7


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="19 rows"):
        judged("gaussian", pairs_of_signs(19), 1.0)
    with pytest.raises(InvalidInputError, match="classes"):
        judged("gaussian", pairs_of_signs(40), 1.0, classes=2)
    with pytest.raises(InvalidInputError, match="classes"):
        compare_kernels(PlanRequest(**ASKED, classes=2))


def test_all_kernels_are_compared_for_one_promise() -> None:
    request = PlanRequest(**ASKED, repetitions=20, kernel="laplacian", bias=0.5, accountant="basic")
    outcomes = {outcome.name: outcome for outcome in compare_kernels(request)}
    assert outcomes.keys() == set(KERNELS)
    assert all(outcome.protocol is not None for outcome in outcomes.values())
    assert outcomes["laplacian"].request == dataclasses.replace(request, allow_useless=True)
    assert outcomes["gaussian"].messages_per_user == 20
    assert outcomes["inner-product"].messages_per_user == 8
    assert outcomes["exponential"].messages_per_user == 40
