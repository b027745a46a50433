"""All adaptive ways to spend a budget on a small menu: the exact δ of the best of them.

A strategy looks at all that was shown before it chooses the next release from the menu. Every entry is the worst
(ε, δ)-DP pair for its ε and δ. So a state is which entry was released first, how often each was released and the sum of
the losses so far, and the best strategy follows by going back from the end. Source: docs/proofs/releases.md, section 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

Counts = tuple[int, ...]
Admits = Callable[[int, Counts], bool]
"""Whether a rule lets each entry of the menu be released so often, if a given one was released first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The worst (ε, δ)-DP pair: loss +∞ with probability δ under P, else ±ε; ε is `steps` steps of the menu."""

    steps: int
    delta: float = 0.0

    def outcomes(self, step: float) -> tuple[tuple[int, float], tuple[int, float]]:
        """Finite losses in steps, with their probabilities under P."""
        up = (1.0 - self.delta) / (1.0 + math.exp(-self.steps * step))
        return (self.steps, up), (-self.steps, 1.0 - self.delta - up)


MOST_RELEASES = 24


def largest_delta(menu: Sequence[Entry], step: float, admits: Admits, epsilon: float) -> float:
    """Sup of Σ (P − e^ε Q)₊ over all strategies of at most `MOST_RELEASES` that a rule admits at every step.

    Before anything is shown it is 1 − e^ε, at least 0; after a release of law p and loss ℓ it is
    Σ p · (the same for ε − ℓ), and where the loss is infinite, p.
    """

    @cache
    def best(first: int | None, counts: Counts, loss: int) -> float:
        value = max(0.0, -math.expm1(epsilon - loss * step))
        for i, entry in enumerate(menu):
            after = (*counts[:i], counts[i] + 1, *counts[i + 1 :])
            start = i if first is None else first
            if sum(after) <= MOST_RELEASES and admits(start, after):
                outcomes = entry.outcomes(step)
                value = max(value, entry.delta + sum(p * best(start, after, loss + steps) for steps, p in outcomes))
        return value

    return best(None, (0,) * len(menu), 0)
