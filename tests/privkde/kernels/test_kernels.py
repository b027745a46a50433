"""LSQ families: reproducible draws, published test vectors, exact expectations by enumeration, refusals.

The statistical half, E[f·g] = k over many repetitions, is in tests/verification/statistical/test_kernel_means.py.
"""

import hashlib
import hmac
import itertools
import json
import math
import struct
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from accounting.errors import InvalidInputError
from accounting.kernels import KERNELS
from privkde.draws.randomness import ByteStream, public_stream
from privkde.kernels import KernelChoice, LsqFamily
from privkde.kernels import public_draws as draws
from privkde.kernels.gaussian import GaussianFamily
from privkde.kernels.hashed import Cuts, ExponentialFamily, LaplacianFamily, inverse_mean_projection
from privkde.kernels.inner_product import SignFamily
from privkde.kernels.lsq_family import Float64

SEED = "000102030405060708090a0b0c0d0e0f"
VECTORS = json.loads((Path(__file__).parent / "public_vectors.json").read_text(encoding="utf-8"))
HASHED = ("laplacian", "exponential")


def stream(*labels: str | int) -> ByteStream:
    return public_stream(SEED).child(*labels)


# --- an independent twin of the whole chain from seed to parameter: integers, and mpmath's logarithm ---------------


