"""Checks of the execution: the honest system is not refuted, planted faults are."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest

from accounting.mechanisms import BITSUMS
from privkde import announcement, parties
from privkde.bitsum import Tally
from privkde.bitsum.pure import PureNoise
from privkde.bitsum.randomized_response import ShuffledResponse
from privkde.bitsum.three_negative_binomial import CorrelatedNoise
from privkde.kernels.base import KernelChoice
from privkde.kernels.gaussian import GaussianFamily
from privkde.laws import DiscreteLaw, KeepLabel, NegativeBinomial
from privkde.messages import Messages, WireFormat
from privkde.parties import Analyzer, Randomizer, Shuffler
from privkde.randomness import ByteStream, PrivateRandomness, private_randomness, public_stream
from privkde.sampling import integers_below, permutation
from verification.execution import checks as execution
from verification.execution import conduct, samplers
from verification.execution.conduct import read_packet
from verification.verdicts import CHECK_ALPHA, QUICK, Finding, NotRefuted, Refuted

from .subjects import subject

CHECKS = {check.name: check for check in execution.CHECKS}
Patch = Any


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Families are kept between collections; a planted fault must not outlive its test."""
    announcement._family.cache_clear()
    yield
    announcement._family.cache_clear()


def run(name: str, kind: str, seed: int = 1) -> Finding:
    return CHECKS[name].run(subject(kind), QUICK, CHECKS[name].seed(seed))


def test_names_are_those_of_the_findings() -> None:
    for name, check in CHECKS.items():
        assert run(name, "rr").name == name == check.name


@pytest.mark.parametrize("kind", [*BITSUMS, "labels", "identity", "laplacian"])
@pytest.mark.parametrize("name", CHECKS)
def test_an_honest_system_is_not_refuted(name: str, kind: str) -> None:
    found = run(name, kind)
    assert isinstance(found.verdict, NotRefuted), found.verdict
    assert found.alpha <= CHECK_ALPHA
    assert found.verdict.power >= 0.999
    assert found.verdict.smallest_detectable_defect is not None
    assert math.isfinite(found.verdict.smallest_detectable_defect)


@pytest.mark.parametrize("kind", [*BITSUMS, "labels"])
def test_an_honest_system_is_not_refuted_for_a_dozen_seeds(kind: str) -> None:
    """With fewer samples than an audit draws, at the same level."""
    with ExitStack() as fewer:
        for module, name, value in (
            (samplers, "COINS", 50_000),
            (samplers, "NOISE_DRAWS", 20_000),
            (samplers, "KERNEL_SAMPLES", 4_000),
            (execution, "STAGE_REPETITIONS", 400),
            (conduct, "RELEASES", 200),
            (conduct, "SHARED_REPETITIONS", 64),
        ):
            fewer.enter_context(mock.patch.object(module, name, value))
        for seed in range(2, 14):
            refuted = [name for name in CHECKS if run(name, kind, seed).refuted]
            assert refuted == []


def test_a_finding_is_a_function_of_the_seed() -> None:
    for name in ("samplers", "bitsum-counts", "shuffler-order"):
        assert run(name, "rr") == run(name, "rr")
        assert run(name, "rr").statistic != run(name, "rr", seed=2).statistic


def test_packets_are_read_as_they_were_written() -> None:
    for content_bits, bits in ((1, [0, 1, 1, 0]), (0, [1, 1, 1, 1])):
        wire = WireFormat(collection=bytes(8), n_instances=37, content_bits=content_bits)
        sent = Messages(1, np.array([36, 0, 5, 5]), np.array(bits, np.uint8))
        instances, read = read_packet(wire.encode(sent), content_bits)
        assert instances.tolist() == [36, 0, 5, 5]
        assert read.tolist() == bits


# Planted faults.


def flip_too_small(law: Any) -> ShuffledResponse:
    return ShuffledResponse(flip=0.9 * law.flip_probability)


def numpy_convention(**given: Any) -> NegativeBinomial:
    if "continue_probability" in given:
        given["continue_probability"] = 1.0 - given["continue_probability"]
    else:
        given["decay"] = -math.log1p(-math.exp(-given["decay"]))
    return NegativeBinomial(**given)


def half_a_share(total: float, n_users: int, counted_users: int) -> Fraction:
    return Fraction(total) * n_users / (2 * counted_users)


def undivided_flood(self: CorrelatedNoise, n_users: int, shape: tuple[int, ...], stream: ByteStream) -> Tally:
    """As the paper prints it: every user draws the flood of all."""
    pairs = NegativeBinomial(
        shape=Fraction(self.law.flood_shape) * n_users, continue_probability=self.law.flood_continue_probability
    ).sample(shape, stream)
    return without_flood(self, n_users, shape, stream) + Tally(pairs, pairs)


