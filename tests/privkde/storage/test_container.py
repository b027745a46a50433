"""Containers: read back exactly, and refused after any change of any bit; no pickles, nothing half-written."""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from accounting import InvalidInputError
from privkde.storage import container
from privkde.storage.container import DIGEST_BYTES, Arrays, DamagedFileError, read_container, write_container
from tests.memory import MEGABYTE, peak

SCHEMA = "test/1"
ARRAYS: Arrays = {"small": np.array([[1.5, -2.0]]), "none": np.zeros((0, 3), np.int64)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "held.npz"


def sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


documents = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)  # fmt: skip
contents = st.dictionaries(
    st.sampled_from(["a", "b", "sums"]),
    arrays_of.arrays(
        dtype=st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_]),
        shape=arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    max_size=3,
)


@given(document=documents, arrays=contents)
def test_what_was_written_is_read(
    document: dict[str, Any], arrays: Arrays, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("held") / "held.npz"
    full = {**document, "schema": SCHEMA}
    write_container(path, full, arrays)
    found, held = read_container(path, SCHEMA, arrays)
    assert json.dumps(found, sort_keys=True) == json.dumps(full, sort_keys=True)
    assert held.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (held[name].dtype, held[name].shape) == (array.dtype, array.shape)
        assert held[name].tobytes() == array.tobytes()


def test_arrays_come_back_as_they_lay_in_memory(path: Path) -> None:
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    write_container(path, {"schema": SCHEMA}, {"x": columns, "part": np.arange(10)[::3]})
    _, held = read_container(path, SCHEMA, ("x", "part"))
    np.testing.assert_array_equal(held["x"], columns)
    np.testing.assert_array_equal(held["part"], [0, 3, 6, 9])


def test_the_same_content_makes_the_same_file(path: Path) -> None:
    write_container(path, {"b": 1, "a": 2, "schema": SCHEMA}, ARRAYS)
    first = path.read_bytes()
    write_container(path, {"schema": SCHEMA, "a": 2, "b": 1}, ARRAYS)
    assert path.read_bytes() == first


def test_numpy_and_zip_can_read_it(path: Path) -> None:
    """An ordinary archive, stored and not compressed, whose comment is the digest."""
    write_container(path, {"schema": SCHEMA, "name": "ü"}, ARRAYS)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.comment == path.read_bytes()[-DIGEST_BYTES:]
    with np.load(path, allow_pickle=False) as stored:
        assert sorted(stored.files) == ["document", "none", "small"]
        assert json.loads(stored["document"].tobytes()) == {"schema": SCHEMA, "name": "ü"}


def test_every_flipped_bit_and_every_truncation_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_container(path, {"schema": SCHEMA, "x": 1}, ARRAYS)
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            bent = bytearray(whole)
            bent[at] ^= 1 << bit
            monkeypatch.setattr(Path, "read_bytes", lambda _, bent=bent: bytes(bent))
            with pytest.raises(DamagedFileError, match=r"truncated|altered"):
                read_container(path, SCHEMA, ARRAYS)
    for length in range(len(whole)):
        monkeypatch.setattr(Path, "read_bytes", lambda _, length=length: whole[:length])
        with pytest.raises(DamagedFileError, match="truncated"):
            read_container(path, SCHEMA, ARRAYS)
    for longer in (whole + b"\0", b"\0" + whole, whole + whole):
        monkeypatch.setattr(Path, "read_bytes", lambda _, longer=longer: longer)
        with pytest.raises(DamagedFileError, match="truncated"):
            read_container(path, SCHEMA, ARRAYS)


def archive_of(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **arrays)
    return buffer.getvalue()


def text(document: str) -> Any:
    return np.frombuffer(document.encode(), np.uint8)


class Trap:
    """Unpickling it would be noticed."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return print, ("unpickled",)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nothing of the kind",
        b"PK\3\4" + bytes(50),
        archive_of(small=np.ones(3)),
        archive_of(document=text("{")),
        archive_of(document=text("[1]")),
        archive_of(document=text("null")),
        archive_of(document=text('{"schema": "test/2"}')),
        archive_of(document=text("{}")),
        archive_of(document=text("\ud7ff" + "[" * 100_000)),
        archive_of(document=text("[" * 100_000)),
        archive_of(document=np.frombuffer(b"\xff\xfe\x80", np.uint8)),
        archive_of(document=text('{"schema": "test/1"}'), x=np.array([Trap()], dtype=object)),
    ],
)
def test_a_forgery_with_a_matching_digest_is_refused(
    body: bytes, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_bytes(sealed(body))
    with pytest.raises(DamagedFileError):
        read_container(path, SCHEMA, ARRAYS)
    assert "unpickled" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["npy", "pickle"])
def test_other_files_of_numpy_are_refused(kind: str, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3) if kind == "npy" else np.array([Trap()], dtype=object))
    for body in (buffer.getvalue(), sealed(buffer.getvalue())):
        path.write_bytes(body)
        with pytest.raises(DamagedFileError):
            read_container(path, SCHEMA, ARRAYS)
    assert "unpickled" not in capsys.readouterr().out


def test_forged_zip_headers_end_in_our_error(path: Path) -> None:
    """Every byte of a zip file bent and the digest mended: whatever zipfile and NumPy think of it, one error."""
    write_container(path, {"schema": SCHEMA, "x": 1}, ARRAYS)
    body = path.read_bytes()[:-DIGEST_BYTES]
    masks = np.random.default_rng(0).integers(1, 256, size=len(body)).tolist()
    refused = 0
    for at in range(len(body)):
        path.write_bytes(sealed(body[:at] + bytes([body[at] ^ masks[at]]) + body[at + 1 :]))
        try:
            document, held = read_container(path, SCHEMA, ARRAYS)
        except DamagedFileError:
            refused += 1
            continue
        assert document["schema"] == SCHEMA
        assert held is not None
    assert refused > len(body) // 4


def test_the_schema_is_named(path: Path) -> None:
    write_container(path, {"schema": "test/0"}, ARRAYS)
    with pytest.raises(DamagedFileError, match=r"'test/0' where 'test/1'"):
        read_container(path, SCHEMA, ARRAYS)


def test_a_missing_file_is_a_missing_file(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_container(path, SCHEMA, ARRAYS)


def test_a_folder_that_does_not_exist_is_named_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="nowhere"):
        write_container(tmp_path / "nowhere" / "held.npz", {"schema": SCHEMA}, ARRAYS)
    with pytest.raises(InvalidInputError, match="folder"):
        write_container(tmp_path, {"schema": SCHEMA}, ARRAYS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("document", [{"x": float("nan")}, {"x": float("inf")}, {"x": {1, 2}}, {"x": b"bytes"}])
def test_what_json_cannot_say_is_not_written(document: dict[str, Any], path: Path) -> None:
    with pytest.raises((ValueError, TypeError)):
        write_container(path, document, ARRAYS)
    assert not path.exists()


def test_objects_are_not_pickled(path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        write_container(path, {"schema": SCHEMA}, {"x": np.array([Trap()], dtype=object)})
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("there_before", [False, True])
def test_a_write_that_fails_halfway_changes_nothing(
    there_before: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if there_before:
        write_container(path, {"schema": SCHEMA, "version": "old"}, ARRAYS)

    def half(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        with pytest.raises(KeyboardInterrupt):
            write_container(path, {"schema": SCHEMA, "version": "new"}, ARRAYS)
    assert [one.name for one in path.parent.iterdir()] == [path.name] * there_before
    if there_before:
        assert read_container(path, SCHEMA, ARRAYS)[0]["version"] == "old"


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A container with any members, whose digest is right."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.comment = bytes(DIGEST_BYTES)
    return sealed(buffer.getvalue()[:-DIGEST_BYTES])


def npy(array: Any, claimed: tuple[int, ...] | None = None) -> bytes:
    """An array as `numpy.save` writes it; its header may claim another shape."""
    buffer = io.BytesIO()
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape if claimed is None else claimed}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + bytes(array.tobytes())


PLAIN = npy(text('{"schema": "test/1"}'))


def refusing(path: Path) -> Callable[[], None]:
    def work() -> None:
        with pytest.raises(DamagedFileError):
            read_container(path, SCHEMA, ("x",))

    return work


def test_bombs_are_refused_before_memory_is_taken(path: Path) -> None:
    """Kilobytes that would become hundreds of megabytes, by compression or by what a header claims."""
    path.write_bytes(zipped({"document.npy": PLAIN, "x.npy": npy(np.ones(3))}))
    assert read_container(path, SCHEMA, ("x",))[1]["x"].tolist() == [1.0, 1.0, 1.0]
    bombs = [
        zipped({"document.npy": PLAIN, "x.npy": npy(np.zeros(2**22))}, zipfile.ZIP_DEFLATED),
        zipped({"document.npy": npy(text(" " * 2**25)), "x.npy": npy(np.ones(3))}, zipfile.ZIP_DEFLATED),
        zipped({"document.npy": PLAIN, "x.npy": npy(np.zeros(3), (2**28,))}),
        zipped({"document.npy": PLAIN, "x.npy": npy(np.zeros(3), (2**28, 0, 2**28))}),
        zipped({"document.npy": npy(text(" "), (2**28,)), "x.npy": npy(np.ones(3))}),
    ]
    for bomb in bombs:
        assert len(bomb) < MEGABYTE / 8
        path.write_bytes(bomb)
        assert peak(refusing(path)) < MEGABYTE


@pytest.mark.parametrize(
    "members",
    [
        {"document.npy": PLAIN},
        {"document.npy": PLAIN, "x.npy": npy(np.ones(3)), "y.npy": npy(np.ones(3))},
        {"document.npy": PLAIN, "x.npy": npy(np.ones(3)), "readme.txt": b"hello"},
        {"document.npy": PLAIN, "x": npy(np.ones(3)), "x.npy": npy(np.ones(3))},
        {"x.npy": npy(np.ones(3))},
    ],
    ids=["one missing", "one more", "a text", "twice", "no document"],
)
def test_members_that_do_not_belong_are_refused(members: dict[str, bytes], path: Path) -> None:
    path.write_bytes(zipped(members))
    refusing(path)()


def test_a_long_document_is_neither_written_nor_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = {"schema": SCHEMA, "text": "x" * 3000}
    write_container(path, long, {"x": np.ones(3)})
    monkeypatch.setattr(container, "LARGEST_DOCUMENT", 2000)
    refusing(path)()
    with pytest.raises(InvalidInputError, match="bytes, more than 2000"):
        write_container(path, long, {"x": np.ones(3)})
