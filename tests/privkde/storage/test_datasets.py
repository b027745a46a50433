"""Vectors in archives: the same numbers as `numpy.load`, a block at a time; damaged archives end in one error."""

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from accounting import InvalidInputError
from privkde.protocol.inputs import checked_vectors
from privkde.storage import datasets
from privkde.storage.datasets import StoredRows, read_array, read_basis, read_vectors
from tests.memory import peak

FLOATS = [np.float16, np.float32, np.float64, np.dtype(">f4"), np.longdouble]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.npz"


def matrix(rows: int = 40, dim: int = 7, dtype: Any = np.float32) -> NDArray[Any]:
    return np.random.default_rng(3).normal(size=(rows, dim)).astype(dtype)


def npy(array: NDArray[Any], version: tuple[int, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=version)
    return buffer.getvalue()


def zipped(path: Path, compression: int = zipfile.ZIP_STORED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_are_those_of_numpy(dtype: Any, save: Callable[..., None], order: Any, path: Path) -> None:
    x = np.asarray(matrix(dtype=dtype), order=order)
    save(path, before=np.arange(3), x=x, after=np.array(["a", "b"]))
    found = read_vectors(path, "x")
    assert isinstance(found, StoredRows) == (save is np.savez and order == "C")
    assert found.shape == x.shape
    assert isinstance(found, StoredRows | np.ndarray)
    assert found.dtype == x.dtype
    with np.load(path) as stored:
        expected = stored["x"]
    for index in (np.arange(40), np.array([39, 0, 0, 17]), np.array([], np.intp), np.arange(40)[::-3]):
        np.testing.assert_array_equal(found[index], expected[index])
    np.testing.assert_array_equal(
        checked_vectors(found[np.arange(5)], 7, longest=None), expected[:5].astype(np.float32)
    )


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_all_versions_of_the_format_are_read(version: tuple[int, int], compression: int, path: Path) -> None:
    x = matrix()
    found = read_vectors(zipped(path, compression, x=npy(x, version)), "x")
    np.testing.assert_array_equal(found[np.arange(40)], x)


@given(rows=st.integers(0, 30), dim=st.integers(0, 4), name=st.text("abcdefgh", min_size=1), data=st.data())
def test_any_rows_of_any_matrix(
    rows: int, dim: int, name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("data") / "data.npz"
    x = matrix(rows, dim, np.float64)
    members: Any = {name: x, name + "z": matrix(3, 3)}
    np.savez(path, **members)
    found = read_vectors(path, name)
    index = np.array(data.draw(st.lists(st.integers(0, rows - 1)) if rows else st.just([])), np.intp)
    np.testing.assert_array_equal(found[index], x[index])


def test_rows_are_copies_that_may_be_written_to(path: Path) -> None:
    x = matrix()
    np.savez(path, x=x)
    found = read_vectors(path, "x")
    rows = found[np.arange(3)]
    assert type(rows) is np.ndarray
    rows[:] = 0.0
    np.testing.assert_array_equal(found[np.arange(3)], x[:3])


def test_an_archive_behind_something_else_is_read(path: Path) -> None:
    """Zip files may have anything in front, so the data do not start where their headers say."""
    x = matrix()
    np.savez(path, x=x)
    path.write_bytes(b"#!/bin/sh\n" * 7 + path.read_bytes())
    np.testing.assert_array_equal(read_vectors(path, "x")[np.arange(40)], x)


def test_memory_does_not_grow_with_what_was_read(path: Path) -> None:
    """8 MB are read in blocks of 100 rows: never more than a few blocks are held, nothing stays."""
    x = matrix(20_000, 50, np.float64)
    np.savez(path, x=x)
    total = float(x.sum())
    del x
    found = read_vectors(path, "x")
    assert isinstance(found, StoredRows)
    summed = float(found[np.arange(100)].sum())
    tracemalloc.start()
    for start in range(100, 20_000, 100):
        summed += float(found[np.arange(start, start + 100)].sum())
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert summed == pytest.approx(total, rel=1e-9)
    assert peak < 40 * 100 * 50
    assert kept < 100 * 50


def test_every_block_is_mapped_anew_and_let_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a mapping count as memory of the process until it is closed: none outlives its block."""
    np.savez(path, x=matrix())
    found = read_vectors(path, "x")
    alive: list[int] = []
    made = 0

    class Counted(np.memmap):
        def __array_finalize__(self, parent: Any) -> None:
            nonlocal made
            super().__array_finalize__(parent)
            if parent is None:
                alive.append(self.size)
                made += 1

        def __del__(self) -> None:
            if self.shape == (40, 7):
                alive.pop()

    monkeypatch.setattr("numpy.memmap", Counted)
    for start in range(0, 40, 5):
        found[np.arange(start, start + 5)]
        assert alive == []
    assert made == 8


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.zeros(5), r"shape \(5,\)"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (np.float64(1.0), r"shape \(\)"),
        (np.zeros((2, 2), np.int64), "int64"),
        (np.zeros((2, 2), bool), "bool"),
        (np.zeros((2, 2), np.complex64), "complex64"),
        (np.array([["a", "b"]]), "<U1"),
        (np.array([[{}, 1.0]], dtype=object), "object"),
        (np.zeros((2, 2), [("a", "f4")]), "real"),
    ],
)
def test_what_is_no_real_matrix_is_refused(array: Any, told: str, path: Path) -> None:
    np.savez(path, x=array)
    with pytest.raises(InvalidInputError, match=told):
        read_vectors(path, "x")


def test_a_missing_array_is_named_beside_those_there_are(path: Path) -> None:
    np.savez(path, vectors=matrix(), labels=np.arange(40))
    for read in (read_vectors, read_array):
        with pytest.raises(InvalidInputError, match=r"has no array 'vector'; it has vectors, labels"):
            read(path, "vector")
    zipped(path)
    with pytest.raises(InvalidInputError, match="it has none"):
        read_array(path, "x")


def test_labels_and_words_are_read_without_pickles(path: Path) -> None:
    np.savez(path, words=np.array(["ü", "bc"]), counts=np.arange(3), things=np.array([{}], dtype=object))
    assert read_array(path, "words").tolist() == ["ü", "bc"]
    assert read_array(path, "counts").tolist() == [0, 1, 2]
    with pytest.raises(InvalidInputError, match="type object; give numbers or texts"):
        read_array(path, "things")


@pytest.mark.parametrize("content", [b"", b"no archive at all", npy(matrix()), b"PK\5\6" + bytes(18) + b"x"])
@pytest.mark.parametrize("read", [read_vectors, read_array])
def test_what_is_no_archive_is_refused(content: bytes, read: Callable[[Path, str], Any], path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"data\.npz"):
        read(path, "x")


def test_a_missing_file_is_a_missing_file(path: Path) -> None:
    for read in (read_vectors, read_array):
        with pytest.raises(FileNotFoundError):
            read(path, "x")
        with pytest.raises(IsADirectoryError):
            read(path.parent, "x")


@pytest.mark.parametrize("cut", [1, 100, -1, -100])
def test_an_array_that_is_not_as_long_as_it_says_is_refused(cut: int, path: Path) -> None:
    """A mapping would go on into the next member, or beyond the end of the file."""
    whole = npy(matrix())
    content = whole[:-cut] if cut > 0 else whole + bytes(-cut)
    with pytest.raises(InvalidInputError, match="not as long as it says"):
        read_vectors(zipped(path, x=content, y=bytes(10_000)), "x")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damage_anywhere_ends_in_our_error_or_in_numbers(save: Callable[..., None], path: Path) -> None:
    """Every byte bent once. The data themselves have no checksum where they are mapped, by design."""
    save(path, x=matrix(4, 3, np.float64), y=np.arange(3))
    whole = path.read_bytes()
    masks = np.random.default_rng(4).integers(1, 256, size=len(whole)).tolist()
    refused = 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ masks[at]]) + whole[at + 1 :])
        for read, name in ((read_vectors, "x"), (read_array, "y")):
            try:
                read(path, name)[np.arange(2)]
            except InvalidInputError:
                refused += 1
    assert refused > len(whole) // 4


def test_encrypted_members_are_refused(path: Path) -> None:
    np.savez(path, x=matrix())
    content = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = content.index(signature) + flags
        content[at : at + 2] = struct.pack("<H", 1)
    path.write_bytes(content)
    for read in (read_vectors, read_array):
        with pytest.raises(InvalidInputError, match="encrypted"):
            read(path, "x")


def test_an_array_far_larger_than_its_file_is_refused_by_its_header(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: a file of 933 kB took 1.1 GB. Arrays that are stored as they are may be of any size."""
    monkeypatch.setattr(datasets, "AND_MORE", 1 << 10)
    large = np.zeros((1000, 1000))
    np.savez(path, x=large)
    assert read_array(path, "x").shape == large.shape
    np.savez_compressed(path, x=large)
    for read in (read_array, read_vectors):

        def refused(read: Callable[[Path, str], Any] = read) -> None:
            with pytest.raises(InvalidInputError, match="64 times the size of the file"):
                read(path, "x")

        assert peak(refused) < large.nbytes / 10


def test_a_basis_of_another_shape_is_refused_by_its_header(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(path, basis=np.eye(4)[:, :2])
    np.testing.assert_array_equal(read_basis(path, 4), np.eye(4)[:, :2])
    monkeypatch.setattr(datasets, "read_plain", lambda *_: pytest.fail("it was read"))
    for shape in ((5, 2), (4, 5), (4, 0), (4,), (10**6, 1), (4, 2, 1)):
        np.savez(path, basis=np.zeros(shape, np.int8))
        with pytest.raises(InvalidInputError, match=r"give a matrix \(4, r\) with 1 ≤ r ≤ 4"):
            read_basis(path, 4)


def header(descr: str, shape: tuple[int, ...], data: bytes = b"") -> bytes:
    """An array with a header that NumPy does not write."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue() + data


@pytest.mark.parametrize(
    "member",
    [
        header("<U0", (10**12,)),
        header("|V0", (200,)),
        header("<f8", (-2, -1), bytes(16)),
        header("<f4", (10**9, -1, 0)),
        header("|S0", (10**12,)),
    ],
)
def test_entries_without_bytes_and_negative_lengths_are_refused(member: bytes, path: Path) -> None:
    """The attack: a few bytes stand for any number of texts, which take memory once they are listed."""
    zipped(path, x=member)
    for read in (read_array, read_vectors):
        with pytest.raises(InvalidInputError, match="not an intact"):
            read(path, "x")


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, "V4"),
        np.zeros(3, [("a", "i4")]),
        np.zeros(3, "M8[D]"),
        np.zeros(3, "m8[s]"),
        np.zeros(3, complex),
    ],
)
def test_what_is_neither_numbers_nor_texts_is_refused(array: NDArray[Any], path: Path) -> None:
    np.savez(path, x=array)
    with pytest.raises(InvalidInputError, match="give numbers or texts"):
        read_array(path, "x")


@pytest.mark.parametrize("order", ["<", ">"])
def test_texts_of_characters_that_do_not_exist_are_refused(order: str, path: Path) -> None:
    """NumPy keeps them, and Python ends in a SystemError once it looks at one."""
    for last, exists in ((0x10FFFF, True), (0x110000, False), (0xFFFFFFFF, False)):
        np.savez(path, x=np.array([65, 66, 67, last], f"{order}u4").view(f"{order}U2"))
        if exists:
            assert read_array(path, "x").tolist() == ["AB", "C\U0010ffff"]
            continue
        with pytest.raises(InvalidInputError, match="characters that do not exist"):
            read_array(path, "x")


def test_no_more_is_unpacked_than_the_header(path: Path) -> None:
    """The attack: NumPy reads a header of 4 GB before it refuses it, `zipfile` 46 MB for 40 bytes of bzip2."""
    long = b"\x93NUMPY\x02\x00" + struct.pack("<I", 10**7) + b" " * 10**7
    for compression, member in (
        (zipfile.ZIP_DEFLATED, long),
        (zipfile.ZIP_BZIP2, npy(np.zeros(10**7, np.int8))),
        (zipfile.ZIP_LZMA, npy(np.zeros(10**7, np.int8))),
    ):
        zipped(path, compression, x=member)

        def refused() -> None:
            for read in (read_array, read_vectors):
                with pytest.raises(InvalidInputError, match="not an intact"):
                    read(path, "x")

        assert peak(refused) < 10**6


def test_vectors_that_go_on_beyond_the_end_of_the_file_are_refused(path: Path) -> None:
    """The attack: the list of members, too, says that they are as long; they were mapped, and ended in a ValueError."""
    zipped(path, x=header("<f4", (10**6, 3), bytes(120)))
    content = bytearray(path.read_bytes())
    listed = content.rfind(b"PK\x01\x02")
    struct.pack_into("<I", content, listed + 24, len(header("<f4", (10**6, 3))) + 12 * 10**6)
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="beyond the end of the file"):
        read_vectors(path, "x")
