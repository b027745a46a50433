"""Faults in what runs: randomizers, samplers, the shuffler, the analyzer, the label round."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from accounting.mechanisms import RandomizedResponse
from privkde import labels, parties
from privkde.bitsum import Bitsum, Tally, three_negative_binomial
from privkde.bitsum.pure import PureNoise
from privkde.bitsum.randomized_response import ShuffledResponse
from privkde.bitsum.three_negative_binomial import CorrelatedNoise
from privkde.kernels.gaussian import GaussianFamily
from privkde.laws import KeepLabel, NegativeBinomial, Ratios
from privkde.parties import Analyzer, Shuffler
from privkde.randomness import public_stream
from privkde.sampling import bernoulli
from verification.sabotage.plans import CORRELATED, INNER, LABELED, NEGATIVE_BINOMIAL, PURE, RESPONSE
from verification.sabotage.saboteur import Saboteur, replaced

Right = Callable[..., Any]


def _not_debiased(_: Right) -> Right:
    return lambda self, tally, n_users: np.asarray(tally.ones, dtype=np.float64)


def _flips_less(_: Right) -> Right:
    def of(law: RandomizedResponse) -> ShuffledResponse:
        return ShuffledResponse(flip=0.9 * law.flip_probability)

    return of


def _other_convention(right: Right) -> Right:
    def ratios(self: NegativeBinomial, bits: int) -> Ratios:
        p = self.continue_probability
        swapped = self if p is None else NegativeBinomial(shape=self.shape, continue_probability=1 - Fraction(p))
        return right(swapped, bits)  # type: ignore[no-any-return]

    return ratios


def _whole_flood(_: Right) -> Right:
    def noise(self: CorrelatedNoise, n_users: int, shape: Any, stream: Any) -> Tally:
        law = self.law
        single = NegativeBinomial(
            shape=Fraction(law.noise_shape * n_users, law.n_users), continue_probability=law.continue_probability
        )
        flood = NegativeBinomial(
            shape=Fraction(law.flood_shape) * n_users, continue_probability=law.flood_continue_probability
        )
        pairs = flood.sample(shape, stream)
        return Tally(single.sample(shape, stream) + pairs, single.sample(shape, stream) + pairs)

    return noise


def _no_flood(_: Right) -> Right:
    def noise(self: CorrelatedNoise, n_users: int, shape: Any, stream: Any) -> Tally:
        law = self.law
        single = NegativeBinomial(
            shape=Fraction(law.noise_shape * n_users, law.n_users), continue_probability=law.continue_probability
        )
        return Tally(single.sample(shape, stream), single.sample(shape, stream))

    return noise


def _half_share(right: Right) -> Right:
    return lambda total, n_users, counted_users: right(total, n_users, 2 * counted_users)


def _silent_twice(_: Right) -> Right:
    def inputs(self: PureNoise, bits: Any, stream: Any) -> Tally:
        pairs = self.law.base_messages
        always = np.ones(bits.shape, dtype=np.float32)
        speaks = bernoulli(always, stream, flip=min(0.5, 2.0 * self.law.silence_probability)).astype(np.int64)
        return Tally(speaks * (pairs + bits.astype(np.int64)), speaks * pairs)

    return inputs


def _silence_forgotten(_: Right) -> Right:
    return lambda self, tally, n_users: np.asarray(tally.ones - tally.zeros, dtype=np.float64)


def _uniform_over_all(right: Right) -> Right:
    return lambda below, shape, stream: right(below + 1, shape, stream) - 1


def _one_class_more(right: Right) -> Right:
    return lambda self, bits: right(KeepLabel(n_classes=self.n_classes + 1, label_epsilon=self.label_epsilon), bits)


def _public_draws(_: Right) -> Right:
    return lambda self, scaled, stream: bernoulli(scaled, public_stream("00" * 16), flip=self.flip)


def _same_order(_: Right) -> Right:
    return lambda count, stream: np.arange(count)


def _twice_held(right: Right) -> Right:
    def receive(self: Shuffler, packet: bytes) -> bool:
        taken = bool(right(self, packet))
        if taken:
            self._held.append(self._held[-1])
        return taken

    return receive


def _counted_twice(right: Right) -> Right:
    return lambda self, tally, n_users: right(self, tally, 2 * n_users)


def _any_vector(_: Right) -> Right:
    return lambda x, dim, *, unit_norm, outside="reject", numbers=None: np.ascontiguousarray(x, dtype=np.float32)


def _narrow_features(right: Right) -> Right:
    def scaled_features(self: GaussianFamily, x: Any) -> Any:
        return right(self, x / np.float32(np.sqrt(2.0)))

    return scaled_features


RUNNING = (
    Saboteur(
        name="rr without correction",
        story="The analyzer publishes the count of ones, as in the paper's Algorithm 2, without undoing the flips.",
        request=RESPONSE,
        plant=replaced(ShuffledResponse, "estimate", _not_debiased),
    ),
    Saboteur(
        name="flips 10 % too rare",
        story="Clients flip bits with 0.9 times the planned probability; the analyzer corrects for that, so no"
        " estimate looks wrong.",
        request=RESPONSE,
        plant=replaced(ShuffledResponse, "of", _flips_less),
    ),
    Saboteur(
        name="numpy's negative binomial",
        story="The sampler takes the probability to continue for the probability to stop.",
        request=NEGATIVE_BINOMIAL,
        plant=replaced(NegativeBinomial, "ratios", _other_convention),
    ),
    Saboteur(
        name="whole flood by everybody",
        story="Every user draws NB(r', p') instead of NB(r'/n, p'), as the paper prints it.",
        request=CORRELATED,
        plant=replaced(CorrelatedNoise, "noise", _whole_flood),
    ),
    Saboteur(
        name="noise shares 1/(2n)",
        story="Each user draws half of its share of the noise.",
        request=CORRELATED,
        plant=replaced(three_negative_binomial, "share", _half_share),
    ),
    Saboteur(
        name="no flood",
        story="The flood is left out because it cancels in the estimate; the messages no longer hide anybody.",
        request=CORRELATED,
        plant=replaced(CorrelatedNoise, "noise", _no_flood),
    ),
    Saboteur(
        name="pure with ρ = 1",
        story="Clients keep silent as for ρ = 1, twice as often as for ρ = 1/2, the largest that is allowed.",
        request=PURE,
        plant=replaced(PureNoise, "inputs", _silent_twice),
    ),
    Saboteur(
        name="pure without 1/(1−q)",
        story="The analyzer forgets that a share q of the users kept silent.",
        request=PURE,
        plant=replaced(PureNoise, "estimate", _silence_forgotten),
    ),
    Saboteur(
        name="labels: uniform over all",
        story="A label that is not kept becomes any of the m, its own included.",
        request=LABELED,
        plant=replaced(labels, "integers_below", _uniform_over_all),
    ),
    Saboteur(
        name="labels: e^ε/(e^ε + m)",
        story="Labels are kept with probability e^ε/(e^ε + m) instead of e^ε/(e^ε − 1 + m).",
        request=LABELED,
        plant=replaced(KeepLabel, "ratios", _one_class_more),
    ),
    Saboteur(
        name="private draws from public seed",
        story="Rounding and flipping use the stream that everybody can draw.",
        request=RESPONSE,
        plant=replaced(Bitsum, "respond", _public_draws),
    ),
    Saboteur(
        name="shuffler keeps the order",
        story="Messages leave the shuffler in the order in which they came.",
        request=RESPONSE,
        plant=replaced(parties, "permutation", _same_order),
    ),
    Saboteur(
        name="packets held twice",
        story="The shuffler takes every user's packet twice, so everybody weighs double and is hidden half.",
        request=RESPONSE,
        plant=replaced(Shuffler, "receive", _twice_held),
    ),
    Saboteur(
        name="users counted twice",
        story="The analyzer adds the messages once and the number of users twice.",
        request=CORRELATED,
        plant=replaced(Analyzer, "add", _counted_twice),
    ),
    Saboteur(
        name="any vector is taken",
        story="The client does not check or clip the norm, so one user can move its bits further than planned for.",
        request=INNER,
        plant=replaced(parties, "checked_vectors", _any_vector),
    ),
    Saboteur(
        name="features without √2",
        story="The random Fourier features forget the factor √2, so the kernel is another one.",
        request=RESPONSE,
        plant=replaced(GaussianFamily, "scaled_features", _narrow_features),
    ),
)
"""Planted in `privkde`."""
