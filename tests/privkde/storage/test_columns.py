"""Columns of Parquet and Avro files: what was written comes back; what holds no packets or no matrix is refused."""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from accounting.errors import InvalidInputError
from privkde import PrivateKDE
from privkde.protocol.messages import ID_BYTES
from privkde.storage import columns, parquet_reader
from privkde.storage.container import DamagedFileError
from privkde.storage.datasets import holds, read_array, read_vectors
from privkde.storage.packets import read_packets, write_packets
from tests.memory import MEGABYTE, peak
from tests.privkde.storage.test_packets import LONGEST, PACKETS

pytestmark = pytest.mark.extras


def test_avro_files_that_end_between_two_blocks_are_truncated(tmp_path: Path) -> None:
    target = tmp_path / "part.avro"
    write_packets(target, [bytes(1000)] * 60)
    with target.open("rb") as file:
        ends = [block.offset + block.size for block in fastavro.block_reader(file)]
    assert len(ends) > 2
    target.write_bytes(target.read_bytes()[: ends[0]])
    with pytest.raises(DamagedFileError, match=r"part\.avro' is truncated: it lacks \d+ rows"):
        list(read_packets(str(target), LONGEST))


@pytest.mark.parametrize("suffix", columns.FORMATS)
def test_files_without_packets_are_refused(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / f"part{suffix}"
    with target.open("wb") as file:
        columns.write_column(file, suffix, "message", PACKETS)
    with pytest.raises(InvalidInputError, match="no column 'packet'; it has message"):
        list(read_packets(str(target), LONGEST))


def test_columns_of_other_things_than_bytes_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"packet": ["text"]}), table)
    with pytest.raises(InvalidInputError, match="other things than bytes"):
        list(read_packets(str(table), LONGEST))


X = np.random.default_rng(0).normal(size=(100, 5)).astype(np.float32)
LABELS = np.array(["north", "south"])[np.arange(100) % 2]
KINDS = {"lists": pa.list_(pa.float32()), "fixed": pa.list_(pa.float32(), 5), "double": pa.list_(pa.float64())}


def stored(folder: Path, vectors: Any = X, kind: str = "lists") -> Path:
    """Vectors and labels in several row groups."""
    rows = [np.asarray(row).tolist() for row in vectors]
    table = pa.table({"X": pa.array(rows, KINDS[kind]), "y": LABELS[: len(rows)].tolist()})
    pq.write_table(table, folder / "users.parquet", row_group_size=17)
    return folder / "users.parquet"


@pytest.mark.parametrize("kind", KINDS)
def test_any_rows_of_a_column_are_those_of_the_matrix(kind: str, tmp_path: Path) -> None:
    path = stored(tmp_path, kind=kind)
    rows = read_vectors(path, "X")
    assert isinstance(rows, np.memmap)
    assert (rows.shape, rows.dtype) == (X.shape, np.float32)
    rng = np.random.default_rng(1)
    for index in (np.arange(100), rng.permutation(100)[:31], np.array([99, 0, 99]), np.arange(0)):
        np.testing.assert_array_equal(rows[index], X[index])
    np.testing.assert_array_equal(read_array(path, "y"), LABELS)
    assert holds(path, "y")
    assert not holds(path, "z")


def test_a_density_of_a_column_is_that_of_the_matrix(tmp_path: Path) -> None:
    options: dict[str, Any] = {"epsilon": 2.0, "repetitions": 4, "insecure_seed": 1, "public_seed": "00" * 16}
    options["allow_useless"] = True
    of_column, of_matrix = (
        PrivateKDE(**options, outside="project").fit(rows) for rows in (read_vectors(stored(tmp_path), "X"), X)
    )
    np.testing.assert_array_equal(of_column.model_.sums, of_matrix.model_.sums)


def test_nothing_of_the_copy_is_left_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy has no name: whoever looks into the folder does not see it, and it ends with the process."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    rows = read_vectors(stored(tmp_path), "X")
    assert list(scratch.iterdir()) == []
    np.testing.assert_array_equal(rows[np.arange(100)], X)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """8 MB in row groups of 80 kB; Arrow's memory is that of another process."""
    x = np.random.default_rng(2).normal(size=(40_000, 50)).astype(np.float32)
    table = pa.table({"X": pa.FixedSizeListArray.from_arrays(x.ravel(), 50)})
    pq.write_table(table, tmp_path / "large.parquet", row_group_size=400)
    del table
    read_vectors(stored(tmp_path), "X")  # imports
    tracemalloc.start()
    rows = read_vectors(tmp_path / "large.parquet", "X")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(rows[np.arange(39_990, 40_000)], x[39_990:])
    assert peak < x.nbytes / 4


