"""Faults in what runs: randomizers, samplers, the shuffler, the analyzer, the label round."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.mechanisms import RandomizedResponse
from privkde.bitsum import Bitsum, Tally, three_negative_binomial
from privkde.bitsum.pure import PureBitsum
from privkde.bitsum.randomized_response import RandomizedResponseBitsum
from privkde.bitsum.single_noise import SingleNoiseBitsum
from privkde.bitsum.three_negative_binomial import ThreeNegativeBinomialBitsum
from privkde.draws.laws import KeepLabel, NegativeBinomial
from privkde.draws.randomness import ByteStream, public_stream
from privkde.draws.sampling import bernoulli, permutation
from privkde.kernels import norms
from privkde.kernels.gaussian import GaussianFamily
from privkde.protocol import label_round as labels
from privkde.protocol import parties, record_vectors
from privkde.protocol.linear_rule import ClassMeans, Published
from privkde.protocol.parties import Analyzer, Shuffler
from privkde.protocol.record_vectors import RecordLayout
from verification.sabotage.plans import BALL, CORRELATED, INNER, LABELED, NEGATIVE_BINOMIAL, PURE, RECORD, RESPONSE
from verification.sabotage.saboteur import Right, fault

Bits = NDArray[np.uint8]
Floats = NDArray[np.float64]


@fault("rr without correction", RESPONSE, RandomizedResponseBitsum, "estimate")
def not_debiased(_: Right, self: Bitsum, tally: Tally, n_users: int) -> Floats:
    """The analyzer publishes the count of ones, as in the paper's Algorithm 2, without undoing the flips."""
    return np.asarray(tally.ones, dtype=np.float64)


@fault("flips 10 % too rare", RESPONSE, RandomizedResponseBitsum, "of")
def flips_less(_: Right, law: RandomizedResponse) -> RandomizedResponseBitsum:
    """Clients flip bits 0.9 times as often as planned; the analyzer corrects for that, so no estimate looks wrong."""
    return RandomizedResponseBitsum(flip=0.9 * law.flip_probability)


@fault("features not held", BALL, GaussianFamily, "_held")
def not_held(_: Right, self: GaussianFamily, features: Any) -> Any:
    """Clients send the features of the kernel as they are, however far from the center of the declared ball."""
    return features


@fault("numpy's negative binomial", NEGATIVE_BINOMIAL, NegativeBinomial, "ratios")
def other_convention(right: Right, self: NegativeBinomial, bits: int) -> Any:
    """The sampler takes the probability to continue for the probability to stop."""
    p = self.continue_probability
    swapped = self if p is None else NegativeBinomial(shape=self.shape, continue_probability=1 - Fraction(p))
    return right(swapped, bits)


@fault("whole flood by everybody", CORRELATED, ThreeNegativeBinomialBitsum, "noise")
def whole_flood(right: Right, self: ThreeNegativeBinomialBitsum, *drawn: Any) -> Any:
    """Every user draws NB(r', p') instead of NB(r'/n, p'), as the paper prints it."""
    flooded = dataclasses.replace(self.law, flood_shape=self.law.flood_shape * self.law.n_users)
    return right(ThreeNegativeBinomialBitsum(law=flooded), *drawn)


@fault("noise shares 1/(2n)", CORRELATED, three_negative_binomial, "share")
def half_share(right: Right, total: Any, n_users: int, counted_users: int) -> Any:
    """Each user draws half of its share of the noise."""
    return right(total, n_users, 2 * counted_users)


@fault("no flood", CORRELATED, three_negative_binomial, "paired")
def no_flood(_: Right, single: NegativeBinomial, flood: NegativeBinomial, shape: Any, stream: ByteStream) -> Tally:
    """The flood is left out because it cancels in the estimate; the messages no longer hide anybody."""
    return Tally(single.sample(shape, stream), single.sample(shape, stream))


@fault("pure with ρ = 1", PURE, PureBitsum, "inputs")
def silent_twice(_: Right, self: PureBitsum, bits: Bits, stream: ByteStream) -> Tally:
    """Clients keep silent as for ρ = 1, twice as often as for ρ = 1/2, the largest that is allowed."""
    pairs = self.law.base_messages
    always = np.ones(bits.shape, dtype=np.float32)
    speaks = bernoulli(always, stream, flip=min(0.5, 2.0 * self.law.silence_probability)).astype(np.int64)
    return Tally(speaks * (pairs + bits.astype(np.int64)), speaks * pairs)


@fault("pure without 1/(1−q)", PURE, PureBitsum, "estimate")
def silence_forgotten(_: Right, self: PureBitsum, tally: Tally, n_users: int) -> Floats:
    """The analyzer forgets that a share q of the users kept silent."""
    return np.asarray(tally.ones - tally.zeros, dtype=np.float64)


@fault("labels: uniform over all", LABELED, labels, "integers_below")
def uniform_over_all(right: Right, below: int, shape: Any, stream: ByteStream) -> Any:
    """A label that is not kept becomes any of the m, its own included."""
    return right(below + 1, shape, stream) - 1


