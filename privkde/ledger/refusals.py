"""The errors of a ledger."""

from __future__ import annotations

import math

from accounting import PrivkdeError


class BudgetExceededError(PrivkdeError):
    """A release costs more than is left. Nothing was charged.

    All three are ε at the budget's δ: `requested` is what the release adds to what is spent (infinite if nothing could
    be promised at that δ after it), `remaining` is what was left before it, `difference` is what is missing.
    """

    def __init__(
        self,
        budget: str,
        *,
        requested: float,
        remaining: float,
        delta: float,
        delta_spent: float | None = None,
        delta_share: float = 1.0,
    ) -> None:
        self.budget, self.requested, self.remaining = budget, requested, remaining
        self.difference = requested - remaining
        if math.isfinite(requested):
            remedy = "release less, or with more noise" if remaining > 0.0 else "it is used up: open another one"
            super().__init__(
                f"budget {budget!r} is exceeded: requested ε={requested:.6g}, remaining ε={remaining:.6g}, difference"
                f" ε={self.difference:.6g} at δ={delta:g}; {remedy}."
            )
            return
        usable, spent = delta_share * delta, "" if delta_spent is None else f", and {delta_spent:.3g} of it is spent"
        remedy = "release what has δ = 0" if delta == 0.0 else "plan releases with a δ far below that"
        super().__init__(
            f"budget {budget!r} is exceeded: its δ does not suffice, whatever ε: the δ of all releases may add up to"
            f" {usable:.3g}{spent}; {remedy}, or open a budget with a larger δ."
        )


class UnknownBudgetError(PrivkdeError):
    """No budget has this name."""


class BudgetExistsError(PrivkdeError):
    """A budget of this name was created before; budgets never change."""


class ScheduleUsedUpError(PrivkdeError):
    """All times of a schedule are used, or the labels that a charge paid for were drawn before."""


class KeyReusedError(PrivkdeError):
    """The key belongs to an earlier charge with other content, or another price."""


class LedgerUnavailableError(PrivkdeError):
    """The ledger cannot be opened, read or written now. A charge that was not acknowledged may or may not be written.

    It is always safe to charge again with the same key.
    """


class LedgerAlteredError(PrivkdeError):
    """Rows of the ledger, its file or its journal were altered or replaced by something else than this library.

    The message names the first such row, or the file. Nothing was charged, unless it says so.
    """


class LedgerKeyError(PrivkdeError):
    """A ledger with a key was opened without one, or a ledger without a key with one. Nothing was charged."""
