"""What an attempt to refute a promise may say: refuted, with a witness, or not refuted, and how hard it tried.

There is no third verdict: nothing here proves anything. A check that could not run raises.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Any

from accounting import Plan
from privkde.protocol.model import DensityModel
from verification.evidence import Evidence

FALSE_ALARM_RATE = 1e-6
"""Bound on the probability that any check of one audit of an honest system is refuted."""
CHECK_ALPHA = 1e-8
"""What one finding may spend of it."""


class Layer(StrEnum):
    """How deep a check goes."""

    EXACT = "exact"
    """Full enumeration at a small size, in exact or interval arithmetic."""
    CERTIFIED = "certified"
    """The plan's own numbers at full size, computed again from its parameters."""
    STATISTICAL = "statistical"
    """Samples of the implementation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """What refutes the claim: words for people, numbers for machines."""

    found: str
    numbers: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim and what became of it: refuted exactly if `statistic` > `bound` (or is not a number)."""

    claim: str
    """One sentence that is true if the system is honest."""
    _: KW_ONLY
    statistic: float
    bound: float
    found: str
    """What was found, in the words of a witness; they count only if the claim is refuted."""
    numbers: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Of the witness, besides statistic and bound."""
    alpha: float = 0.0
    """An honest system is refuted with at most this probability; 0 for exact and certified checks."""
    power: float | None = None
    """A defect of size `smallest_detectable_defect` is detected with at least this probability.

    None where it is not known, as in a search, and for a claim that is refuted.
    """
    smallest_detectable_defect: float | None = None
    """In the unit that the note names. If inf is given, no defect of its kind would show: None, and the power is 0."""
    note: str = ""
    """Unit of the smallest detectable defect, approximations, what was not covered."""
    evidence: Evidence | None = None
    """What was measured besides the statistic, where there is more to draw or to list."""

    def __post_init__(self) -> None:
        nothing_shows = self.smallest_detectable_defect == math.inf
        if self.refuted or nothing_shows:
            object.__setattr__(self, "power", None if self.refuted else 0.0)
            object.__setattr__(self, "smallest_detectable_defect", None)

    @property
    def refuted(self) -> bool:
        """Whether there is a witness against the claim."""
        return not self.statistic <= self.bound

    @property
    def witness(self) -> Witness | None:
        """What refutes the claim: either it is false, or an event of probability at most `alpha` happened."""
        numbers = {"statistic": self.statistic, "bound": self.bound, **self.numbers}
        return Witness(found=self.found, numbers=numbers) if self.refuted else None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        document: dict[str, Any] = {
            "claim": self.claim,
            "alpha": self.alpha,
            "power": self.power,
            "smallest_detectable_defect": self.smallest_detectable_defect,
            "statistic": self.statistic,
            "bound": self.bound,
            "note": self.note,
            "curve": [] if self.evidence is None else [list(point) for point in self.evidence.curve],
            "evidence": None if self.evidence is None else self.evidence.to_json(),
        }
        if self.witness is not None:
            document["witness"] = {"found": self.witness.found, "numbers": dict(self.witness.numbers)}
        return document


finding = Finding
"""How a check says what it found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is audited: a plan and, perhaps, the model that was published with it."""

    plan: Plan
    model: DensityModel | None = None

    @property
    def reports_labels(self) -> bool:
        """Whether users report randomized labels."""
        return self.plan.request.label_response() is not None


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a check may do: samples are multiplied by `scale`."""

    name: str
    scale: int


QUICK, FULL = Effort("quick", 1), Effort("full", 10)
"""All checks together: under a minute, under fifteen, on two cores."""


Attempt = Callable[[Subject, Effort, int], Finding]
"""Tries to refute a claim about the subject; the last argument is the seed of its draws."""
Applies = Callable[[Subject], bool]
Needs = Callable[[Subject], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One attempt to refute: which plans it applies to, and how it runs."""

    name: str
    layer: Layer
    about: str
    """What is checked, in a few words, for tables."""
    run: Attempt = field(hash=False, compare=False)
    applies: Applies = field(default=lambda subject: True, hash=False, compare=False)
    needs: Needs = field(default=lambda subject: "", hash=False, compare=False)
    """What is missing, in words, for this check to run on the subject; empty if nothing is."""

    def seed(self, base: int) -> int:
        """This check's own seed: other checks do not change it."""
        return (base * 1_000_003 + zlib.crc32(self.name.encode())) % 2**63


def check(name: str, layer: Layer, about: str, **options: Callable[[Subject], Any]) -> Callable[[Attempt], Check]:
    """Make a check of the function that tries to refute; `options` are `applies` and `needs`."""
    return lambda run: Check(name=name, layer=layer, about=about, run=run, **options)
