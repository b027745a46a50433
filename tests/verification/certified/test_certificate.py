"""The certificate: its laws against slow twins, its bounds against exact compositions, its verdict on altered plans."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from accounting import InvalidInputError, Plan, PlanRequest
from tests.plans import plan_for
from tests.slow_twins import PlaneLaw, compose, repeated_response_delta, response_pair
from verification.certified import noise_laws, renyi
from verification.certified.certificate import certify
from verification.certified.certified_checks import CHECKS, certified_bound, one_promise, slack
from verification.certified.composed_loss import lower_profile
from verification.certified.neighbors import Moves, neighbors
from verification.exact.brute_force import precise_negative_binomial, precise_poisson, table
from verification.verdicts import QUICK, Finding, Subject


def real_plan(**changes: object) -> Plan:
    return plan_for(**{"users": 30_000, "dim": 64, "repetitions": 64, "epsilon": 2.0, "delta": 1e-6, **changes})


BITSUMS = pytest.mark.parametrize("bitsum", ["poisson", pytest.param("rr", marks=pytest.mark.slow)])
"""What does not depend on the noise is tried with the one that is planned soonest."""


def altered(plan: Plan, name: str, factor: float) -> Plan:
    return dataclasses.replace(plan, parameters={**plan.parameters, name: plan.parameters[name] * factor})


def verdict(plan: Plan) -> Finding:
    return certified_bound.run(Subject(plan=plan), QUICK, 0)


@pytest.mark.parametrize(("shape", "p"), [(1.0, 0.5), (16.0, 0.9), (747.3, 0.25)])
def test_masses_are_as_accurate_as_they_say(shape: float, p: float) -> None:
    found = noise_laws.negative_binomial(shape, p, 1e-12)
    precise = precise_negative_binomial(shape, p)
    with mpmath.workdps(40):
        truth = [precise(found.start + i) for i in range(len(found.values))]
        worst = max(float(abs(a / b - 1)) for a, b in zip(found.values.tolist(), truth, strict=True))
        missing = float(1 - mpmath.fsum(truth))
    assert worst <= found.error < 1e-9
    assert 0.0 <= missing <= found.missing <= 1e-11


def test_binomial_and_poisson_masses() -> None:
    found = noise_laws.binomial(400, 0.03, 1e-12)
    with mpmath.workdps(40):
        p = mpmath.mpf(0.03)
        truth = [
            mpmath.binomial(400, k) * p**k * (1 - p) ** (400 - k)
            for k in range(found.start, found.start + len(found.values))
        ]
        assert all(abs(a / b - 1) <= found.error for a, b in zip(found.values.tolist(), truth, strict=True))
    noise = noise_laws.poisson(37.5, 1e-12)
    twin = table(precise_poisson(37.5), noise.start + len(noise.values))[noise.start :]
    assert np.allclose(noise.values, twin, rtol=noise.error + 1e-15, atol=0.0)


@pytest.mark.parametrize("ones", [0, 2, 5])
def test_response_is_the_exact_law(ones: int) -> None:
    flip = Fraction(1, 8)
    found = noise_laws.response(9, float(flip), ones, 0, 1e-30)
    pair = response_pair([1] * ones + [0] * (8 - ones), flip)
    assert np.allclose(found.one, [float(mass) for mass in pair.upper], rtol=1e-13)
    assert np.allclose(found.zero, [float(mass) for mass in pair.lower], rtol=1e-13)


def test_three_negative_binomials_has_the_hockey_stick_of_the_plane() -> None:
    p, shape, flood = 0.4, 4.0, 0.6
    masses = noise_laws.negative_binomial(shape, flood, 1e-14)
    found = noise_laws.three_negative_binomials(p, masses, 1e-14)
    plane = PlaneLaw.of(
        table(precise_negative_binomial(1, p), 60), table(precise_negative_binomial(shape, flood), 120), 180
    )
    for epsilon in (0.0, 0.5, 0.9, 2.0):
        up, down = plane.hockey_sticks(epsilon)
        assert renyi.stick_above(found, epsilon) == pytest.approx(up, abs=1e-12)
        assert renyi.stick_above(found.reversed(), epsilon) == pytest.approx(down, abs=1e-12)
    assert plane.hockey_sticks(0.9)[1] > 1e-3


@pytest.mark.parametrize("times", [1, 2, 3, pytest.param(6, marks=pytest.mark.slow)])
def test_bounds_enclose_the_exact_composition(times: int) -> None:
    flip = Fraction(1, 8)
    pair = response_pair([0] * 8, flip)
    whole = compose([pair] * times)
    laws = noise_laws.response(9, float(flip), 0, 0, 1e-30)
    profile = lower_profile(laws, times, 0.01)
    moments, lost = renyi.flipped_moments(laws, 1e-9)
    for delta in (0.1, 0.01, 1e-3):
        low = profile.epsilon(delta)
        assert low > 0.0
        assert float(whole.hockey_stick(Fraction(math.exp(low)))) > delta
        assert float(whole.hockey_stick(Fraction(math.exp(1.03 * low)))) < delta, "sharp to 3 %"
        high = renyi.converted(times * moments, renyi.ORDERS, delta - times * lost)
        assert float(whole.hockey_stick(Fraction(math.exp(high)))) <= delta


def test_lower_bound_is_below_the_binomial_loss_of_many_bits() -> None:
    """One bit, sent 60 times without others: δ(ε) is a binomial sum."""
    flip = Fraction(2, 5)
    laws = noise_laws.response(1, float(flip), 0, 0, 1e-30)
    profile = lower_profile(laws, 60, 1e-4)
    for epsilon in (2.0, 5.0, 8.0):
        truth = float(repeated_response_delta(Fraction(float(flip)), 60, epsilon))
        assert 0.9 * truth < profile.delta(epsilon) <= truth


HONEST: dict[str, dict[str, object]] = {
    "rr": {},
    "poisson": {"bitsum": "poisson"},
    "negative-binomial": {"bitsum": "negative-binomial"},
    "3nb": {"bitsum": "3nb"},
    "rare": {"users": 1000, "repetitions": 20, "epsilon": 8.0, "delta": 1e-4, "bitsum": "poisson"},
    "one": {"repetitions": 1, "users": 5000},
    "rough": {"users": 1000, "repetitions": 20, "epsilon": 1.0, "delta": 1e-2},
    "pure": {"bitsum": "pure", "repetitions": 8, "delta": 0.0, "epsilon": 4.0},
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("negative-binomial", "one", "rough") else ())
        for name in HONEST
    ],
)
def test_honest_plans_with_flips_pass_and_the_lower_bound_is_close(name: str) -> None:
    plan = real_plan(**HONEST[name])
    found = verdict(plan)
    assert not found.refuted, found.note
    certificate = certify(plan)
    assert certificate.covered_epsilon >= 0.98 * certificate.claimed_epsilon
    if name != "pure":
        assert certificate.lower_epsilon == certificate.covered_epsilon, "records attain these flips"


@pytest.mark.parametrize(
    ("changes", "closeness"),
    [
        pytest.param({"kernel": "inner-product", "repetitions": None, "dim": 768}, 0.85, marks=pytest.mark.slow),
        ({"kernel": "inner-product", "repetitions": None, "dim": 16}, 0.98),
        pytest.param({"kernel": "laplacian", "dim": 16}, 0.85, marks=pytest.mark.slow),
        pytest.param({"kernel": "laplacian", "dim": 16, "bitsum": "poisson"}, 0.85, marks=pytest.mark.slow),
        pytest.param({"kernel": "inner-product-signs"}, 0.85, marks=pytest.mark.slow),
        pytest.param(
            {"kernel": "inner-product", "repetitions": None, "classes": 3, "labels": "joint", "padded": 0},
            0.8,
            marks=pytest.mark.slow,
        ),
        pytest.param({"kernel": "gaussian", "classes": 3, "labels": "joint"}, 0.85, marks=pytest.mark.slow),
    ],
    ids=["clipped", "ball", "hashed", "hashed-poisson", "signs", "joint", "joint-gaussian"],
)
def test_honest_geometric_plans_pass(changes: dict[str, object], closeness: float) -> None:
    plan = real_plan(**changes)
    assert plan.accountant == "geometric"
    certificate = certify(plan)
    assert closeness * 2.0 <= certificate.covered_epsilon <= 2.0
    assert 0.0 < certificate.lower_epsilon <= certificate.covered_epsilon
    assert certificate.upper_epsilon is not None
    assert certificate.upper_epsilon <= 2.0 * (1.0 + slack(1e-6))
    assert certificate.covered_epsilon <= certificate.upper_epsilon


@pytest.mark.parametrize(
    ("changes", "name", "factor"),
    [
        ({}, "flip_probability", 0.9),
        ({"kernel": "inner-product", "repetitions": None, "dim": 16}, "flip_probability", 0.9),
        ({"bitsum": "poisson"}, "total_mean", 0.9),
        pytest.param({"bitsum": "negative-binomial"}, "shape", 0.9, marks=pytest.mark.slow),
        ({"bitsum": "3nb"}, "continue_probability", 0.99),
        ({"bitsum": "pure", "repetitions": 8, "delta": 0.0, "epsilon": 4.0}, "silence_probability", 0.5),
        ({"bitsum": "pure", "repetitions": 8, "delta": 0.0, "epsilon": 4.0}, "noise_epsilon", 1.1),
    ],
)
def test_less_noise_is_refuted(changes: dict[str, object], name: str, factor: float) -> None:
    assert verdict(altered(real_plan(**changes), name, factor)).refuted


def test_a_forgotten_count_is_refuted() -> None:
    """A plan for 60 repetitions that claims to hold for 64."""
    fewer = real_plan(repetitions=52)
    assert verdict(dataclasses.replace(real_plan(), parameters=fewer.parameters)).refuted


def test_plan_verifies_refutes_an_altered_plan() -> None:
    check = next(one for one in CHECKS if one.name == "plan-verifies")
    plan = real_plan()
    assert not check.run(Subject(plan=plan), QUICK, 0).refuted
    assert check.run(Subject(plan=altered(plan, "flip_probability", 0.9)), QUICK, 0).refuted


@BITSUMS
def test_hashed_kernels_touch_two_buckets_per_repetition(bitsum: str) -> None:
    plan = real_plan(kernel="laplacian", dim=4, repetitions=5, accountant="pld", bitsum=bitsum)
    assert neighbors(plan).covered == Moves(plan.instances_per_user) == Moves(10)
    assert neighbors(plan).attained == Moves(5, half=True)


ATTAINED: dict[str, tuple[dict[str, object], Moves]] = {
    "gaussian": ({}, Moves(64)),
    "few dimensions": ({"dim": 4}, Moves(4)),
    "hashed": ({"kernel": "laplacian", "dim": 16, "accountant": "pld"}, Moves(64, half=True)),
    "identity": ({"kernel": "inner-product", "repetitions": None, "dim": 16, "accountant": "pld"}, Moves(1)),
    "signs": ({"kernel": "inner-product-signs", "accountant": "pld"}, Moves(1)),
}


@BITSUMS
@pytest.mark.parametrize("name", ATTAINED)
def test_what_records_attain_does_not_depend_on_the_rung(name: str, bitsum: str) -> None:
    changes, attained = ATTAINED[name]
    found = neighbors(real_plan(bitsum=bitsum, **changes))
    assert found.attained == attained
    assert found.covered == Moves(found.instances)


@pytest.mark.slow
def test_covered_and_attained_are_told_apart() -> None:
    """The same parameters under another rung: what holds for people is the same, what the rung covers is not."""
    plan = real_plan(kernel="laplacian", dim=16, accountant="pld")
    flips, shifts = certify(plan), certify(dataclasses.replace(plan, accountant="geometric"))
    assert flips.lower_epsilon == shifts.lower_epsilon
    assert shifts.upper_epsilon is not None
    assert flips.lower_epsilon <= shifts.upper_epsilon < flips.covered_epsilon
    assert flips.lower_curve[1] == (flips.lower_epsilon, flips.delta), "the curve is that of the promise"


def test_the_witness_says_whether_the_promise_or_its_proof_is_false() -> None:
    hashed = verdict(altered(real_plan(kernel="laplacian", dim=16, accountant="pld"), "flip_probability", 0.9))
    assert hashed.witness is not None
    assert "the contract's claim for the touched bits is false" in hashed.witness.found
    assert hashed.witness.numbers["lower"] < 2.0 < hashed.witness.numbers["covered"]
    gaussian = verdict(altered(real_plan(), "flip_probability", 0.9))
    assert gaussian.witness is not None
    assert "the promise to people is false" in gaussian.witness.found
    assert gaussian.witness.numbers["lower"] > 2.0


def test_half_moves_are_those_of_a_coin_and_a_certain_one() -> None:
    """Others all at 1, the target's bit a coin or 1: the exact law of one repetition is not below the bound."""
    plan = plan_for(users=12, kernel="laplacian", dim=4, repetitions=2, epsilon=6.0, delta=1e-2, allow_useless=True)
    plan = dataclasses.replace(plan, parameters={"flip_probability": 0.25})
    assert neighbors(plan).attained == Moves(2, half=True)
    pair = response_pair([1] * 11, Fraction(1, 4))
    half = [(a + b) / 2 for a, b in zip(pair.upper, pair.lower, strict=True)]
    low = certify(plan).lower_epsilon
    growth = Fraction(math.exp(low))
    worst = max(
        sum(max(a * b - growth * c * d, Fraction(0)) for a, c in one for b, d in one)
        for one in (list(zip(half, pair.upper, strict=True)), list(zip(pair.upper, half, strict=True)))
    )
    assert low > 0.0
    assert float(worst) > 1e-2
    assert float(worst) < 1.2e-2, "sharp"


