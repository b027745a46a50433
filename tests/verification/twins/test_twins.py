"""Twins: they share nothing with `accounting`, agree with themselves, and an audit does without one."""

from __future__ import annotations

import ast
import dataclasses
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from accounting.kernels import KERNELS
from accounting.mechanisms import BITSUMS
from privkde.bitsum import Tally, executed
from tests.plans import plan_for
from tests.verification.subjects import SMALL, subject
from verification import QUICK, audit, twins
from verification.auditing import LAYER_MODULES, collected
from verification.exact.rational_twins import symmetric_hockey_stick
from verification.exact.search import bit_pairs
from verification.miniature import miniature
from verification.reporting.document import Outcome
from verification.statistical.distinguishers import arena, faithful
from verification.statistical.execution import order
from verification.twins import KERNEL_TWINS, TWINS, mechanism_twin
from verification.twins.mechanism_twin import MechanismTwin

WITHOUT_TWIN = {
    "adaptive-budget",
    "plan-verifies",
    "one-promise",
    "kernel-means",
    "shuffler-order",
    "users-counted-once",
    "independent-draws",
    "client-domain",
    "touched-instances",
    "central-sensitivity",
    "distinguisher-black-box",
}
"""What can be checked of a Gaussian density without knowing the mechanism."""


def shown(bitsum: str, n_users: int = 7) -> MechanismTwin:
    """The twin with parameters in which every ingredient shows."""
    twin = mechanism_twin(subject(bitsum).plan)
    return dataclasses.replace(twin, n_users=n_users, **twin.transparent)


def test_every_mechanism_and_every_kernel_has_a_twin() -> None:
    assert set(TWINS) == set(BITSUMS)
    assert set(KERNEL_TWINS) == set(KERNELS)


def test_the_definitions_of_mechanisms_import_nothing_of_accounting_but_its_refusals() -> None:
    modules = sorted(Path(twins.__file__).parent.glob("*_twin*.py"))
    definitions = [module for module in modules if module.name != "kernel_twins.py"]
    assert {"bitsum_twins.py", "mechanism_twin.py"} <= {module.name for module in definitions}
    for module in definitions:
        imported = [
            node.module or "" for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.ImportFrom)
        ]
        assert imported, module
        foreign = {name for name in imported if name.startswith(("accounting", "privkde"))}
        assert foreign <= {"accounting.errors"}


@pytest.mark.parametrize("bitsum", BITSUMS)
def test_tables_of_40_digits_and_of_scipy_are_one_law(bitsum: str) -> None:
    twin = shown(bitsum)
    exact, tables = twin.noise_table(), twin.noise_tables(twin.n_users)
    for name, axis in (("ones", 1), ("zeros", 0)):
        law, marginal = tables[name], exact.sum(axis=axis)
        assert float(marginal.sum()) == pytest.approx(1.0, abs=1e-12)
        length = min(len(marginal), law.stop)
        assert law.start == 0
        assert law.values[:length] == pytest.approx(marginal[:length], abs=1e-12)


@pytest.mark.parametrize("bitsum", BITSUMS)
def test_cumulants_are_those_of_the_tables(bitsum: str) -> None:
    twin = shown(bitsum)
    law = twin.noise_tables(twin.n_users)[twin.read_count]
    mean = float(np.arange(law.start, law.stop) @ law.values)
    values = np.arange(law.start, law.stop) - mean
    second = float(values**2 @ law.values)
    fourth = float(values**4 @ law.values) - 3.0 * second**2
    assert twin.noise_cumulants() == pytest.approx((mean, second, fourth), abs=1e-9)


@pytest.mark.parametrize("bitsum", BITSUMS)
def test_the_analyzer_reads_the_count_that_the_twin_says(bitsum: str) -> None:
    """`counts` undoes the library's estimate."""
    law = subject(bitsum).plan.protocol()
    ones, zeros = np.array([3, 40, 700]), np.array([2, 11, 650])
    estimates = executed(law).estimate(Tally(ones, zeros), law.n_users)
    counted = ones - zeros if TWINS[bitsum].reads_difference else ones
    assert mechanism_twin(law).counts(estimates, law.n_users) == pytest.approx(counted, abs=1e-6)


@pytest.mark.parametrize("bitsum", BITSUMS)
def test_certified_laws_are_the_exact_ones(bitsum: str) -> None:
    """Total variation of the two laws of one instance, by the certificate and by enumeration."""
    delta = 0.0 if bitsum == "pure" else 1e-2
    small = miniature(subject(bitsum).plan, users=3, dim=1, repetitions=1, epsilon=2.0, delta=delta)
    twin = mechanism_twin(small)
    largest = max(pair.stick(0.0) for pair in bit_pairs(small)[:2])
    if not twin.spends_delta:
        bounds = twin.loss_bounds()
        loss = max(pair.largest_loss() for pair in bit_pairs(small))
        assert bounds.upper is not None
        assert 0.9 * bounds.upper < bounds.lower <= bounds.upper  # for who knows the others' silences
        assert 0.9 * bounds.upper < loss <= bounds.upper * (1.0 + 1e-9)
        return
    laws = twin.certified_laws(1e-12)
    distance = sum(abs(float(one - zero)) for one, zero in zip(laws.one, laws.zero, strict=True))
    assert 0.5 * distance == pytest.approx(largest, abs=1e-9)
    kinds = twin.exact_pairs()
    if kinds is not None:
        assert float(symmetric_hockey_stick(kinds[:1], Fraction(1))) == pytest.approx(largest, abs=1e-9)


@pytest.mark.parametrize("bitsum", ["poisson", pytest.param("rr", marks=pytest.mark.slow)])
def test_a_mechanism_without_a_twin_is_audited_by_the_other_checks(
    bitsum: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer samples than an audit draws, at the same level."""
    monkeypatch.delitem(TWINS, bitsum)
    for module, name, value in ((arena, "SAMPLES", 2_000), (faithful, "MESSAGES", 50_000), (order, "RELEASES", 200)):
        monkeypatch.setattr(module, name, value)
    report = audit(plan_for(**{**SMALL, "bitsum": bitsum}), effort=QUICK, seed=3, workers=1)
    assert report.verdict == Outcome.NOT_REFUTED
    assert {result.name for result in report.results} == WITHOUT_TWIN
    assert set(report.missing.values()) == {f"the mechanism {bitsum!r} has no twin in verification.twins"}
    assert set(report.missing) < set(report.not_applicable)
    assert {"exact-instance", "certified-bound", "samplers", "sup-rmse"} <= set(report.missing)
    assert report.to_json()["missing"] == dict(report.missing)


def test_with_a_twin_nothing_is_missing() -> None:
    for kind in (*BITSUMS, "laplacian", "joint"):
        assert [check.name for _, check in collected(LAYER_MODULES) if check.needs(subject(kind))] == []
