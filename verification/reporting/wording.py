"""Numbers, promises and verdicts in plain words."""

from __future__ import annotations

import math

from accounting import Adjacency, Guarantee, Plan, PlanRequest, View
from accounting.mechanisms import BITSUMS
from verification.reporting.document import Outcome
from verification.verdicts import Layer

WEAK_EPSILON = 10.0
"""Beyond it a factor of e^ε protects next to nothing."""
VERDICTS = {
    Outcome.NOT_REFUTED: "✓ not refuted",
    Outcome.REFUTED: "✗ refuted",
    Outcome.COULD_NOT_RUN: "! could not run",
}
LAYERS = {
    Layer.EXACT: "every possible output at a small size, enumerated",
    Layer.CERTIFIED: "the plan's own numbers, computed again from its parameters: by the accountant that planned"
    " (plan-verifies), and by an independent route with rigorous rounding (certified-bound)",
    Layer.STATISTICAL: "many runs of the program, attacked and measured",
}
ADJACENCIES = {
    Adjacency.RECORD: "one person's whole record (vector and label) is exchanged for any other",
    Adjacency.FEATURES: "one person's vector is exchanged for any other; a label, if there is one, stays",
    Adjacency.LABEL: "one person's label is exchanged for any other; the vector stays",
    Adjacency.BIT: "one bit of one person is flipped",
}
CHANGES = {
    Adjacency.RECORD: "the whole record",
    Adjacency.FEATURES: "the vector alone",
    Adjacency.LABEL: "the label alone",
    Adjacency.BIT: "one bit",
}
VIEWS = {
    View.COMMUNICATION: "somebody who sees every message that leaves the shuffler, and everything that is published",
    View.MODEL: "somebody who sees only what is published",
    View.LOCAL: "somebody who sees what each single person sends, for example because the shuffler colludes",
}


def small(value: float) -> str:
    """10⁻⁶ rather than 1e-06."""
    digits, _, power = f"{value:.3g}".partition("e")
    raised = str(int(power or 0)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return digits if not power else f"10{raised}" if digits == "1" else f"{digits}·10{raised}"


def number(value: float | None) -> str:
    """A number for a table, with a dash for none."""
    if value is None:
        return "—"
    if not math.isfinite(value):
        return {"inf": "∞", "-inf": "−∞"}.get(str(value), "not a number")
    large = value == int(value) and 1e3 <= abs(value) < 1e9
    return f"{int(value):,}" if large else small(value).replace("-", "−")


def whole(value: int) -> str:
    """A whole number, with commas between thousands."""
    return f"{value:,}"


def counted(total: float, what: str) -> str:
    """A number and what is counted, which gets its plural: 1 check, 3 checks, 2.5 messages."""
    shown = f"{total:,.0f}" if abs(total) >= 1e3 else f"{total:.4g}"
    plural = "es" if what.endswith("s") else "s"
    return f"{shown} {what}{'' if shown == '1' else plural}"


def false_alarms(rate: float) -> str:
    """How likely an honest system is refuted, as a clause."""
    if rate == 0.0:
        return "these checks have no false alarms"
    return f"an honest system is refuted with probability at most {small(rate)}"


def factor(epsilon: float) -> str:
    """e^ε."""
    return small(math.exp(epsilon)) if epsilon < 50.0 else f"e^{epsilon:.3g}"


def numbers(guarantee: Guarantee) -> str:
    """(ε, δ), or that nothing is promised."""
    if guarantee.is_empty:
        return "nothing is promised"
    return f"ε\u00a0=\u00a0{guarantee.epsilon:.4g}, δ\u00a0=\u00a0{small(guarantee.delta)}"


def in_words(guarantee: Guarantee) -> str:
    """What the numbers mean for one person."""
    if guarantee.is_empty:
        return "Nothing is promised."
    plus = "" if guarantee.delta == 0.0 else f", plus at most {small(guarantee.delta)}"
    weak = " This protects next to nothing." if guarantee.epsilon > WEAK_EPSILON else ""
    return f"No probability changes by more than a factor of {factor(guarantee.epsilon)}{plus}.{weak}"


def unit(request: PlanRequest) -> str:
    """What one person holds."""
    return "one vector" if request.classes is None else f"one vector and one of {request.classes} labels"


def promised(plan: Plan, view: View) -> Guarantee:
    """The promise that a report leads with: for the whole record if there is one in the view, else for the vector."""
    seen = [promise for promise in plan.guarantees if promise.view is view]
    records = [promise for promise in seen if promise.adjacency is Adjacency.RECORD]
    return (records or seen or list(plan.guarantees))[0]


def ordered(plan: Plan) -> list[Guarantee]:
    """All promises, those for whole records first."""
    return sorted(plan.guarantees, key=lambda promise: list(Adjacency).index(promise.adjacency))


def promised_parts(plan: Plan) -> str:
    """What of the main promise is for the vector and what for the label, if they are protected one by one."""
    main = promised(plan, View.COMMUNICATION)
    parts = [
        promise for promise in plan.guarantees if promise.view is main.view and promise.adjacency is not main.adjacency
    ]
    words = "; ".join(f"{numbers(promise)} for {CHANGES[promise.adjacency]}" for promise in parts)
    return f"Of it: {words}." if parts else ""


def mechanism(plan: Plan) -> str:
    """What every user and the analyzer do, as a sentence."""
    summary = BITSUMS[plan.bitsum].summary
    return f"{summary[0].upper()}{summary[1:]}."
