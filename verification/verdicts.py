"""What an attempt to refute a promise may say: `Refuted` with a witness, or `NotRefuted` and how hard was tried.

There is no third verdict: nothing here proves anything. A check that could not run raises.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from accounting import Plan
from privkde.model import DensityModel

FALSE_ALARM_RATE = 1e-6
"""Bound on the probability that any check of one audit of an honest system says `Refuted`."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuted:
    """The claim is false, or an event of probability at most alpha happened."""

    witness: Witness


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRefuted:
    """No contradiction was found. An honest system is refuted with probability at most `alpha`.

    A defect of size `smallest_detectable_defect` (in the unit that the finding's note names) is found with probability
    at least `power`, which is None where nothing is known of it, as in a search. Exact and certified checks have
    alpha 0.
    """

    alpha: float
    power: float | None
    smallest_detectable_defect: float | None
    seed: int | None = None


Verdict = Refuted | NotRefuted


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One claim and what became of it: refuted exactly if `statistic` is beyond `bound`."""

    name: str
    layer: Layer
    claim: str
    """One sentence that is true if the system is honest."""
    verdict: Verdict
    statistic: float
    bound: float
    alpha: float
    seed: int | None
    note: str = ""
    """Unit of the smallest detectable defect, approximations, what was not covered."""
    curve: tuple[tuple[float, float], ...] = ()
    """Points to draw, such as empirical lower bounds (ε, δ); what they are is in the note."""

    @property
    def refuted(self) -> bool:
        """Whether the verdict is `Refuted`."""
        return isinstance(self.verdict, Refuted)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        verdict = self.verdict
        document: dict[str, Any] = {
            "name": self.name,
            "layer": str(self.layer),
            "claim": self.claim,
            "verdict": "refuted" if isinstance(verdict, Refuted) else "not-refuted",
            "alpha": self.alpha,
            "power": None if isinstance(verdict, Refuted) else verdict.power,
            "smallest_detectable_defect": (
                None if isinstance(verdict, Refuted) else verdict.smallest_detectable_defect
            ),
            "seed": self.seed,
            "statistic": self.statistic,
            "bound": self.bound,
            "note": self.note,
            "curve": [list(point) for point in self.curve],
        }
        if isinstance(verdict, Refuted):
            document["witness"] = {"found": verdict.witness.found, "numbers": dict(verdict.witness.numbers)}
        return document


def finding(
    name: str,
    layer: Layer,
    claim: str,
    *,
    statistic: float,
    bound: float,
    found: str,
    numbers: Mapping[str, float] | None = None,
    alpha: float = 0.0,
    power: float | None = None,
    smallest_detectable_defect: float | None = None,
    seed: int | None = None,
    note: str = "",
    curve: tuple[tuple[float, float], ...] = (),
) -> Finding:
    """A finding that is refuted exactly if `statistic` > `bound` (or is not a number); `found` words the witness."""
    verdict: Verdict
    if statistic <= bound:
        verdict = NotRefuted(alpha=alpha, power=power, smallest_detectable_defect=smallest_detectable_defect, seed=seed)
    else:
        verdict = Refuted(
            witness=Witness(found=found, numbers={"statistic": statistic, "bound": bound, **(numbers or {})})
        )
    return Finding(
        name=name,
        layer=layer,
        claim=claim,
        verdict=verdict,
        statistic=statistic,
        bound=bound,
        alpha=alpha,
        seed=seed,
        note=note,
        curve=curve,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is audited: a plan and, perhaps, the model that was published with it."""

    plan: Plan
    model: DensityModel | None = None


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a check may do: samples are multiplied by `scale`."""

    name: str
    scale: int


QUICK, FULL = Effort("quick", 1), Effort("full", 10)
"""All checks together: under a minute, under fifteen, on two cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One attempt to refute: which plans it applies to, and how it runs."""

    name: str
    layer: Layer
    about: str
    """What is checked, in a few words, for tables."""
    run: Callable[[Subject, Effort, int], Finding] = field(hash=False, compare=False)
    applies: Callable[[Subject], bool] = field(default=lambda subject: True, hash=False, compare=False)

    def seed(self, base: int) -> int:
        """This check's own seed: other checks do not change it."""
        return (base * 1_000_003 + zlib.crc32(self.name.encode())) % 2**63