def without_flood(self: CorrelatedNoise, n_users: int, shape: tuple[int, ...], stream: ByteStream) -> Tally:
    law = NegativeBinomial(
        shape=Fraction(self.law.noise_shape) * n_users / self.law.n_users,
        continue_probability=self.law.continue_probability,
    )
    return Tally(law.sample(shape, stream), law.sample(shape, stream))


def nobody_is_silent(scaled: Any, stream: ByteStream, *, flip: float) -> Any:
    return np.ones(scaled.shape, np.uint8)


def cut_tail(law: DiscreteLaw, shape: Any, stream: ByteStream) -> Any:
    drawn = HONEST_SAMPLE(law, shape, stream)
    return np.minimum(drawn, max(1, round(law.mean() + 3.0 * math.sqrt(law.variance()))))


HONEST_SAMPLE = DiscreteLaw.sample
HONEST_RECEIVE = Shuffler.receive
HONEST_ADD = Analyzer.add
HONEST_INIT = Randomizer.__init__
HONEST_TALLY = Randomizer.tally
HONEST_BUILD = KernelChoice.build
HONEST_FEATURES = GaussianFamily.scaled_features

BITSUM = "privkde.bitsum"
FLIP = mock.patch.object(ShuffledResponse, "of", staticmethod(flip_too_small))
COUNT_FAULTS: list[tuple[str, str, Callable[[], Patch]]] = [
    ("flip 10 % too small", "rr", lambda: FLIP),
    (
        "numpy's convention",
        "3nb",
        lambda: mock.patch(f"{BITSUM}.three_negative_binomial.NegativeBinomial", numpy_convention),
    ),
    (
        "numpy's convention",
        "negative-binomial",
        lambda: mock.patch(f"{BITSUM}.single_noise.NegativeBinomial", numpy_convention),
    ),
    ("numpy's convention", "pure", lambda: mock.patch(f"{BITSUM}.pure.NegativeBinomial", numpy_convention)),
    ("share 1/(2n)", "3nb", lambda: mock.patch(f"{BITSUM}.three_negative_binomial.share", half_a_share)),
    ("share 1/(2n)", "poisson", lambda: mock.patch(f"{BITSUM}.single_noise.share", half_a_share)),
    ("share 1/(2n)", "negative-binomial", lambda: mock.patch(f"{BITSUM}.single_noise.share", half_a_share)),
    ("share 1/(2n)", "pure", lambda: mock.patch(f"{BITSUM}.pure.share", half_a_share)),
    ("flood not divided", "3nb", lambda: mock.patch.object(CorrelatedNoise, "noise", undivided_flood)),
    ("flood omitted", "3nb", lambda: mock.patch.object(CorrelatedNoise, "noise", without_flood)),
    ("nobody is silent", "pure", lambda: mock.patch(f"{BITSUM}.pure.bernoulli", nobody_is_silent)),
]


@pytest.mark.parametrize("name", ["samplers", "bitsum-counts"])
@pytest.mark.parametrize(("fault", "kind", "patch"), COUNT_FAULTS)
def test_faults_of_the_randomizer_are_refuted(name: str, fault: str, kind: str, patch: Callable[[], Patch]) -> None:
    with patch():
        assert run(name, kind).refuted


def test_a_cut_tail_is_refuted() -> None:
    with mock.patch.object(DiscreteLaw, "sample", cut_tail):
        assert run("samplers", "poisson").refuted
        assert run("samplers", "3nb").refuted


@pytest.mark.parametrize(
    ("kind", "protocol", "estimate"),
    [
        ("rr", ShuffledResponse, lambda self, tally, n_users: tally.ones.astype(float)),
        ("pure", PureNoise, lambda self, tally, n_users: (tally.ones - tally.zeros).astype(float)),
    ],
)
def test_bias_is_refuted(kind: str, protocol: Any, estimate: Any) -> None:
    with mock.patch.object(protocol, "estimate", estimate):
        found = run("bitsum-unbiased", kind)
    assert isinstance(found.verdict, Refuted)
    assert "sum of bits" in found.verdict.witness.found


def test_noise_of_one_user_for_all_is_refuted_in_the_aggregated_path_only() -> None:
    honest = CorrelatedNoise.noise
    with mock.patch.object(CorrelatedNoise, "noise", lambda self, n_users, *rest: honest(self, 1, *rest)):
        assert run("aggregated-equals-faithful", "3nb").refuted
        assert not run("bitsum-counts", "3nb").refuted


