"""The exact layer: honest plans pass, and each check refutes what it is there for."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest

from accounting import Plan
from accounting.composition import Geometric, PrivacyLossComposition, Touched
from accounting.kernels import KernelFacts
from accounting.mechanisms import (
    BitsumProtocol,
    LabelResponse,
    PoissonNoise,
    Pure,
    RandomizedResponse,
    ThreeNegativeBinomial,
)
from accounting.numerics.profile import ProfileTable
from privkde.kernels.inner_product import IdentityFamily
from tests.plans import plan_for
from verification import miniature
from verification.exact import enumeration_checks as checks
from verification.exact import rational_twins as exact
from verification.exact.claimed_curves import FINE, Curve, Worst, drawn_between, refined
from verification.exact.enumeration_checks import CHECKS
from verification.exact.shuffled_views import MOST_OUTCOMES, UNIT_PAIR, ViewPair, instance_law, whole_view
from verification.twins.bitsum_twins import ResponseTwin
from verification.verdicts import FULL, QUICK, Finding, Subject

KINDS: dict[str, dict[str, Any]] = {
    "rr": {"repetitions": 16},
    "geometric": {"kernel": "inner-product", "dim": 40, "accountant": "geometric"},
    "poisson": {"repetitions": 16, "bitsum": "poisson"},
    "negative-binomial": {"repetitions": 16, "bitsum": "negative-binomial"},
    "3nb": {"repetitions": 16, "bitsum": "3nb"},
    "pure": {"repetitions": 4, "bitsum": "pure", "delta": 0.0, "epsilon": 4.0},
    "hashed": {"kernel": "laplacian", "repetitions": 16, "accountant": "pld"},
    "hashed-shifts": {"kernel": "laplacian", "repetitions": 16, "accountant": "geometric"},
    "signs": {"kernel": "inner-product-signs", "repetitions": 16, "accountant": "pld"},
    "signs-shifts": {"kernel": "inner-product-signs", "repetitions": 16, "accountant": "geometric"},
    "basic": {"repetitions": 16, "accountant": "basic"},
    "labels": {"repetitions": 16, "classes": 2, "label_epsilon": 1.5, "epsilon": 3.5},
    "joint": {"kernel": "inner-product", "classes": 2, "labels": "joint", "padded": 0, "accountant": "geometric"},
    "record": {
        "classes": 2,
        "model": "discriminant",
        "moment_weight": 0.5,
        "padded": 256,
        "accountant": "geometric",
    },
}
BY_DEFAULT = ("poisson", "pure", "labels")
"""With joint labels below, every check; faults are planted in other kinds, too."""


@pytest.fixture(autouse=True)
def _fresh_miniatures() -> Iterator[None]:
    miniature._made.cache_clear()
    yield
    miniature._made.cache_clear()


def plan_of(kind: str) -> Plan:
    return plan_for(**{"users": 5_000, "dim": 16, "epsilon": 2.0, "delta": 1e-5, "allow_useless": True, **KINDS[kind]})


def run(name: str, kind: str, effort: Any = QUICK) -> Finding:
    check = next(one for one in CHECKS if one.name == name)
    subject = Subject(plan=plan_of(kind))
    assert check.applies(subject)
    return check.run(subject, effort, check.seed(1))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in BY_DEFAULT else pytest.mark.slow) for kind in KINDS]
)
def test_honest_systems_pass_and_something_was_compared(kind: str) -> None:
    subject = Subject(plan=plan_of(kind))
    names = [check.name for check in CHECKS if check.applies(subject)]
    assert ("exact-classifier" in names) == (kind == "labels")
    assert ("exact-joint" in names) == (kind in {"joint", "record"})
    for name in names:
        found = run(name, kind)
        assert not found.refuted, found.note
        assert found.statistic > 0.1, f"{name} is vacuous for {kind}: {found.note}"
        assert not found.refuted
        assert found.power == 1.0


@pytest.mark.parametrize("kind", ["joint", "record"])
def test_an_honest_system_with_joint_labels_passes(kind: str) -> None:
    found = run("exact-joint", kind)
    assert not found.refuted, found.note
    assert found.statistic > 0.1
    assert found.power == 1.0


@pytest.mark.parametrize("kind", ["poisson", pytest.param("rr", marks=pytest.mark.slow)])
def test_full_effort_passes(kind: str) -> None:
    assert not run("exact-composition", kind, FULL).refuted
    assert not run("exact-instance", kind, FULL).refuted


def test_merging_after_every_instance_lowers_hockey_sticks_a_little() -> None:
    """Eight instances of three users: 4⁸ outcomes, all of them listed, against the merged ones."""
    twin, rng = ResponseTwin(n_users=3, flip_probability=0.2), np.random.default_rng(4)
    target, moved, *others = rng.uniform(size=(4, 8))
    whole = UNIT_PAIR
    for j in range(8):
        rest = tuple(float(other[j]) for other in others)
        whole = whole.times(ViewPair(*(instance_law(twin, (float(mine[j]), *rest)) for mine in (target, moved))))
    merged = whole_view(twin, target, moved, np.array(others))
    assert len(merged.upper) <= MOST_OUTCOMES < len(whole.upper)
    for epsilon in (0.0, 0.3, 1.0):
        true = whole.stick(epsilon)
        assert true > 1e-4
        assert 0.98 * true <= merged.stick(epsilon) <= true + 1e-9


def test_tables_are_the_exact_law() -> None:
    twin = ResponseTwin(n_users=3, flip_probability=0.125)
    flip = Fraction(1, 8)
    truth = exact.sum_of_bits([flip + (1 - 2 * flip) * q for q in (Fraction(1, 2), Fraction(1, 4), Fraction(1))])
    assert instance_law(twin, (0.5, 0.25, 1.0))[: len(truth)].tolist() == pytest.approx([float(mass) for mass in truth])


def test_merging_never_raises_a_hockey_stick() -> None:
    rng = np.random.default_rng(5)
    upper, lower = rng.dirichlet(np.ones(500)), rng.dirichlet(np.ones(500))
    pair = ViewPair(upper, lower)
    for groups, epsilon in itertools.product((5, 40, 200), (0.0, 0.5, 1.0, 2.0)):
        assert pair.merged(groups).stick(epsilon) <= pair.stick(epsilon) + 1e-12
    assert pair.merged(200).stick(0.5) > 0.95 * pair.stick(0.5)


def test_a_profile_that_is_one_percent_too_low_is_refuted() -> None:
    honest = RandomizedResponse.delta
    with mock.patch.object(RandomizedResponse, "delta", lambda self, epsilon: 0.99 * honest(self, epsilon)):
        assert run("exact-instance", "rr").refuted


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        (PoissonNoise, "poisson"),
        pytest.param(ThreeNegativeBinomial, "3nb", marks=pytest.mark.slow),
        pytest.param(RandomizedResponse, "rr", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("start", [0.0, 0.5])
def test_a_profile_that_claims_nothing_is_lost_is_refuted(protocol: Any, kind: str, start: float) -> None:
    """The worst lie, δ(ε) = 0 without being pure: everywhere, or from some ε on."""
    truth = protocol.__dict__.get("delta", BitsumProtocol.delta)

    def nothing(self: BitsumProtocol, epsilon: float) -> float:
        return 0.0 if epsilon >= start else float(truth(self, epsilon))

    plan = plan_of(kind)
    small = miniature.miniature(plan, users=3, dim=1, repetitions=1, epsilon=1.0, delta=0.01)
    with (
        mock.patch.object(protocol, "delta", nothing),
        mock.patch.object(checks, "miniature", return_value=small),
    ):
        found = CHECKS[0].run(Subject(plan=plan), QUICK, 1)
    assert found.refuted, found.note


def test_a_pure_protocol_that_claims_too_much_is_refuted() -> None:
    honest = Pure.likely_delta

    def early(self: Pure, epsilon: float) -> float:
        return 0.0 if epsilon >= 0.98 * self.epsilon_target else honest(self, epsilon)

    with mock.patch.object(Pure, "likely_delta", early):
        assert run("exact-instance", "pure").refuted


SPARED = (0.2, 0.1, 0.01, 1e-3, 1e-4)


@pytest.mark.parametrize(
    ("rung", "kind", "names"),
    [
        pytest.param(PrivacyLossComposition, "rr", ("exact-composition", "exact-kde"), marks=pytest.mark.slow),
        (PrivacyLossComposition, "labels", ("exact-composition", "exact-kde", "exact-classifier")),
        pytest.param(PrivacyLossComposition, "3nb", ("exact-composition", "exact-kde"), marks=pytest.mark.slow),
        (PrivacyLossComposition, "poisson", ("exact-composition", "exact-kde")),
        pytest.param(Geometric, "geometric", ("exact-composition",), marks=pytest.mark.slow),
        (Geometric, "joint", ("exact-joint",)),
        (Geometric, "record", ("exact-joint",)),
        pytest.param(Geometric, "joint", ("exact-composition", "exact-kde"), marks=pytest.mark.slow),
    ],
)
def test_a_rung_that_is_wrong_but_at_a_fixed_list_of_deltas_is_refuted(
    rung: Any, kind: str, names: tuple[str, ...]
) -> None:
    """0.3 of the ε that holds, at all δ but those that a reader of the checks might expect to be asked for."""
    honest = rung.achieved_epsilon

    def lying(self: Any, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        epsilon = honest(self, protocol, touched, delta)
        return epsilon if epsilon is None or delta in SPARED else 0.3 * float(epsilon)

    with mock.patch.object(rung, "achieved_epsilon", lying):
        for name in names:
            assert run(name, kind).refuted, name


def test_a_rung_that_says_nothing_has_no_power() -> None:
    with mock.patch.object(PrivacyLossComposition, "achieved_epsilon", return_value=None):
        found = run("exact-composition", "rr")
    assert not found.refuted
    assert found.power == 0.0
    assert "VACUOUS" in found.note


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("poisson", 0),
        *(
            pytest.param(kind, seed, marks=pytest.mark.slow)
            for kind in ("rr", "poisson", "negative-binomial", "3nb", "pure")
            for seed in (0, 1, 2)
            if (kind, seed) != ("poisson", 0)
        ),
    ],
)
def test_honest_systems_pass_wherever_the_seed_asks(kind: str, seed: int) -> None:
    for check in CHECKS[:3]:
        found = check.run(Subject(plan=plan_of(kind)), QUICK, seed)
        assert not found.refuted, found.note


class TestCurves:
    PAIR = ViewPair(np.array([0.6, 0.3, 0.1, 0.0]), np.array([0.1, 0.3, 0.5, 0.1]))

    def test_sticks_are_sums_of_positive_parts(self) -> None:
        epsilons = np.linspace(0.0, 3.0, 50)
        naive = [float(np.sum(np.maximum(self.PAIR.upper - math.exp(e) * self.PAIR.lower, 0.0))) for e in epsilons]
        assert self.PAIR.sticks(epsilons) == pytest.approx(naive, abs=1e-10)
        assert np.all(self.PAIR.sticks(epsilons) <= naive)

    def test_what_lies_between_points_is_bounded(self) -> None:
        """Whatever falling claim runs through these points, the exact δ exceeds it by at most the stated factor."""
        worst, curve = Worst(), Curve.of([(0.0, 1.0), (0.5, 0.45), (1.0, 0.35), (1.5, 0.2)])
        curve.attack(self.PAIR, worst, "here")
        worst.cover(curve)
        assert worst.points == 3
        assert worst.ratio == pytest.approx((0.6 - 0.1 * math.exp(0.5)) / 0.45)
        steepest = [(0.0, 0.45), (0.5, 0.35), (1.0, 0.2)]  # falls to the next point's δ at once
        exceeded = [self.PAIR.stick(left + 1e-6) / claim for left, claim in steepest]
        assert max(exceeded) <= worst.between <= 1.001 * max(exceeded)

    def test_intervals_are_halved_until_little_is_open(self) -> None:
        worst = Worst()
        curve = refined(self.PAIR.stick, lambda fresh: fresh.attack(self.PAIR, worst, "here"), [0.0, 1.0, 1.7], 500)
        assert len(curve.epsilons) < 200
        assert curve.between() <= FINE
        assert worst.ratio == pytest.approx(1.0)

    def test_points_are_drawn_one_in_each_cell(self) -> None:
        found = drawn_between(1e-6, 1.0, 6, np.random.default_rng(1))
        assert [math.floor(math.log10(one)) for one in found] == [-6, -5, -4, -3, -2, -1]

    def test_a_claim_that_is_not_a_number_is_refuted(self) -> None:
        worst = Worst()
        Curve.of([(1.0, math.nan)]).attack(self.PAIR, worst, "here")
        assert math.isnan(worst.ratio)


def test_a_profile_without_its_other_direction_is_refuted() -> None:
    def one_way(self: BitsumProtocol, epsilon: float) -> float:
        return self.pairs()[0].hockey_stick(epsilon)

    refuted = []
    for kind in ("poisson", "negative-binomial"):
        with mock.patch.object(BitsumProtocol, "delta", one_way):
            refuted.append(run("exact-instance", kind).refuted)
    assert all(refuted)


@pytest.mark.parametrize("kind", ["rr", "poisson", pytest.param("3nb", marks=pytest.mark.slow)])
def test_composition_that_forgets_the_count_is_refuted(kind: str) -> None:
    honest = PrivacyLossComposition.achieved_epsilon

    def once(self: PrivacyLossComposition, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        return honest(self, protocol, Touched(groups=1, per_group=1), delta)

    with mock.patch.object(PrivacyLossComposition, "achieved_epsilon", once):
        assert run("exact-composition", kind).refuted


def test_a_composition_in_one_direction_is_refuted() -> None:
    with mock.patch.object(ProfileTable, "reversed", lambda self: self):
        miniature._made.cache_clear()
        assert run("exact-composition", "poisson").refuted


def test_wrong_sensitivity_count_is_refuted() -> None:
    honest = KernelFacts.touched.fget  # type: ignore[attr-defined]

    def single(self: KernelFacts) -> Touched:
        touched: Touched = honest(self)
        return dataclasses.replace(touched, per_group=self.sparsity)

    with mock.patch.object(KernelFacts, "touched", property(single)):
        miniature._made.cache_clear()
        assert run("exact-kde", "hashed").refuted


@pytest.mark.slow
def test_missing_clip_is_refuted() -> None:
    def unclipped(self: IdentityFamily, x: Any) -> Any:
        return self.query_features(x) / self._bound

    with mock.patch.object(IdentityFamily, "scaled_features", unclipped):
        assert run("exact-kde", "geometric").refuted


@pytest.mark.parametrize(
    ("name", "kind"), [("exact-joint", "joint"), pytest.param("exact-kde", "geometric", marks=pytest.mark.slow)]
)
def test_half_the_squared_shift_is_refuted(name: str, kind: str) -> None:
    honest = Touched.shift_budget.fget  # type: ignore[attr-defined]
    plan_of(kind)
    with mock.patch.object(Touched, "shift_budget", property(lambda self: honest(self) / 2.0)):
        miniature._made.cache_clear()
        assert run(name, kind).refuted


def test_label_response_off_by_the_uniform_term_is_refuted() -> None:
    honest = LabelResponse.keep_probability.fget  # type: ignore[attr-defined]

    def louder(self: LabelResponse) -> float:
        keep = float(honest(self))
        return keep + (1.0 - keep) / self.n_classes

    with mock.patch.object(LabelResponse, "keep_probability", property(louder)):
        assert run("exact-classifier", "labels").refuted