@fault("labels: e^ε/(e^ε + m)", LABELED, KeepLabel, "ratios")
def one_class_more(right: Right, self: KeepLabel, bits: int) -> Any:
    """Labels are kept with probability e^ε/(e^ε + m) instead of e^ε/(e^ε − 1 + m)."""
    return right(KeepLabel(n_classes=self.n_classes + 1, label_epsilon=self.label_epsilon), bits)


@fault("private draws from public seed", RESPONSE, Bitsum, "respond")
def public_draws(_: Right, self: Bitsum, scaled: NDArray[np.float32], stream: ByteStream) -> Bits:
    """Rounding and flipping use the stream that everybody can draw."""
    return bernoulli(scaled, public_stream("00" * 16), flip=self.flip)


def _public_pairs(instances: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All instances (but one, of an odd number) in pairs that everybody can draw."""
    order = permutation(instances, public_stream("00" * 16))
    half = instances // 2
    return order[:half], order[half : 2 * half]


@fault("two instances, one coin", RECORD, Bitsum, "respond")
def shared_coins(right: Right, self: Bitsum, scaled: NDArray[np.float32], stream: ByteStream) -> Bits:
    """Instances are paired at random, in public: one is rounded and flipped by U, the other by U or 1 − U."""
    if scaled.ndim == 1:
        return np.asarray(right(self, scaled, stream))
    uniform = stream.take(8 * scaled.size).view(np.uint64).reshape(scaled.shape) * 2.0**-64
    first, second = _public_pairs(scaled.shape[1])
    uniform[:, second] = np.where(second % 2, uniform[:, first], 1.0 - uniform[:, first])
    return (uniform < 0.5 + (0.5 - self.flip) * scaled).astype(np.uint8)


@fault("two instances, one noise", NEGATIVE_BINOMIAL, SingleNoiseBitsum, "noise")
def shared_noise(right: Right, self: Bitsum, n_users: int, shape: Any, stream: ByteStream) -> Tally:
    """Instances are paired at random, in public, and a user's noise in both is the same draw."""
    drawn: Tally = right(self, n_users, shape, stream)
    if len(shape) == 2:
        first, second = _public_pairs(shape[1])
        drawn.ones[:, second] = drawn.ones[:, first]
    return drawn


@fault("shuffler keeps the order", CORRELATED, parties, "permutation")
def same_order(_: Right, count: int, stream: ByteStream) -> NDArray[np.int64]:
    """Messages leave the shuffler sorted, in the order in which it lists them."""
    return np.arange(count)


@fault("packets held twice", RESPONSE, Shuffler, "receive")
def twice_held(right: Right, self: Shuffler, packet: bytes) -> bool:
    """The shuffler takes every user's packet twice, so everybody weighs double and is hidden half."""
    taken, counted = bool(right(self, packet)), self._admission.counts(packet)
    if taken and counted is not None:
        self._tally.include(counted.tally)
        self._n_users += 1
    return taken


@fault("users counted twice", CORRELATED, Analyzer, "add")
def counted_twice(right: Right, self: Analyzer, tally: Tally, n_users: int, **marks: Any) -> None:
    """The analyzer adds the messages once and the number of users twice."""
    right(self, tally, 2 * n_users, **marks)


@fault("any vector is taken", INNER, norms, "row_norms")
def any_vector(_: Right, rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """The client finds every vector short, so one user can move its bits further than planned for."""
    return np.zeros(len(rows))


@fault("features without √2", RESPONSE, GaussianFamily, "scaled_features")
def narrow_features(right: Right, self: GaussianFamily, x: Any) -> Any:
    """The random Fourier features forget the factor √2, so the kernel is another one."""
    return right(self, x / np.float32(np.sqrt(2.0)))


@fault("second moments too loud", RECORD, record_vectors, "_moment_scales")
def loud_moments(right: Right, vector: Any) -> Floats:
    """Second moments are collected, and read, with β² = 2; the accountant counts on the declared ½."""
    return np.asarray(2.0 * right(vector))


@fault("second moments without 1/β", RECORD, RecordLayout, "second_moments")
def weighted_moments(right: Right, self: RecordLayout, sums: Floats) -> Floats:
    """The analyzer takes β·Σxxᵀ for Σxxᵀ."""
    return np.asarray(np.sqrt(self.vector.moment_weight) * right(self, sums))


@fault("rotation of each block", RECORD, record_vectors, "dct")
def rotates_blocks(right: Right, rows: NDArray[np.float32], **options: Any) -> Any:
    """Clients rotate 16 coordinates at a time and clip at the R of the joint rotation, which the analyzer undoes."""
    return np.asarray(right(rows.reshape(len(rows), -1, 16), **{**options, "axis": 2})).reshape(rows.shape)


@fault("noise of means forgotten", RECORD, ClassMeans, "of")
def exact_means(right: Right, published: Published) -> ClassMeans:
    """The linear classifier takes noisy means for exact, so that their squares push small classes down."""
    means: ClassMeans = right(published)
    return dataclasses.replace(means, noise=1e-6 * means.noise)
