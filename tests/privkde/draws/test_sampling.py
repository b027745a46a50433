"""Draws from bytes: decisions against exact fractions at adversarial bytes, and who consumes which byte."""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special

from accounting.errors import InvalidInputError
from privkde.draws import sampling
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import (
    FLOAT_MARGIN,
    CdfTable,
    FastTable,
    bernoulli,
    column_sums,
    integers_below,
    normals,
    permutation,
)
from tests.memory import peak
from tests.strategies import searched


class Script:
    """A stream of chosen bytes, then of one byte for ever."""

    def __init__(self, data: bytes, filler: int = 0) -> None:
        self.data, self.filler, self.taken = data, filler, 0

    def take(self, count: int) -> NDArray[np.uint8]:
        part = self.data[self.taken : self.taken + count]
        self.taken += count
        return np.frombuffer(part + bytes([self.filler]) * (count - len(part)), dtype=np.uint8).copy()

    def uniform(self) -> Fraction:
        """0.b₁b₂… in base 256."""
        return (int.from_bytes(self.data, "big") + Fraction(self.filler, 255)) / Fraction(256) ** len(self.data)


def threshold(scaled: float, flip: float) -> Fraction:
    return Fraction(1, 2) + (Fraction(1, 2) - Fraction(flip)) * Fraction(scaled)


def agreeing(target: Fraction, n_bytes: int, move: int, tail: bytes) -> bytes:
    """The first `n_bytes` bytes of `target`, moved by `move` in the last place, and a tail."""
    top = 1 << 8 * n_bytes
    return min(max(int(target * top) + move, 0), top - 1).to_bytes(n_bytes, "big") + tail


def bit_of(scaled: float, flip: float, script: Script) -> int:
    return int(bernoulli(np.array([scaled], dtype=np.float32), script, flip=flip)[0])


def float53_bit(scaled: float, flip: float, script: Script) -> int:
    """The saboteur: what `rng.random() < p` does."""
    uniform = int.from_bytes(script.take(8).tobytes(), "big") >> 11
    return int(uniform * 2.0**-53 < 0.5 + (0.5 - flip) * scaled)


def float32_of(number: float) -> float:
    return float(np.float32(number))


near_steps = st.builds(  # 256·P(1) is nearly an integer for flip = 0
    lambda k, ulps: float(np.clip(np.float32(k / 128) + np.float32(ulps * 2.0**-24), -1, 1)),
    st.integers(-128, 128),
    st.integers(-2, 2),
)
features = st.one_of(
    st.floats(-1, 1, width=32),
    st.sampled_from([-1.0, 1.0, 0.0, 2.0**-149, -(2.0**-126), float32_of(1 - 2**-24), float32_of(2**-24 - 1)]),
    near_steps,
)
flips = st.one_of(
    st.floats(0, 0.5), st.sampled_from([0.0, 0.5, 0.25, 5e-324, 2.0**-60, float(np.nextafter(0.5, 0)), 1e-17])
)
agreements = st.sampled_from([1, 2, 6, 7, 8, 9, 16, 20])


@searched(
    given(scaled=features, flip=flips, n_bytes=agreements, move=st.integers(-2, 2), tail=st.binary(max_size=3)),
    examples=200,
    study=2000,
)
def test_bit_is_exactly_whether_u_is_below_the_threshold(
    scaled: float, flip: float, n_bytes: int, move: int, tail: bytes
) -> None:
    target = threshold(scaled, flip)
    script = Script(agreeing(target, n_bytes, move, tail), filler=7)
    assert bit_of(scaled, flip, script) == (script.uniform() < target)


@given(scaled=features, flip=flips, data=st.binary(min_size=1, max_size=24))
def test_bit_is_exact_at_arbitrary_bytes(scaled: float, flip: float, data: bytes) -> None:
    script = Script(data)
    assert bit_of(scaled, flip, script) == (script.uniform() < threshold(scaled, flip))