def chacha20(key: bytes) -> Iterator[int]:
    """Bytes of the ChaCha20 keystream with counter and nonce zero, from RFC 8439."""

    def quarter(s: list[int], a: int, b: int, c: int, d: int) -> None:
        for add, other, to, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[add] = (s[add] + s[other]) % 2**32
            mixed = s[to] ^ s[add]
            s[to] = (mixed << turn | mixed >> (32 - turn)) % 2**32

    for counter in itertools.count():
        start = list(struct.unpack("<4I", b"expand 32-byte k") + struct.unpack("<8I", key) + (counter, 0, 0, 0))
        state = start.copy()
        for _ in range(10):
            for column in range(4):
                quarter(state, column, column + 4, column + 8, column + 12)
            for column in range(4):
                quarter(state, column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
        yield from struct.pack("<16I", *((a + b) % 2**32 for a, b in zip(start, state, strict=True)))


class Twin:
    """The draws as docs/proofs/kernels.md defines them, one number at a time."""

    def __init__(self, key: bytes) -> None:
        self.key, self.bytes = key, chacha20(key)

    @staticmethod
    def public(seed: str) -> "Twin":
        return Twin(hashlib.sha256(b"privkde public seed/1 " + bytes.fromhex(seed)).digest())

    def child(self, name: str) -> "Twin":
        return Twin(hmac.new(self.key, name.encode(), hashlib.sha256).digest())

    def word(self) -> int:
        return sum(next(self.bytes) << (8 * place) for place in range(8))

    def uniform(self) -> float:
        return float(Fraction(self.word() >> 11, 2**53))

    def signs(self, count: int) -> list[int]:
        raw = [next(self.bytes) for _ in range(math.ceil(count / 8))]
        return [1 - 2 * (raw[k // 8] >> (k % 8) & 1) for k in range(count)]

    def normals(self, count: int) -> list[float]:
        out: list[float] = []
        while len(out) < count:
            u, v = 2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0
            s = u * u + v * v
            if 0.0 < s < 1.0:
                factor = math.sqrt(-2.0 * self.log(s) / s)
                out += [u * factor, v * factor]
        return out[:count]

    def below(self, count: int, bound: int) -> list[int]:
        out: list[int] = []
        while len(out) < count:
            word = self.word()
            if word < 2**64 - 2**64 % bound:
                out.append(word % bound)
        return out

    def subset(self, count: int, bound: int) -> list[int]:
        keys = [self.word() for _ in range(bound)]
        return sorted(sorted(range(bound), key=lambda k: keys[k])[:count])

    def process(self, length: float) -> list[float]:
        points, reached = [], 0.0
        while (reached := reached - self.log(1.0 - self.uniform())) < length:
            points.append(reached)
        return points

    @staticmethod
    def log(x: float) -> float:
        with mpmath.workdps(40):
            return float(mpmath.log(mpmath.mpf(x)))


def single(value: float) -> float:
    """Rounded to single precision without NumPy."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def twin_draws() -> dict[str, Any]:
    root = Twin.public(SEED)
    return {
        "uniforms": [root.child("a").uniform()] + [twin.uniform() for twin in [root.child("b")] * 4],
        "signs": root.child("c").signs(20),
        "normals": root.child("d").normals(9),
        "integers_below_2^61+1": root.child("e").below(6, 2**61 + 1),
        "subset_5_of_12": root.child("f").subset(5, 12),
        "poisson_process_5": root.child("g").process(5.0),
    }


def numpy_draws() -> dict[str, Any]:
    return {
        "uniforms": np.concatenate([draws.uniforms(stream("a"), 1), draws.uniforms(stream("b"), 4)]),
        "signs": draws.signs(stream("c"), 20),
        "normals": draws.normals(stream("d"), 9),
        "integers_below_2^61+1": draws.integers_below(stream("e"), 6, 2**61 + 1),
        "subset_5_of_12": draws.subset(stream("f"), 5, 12),
        "poisson_process_5": draws.poisson_process(stream("g"), 5.0),
    }


def twin_parameters(choice: KernelChoice) -> dict[str, list[float]]:
    """The parameters of a family, flattened, from the definition."""
    root, d, h = Twin.public(SEED).child(f"kernel/{choice.name}"), choice.dim, float(choice.bandwidth)
    repetitions = choice.facts().n_repetitions
    if choice.name == "gaussian":
        width = choice.projection or d
        omega = root.child("frequencies").normals(width * repetitions)
        phases = root.child("phases")
        found = {
            "weights": [single(w * (math.sqrt(2.0) / h)) for w in omega],
            "phases": [single(phases.uniform() * (2.0 * math.pi)) for _ in range(repetitions)],
        }
        if choice.projection:
            part = root.child("projection")
            found["projection signs"] = [float(s) for s in part.child("signs").signs(d)]
            found["projection rows"] = [float(r) for r in part.child("rows").subset(width, d)]
        return found
    if choice.name == "inner-product-signs":
        return {"signs": [float(s) for s in root.child("signs").signs(d * repetitions)]}
    if choice.name == "inner-product":
        return {}
    segments = d if choice.name == "laplacian" else 1
    with mpmath.workdps(40):
        c = (
            1
            if choice.name == "laplacian"
            else mpmath.sqrt(mpmath.pi) * mpmath.gamma((d + 1) / 2) / mpmath.gamma(d / 2)
        )
        density = float(c / mpmath.mpf(h))
    points = root.child("points").process(repetitions * segments * 2 * density)
    places = [int(point / (2 * density)) for point in points]
    found = {
        "segments": [float(place % segments) for place in places],
        "repetitions": [float(place // segments) for place in places],
        "thresholds": [
            single((point - place * 2 * density) / density - 1.0) for point, place in zip(points, places, strict=True)
        ],
        "residues": [float(r) for r in root.child("residues").below(len(points), choice.facts().n_coordinates)],
        "offsets": [float(r) for r in root.child("offsets").below(repetitions, choice.facts().n_coordinates)],
    }
    if choice.name == "exponential":
        rows = np.array(root.child("directions").normals(len(points) * d)).reshape(len(points), d).tolist()
        for row in rows:
            square = 0.0
            for z in row:  # from left to right; sum() rounds differently from Python 3.12 on
                square += z * z
            found.setdefault("directions", []).extend(single(z / math.sqrt(square)) for z in row)
    return found


def built_parameters(family: LsqFamily) -> dict[str, list[float]]:
    """The same from a family of the library."""
    if isinstance(family, GaussianFamily):
        found: dict[str, Any] = {"weights": family.weights.T, "phases": family.phases}
        if family.projection is not None:
            found["projection signs"] = np.sign(family.projection.signs)
            found["projection rows"] = family.projection.rows
    elif isinstance(family, SignFamily):
        found = {"signs": np.sign(family.weights.T)}
    elif isinstance(family, LaplacianFamily | ExponentialFamily):
        cuts = family.cuts
        repetitions = np.repeat(np.arange(family.facts.n_repetitions), np.diff(cuts.starts))
        found = {
            "segments": cuts.segments,
            "repetitions": repetitions,
            "thresholds": cuts.thresholds,
            "residues": cuts.residues,
            "offsets": cuts.offsets,
        }
        if isinstance(family, ExponentialFamily):
            found["directions"] = family.directions
    else:
        found = {}
    return {name: [float(value) for value in np.ravel(values)] for name, values in found.items()}


@pytest.mark.parametrize("name", VECTORS["draws"])
def test_published_draws(name: str) -> None:
    """Bit for bit what was published. The twin's logarithm is mpmath's: it agrees but for the last bits."""
    published = [float.fromhex(value) for value in VECTORS["draws"][name]]
    assert [float(value) for value in numpy_draws()[name]] == published
    assert twin_draws()[name] == pytest.approx(published, rel=1e-15, abs=0)
    assert len(published) >= 3


@pytest.mark.parametrize("vector", VECTORS["families"], ids=lambda vector: str(vector["choice"]))
def test_published_parameters(vector: dict[str, Any]) -> None:
    """Bit for bit, in the library and in the twin: single precision hides the last bits of the logarithm."""
    choice = KernelChoice(**vector["choice"])
    published = {name: [float.fromhex(v) for v in values] for name, values in vector["parameters"].items()}
    assert built_parameters(choice.build(SEED)) == published
    assert twin_parameters(choice) == published


def test_every_family_has_a_published_vector() -> None:
    assert VECTORS["public_seed"] == SEED
    assert {vector["choice"]["name"] for vector in VECTORS["families"]} == set(KERNELS)
    assert any(vector["choice"].get("projection") for vector in VECTORS["families"])
    assert sum(len(v) for vector in VECTORS["families"] for v in vector["parameters"].values()) > 200


# --- draws ----------------------------------------------------------------------------------------


@given(st.floats(min_value=5e-324, max_value=1.7e308))
def test_logarithm_against_mpmath(x: float) -> None:
    found = float(draws.natural_log(np.array([x]))[0])
    with mpmath.workdps(40):
        exact = mpmath.log(mpmath.mpf(x))
        assert abs(mpmath.mpf(found) - exact) <= mpmath.mpf("6e-16") * abs(exact)


def test_logarithm_where_it_is_used() -> None:
    """Near 1, near √½ where the branch changes, and at the smallest values that the draws produce."""
    near = [
        1 - 2.0**-53,
        1 - 2.0**-40,
        0.999,
        math.sqrt(0.5),
        0.7071067811865475,
        0.7071067811865477,
        2.0**-53,
        2.0**-104,
    ]
    grid = np.concatenate([near, np.linspace(0.001, 1, 4001)])
    found = draws.natural_log(grid)
    with mpmath.workdps(40):
        for x, value in zip(grid.tolist(), found.tolist(), strict=True):
            exact = mpmath.log(mpmath.mpf(x))
            assert abs(mpmath.mpf(value) - exact) <= mpmath.mpf("6e-16") * abs(exact)
    assert float(draws.natural_log(np.array([1.0]))[0]) == 0.0


@pytest.mark.parametrize("at_once", [1, 2, 7, 1000])
def test_parts_change_nothing_not_even_the_bytes_taken(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def everything() -> list[list[float]]:
        normal, integer = stream("normal"), stream("integer")
        found = [
            draws.normals(normal, 301),
            draws.uniforms(normal, 3),
            draws.integers_below(integer, 300, 2**61 + 1),
            draws.uniforms(integer, 3),
            draws.poisson_process(stream("points"), 77.7),
        ]
        return [values.tolist() for values in found]

    expected = everything()
    monkeypatch.setattr(draws, "AT_ONCE", at_once)
    assert everything() == expected


def test_parameters_do_not_depend_on_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = [KernelChoice(name=name, dim=3, repetitions=700) for name in ("gaussian", "laplacian", "exponential")]
    expected = [built_parameters(choice.build(SEED)) for choice in choices]
    monkeypatch.setattr(draws, "AT_ONCE", 45)  # three normal numbers per row: 15 rows would be odd
    monkeypatch.setattr("privkde.kernels.hashed.CUTS_AT_ONCE", 12)
    assert [built_parameters(choice.build(SEED)) for choice in choices] == expected


@given(st.sampled_from([name for name in KERNELS if name != "inner-product"]), st.integers(1, 5), st.integers(1, 30))
def test_more_repetitions_extend_fewer(name: str, dim: int, repetitions: int) -> None:
    """Features of the first repetitions, in the first columns: instance (i, j) is column i·Q + j."""
    x = inside_ball(4, dim)
    few = KernelChoice(name=name, dim=dim, repetitions=repetitions).build(SEED).scaled_features(x)
    many = KernelChoice(name=name, dim=dim, repetitions=repetitions + 7).build(SEED).scaled_features(x)
    np.testing.assert_allclose(many[:, : few.shape[1]], few, atol=1e-6)


class Written(ByteStream):
    """A stream of chosen words."""

    def __init__(self, *values: int) -> None:
        super().__init__(bytes(32))
        self._left = b"".join(value.to_bytes(8, "little") for value in values)

    def take(self, count: int) -> NDArray[np.uint8]:
        assert count <= len(self._left), "more bytes were taken than one candidate after another needs"
        out, self._left = np.frombuffer(self._left[:count], dtype=np.uint8), self._left[count:]
        return out


def test_integers_reject_exactly_the_incomplete_last_cycle() -> None:
    """Words below ⌊2⁶⁴/m⌋·m fall on each residue equally often; the others are rejected."""
    bound = 10
    last = 2**64 - 2**64 % bound - 1
    assert last % bound == bound - 1
    found = draws.integers_below(Written(0, last + 1, 19, 2**64 - 1, last), 3, bound)
    assert found.tolist() == [0, 9, bound - 1]
    assert draws.integers_below(Written(2**64 - 1, 5), 2, 2**62).tolist() == [2**62 - 1, 5]
    assert draws.integers_below(Written(7, 8), 2, 1).tolist() == [0, 0]


def test_normals_take_one_pair_after_another() -> None:
    """The corner of the square and its center are rejected; an odd count drops the last number."""
    half = 2**63
    found = draws.normals(Written(0, 0, half, half, half + 2**62, half), 1)
    assert found == pytest.approx([math.sqrt(-2 * math.log(0.25))], rel=1e-15)


def test_every_subset_comes_from_equally_many_orders() -> None:
    orders = list(itertools.permutations(range(4)))
    found = [tuple(draws.subset(Written(*order), 2, 4).tolist()) for order in orders]
    assert {pair: found.count(pair) for pair in set(found)} == dict.fromkeys(itertools.combinations(range(4), 2), 4)


def test_draws_follow_their_law() -> None:
    """Dvoretzky–Kiefer–Wolfowitz: sup|F_N − F| > √(ln(2/α)/2N) with probability ≤ α. Level 3·1e-10.

    Power: a law twice the bound (0.0108) away in distribution is missed with probability ≤ 1e-10; the saboteurs are
    normals of standard deviation 1.05 (0.012 away), gaps of mean 1.04 (0.015 away), a uniform number short of 0.
    """
    count, level = 400_000, 1e-10
    bound = math.sqrt(math.log(2 / level) / (2 * count))
    normal_cdf = np.vectorize(lambda z: 0.5 * math.erfc(-z / math.sqrt(2)))

    def distance(values: Float64, cdf: Any) -> float:
        heights = cdf(np.sort(values))
        grid = np.arange(count + 1) / count
        return float(max(np.max(grid[1:] - heights), np.max(heights - grid[:-1])))

    uniform = draws.uniforms(stream("law", "uniform"), count)
    normal = draws.normals(stream("law", "normal"), count)
    gaps = np.diff(draws.poisson_process(stream("law", "gaps"), 1.02 * count), prepend=0.0)[:count]
    assert len(gaps) == count
    assert distance(uniform, lambda u: u) <= bound
    assert distance(normal, normal_cdf) <= bound
    assert distance(gaps, lambda t: -np.expm1(-t)) <= bound
    assert distance(1.05 * normal, normal_cdf) > bound
    assert distance(1.04 * gaps, lambda t: -np.expm1(-t)) > bound
    assert distance(0.02 + 0.98 * uniform, lambda u: u) > bound


# --- families: facts, ranges, shapes ---------------------------------------------------------------


def inside_ball(count: int, dim: int, label: str = "points") -> Float64:
    """Points of the unit ball, a few of them extreme: the origin, an axis, the diagonal."""
    rows = draws.normals(stream(label, dim), count * dim).reshape(count, dim)
    rows *= (draws.uniforms(stream(label, "radius", dim), count) / np.linalg.norm(rows, axis=1))[:, None]
    extreme = [np.zeros(dim), np.eye(dim)[0], -np.eye(dim)[-1], np.full(dim, 1 / math.sqrt(dim))]
    return np.concatenate([np.array(extreme), rows])


settings_of = st.fixed_dictionaries(
    {"dim": st.integers(1, 6), "repetitions": st.integers(1, 20), "bandwidth": st.sampled_from([0.3, 1, 1.0, 2.5])}
)


@st.composite
def choices(draw: st.DrawFn) -> KernelChoice:
    settings: dict[str, Any] = draw(settings_of)
    name = draw(st.sampled_from(list(KERNELS)))
    if name.startswith("inner-product"):
        settings["bandwidth"] = 1.0
    if name == "inner-product":
        settings["repetitions"] = None
    if name in HASHED:
        settings["bias"] = draw(st.sampled_from([None, 0.5, 0.3, 0.02]))
    if name == "gaussian":
        settings["projection"] = draw(st.one_of(st.none(), st.integers(1, settings["dim"])))
    return KernelChoice(name=name, **settings)


@given(choices())
def test_features_keep_the_facts(choice: KernelChoice) -> None:
    """|f/R| ≤ 1, |g| ≤ R, at most S non-zero coordinates in each repetition, one column per instance."""
    family, facts = choice.build(SEED), choice.facts()
    x = inside_ball(8, choice.dim)
    scaled, query = family.scaled_features(x), family.query_features(x)
    assert family.facts == facts
    assert family.choice == choice
    assert scaled.dtype == query.dtype == np.float32
    assert scaled.shape == query.shape == (len(x), facts.n_repetitions * facts.n_coordinates)
    assert float(np.max(np.abs(scaled))) <= 1.0
    assert float(np.max(np.abs(query))) <= facts.bound
    np.testing.assert_allclose(query, scaled * facts.bound, rtol=1e-6)
    per_repetition = np.count_nonzero(scaled.reshape(len(x), facts.n_repetitions, facts.n_coordinates), axis=2)
    assert int(np.max(per_repetition)) <= facts.sparsity
    if choice.name in HASHED:
        assert np.all(per_repetition == 1)
        assert set(np.unique(scaled).tolist()) == {0.0, 1.0}


@given(choices())
def test_single_and_double_precision_mean_the_same(choice: KernelChoice) -> None:
    family, x = choice.build(SEED), inside_ball(8, choice.dim).astype(np.float32)
    np.testing.assert_array_equal(family.scaled_features(x), family.scaled_features(x.astype(np.float64)))
    np.testing.assert_array_equal(family.kernel(x, x), family.kernel(x.astype(np.float64), x))


@given(choices(), st.integers(1, 4))
def test_records_do_not_see_each_other(choice: KernelChoice, step: int) -> None:
    family, x = choice.build(SEED), inside_ball(8, choice.dim)
    apart = np.concatenate([family.scaled_features(x[i : i + step]) for i in range(0, len(x), step)])
    np.testing.assert_allclose(family.scaled_features(x), apart, atol=1e-5)


def test_data_outside_the_ball_still_gives_bits() -> None:
    """Whatever the input, the scaled features stay in [−1, 1]: privacy never depends on nice data."""
    for name in KERNELS:
        x = 50.0 * inside_ball(20, 3)
        scaled = KernelChoice(name=name, dim=3).build(SEED).scaled_features(x)
        assert float(np.max(np.abs(scaled))) <= 1.0


def test_query_features_reach_their_bound_and_do_not_pass_it() -> None:
    """√d in single precision may be larger than √d; the features then stop one step below."""
    rounded_up = 0
    for dim in range(2, 30):
        family = KernelChoice(name="inner-product-signs", dim=dim, repetitions=8).build(SEED)
        assert isinstance(family, SignFamily)
        along = 1.00005 * family.weights.T.astype(np.float64)  # σ·x/√d is 1.00005 before it is clipped
        largest = float(np.max(np.abs(family.query_features(along))))
        assert family.facts.bound * (1 - 2e-7) <= largest <= family.facts.bound
        rounded_up += single(family.facts.bound) > family.facts.bound
    assert rounded_up > 0


def test_which_families_need_unit_norm() -> None:
    needs = {name: KernelChoice(name=name, dim=2).build(SEED).needs_unit_norm for name in KERNELS}
    assert needs == {name: name != "gaussian" for name in KERNELS}
    assert needs == {name: kernel.needs_unit_norm for name, kernel in KERNELS.items()}, "known before anything is drawn"


def test_another_seed_gives_another_family() -> None:
    for name in (name for name in KERNELS if name != "inner-product"):
        choice = KernelChoice(name=name, dim=4, repetitions=64)
        x = inside_ball(4, 4)
        one, same, other = (choice.build(seed).scaled_features(x) for seed in (SEED, SEED, SEED[::-1]))
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)


def test_parameters_are_read_only() -> None:
    gaussian = KernelChoice(name="gaussian", dim=3, projection=2).build(SEED)
    exponential = KernelChoice(name="exponential", dim=3).build(SEED)
    assert isinstance(gaussian, GaussianFamily)
    assert isinstance(exponential, ExponentialFamily)
    assert gaussian.projection is not None
    cuts = exponential.cuts
    arrays: list[NDArray[Any]] = [gaussian.weights, gaussian.phases, gaussian.projection.signs, exponential.directions]
    for array in [*arrays, cuts.thresholds, cuts.residues, cuts.offsets, cuts.starts, cuts.segments]:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


# --- kernels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("bandwidth", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("dim", [1, 2, 7])
def test_kernels_against_fifty_digits(dim: int, bandwidth: float) -> None:
    x, y = inside_ball(3, dim), inside_ball(2, dim, "queries")

    def exact(name: str, a: list[float], b: list[float]) -> float:
        with mpmath.workdps(50):
            differences = [mpmath.mpf(s) - mpmath.mpf(t) for s, t in zip(a, b, strict=True)]
            squares = mpmath.fsum(z * z for z in differences)
            h = mpmath.mpf(bandwidth)
            values = {
                "gaussian": mpmath.exp(-squares / h**2),
                "laplacian": mpmath.exp(-mpmath.fsum(abs(z) for z in differences) / h),
                "exponential": mpmath.exp(-mpmath.sqrt(squares) / h),
                "inner-product": mpmath.fdot(a, b),
                "inner-product-signs": mpmath.fdot(a, b),
            }
            return float(values[name])

    for name in KERNELS:
        width = 1.0 if name.startswith("inner-product") else bandwidth
        found = KernelChoice(name=name, dim=dim, bandwidth=width).build(SEED).kernel(x, y)
        expected = [[exact(name, a, b) for b in y.tolist()] for a in x.tolist()]
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, atol=1e-13)


@pytest.mark.parametrize("name", ["gaussian", *HASHED])
def test_no_kernel_exceeds_one(name: str) -> None:
    """Rounding may make a squared distance negative; the narrowest bandwidth would magnify that most."""
    x = inside_ball(100, 7)
    found = KernelChoice(name=name, dim=7, repetitions=1, bandwidth=1e-3).build(SEED).kernel(x, x)
    assert float(found.max()) <= 1.0
    np.testing.assert_allclose(np.diag(found), 1.0, atol=1e-8)


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 10, 64, 767, 768, 10_001])
def test_mean_projection_constant_against_gamma_functions(dim: int) -> None:
    with mpmath.workdps(40):
        half = mpmath.mpf(dim) / 2
        exact = mpmath.sqrt(mpmath.pi) * mpmath.gammaprod([half + mpmath.mpf(1) / 2], [half])
        assert abs(mpmath.mpf(inverse_mean_projection(dim)) - exact) <= mpmath.mpf(dim) * mpmath.mpf("2e-16") * exact


# --- exact expectations ----------------------------------------------------------------------------


def products(family: LsqFamily, x: Float64, y: Float64) -> Float64:
    """f_i(x)·g_i(y) for all pairs: (records, queries, I)."""
    shape = (-1, family.facts.n_repetitions, family.facts.n_coordinates)
    f = (family.scaled_features(x).astype(np.float64) * family.facts.bound).reshape(shape)
    g = family.query_features(y).astype(np.float64).reshape(shape)
    found: Float64 = np.einsum("aij,bij->abi", f, g)
    return found


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 8])
def test_identity_features_are_the_kernel(dim: int) -> None:
    family, x = KernelChoice(name="inner-product", dim=dim).build(SEED), inside_ball(9, dim)
    np.testing.assert_allclose(products(family, x, x)[:, :, 0], family.kernel(x, x), atol=1e-6)


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 8])
def test_signs_average_to_the_kernel_over_all_sign_vectors(dim: int) -> None:
    family = KernelChoice(name="inner-product-signs", dim=dim, repetitions=2**dim).build(SEED)
    assert isinstance(family, SignFamily)
    drawn = family.weights * math.sqrt(dim)
    np.testing.assert_allclose(np.abs(drawn), 1.0, rtol=1e-6)
    family.weights = (np.array(list(itertools.product((-1, 1), repeat=dim))).T / math.sqrt(dim)).astype(np.float32)
    x = inside_ball(6, dim)
    found = products(family, x, x)
    np.testing.assert_allclose(found.mean(axis=2), family.kernel(x, x), atol=1e-6)
    assert float(np.max(np.abs(found))) == pytest.approx(dim, rel=1e-6), "the diagonal reaches R²"


@pytest.mark.parametrize("bandwidth", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("dim", [1, 2])
def test_fourier_features_integrate_to_the_kernel(dim: int, bandwidth: float) -> None:
    """Gauss–Hermite nodes in place of ω, eight equally spaced phases (exact for two cosines) in place of φ."""
    nodes, mass = np.polynomial.hermite_e.hermegauss(48)
    grid = np.array(list(itertools.product(nodes, repeat=dim)))
    law = np.prod(np.array(list(itertools.product(mass / mass.sum(), repeat=dim))), axis=1)
    choice = KernelChoice(name="gaussian", dim=dim, repetitions=8 * len(grid), bandwidth=bandwidth)
    family = choice.build(SEED)
    assert isinstance(family, GaussianFamily)
    family.weights = (np.repeat(grid, 8, axis=0) * math.sqrt(2) / bandwidth).T.astype(np.float32)
    family.phases = np.tile(2 * math.pi * np.arange(8) / 8, len(grid)).astype(np.float32)
    x = inside_ball(4, dim)
    found = products(family, x, x) @ (np.repeat(law, 8) / 8)
    np.testing.assert_allclose(found, family.kernel(x, x), atol=2e-6)


def few_cuts(name: str, dim: int) -> tuple[LaplacianFamily | ExponentialFamily, Cuts]:
    """One repetition with three buckets and two to six cuts, from the first seed that gives so few."""
    for number in range(100):
        choice = KernelChoice(name=name, dim=dim, repetitions=1, bias=0.4, bandwidth=dim)
        family = choice.build(f"{number:032x}")
        assert isinstance(family, LaplacianFamily | ExponentialFamily)
        if 2 <= len(family.cuts.thresholds) <= 6:
            return family, family.cuts
    raise AssertionError("no seed gave a small family")


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("name", HASHED)
def test_different_cells_collide_for_exactly_one_in_q_hashes(name: str, dim: int) -> None:
    """All residues in Z_Q^cuts, enumerated: same cell, always; different cells, a share of exactly 1/Q."""
    family, cuts = few_cuts(name, dim)
    q, n_cuts = family.facts.n_coordinates, len(cuts.thresholds)
    assert q == 3
    x = inside_ball(12, dim)
    cells = [tuple(row) for row in family.crossed(family.rows(x), slice(0, n_cuts)).tolist()]
    buckets = []
    for residues in itertools.product(range(q), repeat=n_cuts):
        family.cuts = replace(cuts, residues=np.array(residues, dtype=np.int64))
        buckets.append(family.buckets(x)[:, 0])
    hashes = np.array(buckets)
    for a, b in itertools.combinations(range(len(x)), 2):
        collisions = int(np.count_nonzero(hashes[:, a] == hashes[:, b]))
        assert collisions == (q**n_cuts if cells[a] == cells[b] else q ** (n_cuts - 1))
    assert len(set(cells)) >= 2


@pytest.mark.parametrize("name", HASHED)
def test_the_offset_makes_every_bucket_equally_likely(name: str) -> None:
    """Without it, whoever lies beyond no cut would always be in bucket 0; means of f·g would not notice."""
    family, cuts = few_cuts(name, 2)
    x = inside_ball(12, 2)
    hashes = []
    for offset in range(3):
        family.cuts = replace(cuts, offsets=np.array([offset]))
        hashes.append(family.buckets(x)[:, 0])
    assert np.array_equal(np.sort(np.array(hashes), axis=0), np.tile(np.arange(3)[:, None], len(x)))


@pytest.mark.parametrize("name", HASHED)
def test_buckets_from_the_definition(name: str) -> None:
    """(offset + Σ residues of the cuts beyond which x lies) mod Q, cut by cut, repetitions without cuts included."""
    choice = KernelChoice(name=name, dim=2, repetitions=60, bandwidth=3.0, bias=0.11)
    family = choice.build(SEED)
    assert isinstance(family, LaplacianFamily | ExponentialFamily)
    cuts, x = family.cuts, inside_ball(5, 2)
    per_repetition = np.diff(cuts.starts)
    assert per_repetition.min() == 0
    assert per_repetition.max() >= 3
    directions = family.directions if isinstance(family, ExponentialFamily) else np.eye(2)[cuts.segments]
    for row, point in enumerate(x.tolist()):
        for i in range(60):
            bucket = int(cuts.offsets[i])
            for c in range(cuts.starts[i], cuts.starts[i + 1]):
                height = sum(u * z for u, z in zip(directions[c].tolist(), point, strict=True))
                bucket += int(cuts.residues[c]) if height > cuts.thresholds[c] else 0
            assert family.buckets(x)[row, i] == bucket % family.facts.n_coordinates


@pytest.mark.parametrize("dim", [1, 2, 5, 50])
def test_directions_lie_on_the_sphere_and_thresholds_in_the_interval(dim: int) -> None:
    family = KernelChoice(name="exponential", dim=dim, repetitions=40).build(SEED)
    assert isinstance(family, ExponentialFamily)
    np.testing.assert_allclose(np.linalg.norm(family.directions.astype(np.float64), axis=1), 1.0, atol=1e-6)
    assert float(np.max(np.abs(family.cuts.thresholds))) <= 1.0
    assert len(family.cuts.thresholds) > 40


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "gausian", "dim": 3}, "Did you mean 'gaussian'"),
        ({"name": None, "dim": 3}, "kernel=None is unknown"),
        ({"name": "gaussian", "dim": 0}, "dim=0 is outside"),
        ({"name": "gaussian", "dim": 3.0}, "dim=3.0 must be a whole number"),
        ({"name": "gaussian", "dim": 3, "repetitions": 0}, "repetitions=0"),
        ({"name": "gaussian", "dim": 3, "bias": 0.1}, "leave bias out"),
        ({"name": "gaussian", "dim": 3, "bandwidth": 0.0}, "bandwidth=0.0 is outside"),
        ({"name": "gaussian", "dim": 3, "bandwidth": math.nan}, "bandwidth=nan is outside"),
        ({"name": "gaussian", "dim": 3, "bandwidth": True}, "bandwidth=True must be a number"),
        ({"name": "gaussian", "dim": 3, "bandwidth": "1"}, "bandwidth='1' must be a number"),
        ({"name": "inner-product", "dim": 3, "bandwidth": 2.0}, "an inner product has no bandwidth; leave it out"),
        ({"name": "inner-product-signs", "dim": 3, "bandwidth": 0.5}, "an inner product has no bandwidth"),
        ({"name": "gaussian", "dim": 3, "projection": 4}, r"projection=4 is outside \[1, 3\]"),
        ({"name": "gaussian", "dim": 3, "projection": 0}, "projection=0 is outside"),
        ({"name": "gaussian", "dim": 3, "projection": True}, "projection=True must be a whole number"),
        ({"name": "laplacian", "dim": 3, "projection": 2}, "only 'gaussian' can be projected"),
    ],
)
def test_malformed_choices_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        KernelChoice(**settings)


@pytest.mark.parametrize("seed", ["", "00" * 15, "zz" * 16, None])
def test_malformed_seeds_are_refused(seed: Any) -> None:
    with pytest.raises(InvalidInputError, match="public_seed="):
        KernelChoice(name="gaussian", dim=3).build(seed)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    "x",
    [np.zeros((2, 4)), np.zeros(3), np.zeros((1, 2, 3)), np.zeros((2, 3), dtype=np.int64), [[0.0, 0.0, 0.0]], None],
)
def test_arrays_of_another_shape_or_type_are_refused(name: str, x: Any) -> None:
    family, good = KernelChoice(name=name, dim=3).build(SEED), np.zeros((2, 3))
    for call in (
        lambda: family.scaled_features(x),
        lambda: family.query_features(x),
        lambda: family.kernel(x, good),
        lambda: family.kernel(good, x),
    ):
        with pytest.raises(InvalidInputError, match=r"shape \(records, 3\)"):
            call()


def test_no_records_give_no_rows() -> None:
    for name in KERNELS:
        family = KernelChoice(name=name, dim=3).build(SEED)
        assert family.scaled_features(np.zeros((0, 3))).shape == (0, family.facts.n_instances)
        assert family.kernel(np.zeros((0, 3)), np.zeros((2, 3))).shape == (0, 2)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "gaussian", "dim": 10**6, "repetitions": 10**6},
        {"name": "inner-product-signs", "dim": 10**6, "repetitions": 10**6},
        {"name": "laplacian", "dim": 10**4, "repetitions": 10**4, "bandwidth": 1e-3},
        {"name": "exponential", "dim": 10**4, "repetitions": 10**4},
    ],
)
def test_absurd_numbers_of_parameters_are_refused_before_drawing(settings: dict[str, Any]) -> None:
    choice = KernelChoice(**settings)
    assert choice.facts().n_repetitions == settings["repetitions"]
    with pytest.raises(
        InvalidInputError, match=r"needs about .* public numbers, more than .*; choose fewer repetitions"
    ):
        choice.build(SEED)


def test_draws_refuse_impossible_requests() -> None:
    with pytest.raises(InvalidInputError, match="bound=0"):
        draws.integers_below(stream(), 1, 0)
    with pytest.raises(InvalidInputError, match="count=5 is outside"):
        draws.subset(stream(), 5, 4)
