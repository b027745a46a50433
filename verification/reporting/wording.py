"""Numbers and promises in plain words; sentences are in `templates/words.html`."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

from accounting import Adjacency, Guarantee, Plan
from accounting.mechanisms import BITSUMS

NO_PROTECTION = 20.0
"""An ε above which a report says "no protection": factors of half a billion."""


def small(value: float, *, exact: bool = False) -> str:
    """10⁻⁶ rather than 1e-06; three digits, or all."""
    digits, _, power = (repr(value).removesuffix(".0") if exact else f"{value:.3g}").partition("e")
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


def beside(value: float, limit: float) -> str:
    """A number for a table that has its limit in the next cell: with five digits where three would make them alike."""
    alike = value != limit and number(value) == number(limit)
    longer = f"{value:.5g}"
    return longer if alike and float(longer) != limit else number(value)


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


def at_most(value: float, limit: float = math.inf) -> str:
    """An upper bound, rounded up to five digits, or to more if it would else be above a limit that it keeps."""
    if not math.isfinite(value):
        return number(value)
    for digits in (5, 8, 12):
        text = _rounded(value, digits, ROUND_CEILING)
        if value > limit or float(text) <= limit:
            return text
    return f"{value:.17g}"


def at_least(value: float) -> str:
    """A lower bound, rounded down to five digits."""
    return _rounded(value, 5, ROUND_FLOOR)


def _rounded(value: float, digits: int, how: str) -> str:
    rounded = Context(prec=digits, rounding=how).create_decimal(repr(value))
    return f"{rounded.normalize():f}"


def protects(guarantee: Guarantee) -> bool:
    """Whether the promise is any protection: beyond, what is all but impossible may become certain."""
    return not guarantee.is_empty and guarantee.epsilon <= NO_PROTECTION


def numbers(guarantee: Guarantee) -> str:
    """(ε, δ), or that this protects nobody."""
    if guarantee.is_empty:
        return "nothing is promised"
    known = f"ε = {guarantee.epsilon:.4g}, δ = {small(guarantee.delta)}"
    return known if protects(guarantee) else f"no protection ({known})"


def meaning(guarantee: Guarantee) -> str:
    """What the numbers mean for one person. Beyond ε = 10 a factor of e^ε protects next to nothing."""
    if guarantee.is_empty:
        return "Nothing is promised."
    if not protects(guarantee):
        return "Nothing is hidden from whoever sees this."
    added = f", plus at most {small(guarantee.delta)}" if guarantee.delta else ""
    little = " This protects next to nothing." if guarantee.epsilon > 10.0 else ""
    return f"No probability changes by more than a factor of {small(math.exp(guarantee.epsilon))}{added}.{little}"


def ordered(plan: Plan) -> list[Guarantee]:
    """All promises, those for whole records first."""
    return sorted(plan.guarantees, key=lambda promise: list(Adjacency).index(promise.adjacency))


def mechanism(plan: Plan) -> str:
    """What every user and the analyzer do, as a sentence."""
    summary = BITSUMS[plan.bitsum].summary
    return f"{summary[0].upper()}{summary[1:]}."
