"""Do samples follow a declared discrete law, tails included? Refuted or not refuted, with a proved false-alarm rate.

A family of events is fixed by the law and the number of samples alone: frequent values, residues modulo 2, 3 and 4, and
tails on both sides down to masses so small that one occurrence refutes. The number of samples in an event is
binomial under the law, so its two tail probabilities are exact p-values, and a union bound over the family spends
half the level. The other half goes to the largest distance between distribution functions (Dvoretzky, Kiefer and
Wolfowitz with Massart's constant, valid for discrete laws). Nothing is asymptotic. Requires: independent samples.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from accounting.errors import InvalidInputError, require_real
from accounting.numerics.pmf import Pmf
from verification.verdicts import CHECK_ALPHA, Finding, finding

MOST_VALUES = 64
"""At most so many single values are events of their own: the most probable ones."""

MODULI = (2, 3, 4)
"""Values are also counted by their residues, which sees gaps in laws too wide for single values."""

MOST_HALVINGS = 100
"""Tails have masses of about 1/2, 1/4, …, down to 2^−100."""

RELATIVE_PAD = 1e-9
"""Relative error granted to the declared probabilities and to the tail probabilities of the binomial law."""

MISSED = 1e-3
"""Chance with which a defect called detectable may still be missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event, its declared probability within [lowest, highest], and how many samples fell into it."""

    name: str
    lowest: float
    highest: float
    observed: int

    def p_value(self, n_samples: int) -> float:
        """The smaller of the two exact one-sided p-values, rounded up."""
        above = _at_least(self.observed, n_samples, self.highest)
        return min(above, _at_most(self.observed, n_samples, self.lowest))


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodnessOfFit:
    """Outcome of comparing samples with a law. Under the law `refuted` has a probability of at most `level`."""

    n_samples: int
    level: float
    n_events: int
    worst: Event
    distance: float
    allowed_distance: float

    @property
    def event_level(self) -> float:
        """Half the level, shared by two one-sided tests of each event."""
        return self.level / (4.0 * self.n_events)

    @property
    def refuted(self) -> bool:
        """Whether the samples are incompatible with the law at this level."""
        return self.worst.p_value(self.n_samples) <= self.event_level or self.distance > self.allowed_distance

    @property
    def smallest_defect(self) -> float:
        """Distance between distribution functions that is refuted with probability 1 − `MISSED` or more."""
        return self.allowed_distance + math.sqrt(math.log(2.0 / MISSED) / (2.0 * self.n_samples))

    def detectable_increase(self, probability: float) -> float:
        """By how much more than the declared `probability` an event must happen to be refuted; inf if none is enough.

        Refuted means: with probability 1 − `MISSED` or more. For a decrease, give the complement.
        """
        n = self.n_samples
        critical = bisect.bisect_left(
            range(n + 1), -self.event_level, key=lambda c: -_at_least(c, n, probability * (1.0 + RELATIVE_PAD))
        )
        if not 0 < critical <= n:
            return math.inf
        return float(special.betaincinv(critical, n - critical + 1, 1.0 - MISSED)) - probability

    def describe(self) -> str:
        """One line for a report or a failed test."""
        return (
            f"{'refuted' if self.refuted else 'not refuted'} at level {self.level:g} from {self.n_samples:,} samples:"
            f" {self.worst.observed:,} in {self.worst.name} (declared {self.worst.highest:.6g},"
            f" p-value {self.worst.p_value(self.n_samples):.3g} against {self.event_level:.3g});"
            f" distance {self.distance:.3g} (allowed {self.allowed_distance:.3g},"
            f" seen from {self.smallest_defect:.3g})"
        )


def goodness_of_fit(samples: NDArray[np.integer[Any]], law: Pmf, *, level: float = 1e-9) -> GoodnessOfFit:
    """Compare independent samples with `law`; what its window leaves out may lie on either side.

    >>> fair = Pmf(start=0, values=np.array([0.5, 0.5]), missing=0.0)
    >>> goodness_of_fit(np.arange(100) % 2, fair).refuted, goodness_of_fit(np.ones(100, dtype=int), fair).refuted
    (False, True)
    """
    require_real("level", level, low=0.0, high=0.5)
    if samples.size == 0:
        raise InvalidInputError("no samples were given; draw some.")
    flat = samples.reshape(-1).astype(np.int64)
    n_samples = flat.size
    inside = flat[(flat >= law.start) & (flat < law.stop)] - law.start
    counts = np.bincount(inside, minlength=len(law.values))
    below, above = int(np.sum(flat < law.start)), int(np.sum(flat >= law.stop))
    events = list(_events(law, counts, below, above))
    declared = np.minimum(np.cumsum(law.values), 1.0)
    distance = max(np.max(np.abs((below + np.cumsum(counts)) / n_samples - declared)), below / n_samples)
    return GoodnessOfFit(
        n_samples=n_samples,
        level=level,
        n_events=len(events),
        worst=min(events, key=lambda event: event.p_value(n_samples)),
        distance=float(distance),
        allowed_distance=math.sqrt(math.log(4.0 / level) / (2.0 * n_samples)) + law.missing + RELATIVE_PAD,
    )


def coin(probability: float) -> Pmf:
    """The law of a bit that is one with `probability`."""
    return Pmf(start=0, values=np.array([1.0 - probability, probability]), missing=0.0)


def _events(law: Pmf, counts: NDArray[np.int64], below: int, above: int) -> Iterator[Event]:
    """The family: which events it has, and their probabilities, depend on the law alone."""

    def event(name: str, probability: float, observed: int) -> Event:
        highest = min(1.0, probability * (1.0 + RELATIVE_PAD) + law.missing)
        return Event(name=name, lowest=probability * (1.0 - RELATIVE_PAD), highest=highest, observed=observed)

    for index in np.argsort(-law.values, kind="stable")[:MOST_VALUES]:
        yield event(f"X = {law.start + index}", float(law.values[index]), int(counts[index]))
    for modulus in MODULI:
        for residue in range(modulus):
            part = slice((residue - law.start) % modulus, None, modulus)
            # Samples outside the window are counted by the tails.
            yield event(f"X mod {modulus} = {residue}", float(np.sum(law.values[part])), int(np.sum(counts[part])))
    for name, values, observed, beyond, edge, sign in (
        ("≥", law.values[::-1], counts[::-1], above, law.stop, -1),
        ("≤", law.values, counts, below, law.start - 1, 1),
    ):
        masses, totals = np.cumsum(values), beyond + np.cumsum(observed)
        yield event(f"X {name} {edge}", 0.0, beyond)
        sizes = np.unique(np.searchsorted(masses, 0.5 ** np.arange(1, MOST_HALVINGS + 1), side="right"))
        for size in sizes[sizes > 0]:
            yield event(f"X {name} {edge + sign * int(size)}", float(masses[size - 1]), int(totals[size - 1]))


def _at_least(count: int, n_samples: int, probability: float) -> float:
    """P(Bin(n, probability) ≥ count), rounded up."""
    if count <= 0:
        return 1.0
    tail = float(special.betainc(count, n_samples - count + 1, min(probability, 1.0)))
    return min(1.0, tail * (1.0 + RELATIVE_PAD))


def _at_most(count: int, n_samples: int, probability: float) -> float:
    """P(Bin(n, probability) ≤ count), rounded up."""
    if count >= n_samples:
        return 1.0
    tail = float(special.betaincc(count + 1, n_samples - count, probability))
    return min(1.0, tail * (1.0 + RELATIVE_PAD))


class Sample(NamedTuple):
    """Independent draws and the law that they are said to follow."""

    name: str
    drawn: NDArray[np.integer[Any]]
    law: Pmf


def fits_of(samples: Iterable[Sample]) -> dict[str, GoodnessOfFit]:
    """Every sample against its law; together they raise a false alarm with probability `CHECK_ALPHA` at most."""
    listed = list(samples)
    level = CHECK_ALPHA / len(listed)
    return {sample.name: goodness_of_fit(sample.drawn, sample.law, level=level) for sample in listed}


def surprise(fit: GoodnessOfFit) -> float:
    """Above 1 exactly if the fit is refuted: ln p over ln level, or the distance over the allowed one.

    >>> fair = Pmf(start=0, values=np.array([0.5, 0.5]), missing=0.0)
    >>> surprise(goodness_of_fit(np.arange(100) % 2, fair)) <= 1.0 < surprise(goodness_of_fit(np.ones(100, int), fair))
    True
    """
    p_value = fit.worst.p_value(fit.n_samples)
    beyond = math.inf if p_value == 0.0 else math.log(p_value) / math.log(fit.event_level)
    return max(beyond, fit.distance / fit.allowed_distance)


def fitted_finding(
    claim: str, fits: Mapping[str, GoodnessOfFit], *, note: str, smallest_defect: float | None = None
) -> Finding:
    """Refuted if any of the samples does not follow its law. Power: 1 − `MISSED` at the smallest defect.

    A smallest defect of inf says that no defect of its kind would show: then none is stated, and the power is 0.
    """
    defect = max(fit.smallest_defect for fit in fits.values()) if smallest_defect is None else smallest_defect
    shows = math.isfinite(defect)
    worst = max(fits, key=lambda name: surprise(fits[name]))
    return finding(
        claim,
        statistic=surprise(fits[worst]),
        bound=1.0,
        found=f"{worst}: {fits[worst].describe()}",
        alpha=CHECK_ALPHA,
        power=1.0 - MISSED if shows else 0.0,
        smallest_detectable_defect=defect if shows else None,
        note=note + " The statistic is ln p over ln level, or a distance over the allowed one; the worst of all laws.",
    )
