"""Privacy losses of dominating pairs and their composition.

`dp_accounting` is imported where it is used: that takes longer than all the rest. Besides this module, only
`accounting/releases/exchange.py` touches it, to read its events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import scipy

from accounting.errors import InvalidInputError
from accounting.numerics.effort import require_time
from accounting.numerics.pmf import Array
from accounting.numerics.profile import RELATIVE_PAD, UNIT_ROUNDOFF, ProfileTable, smallest_epsilon

if TYPE_CHECKING:
    from dp_accounting.pld import privacy_loss_distribution

    PrivacyLossDistribution: TypeAlias = privacy_loss_distribution.PrivacyLossDistribution

_CONVOLUTION_TAIL = 1e-18
GAIN = 1e-3
"""Relative improvement of ε that is worth another composition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DominatingLoss:
    """A dominating pair on a loss grid: the connect-the-dots reading of one tabulated profile.

    `masses[i]` is P's mass at loss (i − n_steps)·step and `infinite` its mass at +∞. The table may be a
    pointwise supremum of many profiles: a supremum of functions convex and decreasing in e^ε is again
    convex and decreasing, hence a profile, and joining its grid values by straight lines in e^ε can
    only raise it.
    """

    step: float
    n_steps: int
    masses: Array
    infinite: float

    @staticmethod
    def from_table(table: ProfileTable) -> DominatingLoss:
        """Read the masses off the table; P's mass at −ℓ is e^{−ℓ} times the reversed pair's mass at ℓ."""
        h, n = table.grid.step, table.grid.n_steps
        positive, infinite = _positive_masses(table.forward, h)
        mirrored, _ = _positive_masses(table.backward, h)
        negative = mirrored * np.exp(-np.arange(1, n + 1) * h)
        centre = max(0.0, 1.0 - infinite - float(np.sum(positive)) - float(np.sum(negative)))
        masses = np.concatenate([negative[::-1], [centre], positive])
        return DominatingLoss(step=h, n_steps=n, masses=masses, infinite=infinite)

    def to_pld(self) -> PrivacyLossDistribution:
        """For dp-accounting: this pair in both directions, enlarged so that its sums in double precision stay above."""
        from dp_accounting.pld import pld_pmf, privacy_loss_distribution

        enlarged = 1.0 + RELATIVE_PAD
        infinite = min(1.0, self.infinite * enlarged)
        masses = pld_pmf.DensePLDPmf(
            self.step, -self.n_steps, self.masses * enlarged, infinite, pessimistic_estimate=True
        )
        return privacy_loss_distribution.PrivacyLossDistribution(masses)

    def losses(self) -> Array:
        """The grid of finite losses."""
        return np.asarray(np.arange(-self.n_steps, self.n_steps + 1) * self.step, dtype=np.float64)

    def deviation(self) -> float:
        """Root mean square of the finite losses."""
        return math.sqrt(float(np.sum(self.masses * self.losses() ** 2)))

    def log_moment(self, tilt: float) -> float:
        """Ln E_P[e^{tilt·loss}; loss finite]."""
        return self.log_moment_of_tilts()(tilt)

    def log_moment_of_tilts(self) -> Callable[[float], float]:
        """`log_moment`, to be asked at many tilts."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.masses)
        losses = self.losses()

        def log_moment(tilt: float) -> float:
            require_time()
            exponents = logs + tilt * losses
            peak = float(np.max(exponents))
            if not math.isfinite(peak):
                return -math.inf
            return peak + math.log(float(np.sum(np.exp(exponents - peak))))

        return log_moment

    def tilted_power(self, times: int, tilt: float) -> ComposedLoss:
        """The loss of `times` independent instances, masses weighed by e^{tilt·loss}, convolved by `dp_accounting`.

        One instance is not convolved with anything: nothing is rounded or cut.
        """
        require_time()
        moment = self.log_moment(tilt)
        with np.errstate(divide="ignore"):
            tilted = np.exp(np.log(self.masses) + tilt * self.losses() - moment)
        offset, composed, rounding, truncated = 0, tilted, 0.0, 0.0
        if times > 1:
            from dp_accounting.pld import common as pld_common

            offset, composed = pld_common.self_convolve(tilted, times, _CONVOLUTION_TAIL)
            composed = np.maximum(composed, 0.0)
            rounding, truncated = self._convolution_rounding(tilted, times, len(composed)), _CONVOLUTION_TAIL
        return ComposedLoss(
            step=self.step,
            start=offset - self.n_steps * times,
            tilted=composed,
            tilt=tilt,
            log_scale=times * moment,
            rounding=rounding,
            truncated=truncated,
            infinite=-math.expm1(times * math.log1p(-min(self.infinite, 1.0 - 1e-16))),
        )

    @staticmethod
    def _convolution_rounding(tilted: Array, times: int, length: int) -> float:
        """Bound on the error of one entry of the FFT power (Higham 2002, Theorem 24.2, and Cauchy–Schwarz).

        A transform of length N of x is exact up to 10·log₂N·u·‖x‖₂·√N in the 2-norm; raising to the
        k-th power multiplies by at most k since |x̂| ≤ 1; the inverse transform averages over N.
        """
        levels = math.log2(max(length, len(tilted))) + 1.0
        transform = 10.0 * levels * UNIT_ROUNDOFF
        norm = euclidean_norm(tilted)
        return times * (transform * norm + 8.0 * UNIT_ROUNDOFF * norm) + transform * norm + _CONVOLUTION_TAIL


@dataclass(frozen=True, slots=True)
class Repeated:
    """Independent instances, each dominated by one of several losses on the same grid, each loss several times."""

    kinds: Sequence[tuple[DominatingLoss, int]]

    def __post_init__(self) -> None:
        if len({loss.step for loss, _ in self.kinds}) != 1:
            raise InvalidInputError("losses on different grids, or none at all, do not compose; tabulate on one grid.")

    @property
    def infinite(self) -> float:
        """P's mass at infinite loss."""
        if any(loss.infinite >= 1.0 for loss, _ in self.kinds):
            return 1.0
        return -math.expm1(sum(times * math.log1p(-min(loss.infinite, 1.0 - 1e-16)) for loss, times in self.kinds))

    @property
    def end(self) -> float:
        """The largest finite loss."""
        return sum(times * loss.n_steps * loss.step for loss, times in self.kinds)

    def log_moment(self, tilt: float) -> float:
        """Ln E_P[e^{tilt·loss}; loss finite]."""
        return self.log_moment_of_tilts()(tilt)

    def log_moment_of_tilts(self) -> Callable[[float], float]:
        """`log_moment`, to be asked at many tilts."""
        each = [(loss.log_moment_of_tilts(), times) for loss, times in self.kinds]
        return lambda tilt: sum(times * log_moment(tilt) for log_moment, times in each)

    def chernoff_tilt(self, epsilon: float) -> float:
        """The tilt s ≥ 0 that minimises the Chernoff bound exp(ln E[e^{sL}] − s·ε)."""
        log_moment = self.log_moment_of_tilts()

        def exponent(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            return log_moment(tilt) - tilt * epsilon

        best = self._best_tilt(exponent)
        return math.exp(float(best.x)) if math.isfinite(best.fun) and best.fun < 0.0 else 0.0

    def chernoff_epsilon(self, delta: float) -> float:
        """min_s (ln E[e^{sL}] + ln(1/delta))/s: an ε at which δ(ε) ≤ delta up to the mass at infinity."""
        log_moment = self.log_moment_of_tilts()

        def bound(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            return max(0.0, log_moment(tilt) - math.log(delta)) / tilt

        return float(self._best_tilt(bound).fun)

    def _best_tilt(self, objective: Callable[[float], float]) -> scipy.optimize.OptimizeResult:
        """Minimise over ln(tilt), up to where e^{tilt·loss} would overflow."""
        largest = max(300.0 / max(loss.n_steps * loss.step for loss, _ in self.kinds), 1e-5)
        return scipy.optimize.minimize_scalar(
            objective, bounds=(math.log(1e-6), math.log(largest)), method="bounded", options={"xatol": 1e-2}
        )

    def compose(self, near_epsilon: float) -> ComposedLoss:
        """The loss of all instances, most accurate around `near_epsilon`.

        The masses are tilted by e^{sℓ}, with s minimising the Chernoff bound at `near_epsilon`, then
        convolved, then tilted back. The convolution's rounding is then relative to the δ in question, not to 1,
        so that δ = 1e-15 is as safe as δ = 1e-3.
        """
        return self.tilted(self.chernoff_tilt(near_epsilon))

    def tilted(self, tilt: float) -> ComposedLoss:
        """The loss of all instances, masses weighed by e^{tilt·loss} while they are convolved."""
        parts = sorted(
            (loss.tilted_power(times, tilt) for loss, times in self.kinds), key=lambda part: len(part.tilted)
        )
        while len(parts) > 1:  # in pairs, like a tournament: few long transforms
            odd = parts[-1:] if len(parts) % 2 else []
            parts = [part.joined(other) for part, other in zip(parts[::2], parts[1::2], strict=False)] + odd
        return parts[0]

    def delta(self, epsilon: float) -> float:
        """δ(ε), rounded up."""
        return 1.0 if self.infinite >= 1.0 else self.compose(epsilon).delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """Smallest ε with δ(ε) ≤ delta, rounded up; inf if there is none."""
        if self.infinite >= delta:
            return math.inf
        last, near = math.inf, self.chernoff_epsilon(delta)
        while near < last * (1.0 - GAIN):  # the next composition is most accurate where the last one ended
            last, near = near, smallest_epsilon(self.compose(near).delta, delta, largest=self.end + 1.0)
        return near


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedLoss:
    """P-law of a composed loss, stored tilted: P(loss_i) = tilted_i · exp(log_scale − tilt·loss_i)."""

    step: float
    start: int
    tilted: Array
    tilt: float
    log_scale: float
    rounding: float
    """Bound on the error of every entry of `tilted`."""
    truncated: float
    """Bound on the tilted mass that is in no entry."""
    infinite: float

    def joined(self, other: ComposedLoss) -> ComposedLoss:
        """The loss of both, with independent randomness, under the same tilt on the same grid.

        The exact entries sum to 1 at most, so errors a and b of the entries become at most a + b + a·b·length in the
        convolution, to which three transforms add 30·log₂(2N)·u·‖x‖₂·‖y‖₂ (see `_convolution_rounding`).
        """
        require_time()
        length = len(self.tilted) + len(other.tilted)
        own, their = self.rounding, other.rounding
        norms = euclidean_norm(self.tilted) * euclidean_norm(other.tilted)
        transforms = 30.0 * math.log2(4.0 * length) * UNIT_ROUNDOFF * norms
        return ComposedLoss(
            step=self.step,
            start=self.start + other.start,
            tilted=np.maximum(scipy.signal.fftconvolve(self.tilted, other.tilted), 0.0),
            tilt=self.tilt,
            log_scale=self.log_scale + other.log_scale,
            rounding=own + their + own * their * length + transforms,
            truncated=self.truncated + other.truncated,
            infinite=self.infinite + other.infinite - self.infinite * other.infinite,
        )

    def delta(self, epsilon: float) -> float:
        """An upper bound on δ(ε) of the composition, rounding errors included."""
        require_time()
        below = min(max(epsilon / self.step - self.start - 2.0, 0.0), float(len(self.tilted)))
        nearby = int(below)  # the entries before are below ε, whatever rounding does
        losses = (self.start + np.arange(nearby, len(self.tilted))) * self.step
        skipped = int(np.searchsorted(losses, epsilon, side="right"))
        first, above = nearby + skipped, losses[skipped:] - epsilon
        weights = np.exp(-self.tilt * above) * -np.expm1(-above)
        scale = math.exp(min(700.0, self.log_scale - self.tilt * epsilon))
        total = float(np.dot(self.tilted[first:], weights))
        error = self.rounding * float(np.sum(weights)) + self.truncated
        return min(1.0, scale * (total + error) * (1.0 + RELATIVE_PAD) + self.infinite)

    def expectation(self, values: Callable[[Array], Array]) -> float:
        """An upper bound on E_P[values(loss)], infinite loss counted as 1.

        Requires: values from 0 to 1, log-concave in the loss. Mass beyond the last entry weighs no more than a value of
        1 would there. The weights are log-concave, too; where they rise from the first entry on, mass before it weighs
        no more than that entry. Where they do not: 1.
        """
        losses = (self.start + np.arange(len(self.tilted), dtype=np.float64)) * self.step
        scales = np.exp(np.minimum(700.0, self.log_scale - self.tilt * losses))
        weights = values(losses) * scales
        if len(weights) < 2 or weights[0] > weights[1]:
            return 1.0
        error = self.rounding * float(np.sum(weights)) + self.truncated * float(weights[0] + scales[-1])
        return min(1.0, (float(np.dot(self.tilted, weights)) + error) * (1.0 + RELATIVE_PAD) + self.infinite)


def _positive_masses(table: Array, step: float) -> tuple[Array, float]:
    """P's masses at h, 2h, …, n·h and at +∞ from δ at 0, h, …, n·h (connect the dots)."""
    delta = np.minimum(np.minimum.accumulate(table), 1.0)
    drops = -np.diff(delta)
    masses = np.empty(len(drops))
    masses[:-1] = np.maximum(math.exp(step) * drops[:-1] - drops[1:], 0.0) / math.expm1(step)
    masses[-1] = drops[-1] / -math.expm1(-step)
    return masses, float(delta[-1])


def euclidean_norm(values: Array) -> float:
    """‖values‖₂."""
    return math.sqrt(float(np.sum(np.square(values))))