def test_a_wrong_kernel_is_refuted() -> None:
    with mock.patch.object(GaussianFamily, "scaled_features", lambda self, x: 0.9 * HONEST_FEATURES(self, x)):
        assert run("kernel-means", "rr").refuted


def test_labels_off_by_the_uniform_term_are_refuted() -> None:
    with mock.patch("privkde.labels.integers_below", lambda bound, *rest: integers_below(bound + 1, *rest)):
        assert run("samplers", "labels").refuted


def test_labels_kept_too_often_are_refuted() -> None:
    def louder(*, n_classes: int, label_epsilon: float) -> KeepLabel:
        return KeepLabel(n_classes=n_classes, label_epsilon=1.1 * label_epsilon)

    with mock.patch("privkde.labels.KeepLabel", louder):
        assert run("samplers", "labels").refuted


HALF = conduct.MARKED


@pytest.mark.parametrize("kind", ["rr", "poisson"])
@pytest.mark.parametrize(
    "order",
    [
        lambda length, stream: np.arange(length),
        lambda length, stream: np.arange(length)[::-1],
        lambda length, stream: np.concatenate([permutation(HALF, stream), HALF + permutation(HALF, stream)]),
        lambda length, stream: np.roll(np.arange(length), int(integers_below(length, 1, stream)[0])),
        lambda length, stream: permutation(length, stream) // 2 * 2 % length,
        lambda length, stream: np.concatenate([[0], 1 + permutation(length - 1, stream)]),
    ],
    ids=["kept", "reversed", "within users", "rotated", "doubled", "first stays"],
)
def test_a_shuffler_with_an_order_is_refuted(order: Any, kind: str) -> None:
    with mock.patch.object(parties, "permutation", order):
        assert run("shuffler-order", kind).refuted


def received_twice(self: Shuffler, packet: bytes) -> bool:
    return HONEST_RECEIVE(self, packet) and HONEST_RECEIVE(self, packet)


def added_twice(self: Analyzer, tally: Tally, n_users: int) -> None:
    HONEST_ADD(self, tally, 2 * n_users)


@pytest.mark.parametrize("kind", ["rr", "3nb"])
@pytest.mark.parametrize(
    ("party", "method", "fault"), [(Shuffler, "receive", received_twice), (Analyzer, "add", added_twice)]
)
def test_users_counted_twice_are_refuted(party: Any, method: str, fault: Any, kind: str) -> None:
    with mock.patch.object(party, method, fault):
        assert run("users-counted-once", kind).refuted


def test_a_message_counted_twice_is_refuted() -> None:
    def twice(self: Analyzer, tally: Tally, n_users: int) -> None:
        HONEST_ADD(self, tally + tally, n_users)

    with mock.patch.object(Analyzer, "add", twice):
        assert run("users-counted-once", "3nb").refuted


def drawn_in_public(self: Randomizer, announced: Any, *, stream: Any = None, outside: str = "reject") -> None:
    HONEST_INIT(self, announced, stream=stream or public_stream(announced.public_seed), outside=outside)


def one_key(insecure_seed: int | None = None) -> PrivateRandomness:
    return private_randomness(7 if insecure_seed is None else insecure_seed)


def everybody_alike(self: Randomizer, x: Any, *rest: Any, **named: Any) -> Tally:
    one = HONEST_TALLY(self, x[:1], *rest, **named)
    return Tally(np.repeat(one.ones, len(x), axis=0), np.repeat(one.zeros, len(x), axis=0))


def private_features(self: KernelChoice, public_seed: str) -> Any:
    return HONEST_BUILD(self, private_randomness().stream.take(16).tobytes().hex())


@pytest.mark.parametrize("kind", ["rr", "3nb", "pure"])
@pytest.mark.parametrize(
    "patch",
    [
        lambda: mock.patch.object(Randomizer, "__init__", drawn_in_public),
        lambda: mock.patch.object(parties, "private_randomness", one_key),
        lambda: mock.patch.object(conduct, "private_randomness", one_key),
        lambda: mock.patch("privkde.estimators.private_randomness", one_key),
        lambda: mock.patch.object(Randomizer, "tally", everybody_alike),
        lambda: mock.patch.object(KernelChoice, "build", private_features),
    ],
    ids=["public seed", "one key", "one key for streams", "one key for estimators", "shared", "features"],
)
def test_mixed_up_randomness_is_refuted(patch: Callable[[], Patch], kind: str) -> None:
    with patch():
        assert run("private-randomness", kind).refuted
