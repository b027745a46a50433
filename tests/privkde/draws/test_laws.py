"""Laws drawn by inversion: tables against mpmath, decisions against an independent inversion at adversarial bytes."""

import math
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import accumulate
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special

from accounting.errors import InfeasibleError, InvalidInputError
from accounting.mechanisms import LabelResponse
from privkde.bitsum.execution import share as users_share
from privkde.draws import laws
from privkde.draws.laws import DiscreteLaw, KeepLabel, NegativeBinomial, Poisson, exponential_below
from privkde.draws.randomness import ByteStream
from privkde.draws.sampling import CdfTable
from tests.privkde.draws.test_sampling import Script, agreeing
from tests.strategies import searched

REFERENCE_BITS = 700
"""Working precision of the independent distribution functions; bytes up to the 60th can be compared with them."""

SMALL_LAWS: list[DiscreteLaw] = [
    NegativeBinomial(shape=Fraction(1, 20_000), continue_probability=0.6),
    NegativeBinomial(shape=1e-9, continue_probability=0.5),
    NegativeBinomial(shape=0.3, decay=0.7),
    NegativeBinomial(shape=Fraction(1, 3), continue_probability=Fraction(1, 3)),
    NegativeBinomial(shape=1, decay=Fraction(1, 2)),
    NegativeBinomial(shape=1.5, continue_probability=0.7),
    NegativeBinomial(shape=200.5, continue_probability=0.3),
    NegativeBinomial(shape=1, decay=40),
    Poisson(rate=1e-9),
    Poisson(rate=Fraction(7, 3)),
    Poisson(rate=300.25),
    KeepLabel(n_classes=2, label_epsilon=0.1),
    KeepLabel(n_classes=10, label_epsilon=2.0),
    KeepLabel(n_classes=1000, label_epsilon=Fraction(1, 3)),
    KeepLabel(n_classes=3, label_epsilon=60.0),
]
WIDER_LAWS: list[DiscreteLaw] = [
    NegativeBinomial(shape=Fraction(1, 20_000), continue_probability=0.9),
    NegativeBinomial(shape=0.3, decay=0.2),
    NegativeBinomial(shape=1, decay=Fraction(1, 10)),
    NegativeBinomial(shape=1.5, continue_probability=0.9),
]
EVERY_LAW = [*SMALL_LAWS, *(pytest.param(law, marks=pytest.mark.slow) for law in WIDER_LAWS)]


def precise(number: Fraction | float) -> Any:
    return mpmath.mpf(Fraction(number).numerator) / Fraction(number).denominator


def reference_mass(law: DiscreteLaw) -> Callable[[int], Any]:
    """The mass function from its definition, by gamma functions: nothing shared with the tables."""
    match law:
        case NegativeBinomial():
            r = precise(law.shape)
            if law.continue_probability is None:
                assert law.decay is not None
                p = mpmath.exp(-precise(law.decay))
            else:
                p = precise(law.continue_probability)
            return lambda k: mpmath.gammaprod([k + r], [r, k + 1]) * (1 - p) ** r * p**k
        case Poisson():
            rate = precise(law.rate)
            return lambda k: mpmath.exp(k * mpmath.log(rate) - rate) / mpmath.factorial(k)
        case KeepLabel():
            keep = 1 / (1 + (law.n_classes - 1) * mpmath.exp(-precise(law.label_epsilon)))
            return lambda k: (1 - keep, keep)[k] if k < 2 else mpmath.mpf(0)
        case _:
            raise NotImplementedError(law)


@cache
def reference_cdf(law: DiscreteLaw) -> list[int]:
    """⌊P(X ≤ k)·2^600⌋ for k = 0, 1, …, up to a mass of about 2^−300."""
    with mpmath.workprec(REFERENCE_BITS):
        mass = reference_mass(law)
        total, found = mpmath.mpf(0), []
        for k in range(10**5):
            here = mass(k)
            total += here
            found.append(int(mpmath.floor(total * mpmath.mpf(2) ** 600)))
            if k > law.mean() and here < mpmath.mpf(2) ** -300:
                return found
    raise AssertionError("the reference does not end")


