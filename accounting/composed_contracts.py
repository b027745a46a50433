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
from accounting.record_vector import RecordVector

READ_OFF_CLASSES = "the set of classes may be published although it was read off the labels: no promise here covers it"
"""One more hypothesis where classes were not declared beforehand; nothing checks it."""


def rounding_contract(facts: KernelFacts) -> Contract:
    """Randomized rounding of f(x)/R to bits: unbiased, bounds what a user can touch, protects nothing by itself."""
    if facts.record is not None:
        return _record_contract(facts, facts.record)
    touched, joint = facts.touched_once, facts.joint_classes is not None
    per_class = f"min(2·{facts.sparsity}, {facts.n_coordinates})·{facts.n_repetitions}"
    counted = f"2·{facts.sparsity}·{facts.n_repetitions} + 2" if joint else per_class
    return Contract(
        component="randomized rounding of the features" + (" in the block of the label" if joint else ""),
        guarantees=(Guarantee(epsilon=0.0, delta=1.0, adjacency=facts.adjacency, view=View.LOCAL),),
        evidence=Evidence(
            kind=EvidenceKind.THEOREM,
            method="replacing (x, c) changes at most S bits' laws per repetition in either class, and two sizes"
            if joint
            else "replacing x changes at most min(2S, Q) bits' laws per repetition; zero coordinates are fair coins",
            source='docs/proofs/geometric.md, "Joint labels"' if joint else "docs/proofs/composition.md, Lemma 0",
        ),
        checked=(f"{counted} = {touched.total} touched instances" + _in_each(facts.n_releases),),
        assumed=("the client maps any x, however unusual, into [−R, R]^Q with at most S non-zero coordinates",),
        parameters={
            "bound": facts.bound,
            "coordinates": facts.n_coordinates,
            "sparsity": facts.sparsity,
            **({} if facts.ball is None else {"radius": facts.ball.radius, "center": facts.ball.share}),
        },
    )


def _record_contract(facts: KernelFacts, record: RecordVector) -> Contract:
    """The same for whole records that are rotated as one vector: all of its coordinates move, but not far together."""
    moments = f", second moments of weight {record.moment_weight:g}" if record.n_moments else ""
    return Contract(
        component=f"randomized rounding of one rotated vector for features{moments} and label",
        guarantees=(Guarantee(epsilon=0.0, delta=1.0, adjacency=facts.adjacency, view=View.LOCAL),),
        evidence=Evidence(
            kind=EvidenceKind.THEOREM,
            method="replacing (x, c) moves v(x, c) a bounded distance, which rotation keeps and clipping never raises",
            source="docs/proofs/moments.md, Propositions 1 and 2",
        ),
        checked=(
            f"{record.n_coordinates} coordinates and zeros make {facts.touched_once.total} touched instances"
            + _in_each(facts.n_releases),
            f"squared distance ≤ {record.squared_distance:g}, so squared shifts add up to ≤ {facts.squared_shift:.6g}",
        ),
        assumed=("the client maps any record, however unusual, into [−R, R]^Q",),
        parameters={
            "bound": facts.bound,
            "coordinates": facts.n_coordinates,
            "squared_distance": record.squared_distance,
            "moment_weight": record.moment_weight,
        },
    )


def kde_contract(
    facts: KernelFacts,
    protocol: BitsumProtocol,
    rung: Rung,
    *,
    epsilon: float,
    delta: float,
    instance_point: tuple[float, float],
    n_colluders: int = 0,
) -> Contract:
    """All instances together: (ε, δ) in the communication and the model view.

    For replacing one user's features, in all releases; with joint labels for replacing its whole record.
    `n_colluders` may be among those who take part, beside the users that the noise counts on.
    """
    k, n_releases = facts.touched.total, facts.n_releases
    communication = Guarantee(epsilon=epsilon, delta=delta, adjacency=facts.adjacency, view=View.COMMUNICATION)
    per_bit = protocol.local_guarantee()
    local = Guarantee(
        epsilon=0.0 if per_bit.is_empty else k * per_bit.epsilon,
        delta=min(1.0, k * per_bit.delta),
        adjacency=facts.adjacency,
        view=View.LOCAL,
    )
    checked = [protocol.composition_checked or rung.checked]
    if n_colluders:
        checked.append(
            f"nothing is released before {protocol.n_users + n_colluders} packets have come: those of"
            f" {protocol.n_users} users whose noise counts and of {n_colluders} colluders"
        )
    what = "KDE" if facts.joint_classes is None else f"KDE classifier with {facts.joint_classes} joint labels"
    return Contract(
        component=f"{facts.name} {what} from {facts.n_instances} bitsum instances,"
        f" {facts.touched_once.total} of them touched by one user{_in_each(n_releases)}",
        guarantees=(communication, communication.restated(view=View.MODEL), local),
        evidence=rung.evidence,
        checked=tuple(checked),
        assumed=(
            "instances use independent randomness; the public randomness does not depend on the data",
            "the model view follows by post-processing of the communication view",
            *rung.assumed(facts),
            *_assumed(facts, n_colluders),
        ),
        parameters={
            "instances_touched": k,
            **({} if n_releases == 1 else {"releases": n_releases}),
            "accountant": rung.name,
            **({} if facts.joint_classes is None else {"size_weight": facts.size_weight}),
            **rung.parameters(facts.touched_once),
        },
        parts=(rounding_contract(facts), protocol.contract(*instance_point)),
    )


