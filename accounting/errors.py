"""Typed errors. Every message names the value, the rule it breaks and a remedy."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable


class PrivkdeError(ValueError):
    """Base of every error that a caller can correct."""


class InvalidInputError(PrivkdeError):
    """A value breaks a stated precondition."""


class InfeasibleError(PrivkdeError):
    """No parameters of the chosen protocol meet the request."""


class UnlikeGuaranteesError(PrivkdeError):
    """Two guarantees with different adjacency or view were compared or composed."""


def require_real(name: str, value: object, *, low: float, high: float, low_open: bool = True) -> float:
    """Return `value` as a float in (low, high] (or [low, high]), or raise `InvalidInputError`."""
    rule = f"{'(' if low_open else '['}{low:g}, {high:g}]"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInputError(f"{name}={value!r} must be a number in {rule}.")
    number = float(value) if abs(value) < 1e300 or isinstance(value, float) else math.inf
    if not math.isfinite(number) or number > high or number < low or (low_open and number == low):
        raise InvalidInputError(f"{name}={value!r} is outside {rule}; choose a value in that range.")
    return number


def require_integer(name: str, value: object, *, low: int, high: int) -> int:
    """Return `value` as an int in [low, high], or raise `InvalidInputError`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(f"{name}={value!r} must be a whole number in [{low}, {high}].")
    if not low <= value <= high:
        raise InvalidInputError(f"{name}={value!r} is outside [{low}, {high}]; choose a value in that range.")
    return value


def require_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`; otherwise raise and suggest the nearest one."""
    options = list(choices)
    if isinstance(value, str) and value in options:
        return value
    near = difflib.get_close_matches(str(value), options, n=1, cutoff=0.6)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InvalidInputError(f"{name}={value!r} is unknown; choose one of {', '.join(options)}.{hint}")


def require_members(name: str, held: Iterable[str], belonging: Iterable[str]) -> None:
    """Raise `InvalidInputError` if a document holds a member that does not belong to it."""
    foreign = sorted(set(held) - set(belonging))
    if foreign:
        raise InvalidInputError(f"{name} holds {foreign[0][:40]!r}, which does not belong to it; write it again.")