def mistakes(decide: Callable[[float, float, Script], int]) -> int:
    """Wrong decisions at uniforms that agree with the threshold for 8 and 16 bytes."""
    rng = np.random.default_rng(5)
    wrong = 0
    for scaled, flip in zip(rng.uniform(-1, 1, 100).astype(np.float32).tolist(), rng.uniform(0, 0.5, 100), strict=True):
        target = threshold(scaled, float(flip))
        for n_bytes in (8, 16):
            for move in (-1, 0, 1):
                script = Script(agreeing(target, n_bytes, move, b""))
                wrong += decide(scaled, float(flip), script) != (script.uniform() < target)
    return wrong


def test_float53_saboteur_is_caught_by_decisions() -> None:
    """No sample of this world would show a defect of 2^−53; a chosen uniform does."""
    assert mistakes(bit_of) == 0
    assert mistakes(float53_bit) > 50


def test_each_level_is_reached_and_takes_no_more_bytes_than_it_needs() -> None:
    scaled, flip = float32_of(0.3), 0.1
    target = threshold(scaled, flip)
    taken = []
    for n_bytes, move in ((1, 5), (1, 0), (8, 0), (9, 0), (10, 1)):
        script = Script(agreeing(target, n_bytes, move, b""), filler=9)
        bit_of(scaled, flip, script)
        taken.append(script.taken)
    assert taken == [1, 8, 9, 10, 10]


@pytest.mark.parametrize("byte", range(0, 256, 5))
def test_every_entry_of_a_block_is_decided_by_its_own_feature(byte: int) -> None:
    """All bytes equal: U = byte/255 for every entry, at every level."""
    rng = np.random.default_rng(byte)
    scaled = rng.uniform(-1, 1, (6, 50)).astype(np.float32)
    for flip in rng.uniform(0, 0.5, 6).tolist():
        bits = bernoulli(scaled, Script(b"", filler=byte), flip=flip)
        assert bits.tolist() == [
            [Fraction(byte, 255) < threshold(float(entry), flip) for entry in row] for row in scaled
        ]
        assert bits.dtype == np.uint8


def test_entries_of_a_large_block_keep_their_places() -> None:
    """More than are decided together, and not a multiple of that."""
    scaled = np.random.default_rng(5).uniform(-1, 1, (3, 170_001)).astype(np.float32)
    ones = 0.5 + 0.4 * scaled.astype(np.float64)
    assert np.abs(ones - 100 / 255).min() > 1e-9
    assert np.array_equal(bernoulli(scaled, Script(b"", filler=100), flip=0.1), ones > 100 / 255)


def test_each_byte_is_used_once() -> None:
    """One byte per entry, then seven for each entry in a window of two bytes around its threshold."""

    class Counting:
        def __init__(self) -> None:
            self.stream, self.counts = ByteStream(bytes(range(32))), list[int]()

        def take(self, count: int) -> NDArray[np.uint8]:
            self.counts.append(count)
            return self.stream.take(count)

    source, scaled = Counting(), np.linspace(-1, 1, 128 * 768, dtype=np.float32).reshape(128, 768)
    bernoulli(scaled, source)
    assert source.counts[0] == scaled.size
    assert source.counts[1] == pytest.approx(7 * scaled.size * 2 / 256, rel=0.2)
    assert len(source.counts) == 2


def test_certain_bits_are_certain() -> None:
    ones = np.ones((300, 1000), dtype=np.float32)
    stream = ByteStream(bytes(32))
    assert bernoulli(ones, stream).all()
    assert not bernoulli(-ones, stream).any()
    for byte in range(256):
        assert bit_of(1.0, 0.0, Script(b"", filler=byte)) == 1
        assert bit_of(-1.0, 0.0, Script(b"", filler=byte)) == 0


def test_half_flips_forget_the_feature() -> None:
    scaled = np.linspace(-1, 1, 1000, dtype=np.float32)
    first = bernoulli(scaled, ByteStream(bytes(32)), flip=0.5)
    assert np.array_equal(first, bernoulli(-scaled, ByteStream(bytes(32)), flip=0.5))
    assert 0 < first.sum() < 1000


