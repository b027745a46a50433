"""Do samples follow a declared discrete law, tails included? Refuted or not refuted, with a proved false-alarm rate.

A family of events is fixed by the law and the number of samples alone: frequent values, residues modulo 2, 3 and 4, and
tails on both sides down to masses so small that one occurrence refutes. The number of samples in an event is
binomial under the law, so its two tail probabilities are exact p-values, and a union bound over the family spends
half the level. The other half goes to the largest distance between distribution functions (Dvoretzky, Kiefer and
Wolfowitz with Massart's constant, valid for discrete laws). Nothing is asymptotic. Requires: independent samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

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


class Event(NamedTuple):
    """An event, its declared probability within [lowest, highest], and how many samples fell into it."""

    name: str
    lowest: float
    highest: float
    observed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodnessOfFit:
    """Outcome of comparing samples with a law. Under the law `refuted` has a probability of at most `level`."""

    n_samples: int
    level: float
    n_events: int
    worst: Event
    p_value: float
    """Of the worst event: the smaller of the two exact one-sided p-values, rounded up."""
    distance: float
    allowed_distance: float

    @property
    def event_level(self) -> float:
        """Half the level, shared by two one-sided tests of each event."""
        return self.level / (4.0 * self.n_events)

    @property
    def surprise(self) -> float:
        """The statistic: ln p over ln level, or the distance over the allowed one."""
        beyond = math.inf if self.p_value == 0.0 else math.log(self.p_value) / math.log(self.event_level)
        return max(beyond, self.distance / self.allowed_distance)

    @property
    def refuted(self) -> bool:
        """Whether the samples are incompatible with the law at this level."""
        return self.surprise > 1.0

    @property
    def smallest_defect(self) -> float:
        """Distance between distribution functions that is refuted with probability 1 − `MISSED` or more."""
        return self.allowed_distance + math.sqrt(math.log(2.0 / MISSED) / (2.0 * self.n_samples))

    def detectable_increase(self, probability: float) -> float:
        """By how much more than the declared `probability` an event must happen to be refuted; inf if none is enough.

        Refuted means: with probability 1 − `MISSED` or more. For a decrease, give the complement.
        """
        n = self.n_samples
        critical = 1 + int(stats.binom.isf(self.event_level, n, min(1.0, probability * (1.0 + RELATIVE_PAD))))
        if critical > n:
            return math.inf
        return float(special.betaincinv(critical, n - critical + 1, 1.0 - MISSED)) - probability

    def describe(self) -> str:
        """One line for a report or a failed test."""
        return (
            f"{'refuted' if self.refuted else 'not refuted'} at level {self.level:g} from {self.n_samples:,} samples:"
            f" {self.worst.observed:,} in {self.worst.name} (declared {self.worst.highest:.6g},"
            f" p-value {self.p_value:.3g} against {self.event_level:.3g});"
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
    p_values = _p_values(events, n_samples)
    worst = int(np.argmin(p_values))
    declared = np.minimum(np.cumsum(law.values), 1.0)
    distance = max(np.max(np.abs((below + np.cumsum(counts)) / n_samples - declared)), below / n_samples)
    return GoodnessOfFit(
        n_samples=n_samples,
        level=level,
        n_events=len(events),
        worst=events[worst],
        p_value=float(p_values[worst]),
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
        return Event(name, probability * (1.0 - RELATIVE_PAD), highest, observed)

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


def _p_values(events: list[Event], n_samples: int) -> NDArray[np.float64]:
    """P(Bin(n, highest) ≥ observed) or P(Bin(n, lowest) ≤ observed), whichever is smaller, rounded up."""
    _, lowest, highest, observed = zip(*events, strict=True)
    above = stats.binom.sf(np.array(observed) - 1, n_samples, highest)
    below = stats.binom.cdf(observed, n_samples, lowest)
    return np.asarray(np.minimum(1.0, np.minimum(above, below) * (1.0 + RELATIVE_PAD)))


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


def fitted_finding(
    claim: str, fits: Mapping[str, GoodnessOfFit], *, note: str, smallest_defect: float | None = None
) -> Finding:
    """Refuted if any of the samples does not follow its law. Power: 1 − `MISSED` at the smallest defect."""
    defect = max(fit.smallest_defect for fit in fits.values()) if smallest_defect is None else smallest_defect
    worst = max(fits, key=lambda name: fits[name].surprise)
    return finding(
        claim,
        statistic=fits[worst].surprise,
        bound=1.0,
        found=f"{worst}: {fits[worst].describe()}",
        alpha=CHECK_ALPHA,
        power=1.0 - MISSED,
        smallest_detectable_defect=defect,
        note=note + " The statistic is ln p over ln level, or a distance over the allowed one; the worst of all laws.",
    )
