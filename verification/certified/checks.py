"""The certified layer: the plan's own numbers at full size, by the library's accountant and by a route of its own."""

from __future__ import annotations

import math

from accounting import PrivkdeError
from verification.certified.certificate import certify
from verification.verdicts import Check, Effort, Finding, Layer, Subject, finding

SPARE_SLACK = 0.08
"""Besides the conversion: half-integer orders, cells of the others' data, losses that are not Gaussian."""


def slack(delta: float) -> float:
    """By how much, relatively, the certified upper ε may exceed the claim and still confirm it.

    For Gaussian losses the conversion from moments loses a factor of about √(4π ln(1/δ)) in δ, which is
    ln √(4π ln(1/δ))/(2 ln(1/δ)) in ε: 9 % at δ = 1e-6. Pure ε has no conversion.
    """
    if delta == 0.0:
        return 1e-9
    nats = -math.log(min(delta, 0.1))
    return SPARE_SLACK + 0.5 * math.log(4.0 * math.pi * nats) / (2.0 * nats)


def plan_verifies(subject: Subject, effort: Effort, seed: int) -> Finding:
    """`Plan.verify` does not raise: its accountant proves the promise now, and the contract is the honest one."""
    said = ""
    try:
        subject.plan.verify()
    except PrivkdeError as error:
        said = str(error)
    return finding(
        "plan-verifies",
        Layer.CERTIFIED,
        "The plan's accountant proves its promise for its parameters, and its contract is that of these parameters.",
        statistic=1.0 if said else 0.0,
        bound=0.0,
        found=said,
        note="statistic: 1 if the plan was refused; this is the library's own accountant, not an independent route",
    )


def certified_bound(subject: Subject, effort: Effort, seed: int) -> Finding:
    """The claimed ε is not below the certified lower bound; whether the upper bound confirms it is in the note.

    An upper bound above the claim contradicts nothing: it may be loose. Within the slack it confirms the claim. Only
    for Pure, whose condition is decided exactly, is there none if and only if the claim is false.
    """
    found = certify(subject.plan)
    allowed = found.claimed_epsilon * (1.0 + slack(found.delta))
    failed = found.upper_epsilon == math.inf  # the condition of Pure, which is necessary and sufficient
    below = math.inf if failed else found.lower_epsilon / found.claimed_epsilon
    upper = "none" if found.upper_epsilon is None else f"{found.upper_epsilon:.4g}"
    confirmed = found.upper_epsilon is not None and found.upper_epsilon <= allowed
    words = (
        f"the plan claims ε = {found.claimed_epsilon:.6g} at δ = {found.delta:.3g}; certified lower bound"
        f" {found.lower_epsilon:.6g}, upper bound {upper}:"
        f" {'confirmed' if confirmed else 'not confirmed'} within {slack(found.delta):.1%}"
    )
    numbers = {"claimed": found.claimed_epsilon, "lower": found.lower_epsilon, "delta": found.delta}
    if found.upper_epsilon is not None:
        numbers["upper"] = found.upper_epsilon
    return finding(
        "certified-bound",
        Layer.CERTIFIED,
        "An independent computation with rigorous rounding does not contradict the claimed ε.",
        statistic=below,
        bound=1.0,
        found=words,
        numbers=numbers,
        smallest_detectable_defect=None if failed else max(0.0, math.nextafter(1.0 - below, 1.0)),
        note="; ".join(
            (
                words,
                *found.notes,
                "smallest detectable defect: relative excess of the true ε over the claim;"
                " curve: points (ε, δ) below the true profile, then points above it",
            )
        ),
        curve=(*found.lower_curve, *found.upper_curve),
    )


CHECKS: tuple[Check, ...] = (
    Check(name="plan-verifies", layer=Layer.CERTIFIED, about="the plan's own accountant", run=plan_verifies),
    Check(
        name="certified-bound", layer=Layer.CERTIFIED, about="independent bounds on ε at full size", run=certified_bound
    ),
)
