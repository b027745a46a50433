"""Numbers, promises and verdicts in plain words."""

from __future__ import annotations

import math

from accounting import Adjacency, Guarantee, Plan, View
from verification.reporting.document import COULD_NOT_RUN, NOT_REFUTED, REFUTED
from verification.verdicts import Layer

WEAK_EPSILON = 10.0
"""From here on a factor of e^ε is no protection worth the name."""
VERDICTS = {NOT_REFUTED: "✓ not refuted", REFUTED: "✗ refuted", COULD_NOT_RUN: "! could not run"}
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
MECHANISMS = {
    "rr": "Each person reports each bit, flipped with a small probability; the analyzer counts ones and corrects for"
    " the flips.",
    "3nb": "Each person sends its bit as +1 messages, and a few random +1 and −1 messages on top, most of which cancel;"
    " the analyzer takes the difference.",
    "poisson": "Each person sends its bit as a message and a Poisson number of messages on top; the analyzer subtracts"
    " their mean.",
    "negative-binomial": "Each person sends its bit as a message and a negative binomial number of messages on top; the"
    " analyzer subtracts their mean.",
    "pure": "Each person is silent with a small probability, else sends its bit among pairs of +1 and −1, with noise"
    " and a flood of pairs on top; the analyzer takes the difference and corrects for silence.",
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


def promised(plan: Plan, view: View) -> Guarantee:
    """The promise that a report leads with: for the whole record if there is one in the view, else for the vector."""
    found = [one for one in plan.guarantees if one.view is view]
    whole = [one for one in found if one.adjacency is Adjacency.RECORD]
    return (whole or found or list(plan.guarantees))[0]


def ordered(plan: Plan) -> list[Guarantee]:
    """All promises, those for whole records first."""
    return sorted(plan.guarantees, key=lambda one: list(Adjacency).index(one.adjacency))


def promised_parts(plan: Plan) -> str:
    """What of the main promise is for the vector and what for the label, if they are protected one by one."""
    main = promised(plan, View.COMMUNICATION)
    parts = [one for one in plan.guarantees if one.view is main.view and one.adjacency is not main.adjacency]
    return "; ".join(f"{numbers(one)} for {CHANGES[one.adjacency]}" for one in parts)
