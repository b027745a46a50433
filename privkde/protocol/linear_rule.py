"""A linear classifier from published class sums, sizes and second moments, whose noise is known.

Post-processing: nothing here touches private data. For class c with share π_c, mean μ_c and a covariance C that all
classes share, the score of y is

    a·(w_c·y − ½ (μ_c − μ)ᵀW(μ_c − μ) − w_c·μ) + ln π_c,    w_c = W(μ_c − μ),    W ≈ C⁻¹,    μ = Σ π_c μ_c

Published sums are off by noise of a known size, and every step takes it for known: means are drawn towards their common
mean and towards those of similar classes by as much as noise explains, the spectrum of C is cleaned of it, and `a`
restores the scale that a cautious W loses.
Source: docs/proofs/moments.md, "What the analyzer does".
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space
from sklearn.isotonic import isotonic_regression

Floats = NDArray[np.float64]

N_BANDS = 8
"""Parts of the spectrum whose signals are estimated separately; twice as many change little."""
UNRELATED = 5.0
"""How much counts that classes are unrelated, in coordinates per class; between 3 and 10 results hardly change."""
RIDGE = 0.5
"""How much of the noise's spectral scale is added to cleaned eigenvalues before they are inverted."""
LEAST_SHARE = 0.2
"""Least eigenvalue of a covariance, in units of the mean eigenvalue of second moments (1/d for unit vectors)."""
LEAST_POWER = 1e-6
"""Least mean square norm of users' vectors that is believed."""
N_STEPS = 10
"""Steps in which the estimated signal settles."""
RELATED_STEPS = 30
"""Steps in which the estimated relations of classes settle."""
SURE = 3.0
"""Deviations from which a difference is taken for more than noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a classifier is made from: estimates with independent errors of known standard deviation."""

    n_users: int
    sizes: Floats
    size_deviation: float
    sums: Floats
    """Σ x of each class (rows)."""
    deviation: float
    """Of each entry of `sums`."""
    moments: Floats | None = None
    """Σ xxᵀ over all users."""
    moment_deviation: float = 0.0
    """Of entries on the diagonal of `moments`; those beside it have 1/√2 of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearRule:
    """Scores of queries for each class, with the signal and the noise of the means that they come from."""

    weights: Floats
    offsets: Floats
    signal: float
    """Estimated mean square distance of class means from their common mean."""
    noise: float
    """Mean square norm of the noise of a class mean."""
    squared_norm: tuple[float, float] = (0.0, math.inf)
    """Between what the mean square norm of users' vectors surely lies: known from second moments, if there are any."""
    sure: bool = True
    """Whether the signal is surely more than what noise explains."""
    uses_moments: bool = True
    """Whether second moments were used; if not, this is the nearest mean."""

    def scores(self, y: NDArray[np.floating]) -> Floats:
        """One row for each query, one column for each class: log odds, if the model of the data were right."""
        return np.asarray(y @ self.weights.T + self.offsets, dtype=np.float64)

    @staticmethod
    def of(published: Published) -> LinearRule:
        """The linear discriminant or, without second moments, the nearest mean; both with class sizes.

        Where means may be nothing but noise (`ClassMeans.sure`), second moments are left out.
        """
        means, power = ClassMeans.of(published), _power(published)
        dim = means.values.shape[1]
        shrunk = means.shrunk()
        uses_moments = published.moments is not None and shrunk.sure
        if not uses_moments:
            spread = power - float(means.shares @ np.sum(shrunk.values**2, axis=1))
            basis, spectrum, blur = None, np.full(dim, spread / dim), 0.0
        else:
            eigenvalues, basis = np.linalg.eigh(_covariance(published, means, shrunk))
            blur = published.moment_deviation * math.sqrt(dim / 2.0) / published.n_users
            spectrum = isotonic_regression(cleaned(eigenvalues, blur))
        spectrum = np.maximum(spectrum, LEAST_SHARE * power / dim)
        inverse = 1.0 / (spectrum + RIDGE * blur)
        if basis is None:
            final = shrunk
        else:
            turned = dataclasses.replace(means, values=means.values @ basis)
            final = turned.related(turned.signals(N_BANDS))
        apart = final.values - final.center
        energy = means.shares @ apart**2
        certain = float(energy @ (inverse**2 * spectrum))
        scale = float(energy @ inverse) / certain if certain > 0.0 else 1.0
        weights = scale * apart * inverse
        offsets = np.log(means.shares) - 0.5 * np.sum(weights * apart, axis=1) - weights @ final.center
        return LinearRule(
            weights=weights if basis is None else weights @ basis.T,
            offsets=offsets,
            signal=dim * shrunk.signal,
            noise=dim * float(means.shares @ means.noise),
            squared_norm=(0.0, math.inf) if published.moments is None else _squared_norm(published),
            sure=shrunk.sure,
            uses_moments=uses_moments,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassMeans:
    """Noisy means of the classes (rows), or some of their coordinates, with the classes' shares of all users."""

    shares: Floats
    values: Floats
    noise: Floats
    """Variance of the noise in an entry of each class."""
    signal: float = 0.0
    """Variance of an entry among the true means, as estimated; 0 before that."""
    signal_error: float = 0.0
    """Standard deviation of that estimate if there were no signal."""

    @staticmethod
    def of(published: Published) -> ClassMeans:
        """Sizes are made to add up to n; one below its own error is taken for that error."""
        sizes = published.sizes + (published.n_users - published.sizes.sum()) / len(published.sizes)
        sizes = np.maximum(sizes, max(1.0, published.size_deviation))
        return ClassMeans(
            shares=sizes / sizes.sum(),
            values=published.sums / sizes[:, None],
            noise=(published.deviation / sizes) ** 2,
        )

    def band(self, part: NDArray[np.intp]) -> ClassMeans:
        """Some of the coordinates."""
        return dataclasses.replace(self, values=self.values[:, part])

    @property
    def center(self) -> Floats:
        """μ = Σ π_c μ_c."""
        return np.asarray(self.shares @ self.values)

    @property
    def center_noise(self) -> float:
        """Variance of the noise in an entry of μ."""
        return float(self.shares**2 @ self.noise)

    @property
    def covariance_around(self) -> Floats:
        """Covariance, over the classes, of the noise in an entry of μ_c − μ: P·diag(s²)·Pᵀ with P = 1 − 1πᵀ."""
        centering = np.eye(len(self.shares)) - self.shares
        return np.asarray((centering * self.noise) @ centering.T)

    @property
    def noise_around(self) -> Floats:
        """Variance of the noise in an entry of μ_c − μ: (1 − 2π_c)s_c² + Σ π²s²."""
        return np.maximum((1.0 - 2.0 * self.shares) * self.noise + self.center_noise, 1e-300)

    def shrunk(self) -> ClassMeans:
        """Means drawn towards μ: if signals have variance t, the best linear estimate keeps t/(t + ν_c) of μ_c − μ.

        Each class has an unbiased estimate of t: the mean square of its entries less their noise ν_c. They are weighted
        by their precision at the t found before.
        """
        noise, center, signal = self.noise_around, self.center, 0.0
        squares = np.mean((self.values - center) ** 2, axis=1)
        for _ in range(N_STEPS):
            weights = ((noise.min() + signal) / (noise + signal)) ** 2
            signal = max(0.0, float(weights @ (squares - noise) / weights.sum()))
        kept = signal / (signal + noise)
        error = math.sqrt(2.0 / self.values.shape[1]) * float(np.linalg.norm(weights * noise)) / float(weights.sum())
        drawn = center + kept[:, None] * (self.values - center)
        return dataclasses.replace(self, values=drawn, signal=signal, signal_error=error)

    def signals(self, n_bands: int) -> Floats:
        """The signal's variance in each coordinate: that of its band, drawn to the whole's as errors explain.

        With t the whole's, a band of b coordinates has an estimate of variance 2/(b·Σ_c (t + ν_c)⁻²).
        """
        whole, dim = self.shrunk().signal, self.values.shape[1]
        parts = np.array_split(np.arange(dim), min(n_bands, dim))
        apart = np.array([self.band(part).shrunk().signal for part in parts]) - whole
        precision = float(np.sum((whole / (whole + self.noise_around)) ** 2))
        errors = sum(2.0 / len(part) for part in parts) * (1.0 - 1.0 / len(parts)) * whole**2 / precision
        square = float(apart @ apart)
        kept = max(0.0, 1.0 - errors / square) if square > 0.0 else 0.0
        return np.repeat(whole + kept * apart, [len(part) for part in parts])

    def related(self, signals: Floats) -> ClassMeans:
        """Means drawn towards μ and towards those of similar classes, the conditional mean given what was seen.

        Coordinate i of the true μ_c − μ has the covariance q_i·T over the classes, with q proportional to `signals`
        and noise of the covariance N. T is found by expectation maximization. Before anything is seen, it is that of
        unrelated classes with one variance, and that counts as much as `UNRELATED` coordinates per class. If there are
        more classes than coordinates, these tell nothing of relations, and each class is drawn to μ alone.
        """
        if len(self.shares) > len(signals):
            kept = signals / (signals + self.noise_around[:, None])
            return dataclasses.replace(self, values=self.center + kept * (self.values - self.center))
        inside = np.asarray(null_space(self.shares[None]))  # where Σ π_c (μ_c − μ)_i = 0
        noise, directions = np.linalg.eigh(inside.T @ self.covariance_around @ inside)
        if len(noise) == 0 or noise[0] <= 0.0:
            return self
        known = signals > 0.0
        scale, root = signals[known] / np.mean(signals), inside @ directions * np.sqrt(noise)
        white = inside @ directions / np.sqrt(noise)  # N is the identity there
        seen = white.T @ (self.values - self.center)[:, known]
        start = white.T @ (np.eye(len(self.shares)) - self.shares)
        unrelated, prior = start @ start.T, UNRELATED * len(noise)
        inverse, related = np.linalg.inv(unrelated), np.mean(signals) * unrelated
        for _ in range(RELATED_STEPS):
            values, vectors = np.linalg.eigh(related)
            ratios = np.maximum(values, 0.0)[:, None] * scale
            kept = ratios / (ratios + 1.0)
            found = kept * (vectors.T @ seen)
            squares = (found / scale) @ found.T + np.diag(np.sum(kept / scale, axis=1))
            variance = float(np.sum(inverse * related)) / len(noise)
            related = (vectors @ squares @ vectors.T + prior * variance * unrelated) / (len(scale) + prior)
        apart = np.zeros_like(self.values)
        apart[:, known] = root @ (vectors @ found)
        return dataclasses.replace(self, values=self.center + apart)

    @property
    def sure(self) -> bool:
        """Whether the estimated signal is surely more than what noise explains."""
        return self.signal > SURE * self.signal_error


def _squared_norm(published: Published) -> tuple[float, float]:
    """The trace of second moments, `SURE` deviations down and up."""
    trace = float(np.trace(np.asarray(published.moments))) / published.n_users
    error = SURE * published.moment_deviation * math.sqrt(len(published.sums[0])) / published.n_users
    return trace - error, trace + error


def _power(published: Published) -> float:
    """Mean square norm of users' vectors: the trace of second moments, taken for 1 unless it is surely another."""
    if published.moments is None:
        return 1.0
    low, high = _squared_norm(published)
    return 1.0 if low <= 1.0 <= high else max(0.5 * (low + high), LEAST_POWER)


def _covariance(published: Published, means: ClassMeans, shrunk: ClassMeans) -> Floats:
    """Second moments less what the class means explain, the expected μμᵀ given the noisy means.

    Their trace is 1 for unit vectors (`_power`).
    """
    moments = np.asarray(published.moments) / published.n_users
    dim, missing = len(moments), _power(published) - float(np.trace(moments))
    center, apart, noise = means.center, shrunk.values - means.center, means.noise_around
    left = float(means.shares @ (shrunk.signal * noise / (shrunk.signal + noise)))
    spherical = missing / dim + means.center_noise - left
    return np.asarray(moments - np.outer(center, center) - (apart.T * means.shares) @ apart + spherical * np.eye(dim))


def cleaned(values: Floats, blur: float) -> Floats:
    """Eigenvalues λ of a symmetric matrix plus symmetric Gaussian noise of spectral scale σ: λ ↦ λ − 2σ² Re g(λ).

    g(λ) = (1/d) Σ 1/(λ − λ_k), smoothed over σ/√d: the best estimate that keeps the eigenvectors, for large d.
    Source: Bun, Allez, Bouchaud and Potters, IEEE Transactions on Information Theory 62 (2016).
    """
    if blur == 0.0:
        return values
    apart = values[:, None] - values[None, :]
    transform = np.mean(apart / (apart**2 + blur**2 / len(values)), axis=1)
    return np.asarray(values - 2.0 * blur**2 * transform)
