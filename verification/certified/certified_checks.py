"""The certified layer recomputes the plan's own numbers at full size from its parameters.

`plan-verifies` does so by the same accountant that planned, `certified-bound` by an independent route; `one-promise`
adds up what a whole record is promised.
"""

from __future__ import annotations

import math
from fractions import Fraction

from accounting import PrivkdeError
from accounting.guarantee import View
from accounting.plan import LAST_DIGITS, differences
from verification.certified.certificate import Certificate, certify
from verification.evidence import CertifiedBounds
from verification.twins import needs_twins
from verification.verdicts import Effort, Finding, Layer, Subject, check, finding


@check("plan-verifies", Layer.CERTIFIED, "the plan's own accountant, again")
def plan_verifies(subject: Subject, effort: Effort, seed: int) -> Finding:
    """`Plan.verify` does not raise, and every number of the plan follows from its request and its parameters."""
    said = ""
    try:
        subject.plan.verify()
        follows = subject.plan.recomputed().to_json()
        said = "; ".join(differences(subject.plan.to_json(), follows, LAST_DIGITS))
    except PrivkdeError as error:
        said = str(error)
    return finding(
        "The plan's accountant proves its promise for its parameters, and all its numbers follow from these.",
        statistic=1.0 if said else 0.0,
        bound=0.0,
        found=said,
        note="statistic: 1 if the plan was refused; this is the library's own accountant, not an independent route; the"
        " plan's reasons are words and are not checked",
    )


@check("one-promise", Layer.CERTIFIED, "features and label together cost no more than the ε that was asked for")
def one_promise(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The ε of the features and of every release's label add up to at most the request's, and so does each promise."""
    request = subject.plan.request
    label = Fraction(request.label_epsilon or 0.0) * request.releases
    spent = {"the parts of ε": float((Fraction(request.kde_epsilon) + label) / Fraction(request.epsilon))}
    for promise in subject.plan.guarantees:
        if promise.view is not View.LOCAL:
            spent[f"the promise {promise}"] = promise.epsilon / request.epsilon
    worst = max(spent, key=lambda name: spent[name])
    return finding(
        f"ε = {request.epsilon:g} is for a whole record: its parts add up to no more, and no promise is weaker.",
        statistic=spent[worst],
        bound=1.0 + LAST_DIGITS,
        found=f"{worst}: {spent[worst]:.6g} times the ε that was asked for",
        power=1.0,
        smallest_detectable_defect=max(0.0, 1.0 / spent[worst] - 1.0) + LAST_DIGITS,
        note="statistic: the largest ε, over the request's; smallest detectable defect: relative excess of the largest",
    )


@check("certified-bound", Layer.CERTIFIED, "the promise, proved at full size", needs=needs_twins)
def certified_bound(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The claimed ε is not below what the covered bits cost at least; the evidence says whether the promise is proved.

    The promise rests on the claim of the plan's accountant for all bits that it covers. If these cost more than it
    says, its proof is void, and the plan is refuted even if no record can move that many bits. Only if two records cost
    more is the promise to people itself known to be false; the witness says which. A proved bound above the claim
    contradicts nothing: then the promise is not proved here.

    The defect that is found for certain: if the covered bits cost more than upper/lower times the claim, the lower
    bound is above it. Without an upper bound nothing is known of how far below the truth the lower one is: power 0.
    """
    found = certify(subject.plan)
    gap = None
    if found.upper_epsilon is not None and found.covered_epsilon > 0.0:
        gap = max(0.0, math.nextafter(found.upper_epsilon / found.covered_epsilon - 1.0, math.inf))
    numbers = {
        "claimed": found.claimed_epsilon,
        "covered": found.covered_epsilon,
        "lower": found.lower_epsilon,
        "delta": found.delta,
    }
    if found.upper_epsilon is not None:
        numbers["upper"] = found.upper_epsilon
    return finding(
        "The contract's claim for the bits that its accountant covers, on which the promise rests, is not contradicted"
        " by an independent computation in ball arithmetic.",
        statistic=max(found.covered_epsilon, found.lower_epsilon),
        bound=found.claimed_epsilon,
        found=contradiction(found),
        numbers=numbers,
        power=0.0 if gap is None else 1.0,
        smallest_detectable_defect=gap,
        note="; ".join((_reach(found), _bounds(found), *found.notes, _defect(gap), CURVE)),
        evidence=CertifiedBounds(
            claimed=found.claimed_epsilon,
            delta=found.delta,
            upper=found.upper_epsilon,
            below=found.lower_curve,
            above=found.upper_curve,
            certificate=found.to_json(),
        ),
    )


CURVE = (
    "curve: points (ε, δ) below the true profile, which two records attain, then points above it, which hold for all"
    " records (with separate labels: for their features)"
)


def contradiction(found: Certificate) -> str:
    """What is false if the claim is: the promise to people, or only the claim that is to prove it."""
    if found.lower_epsilon > found.claimed_epsilon:
        return (
            f"the promise to people is false: two records, which move {found.moves('attained')}, cost at least"
            f" ε = {found.lower_epsilon!r} at δ = {found.delta:.3g}; the plan promises {found.claimed_epsilon!r}"
        )
    return (
        f"the contract's claim for the touched bits is false: {found.moves('covered')}, which its accountant covers,"
        f" cost at least ε = {found.covered_epsilon!r} at δ = {found.delta:.3g}, and it claims"
        f" {found.claimed_epsilon!r}; so nothing proves the promise. That the promise to people is false was not"
        f" shown: two records cost at least {found.lower_epsilon!r}"
    )


def _reach(found: Certificate) -> str:
    shift = found.neighbors["squared_shift"]
    shifts = "" if shift is None else f" (squared shifts up to {shift:.4g})"
    return f"the accountant covers {found.moves('covered')}{shifts}; two records attain {found.moves('attained')}"


def _bounds(found: Certificate) -> str:
    return (
        f"{found.headline}; claimed ε = {found.claimed_epsilon!r}; what the accountant covers costs at least"
        f" {found.covered_epsilon!r}, two records at least {found.lower_epsilon!r}"
    )


def _defect(gap: float | None) -> str:
    if gap is None:
        return "without bounds from both sides no defect is certain to be found: power 0"
    return (
        "smallest detectable defect: relative excess of what the covered bits truly cost over the claim; it is the"
        " certificate's own gap, upper/lower − 1"
    )


CHECKS = (plan_verifies, one_promise, certified_bound)
