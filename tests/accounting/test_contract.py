"""A contract keeps promises, evidence, checked and assumed hypotheses apart, in JSON and in the tree."""

import json
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given

from accounting.contract import Contract, Evidence, EvidenceKind
from accounting.guarantee import Adjacency, Guarantee, View
from tests.strategies import contracts

LEAF = Contract(
    component="bitsum",
    guarantees=(
        Guarantee(epsilon=0.5, delta=1e-6, adjacency=Adjacency.BIT, view=View.COMMUNICATION),
        Guarantee(epsilon=2, delta=0, adjacency=Adjacency.BIT, view=View.LOCAL),
    ),
    evidence=Evidence(kind=EvidenceKind.COMPUTATION, method="exact law", source="docs/proofs/rr.md"),
    checked=("p is in (0, 1/2)",),
    assumed=("the shuffler shuffles",),
    parameters={"flip_probability": 0.123456789, "n_users": 30000, "name": "rr"},
)
TREE = Contract(
    component="protocol",
    guarantees=(Guarantee(epsilon=1, delta=1e-5, adjacency=Adjacency.RECORD, view=View.MODEL),),
    evidence=Evidence(kind=EvidenceKind.THEOREM, method="composition", source="Theorem 3.2"),
    assumed=("users draw private coins",),
    parts=(LEAF, replace(LEAF, component="labels", parts=(replace(LEAF, component="coins"),))),
)


def every_part(contract: Contract) -> Iterator[Contract]:
    yield contract
    for part in contract.parts:
        yield from every_part(part)


@given(contracts())
def test_json_round_trip(contract: Contract) -> None:
    text = json.dumps(contract.to_json(), allow_nan=False)
    assert Contract.from_json(json.loads(text)) == contract


def test_json_is_not_vacuous_and_an_unknown_kind_of_evidence_is_rejected() -> None:
    data = TREE.to_json()
    assert [part["component"] for part in data["parts"]] == ["bitsum", "labels"]
    assert data["parts"][0]["checked"] == ["p is in (0, 1/2)"]
    assert data["parts"][0]["assumed"] == ["the shuffler shuffles"]
    data["evidence"]["kind"] = "hope"
    with pytest.raises(ValueError, match="hope"):
        Contract.from_json(data)


def test_editing_the_json_does_not_edit_the_contract() -> None:
    data = TREE.to_json()
    data["parts"][0]["parameters"]["flip_probability"] = 0.0
    data["parts"].clear()
    assert TREE.parts[0].parameters["flip_probability"] == 0.123456789
    assert len(TREE.parts) == 2


@given(contracts())
def test_the_tree_says_everything(contract: Contract) -> None:
    lines = contract.tree().splitlines()
    text = contract.tree()
    for part in every_part(contract):
        assert part.component in text
        assert f"because   {part.evidence.kind}: {part.evidence.method} [{part.evidence.source}]" in text
        for guarantee in part.guarantees:
            assert f"promises  {guarantee}" in text
        for name in part.parameters:
            assert f"{name} = " in text
    # One line for each thing said, so nothing is said twice and nothing is run together.
    said = [
        1 + len(part.guarantees) + 1 + bool(part.parameters) + len(part.checked) + len(part.assumed)
        for part in every_part(contract)
    ]
    assert len(lines) == sum(said)


@given(contracts())
def test_checked_and_assumed_stay_apart(contract: Contract) -> None:
    bodies = [line.lstrip("│├└─ ") for line in contract.tree().splitlines()]
    for word in ("checked", "assumed"):
        expected = [text for part in every_part(contract) for text in getattr(part, word)]
        for text in expected:
            assert f"{word}   {text}" in bodies
        assert sum(body.startswith(f"{word}   ") for body in bodies) >= len(expected)


def test_the_tree_looks_like_this() -> None:
    assert TREE.tree().splitlines() == [
        "protocol",
        "│  promises  (1, 1e-05)-DP (replace-one, model view)",
        "│  because   theorem: composition [Theorem 3.2]",
        "│  assumed   users draw private coins",
        "├─ bitsum",
        "│     promises  (0.5, 1e-06)-DP (replace-one-bit, communication view)",
        "│     promises  (2, 0)-DP (replace-one-bit, local view)",
        "│     because   exact computation: exact law [docs/proofs/rr.md]",
        "│     with      flip_probability = 0.123457, n_users = 30000, name = rr",
        "│     checked   p is in (0, 1/2)",
        "│     assumed   the shuffler shuffles",
        "└─ labels",
        "   │  promises  (0.5, 1e-06)-DP (replace-one-bit, communication view)",
        "   │  promises  (2, 0)-DP (replace-one-bit, local view)",
        "   │  because   exact computation: exact law [docs/proofs/rr.md]",
        "   │  with      flip_probability = 0.123457, n_users = 30000, name = rr",
        "   │  checked   p is in (0, 1/2)",
        "   │  assumed   the shuffler shuffles",
        "   └─ coins",
        "         promises  (0.5, 1e-06)-DP (replace-one-bit, communication view)",
        "         promises  (2, 0)-DP (replace-one-bit, local view)",
        "         because   exact computation: exact law [docs/proofs/rr.md]",
        "         with      flip_probability = 0.123457, n_users = 30000, name = rr",
        "         checked   p is in (0, 1/2)",
        "         assumed   the shuffler shuffles",
    ]


def test_a_contract_cannot_be_edited() -> None:
    with pytest.raises(FrozenInstanceError):
        LEAF.component = "something else"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        LEAF.evidence.method = "something else"  # type: ignore[misc]


def test_a_contract_can_be_hashed() -> None:
    assert hash(LEAF) == hash(Contract.from_json(LEAF.to_json()))
