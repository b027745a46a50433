"""Means and variances of densities: tests that hold their level, exact moments, honest systems, and faults."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from scipy import stats

from accounting import InvalidInputError
from privkde.bitsum import Tally
from privkde.bitsum.execution import Bitsum
from privkde.bitsum.randomized_response import RandomizedResponseBitsum
from privkde.bitsum.single_noise import PoissonNoiseBitsum
from privkde.draws.randomness import ByteStream, private_randomness
from privkde.engines import local
from privkde.kernels import KernelChoice
from privkde.protocol.model import FeatureSums
from tests.plans import plan_for
from verification import miniature
from verification.evidence import MeasuredErrors
from verification.exact.brute_force import precise_negative_binomial, precise_poisson, table
from verification.exact.rational_twins import sum_of_bits
from verification.statistical.densities import density_checks as densities
from verification.statistical.densities.robust_means import MISSED, influence, mean_test, smallest_stretch
from verification.statistical.densities.samples import Dataset, same_maps, small_plan, sum_moments
from verification.twins import KERNEL_TWINS, mechanism_twin
from verification.verdicts import QUICK, Finding, Subject

LEVEL = 1e-9
"""Of each statistical test here that is not a finding, which has its own `CHECK_ALPHA`."""


def subject(**changes: Any) -> Subject:
    request: dict[str, Any] = {
        "users": 2000, "dim": 8, "kernel": "gaussian", "repetitions": 8, "bitsum": "rr", "epsilon": 1.0,
        "delta": 1e-6, "accountant": "pld", "allow_useless": True, **changes,
    }  # fmt: skip
    return Subject(plan=plan_for(**request))


def found(name: str, of: Subject, seed: int = 1) -> Finding:
    check = next(one for one in densities.CHECKS if one.name == name)
    return check.run(of, QUICK, check.seed(seed))


class TestMeanTest:
    def test_influence_is_between_its_two_logarithms(self) -> None:
        x = np.linspace(-20.0, 20.0, 4001)
        assert np.all(np.exp(influence(x)) <= 1.0 + x + x * x / 2.0 + 1e-9)
        assert np.all(np.exp(-influence(x)) <= 1.0 - x + x * x / 2.0 + 1e-9)

    def test_holds_its_level_with_heavy_tails(self) -> None:
        rng, runs, alpha = np.random.default_rng(1), 300, 0.2
        samples = rng.standard_t(3.0, size=(runs, 200))  # variance 3, no third moment
        wrong = sum(mean_test("t", row, 0.0, 3.0, alpha).ratio > 1.0 for row in samples)
        assert wrong <= stats.binom.isf(LEVEL, runs, alpha)

    def test_finds_what_it_says_it_finds(self) -> None:
        rng, runs = np.random.default_rng(2), 300
        defect = mean_test("n", rng.normal(size=2000), 0.0, 1.0, 1e-6).smallest_defect
        assert 0.1 < defect < 1.0
        missed = sum(mean_test("n", defect + row, 0.0, 1.0, 1e-6).ratio <= 1.0 for row in rng.normal(size=(runs, 2000)))
        assert missed <= stats.binom.isf(LEVEL, runs, MISSED)
        assert mean_test("n", 0.02 * defect + rng.normal(size=2000), 0.0, 1.0, 1e-6).ratio <= 1.0

    @pytest.mark.parametrize("tail", [False, True], ids=["normal", "three values"])
    def test_finds_the_stretch_that_it_says_it_finds(self, tail: bool) -> None:
        """Errors times √(1+d): their squares have the mean 1 + d and vary (1+d)² times as much."""
        rng, runs, size, alpha = np.random.default_rng(3), 300, 2000, 1e-6
        errors = rng.choice([-2.0, 0.0, 2.0], p=[1 / 8, 3 / 4, 1 / 8], size=(runs, size))
        errors = errors if tail else rng.normal(size=(runs, size))
        variance = 3.0 if tail else 2.0
        stretch = smallest_stretch(size, variance, alpha)
        shrunk = mean_test("squares", errors[0] ** 2, 1.0, variance, alpha).smallest_defect
        assert 0.1 < shrunk < stretch < 1.0
        for factor in (1.0 + stretch, 1.0 + 2.0 * stretch, 1.0 - shrunk):
            missed = sum(mean_test("squares", factor * row**2, 1.0, variance, alpha).ratio <= 1.0 for row in errors)
            assert missed <= stats.binom.isf(LEVEL, runs, MISSED)
        assert smallest_stretch(20, variance, alpha) == math.inf

    def test_certainty_and_nothing(self) -> None:
        assert mean_test("constant", np.full(9, 1.5), 1.5, 0.0, 0.1).ratio == 0.0
        assert mean_test("constant", np.full(9, 1.6), 1.5, 0.0, 0.1).ratio == math.inf
        assert mean_test("nonsense", np.array([math.nan, 0.0]), 0.0, 1.0, 0.1).ratio == math.inf
        with pytest.raises(InvalidInputError, match="no samples"):
            mean_test("nothing", np.zeros(0), 0.0, 1.0, 0.1)


def cumulants(masses: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Second and fourth cumulants of a law on 0, 1, …, from its moments."""
    values = np.arange(len(masses)) - float(np.arange(len(masses)) @ masses)
    second = float(values**2 @ masses)
    return second, float(values**4 @ masses) - 3.0 * second**2


