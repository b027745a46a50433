"""Vectors on their way in: finite single precision, inside the ball, the caller's array untouched, no value shown."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.kernels import MOST_DIMENSIONS, NORM_SLACK
from privkde.kernels.norms import NORM_ERROR
from privkde.protocol.inputs import LARGEST_NORM, OUTSIDE, ROUNDING_SLACK, SCANNED_AT_ONCE, checked_vectors, require_all
from tests.privkde.long_vectors import SHAPES, long_vectors

Vectors = NDArray[np.floating]
BEYOND_BALL = 1e-6
"""What rounding to single precision may add to a norm of 1."""

shapes = st.tuples(st.integers(0, 6), st.integers(1, 5))
finite = st.floats(-1e17, 1e17)
small = st.floats(-2.0, 2.0)


@st.composite
def vectors(draw: st.DrawFn, elements: st.SearchStrategy[float]) -> Vectors:
    """Arrays of either precision, in either order, or with gaps in memory."""
    dtype = draw(st.sampled_from([np.float32, np.float64, np.float16]))
    values = draw(arrays_of.arrays(np.float64, draw(shapes), elements=elements))
    array = np.clip(values, -6e4, 6e4).astype(dtype) if dtype is np.float16 else values.astype(dtype)
    layout = draw(st.sampled_from(["C", "F", "strided"]))
    if layout == "strided":
        wide = np.zeros((len(array), 2 * array.shape[1]), dtype)
        wide[:, ::2] = array
        return wide[:, ::2]
    return np.asarray(array, order="F" if layout == "F" else "C")


def norms(x: Vectors) -> NDArray[np.float64]:
    return np.array([math.sqrt(math.fsum(float(value) ** 2 for value in row)) for row in x])


@given(x=vectors(finite), outside=st.sampled_from(OUTSIDE))
def test_without_a_ball_vectors_are_only_rounded(x: Vectors, outside: str) -> None:
    found = checked_vectors(x, x.shape[1], longest=None, outside=outside)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, x.astype(np.float32))


@given(x=vectors(small | finite))
@example(x=np.array([[2.3925212e15, 1.2410420e-29]], np.float32))
def test_projection_ends_in_the_ball_and_keeps_the_direction(x: Vectors) -> None:
    before = x.copy()
    found = checked_vectors(x, x.shape[1], longest=1.0, outside="project")
    np.testing.assert_array_equal(x, before)
    assert found.dtype == np.float32
    assert found.shape == x.shape
    assert np.all(np.isfinite(found))
    single = x.astype(np.float32).astype(np.float64)
    lengths = norms(single)
    assert np.all(norms(found) <= 1.0 + BEYOND_BALL)
    inside = lengths <= 1.0
    np.testing.assert_array_equal(found[inside], single[inside])
    least = float(np.finfo(np.float32).smallest_subnormal)
    np.testing.assert_allclose(found[~inside], single[~inside] / lengths[~inside, None], rtol=1e-6, atol=least)


@given(x=vectors(small))
def test_rejection_changes_nothing_but_rounding_and_names_the_first_row(x: Vectors) -> None:
    before = x.copy()
    far = np.flatnonzero(norms(x.astype(np.float32)) > 1.0 + ROUNDING_SLACK)
    if len(far):
        with pytest.raises(InvalidInputError, match=rf"row {far[0]} has a norm above 1 \({len(far)} such rows"):
            checked_vectors(x, x.shape[1], longest=1.0)
    else:
        found = checked_vectors(x, x.shape[1], longest=1.0)
        np.testing.assert_array_equal(found, checked_vectors(x, x.shape[1], longest=1.0, outside="project"))
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("dim", [1, 768, 4096, 100_000])
def test_the_ball_is_kept_in_high_dimension(dim: int) -> None:
    """Norms above 1 are taken again in double precision before they divide."""
    x = np.abs(np.random.default_rng(1).standard_cauchy(size=(40, dim)))
    x[0] = 3.0
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    just_outside = 1.0 + np.geomspace(1e-8, 1e-3, 20)
    x *= np.concatenate([just_outside, 3.0 * just_outside])[:, None]
    found = checked_vectors(x.astype(np.float32), dim, longest=1.0, outside="project")
    assert np.max(np.linalg.norm(found.astype(np.float64), axis=1)) <= 1.0 + BEYOND_BALL


@pytest.mark.parametrize("dim", [500_000, MOST_DIMENSIONS])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_vector_passes_that_is_longer_than_the_accountant_grants(shape: str, dim: int) -> None:
    x = long_vectors(shape, dim)
    assert np.any(np.linalg.norm(x.astype(np.float64), axis=1) > NORM_SLACK)
    found = checked_vectors(x, dim, longest=1.0, outside="project")
    assert np.max(np.linalg.norm(found.astype(np.float64), axis=1)) <= 1.0 + NORM_ERROR


def test_unit_vectors_stored_in_few_digits_are_not_rejected() -> None:
    x = np.array([[0.6, 0.8], [0.6004, 0.8]], np.float16)
    x[1] += np.float16(5e-4)
    assert 1.0 < norms(x)[1] <= 1.0 + ROUNDING_SLACK
    found = checked_vectors(x, 2, longest=1.0)
    assert np.all(norms(found) <= 1.0 + BEYOND_BALL)
    just_outside = np.array([[1.0 + 1.01 * ROUNDING_SLACK, 0.0]])
    with pytest.raises(InvalidInputError, match="row 0"):
        checked_vectors(just_outside, 2, longest=1.0)


@pytest.mark.parametrize("mode", ["r", "c", "r+"])
def test_a_mapped_file_is_never_written_to(mode: str, tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    np.full((2, 2), 5.0, np.float32).tofile(path)
    mapped = np.memmap(path, np.float32, mode, shape=(2, 2))  # type: ignore[call-overload]
    found = checked_vectors(mapped, 2, longest=1.0, outside="project")
    assert norms(found)[0] == pytest.approx(1.0)
    assert np.all(mapped == 5.0)
    del mapped
    assert np.all(np.fromfile(path, np.float32) == 5.0)


BAD = [np.nan, np.inf, -np.inf, 1e39, -1e300, 2.0 * LARGEST_NORM]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("longest", [None, 1.0])
@pytest.mark.parametrize("outside", OUTSIDE)
def test_what_is_not_finite_is_refused_by_its_number(bad: float, longest: float | None, outside: str) -> None:
    x = np.full((5, 3), 0.25)
    x[2, 1] = x[4, 0] = bad
    with pytest.raises(InvalidInputError, match=r"row 2 has an entry .*NaN.*\(2 such rows"):
        checked_vectors(x, 3, longest=longest, outside=outside)
    with pytest.raises(InvalidInputError, match=r"row 902 "):
        checked_vectors(x, 3, longest=longest, outside=outside, numbers=np.arange(900, 905))


def test_large_but_finite_vectors_are_taken_where_there_is_no_ball() -> None:
    x = np.array([[0.9 * LARGEST_NORM, 0.0], [-3e17, 4e17]])
    np.testing.assert_array_equal(checked_vectors(x, 2, longest=None), x.astype(np.float32))
    np.testing.assert_allclose(
        checked_vectors(x, 2, longest=1.0, outside="project"), [[1.0, 0.0], [-0.6, 0.8]], rtol=1e-6
    )


@given(
    row=st.integers(0, 9),
    number=st.integers(0, 10**12),
    secret=st.floats(3.0, 1e6),
    kind=st.sampled_from(["nan", "far"]),
)
def test_errors_name_the_user_and_tell_no_value(row: int, number: int, secret: float, kind: str) -> None:
    """Besides the row, the count and the constants of the rule, there is no number in the message."""
    x = np.zeros((10, 2))
    x[row] = (secret, math.nan if kind == "nan" else 0.5)
    numbers = np.arange(10) + number
    with pytest.raises(InvalidInputError) as caught:
        checked_vectors(x, 2, longest=1.0, numbers=numbers)
    shown = re.findall(r"\d[\d.e+]*", str(caught.value))
    assert shown == [str(number + row), *(["1e+18"] if kind == "nan" else ["1"]), "1"]


@pytest.mark.parametrize("bad", [0, SCANNED_AT_ONCE - 1, SCANNED_AT_ONCE, 2 * SCANNED_AT_ONCE + 5])
def test_all_rows_are_scanned(bad: int) -> None:
    x = np.full((2 * SCANNED_AT_ONCE + 6, 2), 0.5)
    require_all(x, 2, longest=1.0, outside="reject")
    x[bad, 0] = 2.0
    with pytest.raises(InvalidInputError, match=f"row {bad} has a norm above 1"):
        require_all(x, 2, longest=1.0, outside="reject")
    require_all(x, 2, longest=1.0, outside="project")
    require_all(x, 2, longest=None, outside="reject")
    assert x[bad, 0] == 2.0
    x[bad, 0] = np.nan
    for longest in (None, 1.0):
        with pytest.raises(InvalidInputError, match=f"row {bad} has an entry"):
            require_all(x, 2, longest=longest, outside="project")
    with pytest.raises(InvalidInputError, match="the plan is for"):
        require_all(x, 3, longest=None, outside="project")


@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 4), (1, 3, 3), ()])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInputError, match=r"the plan is for \(users, 3\)"):
        checked_vectors(np.zeros(shape), 3, longest=None)


def test_an_unknown_way_to_treat_what_is_outside_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="Did you mean 'project'"):
        checked_vectors(np.zeros((1, 1)), 1, longest=1.0, outside="projct")


@pytest.mark.parametrize(
    "private",
    [
        np.array([["secret", "0.5"]]),
        np.array([[b"secret", b"0.5"]]),
        np.array([["secret", 0.5]], dtype=object),
        np.array([["0.25", "0.5"]]),
        np.array([[0.25 + 1j, 0.5]]),
        np.array([["2020-02-20", "2021-01-01"]], dtype="M8[D]"),
        [["secret", 0.5]],
    ],
    ids=lambda private: str(getattr(private, "dtype", "list")),
)
def test_what_is_not_numbers_is_refused_and_not_shown(private: Vectors) -> None:
    """NumPy's own error quotes the value, and complex numbers lost their imaginary part."""
    with pytest.raises(InvalidInputError, match="give a NumPy array of real numbers") as caught:
        checked_vectors(private, 2, longest=None)
    assert not re.search("secret|0.5|0.25|2020", str(caught.value))
