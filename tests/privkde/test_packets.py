"""Packets and vectors in files: what is written is read again, and damage is refused."""

import io
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidInputError
from privkde import columns, packets
from privkde.container import DamagedFileError
from privkde.datasets import holds, read_array, read_vectors
from privkde.packets import SUFFIXES, read_packets, write_packets

PACKETS = [b"pk", b"\0", b"\0\0\0\0", bytes(range(256)) * 40, b"privkde packets/1\n"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("held", [PACKETS, []], ids=["some", "none"])
def test_packets_come_back_in_order(suffix: str, held: list[bytes], tmp_path: Path) -> None:
    target = tmp_path / f"part{suffix}"
    write_packets(target, iter(held))
    assert list(read_packets(str(target))) == held


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=6), st.integers(0, 400))
def test_every_truncation_of_a_delimited_file_is_found(held: list[bytes], cut: int) -> None:
    whole = packets.MAGIC + b"".join(len(one).to_bytes(4, "little") + one for one in held) + bytes(4)
    assert list(read_packets("a.packets", lambda _: io.BytesIO(whole))) == held
    with pytest.raises(DamagedFileError, match=r"'a\.packets' is truncated"):
        list(read_packets("a.packets", lambda _: io.BytesIO(whole[: cut % len(whole)])))
    with pytest.raises(DamagedFileError):
        list(read_packets("a.packets", lambda _: io.BytesIO(whole + b"\0")))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_files_are_refused_by_name(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"part{suffix}"
    write_packets(target, PACKETS)
    whole = target.read_bytes()
    for damaged in (b"", b"nonsense", whole[:-5], whole[: len(whole) // 2]):
        target.write_bytes(damaged)
        with pytest.raises(InvalidInputError, match=f"part{suffix}' "):
            list(read_packets(str(target)))


def test_avro_files_that_end_between_two_blocks_are_truncated(tmp_path: Path) -> None:
    target = tmp_path / "part.avro"
    write_packets(target, [bytes(1000)] * 60)
    with target.open("rb") as file:
        ends = [block.offset + block.size for block in fastavro.block_reader(file)]
    assert len(ends) > 2
    target.write_bytes(target.read_bytes()[: ends[0]])
    with pytest.raises(DamagedFileError, match=r"part\.avro' is truncated: it lacks \d+ rows"):
        list(read_packets(str(target)))


@pytest.mark.parametrize("suffix", columns.FORMATS)
def test_files_without_packets_are_refused(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"part{suffix}"
    with target.open("wb") as file:
        columns.write_column(file, suffix, "message", PACKETS)
    with pytest.raises(InvalidInputError, match="no column 'packet'; it has message"):
        list(read_packets(str(target)))


def test_other_formats_are_refused_by_their_names(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="must end in"):
        list(read_packets("packets.csv"))
    with pytest.raises(InvalidInputError, match=r"\.parquet"):
        write_packets(tmp_path / "packets.csv", [])
    table = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"packet": ["text"]}), table)
    with pytest.raises(InvalidInputError, match="other things than bytes"):
        list(read_packets(str(table)))


# Vectors in columns -------------------------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(100, 5)).astype(np.float32)
LABELS = np.array(["north", "south"])[np.arange(100) % 2]
AVRO = {
    "type": "record",
    "name": "user",
    "fields": [{"name": "X", "type": {"type": "array", "items": "float"}}, {"name": "y", "type": "string"}],
}


def stored(folder: Path, kind: str, vectors: Any = X) -> Path:
    """Vectors and labels in several chunks."""
    rows = [np.asarray(row).tolist() for row in vectors]
    if kind == "avro":
        target = folder / "users.avro"
        records = [{"X": row, "y": str(label)} for row, label in zip(rows, LABELS[: len(rows)], strict=True)]
        with target.open("wb") as file:
            fastavro.writer(file, fastavro.parse_schema(AVRO), records, codec="deflate", sync_interval=600)
        return target
    target = folder / "users.parquet"
    types = {"parquet": pa.list_(pa.float32()), "fixed": pa.list_(pa.float32(), 5), "double": pa.list_(pa.float64())}
    table = pa.table({"X": pa.array(rows, types[kind]), "y": LABELS[: len(rows)].tolist()})
    pq.write_table(table, target, row_group_size=17)
    return target


@pytest.mark.parametrize("kind", ["parquet", "fixed", "double", "avro"])
def test_any_rows_of_a_column_are_those_of_the_matrix(kind: str, tmp_path: Path) -> None:
    path = stored(tmp_path, kind)
    rows = read_vectors(path, "X")
    assert rows.shape == X.shape
    assert isinstance(rows, columns.ColumnRows)
    assert len(rows.starts) > 4
    rng = np.random.default_rng(1)
    for index in (np.arange(100), rng.permutation(100)[:31], np.array([99, 0, 99]), np.arange(0)):
        np.testing.assert_array_equal(rows[index], X[index])
    np.testing.assert_array_equal(read_array(path, "y"), LABELS)
    assert holds(path, "y")
    assert not holds(path, "z")


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_what_is_no_matrix_is_refused(kind: str, tmp_path: Path) -> None:
    ragged = read_vectors(stored(tmp_path, kind, [*X[:98], X[0][:4], X[1]]), "X")
    with pytest.raises(InvalidInputError, match="all of one length"):
        ragged[np.arange(100)]
    path = stored(tmp_path, kind)
    with pytest.raises(InvalidInputError, match="no column 'vectors'; it has X, y"):
        read_vectors(path, "vectors")
    with pytest.raises(InvalidInputError, match="lists of numbers"):
        read_vectors(path, "y")
    with pytest.raises(InvalidInputError, match="no plain numbers or texts"):
        read_array(path, "X")
    path.write_bytes(path.read_bytes()[:150])
    with pytest.raises(DamagedFileError, match="cannot be read"):
        read_vectors(path, "X")


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_a_file_that_is_written_anew_is_read_anew(kind: str, tmp_path: Path) -> None:
    """Of the same shape, so that nothing but its content tells the two apart."""
    everybody = np.arange(100)
    old = read_vectors(stored(tmp_path, kind), "X")
    np.testing.assert_array_equal(old[everybody], X)
    new = read_vectors(stored(tmp_path, kind, X[::-1]), "X")
    np.testing.assert_array_equal(new[everybody], X[::-1])
    with pytest.raises(InvalidInputError, match="was changed while it was being read"):
        old[everybody]


def test_lists_of_integers_are_vectors(tmp_path: Path) -> None:
    whole = np.arange(12).reshape(4, 3)
    pq.write_table(pa.table({"X": whole.tolist()}), tmp_path / "whole.parquet")
    schema = {"type": "record", "name": "user", "fields": [{"name": "X", "type": {"type": "array", "items": "long"}}]}
    with (tmp_path / "whole.avro").open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), [{"X": row} for row in whole.tolist()])
    for suffix in columns.FORMATS:
        np.testing.assert_array_equal(read_vectors(tmp_path / f"whole{suffix}", "X")[np.arange(4)], whole)
    pq.write_table(pa.table({"X": [[True, False]]}), tmp_path / "whole.parquet")
    with pytest.raises(InvalidInputError, match="lists of numbers"):
        read_vectors(tmp_path / "whole.parquet", "X")


def test_missing_values_are_refused(tmp_path: Path) -> None:
    for rows in ([[1.0, None]], [None]):
        pq.write_table(pa.table({"X": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "gaps.parquet")
        with pytest.raises(InvalidInputError, match="lists of numbers"):
            read_vectors(tmp_path / "gaps.parquet", "X")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(columns, "find_spec", lambda _: None)
    with pytest.raises(InvalidInputError, match=r"privkde\[beam\]"):
        read_vectors(tmp_path / "x.parquet", "X")
