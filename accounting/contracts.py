"""Contracts of the composed components: rounding step, KDE, classifier."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.composition import Rung
from accounting.contract import Contract, Evidence, EvidenceKind
from accounting.guarantee import Adjacency, Guarantee, View, compose_basic
from accounting.kernels import KernelFacts
from accounting.mechanisms import BitsumProtocol, LabelResponse, Pure

PAPER_PROTOCOL = "the paper, Algorithm 1"


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
    one = protocol.local_guarantee()
    local = Guarantee(
        epsilon=0.0 if one.is_empty else k * one.epsilon,
        delta=min(1.0, k * one.delta),
        adjacency=adjacency,
        view=View.LOCAL,
    )
    what = "KDE" if facts.joint_classes is None else f"KDE classifier with {facts.joint_classes} joint labels"
    return Contract(
        component=f"{facts.name} {what} from {facts.n_instances} bitsum instances, {k} of them touched by one user",
        guarantees=(communication, communication.restated(view=View.MODEL), local),
        evidence=rung.evidence,
        checked=(_calibration_checked(protocol, rung),),
        assumed=(
            "instances use independent randomness; the public randomness does not depend on the data",
            "the model view follows by post-processing of the communication view",
            *_geometric_assumed(facts, rung),
            *_joint_assumed(facts),
        ),
        parameters={"instances_touched": k, "accountant": rung.name, **_shifts(facts, rung)},
        parts=(rounding_contract(facts), protocol.contract(*instance_point)),
    )


def _shifts(facts: KernelFacts, rung: Rung) -> dict[str, float]:
    """What geometric accounting was told of the bits' shifts, and the weight of joint sizes."""
    told: dict[str, float] = {} if facts.joint_classes is None else {"size_weight": facts.size_weight}
    if rung.name == "geometric":
        told |= {"squared_shift": facts.touched.shift_budget, "largest_shift": facts.touched.largest_shift}
    return told


def _geometric_assumed(facts: KernelFacts, rung: Rung) -> tuple[str, ...]:
    """What geometric accounting assumes of clients. Source: docs/proofs/geometric.md."""
    if rung.name != "geometric":
        return ()
    own = "the target's client admits only records of the kernel's domain, so that squared shifts add up to at most Δ²"
    if facts.name == "inner-product-signs":
        own += "; it takes part only if the drawn signs keep the declared Δ², which it computes"
    if not facts.unit_ball:
        return (own,)
    return (own, "so do the clients of all users counted on: their roundings of vectors in the unit ball are noise too")


def _joint_assumed(facts: KernelFacts) -> tuple[str, ...]:
    """What joint labels assume of a collection. Source: docs/proofs/geometric.md, "Joint labels"."""
    if facts.joint_classes is None:
        return ()
    return (
        "the set of classes and the number of users are public",
        "nothing else is published that depends on the labels",
    )


def _calibration_checked(protocol: BitsumProtocol, rung: Rung) -> str:
    if protocol.name == Pure.name:
        return "the conditions of Pure hold for these parameters; ε of the touched instances adds up"
    if rung.name == "paper":
        return "the published parameters pass the exact law of one instance"
    return "the parameters pass a pessimistic evaluation of the composed profile"


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


def _weakest(contracts: Sequence[Contract], view: View) -> Guarantee:
    """A guarantee that each of these contracts implies in a view."""
    found = [g for contract in contracts for g in contract.guarantees if g.view is view]
    return Guarantee(
        epsilon=max(g.epsilon for g in found),
        delta=max(g.delta for g in found),
        adjacency=found[0].adjacency,
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
