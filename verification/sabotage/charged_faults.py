"""Faults in what is charged to a budget, and in the rule that admits releases."""

from __future__ import annotations

import math
from typing import Any

from accounting import Plan
from accounting.releases import release as releases
from accounting.releases.adaptive import AdaptiveFilter
from accounting.releases.composing import Spent, spent
from accounting.releases.plan_curves import label_curve, promised_curve
from accounting.releases.profile_points import Profile
from accounting.releases.release import Part, Release
from privkde.ledger import ledger
from privkde.ledger.records import Budget
from verification.sabotage.plans import FEW, RESPONSE
from verification.sabotage.saboteur import Right, fault


@fault("forecast charged", FEW, releases, "plan_parts")
def forecast(right: Right, plan: Plan) -> tuple[Part, ...]:
    """With separate labels the ledger charges the profile of the forecast class size, not of the sizes that come."""
    label = plan.request.label_response()
    if label is None:
        return tuple(right(plan))
    return tuple(Part(profile=Profile.below(curve)) for curve in (promised_curve(plan), label_curve(label)))


@fault("pld under adaptive choice", RESPONSE, ledger, "composed")
def as_if_fixed(_: Right, budget: Budget, chosen: tuple[Release, ...]) -> Spent:
    """Releases that are chosen after seeing earlier results are added up as if all had been fixed beforehand."""
    return spent(chosen, budget.delta)


@fault("cut mass forgotten in the filter", RESPONSE, AdaptiveFilter, "cut_allowance")
def free_cuts(*_: Any) -> float:
    """The filter cuts off the rarest outcomes of each release and never adds up what it cut."""
    return math.inf
