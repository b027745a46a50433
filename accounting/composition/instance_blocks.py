"""Blocks of instances, with the worst data of the others chosen again after every instance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy

from accounting.numerics.effort import require_time
from accounting.numerics.losses import DominatingLoss, Repeated, euclidean_norm
from accounting.numerics.pmf import Array
from accounting.numerics.profile import UNIT_ROUNDOFF, LossGrid, ProfileTable

LARGEST_BLOCK_EXPONENT = 15.0
"""Tilts inside a block are limited so that rounding stays below e^15·1e-14 of the profile near ε = 0."""


def _block_tilts(losses: Sequence[DominatingLoss], times: int, tilt: float, top: float) -> list[float]:
    """One tilt that is accurate where the composition is decided, one that is accurate at the block's far end.

    The first is limited so that E[e^{tilt·L}]^times does not dwarf the profile near ε = 0; neither may overflow.
    """
    largest = 300.0 / (top + losses[0].n_steps * losses[0].step)
    far = min(Repeated([(losses[0], times)]).chernoff_tilt(top), largest)
    near = min(tilt, largest)
    while times * max(loss.log_moment(near) for loss in losses) > LARGEST_BLOCK_EXPONENT:
        near *= 0.7
    return [near, far] if far > near else [near]


def _raiser(losses: Sequence[DominatingLoss], top: int, tilt: float) -> Callable[[Array], Array]:
    """One step φ ↦ max_kind E_{L∼kind} φ(ε − L), convolved by FFT under one tilt, with its rounding added.

    From φ on [−n·h, (top + n)·h] to φ one instance later on [0, top·h].
    """
    require_time()
    n, h = losses[0].n_steps, losses[0].step
    points = np.arange(-n, top + n + 1) * h
    growth, shrink = np.exp(tilt * points), np.exp(-tilt * points[n : n + top + 1])
    kernels = np.stack([loss.masses * growth[: 2 * n + 1] for loss in losses])
    length = scipy.fft.next_fast_len(len(points) + 2 * n, real=True)
    transforms, norm = scipy.fft.rfft(kernels, length, axis=1), float(np.max(np.sum(kernels, axis=1)))
    rounding = 30.0 * math.log2(2 * length) * UNIT_ROUNDOFF * norm  # three transforms

    def raised(extended: Array) -> Array:
        require_time()
        tilted = extended * growth
        sums = scipy.fft.irfft(scipy.fft.rfft(tilted, length) * transforms, length, axis=1)
        largest = np.max(sums[:, 2 * n : len(tilted)], axis=0)  # the sums over the kernels' support
        return np.asarray(np.minimum((np.maximum(largest, 0.0) + rounding * euclidean_norm(tilted)) * shrink, 1.0))

    return raised


def adaptive_supremum(
    kinds: Sequence[ProfileTable], times: int, *, tilt: float, largest_epsilon: float
) -> list[ProfileTable]:
    """Profiles of 1, 2, …, `times` instances, each of any of the `kinds` in either direction, chosen adaptively.

    φ_0(ε) = (1 − e^ε)₊ and φ_{j+1}(ε) = max_kind E_{L∼kind} φ_j(ε − L): taking the supremum after each
    convolution, not before the first, is what keeps the worst case over the others' data nearly free.
    Since the kinds come with their reversals, φ(−ε) = 1 − e^{−ε} + e^{−ε} φ(ε), so only ε ≥ 0 is stored.
    Source: docs/proofs/composition.md, Proposition 3.
    """
    grid = kinds[0].grid
    h, n = grid.step, grid.n_steps
    losses = [DominatingLoss.from_table(t) for kind in kinds for t in (kind, kind.reversed())]
    top = min(times * n, max(n, math.ceil(largest_epsilon / h)))
    raisers = [_raiser(losses, top, tilt) for tilt in _block_tilts(losses, times, tilt, top * h)]
    decay = np.exp(-np.arange(n, 0, -1) * h)
    finite, infinite = np.zeros(top + 1), 0.0  # φ ≤ finite + infinite
    most_infinite = max(loss.infinite for loss in losses)
    wide, tables = LossGrid(step=h, n_steps=top), []
    for _ in range(times):
        mirrored = np.concatenate([finite[1 : n + 1], np.zeros(max(0, n - top))])[::-1]
        extended = np.concatenate([1.0 - decay + decay * mirrored, finite, np.zeros(n)])
        infinite += most_infinite + float(finite[-1])
        finite = np.minimum.reduce([raised(extended) for raised in raisers])
        profile = np.minimum(finite + infinite, 1.0)
        tables.append(ProfileTable(grid=wide, forward=profile, backward=profile))
    return tables
