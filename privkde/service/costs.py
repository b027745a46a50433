"""What a request may cost, known from its fields before any work is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

USUAL: Mapping[str, tuple[float, float]] = {
    "users": (2, 10**7),
    "dim": (1, 4096),
    "repetitions": (1, 4096),
    "epsilon": (0.01, 20.0),
    "delta": (1e-15, 0.5),
    "releases": (1, 366),
}
"""Least and most of what people ask for. Requests outside get less time; some inside are slow, too."""


def is_usual(body: Mapping[str, Any]) -> bool:
    """Whether a request, and those of all plans in it, are in the usual range; absent fields and δ = 0 are."""
    return all(
        low <= asked[name] <= high
        for asked in _asked(body)
        for name, (low, high) in USUAL.items()
        if _is_number(asked.get(name)) and not (name == "delta" and asked[name] == 0.0)
    )


def _asked(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The request itself, the requests of plans that it holds, and those of its releases' plans."""
    yield {name: value for name, value in body.items() if name in USUAL}
    for holder in (body, *(release for name in ("releases", "charged") for release in _listed(body.get(name)))):
        plan = holder.get("plan")
        if isinstance(plan, Mapping) and isinstance(plan.get("request"), Mapping):
            yield plan["request"]


def _listed(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list | tuple) else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
