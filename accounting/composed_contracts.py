"""Contracts of the composed components: rounding step, KDE, classifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from accounting.composition import Rung
from accounting.contract import Contract, Evidence, EvidenceKind
from accounting.guarantee import Adjacency, Guarantee, View, compose_basic
from accounting.kernels import KernelFacts
from accounting.mechanisms import BitsumProtocol, LabelResponse

READ_OFF_CLASSES = "the set of labels is public: it was read off the data, which no promise here covers"


def rounding_contract(facts: KernelFacts) -> Contract:
    """Randomized rounding of f(x)/R to bits: unbiased, bounds what a user can touch, protects nothing by itself."""
    touched, joint = facts.touched, facts.joint_classes is not None
    per_class = f"min(2·{facts.sparsity}, {facts.n_coordinates})·{facts.n_repetitions}"
    counted = f"2·{facts.sparsity}·{facts.n_repetitions} + 2" if joint else per_class
    return Contract(
        component="randomized rounding of the features" + (" in the block of the label" if joint else ""),
        guarantees=(
            Guarantee(
                epsilon=0.0,
                delta=1.0,
                adjacency=Adjacency.RECORD if joint else Adjacency.FEATURES,
                view=View.LOCAL,
            ),
        ),
        evidence=Evidence(
            kind=EvidenceKind.THEOREM,
            method="replacing (x, c) changes at most S bits' laws per repetition in either class, and two sizes"
            if joint
            else "replacing x changes at most min(2S, Q) bits' laws per repetition; zero coordinates are fair coins",
            source='docs/proofs/geometric.md, "Joint labels"' if joint else "docs/proofs/composition.md, Lemma 0",
        ),
        checked=(f"{counted} = {touched.total} touched instances",),
        assumed=("the client maps any x, however unusual, into [−R, R]^Q with at most S non-zero coordinates",),
        parameters={"bound": facts.bound, "coordinates": facts.n_coordinates, "sparsity": facts.sparsity},
    )


def kde_contract(
    facts: KernelFacts,
    protocol: BitsumProtocol,
    rung: Rung,
    *,
    epsilon: float,
    delta: float,
    instance_point: tuple[float, float],
) -> Contract:
    """All instances together: (ε, δ) in the communication and the model view.

    For replacing one user's features; with joint labels for replacing its whole record.
    """
    k = facts.touched.total
    adjacency = Adjacency.FEATURES if facts.joint_classes is None else Adjacency.RECORD
    communication = Guarantee(epsilon=epsilon, delta=delta, adjacency=adjacency, view=View.COMMUNICATION)
    per_bit = protocol.local_guarantee()
    local = Guarantee(
        epsilon=0.0 if per_bit.is_empty else k * per_bit.epsilon,
        delta=min(1.0, k * per_bit.delta),
        adjacency=adjacency,
        view=View.LOCAL,
    )
    what = "KDE" if facts.joint_classes is None else f"KDE classifier with {facts.joint_classes} joint labels"
    return Contract(
        component=f"{facts.name} {what} from {facts.n_instances} bitsum instances, {k} of them touched by one user",
        guarantees=(communication, communication.restated(view=View.MODEL), local),
        evidence=rung.evidence,
        checked=(protocol.composition_checked or rung.checked,),
        assumed=(
            "instances use independent randomness; the public randomness does not depend on the data",
            "the model view follows by post-processing of the communication view",
            *rung.assumed(facts),
            *_joint_assumed(facts),
        ),
        parameters={
            "instances_touched": k,
            "accountant": rung.name,
            **({} if facts.joint_classes is None else {"size_weight": facts.size_weight}),
            **rung.parameters(facts.touched),
        },
        parts=(rounding_contract(facts), protocol.contract(*instance_point)),
    )


def _joint_assumed(facts: KernelFacts) -> tuple[str, ...]:
    """What joint labels assume of a collection. Source: docs/proofs/geometric.md, "Joint labels"."""
    if facts.joint_classes is None:
        return ()
    return (
        "the set of classes and the number of users are public",
        "nothing else is published that depends on the labels",
    )


def classifier_contract(kdes: Sequence[Contract], label: LabelResponse) -> Contract:
    """Label randomized response, then one KDE per reported class.

    A user takes part in the KDE of one class only, so features are protected by the weakest of them. Replacing
    (x, c) costs ε + ε_lbl in both views: the published class sizes (or anything normalized by them) depend on the
    label, so the paper's claim of ε alone in the model view holds for features only.
    """
    features = {view: _weakest(kdes, view) for view in (View.COMMUNICATION, View.MODEL, View.LOCAL)}
    labels = label.contract()
    label_guarantees = {g.view: g for g in labels.guarantees}
    whole = tuple(
        compose_basic(
            [
                features[view].restated(adjacency=Adjacency.RECORD),
                label_guarantees[view].restated(adjacency=Adjacency.RECORD),
            ]
        )
        for view in (View.COMMUNICATION, View.MODEL, View.LOCAL)
    )
    return Contract(
        component=f"classifier over {label.n_classes} classes",
        guarantees=(*features.values(), *whole, *labels.guarantees),
        evidence=Evidence(
            kind=EvidenceKind.THEOREM,
            method="a user belongs to one reported class; features and label guarantees add (basic composition)",
            source="docs/proofs/composition.md, Proposition 5",
        ),
        checked=("adjacency and view of both parts agree before they are added",),
        assumed=(
            "the set of classes is public",
            "every class has at least the users that its noise counts on; smaller classes are not released",
        ),
        parameters={"classes": label.n_classes, "label_epsilon": label.label_epsilon},
        parts=(labels, *kdes),
    )


def classifier_label(contract: Contract) -> LabelResponse:
    """The label mechanism of a `classifier_contract`, from which it is read here and nowhere else.

    Raises `InvalidInputError` if the contract holds no such mechanism.
    """
    given: dict[str, Any] = {"classes": None, "label_epsilon": None, **contract.parameters}
    return LabelResponse(n_classes=given["classes"], label_epsilon=given["label_epsilon"])


def read_off_contract(contract: Contract) -> Contract:
    """The same promise of classes that were not declared beforehand: one more hypothesis, and nothing checks it."""
    return dataclasses.replace(contract, assumed=(*contract.assumed, READ_OFF_CLASSES))


def _weakest(contracts: Sequence[Contract], view: View) -> Guarantee:
    """A guarantee that each of these contracts implies in a view."""
    guarantees = [g for contract in contracts for g in contract.guarantees if g.view is view]
    return Guarantee(
        epsilon=max(g.epsilon for g in guarantees),
        delta=max(g.delta for g in guarantees),
        adjacency=guarantees[0].adjacency,
        view=view,
    )


def seeded_contract(contract: Contract) -> Contract:
    """The same execution with private draws from a seed: whoever knows the seed can undo them, so nothing holds."""
    return Contract(
        component=f"NOT PRIVATE (seeded randomness): {contract.component}",
        guarantees=tuple(
            Guarantee(epsilon=0.0, delta=1.0, adjacency=g.adjacency, view=g.view) for g in contract.guarantees
        ),
        evidence=Evidence(
            kind=EvidenceKind.ASSUMPTION,
            method="the private draws are a function of a seed; the plan below would hold with secret randomness",
            source="docs/known-gaps.md",
        ),
        parts=(contract,),
    )