def test_an_empty_table_has_no_rows(tmp_path: Path) -> None:
    assert read_vectors(stored(tmp_path, []), "X").shape == (0, 0)


def test_what_is_no_matrix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="all of one length; those from row 85 on do not"):
        read_vectors(stored(tmp_path, [*X[:98], X[0][:4], X[1]]), "X")
    with pytest.raises(InvalidInputError, match="all of one length; those from row 17 on do not"):
        read_vectors(stored(tmp_path, [*X[:17], *X[17:34, :4]]), "X")
    path = stored(tmp_path)
    with pytest.raises(InvalidInputError, match="no column 'vectors'; it has X, y"):
        read_vectors(path, "vectors")
    with pytest.raises(InvalidInputError, match="lists of numbers"):
        read_vectors(path, "y")
    with pytest.raises(InvalidInputError, match="no plain numbers or texts"):
        read_array(path, "X")
    path.write_bytes(path.read_bytes()[:150])
    with pytest.raises(DamagedFileError, match="cannot be read"):
        read_vectors(path, "X")


def test_a_file_that_is_written_again_does_not_change_what_was_read(tmp_path: Path) -> None:
    """Of the same shape, so that nothing but its content distinguishes the two."""
    everybody = np.arange(100)
    old = read_vectors(stored(tmp_path), "X")
    new = read_vectors(stored(tmp_path, X[::-1]), "X")
    np.testing.assert_array_equal(new[everybody], X[::-1])
    np.testing.assert_array_equal(old[everybody], X)


def test_avro_holds_packets_and_no_vectors(tmp_path: Path) -> None:
    write_packets(tmp_path / "part.avro", PACKETS)
    with pytest.raises(InvalidInputError, match=r"not an intact \.npz archive.*or as Parquet"):
        read_vectors(tmp_path / "part.avro", "packet")


def test_lists_of_integers_are_vectors(tmp_path: Path) -> None:
    whole = np.arange(12).reshape(4, 3)
    pq.write_table(pa.table({"X": whole.tolist()}), tmp_path / "whole.parquet")
    np.testing.assert_array_equal(read_vectors(tmp_path / "whole.parquet", "X")[np.arange(4)], whole)
    pq.write_table(pa.table({"X": [[True, False]]}), tmp_path / "whole.parquet")
    with pytest.raises(InvalidInputError, match="lists of numbers"):
        read_vectors(tmp_path / "whole.parquet", "X")