@pytest.mark.parametrize("bits", [64, 128, 256])
@pytest.mark.parametrize("law", EVERY_LAW, ids=str)
def test_every_step_of_a_table_is_within_its_stated_error(law: DiscreteLaw, bits: int) -> None:
    table, reference = law.cdf_table(bits), reference_cdf(law)
    assert (table.bits, table.slack) == (bits, 1)
    scale = 2 ** (600 - bits)
    for j, step in enumerate(table.steps):
        if table.first + j < len(reference):
            # ⌊s⌋ ≤ s < ⌊s⌋ + 1 and |s − exact| is far below the slack: the proof gives 2^−13 for these short windows
            assert Fraction(-1, 1000) < Fraction(reference[table.first + j], scale) - step < 1 + Fraction(1, 1000)
    assert table.steps == sorted(table.steps)


@pytest.mark.parametrize("law", EVERY_LAW, ids=str)
def test_window_leaves_out_less_than_it_may(law: DiscreteLaw) -> None:
    table, reference = law.cdf_table(64), reference_cdf(law)
    last = table.first + len(table.steps) - 1
    if not isinstance(law, KeepLabel):
        assert 2**600 - reference[last] <= 2 ** (600 - 80)
        assert 2**600 - reference[max(last - 2, 0)] >= 2 ** (600 - 100), "the window is much wider than it needs to be"
    if table.first:
        assert reference[table.first] <= 2 ** (600 - 80)


@pytest.mark.parametrize("p", [0.999, pytest.param(0.9999, marks=pytest.mark.slow)])
def test_tails_of_tiny_shapes_are_bounded_by_their_limiting_ratio(p: float) -> None:
    """For r < 1 the ratios grow toward p: a bound by the ratio at the end of the window would be too small."""
    law = NegativeBinomial(shape=Fraction(1, 2**82), continue_probability=p)
    table = law.cdf_table(64)
    assert table.first == 0
    with mpmath.workprec(300):
        mass = reference_mass(law)
        assert 1 - mpmath.fsum(mass(k) for k in range(len(table.steps))) <= mpmath.mpf(2) ** -80
        assert 1 - mass(0) - mass(1) > mpmath.mpf(2) ** -80


@pytest.mark.parametrize("law", EVERY_LAW, ids=str)
def test_total_variation_of_a_table_is_negligible(law: DiscreteLaw) -> None:
    table, reference = law.cdf_table(128), reference_cdf(law)
    ends = [0, *table.steps, 2**128]
    own = np.diff(np.array(ends, dtype=object))
    exact = np.diff(np.array([0, *(reference[table.first : table.first + len(table.steps)]), 2**600], dtype=object))
    distance = sum(abs(Fraction(int(a), 2**128) - Fraction(int(b), 2**600)) for a, b in zip(own, exact, strict=True))
    assert distance / 2 < Fraction(len(ends), 2**127)


@pytest.mark.parametrize(
    "law",
    [
        Poisson(rate=1e8),
        Poisson(rate=12345678.9),
        NegativeBinomial(shape=10**6, continue_probability=0.5),
        NegativeBinomial(shape=123456.7, decay=0.05),
        NegativeBinomial(shape=3, continue_probability=0.9999),
    ],
    ids=str,
)
def test_wide_laws_match_special_functions(law: DiscreteLaw) -> None:
    table = law.cdf_table(64)
    deviation = math.sqrt(law.variance())
    assert len(table.steps) > 20_000
    for z in (-7, -3, -1, 0, 1, 3, 7):
        k = max(1, round(law.mean() + z * deviation))
        cdf = table.steps[k - table.first] / 2**64
        mass = (table.steps[k - table.first] - table.steps[k - table.first - 1]) / 2**64
        with mpmath.workdps(60):
            expected = float(reference_mass(law)(mpmath.mpf(k)))
        assert mass == pytest.approx(expected, rel=1e-9, abs=1e-18)
        if isinstance(law, Poisson):
            exact = special.gammaincc(k + 1, float(law.rate))
        else:
            assert isinstance(law, NegativeBinomial)
            odds = law.mean() / float(law.shape)
            exact = special.betainc(float(law.shape), k + 1, 1 / (1 + odds))
        assert cdf == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("laws", [SMALL_LAWS, pytest.param(WIDER_LAWS, marks=pytest.mark.slow)], ids=["small", "wider"])
