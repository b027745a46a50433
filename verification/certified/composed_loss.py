"""A lower bound on δ(ε) of k independent copies of one pair, with every rounding directed downwards.

Losses are rounded down to a grid, so the lower law is only ever replaced by a larger measure; the sum of k losses is
one power of a discrete Fourier transform of the exponentially tilted law, whose rounding is bounded and subtracted.
Source: docs/proofs/certificate.md, section 2.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verification.certified.noise_laws import UNIT, Array, TwoLaws

MOST_BINS = 2**20
LOSS_BIAS = 0.002
"""Rounding down costs at most half a bin per instance on average: this share of ε, if the grid can be that fine."""
PAD = 4e-9
"""Relative: exponentials, logarithms and sums of at most 2²⁰ positive terms, which are accurate to 2²¹·2⁻⁵³."""
TRANSFORM = 20.0
"""Relative error of a transform of 2^b numbers in the Euclidean norm: at most 20·b·2⁻⁵³ (Higham, 2002, Thm 24.2)."""
OUTSIDE = 1e-13
WIDTHS = (9.0, 12.0, 16.0, 24.0, 40.0, 80.0)
"""Half-widths of the window that are tried, in standard deviations."""
LOOSE = 0.05
"""Share of ε that rounding may take before the bound is called loose: with 2²⁰ bins, from k of about 3·10⁴ on."""
LARGEST_EXPONENT = 60.0
"""Of the moment that the tilt is divided by: beyond, weights would differ by more than doubles can hold."""
SCAN = 0.97
SPARE_SHARE = 1e-4
"""Share of δ that leaving out the most extreme losses may cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerProfile:
    """δ(ε) from below: Σ_j masses_j e^{log_scale − θ·l_j}(1 − e^{ε − l_j})₊, minus everything that could be wrong."""

    losses: Array
    above: Array
    """Σ over losses from here on of masses·weight, weight = e^{log_scale − θ·l}."""
    shrunk: Array
    """The same with another factor e^{−l}."""
    largest: Array
    """The weight here, which is the largest from here on."""
    norms: Array
    """Euclidean norm of the weights from here on."""
    error: float
    """Euclidean norm of the error of the masses."""
    outside: float
    """Tilted mass that may have wrapped around."""
    missing: float
    """Mass of the lower law that is not listed, of all instances together."""
    infinite: float
    """Lower bound on the probability that some loss is infinite."""
    near: float
    """An ε to search around."""
    rounded_off: float = 0.0
    """By how much rounding to the grid lowered the mean of the sum of losses."""

    @property
    def loose(self) -> bool:
        """Whether rounding to the grid took away a share of ε that matters."""
        return self.rounded_off > LOOSE * self.near

    @staticmethod
    def of(losses: Array, masses: Array, weights: _Weights, *, error: float, outside: float) -> LowerProfile:
        """From increasing losses and their tilted masses."""
        with np.errstate(over="ignore"):
            factor = np.exp(np.minimum(weights.log_scale - weights.tilt * losses, 700.0))
            shrinking = np.exp(np.minimum(-losses, 700.0))
        weighted = masses * factor
        return LowerProfile(
            losses=losses, above=_suffix(weighted), shrunk=_suffix(weighted * shrinking), largest=factor,
            norms=np.sqrt(_suffix(np.minimum(factor, 1e150) ** 2)), error=error, outside=outside,
            missing=weights.missing, infinite=weights.infinite, near=weights.near, rounded_off=weights.rounded_off,
        )  # fmt: skip

    def delta(self, epsilon: float) -> float:
        """A number that δ(ε) of the composition is not below."""
        at, growth = int(np.searchsorted(self.losses, epsilon, side="right")), math.exp(epsilon)
        if at == len(self.losses):
            return self.infinite - growth * self.missing
        total = float(self.above[at]) * (1.0 - PAD) - growth * float(self.shrunk[at]) * (1.0 + PAD)
        wrong = 1.01 * (float(self.norms[at]) * self.error + float(self.largest[at]) * self.outside)
        return self.infinite + max(total - wrong, 0.0) - growth * self.missing

    def epsilon(self, delta: float) -> float:
        """The largest ε found (to 3e-4) with δ(ε) > delta, searched around `near`; 0 if none is found.

        Every ε for which this bound exceeds delta is below the true ε, so the search need not be complete.
        """
        low, high = 0.0, 2.0 * self.near
        while high > 0.01 * self.near:
            if self.delta(high) > delta:
                low = high
                break
            high *= SCAN
        if low == 0.0:
            return 0.0
        high = low / SCAN
        while high - low > 3e-4 * high:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return low


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    """What a composition needs besides its losses."""

    tilt: float
    log_scale: float
    missing: float
    infinite: float
    near: float
    rounded_off: float = 0.0