def test_pure_says_nothing_of_people_from_below() -> None:
    found = certify(real_plan(**HONEST["pure"]))
    assert found.lower_epsilon == 0.0
    assert any("silent" in note for note in found.notes)


def test_the_smallest_defect_is_the_gap_of_the_certificate() -> None:
    plan = real_plan()
    found, checked = certify(plan), verdict(plan)
    assert found.upper_epsilon is not None
    assert not checked.refuted
    assert checked.power == 1.0
    assert checked.smallest_detectable_defect == pytest.approx(found.upper_epsilon / found.covered_epsilon - 1.0)


@pytest.mark.parametrize("repetitions", [8, pytest.param(64, marks=pytest.mark.slow)])
def test_without_an_upper_bound_no_defect_is_certain_to_be_found(repetitions: int) -> None:
    found = verdict(real_plan(bitsum="3nb", noise_shape=2, repetitions=repetitions))
    assert not found.refuted
    assert (found.power, found.smallest_detectable_defect) == (0.0, None)
    assert "power 0" in found.note


JOINT: dict[str, object] = {
    "kernel": "inner-product", "repetitions": None, "classes": 3, "labels": "joint", "padded": 0,
}  # fmt: skip
RECORD: dict[str, object] = {
    **JOINT, "dim": 8, "model": "discriminant", "moment_weight": 1.0, "padded": 512, "accountant": "geometric",
}  # fmt: skip


