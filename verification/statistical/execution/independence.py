"""Check that a user's private draws are independent across instances, and those of different users, too.

Every marginal law can be exact and the promise void: all composition over instances needs that a user's bits are
independent given its record (docs/proofs/geometric.md, Theorem 1; docs/proofs/moments.md, Proposition 2). So draws are
made into signs, ±1, that are fair and independent if the system is honest, whatever its law (`_samples`), and four
statistics look for dependence.

- The largest correlation of two instances, and of two users. The number of equal signs is Bin(N, ½), so the limit is
  an exact tail with a union bound over all pairs. It finds one bad pair, but pairs are many.
- Σ ⟨s_a, s_b⟩² over the users a of one half and b of the other. Its mean is proportional to the sum of all squared
  correlations of instances, so it sees all pairs at once, without their matrix: weak ones, if they are many.
- Σ (Σ_j s_bj)² over users b, which finds what all instances of a user have in common.

The last two are Σ_b ‖A s_b‖² with A fixed by other users, or by nobody. Given A, for 0 < λ < 1/(2 max μ),

    E exp(λ‖A s‖²) = E exp(√(2λ) g·A s) ≤ E exp(λ‖Aᵀg‖²) = Π_i (1 − 2λμ_i)^(−½),

with g standard normal, μ_i the eigenvalues of AAᵀ, and cosh x ≤ exp(x²/2); so Chernoff's bound holds at every size.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from privkde.bitsum import executed
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import permutation
from verification.statistical.execution.samplers import MOST_TIMES
from verification.statistical.execution.stages import private_stream, transparent
from verification.statistical.goodness_of_fit import MISSED, RELATIVE_PAD
from verification.verdicts import CHECK_ALPHA, Effort, Finding, Layer, Subject, check, finding

DRAWS = 1 << 21
"""Signs of one sample, as long as that leaves a number of users in between."""
LEAST_USERS, MOST_USERS = 256, 2_048
"""The most with quick effort; with full, `MOST_TIMES` as many."""
LEAST_INSTANCES, MOST_INSTANCES = 256, 1 << 15
"""As many as the plan has, if that is in between. With few, users could not be compared."""
MOST_COMPARED = 4_096
"""Instances of which every pair is compared; if there are more, so many of them, drawn at random."""
SAMPLES, STATISTICS = 7, 4
"""At most so many samples, and so many statistics of each, share the level."""
LEVEL = CHECK_ALPHA / (SAMPLES * STATISTICS)

TOGETHER = "all pairs of instances together"

Signs = NDArray[np.float32]
"""±1, of shape (users, instances)."""


class Limited(NamedTuple):
    """A statistic that is above `allowed` with probability `LEVEL` at most, if all signs are fair and independent."""

    sample: str
    statistic: str
    measured: float
    allowed: float

    @property
    def ratio(self) -> float:
        """Above 1 exactly if refuted."""
        return self.measured / self.allowed


@check("independent-draws", Layer.STATISTICAL, "draws of two instances, or of two users, have nothing in common")
def check_independent(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Rounded bits, flips, silence and noise of many users, by correlations of all pairs of instances and of users."""
    found: list[Limited] = []
    for sample, signs in _samples(subject, effort, seed):
        found += _statistics(sample, signs, private_stream(seed, "compared"))
    worst = max(found, key=lambda limited: limited.ratio)
    users, instances = _shape(subject, effort)
    compared = min(instances, MOST_COMPARED)
    together = max(limited.allowed for limited in found if limited.statistic == TOGETHER)
    return finding(
        f"The private draws of {subject.plan.bitsum!r} are independent across instances and users.",
        statistic=worst.ratio,
        bound=1.0,
        found=f"{worst.sample}: {worst.statistic}, {worst.measured:.4f}; up to {worst.allowed:.4f} would be chance",
        numbers={"measured": worst.measured, "allowed": worst.allowed},
        alpha=CHECK_ALPHA,
        power=1.0 - MISSED,
        smallest_detectable_defect=_detectable(users, compared),
        note=f"Smallest defect: correlation of the bits of two instances, at f = 0, among {compared:,} that are"
        f" compared by {users:,} users. Weaker ones show if they are many: the squared correlations of an instance with"
        f" all others, {instances:,} in all, may add up to {together:.2g} by chance, on average. Rounding is drawn"
        " without flips, too, which would hide it; flips, silence and noise by parameters that show all parts. These"
        " three show less: shared in full, they look correlated as often as two users differ. Dependence without a"
        " correlation of two draws is not seen.",
    )