def _suffix(values: Array) -> Array:
    """Sums from each place to the end."""
    return np.asarray(np.cumsum(values[::-1])[::-1])


@dataclass(frozen=True, slots=True)
class _Atoms:
    """Losses (rounded down) with masses of the upper law."""

    losses: Array
    masses: Array

    def tilted(self, tilt: float) -> tuple[Array, float]:
        """Masses ∝ mass·e^{tilt·loss}, and ln of their sum."""
        exponents = tilt * self.losses
        top = float(np.max(exponents))
        raw = self.masses * np.exp(exponents - top)
        total = float(np.sum(raw))
        return raw / total, top + math.log(total)


def lower_profile(pair: TwoLaws, times: int, delta: float) -> LowerProfile:
    """For `times` copies of the pair; sharpest where δ(ε) is about `delta`."""
    atoms = _atoms(pair, SPARE_SHARE * delta / times)
    tilt = 0.0 if times == 1 else _tilt(atoms, times, delta)
    masses, log_moment = atoms.tilted(tilt)
    losses = atoms.losses
    mean = float(np.sum(masses * losses))
    weights = _Weights(
        tilt=tilt,
        log_scale=times * (log_moment - 4.0 * pair.error - 1e-14),
        missing=1.01 * times * pair.missing,
        infinite=-math.expm1(times * math.log1p(-_infinite(pair))) * (1.0 - PAD),
        near=float(losses[-1]) if times == 1 else max(times * mean, 1e-9),
    )
    if times == 1:
        return LowerProfile.of(losses, masses, weights, error=0.0, outside=0.0)
    reach = _reach(masses, losses - mean, times)
    step = max(2.0 * LOSS_BIAS * weights.near / times, 2.0 * reach / (MOST_BINS - 8))
    bins = 2 ** math.ceil(math.log2(2.0 * reach / step + 8.0))
    places = np.floor(losses / step).astype(np.int64)
    # tilted again, by the rounded losses, so that e^{−θ·l} undoes it exactly for sums of grid points
    rounded = np.asarray(places * step, dtype=np.float64)
    masses, log_moment = _Atoms(rounded, atoms.masses).tilted(tilt)
    center = float(np.sum(masses * rounded))
    first = math.floor(times * center / step) - bins // 2  # of the window of sums, around the mean of what is summed
    outside = _outside(masses, rounded - center, times, (bins // 2 - 2) * step)
    weights = dataclasses.replace(
        weights,
        log_scale=times * (log_moment - 4.0 * pair.error - 1e-14),
        rounded_off=max(0.0, times * (mean - center)),
    )
    sums, error = _power(places % bins, masses, bins, times)
    grid = (first + np.arange(bins)) * step
    return LowerProfile.of(grid, np.roll(sums, -(first % bins)), weights, error=error, outside=outside)


def _atoms(pair: TwoLaws, spare: float) -> _Atoms:
    """Outcomes that both laws list, without the most extreme losses of upper mass up to `spare` at either end.

    Leaving outcomes out lowers every hockey stick.
    """
    seen = (pair.one > 0.0) & (pair.zero > 0.0)
    losses = np.log(pair.one[seen] / pair.zero[seen]) - 4.0 * pair.error - 1e-15
    masses = pair.one[seen] * (1.0 - 2.0 * pair.error)
    order = np.argsort(losses)
    losses, masses = losses[order], masses[order]
    first = int(np.searchsorted(np.cumsum(masses), spare))
    last = int(np.searchsorted(np.cumsum(masses[::-1]), spare))
    return _Atoms(losses[first : len(losses) - last], masses[first : len(masses) - last])


def _infinite(pair: TwoLaws) -> float:
    """Mass of the upper law where the lower one lists nothing; what it truly has there is part of its `missing`."""
    return float(np.sum(pair.one[pair.zero == 0.0])) * (1.0 - 2.0 * pair.error - 1e-12)


def _tilt(atoms: _Atoms, times: int, delta: float) -> float:
    """θ ≥ 0 at which Chernoff's bound for the sum to exceed its tilted mean is about `delta`."""

    def exponent(tilt: float) -> float:
        masses, log_moment = atoms.tilted(tilt)
        return times * (log_moment - tilt * float(np.sum(masses * atoms.losses)))

    def short(tilt: float) -> bool:
        return exponent(tilt) > goal and times * atoms.tilted(tilt)[1] < LARGEST_EXPONENT

    low, high, goal = 0.0, 1.0, math.log(delta) + 2.0
    while short(high) and high < 1e4:
        low, high = high, 2.0 * high
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if short(middle) else (low, middle)
    return low


def _reach(masses: Array, centered: Array, times: int) -> float:
    """A distance that the sum of the losses, before rounding, hardly ever leaves its mean by: it chooses the grid."""
    spread = math.sqrt(times * max(float(np.sum(masses * centered**2)), 1e-300))
    reach = next(
        (width * spread for width in WIDTHS if _outside(masses, centered, times, width * spread) <= OUTSIDE),
        WIDTHS[-1] * spread,
    )
    return reach + 2.0 * float(np.max(np.abs(centered))) / math.sqrt(times)


def _outside(masses: Array, centered: Array, times: int, reach: float) -> float:
    """Bound on the probability that a sum of `times` such numbers is beyond ±`reach`, by Chernoff's bound.

    It holds wherever the numbers are centered, and for every rate that is tried.
    """
    variance = times * max(float(np.sum(masses * centered**2)), 1e-300)
    probability = 0.0
    for sign in (1.0, -1.0):
        rates = (np.array([0.25, 0.5, 0.75, 0.9, 1.0]) * reach / variance).tolist()
        logs = [times * _log_mean_exp(masses, sign * rate * centered) - rate * reach for rate in rates]
        probability += math.exp(min(0.0, *logs))
    return min(1.0, 1.01 * probability)


def _log_mean_exp(masses: Array, exponents: Array) -> float:
    top = float(np.max(exponents))
    return top + math.log(float(np.sum(masses * np.exp(exponents - top))))


def _power(places: NDArray[np.int64], masses: Array, bins: int, times: int) -> tuple[Array, float]:
    """The circular k-fold convolution and a bound on its Euclidean error."""
    start = np.bincount(places, weights=masses, minlength=bins)
    transform = np.fft.rfft(start)
    relative = TRANSFORM * math.log2(bins) * UNIT
    coarse = relative * math.sqrt(bins) * float(np.linalg.norm(start))  # bounds the error of each coefficient
    power, square, left = np.ones_like(transform), transform, times
    while left:
        if left & 1:
            power = power * square
        left >>= 1
        if left:
            square = square * square
    sizes = np.minimum(np.abs(transform) + coarse, 1.0)
    errors = times * coarse * sizes ** (times - 1) + 12.0 * times * UNIT * sizes**times
    in_frequency = math.sqrt(2.0 * float(errors @ errors))
    back = relative * math.sqrt(2.0 * float(np.sum(np.abs(power) ** 2)))
    sums = np.maximum(np.fft.irfft(power, bins), 0.0)
    return sums, 1.01 * (in_frequency + back) / math.sqrt(bins)
