"""Typed errors. Every message names the value, the rule it breaks and a remedy, in one line."""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Iterable

LARGEST_FLOAT = sys.float_info.max
LONGEST_MESSAGE = 2000
"""Characters of an error's message; of a longer one the middle is left out."""


class PrivkdeError(ValueError):
    """Base of every error that a caller can correct. Its message is one line, whatever it quotes."""

    def __init__(self, message: str) -> None:
        line, half = printable(message), LONGEST_MESSAGE // 2
        super().__init__(line if len(line) <= LONGEST_MESSAGE else f"{line[:half]} … {line[-half:]}")


class InvalidInputError(PrivkdeError):
    """A value breaks a stated precondition."""


class InfeasibleError(PrivkdeError):
    """No parameters of the chosen protocol meet the request."""


class UnlikeGuaranteesError(PrivkdeError):
    """Two guarantees with different adjacency or view were compared or composed."""


def printable(text: str) -> str:
    r"""The text with everything escaped that a terminal would obey, or that has no place in one line.

    >>> print(printable("red\x1b[31m\n"))
    red\x1b[31m\n
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shown(value: object) -> str:
    """A value in an error: as Python writes it, or only its type if that is not possible."""
    try:
        return repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or values in each other
        return f"<{type(value).__name__}>"


def require_real(name: str, value: object, *, low: float, high: float, low_open: bool = True) -> float:
    """Return `value` as a float in (low, high] (or [low, high]), or raise `InvalidInputError`."""
    rule = f"{'(' if low_open else '['}{low:g}, {high:g}]"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInputError(f"{name}={shown(value)} must be a number in {rule}.")
    number = float(value) if isinstance(value, float) or abs(value) < 10**300 else math.inf
    if not math.isfinite(number) or number > high or number < low or (low_open and number == low):
        raise InvalidInputError(f"{name}={shown(value)} is outside {rule}; choose a value in that range.")
    return number


def require_integer(name: str, value: object, *, low: int, high: int) -> int:
    """Return `value` as an int in [low, high], or raise `InvalidInputError`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(f"{name}={shown(value)} must be a whole number in [{low}, {high}].")
    if not low <= value <= high:
        raise InvalidInputError(f"{name}={shown(value)} is outside [{low}, {high}]; choose a value in that range.")
    return value


def require_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`; otherwise raise and suggest the nearest one."""
    options = list(choices)
    if isinstance(value, str) and value in options:
        return value
    near = difflib.get_close_matches(value[:100], options, n=1, cutoff=0.6) if isinstance(value, str) else []
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InvalidInputError(f"{name}={shown(value)} is unknown; choose one of {', '.join(options)}.{hint}")


def require_members(name: str, held: Iterable[str], belonging: Iterable[str]) -> None:
    """Raise `InvalidInputError` if a document holds a member that does not belong to it."""
    foreign = sorted(set(held) - set(belonging))
    if foreign:
        raise InvalidInputError(f"{name} holds {foreign[0][:40]!r}, which does not belong to it; write it again.")


def require_text(name: str, value: object) -> str:
    """Return `value` if it is a text of printable characters, or raise `InvalidInputError`."""
    if not isinstance(value, str) or not value.isprintable():
        raise InvalidInputError(f"{name}={shown(value)} must be a text of printable characters.")
    return value


def require_quantity(name: str, value: object) -> float:
    """Return `value` as a float that is finite and not negative, or raise `InvalidInputError`."""
    return require_real(name, value, low=0.0, high=LARGEST_FLOAT, low_open=False)