@given(scaled=features, flip=flips, uniform=st.integers(0, 2**64 - 1))
def test_floating_point_errors_are_within_the_proved_bounds(scaled: float, flip: float, uniform: int) -> None:
    """docs/proofs/sampling.md, Lemmas 1 and 2, on the formulas as the code evaluates them."""
    exact = threshold(scaled, flip)
    guess = np.float32(scaled) * np.float32(256.0 * (0.5 - flip)) + np.float32(127.5)
    assert abs(Fraction(float(guess)) + Fraction(1, 2) - 256 * exact) <= Fraction(1, 2**15)
    gap = ((0.5 - flip) * scaled + 0.5) - float(np.uint64(uniform)) * 2.0**-64
    assert abs(Fraction(gap) - (exact - Fraction(uniform, 2**64))) <= Fraction(FLOAT_MARGIN) / 2


@pytest.mark.parametrize(
    ("scaled", "flip", "match"),
    [
        (np.array([1.5]), 0.0, "float64"),
        (np.array([1.0 + 1e-6], dtype=np.float32), 0.0, "clip"),
        (np.array([np.nan], dtype=np.float32), 0.0, "clip"),
        (np.array([1.0], dtype=np.float32), -1e-9, "1/2"),
        (np.array([1.0], dtype=np.float32), 0.51, "1/2"),
        (np.array([1.0], dtype=np.float32), np.nan, "1/2"),
    ],
)
def test_unusable_input_is_refused(scaled: NDArray[np.float32], flip: float, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        bernoulli(scaled, ByteStream(bytes(32)), flip=flip)


def test_layout_in_memory_does_not_matter() -> None:
    """A transposed view, a slice and a copy are the same features: same bytes, same bits."""
    block = np.random.default_rng(2).uniform(-1, 1, (400, 600)).astype(np.float32)
    for view in (block.T, block[::2, 1::3], block[::-1]):
        expected = bernoulli(view.copy(order="C"), ByteStream(bytes(32)), flip=0.1)
        assert np.array_equal(bernoulli(view, ByteStream(bytes(32)), flip=0.1), expected)


def test_an_empty_block_needs_no_bytes() -> None:
    script = Script(b"")
    assert bernoulli(np.empty((0, 5), dtype=np.float32), script).shape == (0, 5)
    assert script.taken == 0


def test_threads_with_their_own_streams_draw_what_one_thread_draws() -> None:
    scaled = np.random.default_rng(1).uniform(-1, 1, (64, 768)).astype(np.float32)

    def draw(key: int) -> NDArray[np.uint8]:
        return bernoulli(scaled, ByteStream(bytes([key]) * 32), flip=0.2)

    with ThreadPoolExecutor(2) as pool:
        assert all(np.array_equal(*pair) for pair in zip(pool.map(draw, range(8)), map(draw, range(8)), strict=True))


@pytest.mark.parametrize("rows", [0, 1, 254, 255, 256, 510, 511, 2000])
def test_column_sums_do_not_overflow(rows: int) -> None:
    ones = np.ones((rows, 3), dtype=np.uint8)
    assert column_sums(ones).tolist() == [rows] * 3
    bits = np.random.default_rng(rows).integers(0, 2, (rows, 7), dtype=np.uint8)
    assert column_sums(bits).tolist() == bits.sum(axis=0, dtype=np.int64).tolist()
    assert column_sums(bits).dtype == np.int64


UNDECIDED = -7


def fast_decision(table: CdfTable, uniform: int) -> int | None:
    """Through `FastTable`, whose deeper level only reports that it was asked."""
    drawn = FastTable.of(table).sample((), Script(uniform.to_bytes(8, "big")), lambda _: UNDECIDED).item()
    return None if drawn == UNDECIDED else int(drawn)


@pytest.mark.parametrize(("bits", "decide"), [(8, CdfTable.decide), (64, fast_decision)])
@searched(
    given(
        exact=st.lists(st.fractions(0, 200, max_denominator=4), min_size=1, max_size=4).map(sorted),
        errors=st.lists(
            st.sampled_from([Fraction(-2), Fraction(-1, 4), Fraction(0), Fraction(1, 4), Fraction(2)]), min_size=4
        ),
        offset=st.integers(0, 50),
    ),
    examples=200,
    study=1000,
)
def test_tables_decide_rightly_or_not_at_all(
    bits: int,
    decide: Callable[[CdfTable, int], int | None],
    exact: list[Fraction],
    errors: list[Fraction],
    offset: int,
) -> None:
    """Whatever the errors within the slack: a decided value is that of every U with the bits seen."""
    steps = sorted(max(0, math.floor(step + error)) for step, error in zip(exact, errors, strict=False))
    table = CdfTable(first=3, steps=[*steps, 2**bits], bits=bits, slack=2)
    for uniform in range(offset, 256, 50):
        value = decide(table, uniform)
        at_most, below = sum(step <= uniform for step in exact), sum(step < uniform + 1 for step in exact)
        assert value is None or value == 3 + at_most == 3 + below


def test_tables_do_decide() -> None:
    """Only within the slack of a step is a table silent."""
    table = CdfTable(first=0, steps=[10, 100, 256], bits=8, slack=1)
    silent = [uniform for uniform in range(256) if table.decide(uniform) is None]
    assert silent == [9, 10, 11, 99, 100, 101, 255]
    wide = CdfTable(first=0, steps=[10, 100, 2**64], bits=64, slack=1)
    assert [uniform for uniform in range(256) if fast_decision(wide, uniform) is None] == silent[:-1]
    assert fast_decision(wide, 2**64 - 1) is None


@pytest.mark.parametrize("bound", [2, 3, 7, 10, 128, 129, 255, 256])
def test_integers_from_every_byte_are_exactly_uniform(bound: int) -> None:
    """Each value comes from equally many bytes; the others are drawn again."""
    script = Script(bytes(range(256)))
    drawn = integers_below(bound, 256, script)
    kept = 256 // bound * bound
    assert np.bincount(drawn[:kept], minlength=bound).tolist() == [256 // bound] * bound
    assert script.taken == 256 + (256 - kept)  # drawn again, from the filler
    assert not drawn[kept:].any()


@pytest.mark.parametrize("bound", [257, 1000, 40_000, 65_536])
def test_integers_from_every_two_bytes_are_exactly_uniform(bound: int) -> None:
    script = Script(np.arange(65_536, dtype=">u2").tobytes())
    drawn = integers_below(bound, (256, 256), script).reshape(-1)
    kept = 65_536 // bound * bound
    assert np.bincount(drawn[:kept], minlength=bound).tolist() == [65_536 // bound] * bound
    assert script.taken == 2 * 65_536 + 2 * (65_536 - kept)


@given(bound=st.integers(2, 2**63), data=st.binary(min_size=64, max_size=64))
def test_integers_are_the_first_accepted_word_modulo_the_bound(bound: int, data: bytes) -> None:
    width = ((bound - 1).bit_length() + 7) // 8
    data = data[: 64 // width * width]
    drawn = [int.from_bytes(data[i : i + width], "big") for i in range(0, len(data), width)]
    accepted = [word for word in drawn if word < 256**width // bound * bound]
    expected = accepted[0] % bound if accepted else 0
    assert integers_below(bound, (), Script(data)).item() == expected


@pytest.mark.parametrize("bound", [0, -1, 2**63 + 1, True])
def test_impossible_bounds_are_refused(bound: int) -> None:
    with pytest.raises(InvalidInputError, match="bound"):
        integers_below(bound, 3, ByteStream(bytes(32)))


def keys(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "big") for number in numbers)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
def test_every_order_of_the_keys_gives_its_own_permutation(length: int) -> None:
    """Distinct i.i.d. keys are equally likely in every order, and orders and permutations correspond one to one."""
    orders = list(permutations([8, 2**63, 2**63 + 8, 2**64 - 1, 16][:length]))
    seen = {tuple(permutation(length, Script(keys(*order))).tolist()) for order in orders}
    assert seen == set(permutations(range(length)))


@pytest.mark.parametrize(
    ("drawn", "order"),
    [
        (keys(4, 0, 4) + keys(0, 2), [1, 0, 2]),
        (keys(4, 0, 4) + keys(2, 0), [1, 2, 0]),
        (keys(4, 0, 5) + keys(3, 2) + keys(0, 2), [1, 0, 2]),  # the last bits hold the number; a tie again
        (keys(0, 4, 0, 4) + keys(16, 8, 4, 12), [2, 0, 1, 3]),
        (keys(0, 4, 0, 4) + keys(8, 16, 12, 4), [0, 2, 3, 1]),
        (keys(7, 7, 7) + keys(32, 12, 20), [1, 2, 0]),
    ],
)
def test_those_with_equal_keys_are_shuffled_among_themselves(drawn: bytes, order: list[int]) -> None:
    script = Script(drawn)
    assert permutation(len(order), script).tolist() == order
    assert script.taken == len(drawn)


@pytest.mark.parametrize("length", [2, 3, 4])
def test_every_order_is_equally_likely_with_keys_of_one_bit(length: int) -> None:
    """Enumerated over the keys of the first round, 0 or 1, times all orders of those that are tied."""
    seen: Counter[tuple[int, ...]] = Counter()
    for bits in itertools.product([0, 2**63], repeat=length):
        tied = sum(n for n in Counter(bits).values() if n > 1)
        again = list(permutations(range(8, 8 * tied + 8, 8)))
        for order in again:
            found = permutation(length, Script(keys(*bits) + keys(*order)))
            seen[tuple(found.tolist())] += math.factorial(5) // len(again)
    assert seen.keys() == set(permutations(range(length)))
    assert len(set(seen.values())) == 1


@pytest.mark.parametrize("together", [1, 3, 8])
def test_drawing_a_few_at_a_time_gives_the_same_order(together: int) -> None:
    data = np.random.default_rng(together).bytes(8 * 200) + keys(*range(0, 8 * 256 * 200, 8 * 256))
    data = b"".join(bytes([data[at] & 15]) + bytes(6) + data[at + 7 : at + 8] for at in range(0, 1600, 8)) + data[1600:]
    whole = permutation(200, Script(data)).tolist()
    assert sorted(whole) == list(range(200))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "_AT_ONCE", together)
        assert permutation(200, Script(data)).tolist() == whole


def test_an_order_takes_eight_bytes_for_each_of_its_numbers() -> None:
    stream = ByteStream(bytes(32))
    assert peak(lambda: permutation(10**6, stream)) < 11 * 10**6


def test_permutation_of_nothing_and_of_many() -> None:
    assert permutation(0, Script(b"")).tolist() == []
    assert sorted(permutation(10_000, ByteStream(bytes(32))).tolist()) == list(range(10_000))


@pytest.mark.parametrize("leading", [0, 1, 2**52 - 1])
def test_normals_are_symmetric_and_finite_at_the_ends_of_the_grid(leading: int) -> None:
    """The 52 leading bits choose a point of the lower half of the grid, exactly; the last bit its sign."""
    point = special.ndtri(float(Fraction(2 * leading + 1, 2**54)))
    drawn = normals(2, Script(keys(leading << 12, leading << 12 | 1)))
    assert drawn.tolist() == [-point, point]
    assert np.isfinite(drawn).all()


def test_normals_follow_the_normal_law() -> None:
    """Dvoretzky–Kiefer–Wolfowitz at level 1e-9, and one level beyond: squares and signs."""
    drawn = np.sort(normals((1000, 300), ByteStream(bytes(32))).reshape(-1))
    n = drawn.size
    ranks = np.arange(1, n + 1) / n
    distance = np.max(np.abs(special.ndtr(drawn) - ranks)) + 1 / n
    assert distance < np.sqrt(np.log(2e9) / (2 * n))
    assert abs(drawn.mean()) < 7 / np.sqrt(n)
    assert abs(drawn.var() - 1) < 7 * np.sqrt(2 / n)