def _in_each(n_releases: int) -> str:
    return "" if n_releases == 1 else f", in each of {n_releases} releases"


def _assumed(facts: KernelFacts, n_colluders: int) -> list[str]:
    """What joint labels, schedules and users who are not honest assume of a collection.

    Source: docs/proofs/geometric.md, "Joint labels"; docs/proofs/moments.md; docs/proofs/composition.md, "Schedules"
    and Lemma 0.
    """
    assumed = []
    if facts.joint_classes is not None:
        assumed.append("the set of classes and the number of users are public")
        assumed.append("nothing else is published that depends on the labels")
    if facts.n_releases > 1:
        assumed.append(
            f"the promise is for all {facts.n_releases} releases together, whose number and plan are fixed beforehand;"
            " in each of them a person takes part at most once, and every release draws its noise independently of the"
            " others"
        )
    if n_colluders:
        who = f"at most {n_colluders} of those who take part"
        assumed.append(f"{who} tell what they sent or do not follow the protocol")
    return assumed


def _over_releases(contract: Contract, n_releases: int) -> Contract:
    """The same pure promise given in each of some releases: ε adds up."""
    if n_releases == 1:
        return contract
    return dataclasses.replace(
        contract,
        component=contract.component + _in_each(n_releases),
        guarantees=tuple(compose_basic([promise] * n_releases) for promise in contract.guarantees),
        evidence=dataclasses.replace(
            contract.evidence,
            method=f"{contract.evidence.method}; ε of {n_releases} releases adds up (basic composition)",
        ),
        parameters={**contract.parameters, "releases": n_releases},
    )


def classifier_contract(kdes: Sequence[Contract], label: LabelResponse, n_releases: int = 1) -> Contract:
    """Label randomized response, then one KDE per reported class; again in each of some releases.

    A user takes part in the KDE of one class only, so features are protected by the weakest of them. Replacing
    (x, c) costs ε + ε_lbl in both views: the published class sizes (or anything normalized by them) depend on the
    label, so the paper's claim of ε alone in the model view holds for features only. In every release the label is
    reported again: T releases cost T·ε_lbl, and the KDEs' contracts are for all T.
    """
    features = {view: _weakest(kdes, view) for view in (View.COMMUNICATION, View.MODEL, View.LOCAL)}
    labels = _over_releases(label.contract(), n_releases)
    label_guarantees = {g.view: g for g in labels.guarantees}
    parts = [(features[view], label_guarantees[view]) for view in features]
    whole = [compose_basic([part.restated(adjacency=Adjacency.RECORD) for part in pair]) for pair in parts]
    return Contract(
        component=f"classifier over {label.n_classes} classes" + _in_each(n_releases),
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
        parameters={
            "classes": label.n_classes,
            "label_epsilon": label.label_epsilon,
            **({} if n_releases == 1 else {"releases": n_releases}),
        },
        parts=(labels, *kdes),
    )


def classifier_label(contract: Contract) -> LabelResponse:
    """The label mechanism of a `classifier_contract`, from which it is read here and nowhere else.

    Raises `InvalidInputError` if the contract holds no such mechanism.
    """
    given: dict[str, Any] = {"classes": None, "label_epsilon": None, **contract.parameters}
    return LabelResponse(n_classes=given["classes"], label_epsilon=given["label_epsilon"])


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