class TestMoments:
    def test_randomized_response_against_enumeration(self) -> None:
        plan = plan_for(
            users=5, dim=2, repetitions=1, bitsum="rr", epsilon=1.0, delta=1e-2, accountant="pld", allow_useless=True
        )
        flip, scaled = Fraction(plan.parameters["flip_probability"]), (-1.0, 0.25, 0.5, 1.0, -0.75)
        ones = [Fraction(1, 2) + (Fraction(1, 2) - flip) * Fraction(one) for one in scaled]
        second, fourth = cumulants(np.array([float(mass) for mass in sum_of_bits(ones)]))
        factor = 2.0 * math.sqrt(2.0) / (1.0 - 2.0 * float(flip))
        moments = sum_moments(plan, np.array(scaled, np.float32)[:, None])
        assert moments.mean[0] == pytest.approx(math.sqrt(2.0) * sum(scaled))
        assert moments.variance[0] == pytest.approx(factor**2 * second, rel=1e-9)
        assert moments.fourth[0] == pytest.approx(factor**4 * fourth, rel=1e-9)

    @pytest.mark.parametrize("bitsum", ["3nb", "poisson", "negative-binomial"])
    def test_noise_against_tables(self, bitsum: str) -> None:
        plan = plan_for(
            users=50, dim=2, repetitions=1, bitsum=bitsum, epsilon=3.0, delta=1e-2, accountant="pld", allow_useless=True
        )
        told = plan.parameters
        if bitsum == "poisson":
            mass, times = precise_poisson(told["total_mean"]), 1
        else:
            shape = told["noise_shape" if bitsum == "3nb" else "shape"]
            mass, times = precise_negative_binomial(shape, told["continue_probability"]), 2 if bitsum == "3nb" else 1
        exact = cumulants(table(mass, 400))
        assert mechanism_twin(plan).noise_cumulants()[1:] == pytest.approx(
            (times * exact[0], times * exact[1]), rel=1e-9
        )

    @pytest.mark.parametrize("name", ["gaussian", "inner-product", "inner-product-signs", "laplacian", "exponential"])
    def test_kernels_are_those_of_the_library(self, name: str) -> None:
        rng = np.random.default_rng(3)
        x, y = 0.4 * rng.normal(size=(4, 3)), 0.4 * rng.normal(size=(5, 3))
        family = KernelChoice(name=name, dim=3, repetitions=None if name == "inner-product" else 2).build("02" * 16)
        assert KERNEL_TWINS[name].values(x, y) == pytest.approx(family.kernel(x, y), rel=1e-9)


def found_share(note: str) -> float:
    return float(note.rsplit("users: ", 1)[1].rstrip("."))


POISSON: dict[str, Any] = {"bitsum": "poisson"}
IDENTITY: dict[str, Any] = {"kernel": "inner-product", "repetitions": None}
"""Tested with joint labels by default."""
HONEST: list[dict[str, Any]] = [
    {"bitsum": "rr"},
    {"bitsum": "3nb"},
    POISSON,
    {"bitsum": "pure", "delta": 0.0, "accountant": "basic"},
    {"kernel": "laplacian"},
    IDENTITY,
]
JOINT = {**IDENTITY, "classes": 2, "labels": "joint", "padded": 0}
RECORD: dict[str, Any] = {
    **IDENTITY, "classes": 2, "labels": "joint", "model": "discriminant", "moment_weight": 1.0, "padded": 256,
    "accountant": "geometric",
}  # fmt: skip
GEOMETRIC = [{**changes, "accountant": "geometric"} for changes in (IDENTITY, JOINT)]
"""The rung only sets the noise level, and takes long to do so."""


def not_refuted(changes: dict[str, Any]) -> Finding:
    """Both checks pass and measured something; the finding on unbiasedness."""
    unbiased, outcome = (found(name, subject(**changes)) for name in ("density-unbiased", "sup-rmse"))
    for one in (unbiased, outcome):
        assert not one.refuted, one.witness
        assert one.smallest_detectable_defect is not None
        assert 0.0 < one.statistic <= 1.0
    errors = outcome.evidence
    assert isinstance(errors, MeasuredErrors)
    assert (errors.bound is None) == (changes.get("labels") == "joint")
    assert all(math.isfinite(value) for point in errors.curve for value in point)
    assert len(errors.queries) >= 6
    assert errors.worst.measured == max(query.measured for query in errors.queries)
    return unbiased