@BITSUMS
@pytest.mark.parametrize(
    "changes",
    [JOINT, RECORD, {"kernel": "inner-product-signs", "accountant": "pld"}],
    ids=["joint", "record", "signs"],
)
def test_the_accountants_facts_are_not_read(
    changes: dict[str, object], bitsum: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = real_plan(bitsum=bitsum, **changes)
    expected = neighbors(plan)

    def unread(_: PlanRequest) -> None:
        raise AssertionError("the certificate read what the accountant derived")

    monkeypatch.setattr(PlanRequest, "facts", unread)
    monkeypatch.setattr(PlanRequest, "rounding_bound", property(unread))
    assert neighbors(plan) == expected


@BITSUMS
def test_the_size_weight_is_the_declared_one(bitsum: str) -> None:
    plan = real_plan(kernel="gaussian", classes=3, labels="joint", dim=4, repetitions=2, bitsum=bitsum)
    loud = dataclasses.replace(plan.contract, parameters={**plan.contract.parameters, "size_weight": 1.0})
    before, after = (neighbors(one).squared_shift for one in (plan, dataclasses.replace(plan, contract=loud)))
    assert (before, after) == (2.0, 3.0)
    silent = dataclasses.replace(plan.contract, parameters={})
    with pytest.raises(InvalidInputError, match="size_weight"):
        neighbors(dataclasses.replace(plan, contract=silent))


@pytest.mark.parametrize(
    ("times", "flip"),
    [
        (100_000, 0.4985),
        pytest.param(700_000, 0.49935, marks=pytest.mark.slow),
        pytest.param(2_000_000, 0.4999, marks=pytest.mark.slow),
    ],
)
def test_rounding_very_many_losses_does_not_wrap_them_around(times: int, flip: float) -> None:
    """Rounding moves the sum by more than the window is wide, and the window follows it.

    One bit, sent many times without others; δ(ε) is a binomial sum.
    """
    profile = lower_profile(noise_laws.response(1, flip, 0, 0, 1e-30), times, 1e-6)
    ones = np.arange(times + 1)
    losses, logs = (2.0 * ones - times) * math.log((1.0 - flip) / flip), stats.binom.logpmf(ones, times, 1.0 - flip)
    for epsilon in np.linspace(0.01, 35.0, 60).tolist():
        over = losses > epsilon
        truth = float(np.sum(np.exp(logs[over]) * -np.expm1(epsilon - losses[over])))
        assert profile.delta(epsilon) <= truth * (1.0 + 1e-6)
    assert profile.outside <= 1e-12
    assert profile.loose


@pytest.mark.slow
def test_a_lower_bound_that_rounding_made_useless_says_so() -> None:
    plan = real_plan(users=1000, dim=1_000_000, repetitions=64)
    plan = dataclasses.replace(plan, request=dataclasses.replace(plan.request, repetitions=1_000_000))
    plan = dataclasses.replace(plan, parameters={"flip_probability": 0.4999})
    assert any("useless" in note or "loose" in note for note in certify(plan).notes)


def test_a_rotated_record_is_certified() -> None:
    found = verdict(real_plan(**RECORD, bitsum="poisson"))
    assert not found.refuted, found.note
    assert found.statistic > 0.8 * found.bound
    assert found.power == 1.0


@pytest.mark.parametrize("total", [3.0, 1.0], ids=["whole", "features alone"])
def test_the_parts_of_a_record_may_not_exceed_what_was_asked_for(total: float) -> None:
    """A plan for 1 + 2; as if somebody had asked for 1 and got the label's response on top."""
    plan = plan_for(users=6_000, dim=4, repetitions=4, classes=3, label_epsilon=2.0, epsilon=3.0, delta=1e-5,
                    accountant="pld", bitsum="poisson")  # fmt: skip
    object.__setattr__(request := dataclasses.replace(plan.request), "epsilon", total)
    found = one_promise.run(Subject(plan=dataclasses.replace(plan, request=request)), QUICK, 0)
    assert found.refuted == (total < 3.0)
    assert found.statistic == pytest.approx(3.0 / total)
