"""Numbers and promises in plain words; sentences are in `templates/words.html`."""

from __future__ import annotations

import math

from accounting import Adjacency, Guarantee, Plan
from accounting.mechanisms import BITSUMS


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


def ordered(plan: Plan) -> list[Guarantee]:
    """All promises, those for whole records first."""
    return sorted(plan.guarantees, key=lambda promise: list(Adjacency).index(promise.adjacency))


def mechanism(plan: Plan) -> str:
    """What every user and the analyzer do, as a sentence."""
    summary = BITSUMS[plan.bitsum].summary
    return f"{summary[0].upper()}{summary[1:]}."