@searched(
    given(
        number=st.integers(0, 59),
        place=st.floats(0, 1),
        n_bytes=st.sampled_from([1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33]),
        move=st.integers(-2, 2),
        tail=st.binary(max_size=3),
    ),
    examples=150,
    study=2000,
)
def test_draw_is_the_smallest_value_whose_cdf_exceeds_u(
    *, laws: list[DiscreteLaw], number: int, place: float, n_bytes: int, move: int, tail: bytes
) -> None:
    """U agrees with a step of the distribution function for up to 33 bytes: all levels up to 512 bits are met."""
    law = laws[number % len(laws)]
    reference = reference_cdf(law)
    step = Fraction(reference[int(place * (len(reference) - 1))], 2**600)
    script = Script(agreeing(step, n_bytes, move, tail), filler=11)
    expected = bisect_right(reference, int(script.uniform() * 2**600))
    assert law.sample((), script).item() == expected


@pytest.mark.parametrize("law", EVERY_LAW, ids=str)
@pytest.mark.parametrize("edge", [b"\0" * 12 + b"\1", b"\0" * 20 + b"\1", b"\xff" * 12, b"\xff" * 20])
def test_draws_from_beyond_the_window_are_exact(law: DiscreteLaw, edge: bytes) -> None:
    reference, script = reference_cdf(law), Script(edge, filler=3)
    assert law.sample((), script).item() == bisect_right(reference, int(script.uniform() * 2**600))


def test_levels_take_one_then_eight_then_sixteen_bytes() -> None:
    law = Poisson(rate=Fraction(7, 3))
    step = Fraction(reference_cdf(law)[2], 2**600)
    taken = []
    for n_bytes in (1, 2, 8, 16, 32):
        script = Script(agreeing(step, n_bytes, 0, b""), filler=1)
        law.sample((), script)
        taken.append(script.taken)
    assert taken == [8, 8, 16, 32, 64]
    script = Script(b"\x01")
    assert law.sample((), script).item() == 0
    assert script.taken == 1


@given(
    shape=st.integers(1, 4), p=st.fractions(Fraction(1, 50), Fraction(4, 5)), data=st.binary(min_size=1, max_size=20)
)
def test_whole_shapes_are_inverted_in_rational_arithmetic(shape: int, p: Fraction, data: bytes) -> None:
    """For whole r the distribution function is rational: no mpmath."""
    script = Script(data)
    uniform, k, cdf = script.uniform(), 0, Fraction(0)
    while True:
        cdf += math.comb(k + shape - 1, k) * (1 - p) ** shape * p**k
        if uniform < cdf:
            break
        k += 1
    assert NegativeBinomial(shape=shape, continue_probability=p).sample((), script).item() == k


@pytest.mark.parametrize("law", EVERY_LAW, ids=str)
@pytest.mark.parametrize("byte", [1, 77, 128, 200, 254])
def test_every_entry_of_a_block_gets_its_own_value(law: DiscreteLaw, byte: int) -> None:
    """Equal bytes give equal values in any shape, whatever the level that decides."""
    drawn = law.sample((3, 4), Script(b"", filler=byte))
    expected = bisect_right(reference_cdf(law), int(Fraction(byte, 255) * 2**600))
    assert drawn.shape == (3, 4)
    assert drawn.dtype == np.int64
    assert np.all(drawn == expected)


