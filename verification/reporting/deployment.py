"""Who promises, for what and for how long, what is assumed, and who has to be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from accounting import Contract, InvalidInputError, Plan
from accounting.errors import require_text
from accounting.guarantee import View, promised
from privkde.ledger import Standing
from privkde.ledger.records import Composition
from verification.reporting import wording

ADAPTIVELY = "counted so that releases may depend on earlier results; a release may then cost more than its own ε"
"""Why a total may be above a plan's ε, which a reader sees beside it."""
LONGEST_TEXT = 500
"""Characters of what an organisation says of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What only the organisation behind a collection can tell: its own words, which no check tests."""

    organisation: str | None = None
    purpose: str | None = None
    period: str | None = None
    standing: Standing | None = None
    """What all releases about the same people have cost so far, by a ledger."""

    def __post_init__(self) -> None:
        for name, text in self.told.items():
            if len(require_text(name, text)) > LONGEST_TEXT:
                raise InvalidInputError(f"{name} has {len(text)} characters, more than {LONGEST_TEXT}; say less.")

    @property
    def told(self) -> dict[str, str]:
        """The texts that were given."""
        texts = {"organisation": self.organisation, "purpose": self.purpose, "period": self.period}
        return {name: text for name, text in texts.items() if text is not None}

    @property
    def spent(self) -> str | None:
        """What is spent of the budget, in words; None without a ledger."""
        if self.standing is None:
            return None
        budget = self.standing.budget
        how = f"; {ADAPTIVELY}" if budget.composition is Composition.ADAPTIVE and self.standing.n_charges else ""
        return (
            f"ε = {wording.at_most(self.standing.spent)} of {budget.epsilon:g} at δ = {wording.small(budget.delta)},"
            f" by {wording.counted(self.standing.n_charges, 'charge')} (budget “{budget.name}”{how})"
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values; None for what was not given."""
        return {
            "organisation": self.organisation,
            "purpose": self.purpose,
            "period": self.period,
            "standing": None if self.standing is None else self.standing.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Party:
    """Somebody who takes part or looks on."""

    who: str
    sees: str
    misbehaves: str
    """What is left if this party misbehaves."""


def parties(plan: Plan) -> tuple[Party, ...]:
    """Who sees what, and what is left if they misbehave."""
    local = promised(plan.guarantees, View.LOCAL)
    labels = "each person's randomized label, and " if plan.request.label_response() is not None else ""
    return (
        Party(
            "The person's own device",
            "everything of that person",
            "It must follow the protocol and draw good randomness.",
        ),
        Party(
            "Shuffler",
            "who sends, and noisy messages",
            f"If it colludes with the analyzer, each person is left with the local view: {wording.numbers(local)}.",
        ),
        Party(
            "Analyzer",
            f"{labels}all messages, in random order",
            "Nothing more can be lost: the promise holds against the analyzer.",
        ),
        Party(
            "Everybody else",
            "what is published",
            "Any number of questions may be asked; none costs privacy.",
        ),
        Party(
            "Other participants",
            "their own records",
            "Those who collude count as missing (see dropouts).",
        ),
    )


def assumptions(contract: Contract) -> tuple[str, ...]:
    """What the contract and its parts assume of the world, each once."""
    return tuple(dict.fromkeys(_assumed(contract)))


def _assumed(contract: Contract) -> Iterator[str]:
    yield from contract.assumed
    for part in contract.parts:
        yield from _assumed(part)
