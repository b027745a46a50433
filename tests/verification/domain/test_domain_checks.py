"""Checks of what one user can do: the honest system is not refuted, planted faults are."""

import dataclasses
import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

import mpmath
import numpy as np
import pytest

from accounting import kernels
from accounting.composition.rung import Touched
from accounting.kernels import KernelFacts
from accounting.mechanisms import BITSUMS, GaussianMechanism, LabelResponse
from privkde.draws.sampling import integers_below, normals
from privkde.kernels import norms
from privkde.kernels.inner_product import IdentityFamily, InnerProductFamily, SignFamily
from privkde.protocol import announcement
from privkde.protocol.inputs import checked_vectors
from privkde.protocol.joint_labels import JointLayout
from tests.verification.subjects import KINDS, RESPONSES, subject
from verification.domain import client_view
from verification.domain import domain_checks as domain
from verification.domain.client_view import ClientView
from verification.domain.sensitivity import gaussian_delta
from verification.statistical.execution.stages import private_stream
from verification.verdicts import CHECK_ALPHA, QUICK, Finding, Subject

CHECKS = {check.name: check for check in domain.CHECKS}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Families are kept between collections; a planted fault must not outlive its test."""
    announcement._family.cache_clear()
    yield
    announcement._family.cache_clear()


def run(name: str, kind: str | Subject, seed: int = 1) -> Finding:
    found = subject(kind) if isinstance(kind, str) else kind
    assert CHECKS[name].applies(found), "nothing would be tested"
    return CHECKS[name].run(found, QUICK, CHECKS[name].seed(seed))


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        *((kind, (0,)) for kind in KINDS if kind == "rr" or kind not in BITSUMS),
        *(pytest.param(kind, range(12), marks=pytest.mark.slow) for kind in (*KINDS, *RESPONSES)),
    ],
    ids=str,
)
def test_an_honest_system_is_not_refuted_for_a_dozen_seeds(kind: str, seeds: Iterable[int]) -> None:
    """By default one seed, and one mechanism: what a user can do depends on the kernel and the labels only."""
    applied = [name for name, check in CHECKS.items() if check.applies(subject(kind))]
    assert {"client-domain", "touched-instances"} <= set(applied)
    for name in applied:
        for seed in seeds:
            found = run(name, kind, seed)
            assert not found.refuted, found.witness
            assert found.alpha <= CHECK_ALPHA


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("squared-shift", {kind for kind in KINDS if kind not in {*BITSUMS, "labels"}}),
        ("label-response", {"labels"}),
        ("central-sensitivity", set(KINDS) - {"pure"}),
    ],
)
def test_checks_apply_where_something_is_claimed(name: str, kinds: set[str]) -> None:
    assert {kind for kind in KINDS if CHECKS[name].applies(subject(kind))} == kinds


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in BITSUMS])
def test_searches_reach_what_is_declared(kind: str) -> None:
    """A search that comes nowhere near its bound could not see it broken."""
    touched = run("touched-instances", kind)
    assert touched.statistic == 1.0
    reached = run("central-sensitivity", kind)
    assert not reached.refuted
    assert reached.smallest_detectable_defect is not None
    assert reached.smallest_detectable_defect < 0.25  # half the sensitivity is far beyond it
    if CHECKS["squared-shift"].applies(subject(kind)):
        found = run("squared-shift", kind)
        assert found.statistic > (0.6 if kind == "joint-gaussian" else 0.99) * found.bound


@pytest.mark.parametrize(("kind", "fewer"), [("joint", 6), ("record", 3)])
def test_a_plan_that_is_too_large_is_searched_on_a_smaller_scale(kind: str, fewer: int) -> None:
    with mock.patch.object(client_view, "MOST_NUMBERS", 100), mock.patch.object(client_view, "FEWER", fewer):
        view = ClientView(subject(kind).plan, private_stream(1))
        assert (view.whole, view.facts.dim, view.facts.joint_classes) == (False, fewer, 3)
        for name in ("client-domain", "touched-instances", "squared-shift", "central-sensitivity"):
            found = run(name, kind)
            assert not found.refuted
            assert name == "central-sensitivity" or "smaller kernel" in found.note


def test_gaussian_profile_by_integration() -> None:
    for ratio, epsilon in ((0.3, 0.5), (1.0, 1.0), (2.0, 0.1)):
        density = mpmath.quad(
            lambda z, m=ratio, e=epsilon: max(mpmath.npdf(z - m) - mpmath.exp(e) * mpmath.npdf(z), 0),
            [-12, epsilon / ratio + ratio / 2, 15],
        )
        assert abs(gaussian_delta(ratio, epsilon) - float(density)) < 1e-9


# Planted faults.

HONEST_LAYOUT = JointLayout.of
HONEST_CALIBRATE = GaussianMechanism.calibrate


def unclipped(self: IdentityFamily, x: Any) -> Any:
    return self.query_features(x) / self._bound


def unprojected(x: Any, dim: int, **_: Any) -> Any:
    return np.clip(np.nan_to_num(np.asarray(x)), -1e30, 1e30).astype(np.float32)


def only_clipped(self: InnerProductFamily, features: Any) -> Any:
    """Without the second line of defense, which holds features to the declared shift."""
    return np.clip(features, -1.0, 1.0)


@pytest.mark.parametrize("kind", ["identity", "whole", "signs", "joint"])
def test_a_client_that_does_not_project_is_refuted_unless_features_are_held(kind: str) -> None:
    with mock.patch("privkde.protocol.parties.checked_vectors", unprojected):
        assert not run("client-domain", kind).refuted
        with mock.patch.object(InnerProductFamily, "_held", only_clipped):
            assert run("client-domain", kind).refuted


def test_a_client_that_finds_every_vector_short_is_refuted() -> None:
    with mock.patch.object(norms, "row_norms", lambda rows: np.zeros(len(rows))):
        assert run("client-domain", "identity").refuted


def test_a_missing_clip_is_refuted() -> None:
    with mock.patch.object(IdentityFamily, "scaled_features", unclipped):
        assert run("client-domain", "identity").refuted


def test_a_client_that_lets_nan_through_is_refuted() -> None:
    def lenient(x: Any, dim: int, **named: Any) -> Any:
        return x.astype(np.float32) if np.isnan(x).any() else checked_vectors(x, dim, **named)

    with mock.patch("privkde.protocol.parties.checked_vectors", lenient):
        assert run("client-domain", "rr").refuted


def test_a_client_that_refuses_everything_is_not_called_honest() -> None:
    with mock.patch.object(ClientView, "accepted", return_value=None):
        assert run("client-domain", "rr").refuted


def once_per_repetition(self: KernelFacts) -> Touched:
    return Touched(groups=self.n_repetitions, per_group=self.sparsity, squared_shift=self.squared_shift)


@pytest.mark.parametrize("kind", ["laplacian", "joint", "joint-gaussian", "joint-exponential"])
def test_s_instead_of_2s_is_refuted(kind: str) -> None:
    with mock.patch.object(KernelFacts, "touched", property(once_per_repetition)):
        assert run("touched-instances", kind).refuted


def test_a_plan_that_counts_too_few_instances_is_refuted() -> None:
    plan = subject("laplacian").plan
    tampered = dataclasses.replace(plan, instances_per_user=plan.instances_per_user // 2)
    assert run("touched-instances", Subject(plan=tampered)).refuted


def understated(name: str) -> kernels.Kernel:
    honest = kernels.KERNELS[name]

    def facts(*given: Any) -> KernelFacts:
        found = honest.build(*given)
        assert found.squared_shift is not None
        return dataclasses.replace(found, squared_shift=0.9 * found.squared_shift)

    return dataclasses.replace(honest, build=facts)


@pytest.mark.parametrize(
    ("kind", "kernel"), [("identity", "inner-product"), ("laplacian", "laplacian"), ("joint", "inner-product")]
)
def test_an_understated_shift_is_refuted(kind: str, kernel: str) -> None:
    """Where features are not held to what is declared; if they are, too small a shift costs accuracy, not privacy."""
    subject(kind)
    wrong = mock.patch.dict(kernels.KERNELS, {kernel: understated(kernel)})
    with wrong, mock.patch.object(InnerProductFamily, "_held", only_clipped):
        assert run("squared-shift", kind).refuted


def test_an_understated_shift_of_drawn_signs_is_refuted() -> None:
    honest = SignFamily.squared_shift

    def less(self: SignFamily) -> float:
        found = honest(self)
        assert found is not None
        return 0.9 * found

    with mock.patch.object(SignFamily, "squared_shift", less):
        assert run("squared-shift", "signs").refuted


def test_sizes_told_too_loudly_are_refuted() -> None:
    def loud(facts: KernelFacts) -> JointLayout | None:
        found = HONEST_LAYOUT(facts)
        return None if found is None else dataclasses.replace(found, weight=1.0)

    subject("joint")
    with mock.patch.object(JointLayout, "of", staticmethod(loud)):
        assert run("squared-shift", "joint").refuted


@pytest.mark.parametrize("kind", ["rr", "identity", "whole", "signs", "laplacian", "joint", "joint-gaussian"])
def test_half_the_sensitivity_is_refuted(kind: str) -> None:
    def half(epsilon: float, delta: float, sensitivity: float) -> GaussianMechanism:
        return HONEST_CALIBRATE(epsilon, delta, sensitivity / 2.0)

    subject(kind)
    with mock.patch.object(GaussianMechanism, "calibrate", staticmethod(half)):
        assert run("central-sensitivity", kind).refuted


def test_a_plan_with_half_the_central_noise_is_refuted() -> None:
    plan = subject("rr").plan
    tampered = []
    for one in plan.baselines:
        parameters = dict(one.contract.parameters)
        if one.name == "central":
            parameters["standard_deviation"] = float(parameters["standard_deviation"]) / 2.0
        tampered.append(dataclasses.replace(one, contract=dataclasses.replace(one.contract, parameters=parameters)))
    assert run("central-sensitivity", Subject(plan=dataclasses.replace(plan, baselines=tuple(tampered)))).refuted


@pytest.mark.parametrize("factor", [0.5, 0.85, 1.2])
def test_central_noise_of_another_size_is_refuted(factor: float) -> None:
    with mock.patch("privkde.learning.baselines.normals", lambda *given: factor * normals(*given)):
        assert run("central-sensitivity", "rr").refuted


def test_labels_kept_with_another_probability_are_refuted() -> None:
    def without_the_uniform_term(self: LabelResponse) -> float:
        power = float(np.exp(self.label_epsilon))
        return power / (power + self.n_classes)

    subject("labels")
    with mock.patch.object(LabelResponse, "keep_probability", property(without_the_uniform_term)):
        assert run("label-response", "labels").refuted


def test_labels_drawn_with_another_probability_are_refuted() -> None:
    with mock.patch(
        "privkde.protocol.label_round.integers_below", lambda bound, *rest: integers_below(bound + 1, *rest)
    ):
        assert run("label-response", "labels").refuted


@pytest.mark.parametrize("kind", ["rr", "signs"])
def test_memory_of_a_search_is_not_quadratic_in_the_dimension(kind: str) -> None:
    """Bytes that arrays ask for: a few dozen vectors and the maps, never all d axes at once."""
    dim, plan = 4096, subject(kind).plan
    large = dataclasses.replace(plan, request=dataclasses.replace(plan.request, dim=dim, repetitions=8))
    view = ClientView(large, private_stream(0, "large"))
    tracemalloc.start()
    vectors = domain._strange(view, private_stream(0, "strange"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert view.whole
    assert len(vectors) * dim * 8 / 2 < peak < dim**2 * 8 / 4


def test_linear_maps_are_the_images_of_all_axes() -> None:
    """The slow twin maps all axes at once."""
    view = ClientView(subject("identity").plan, private_stream(0, "maps"))
    with mock.patch.object(client_view, "AXES", 5):  # does not divide the dimension
        seen = view.directions(3)
    maps = view.family.query_features(np.eye(view.facts.dim)).astype(np.float64)
    np.testing.assert_allclose(seen, (maps / np.linalg.norm(maps, axis=0)).T[:3], rtol=0, atol=1e-6)