def test_block_draws_equal_single_draws_of_the_same_bytes() -> None:
    """Rows of bytes that one level decides, in one block and one by one: values land where their bytes came from."""
    law = Poisson(rate=Fraction(7, 3))
    data = bytes(range(256))
    block = Script(data, filler=5)
    drawn = law.sample(256, block)
    singles = [law.sample((), Script(bytes([byte]), filler=5)).item() for byte in data]
    assert drawn.tolist() == singles
    assert len(set(singles)) == 8


def convolved(first: list[Fraction], second: list[Fraction]) -> list[Fraction]:
    size = len(first) + len(second) - 1
    out = [Fraction(0)] * size
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            out[i + j] += a * b
    return out


def masses(table: CdfTable) -> list[Fraction]:
    assert table.first == 0
    return [Fraction(b - a, 2**table.bits) for a, b in zip([0, *table.steps], table.steps, strict=False)]


@pytest.mark.parametrize("n_users", [2, 3, 7])
@pytest.mark.parametrize(
    "law",
    [
        NegativeBinomial(shape=Fraction(5, 4), continue_probability=0.25),
        NegativeBinomial(shape=0.7, decay=1.5),
        Poisson(rate=Fraction(3, 2)),
    ],
    ids=str,
)
def test_shares_add_up_to_the_whole(law: NegativeBinomial | Poisson, n_users: int) -> None:
    """The n-fold convolution of NB(r/n, p) is NB(r, p), and likewise for Poisson, to 25 digits."""
    if isinstance(law, Poisson):
        part: DiscreteLaw = Poisson(rate=users_share(law.rate, 1, n_users))
    else:
        part = replace(law, shape=users_share(law.shape, 1, n_users))
    share, whole = masses(part.cdf_table(128))[:40], masses(law.cdf_table(128))
    total = share
    for _ in range(n_users - 1):
        total = convolved(total, share)[:40]
    assert max(abs(a - b) for a, b in zip(total, whole, strict=False)) < Fraction(1, 10**25)
    assert max(abs(a - b) for a, b in zip(share, whole, strict=False)) > Fraction(1, 100), "dividing changes nothing?"


@pytest.mark.parametrize("law", EVERY_LAW, ids=str)
def test_moments_are_those_of_the_table(law: DiscreteLaw) -> None:
    table = law.cdf_table(128)
    ends = [*table.steps, 2**128]
    survival = [Fraction(2**128 - step, 2**128) for step in ends]
    mean = table.first + sum(survival)
    square = table.first**2 + sum((2 * (table.first + j) + 1) * tail for j, tail in enumerate(survival))
    assert law.mean() == pytest.approx(float(mean), rel=1e-12)
    assert law.variance() == pytest.approx(float(square - mean**2), rel=1e-9)


@pytest.mark.parametrize(("n_classes", "epsilon"), [(2, 0.5), (10, 2.0), (1000, 8.0)])
def test_labels_are_kept_as_the_accountant_says(n_classes: int, epsilon: float) -> None:
    law = KeepLabel(n_classes=n_classes, label_epsilon=epsilon)
    declared = LabelResponse(n_classes=n_classes, label_epsilon=epsilon).keep_probability
    assert law.mean() == pytest.approx(declared, rel=1e-15)
    (step,) = law.cdf_table(64).steps  # and none at 1, which no U reaches
    assert 1 - step / 2**64 == pytest.approx(declared, rel=1e-15)


@given(st.fractions(Fraction(1, 10**15), 1000), st.integers(1, 600))
def test_exponential_is_bracketed(exponent: Fraction, bits: int) -> None:
    below = exponential_below(exponent, bits)
    with mpmath.workprec(bits + 200):
        excess = mpmath.exp(precise(exponent)) / precise(below) - 1
        assert 0 <= excess <= mpmath.mpf(2) ** -bits


