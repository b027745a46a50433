"""A check of the published model itself: it was made by the audited plan, with secret draws, from possible counts."""

from __future__ import annotations

import numpy as np

from accounting import InvalidInputError, Plan, View
from privkde.bitsum import Tally, executed
from privkde.model import DensityModel
from verification.verdicts import Check, Effort, Finding, Layer, Subject, finding

LATTICE_SLACK = 1e-4
"""How far from a whole number a count may be that was computed back from a published sum, in double precision."""


def check_model(subject: Subject, effort: Effort, seed: int) -> Finding:
    """What can be told from the file alone; whether the draws were secret is the publisher's word."""
    model = subject.model
    if model is None:
        raise InvalidInputError("no model was given; audit with --model.")
    found = [
        *([] if model.private else ["the private draws came from a seed, so the model keeps no promise"]),
        *_of_another(subject.plan, model),
        *_weaker(subject.plan, model),
        *_unproved(model),
        *_impossible(model),
    ]
    return finding(
        "published-model",
        Layer.CERTIFIED,
        "The model was published by this plan: it promises no less, its parameters keep that, its sums are possible.",
        statistic=float(len(found)),
        bound=0.0,
        found="; ".join(found),
        note="Statistic: breaches. Sums that were altered to other possible values cannot be told from noise.",
    )


def _of_another(plan: Plan, model: DensityModel) -> list[str]:
    """What shows that the model was collected by another plan: protocol, classes, number of users."""
    asked, users = plan.request, sum(model.n_users)
    fewest = asked.counted_users * asked.n_protocols
    facts = {
        "bitsum": (plan.bitsum, {one.bitsum for one in model.plans}),
        "labels": (asked.labels, {one.request.labels for one in model.plans} if asked.joint else {asked.labels}),
        "classes": (asked.classes is not None, {bool(model.labels)}),
    }
    breaches = [
        f"the plan has {name} {said!r} and the model has not" for name, (said, of) in facts.items() if of != {said}
    ]
    if not fewest <= users <= asked.users and len(model.plans) == asked.n_protocols:
        breaches.append(f"the plan is for {fewest:,} to {asked.users:,} users and the model has {users:,}")
    return breaches


def _weaker(plan: Plan, model: DensityModel) -> list[str]:
    """Promises of the plan that the model does not keep, and parameters other than those audited for one request.

    What holds if the shuffler colludes depends on the number of users who reported a class, so it is not compared.
    """
    made = {(g.adjacency, g.view): g for g in model.contract.guarantees}
    breaches = []
    for asked in plan.guarantees:
        given = made.get((asked.adjacency, asked.view))
        if asked.view is not View.LOCAL and (given is None or not given.implies(asked)):
            breaches.append(f"the plan promises {asked} and the model {given or 'does not'}")
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
        none, one = (float(bitsum.estimate(Tally(np.array([k]), np.array([0])), n)[0]) for k in (0, 1))
        estimates = (sums / announcement.plan.request.facts().bound + n) / 2.0
        counts = (estimates - none) / (one - none)
        off = np.abs(counts - np.round(counts)) > LATTICE_SLACK
        if bitsum.one_message_each:
            off |= (counts < -LATTICE_SLACK) | (counts > n + LATTICE_SLACK)
        if np.any(off):
            breaches.append(f"{int(np.sum(off))} of {len(sums)} sums of group {announcement.group!r} are impossible")
    return breaches


CHECKS = (
    Check(
        name="published-model",
        layer=Layer.CERTIFIED,
        about="the model was published by this plan",
        run=check_model,
        applies=lambda subject: subject.model is not None,
    ),
)
