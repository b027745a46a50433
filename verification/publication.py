"""A check of the published model itself: it was made by the audited plan, with secret draws, from possible counts."""

from __future__ import annotations

import numpy as np

from accounting import InvalidInputError, Plan, View
from privkde.bitsum import Tally, executed
from privkde.protocol.model import DensityModel
from verification.verdicts import Effort, Finding, Layer, Subject, check, finding

LATTICE_SLACK = 1e-4
"""How far from a whole number a count may be that was computed back from a published sum, in double precision."""


@check(
    "published-model",
    Layer.CERTIFIED,
    "the model was published by this plan",
    applies=lambda subject: subject.model is not None,
)
def check_model(subject: Subject, effort: Effort, seed: int) -> Finding:
    """What the file alone shows; whether draws were secret is what clients said of theirs, and the publisher wrote."""
    model = subject.model
    if model is None:
        raise InvalidInputError("no model was given; audit with --model.")
    breaches = [
        *([] if model.private else ["the private draws came from a seed, so the model keeps no promise"]),
        *_of_another(subject.plan, model),
        *_weaker(subject.plan, model),
        *_unproved(model),
        *_impossible(model),
    ]
    return finding(
        "The model was published by this plan: it promises no less, its parameters keep that, its sums are possible.",
        statistic=float(len(breaches)),
        bound=0.0,
        found="; ".join(breaches),
        note="Statistic: breaches. Sums that were altered to other possible values cannot be told from noise. Not"
        " known: whether clients told the truth when they marked their draws as secret, and whether each report is of"
        " another person.",
    )


def _of_another(plan: Plan, model: DensityModel) -> list[str]:
    """What shows that the model was collected by another plan: protocol, classes, number of users."""
    request, users = plan.request, sum(model.n_users)
    fewest = request.least_packets * request.n_protocols
    labels = {made.request.labels for made in model.plans} if request.joint else {request.labels}
    facts = {
        "bitsum": (plan.bitsum, {made.bitsum for made in model.plans}),
        "labels": (request.labels, labels),
        "classes": (request.classes is not None, {bool(model.labels)}),
    }
    breaches = [
        f"the plan has {name} {planned!r} and the model has not"
        for name, (planned, published) in facts.items()
        if published != {planned}
    ]
    if not fewest <= users <= request.users and len(model.plans) == request.n_protocols:
        breaches.append(f"the plan is for {fewest:,} to {request.users:,} users and the model has {users:,}")
    return breaches


def _weaker(plan: Plan, model: DensityModel) -> list[str]:
    """Promises of the plan that the model does not keep, and parameters other than those audited for one request.

    What holds if the shuffler colludes depends on the number of users who reported a class, so it is not compared.
    """
    made = {(g.adjacency, g.view): g for g in model.contract.guarantees}
    breaches = []
    for promise in plan.guarantees:
        kept = made.get((promise.adjacency, promise.view))
        if promise.view is not View.LOCAL and (kept is None or not kept.implies(promise)):
            breaches.append(f"the plan promises {promise} and the model {kept or 'does not'}")
    return breaches + [
        "the model's parameters are not the plan's for the same request"
        for other in model.plans
        if other.request == plan.request
        and (other.bitsum, dict(other.parameters)) != (plan.bitsum, dict(plan.parameters))
    ]


def _unproved(model: DensityModel) -> list[str]:
    """Plans in the model that their own accountant does not confirm."""
    breaches = []
    for announcement in model.announcements:
        try:
            announcement.plan.verify()
        except InvalidInputError as error:
            breaches.append(f"group {announcement.group!r}: {error}")
    return breaches


def _impossible(model: DensityModel) -> list[str]:
    """Groups whose sums no counts can give: F̃ = (2B̃ − n)R, and B̃ is a whole number of equal steps from B̃(0, 0)."""
    breaches = []
    for announcement, sums, n in zip(model.announcements, model.sums, model.n_users, strict=True):
        bitsum = executed(announcement.plan.protocol())
        least, next_one = (float(bitsum.estimate(Tally(np.array([k]), np.array([0])), n)[0]) for k in (0, 1))
        estimates = (sums / announcement.plan.request.facts().bound + n) / 2.0
        counts = (estimates - least) / (next_one - least)
        off = np.abs(counts - np.round(counts)) > LATTICE_SLACK
        if announcement.plan.protocol().one_message_each:
            off |= (counts < -LATTICE_SLACK) | (counts > n + LATTICE_SLACK)
        if np.any(off):
            breaches.append(f"{int(np.sum(off))} of {len(sums)} sums of group {announcement.group!r} are impossible")
    return breaches


CHECKS = (check_model,)