def _shape(subject: Subject, effort: Effort) -> tuple[int, int]:
    """Users and instances of a sample of bits."""
    instances = min(max(subject.plan.request.facts().n_instances, LEAST_INSTANCES), MOST_INSTANCES)
    most = MOST_USERS * min(effort.scale, MOST_TIMES)
    return min(max(DRAWS * effort.scale // instances, LEAST_USERS), most), instances


def _samples(subject: Subject, effort: Effort, seed: int) -> Iterator[tuple[str, Signs]]:
    """What a client draws, as signs: by the plan's own parameters, and by such that show all parts.

    Bits of features that are 0, or drawn at random and symmetric about 0, are fair. Of all other draws two users are
    compared: who has more is fair, too, and a coin decides if they are equal.
    """
    shape = _shape(subject, effort)
    bitsum, shown = executed(subject.plan.protocol()), executed(transparent(subject.plan, 2))
    stream, coins = private_stream(seed, "drawn"), private_stream(seed, "coins")
    nothing = np.zeros(shape, dtype=np.float32)
    yield "bits of zeros", _signs(bitsum.respond(nothing, stream))
    features = (coins.take(nothing.size).astype(np.float32) - np.float32(127.5)) / np.float32(255.0)
    yield "bits of random features", _signs(bitsum.respond(features.reshape(shape), stream))
    twice = 2 * shape[0], min(shape[1], MOST_COMPARED)
    if shown.flip > 0.0:
        yield "roundings", _signs(dataclasses.replace(bitsum, flip=0.0).respond(nothing, stream))
        truth = _coins(twice, coins)
        yield "flips", _who_has_more(shown.respond(truth, stream) != (truth > 0.0), coins)
    inputs = shown.inputs(np.ones(twice, dtype=np.uint8), stream)
    noise = shown.noise(1, twice, stream)
    for name, counts in (("silence", inputs.ones), ("noise, ones", noise.ones), ("noise, zeros", noise.zeros)):
        if np.ptp(counts) > 0:
            yield name, _who_has_more(counts, coins)


def _signs(bits: NDArray[Any]) -> Signs:
    return 2.0 * bits.astype(np.float32) - np.float32(1.0)


def _coins(shape: tuple[int, int], stream: ByteStream) -> Signs:
    return _signs(stream.take(math.prod(shape)).reshape(shape) & 1)


def _who_has_more(counts: NDArray[Any], stream: ByteStream) -> Signs:
    """Whether user 2i (+1) or user 2i + 1 (−1) has more in each instance; a coin if they have the same."""
    more = np.sign(counts[::2].astype(np.float32) - counts[1::2].astype(np.float32))
    return np.where(more == 0.0, _coins((len(more), more.shape[1]), stream), more)


def _statistics(sample: str, signs: Signs, stream: ByteStream) -> Iterator[Limited]:
    """All statistics of one sample, each with its limit."""
    users, instances = signs.shape
    compared = signs[:, np.sort(permutation(instances, stream)[:MOST_COMPARED])]
    yield Limited(sample, "largest correlation of two instances", _largest(compared), _limit(*compared.shape))
    yield Limited(sample, "largest correlation of two users", _largest(signs.T), _limit(instances, users))
    yield Limited(sample, TOGETHER, *_excess(signs[: users // 2], signs[users // 2 :]))
    yield Limited(sample, "sums of users", *_excess(np.ones((1, instances), dtype=np.float32), signs))


def _largest(signs: Signs) -> float:
    """The largest |correlation| of two columns. Sums of fewer than 2²⁴ signs are exact in single precision."""
    products = signs.T @ signs
    np.fill_diagonal(products, 0.0)
    return float(max(products.max(), -products.min())) / len(signs)


def _most_equal(rows: int, columns: int) -> int:
    """How many signs of two columns may be equal, or opposite: more have a probability of at most `LEVEL`."""
    events = columns * (columns - 1)  # pairs, each equal or opposite
    counts = np.arange(rows // 2, rows + 1)  # `isf` would round 1 − p
    return int(counts[np.argmax(stats.binom.sf(counts, rows, 0.5) * events * (1.0 + RELATIVE_PAD) <= LEVEL)])


def _limit(rows: int, columns: int) -> float:
    """The largest |correlation| of two columns that is not refuted."""
    return 2.0 * _most_equal(rows, columns) / rows - 1.0


def _detectable(rows: int, columns: int) -> float:
    """The correlation of two columns that is refuted with probability 1 − `MISSED`; inf if there is none."""
    most = _most_equal(rows, columns)
    return 2.0 * float(special.betaincinv(most + 1, rows - most, 1.0 - MISSED)) - 1.0 if most < rows else math.inf


def _excess(fixed: Signs, drawn: Signs) -> tuple[float, float]:
    """Σ_b ‖A s_b‖² over its expectation, less 1, and its limit given A = `fixed`; s_b are the rows of `drawn`."""
    expected = float(fixed.size) * len(drawn)
    total = float(np.sum(np.square(fixed @ drawn.T, dtype=np.float64)))
    products = fixed @ fixed.T if len(fixed) < fixed.shape[1] else fixed.T @ fixed
    spectrum = np.maximum(np.linalg.eigvalsh(products.astype(np.float64)), 0.0) * (1.0 + RELATIVE_PAD)
    rates = np.geomspace(1e-4, 0.99, 100) / (2.0 * spectrum[-1])
    exponents = -0.5 * len(drawn) * np.sum(np.log1p(-2.0 * rates[:, None] * spectrum), axis=1)
    allowed = float(np.min((exponents - math.log(LEVEL)) / rates))
    return total / expected - 1.0, allowed / expected - 1.0
