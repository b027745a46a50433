"""What a report says first: which ε is proved for the plan, beside the one that it promises."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from accounting import Plan
from accounting.guarantee import View, promised
from verification.evidence import CertifiedBounds
from verification.reporting import wording
from verification.verdicts import Finding


class State(StrEnum):
    """What ball arithmetic says of the promise."""

    PROVED = "proved"
    NOT_PROVED = "not proved"
    REFUTED = "refuted"
    NOT_COMPUTED = "not computed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """One ε: as claimed, and between which proved bounds the true one lies."""

    of: str
    claimed: float
    upper: float | None
    lower: float | None
    """None if nothing is proved."""

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """As a row of a table; bounds are rounded outwards."""
        upper = "—" if self.upper is None else wording.at_most(self.upper, self.claimed)
        return self.of, f"{self.claimed:.6g}", upper, wording.at_least(self.lower) if self.lower else "—"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSummary:
    """The state of the promise, and the numbers behind it."""

    state: State
    delta: float
    brackets: tuple[Bracket, ...]
    """The promise for a whole record first."""
    reason: str = ""
    """Why nothing is proved."""

    @staticmethod
    def of(plan: Plan, findings: Iterable[Finding]) -> ProofSummary:
        """From the finding of the check that certifies, if it ran."""
        found = next((one for one in findings if isinstance(one.evidence, CertifiedBounds)), None)
        main = promised(plan.guarantees, View.COMMUNICATION)
        if found is None:
            whole = Bracket(of=_whole(plan), claimed=main.epsilon, upper=None, lower=None)
            reason = "the check certified-bound did not run in this audit"
            return ProofSummary(state=State.NOT_COMPUTED, delta=main.delta, brackets=(whole,), reason=reason)
        assert isinstance(found.evidence, CertifiedBounds)
        return _certified(plan, found.evidence, refuted=found.refuted)

    @property
    def promise(self) -> Bracket:
        """What is promised for a whole record."""
        return self.brackets[0]

    @property
    def headline(self) -> str:
        """The result in one line; no tolerance is in it."""
        whole, delta = self.promise, wording.small(self.delta, exact=True)
        promises = f"the plan promises {whole.claimed:.15g}"
        if self.state is State.PROVED:
            _, _, upper, _ = whole.cells
            return f"proved: ε ≤ {upper} at δ = {delta}, in ball arithmetic; {promises}"
        if self.state is State.REFUTED:
            return f"refuted: {self.reason} at δ = {delta}; {promises}"
        return f"{self.state}: ε = {whole.claimed:.15g} at δ = {delta}; {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "state": str(self.state),
            "headline": self.headline,
            "delta": self.delta,
            "bounds": [
                {"of": one.of, "claimed": one.claimed, "at_most": one.upper, "at_least": one.lower}
                for one in self.brackets
            ],
        }


def _certified(plan: Plan, bounds: CertifiedBounds, *, refuted: bool) -> ProofSummary:
    claim, proved = (bounds.certificate.get(part, {}) for part in ("claim", "proved"))
    label = claim.get("label_epsilon", 0.0)
    people = Bracket(
        of=_whole(plan),
        claimed=claim.get("epsilon", bounds.claimed),
        upper=proved.get("epsilon", bounds.upper),
        lower=proved.get("lower_epsilon"),
    )
    brackets = [people]
    if label:
        vector = Bracket(of="the vector alone", claimed=bounds.claimed, upper=bounds.upper, lower=people.lower)
        brackets.append(vector)
    covered = Bracket(
        of="the worst bits that the noise is planned for",
        claimed=bounds.claimed,
        upper=bounds.upper,
        lower=proved.get("covered_epsilon"),
    )
    brackets.append(covered)
    state, reason = State.NOT_PROVED, ""
    if refuted:
        state, reason = State.REFUTED, _contradiction(people, covered, bounds.claimed)
    elif proved.get("holds", bounds.proved):
        state = State.PROVED
    elif people.upper is None:
        reason = "for these parameters no upper bound is certified, neither for nor against the promise"
    else:
        reason = f"what is proved is ε ≤ {wording.at_most(people.upper)}"
    return ProofSummary(state=state, delta=bounds.delta, brackets=tuple(brackets), reason=reason)


def _contradiction(people: Bracket, covered: Bracket, claimed: float) -> str:
    """What costs more than is claimed; if no two records do, the promise to people only lacks a proof."""
    if people.lower is not None and people.lower > claimed:
        return f"two records cost at least ε = {wording.at_least(people.lower)}"
    if covered.lower is not None:
        return f"bits that the proof must cover cost at least ε = {wording.at_least(covered.lower)}"
    return "a proved lower bound contradicts the claim"


def _whole(plan: Plan) -> str:
    return "a person's whole record" if plan.request.classes is not None else "a person's record"
