"""The exact layer: honest plans pass, and each check refutes what it is there for."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest

from accounting import Plan
from accounting.composition import PrivacyLossComposition, Touched
from accounting.kernels import KernelFacts
from accounting.mechanisms import BitsumProtocol, LabelResponse, RandomizedResponse
from privkde.kernels.inner_product import IdentityFamily
from tests.plans import plan_for
from verification import exact, miniature
from verification.enumeration.checks import CHECKS
from verification.enumeration.views import InstanceView, ViewPair
from verification.verdicts import FULL, QUICK, Finding, Subject

KINDS: dict[str, dict[str, Any]] = {
    "rr": {"repetitions": 16},
    "geometric": {"kernel": "inner-product", "dim": 40},
    "poisson": {"repetitions": 16, "bitsum": "poisson"},
    "negative-binomial": {"repetitions": 16, "bitsum": "negative-binomial"},
    "3nb": {"repetitions": 16, "bitsum": "3nb"},
    "pure": {"repetitions": 4, "bitsum": "pure", "delta": 0.0, "epsilon": 4.0},
    "hashed": {"kernel": "laplacian", "repetitions": 16},
    "signs": {"kernel": "inner-product-signs", "repetitions": 16},
    "basic": {"repetitions": 16, "accountant": "basic"},
    "labels": {"repetitions": 16, "classes": 2, "label_epsilon": 1.5},
    "joint": {"kernel": "inner-product", "classes": 2, "labels": "joint"},
}


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


@pytest.mark.parametrize("kind", KINDS)
def test_honest_systems_pass_and_something_was_compared(kind: str) -> None:
    subject = Subject(plan=plan_of(kind))
    names = [check.name for check in CHECKS if check.applies(subject)]
    assert ("exact-classifier" in names) == (kind == "labels")
    assert ("exact-joint" in names) == (kind == "joint")
    for name in names:
        found = run(name, kind)
        assert not found.refuted, found.note
        assert found.statistic > 0.1, f"{name} is vacuous for {kind}: {found.note}"


def test_full_effort_passes() -> None:
    assert not run("exact-composition", "rr", FULL).refuted
    assert not run("exact-instance", "rr", FULL).refuted


def test_tables_are_the_exact_law() -> None:
    view = InstanceView("rr", {"flip_probability": 0.125}, 3)
    flip = Fraction(1, 8)
    truth = exact.sum_of_bits([flip + (1 - 2 * flip) * q for q in (Fraction(1, 2), Fraction(1, 4), Fraction(1))])
    assert view.law([0.5, 0.25, 1.0])[: len(truth)].tolist() == pytest.approx([float(mass) for mass in truth])


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


def test_a_profile_without_its_other_direction_is_refuted() -> None:
    def one_way(self: BitsumProtocol, epsilon: float) -> float:
        return self.pairs()[0].hockey_stick(epsilon)

    refuted = []
    for kind in ("poisson", "negative-binomial"):
        with mock.patch.object(BitsumProtocol, "delta", one_way):
            refuted.append(run("exact-instance", kind).refuted)
    assert all(refuted)


def test_composition_that_forgets_the_count_is_refuted() -> None:
    honest = PrivacyLossComposition.achieved_epsilon

    def once(self: PrivacyLossComposition, protocol: BitsumProtocol, touched: Touched, delta: float) -> float | None:
        return honest(self, protocol, Touched(groups=1, per_group=1), delta)

    with mock.patch.object(PrivacyLossComposition, "achieved_epsilon", once):
        assert run("exact-composition", "rr").refuted
        assert run("exact-composition", "3nb").refuted


def test_wrong_sensitivity_count_is_refuted() -> None:
    honest = KernelFacts.touched.fget  # type: ignore[attr-defined]

    def single(self: KernelFacts) -> Touched:
        touched: Touched = honest(self)
        return dataclasses.replace(touched, per_group=self.sparsity)

    with mock.patch.object(KernelFacts, "touched", property(single)):
        miniature._made.cache_clear()
        assert run("exact-kde", "hashed").refuted


def test_missing_clip_is_refuted() -> None:
    def unclipped(self: IdentityFamily, x: Any) -> Any:
        return self.query_features(x) / self._bound

    with mock.patch.object(IdentityFamily, "scaled_features", unclipped):
        assert run("exact-kde", "geometric").refuted


def test_half_the_squared_shift_is_refuted() -> None:
    honest = KernelFacts.touched.fget  # type: ignore[attr-defined]

    def half(self: KernelFacts) -> Touched:
        touched: Touched = honest(self)
        return dataclasses.replace(touched, squared_shift=touched.shift_budget / 2.0)

    with mock.patch.object(KernelFacts, "touched", property(half)):
        miniature._made.cache_clear()
        assert run("exact-kde", "geometric").refuted


def test_label_response_off_by_the_uniform_term_is_refuted() -> None:
    honest = LabelResponse.keep_probability.fget  # type: ignore[attr-defined]

    def louder(self: LabelResponse) -> float:
        keep = float(honest(self))
        return keep + (1.0 - keep) / self.n_classes

    with mock.patch.object(LabelResponse, "keep_probability", property(louder)):
        assert run("exact-classifier", "labels").refuted
