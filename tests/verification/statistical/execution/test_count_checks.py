"""Checks of the execution: the honest system is not refuted, planted faults are."""

import dataclasses
import hmac
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from fractions import Fraction
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from accounting import InvalidInputError, Plan
from accounting.mechanisms import BITSUMS, ThreeNegativeBinomial
from privkde.bitsum import Tally
from privkde.bitsum.pure import PureBitsum
from privkde.bitsum.randomized_response import RandomizedResponseBitsum
from privkde.bitsum.three_negative_binomial import ThreeNegativeBinomialBitsum
from privkde.draws.laws import DiscreteLaw, KeepLabel, NegativeBinomial
from privkde.draws.randomness import ByteStream, private_randomness, public_stream
from privkde.draws.sampling import integers_below, permutation
from privkde.engines.local import LocalEngine
from privkde.kernels.gaussian import GaussianFamily
from privkde.kernels.lsq_family import KernelChoice
from privkde.protocol import announcement, parties
from privkde.protocol.messages import Counted, WireFormat
from privkde.protocol.parties import Analyzer, Randomizer, Shuffler
from privkde.storage.report_register import ReportRegister
from tests.plans import plan_for
from tests.privkde.packets import Listed, written
from tests.privkde.unplanned import unplanned
from tests.verification.subjects import subject
from verification.statistical.execution import conduct, order, samplers
from verification.statistical.execution import count_checks as execution
from verification.statistical.execution.count_laws import TRANSFORM_ERROR
from verification.statistical.execution.order import read_packet
from verification.statistical.goodness_of_fit import fits_of
from verification.twins import mechanism_twin
from verification.verdicts import CHECK_ALPHA, QUICK, Finding, Subject

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


OF_COUNTS = ("bitsum-counts", "bitsum-unbiased", "aggregated-equals-faithful")
KNOW_NO_KERNEL = (("samplers", "identity"), ("samplers", "laplacian"))
TAKE_LONG = {
    "bitsum-counts": ("pure",),
    "bitsum-unbiased": tuple(bitsum for bitsum in BITSUMS if bitsum != "rr"),
    "shuffler-order": tuple(bitsum for bitsum in BITSUMS if bitsum != "rr"),
}
"""Estimates of pure are tried with densities, too, and orders of messages without a content with planted faults."""


def tried(name: str, kind: str) -> Any:
    """By default what differs: counts, the shuffler and dependence know no kernel and no labels."""
    alike = (*OF_COUNTS, "shuffler-order", "independent-draws")
    again = kind not in BITSUMS and (name in alike or (name, kind) in KNOW_NO_KERNEL)
    return pytest.param(name, kind, marks=pytest.mark.slow if again or kind in TAKE_LONG.get(name, ()) else ())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(tried(name, kind) for name in CHECKS for kind in (*BITSUMS, "labels", "identity", "laplacian")),
        *(
            pytest.param(name, kind, marks=pytest.mark.slow)
            for name in CHECKS
            for kind in ("labels-rr", "identity-rr", "laplacian-rr")
        ),
    ],
)
def test_an_honest_system_is_not_refuted(name: str, kind: str) -> None:
    found = run(name, kind)
    assert not found.refuted, found.witness
    assert found.alpha <= CHECK_ALPHA
    assert (found.power or 0.0) >= 0.999
    assert found.smallest_detectable_defect is not None
    assert math.isfinite(found.smallest_detectable_defect)


@contextmanager
def fewer_samples() -> Iterator[None]:
    with ExitStack() as fewer:
        for module, name, value in (
            (samplers, "COINS", 50_000),
            (samplers, "NOISE_DRAWS", 20_000),
            (samplers, "KERNEL_SAMPLES", 4_000),
            (execution, "STAGE_REPETITIONS", 400),
            (order, "RELEASES", 200),
            (conduct, "SHARED_REPETITIONS", 64),
        ):
            fewer.enter_context(mock.patch.object(module, name, value))
        yield


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*BITSUMS, "labels"])
def test_an_honest_system_is_not_refuted_for_a_dozen_seeds(kind: str) -> None:
    """With fewer samples than an audit draws, at the same level."""
    with fewer_samples():
        for seed in range(2, 14):
            refuted = [name for name in CHECKS if run(name, kind, seed).refuted]
            assert refuted == []


