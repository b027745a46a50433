"""How a plan finds its checker, and which certificates count."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from accounting import InvalidInputError, checking
from accounting.checking import NoCheckerError, disproved, read_proof, require_proof
from tests.plans import plan_for

CHEAP: dict[str, Any] = {"users": 40, "dim": 2, "repetitions": 3, "epsilon": 4.0, "delta": 1e-3, "bitsum": "poisson"}
CHEAP |= {"accountant": "basic", "allow_useless": True}


def test_a_plan_is_certified_by_the_installed_checker() -> None:
    plan = plan_for(**CHEAP)
    proof = plan.certified()
    assert (proof.proves, proof.refutes, proof.plan_sha256) == (True, False, plan.sha256())
    assert proof.headline.startswith("proved: ε ≤ ")
    assert proof.proved_epsilon is not None
    assert 0.0 < proof.proved_epsilon < 4.0
    again = read_proof(proof.to_json())
    assert again.dumps() == proof.dumps()
    assert list(disproved(plan, again)) == []
    assert len(list(disproved(plan_for(**CHEAP | {"users": 50}), again))) == 1


def test_a_certificate_counts_for_its_own_plan_if_it_proves_it() -> None:
    plan = plan_for(**CHEAP)
    proof = plan.certified()
    assert require_proof(proof, plan.sha256()) is proof
    with pytest.raises(InvalidInputError, match="not for 000000000000…"):
        require_proof(proof, "0" * 64)
    document = proof.to_json()
    document["proved"] |= {"upper_epsilon": None, "epsilon": None, "holds": False}
    with pytest.raises(InvalidInputError, match="proves nothing"):
        require_proof(read_proof(document), plan.sha256())


@pytest.mark.parametrize("installed", [0, 2])
def test_without_one_checker_nothing_is_certified(monkeypatch: pytest.MonkeyPatch, installed: int) -> None:
    point = EntryPoint(name="certify", value="math:sqrt", group=checking.ENTRY_POINTS)
    monkeypatch.setattr(checking, "entry_points", lambda **_: EntryPoints([point] * installed))
    with pytest.raises(NoCheckerError, match=f"^{installed} packages can certify"):
        plan_for(**CHEAP).certified()