class TestFindings:
    @pytest.mark.parametrize(
        "changes",
        [
            POISSON,
            *(pytest.param(one, marks=pytest.mark.slow) for one in (*HONEST, *GEOMETRIC, RECORD) if one != POISSON),
        ],
        ids=lambda one: "-".join(str(v) for v in one.values()),
    )
    def test_an_honest_system_is_not_refuted(self, changes: dict[str, Any]) -> None:
        not_refuted(changes)

    @pytest.mark.slow
    @pytest.mark.parametrize("bitsum", ["poisson", "rr"])
    def test_joint_labels_are_not_refuted_state_one_unit_and_predict_nothing(self, bitsum: str) -> None:
        """A bias of a class's share is no bias of a density; the prediction is for classes of equal size."""
        with patch("privkde.learning.prediction.expected_error", side_effect=AssertionError("not to be asked")):
            outcome = not_refuted({**JOINT, "bitsum": bitsum})
        assert "class's share of the users" in outcome.note
        share = found_share(outcome.note)
        assert share > 0.0
        assert share != pytest.approx(outcome.smallest_detectable_defect, rel=0.01)

    @pytest.mark.parametrize(
        "changes",
        [
            {"bitsum": "rr"},
            {"kernel": "laplacian", **POISSON},
            *(pytest.param(more, marks=pytest.mark.slow) for more in ({"bitsum": "3nb"}, {"kernel": "laplacian"})),
        ],
        ids=lambda one: "-".join(one.values()),
    )
    def test_the_range_of_a_mean_square_error_holds_for_all_maps(self, changes: dict[str, Any]) -> None:
        """It is no function of the samples, and no sample exceeds it."""
        plan = small_plan(subject(**changes).plan)
        dataset = Dataset.of(plan, np.random.default_rng(4))
        drawn = same_maps(plan, dataset, private_randomness(4), path="aggregated", scale=1)
        for one in drawn.contrasts(dataset.x[[0, -1]]):
            with patch.object(densities, "empirical_bernstein", return_value=0.0) as asked:
                densities._upper(plan, one, 1e-9)
                densities._upper(plan, dataclasses.replace(one, variances=one.variances / 2.0), 1e-9)
            first, second = (call.kwargs["width"] for call in asked.call_args_list)
            assert np.max(densities._predicted(one)) <= first == second

    def test_no_correction_is_refuted(self) -> None:
        with patch.object(RandomizedResponseBitsum, "estimate", lambda self, tally, n: np.asarray(tally.ones, float)):
            assert found("density-unbiased", subject()).refuted

    def test_a_flip_ten_percent_too_small_is_refuted(self) -> None:
        def respond(self: Bitsum, scaled: Any, stream: ByteStream) -> Any:
            from privkde.draws.sampling import bernoulli

            return bernoulli(scaled, stream, flip=0.9 * self.flip)

        with patch.object(Bitsum, "respond", respond):
            assert found("density-unbiased", subject()).refuted
            assert found("sup-rmse", subject()).refuted

    def test_noise_that_an_engine_forgets_is_refuted(self) -> None:
        """Poisson noise replaced by its mean: no bias, no privacy."""

        def noise(self: PoissonNoiseBitsum, n_users: int, shape: tuple[int, ...], stream: ByteStream) -> Tally:
            ones = np.full(shape, round(self.noise_law(n_users).mean()))
            return Tally(ones, np.zeros_like(ones))

        with patch.object(PoissonNoiseBitsum, "noise", noise):
            assert found("sup-rmse", subject(bitsum="poisson")).refuted

    def test_noise_that_repeats_is_refuted(self) -> None:
        """Private draws from a public key: two collections with the same maps publish the same sums."""
        honest = local.collect

        def collect(*parts: Any, stream: ByteStream, **more: Any) -> Any:
            return honest(*parts, stream=ByteStream(bytes(32)), **more)

        with patch.object(local, "collect", collect):
            outcome = found("sup-rmse", subject())
        assert outcome.refuted
        assert "fresh noise" in outcome.witness.found  # type: ignore[union-attr]

    def test_a_density_divided_by_the_wrong_number_is_refuted(self) -> None:
        honest = FeatureSums.weights
        with patch.object(FeatureSums, "weights", lambda self: 1.1 * honest(self)):
            assert found("density-unbiased", subject()).refuted

    def test_a_bound_that_is_too_small_is_refuted(self) -> None:
        honest = subject()  # other tests share this plan; the fault is in the miniature made of it
        miniature._made.cache_clear()
        try:
            with patch("accounting.plan.sup_error_bound", lambda *_: 0.3):
                outcome = found("sup-rmse", honest)
        finally:
            miniature._made.cache_clear()
        assert outcome.refuted
        assert "Theorem 3.2" in outcome.witness.found  # type: ignore[union-attr]

    def test_a_wrong_prediction_is_refuted(self) -> None:
        with patch("privkde.learning.prediction._root", lambda squared: 1.1 * math.sqrt(float(np.mean(squared)))):
            outcome = found("sup-rmse", subject())
        assert outcome.refuted
        assert "predicted variance" in outcome.witness.found  # type: ignore[union-attr]