WIDE = [
    {"users": 100_000, "repetitions": 1024, "epsilon": 1.0, "delta": 1e-6},
    {"users": 100_000, "repetitions": 256, "epsilon": 0.5, "delta": 1e-8},
]
"""Ordinary plans whose noise is so wide that tables of it go through a transform."""
WIDE_LAW = ThreeNegativeBinomial.with_rmse(400.0, 100_000, noise_shape=1, flood_shape=16.0, flood_ratio=16.0)


def planned_wide(asked: dict[str, Any]) -> Plan:
    return plan_for(**asked, dim=16, bitsum="3nb", accountant="pld", allow_useless=True)


def with_wide_noise(plan: Plan) -> Subject:
    tables = mechanism_twin(plan.protocol()).noise_tables(execution.OWN_USERS)
    assert tables["ones − zeros"].missing >= TRANSFORM_ERROR
    return Subject(plan=plan)


@pytest.mark.parametrize("asked", [None, *(pytest.param(asked, marks=pytest.mark.slow) for asked in WIDE)], ids=str)
def test_an_honest_system_with_wide_noise_is_not_refuted(asked: dict[str, Any] | None) -> None:
    """By default a law that needs no plan, with fewer samples than an audit draws, at the same level."""
    wide = with_wide_noise(unplanned(WIDE_LAW, dim=16) if asked is None else planned_wide(asked))
    for name in ("samplers", "bitsum-counts", "bitsum-unbiased", "aggregated-equals-faithful"):
        with fewer_samples() if asked is None else nullcontext():
            found = CHECKS[name].run(wide, QUICK, CHECKS[name].seed(1))
        assert not found.refuted, found.witness
        assert (found.power or 0.0) >= 0.999


@pytest.mark.slow
def test_bias_of_wide_noise_is_refuted() -> None:
    wide = with_wide_noise(planned_wide(WIDE[0]))
    check, honest = CHECKS["bitsum-unbiased"], ThreeNegativeBinomialBitsum.estimate
    passed = check.run(wide, QUICK, check.seed(1))
    assert not passed.refuted, passed.witness
    defect = passed.smallest_detectable_defect
    assert defect is not None

    def shifted(self: ThreeNegativeBinomialBitsum, tally: Tally, n_users: int) -> Any:
        return honest(self, tally, n_users) + defect

    with mock.patch.object(ThreeNegativeBinomialBitsum, "estimate", shifted):
        assert check.run(wide, QUICK, check.seed(1)).refuted


def rare_flips(users: int) -> Subject:
    request = {"users": users, "dim": 4, "repetitions": 1, "epsilon": 2.0, "delta": 1e-6, "bitsum": "rr"}
    return Subject(plan=plan_for(**request, accountant="pld", allow_useless=True))


def test_what_samplers_cannot_see_they_do_not_claim_to_see() -> None:
    check, rare = CHECKS["samplers"], rare_flips(10**9)
    flip = rare.plan.parameters["flip_probability"]
    assert flip < 1e-7
    never = mock.patch.object(
        RandomizedResponseBitsum, "of", staticmethod(lambda law: RandomizedResponseBitsum(flip=0.0))
    )
    for patch in (nullcontext(), never):
        with patch:
            verdict = check.run(rare, QUICK, check.seed(1))
        assert not verdict.refuted
        assert verdict.power == 0.0
        assert verdict.smallest_detectable_defect is None


