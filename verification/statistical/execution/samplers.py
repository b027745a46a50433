"""Statistical checks of what is drawn: private samplers against their laws, public features against the kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from accounting.errors import InfeasibleError
from accounting.mechanisms import BitsumProtocol, LabelResponse
from accounting.numerics.pmf import Pmf
from privkde.bitsum import Tally, executed
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import normals
from privkde.kernels import KernelChoice
from privkde.protocol.label_round import randomize_labels
from verification.statistical.execution.count_laws import Tables
from verification.statistical.execution.stages import private_stream
from verification.statistical.goodness_of_fit import Sample, coin, fits_of, fitted_finding
from verification.statistical.kernel_means import MeanCheck, check_kernel_means
from verification.twins import kernel_twin, mechanism_twin, needs_kernel_twin, needs_mechanism_twin
from verification.verdicts import CHECK_ALPHA, Effort, Finding, Layer, Subject, check, finding

SCALED = (-1.0, -0.4, 0.0, 0.1, 0.75, 1.0)
"""Features f/R at which rounding is tested; at ±1 it is randomized response alone."""
COINS = 2_000_000
MORE_COINS = 4
"""Times as many at ±1, where a small flip probability must show."""
MOST_TIMES = 2
"""By which effort multiplies coins, at most: they are held in memory."""
NOISE_DRAWS = 200_000
TRIED_LABELS = 3
"""True labels whose reports are drawn; all of them if there are fewer."""
KERNEL_SAMPLES, KERNEL_FAMILIES = 40_000, 8
PAIRS = 8
LARGEST_DIM = 16


@check(
    "samplers",
    Layer.STATISTICAL,
    "private draws follow the plan's laws, tails included",
    needs=needs_mechanism_twin,
)
def check_samplers(subject: Subject, effort: Effort, seed: int) -> Finding:
    """Every private sampler of the plan's own protocol against its declared law."""
    plan = subject.plan
    law = plan.protocol()
    samples = [*_rounding(law, effort, seed), *_inputs(law, effort, seed), *_noise(law, effort, seed)]
    label = plan.request.label_response()
    if label is not None:
        samples += label_samples(label, NOISE_DRAWS * effort.scale, private_stream(seed, "labels"))
    fits = fits_of(samples)
    smallest, unit = None, "Smallest defect: distance between distribution functions."
    flip = mechanism_twin(law).flip
    if flip > 0.0:
        fit = fits["rounding, f/R = -1"]
        smallest = fit.detectable_increase(1.0 - flip) / flip
        unit = "Smallest defect: relative decrease of the flip probability."
        if math.isinf(smallest):
            unit = f"Not seen: flips; with probability {flip:.2g} they are too rare for {fit.n_samples:,} draws."
    return fitted_finding(
        f"The private draws of {plan.bitsum!r}{'' if label is None else ' and of the labels'} follow the plan's laws.",
        fits,
        smallest_defect=smallest,
        note=f"{unit} {len(fits)} laws at the plan's own parameters, tails included.",
    )


def _rounding(law: BitsumProtocol, effort: Effort, seed: int) -> Iterator[Sample]:
    """Bits of features at which the chance of a one is known: 1/2 + (1/2 − flip)·f/R."""
    bitsum = executed(law)
    flip = Fraction(mechanism_twin(law).flip)
    for number, scaled in enumerate(SCALED):
        entry, stream = np.float32(scaled), private_stream(seed, "rounding", number)
        blocks = min(effort.scale, MOST_TIMES) * (MORE_COINS if abs(scaled) == 1.0 else 1)
        drawn = [bitsum.respond(np.full(COINS, entry), stream) for _ in range(blocks)]
        chance = Fraction(1, 2) + (Fraction(1, 2) - flip) * Fraction(float(entry))
        yield Sample(f"rounding, f/R = {scaled:g}", np.concatenate(drawn), coin(float(chance)))


def _inputs(law: BitsumProtocol, effort: Effort, seed: int) -> Iterator[Sample]:
    """The messages that carry a bit, where they are drawn: possible ones by their number, all others by the next."""
    for bit in (0, 1):
        outcomes = mechanism_twin(law).sent(bit)
        if len({(ones, zeros) for ones, zeros, _ in outcomes}) < 2:
            continue
        bits = np.full(COINS * min(effort.scale, MOST_TIMES), bit, dtype=np.uint8)
        sent = executed(law).inputs(bits, private_stream(seed, "silence", bit))
        kinds = np.full(bits.shape, len(outcomes))
        for number, (ones, zeros, _) in enumerate(outcomes):
            kinds[(sent.ones == ones) & (sent.zeros == zeros)] = number
        masses = np.array([mass for _, _, mass in outcomes])
        yield Sample(f"messages of a bit {bit}", kinds, Pmf(start=0, values=masses, missing=0.0))