def test_missing_values_are_refused(tmp_path: Path) -> None:
    for rows in ([[1.0, None]], [None]):
        pq.write_table(pa.table({"X": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "gaps.parquet")
        with pytest.raises(InvalidInputError, match="lists of numbers"):
            read_vectors(tmp_path / "gaps.parquet", "X")


# Bombs: a few kilobytes that used to become gigabytes ----------------------------------------------------------------


def repeated(value: Any, rows: int, kind: Any) -> Any:
    """A column that holds one value many times, and says it once."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value], kind))


def bomb(folder: Path, column: Any, **options: Any) -> Path:
    target = folder / "bomb.parquet"
    pq.write_table(pa.table({"packet": column}), target, store_schema=False, **options)
    assert target.stat().st_size < MEGABYTE / 4
    return target


def test_rows_of_parquet_that_must_be_repeated_are_refused(tmp_path: Path) -> None:
    """Twenty million rows in 200 kB used to be read one by one, each as a packet."""
    target = bomb(tmp_path, repeated(b"x" * 40, 20_000_000, pa.binary()), row_group_size=1 << 16)
    most, read = target.stat().st_size // ID_BYTES, iter(read_packets(str(target), LONGEST))
    assert sum(1 for _ in islice(read, most)) == most
    with pytest.raises(InvalidInputError, match=f"has more than {most} rows"):
        next(read)


def test_ids_are_as_long_as_the_limit_of_rows_says() -> None:
    assert columns.PACKET_ID == ID_BYTES


@pytest.mark.parametrize(
    "options", [{"compression": "zstd"}, {"compression": "none", "column_encoding": {"packet": "DELTA_BYTE_ARRAY"}}]
)
def test_packets_whose_bytes_are_shared_take_the_memory_of_another_process(
    options: dict[str, Any], tmp_path: Path
) -> None:
    """Fifty megabytes in a few kilobytes; they come cut short, and are refused by whoever receives them."""
    column = pa.array([bytes(10**6)] * 50, pa.binary())
    target, lengths = tmp_path / "shared.parquet", list[int]()
    pq.write_table(pa.table({"packet": column}), target, use_dictionary=False, **options)

    def work() -> None:
        lengths.extend(len(packet) for packet in read_packets(str(target), LONGEST))

    assert peak(work) < MEGABYTE
    assert lengths == [LONGEST + 1] * 50


def test_packets_of_any_binary_type_are_read(tmp_path: Path) -> None:
    values = [bytes([number]) * 40 for number in range(40)]
    for kind in (pa.binary(), pa.large_binary(), pa.binary(40)):
        pq.write_table(pa.table({"packet": pa.array(values, kind)}), tmp_path / "a.parquet", row_group_size=17)
        assert list(read_packets(str(tmp_path / "a.parquet"), LONGEST)) == values


def test_a_label_or_a_vector_does_not_multiply_in_memory(tmp_path: Path) -> None:
    """A text of a megabyte in 5,700 rows; and one vector of ten million equal numbers."""

    def refused(read: Callable[[Path, str], object], target: Path, match: str) -> Callable[[], None]:
        def work() -> None:
            with pytest.raises(InvalidInputError, match=match):
                read(target, "packet")

        return work

    texts = bomb(tmp_path, repeated("x" * 10**6, 5_700, pa.string()), compression="snappy")
    assert peak(refused(read_array, texts, "at most 256 bytes")) < 4 * MEGABYTE
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(10**7, np.int32)), pa.array([1.0], pa.float32()))
    long = pa.ListArray.from_arrays(pa.array([0, 10**7], pa.int32()), values.dictionary_decode())
    vector = bomb(tmp_path, long)
    assert peak(refused(read_vectors, vector, "vectors of 10000000 numbers")) < 4 * MEGABYTE


def grouped(target: Path, column: Any, groups: int) -> Path:
    """A file that repeats these rows in as many row groups."""
    table = pa.table({"x": column})
    with pq.ParquetWriter(target, table.schema, compression="zstd", store_schema=False) as writer:
        for _ in range(groups):
            writer.write_table(table)
    return target


def test_a_small_file_does_not_stand_for_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels of 256 bytes in memory, and zero vectors on the disk: 8 GB of each came from files of 120 kB."""
    limit = 1 << 20
    monkeypatch.setattr(columns, "AND_MORE", limit)
    written: list[int] = []
    temporary = tempfile.TemporaryFile

    def watched() -> Any:
        file = temporary()
        write = file.write

        def counted(part: bytes) -> int:
            written.append(len(part))
            return write(part)

        monkeypatch.setattr(file, "write", counted, raising=False)
        return file

    monkeypatch.setattr(tempfile, "TemporaryFile", watched)
    same = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1 << 10, np.int32)), pa.array(["a" * 256]))
    labels = grouped(tmp_path / "labels.parquet", same, 64)
    zeros = pa.array(np.zeros(1 << 18, np.float32))
    vectors = grouped(
        tmp_path / "v.parquet", pa.ListArray.from_arrays(np.arange(0, 2**18 + 1, 2**10, dtype=np.int32), zeros), 64
    )
    for path, read, held in ((labels, read_array, 64 << 20), (vectors, read_vectors, 64 << 20)):
        most = columns.TIMES_THE_FILE * path.stat().st_size + limit
        assert most < held / 4
        with pytest.raises(InvalidInputError, match=f"take more than {most:,} bytes, 64 times its size and 1 MiB"):
            read(path, "x")
    assert 0 < sum(written) <= columns.TIMES_THE_FILE * vectors.stat().st_size + limit


