"""Mechanisms of other tools as releases: what a `DpEvent` of dp-accounting costs when one record is replaced.

dp-accounting states the law of one mechanism; its repetitions are counted and composed here. Supported are Gaussian,
Laplace, discrete Laplace and randomized-response events, Poisson-sampled Gaussian events, and compositions of them.
Source: docs/proofs/releases.md, section 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from accounting.errors import InvalidInputError, require_choice, require_integer, require_real
from accounting.numerics.losses import DominatingLoss, Repeated
from accounting.numerics.pmf import Array
from accounting.numerics.profile import RELATIVE_PAD, LossGrid, ProfileTable
from accounting.releases.cut_curve import CutCurve
from accounting.releases.profile_points import LARGEST_EPSILON, Profile

if TYPE_CHECKING:
    import dp_accounting

    DpEvent: TypeAlias = dp_accounting.DpEvent

MOST_REPETITIONS = 10_000_000
STEPS_PER_DISTANCE = 16
MOST_STEPS = 2**18
POINTS = 240
ACCURATE_NEAR = (0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
"""Shares of the last ε at which compositions are most accurate; each serves until the next."""
NEGLIGIBLE = 1e-16
"""Profiles end where δ is below this; what is left counts as infinite loss."""
TAIL_ROUNDING = 1e-12
"""Bounds the rounding of P(E) − e^ε·Q(E), relative to P(E), for ε up to `LARGEST_EPSILON`."""
MOMENT_ROUNDING = 2e-15
"""Bounds the rounding of a moment close to 1, whose logarithm no relative pad covers."""
ORDERS = 1.0 + np.geomspace(1e-2, 1e4, 241)


class Sensitivity(StrEnum):
    """Which change of the data an event's noise is measured against: it moves the exact result by 1 at most."""

    ADD_OR_REMOVE = "add-or-remove-one"
    """Adding or removing one record. The clipping norm of DP-SGD is such a measure. Replacing is up to twice that."""
    REPLACE = "replace-one"
    """Replacing one record by another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Law:
    """One mechanism when a record is replaced: its exact profile, its largest loss, and whether that is its end."""

    delta: Callable[[Array], Array]
    end: float
    pure: bool
    event: DpEvent
    """An event of dp-accounting with the same law, its noise measured against replacing a record."""

    def loss(self, step: float) -> DominatingLoss:
        """The dominating pair on a grid of losses; what is beyond its end counts as infinite loss."""
        grid = LossGrid(step=step, n_steps=max(1, math.ceil(self.end / step * (1.0 + RELATIVE_PAD))))
        table = self.delta(np.arange(grid.n_steps + 1, dtype=np.float64) * step) * (1.0 + RELATIVE_PAD)
        if self.pure:
            table[-1] = 0.0
        return DominatingLoss.from_table(ProfileTable(grid=grid, forward=table, backward=table))


def event_costs(event: DpEvent, sensitivity: Sensitivity | str) -> tuple[Profile, tuple[CutCurve, ...]]:
    """Profile and, where the Rényi accountant knows the event, cut curve, for replacing one record.

    Every law in the event is restated for replacing a record, in the one way that is exact for it: with twice the
    sensitivity for additive noise; by the pair of opposite contributions for a Poisson-sampled Gaussian.
    """
    measure = Sensitivity(require_choice("sensitivity", sensitivity, map(str, Sensitivity)))
    laws = [(_law(leaf, measure), times) for leaf, times in _counted(event, 1, [])]
    if not laws:
        return Profile(points=((0.0, 0.0),)), ()
    return _composed(laws), _curves(laws)


def _counted(event: DpEvent, times: int, known: list[tuple[DpEvent, int]]) -> list[tuple[DpEvent, int]]:
    """The single mechanisms in an event and how often each occurs, added to those that are known."""
    from dp_accounting import dp_event as dp

    if isinstance(event, dp.ComposedDpEvent):
        for part in event.events:
            known = _counted(part, times, known)
        return known
    if isinstance(event, dp.SelfComposedDpEvent):
        repeated = require_integer("count", event.count, low=1, high=MOST_REPETITIONS)
        return _counted(event.event, require_integer("count", times * repeated, low=1, high=MOST_REPETITIONS), known)
    if isinstance(event, dp.NoOpDpEvent):
        return known
    others = [(other, count) for other, count in known if other != event]  # events may hold lists: they have no hash
    return [*others, (event, times + sum(count for other, count in known if other == event))]


def _law(event: DpEvent, measure: Sensitivity) -> _Law:
    """The law of a single mechanism, or `InvalidInputError` for one that is not known here."""
    from dp_accounting import dp_event as dp
    from dp_accounting.pld import privacy_loss_mechanism as laws

    moved = 2 if measure is Sensitivity.ADD_OR_REMOVE else 1
    if isinstance(event, dp.GaussianDpEvent):
        noise = _noise(event.noise_multiplier)
        gaussian = laws.GaussianPrivacyLoss(noise, sensitivity=moved)
        return _additive(gaussian, dp.GaussianDpEvent(noise / moved))
    if isinstance(event, dp.LaplaceDpEvent):
        noise = _noise(event.noise_multiplier)
        laplace = laws.LaplacePrivacyLoss(noise, sensitivity=moved)
        return _additive(laplace, dp.LaplaceDpEvent(noise / moved), pure=moved / noise)
    if isinstance(event, dp.DiscreteLaplaceDpEvent):
        rate = _noise(event.noise_parameter)
        shift = moved * require_integer("sensitivity", event.sensitivity, low=1, high=1_000_000)
        discrete = laws.DiscreteLaplacePrivacyLoss(rate, sensitivity=shift)
        return _additive(discrete, dp.DiscreteLaplaceDpEvent(rate, shift), pure=rate * shift)
    if isinstance(event, dp.RandomizedResponseDpEvent):
        return _response(event)
    if isinstance(event, dp.PoissonSampledDpEvent) and isinstance(event.event, dp.GaussianDpEvent):
        if measure is Sensitivity.REPLACE:
            raise InvalidInputError(
                f"{event} samples records, so its noise has to be measured against the contribution of one record;"
                f" state its noise multiplier for that and sensitivity={str(Sensitivity.ADD_OR_REMOVE)!r}."
            )
        share = require_real("sampling_probability", event.sampling_probability, low=0.0, high=1.0)
        sampled = laws.GaussianPrivacyLoss(
            _noise(event.event.noise_multiplier), sampling_prob=share, adjacency_type=laws.AdjacencyType.REPLACE
        )
        return _additive(sampled, event)
    raise InvalidInputError(
        f"{event} has no law for replacing a record here; give Gaussian, Laplace, discrete Laplace, randomized-response"
        " or Poisson-sampled Gaussian events, or charge its (ε, δ) with `Release.of_guarantee`."
    )


def _noise(multiplier: float) -> float:
    return require_real("noise", multiplier, low=0.0, high=1e9)


def _additive(law: Any, event: DpEvent, *, pure: float | None = None) -> _Law:
    """Noise that is added: the losses fall along the line, so the best test accuses up to a threshold."""

    def delta(epsilons: Array) -> Array:
        thresholds = np.array([law.inverse_privacy_loss(float(epsilon)) for epsilon in epsilons])
        accused = np.asarray(law.mu_upper_cdf(thresholds))
        excess = accused - np.exp(epsilons + law.mu_lower_log_cdf(thresholds))
        return np.asarray(np.clip(excess + TAIL_ROUNDING * accused, 0.0, 1.0))

    end = law.connect_dots_bounds().epsilon_upper if pure is None else math.nextafter(pure, math.inf)
    if end > LARGEST_EPSILON:
        raise InvalidInputError(f"{event} has losses up to ε={end:g} > {LARGEST_EPSILON:g}; add more noise.")
    return _Law(delta=delta, end=end, pure=pure is not None, event=event)


def _response(event: Any) -> _Law:
    """Randomized response: with probability p a uniformly random one of k answers, else the true one."""
    choices = require_integer("num_buckets", event.num_buckets, low=2, high=10**9)
    lie = require_real("noise_parameter", event.noise_parameter, low=0.0, high=1.0) / choices
    truth = 1.0 - (choices - 1) * lie
    end = math.nextafter(math.log(truth) - math.log(lie), math.inf) if truth > lie else 0.0

    def delta(epsilons: Array) -> Array:
        return np.asarray(np.maximum(0.0, truth - np.exp(epsilons) * lie) + TAIL_ROUNDING * truth)

    return _Law(delta=delta, end=end * (1.0 + RELATIVE_PAD), pure=True, event=event)


def _composed(laws: list[tuple[_Law, int]]) -> Profile:
    """The profile of all laws together, each so many times.

    Steps are fine against the smallest distance between neighbors, as far as `MOST_STEPS` allow.
    """
    distances = [float(law.delta(np.zeros(1))[0]) for law, _ in laws]
    finest = min((distance for distance in distances if distance > 0.0), default=1.0)
    step = max(finest / STEPS_PER_DISTANCE, max(law.end for law, _ in laws) / MOST_STEPS, 1e-9)
    whole = Repeated([(law.loss(step), times) for law, times in laws])
    last = min(whole.end, whole.chernoff_epsilon(NEGLIGIBLE), LARGEST_EPSILON)
    composed = {share * last: whole.compose(share * last) for share in ACCURATE_NEAR}
    bounds = []
    for epsilon in np.linspace(0.0, last, POINTS).tolist():
        near = max(near for near in composed if near <= epsilon)
        bounds.append((epsilon, composed[near].delta(epsilon)))
    largest = math.fsum(law.end * times for law, times in laws) * (1.0 + RELATIVE_PAD)
    if all(law.pure for law, _ in laws) and largest <= LARGEST_EPSILON:
        bounds.append((largest, 0.0))
    return Profile.below(bounds)


def _curves(laws: list[tuple[_Law, int]]) -> tuple[CutCurve, ...]:
    """ρ(α) = (α − 1)·D_α, nothing cut off, if dp-accounting's Rényi accountant knows all laws; else none.

    That accountant takes noise multipliers as measured against the relation that it is made for.
    """
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(list(ORDERS), NeighboringRelation.REPLACE_ONE)
    if not all(accountant.supports(law.event) for law, _ in laws):
        return ()
    for law, times in laws:
        accountant.compose(law.event, times)
    rounding = MOMENT_ROUNDING * sum(times for _, times in laws)
    rhos = (ORDERS - 1.0) * accountant.rdp * (1.0 + RELATIVE_PAD) + rounding
    usable = np.isfinite(rhos)
    points = zip(ORDERS[usable].tolist(), np.maximum(rhos[usable], 0.0).tolist(), strict=True)
    return (CutCurve(cut=0.0, points=tuple(points)),) if np.any(usable) else ()