@pytest.mark.parametrize(
    "law",
    [
        pytest.param(Poisson(rate=1e15), marks=pytest.mark.slow),
        NegativeBinomial(shape=1, continue_probability=1 - 1e-9),
    ],
    ids=str,
)
def test_too_wide_laws_are_refused_before_anything_is_drawn(law: DiscreteLaw) -> None:
    script = Script(b"")
    with pytest.raises(InfeasibleError, match="2,000,000 values") as error:
        law.sample(1, script)
    assert "rr" in str(error.value)
    assert script.taken == 0


@pytest.mark.parametrize("law", [Poisson(rate=300), NegativeBinomial(shape=30, continue_probability=0.9)], ids=str)
def test_the_limit_counts_the_whole_window(law: DiscreteLaw, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(law.cdf_table(64).steps) - 1  # the first step is that of what lies below the window
    monkeypatch.setattr(laws, "LARGEST_WINDOW", size)
    assert len(law.cdf_table(64).steps) == size + 1
    monkeypatch.setattr(laws, "LARGEST_WINDOW", size - 1)
    with pytest.raises(InfeasibleError):
        law.cdf_table(64)


def test_deeper_tables_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal that depended on U would change the law, and tell."""
    law = Poisson(rate=Fraction(22, 7))
    size = len(law.cdf_table(64).steps)
    monkeypatch.setattr(laws, "LARGEST_WINDOW", size)
    assert len(law.cdf_table(128).steps) > size


@pytest.mark.parametrize(
    "make",
    [
        lambda: NegativeBinomial(shape=0, continue_probability=0.5),
        lambda: NegativeBinomial(shape=math.nan, continue_probability=0.5),
        lambda: NegativeBinomial(shape=True, continue_probability=0.5),
        lambda: NegativeBinomial(shape=1, continue_probability=1.0),
        lambda: NegativeBinomial(shape=1, continue_probability=0.0),
        lambda: NegativeBinomial(shape=1),
        lambda: NegativeBinomial(shape=1, continue_probability=0.5, decay=1),
        lambda: NegativeBinomial(shape=1, decay=0),
        lambda: Poisson(rate=-1),
        lambda: Poisson(rate=math.inf),
        lambda: KeepLabel(n_classes=1, label_epsilon=1),
        lambda: KeepLabel(n_classes=2, label_epsilon=0),
    ],
)
def test_impossible_parameters_are_refused(make: Callable[[], DiscreteLaw]) -> None:
    with pytest.raises(InvalidInputError):
        make()


def test_equal_laws_are_one_law_however_their_numbers_are_written() -> None:
    first = NegativeBinomial(shape=0.5, continue_probability=0.25)
    assert first == NegativeBinomial(shape=Fraction(1, 2), continue_probability=Fraction(1, 4))
    assert hash(first) == hash(NegativeBinomial(shape=Fraction(1, 2), continue_probability=Fraction(1, 4)))
    assert Poisson(rate=3) == Poisson(rate=Fraction(3))


def test_threads_build_and_use_the_same_tables() -> None:
    law = NegativeBinomial(shape=Fraction(3, 1000), decay=Fraction(17, 1000))

    def draw(key: int) -> NDArray[np.int64]:
        return law.sample(20_000, ByteStream(bytes([key]) * 32))

    with ThreadPoolExecutor(2) as pool:
        parallel = list(pool.map(draw, range(6)))
    assert all(np.array_equal(a, draw(key)) for key, a in enumerate(parallel))
    assert sum(int(a.sum()) for a in parallel) > 0


@pytest.mark.parametrize("law", EVERY_LAW, ids=str)
def test_reference_is_a_law(law: DiscreteLaw) -> None:
    """The twin itself: its masses add up to one, from below."""
    reference = reference_cdf(law)
    assert 2**600 - 2**320 < reference[-1] <= 2**600
    assert all(a <= b for a, b in zip(reference, accumulate(reference, max), strict=True))