def test_a_long_label_among_short_ones_counts_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array of texts has the width of the longest; a million short ones are 4 MB, with a long one 1 GB."""
    monkeypatch.setattr(columns, "AND_MORE", 8 << 20)
    table = pa.table({"x": pa.DictionaryArray.from_arrays(pa.array([0] * 10**6 + [1]), pa.array(["a", "b" * 256]))})
    pq.write_table(table.slice(0, 10**6), tmp_path / "short.parquet", store_schema=False)
    assert read_array(tmp_path / "short.parquet", "x").dtype == "<U1"
    pq.write_table(table, tmp_path / "long.parquet", store_schema=False)
    with pytest.raises(InvalidInputError, match=r"labels of .* take more than"):
        read_array(tmp_path / "long.parquet", "x")


def test_what_is_written_plainly_is_read_however_alike(tmp_path: Path) -> None:
    """Zero vectors of 80 MB, more than the limit for a small file."""
    zeros = np.zeros(20 << 20, np.float32)
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(zeros, 1 << 10)})
    pq.write_table(table, tmp_path / "small.parquet")
    with pytest.raises(InvalidInputError, match="write it by pyarrow"):
        read_vectors(tmp_path / "small.parquet", "x")
    pq.write_table(table, tmp_path / "plain.parquet", compression="none", use_dictionary=False)
    assert read_vectors(tmp_path / "plain.parquet", "x").shape == (20 << 10, 1 << 10)


def avro(target: Path, fields: list[dict[str, Any]], records: list[dict[str, Any]], codec: str = "null") -> None:
    schema = {"type": "record", "name": "row", "fields": fields}
    with target.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), records, codec=codec)


def test_bombs_of_avro_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed blocks, values without bytes, foreign fields and blocks of any size."""
    target, packet = tmp_path / "part.avro", {"name": "packet", "type": "bytes"}
    nothing = {"name": "more", "type": {"type": "array", "items": "null"}}

    def work() -> None:
        with pytest.raises(InvalidInputError, match=r"in one column 'packet', or is compressed|has a block of more"):
            list(read_packets(str(target), LONGEST))

    avro(target, [packet], [{"packet": bytes(10**7)}], codec="deflate")
    assert peak(work) < MEGABYTE
    avro(target, [{"name": "packet", "type": "null"}], [{"packet": None}] * 1000)
    assert peak(work) < MEGABYTE
    avro(target, [packet, nothing], [{"packet": b"a", "more": [None] * 10**6}])
    assert peak(work) < MEGABYTE
    avro(target, [packet], [{"packet": bytes(10**7)}])
    assert [len(value) for value in read_packets(str(target), LONGEST)] == [LONGEST + 1]
    monkeypatch.setattr(columns, "LARGEST_BLOCK", 10**6)
    assert peak(work) < MEGABYTE


def test_a_field_of_avro_cannot_hide_behind_another_of_its_name(tmp_path: Path) -> None:
    """A regression: 222 bytes with an array of nulls before the packet became 3 GB."""
    fields = [{"name": "packet", "type": {"type": "array", "items": "null"}}, {"name": "packet", "type": "bytes"}]
    head = {"avro.schema": json.dumps({"type": "record", "name": "r", "fields": fields}), "avro.codec": "null"}
    target = tmp_path / "hidden.avro"
    with target.open("wb") as file:
        fastavro.schemaless_writer(file, {"type": "map", "values": "bytes"}, {k: v.encode() for k, v in head.items()})
    target.write_bytes(b"Obj\x01" + target.read_bytes() + bytes(16))
    with pytest.raises(InvalidInputError):
        list(read_packets(str(target), LONGEST))


