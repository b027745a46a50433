"""A contract keeps promises, evidence, checked and assumed hypotheses apart, in JSON and in the tree."""

import json
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.composed_contracts import classifier_contract, seeded_contract
from accounting.contract import Contract, Evidence, EvidenceKind
from accounting.guarantee import Adjacency, Guarantee, View, compose_basic
from accounting.mechanisms import LabelResponse
from tests.strategies import contracts, guarantees, searched

LEAF = Contract(
    component="bitsum",
    guarantees=(
        Guarantee(epsilon=0.5, delta=1e-6, adjacency=Adjacency.BIT, view=View.COMMUNICATION),
        Guarantee(epsilon=2, delta=0, adjacency=Adjacency.BIT, view=View.LOCAL),
    ),
    evidence=Evidence(kind=EvidenceKind.COMPUTATION, method="exact law", source="docs/proofs/randomized-response.md"),
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


@searched(given(contracts()), examples=40, study=100)
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


@searched(given(contracts()), examples=40, study=100)
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


@searched(given(contracts()), examples=40, study=100)
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
        "│     because   exact computation: exact law [docs/proofs/randomized-response.md]",
        "│     with      flip_probability = 0.123457, n_users = 30000, name = rr",
        "│     checked   p is in (0, 1/2)",
        "│     assumed   the shuffler shuffles",
        "└─ labels",
        "   │  promises  (0.5, 1e-06)-DP (replace-one-bit, communication view)",
        "   │  promises  (2, 0)-DP (replace-one-bit, local view)",
        "   │  because   exact computation: exact law [docs/proofs/randomized-response.md]",
        "   │  with      flip_probability = 0.123457, n_users = 30000, name = rr",
        "   │  checked   p is in (0, 1/2)",
        "   │  assumed   the shuffler shuffles",
        "   └─ coins",
        "         promises  (0.5, 1e-06)-DP (replace-one-bit, communication view)",
        "         promises  (2, 0)-DP (replace-one-bit, local view)",
        "         because   exact computation: exact law [docs/proofs/randomized-response.md]",
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


# --- contracts of composed components -----------------------------------------------------------------------------


def density(*promises: Guarantee, name: str = "density") -> Contract:
    evidence = Evidence(kind=EvidenceKind.COMPUTATION, method="exact", source="docs")
    return Contract(component=name, guarantees=promises, evidence=evidence)


@st.composite
def densities(draw: st.DrawFn) -> Contract:
    """Any three promises for features, one in each view, in any order."""
    views = draw(st.permutations(list(View)))
    return density(*(draw(guarantees(Adjacency.FEATURES, view)) for view in views))


labels = st.builds(LabelResponse, n_classes=st.integers(2, 9), label_epsilon=st.floats(0.1, 20.0))


@searched(given(kdes=st.lists(densities(), min_size=1, max_size=4), label=labels), examples=30, study=100)
def test_a_classifier_promises_what_each_of_its_classes_keeps(kdes: list[Contract], label: LabelResponse) -> None:
    """A user is in one class that nobody knows beforehand: features are as safe as in the weakest of them."""
    contract = classifier_contract(kdes, label)
    found = {(g.adjacency, g.view): g for g in contract.guarantees}
    assert set(found) == {(a, v) for a in (Adjacency.FEATURES, Adjacency.RECORD, Adjacency.LABEL) for v in View}
    assert len(found) == len(contract.guarantees)
    for view in View:
        features = [g for kde in kdes for g in kde.guarantees if g.view is view]
        weakest = found[Adjacency.FEATURES, view]
        assert all(g.implies(weakest) for g in features)
        assert weakest.epsilon in {0.0, *(g.epsilon for g in features)}
        assert weakest.delta in {g.delta for g in features}
        alone = found[Adjacency.LABEL, view]
        assert (alone.epsilon, alone.delta) == (label.label_epsilon, 0.0)
        both = compose_basic([g.restated(adjacency=Adjacency.RECORD) for g in (weakest, alone)])
        assert found[Adjacency.RECORD, view] == both
        assert both.is_empty or both.epsilon > weakest.epsilon
    assert contract.parts == (label.contract(), *kdes)
    assert contract.parameters == {"classes": label.n_classes, "label_epsilon": label.label_epsilon}
    assert Contract.from_json(json.loads(json.dumps(contract.to_json()))) == contract


def test_two_classes_of_different_strength() -> None:
    def of(epsilon: float, delta: float) -> Contract:
        return density(
            *(Guarantee(epsilon=epsilon, delta=delta, adjacency=Adjacency.FEATURES, view=view) for view in View)
        )

    contract = classifier_contract([of(1.0, 1e-5), of(2.0, 1e-6)], LabelResponse(n_classes=3, label_epsilon=4.0))
    stated = {(g.adjacency, g.view): (g.epsilon, g.delta) for g in contract.guarantees}
    for view in View:
        assert stated[Adjacency.FEATURES, view] == (2.0, 1e-5), "each in its own weakest number"
        assert stated[Adjacency.RECORD, view] == (6.0, 1e-5)
    assert contract.component == "classifier over 3 classes"
    assert "the set of classes is public" in contract.assumed
    assert any("smaller classes are not released" in text for text in contract.assumed)


def test_one_class_without_protection_from_the_shuffler_leaves_none() -> None:
    def of(local: float) -> Contract:
        strong = (
            Guarantee(epsilon=1.0, delta=1e-6, adjacency=Adjacency.FEATURES, view=view)
            for view in (View.COMMUNICATION, View.MODEL)
        )
        return density(*strong, Guarantee(epsilon=9.0, delta=local, adjacency=Adjacency.FEATURES, view=View.LOCAL))

    contract = classifier_contract([of(0.0), of(1.0)], LabelResponse(n_classes=2, label_epsilon=4.0))
    empty = [(g.adjacency, g.view) for g in contract.guarantees if g.is_empty]
    assert empty == [(Adjacency.FEATURES, View.LOCAL), (Adjacency.RECORD, View.LOCAL)]


@searched(given(contracts()), examples=40, study=100)
def test_a_seed_empties_every_promise_and_shows_what_it_would_have_been(contract: Contract) -> None:
    seeded = seeded_contract(contract)
    assert seeded.component == f"NOT PRIVATE (seeded randomness): {contract.component}"
    assert all(g.is_empty for g in seeded.guarantees)
    assert [(g.adjacency, g.view) for g in seeded.guarantees] == [(g.adjacency, g.view) for g in contract.guarantees]
    assert seeded.evidence.kind is EvidenceKind.ASSUMPTION
    assert seeded.parts == (contract,)
    assert seeded.tree().startswith("NOT PRIVATE")
    assert seeded != contract
