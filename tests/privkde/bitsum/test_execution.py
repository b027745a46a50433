"""Bitsum protocols as executed: unbiased for every bit pattern, with the declared variance; shares add up exactly.

Nothing is sampled. The samplers are replaced by stand-ins that hand out every outcome with its probability, so that
`respond`, `inputs`, `noise`, `over_users` and `estimate` themselves run on all of them.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from accounting.mechanisms import (
    BITSUMS,
    BitsumProtocol,
    NegativeBinomialNoise,
    PoissonNoise,
    Pure,
    RandomizedResponse,
    ThreeNegativeBinomial,
)
from privkde.bitsum import EXECUTED, Bitsum, Tally, executed, pure
from privkde.bitsum import execution as base
from privkde.bitsum.execution import share
from privkde.draws.laws import DiscreteLaw
from privkde.draws.randomness import ByteStream
from tests.privkde.draws.test_laws import reference_mass
from tests.privkde.unplanned import small_laws, small_pure

DIGITS = 60
UNIT = 1 << 180
"""Probabilities are whole multiples of 2^−180, rounded down."""
NEGLIGIBLE = UNIT >> 92
"""Outcomes below this are left out; that what is lost is below 1e-23 is checked."""

Law = dict[tuple[int, int], int]
"""Probabilities of (ones, zeros), times UNIT."""
Pattern = tuple[int, ...]


class Outcomes(ByteStream):
    """The stand-in for a stream. Bits come from a list; a draw from a law takes all its values along one axis."""

    def __init__(self, bits: tuple[int, ...] = ()) -> None:
        super().__init__(bytes(32))
        self.bits, self.used, self.chance = bits, 0, Fraction(1)
        self.masses: list[NDArray[Any]] = []

    def take(self, count: int) -> NDArray[np.uint8]:
        raise AssertionError(f"{count} bytes were drawn past the samplers")

    def bernoulli(self, scaled: NDArray[np.float32], flip: ArrayLike) -> NDArray[np.uint8]:
        assert scaled.dtype == np.float32
        assert np.shape(flip) == ()
        assert 0 <= float(np.asarray(flip)) <= 0.5
        chosen = self.bits[self.used : self.used + scaled.size]
        self.used += scaled.size
        for feature, bit in zip(scaled.reshape(-1).tolist(), chosen, strict=True):
            one = Fraction(1, 2) + (Fraction(1, 2) - Fraction(float(np.asarray(flip)))) * Fraction(feature)
            self.chance *= one if bit else 1 - one
        return np.array(chosen, np.uint8).reshape(scaled.shape)

    def sample(self, law: DiscreteLaw, shape: tuple[int, ...]) -> NDArray[np.int64]:
        axis = len(self.masses)
        mass = reference_mass(law)
        self.masses.append(np.array([int(mass(k) * UNIT) for k in range(shape[axis])], dtype=object))
        assert lost(self.masses[-1]) < 1e-25, "the table is too short for this law"
        return np.broadcast_to(np.indices(shape, sparse=True)[axis], shape).astype(np.int64)

    def weights(self) -> NDArray[Any]:
        if not self.masses:
            return np.array([UNIT], dtype=object)
        return reduce(lambda first, second: np.multiply.outer(first, second) // UNIT, self.masses)


def lost(masses: Iterable[int]) -> float:
    return float(1 - Fraction(sum(masses), UNIT))


@pytest.fixture(autouse=True)
def every_outcome(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def bernoulli(scaled: NDArray[np.float32], stream: Outcomes, *, flip: ArrayLike = 0.0) -> NDArray[np.uint8]:
        return stream.bernoulli(scaled, flip)

    def sample(law: DiscreteLaw, shape: tuple[int, ...], stream: Outcomes) -> NDArray[np.int64]:
        return stream.sample(law, shape)

    monkeypatch.setattr(base, "bernoulli", bernoulli)
    monkeypatch.setattr(pure, "bernoulli", bernoulli)
    monkeypatch.setattr(DiscreteLaw, "sample", sample)
    with mpmath.workdps(DIGITS):
        yield


def input_law(bitsum: Bitsum, pattern: Pattern) -> Law:
    """Law of the input messages of users with these bits: every outcome of rounding, flipping and silence."""
    scaled = np.array([[2 * bit - 1] for bit in pattern], np.float32)
    law: Law = defaultdict(int)
    draws = len(pattern) * (2 if bitsum.name == "pure" else 1)
    for path in itertools.product((0, 1), repeat=draws):
        stream = Outcomes(path)
        tally = bitsum.inputs(bitsum.respond(scaled, stream), stream).over_users()
        assert (tally.ones.shape, tally.zeros.shape, stream.used) == ((1,), (1,), draws)
        if stream.chance:
            law[int(tally.ones[0]), int(tally.zeros[0])] += int(stream.chance * UNIT)
    return law


def noise_law(bitsum: Bitsum, n_users: int) -> Law:
    """Law of the noise messages of `n_users` users, drawn together."""
    shape = {"rr": (1,), "poisson": (40,), "negative-binomial": (100,)}.get(bitsum.name, (28, 28, 28))
    stream = Outcomes()
    tally = bitsum.noise(n_users, shape, stream)
    assert tally.ones.shape == tally.zeros.shape == shape
    assert len(stream.masses) == (0 if bitsum.name == "rr" else len(shape)), "one independent draw for each axis"
    law: Law = defaultdict(int)
    for ones, zeros, weight in zip(
        tally.ones.reshape(-1).tolist(), tally.zeros.reshape(-1).tolist(), stream.weights().reshape(-1), strict=True
    ):
        if weight > NEGLIGIBLE:
            law[ones, zeros] += weight
    return law


def convolved(first: Law, second: Law) -> Law:
    law: Law = defaultdict(int)
    for (ones, zeros), weight in first.items():
        for (more_ones, more_zeros), other in second.items():
            both = weight * other // UNIT
            if both > NEGLIGIBLE:
                law[ones + more_ones, zeros + more_zeros] += both
    return law


def moments(bitsum: Bitsum, law: Law, n_users: int) -> tuple[Any, Any]:
    """Mean and variance of the estimate, run on every (ones, zeros) at 60 digits."""
    assert lost(law.values()) < 1e-23
    ones, zeros = (np.array([mpmath.mpf(key[part]) for key in law], dtype=object) for part in (0, 1))
    estimates = np.array([mpmath.mpf(value) for value in bitsum.estimate(Tally(ones, zeros), n_users)], dtype=object)
    weights = np.array([mpmath.mpf(weight) / UNIT for weight in law.values()], dtype=object)
    mean = weights @ estimates
    return mean, weights @ (estimates - mean) ** 2


def dyadic(law: BitsumProtocol) -> list[BitsumProtocol]:
    """The law for one, two and three counted users, with other parameters that floats hold exactly."""
    varied: list[BitsumProtocol] = [law]
    match law:
        case RandomizedResponse():
            varied += [replace(law, flip_probability=p) for p in (2.0**-10, 0.25, 0.484375)]
        case ThreeNegativeBinomial():
            varied += [replace(law, noise_shape=2, continue_probability=1 / 16, flood_shape=3.0)]
        case PoissonNoise():
            varied += [replace(law, total_mean=0.75)]
        case NegativeBinomialNoise():
            varied += [replace(law, shape=3.0, continue_probability=0.5)]
        case Pure():
            varied += [small_pure(law.n_users, silence=q) for q in (0.5, 0.75)]
    return varied


# counted users of the law; users who take part: dropouts (as if min_users allowed them), all, more
PRESENT = [(1, 1), (2, 1), (1, 2), (2, 2), *(pytest.param(*more, marks=pytest.mark.slow) for more in ((2, 3), (3, 3)))]


@pytest.mark.parametrize(("counted", "present"), PRESENT)
@pytest.mark.parametrize("name", BITSUMS)
def test_estimate_is_unbiased_with_the_declared_variance_for_every_bit_pattern(
    name: str, counted: int, present: int
) -> None:
    for law in dyadic(small_laws(counted)[name]):
        bitsum = executed(law)
        noise = reduce(convolved, [noise_law(bitsum, 1)] * present)
        for pattern in itertools.product((0, 1), repeat=present):
            mean, variance = moments(bitsum, convolved(input_law(bitsum, pattern), noise), present)
            assert abs(mean - sum(pattern)) < 1e-20, (law, pattern)
            declared = law.variance(present)
            if isinstance(law, Pure):
                assert abs(variance - pure_variance(law, sum(pattern), present)) < 1e-20, (law, pattern)
                assert variance <= declared * (1 + 1e-14)
            if not isinstance(law, Pure) or all(pattern):
                assert float(variance) == pytest.approx(declared, rel=1e-14)
            assert variance > 1e-4, "nothing random happened"


def pure_variance(law: Pure, ones: int, present: int) -> Any:
    """[S q(1−q) + (N/n)·2e^{−ε'}/(1−e^{−ε'})²]/(1−q)² for a true sum S and N users present of n counted."""
    q, decayed = mpmath.mpf(law.silence_probability), mpmath.exp(-mpmath.mpf(law.noise_epsilon))
    noise = mpmath.mpf(present) / law.n_users * 2 * decayed / (1 - decayed) ** 2
    return (ones * q * (1 - q) + noise) / (1 - q) ** 2


@pytest.mark.parametrize("users", [(1, 2), (2, 2), (3, 2), (3, 3)], ids=str)
@pytest.mark.parametrize("name", [name for name in BITSUMS if name != "rr"])
def test_shares_add_up_to_one_draw_for_everybody(name: str, users: tuple[int, int]) -> None:
    """The joint law of (ones, zeros): n shares convolved, against the aggregated draw for n users."""
    present, counted = users
    bitsum = executed(small_laws(counted)[name])
    together = noise_law(bitsum, present)
    shares = reduce(convolved, [noise_law(bitsum, 1)] * present)
    assert distance(together, shares) < 1e-20
    assert len(together) >= 10
    assert max(together.values()) < 0.99 * UNIT, "hardly anything random happened"


def distance(first: Law, second: Law) -> float:
    """The sum of all differences of probabilities."""
    return float(Fraction(sum(abs(first[key] - second[key]) for key in {*first, *second}), UNIT))


def test_randomized_response_has_no_noise_besides_its_flips() -> None:
    bitsum = executed(RandomizedResponse(n_users=3, flip_probability=0.25))
    assert noise_law(bitsum, 1) == noise_law(bitsum, 3) == {(0, 0): UNIT}
    assert bitsum.noise(5, (2, 3), Outcomes()).ones.shape == (2, 3)


def means(law: Law) -> tuple[Any, Any]:
    ones, zeros = (sum(weight * key[part] for key, weight in law.items()) for part in (0, 1))
    return mpmath.mpf(ones) / UNIT, mpmath.mpf(zeros) / UNIT


@pytest.mark.parametrize("name", BITSUMS)
def test_noise_follows_the_mechanism_that_was_accounted_for(name: str) -> None:
    """Against the definition in docs/proofs, by closed forms of the means: all users, and one share."""
    counted = 3
    law = small_laws(counted)[name]
    bitsum = executed(law)
    for present in (1, 2, 3, 5):
        noise = noise_law(bitsum, present)
        ones, zeros = means(noise)
        share_of_all = mpmath.mpf(present) / counted
        match law:
            case ThreeNegativeBinomial():  # kp/(1−p) + r'p'/(1−p'): 1/15 + 4.5/29 of each kind
                expected = (share_of_all * (mpmath.mpf(1) / 15 + mpmath.mpf(9) / 58),) * 2
            case PoissonNoise() | NegativeBinomialNoise():  # λ = 1.5, and rp/(1−p) = 1.5
                expected = (share_of_all * mpmath.mpf("1.5"), mpmath.mpf(0))
            case Pure():  # 1/(e⁴ − 1) + 3/29 of each kind
                expected = (share_of_all * (1 / mpmath.expm1(4) + mpmath.mpf(3) / 29),) * 2
            case _:
                expected = (mpmath.mpf(0), mpmath.mpf(0))
        assert abs(ones - expected[0]) < 1e-20
        assert abs(zeros - expected[1]) < 1e-20


@pytest.mark.parametrize("name", ["3nb", "pure"])
def test_flood_is_common_to_ones_and_zeros_and_nothing_else_is(name: str) -> None:
    """Cov(ones, zeros) = Var(F): r p/(1−p)² for all users."""
    law = small_laws(3)[name]
    assert isinstance(law, ThreeNegativeBinomial | Pure)
    noise = noise_law(executed(law), 3)
    ones, zeros = means(noise)
    covariance = sum(weight * (key[0] - ones) * (key[1] - zeros) for key, weight in noise.items()) / UNIT
    p = mpmath.mpf(law.flood_continue_probability)
    assert abs(covariance - law.flood_shape * p / (1 - p) ** 2) < 1e-20


@pytest.mark.parametrize("name", BITSUMS)
def test_messages_per_user_are_as_many_as_accounted_for(name: str) -> None:
    for law in dyadic(small_laws(3)[name]):
        bitsum = executed(law)
        noise = noise_law(bitsum, 1)
        for bit in (0, 1):
            sent = sum(means(convolved(input_law(bitsum, (bit,)), noise)))
            assert float(sent) == pytest.approx(law.messages_per_user(mean_bit=bit), rel=1e-13)


def test_inputs_are_what_the_protocols_say() -> None:
    bits = np.array([[0], [1]], np.uint8)
    for name in ("3nb", "poisson", "negative-binomial"):
        tally = executed(small_laws(2)[name]).inputs(bits, Outcomes())
        assert (tally.ones.tolist(), tally.zeros.tolist()) == ([[0], [1]], [[0], [0]])
    tally = executed(small_laws(2)["rr"]).inputs(bits, Outcomes())
    assert (tally.ones.tolist(), tally.zeros.tolist()) == ([[0], [1]], [[1], [0]])
    speaking = executed(small_laws(2)["pure"]).inputs(bits, Outcomes((1, 1)))
    assert (speaking.ones.tolist(), speaking.zeros.tolist()) == ([[2], [3]], [[2], [2]])
    silent = executed(small_laws(2)["pure"]).inputs(bits, Outcomes((0, 0)))
    assert not silent.ones.any() | silent.zeros.any()


@pytest.mark.parametrize("base_messages", [254, 255, 256, 70_000])
def test_base_messages_beyond_a_byte_are_counted(base_messages: int) -> None:
    """s = 255 used to wrap around in the arithmetic of bytes: no ones at all for a bit of 1."""
    law = replace(small_pure(2, silence=0.25), flood_continue_probability=0.99999, base_messages=base_messages)
    bits = np.array([[0], [1]], np.uint8)
    tally = executed(law).inputs(bits, Outcomes((1, 1)))
    assert tally.ones.tolist() == [[base_messages], [base_messages + 1]]
    assert tally.zeros.tolist() == [[base_messages]] * 2


@pytest.mark.parametrize(("q", "spoken"), [(0.25, 0.75), (0.5, 0.5), (0.75, 0.25)])
def test_silence_has_the_planned_probability_on_both_sides_of_one_half(q: float, spoken: float) -> None:
    bitsum = executed(small_pure(2, silence=q))
    assert input_law(bitsum, (1,)) == {(3, 2): spoken * UNIT, (0, 0): q * UNIT}
    assert input_law(bitsum, (0,)) == {(2, 2): spoken * UNIT, (0, 0): q * UNIT}


def test_respond_rounds_and_flips_in_one_draw() -> None:
    bitsum = executed(RandomizedResponse(n_users=3, flip_probability=0.25))
    one = Outcomes((1,))
    bitsum.respond(np.array([[0.5]], np.float32), one)
    assert one.chance == 0.5 + 0.25 * 0.5
    for name in BITSUMS:
        unflipped = Outcomes((1,))
        if name != "rr":
            executed(small_laws(3)[name]).respond(np.array([[0.5]], np.float32), unflipped)
            assert unflipped.chance == 0.75


def test_every_protocol_is_executed_by_its_own_class() -> None:
    assert set(EXECUTED) == set(BITSUMS)
    for name, law in small_laws(2).items():
        assert executed(law).name == name == EXECUTED[name].name
        assert EXECUTED[name].__name__ == f"{BITSUMS[name].__name__}Bitsum", "a law has one name"
        assert law.one_message_each == (name == "rr")


@given(
    bits=st.lists(st.lists(st.integers(0, 1), min_size=3, max_size=3), max_size=700),
    large=st.lists(st.lists(st.integers(0, 2**40), min_size=3, max_size=3), max_size=5),
)
def test_sums_over_users_do_not_overflow(bits: list[list[int]], large: list[list[int]]) -> None:
    ones = np.array(bits, np.uint8).reshape(-1, 3)
    zeros = np.array(large, np.int64).reshape(-1, 3)
    total = Tally(ones, zeros).over_users()
    assert total.ones.tolist() == [sum(column) for column in zip(*bits, strict=True)] or not bits
    assert total.zeros.tolist() == [sum(column) for column in zip(*large, strict=True)] or not large
    assert total.ones.dtype == total.zeros.dtype == np.int64
    assert (total + total).ones.tolist() == (2 * total.ones).tolist()
    assert (total + total).zeros.tolist() == (2 * total.zeros).tolist()


@given(total=st.floats(1e-9, 1e9), n_users=st.integers(1, 10**9), counted=st.integers(1, 10**9))
def test_shares_are_exact(total: float, n_users: int, counted: int) -> None:
    assert share(total, n_users, counted) == Fraction(total) * Fraction(n_users, counted)
    assert share(total, 1, counted) * n_users == share(total, n_users, counted)
    assert share(total, counted, counted) == Fraction(total)


# Negative controls: the enumeration refutes what the published code and careless code do ----------------------------


def without_correction(tally: Tally, _n_users: int) -> NDArray[Any]:
    return np.asarray(tally.ones)


def difference(tally: Tally, _n_users: int) -> NDArray[Any]:
    return np.asarray(tally.ones - tally.zeros)


@pytest.mark.parametrize(
    ("name", "estimate"),
    [("rr", without_correction), ("pure", difference), ("poisson", without_correction)],
    ids=["Algorithm 2 without its correction", "no 1/(1−q)", "mean not subtracted"],
)
def test_biased_estimates_are_refuted(name: str, estimate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bitsum = executed(small_laws(2)[name])
    law = convolved(input_law(bitsum, (1, 1)), convolved(noise_law(bitsum, 1), noise_law(bitsum, 1)))
    assert abs(moments(bitsum, law, 2)[0] - 2) < 1e-20
    monkeypatch.setattr(type(bitsum), "estimate", lambda self, tally, n_users: estimate(tally, n_users))
    assert abs(moments(bitsum, law, 2)[0] - 2) > 0.1


def test_correction_for_the_wrong_number_of_users_is_refuted() -> None:
    for name in ("rr", "poisson", "negative-binomial"):
        bitsum = executed(small_laws(2)[name])
        law = convolved(input_law(bitsum, (1,)), noise_law(bitsum, 1))
        assert abs(moments(bitsum, law, 1)[0] - 1) < 1e-20
        assert abs(moments(bitsum, law, 2)[0] - 1) > 0.1


def test_shares_of_the_wrong_size_are_refuted() -> None:
    bitsum = executed(small_laws(3)["3nb"])
    together, total = noise_law(bitsum, 3), noise_law(bitsum, 2)
    shares = reduce(convolved, [noise_law(bitsum, 1)] * 3)
    assert distance(together, shares) < 1e-22
    assert distance(total, shares) > 0.01