def test_what_samplers_claim_to_see_they_see() -> None:
    """Rare flips, the smallest defect that is stated: half of the flips or more are left out."""
    check, rare = CHECKS["samplers"], rare_flips(10**5)
    verdict = check.run(rare, QUICK, check.seed(1))
    assert not verdict.refuted
    assert (verdict.power or 0.0) >= 0.999
    defect = verdict.smallest_detectable_defect
    assert defect is not None
    assert 0.0 < defect <= 1.0

    def fewer(law: Any) -> RandomizedResponseBitsum:
        return RandomizedResponseBitsum(flip=(1.0 - defect) * law.flip_probability)

    with mock.patch.object(RandomizedResponseBitsum, "of", staticmethod(fewer)):
        assert check.run(rare, QUICK, check.seed(1)).refuted


@pytest.mark.parametrize("samples", [fewer_samples, pytest.param(nullcontext, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["samplers", "bitsum-counts", "shuffler-order"])
def test_a_finding_is_a_function_of_the_seed(name: str, samples: Callable[[], Any]) -> None:
    with samples():
        once, again, other = run(name, "3nb"), run(name, "3nb"), run(name, "3nb", seed=2)
    assert once == again
    assert once.statistic != other.statistic


def test_packets_are_read_as_they_were_written() -> None:
    for content_bits, bits in ((1, [0, 1, 1, 0]), (0, [1, 1, 1, 1])):
        wire = WireFormat(collection=bytes(32), n_instances=37, content_bits=content_bits, most_messages=10**4)
        sent = Listed.of(zip([36, 0, 5, 5], bits, strict=True))
        instances, read = read_packet(written(wire, sent), content_bits)
        assert instances.tolist() == [36, 0, 5, 5]
        assert read.tolist() == bits
    counts = WireFormat(collection=bytes(32), n_instances=3, content_bits=1, most_messages=3, dense=True)
    instances, read = read_packet(counts.encode(Counted(2, Tally(np.array([0, 2, 1]), np.array([2, 0, 1])))), 1)
    assert instances.tolist() == [0, 0, 1, 1, 2, 2]
    assert read.tolist() == [0, 0, 1, 1, 1, 0]


# Planted faults.


def flip_too_small(law: Any) -> RandomizedResponseBitsum:
    return RandomizedResponseBitsum(flip=0.9 * law.flip_probability)


def numpy_convention(**given: Any) -> NegativeBinomial:
    if "continue_probability" in given:
        given["continue_probability"] = 1.0 - given["continue_probability"]
    else:
        given["decay"] = -math.log1p(-math.exp(-given["decay"]))
    return NegativeBinomial(**given)


def half_a_share(total: float, n_users: int, counted_users: int) -> Fraction:
    return Fraction(total) * n_users / (2 * counted_users)


def undivided_flood(
    self: ThreeNegativeBinomialBitsum, n_users: int, shape: tuple[int, ...], stream: ByteStream
) -> Tally:
    """As the paper prints it: every user draws the flood of all."""
    pairs = NegativeBinomial(
        shape=Fraction(self.law.flood_shape) * n_users, continue_probability=self.law.flood_continue_probability
    ).sample(shape, stream)
    return without_flood(self, n_users, shape, stream) + Tally(pairs, pairs)


def without_flood(self: ThreeNegativeBinomialBitsum, n_users: int, shape: tuple[int, ...], stream: ByteStream) -> Tally:
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
HONEST_ENCODE = WireFormat.encode
HONEST_ADD = Analyzer.add
HONEST_PLAY = LocalEngine().play
HONEST_INIT = Randomizer.__init__
HONEST_TALLY = Randomizer.tally
HONEST_BUILD = KernelChoice.build
HONEST_FEATURES = GaussianFamily.scaled_features

BITSUM = "privkde.bitsum"
FLIP = mock.patch.object(RandomizedResponseBitsum, "of", staticmethod(flip_too_small))
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
    ("flood not divided", "3nb", lambda: mock.patch.object(ThreeNegativeBinomialBitsum, "noise", undivided_flood)),
    ("flood omitted", "3nb", lambda: mock.patch.object(ThreeNegativeBinomialBitsum, "noise", without_flood)),
    ("nobody is silent", "pure", lambda: mock.patch(f"{BITSUM}.pure.bernoulli", nobody_is_silent)),
]


COUNTED = (("flip 10 % too small", "rr"), ("share 1/(2n)", "poisson"), ("flood omitted", "3nb"))
SAMPLED = (
    *COUNTED,
    ("numpy's convention", "negative-binomial"),
    ("share 1/(2n)", "3nb"),
    ("flood not divided", "3nb"),
    ("nobody is silent", "pure"),
)
"""By default samplers refute each of these faults for one protocol or two, and counts some."""


@pytest.mark.parametrize(
    ("fault", "kind", "patch", "name"),
    [
        pytest.param(*fault, name, marks=() if fault[:2] in by_default else pytest.mark.slow)
        for fault in COUNT_FAULTS
        for name, by_default in (("samplers", SAMPLED), ("bitsum-counts", COUNTED))
    ],
)
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
        ("rr", RandomizedResponseBitsum, lambda self, tally, n_users: tally.ones.astype(float)),
        pytest.param(
            "pure",
            PureBitsum,
            lambda self, tally, n_users: (tally.ones - tally.zeros).astype(float),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_bias_is_refuted(kind: str, protocol: Any, estimate: Any) -> None:
    with mock.patch.object(protocol, "estimate", estimate):
        found = run("bitsum-unbiased", kind)
    assert found.witness is not None
    assert "sum of bits" in found.witness.found


def test_noise_of_one_user_for_all_is_refuted_in_the_aggregated_path_only() -> None:
    honest = ThreeNegativeBinomialBitsum.noise
    with mock.patch.object(ThreeNegativeBinomialBitsum, "noise", lambda self, n_users, *rest: honest(self, 1, *rest)):
        assert run("aggregated-equals-faithful", "3nb").refuted
        assert not run("bitsum-counts", "3nb").refuted


def test_a_wrong_kernel_is_refuted() -> None:
    with mock.patch.object(GaussianFamily, "scaled_features", lambda self, x: 0.9 * HONEST_FEATURES(self, x)):
        assert run("kernel-means", "rr").refuted


def test_labels_off_by_the_uniform_term_are_refuted() -> None:
    with mock.patch(
        "privkde.protocol.label_round.integers_below", lambda bound, *rest: integers_below(bound + 1, *rest)
    ):
        assert run("samplers", "labels").refuted


def test_labels_kept_too_often_are_refuted() -> None:
    def louder(*, n_classes: int, label_epsilon: float) -> KeepLabel:
        return KeepLabel(n_classes=n_classes, label_epsilon=1.1 * label_epsilon)

    with mock.patch("privkde.protocol.label_round.KeepLabel", louder):
        assert run("samplers", "labels").refuted


def within(block: Callable[[int], int]) -> Any:
    """A shuffler that never moves a message out of its block."""

    def shuffled(length: int, stream: ByteStream) -> Any:
        size = min(length, block(length))
        return np.concatenate([at + permutation(min(size, length - at), stream) for at in range(0, length, size)])

    return shuffled


def of_whole_blocks(length: int, stream: ByteStream) -> Any:
    """Blocks of 64 in a random order, each shuffled: neighbors stay near each other."""
    if length <= 64:
        return permutation(length, stream)
    blocks = 64 * permutation(length // 64, stream)
    return np.concatenate([at + permutation(64, stream) for at in blocks.tolist()])


def in_blocks_of(size: int) -> Any:
    return within(lambda length: size)


ORDERS: dict[str, Any] = {
    "kept": lambda length, stream: np.arange(length),
    "reversed": lambda length, stream: np.arange(length)[::-1],
    "within users": within(lambda length: length // 2),
    "rotated": lambda length, stream: np.roll(np.arange(length), int(integers_below(length, 1, stream)[0])),
    "doubled": lambda length, stream: permutation(length, stream) // 2 * 2 % length,
    "first stays": lambda length, stream: np.concatenate([[0], 1 + permutation(length - 1, stream)]),
    **{f"blocks of {size}": in_blocks_of(size) for size in (16, 32, 64, 1_000, 4_096)},
    "blocks of three quarters": within(lambda length: max(16, length * 3 // 4)),
    "blocks that move": of_whole_blocks,
}


TRIED = (
    ("kept", "3nb"), ("doubled", "poisson"), ("first stays", "3nb"), ("blocks of 4096", "poisson"),
    ("blocks that move", "3nb"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        pytest.param(planted, kind, marks=() if (planted, kind) in TRIED else pytest.mark.slow)
        for planted in ORDERS
        for kind in ("3nb", "poisson")
    ],
)
def test_a_shuffler_with_an_order_is_refuted(planted: str, kind: str) -> None:
    with mock.patch.object(parties, "permutation", ORDERS[planted]), mock.patch.object(order, "RELEASES", 2_000):
        assert run("shuffler-order", kind).refuted


def test_small_releases_alone_do_not_see_blocks() -> None:
    """What the large release is for."""
    with mock.patch.object(parties, "permutation", in_blocks_of(16)):
        few = order.released_orders(subject("poisson").plan, order.MARKED, 2_000, 1)
    assert not any(fit.refuted for fit in fits_of(order._small_samples(few)).values())


def test_a_lost_message_is_refuted() -> None:
    with mock.patch.object(parties, "permutation", lambda length, stream: permutation(length, stream)[:-1]):
        assert run("shuffler-order", "poisson").refuted


def test_a_release_of_counts_tells_nothing_else() -> None:
    """Neither the bits of who came last, nor a report's id."""
    sent: list[Counted] = []

    def last_of_them(wire: WireFormat, counted: Counted, order: Any = None) -> bytes:
        sent.append(counted)
        ones = sent[-2].tally.ones if counted.n_users == 2 else counted.tally.ones
        return HONEST_ENCODE(wire, counted._replace(tally=Tally(ones, counted.n_users - ones)), order)

    def watched(wire: WireFormat, counted: Counted, order: Any = None) -> bytes:
        sent.append(counted)
        return HONEST_ENCODE(wire, counted, order)

    def of_a_report(count: int, stream: ByteStream) -> list[bytes]:
        return [sent[-1].packet_id] * count

    assert not run("shuffler-order", "rr").refuted
    with mock.patch.object(WireFormat, "encode", last_of_them):
        assert run("shuffler-order", "rr").refuted
    with mock.patch.object(WireFormat, "encode", watched), mock.patch.object(parties, "new_ids", of_a_report):
        assert run("shuffler-order", "rr").refuted


def received_twice(self: Shuffler, packet: bytes) -> bool:
    taken, counted = HONEST_RECEIVE(self, packet), self._admission.counts(packet)
    if taken and counted is not None:
        self._tally.include(counted.tally)
        self._n_users += 1
    return taken


def added_twice(self: Analyzer, tally: Tally, n_users: int, **marks: Any) -> None:
    HONEST_ADD(self, tally, 2 * n_users, **marks)


def released_twice(self: Analyzer, tally: Tally, n_users: int, *, releases: Any = None, **marks: Any) -> None:
    HONEST_ADD(self, tally, n_users, **marks)


def nothing_kept(self: ReportRegister, report: bytes) -> bool:
    """As if every report were new."""
    return True


@pytest.mark.parametrize("kind", ["rr", "3nb"])
@pytest.mark.parametrize(
    ("party", "method", "fault"),
    [
        (Shuffler, "receive", received_twice),
        (Analyzer, "add", added_twice),
        (Analyzer, "add", released_twice),
        (ReportRegister, "add", nothing_kept),
    ],
)
def test_users_counted_twice_are_refuted(party: Any, method: str, fault: Any, kind: str) -> None:
    with mock.patch.object(party, method, fault):
        assert run("users-counted-once", kind).refuted


def test_an_estimator_that_counts_twice_is_refuted() -> None:
    """The library refuses to count more users than enrolled, and says so: that refutes."""

    def collected(*parts: Any, **named: Any) -> Analyzer:
        analyzer = HONEST_PLAY(*parts, **named)
        analyzer._total = dataclasses.replace(analyzer._total, n_users=2 * analyzer.n_users)
        return analyzer

    with mock.patch("privkde.learning.private_estimator.LocalEngine", return_value=SimpleNamespace(play=collected)):
        found = run("users-counted-once", "3nb")
    assert found.witness is not None
    assert "estimator" in found.witness.found


@pytest.mark.parametrize(
    "where", ["verification.statistical.execution.conduct.front_plan", "privkde.learning.private_estimator.LocalEngine"]
)
def test_an_error_refutes_nothing(where: str) -> None:
    """Neither a refusal to plan nor one to fit says that users are counted twice."""
    with mock.patch(where, side_effect=InvalidInputError("something else")), pytest.raises(InvalidInputError):
        run("users-counted-once", "rr")


def test_a_message_counted_twice_is_refuted() -> None:
    def twice(self: Analyzer, tally: Tally, n_users: int, **marks: Any) -> None:
        HONEST_ADD(self, tally + tally, n_users, **marks)

    with mock.patch.object(Analyzer, "add", twice):
        assert run("users-counted-once", "3nb").refuted
        assert run("users-counted-once", "rr").refuted


def unmarked(self: Analyzer, tally: Tally, n_users: int, *, secret: bool = False, **marks: Any) -> None:
    HONEST_ADD(self, tally, n_users, secret=True, **marks)


def test_a_dropped_mark_of_seeded_draws_is_refuted() -> None:
    with mock.patch.object(Analyzer, "add", unmarked):
        found = run("private-randomness", "rr")
    assert found.witness is not None
    assert "drawn from a seed" in found.witness.found


def drawn_in_public(self: Randomizer, announced: Any, *, stream: Any = None, outside: str = "reject") -> None:
    HONEST_INIT(self, announced, stream=stream or public_stream(announced.public_seed), outside=outside)


def one_key(insecure_seed: int | None = None) -> ByteStream:
    return private_randomness(7 if insecure_seed is None else insecure_seed)


def same_child(self: ByteStream, *labels: str | int) -> ByteStream:
    """Of a secret stream what only a seeded one should have: the same child each time."""
    return ByteStream(hmac.digest(self._key, repr(labels).encode(), "sha256"), secret=self.secret)


def everybody_alike(self: Randomizer, x: Any, *rest: Any, **named: Any) -> Tally:
    one = HONEST_TALLY(self, x[:1], *rest, **named)
    return Tally(np.repeat(one.ones, len(x), axis=0), np.repeat(one.zeros, len(x), axis=0))


def private_features(self: KernelChoice, public_seed: str) -> Any:
    return HONEST_BUILD(self, private_randomness().take(16).tobytes().hex())


@pytest.mark.parametrize("kind", ["rr", "3nb", "pure"])
@pytest.mark.parametrize(
    "patch",
    [
        lambda: mock.patch.object(Randomizer, "__init__", drawn_in_public),
        lambda: mock.patch.object(parties, "private_randomness", one_key),
        lambda: mock.patch.object(conduct, "private_randomness", one_key),
        lambda: mock.patch("privkde.learning.estimators.private_randomness", one_key),
        lambda: mock.patch.object(ByteStream, "child", same_child),
        lambda: mock.patch.object(Randomizer, "tally", everybody_alike),
        lambda: mock.patch.object(KernelChoice, "build", private_features),
    ],
    ids=["public seed", "one key", "one key for streams", "one key for estimators", "same child", "shared", "features"],
)
def test_mixed_up_randomness_is_refuted(patch: Callable[[], Patch], kind: str) -> None:
    with patch():
        assert run("private-randomness", kind).refuted
