"""The errors of a ledger."""

from __future__ import annotations

import math

from accounting import PrivkdeError


class BudgetExceededError(PrivkdeError):
    """A release costs more than is left. Nothing was charged.

    All three are ε at the budget's δ: `requested` is what the release adds to what is spent (infinite if nothing could
    be promised at that δ after it), `remaining` is what was left before it, `difference` is what is missing.
    """

    def __init__(self, budget: str, *, requested: float, remaining: float, delta: float) -> None:
        self.budget, self.requested, self.remaining = budget, requested, remaining
        self.difference = requested - remaining
        if math.isfinite(requested):
            super().__init__(
                f"budget {budget!r} is exceeded: requested ε={requested:.6g}, remaining ε={remaining:.6g}, difference"
                f" ε={self.difference:.6g} at δ={delta:g}; release less, or with more noise."
            )
            return
        super().__init__(
            f"budget {budget!r} is exceeded: its δ={delta:g} does not suffice, whatever ε: the δ of all releases may"
            " add up to all of it, and in an adaptive budget to half of it; plan releases with a smaller δ"
            f" (a hundredth of {delta:g} or less), or open a budget with a larger one."
        )


class UnknownBudgetError(PrivkdeError):
    """No budget has this name."""


class BudgetExistsError(PrivkdeError):
    """A budget of this name was created before; budgets never change."""


class ScheduleUsedUpError(PrivkdeError):
    """All times of a schedule are used."""


class KeyReusedError(PrivkdeError):
    """The key belongs to an earlier charge with other content."""


class LedgerUnavailableError(PrivkdeError):
    """The ledger cannot be opened, read or written now. A charge that was not acknowledged may or may not be written.

    It is always safe to charge again with the same key.
    """