def _noise(law: BitsumProtocol, effort: Effort, seed: int) -> Iterator[Sample]:
    """One user's share of the noise, and the noise of all users together."""
    bitsum, size = executed(law), NOISE_DRAWS * effort.scale
    for who, n_users in (("one user's", 1), ("everybody's", law.n_users)):
        try:
            drawn = bitsum.noise(n_users, (size,), private_stream(seed, "noise", n_users))
        except InfeasibleError:  # too wide to be drawn at once: such a plan can be executed faithfully only
            continue
        yield from count_samples(f"{who} noise", drawn, mechanism_twin(law).noise_tables(n_users))


def label_samples(response: LabelResponse, size: int, stream: ByteStream) -> list[Sample]:
    """Reports of users of some true labels; the law from its definition, weights e^ε for the own label and 1 else."""
    m, samples = response.n_classes, []
    for label in sorted({0, m // 2, m - 1})[:TRIED_LABELS]:
        weights = np.ones(m)
        weights[label] = math.exp(response.label_epsilon)
        law = Pmf(start=0, values=weights / np.sum(weights), missing=0.0)
        drawn = randomize_labels(np.full(size, label), response, stream=stream.child(label))
        samples.append(Sample(f"reports of label {label}", drawn, law))
    return samples


def count_samples(name: str, drawn: Tally, tables: Tables) -> Iterator[Sample]:
    """Ones, zeros and their difference, each with its law."""
    ones, zeros = drawn.ones.astype(np.int64), drawn.zeros.astype(np.int64)
    for what, counts in (("ones", ones), ("zeros", zeros), ("ones − zeros", ones - zeros)):
        yield Sample(f"{name}, {what}", counts, tables[what])


@check("kernel-means", Layer.STATISTICAL, "feature products average to the kernel", needs=needs_kernel_twin)
def check_kernels(subject: Subject, effort: Effort, seed: int) -> Finding:
    """E[f(x)·g(y)] is the kernel (for hashed ones with their known bias), by an empirical Bernstein bound."""
    checks = _kernel_means(subject, effort, seed)
    worst = max(checks, key=lambda check: check.ratio)
    return finding(
        f"Feature products of {subject.plan.request.kernel!r} average to the kernel.",
        statistic=worst.ratio,
        bound=1.0,
        found=f"the mean of {worst.samples} products is {worst.estimate:.5f} and the kernel {worst.claimed:.5f};"
        f" {worst.bound:.5f} apart would be chance; {worst.outside} products are out of range",
        numbers={"estimate": worst.estimate, "claimed": worst.claimed},
        alpha=CHECK_ALPHA,
        power=1.0 - CHECK_ALPHA,
        smallest_detectable_defect=max(check.smallest_defect for check in checks),
        note="Smallest defect: of E[f·g]. Bandwidth 1; at most 16 dimensions; clipping is left out: it changes means.",
    )


def _kernel_means(subject: Subject, effort: Effort, seed: int) -> tuple[MeanCheck, ...]:
    """Pairs near, far, opposite and equal; every family is drawn from a seed of its own."""
    request, stream = subject.plan.request, private_stream(seed, "kernel")
    identity, dim = kernel_twin(subject.plan).identity, min(request.dim, LARGEST_DIM)
    bound, size = request.rounding_bound, KERNEL_SAMPLES * effort.scale
    repetitions = 1 if identity else size // KERNEL_FAMILIES
    choice = KernelChoice(name=request.kernel, dim=dim, repetitions=repetitions, bias=request.bias, bound=bound)
    count = size // 10 if identity else KERNEL_FAMILIES
    families = [choice.build(stream.child("family", number).take(16).tobytes().hex()) for number in range(count)]
    drawn = normals((PAIRS, dim), stream.child("x"))
    x = drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * (bound or 1.0)
    y = np.concatenate([x[:1], -x[1:2], x[2:] + 0.3 * np.roll(x, 1, axis=0)[2:]]) / 1.5
    # Identity features: vectors of norm R are not clipped whatever the rotation, so f·g is the kernel in every draw.
    return check_kernel_means(families, x, y, false_alarm_rate=CHECK_ALPHA, largest=1.0 if identity else None)