# The process that reads Parquet --------------------------------------------------------------------------------------


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All processes that are started while a test runs."""
    started: list[Any] = []

    class Recorded(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    return started


def aborting(folder: Path) -> Path:
    """A file whose schema says that no packet is missing, and whose statistics say how many are."""
    target = folder / "aborting.parquet"
    write_packets(target, PACKETS)
    honest = target.read_bytes()
    assert honest.count(OPTIONAL_PACKET) == 1
    target.write_bytes(honest.replace(OPTIONAL_PACKET, OPTIONAL_PACKET.replace(b"\x02", b"\x00", 1)))
    return target


OPTIONAL_PACKET = b"\x25\x02\x18\x06packet"
"""Of the schema in the footer: the third field, repetition, is 1 (optional); the fourth is the name."""


def test_a_file_that_ends_its_reader_is_refused(
    tmp_path: Path, processes: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """A regression: pyarrow ended the whole process with `std::terminate`, and a message of its own."""
    target = aborting(tmp_path)
    with pytest.raises(DamagedFileError, match=r"aborting\.parquet' cannot be read: it is damaged"):
        read_vectors(target, "packet")
    assert processes[0].returncode != 0
    with pytest.raises(DamagedFileError, match="cannot be read"):
        list(read_packets(str(target), LONGEST))
    assert capfd.readouterr() == ("", "")


def varint(number: int, length: int = 0) -> bytes:
    """A whole number as Thrift writes it, in at least so many bytes."""
    number, written = 2 * number, bytearray()
    while number >= 128 or len(written) + 1 < length:
        written.append(number & 127 | 128)
        number >>= 7
    return bytes([*written, number])


def forged(folder: Path) -> Path:
    """One packet of 100 MB, 64 times. The footer says that its dictionary has no bytes; 16 rows take 1.6 GB."""
    target = folder / "forged.parquet"
    column = repeated(bytes(100 << 20), 64, pa.binary())
    pq.write_table(pa.table({"packet": column}), target, store_schema=False, compression="snappy")
    described = pq.read_metadata(target).row_group(0).column(0)
    dictionary, data = varint(described.dictionary_page_offset), varint(described.data_page_offset)
    honest, lie = (b"\x26" + offset + b"\x26" + dictionary for offset in (data, varint(4, len(data))))
    content = target.read_bytes()
    assert content.count(honest) == 1
    target.write_bytes(content.replace(honest, lie))
    return target


MEASURED = """
import resource, sys
from privkde.storage.container import DamagedFileError
from privkde.storage.packets import read_packets
try:
    list(read_packets(sys.argv[1], 100))
except DamagedFileError as error:
    print(error)
    own = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(max(int(own), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
"""
"""`RUSAGE_SELF` would count what the process that started this one held."""


def test_a_forged_file_does_not_take_more_than_the_limit(tmp_path: Path) -> None:
    """A regression: 5 MB took more than 3 GB. Measured from a small process, which is all that a new one inherits."""
    command = [sys.executable, "-c", MEASURED, str(forged(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    refused, kilobytes = done.stdout.splitlines()
    assert "or more than 1024 MiB of memory; write it again." in refused
    assert 100 << 10 < int(kilobytes) < (parquet_reader.MEMORY >> 10) + (200 << 10), "and what is shared, code"


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_the_reader_ends_with_whoever_reads(tmp_path: Path, processes: list[Any]) -> None:
    """After a part, after all, and after an error: no process and no descriptor is left."""
    target = tmp_path / "part.parquet"
    write_packets(target, [os.urandom(1000) for _ in range(1000)])
    before = len(os.listdir("/proc/self/fd"))
    started = read_packets(str(target), LONGEST)
    next(started)
    assert processes[0].poll() is None, "it waits: the pipe is full"
    started.close()  # type: ignore[attr-defined]
    assert len(list(read_packets(str(target), LONGEST))) == 1000
    with pytest.raises(InvalidInputError, match="no column 'X'"):
        read_vectors(target, "X")
    assert [process.returncode is None for process in processes] == [False] * 3
    assert len(os.listdir("/proc/self/fd")) == before


def test_streams_that_the_system_does_not_know_are_read(tmp_path: Path) -> None:
    write_packets(tmp_path / "part.parquet", PACKETS)
    content = (tmp_path / "part.parquet").read_bytes()
    assert list(read_packets("gs://a/part.parquet", LONGEST, lambda _: io.BytesIO(content))) == PACKETS


def test_a_reader_that_does_not_start_is_not_blamed_on_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_packets(tmp_path / "part.parquet", PACKETS)
    monkeypatch.setattr(sys, "executable", shutil.which("true"))
    with pytest.raises(InvalidInputError, match="did not start; check that") as refused:
        list(read_packets(str(tmp_path / "part.parquet"), LONGEST))
    assert not isinstance(refused.value, DamagedFileError)


def test_a_system_without_limits_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_packets(tmp_path / "part.parquet", PACKETS)
    monkeypatch.setattr(columns, "find_spec", lambda name: None if name == "resource" else find_spec(name))
    with pytest.warns(columns.UnlimitedReaderWarning, match="no module `resource`"):
        assert list(read_packets(str(tmp_path / "part.parquet"), LONGEST)) == PACKETS
