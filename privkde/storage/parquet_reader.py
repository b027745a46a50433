"""The process that reads a Parquet file: it has little memory and time, and may die (extra `beam`).

A Parquet file that somebody forged can take any memory, and damaged ones end the process that reads them: pyarrow's C++
code raises where Python cannot catch it. So `columns` lets `python -m privkde.storage.parquet_reader` read the file,
which is its standard input, and believes nothing but what that writes to its standard output: READY, then VALUES, then
END or REFUSED. Each is a letter, a length and as many bytes. This module imports nothing of the library, to start soon.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

MEMORY = 1 << 30
"""Bytes that the process may take (`RLIMIT_DATA`), about 80 MB of them for Python, NumPy and pyarrow."""
SECONDS = 60
"""Of processor time that the process may take, and one more for each MiB of the file (`RLIMIT_CPU`)."""
PACKETS_AT_ONCE = 16
NUMBERS_AT_ONCE = 1 << 22
"""Of vectors; a single vector is always read whole."""
LABELS_AT_ONCE = 1 << 16

HEAD = struct.Struct("<cQ")
READY, VALUE, REFUSED, END = b"s", b"v", b"r", b"e"


class _RefusedError(Exception):
    """The file is intact, and does not hold what is wanted: a sentence for the user."""


def main() -> None:
    """Read what the first argument asks for, as JSON."""
    _limit()
    os.environ |= {"ARROW_DEFAULT_MEMORY_POOL": "system", "ARROW_IO_THREADS": "1", "OMP_NUM_THREADS": "1"}
    import pyarrow as pa
    import pyarrow.parquet

    pa.set_cpu_count(1)
    wanted = json.loads(sys.argv[1])
    with open(0, "rb", closefd=False) as file, open(1, "wb", buffering=1 << 16, closefd=False) as answers:
        answers.write(HEAD.pack(READY, 0))
        answers.flush()
        last, sentence = END, ""
        try:
            for value in READERS[wanted.pop("read")](file, **wanted):
                answers.write(HEAD.pack(VALUE, len(value)) + value)
        except _RefusedError as refusal:
            last, sentence = REFUSED, str(refusal)
        answers.write(HEAD.pack(last, len(sentence.encode())) + sentence.encode())


def _limit() -> None:
    """Limit this process, where the system can."""
    try:
        import resource
    except ImportError:
        return
    seconds = SECONDS + (os.fstat(0).st_size >> 20)
    limits = {resource.RLIMIT_DATA: MEMORY, resource.RLIMIT_CPU: seconds, resource.RLIMIT_CORE: 0}
    for what, most in limits.items():
        allowed = [most if limit == resource.RLIM_INFINITY else min(most, limit) for limit in resource.getrlimit(what)]
        resource.setrlimit(what, (allowed[0], allowed[1]))


def _names(file: IO[bytes], name: str) -> Iterator[bytes]:
    import pyarrow.parquet as pq

    return (held.encode() for held in pq.read_schema(file).names)


def _packets(file: IO[bytes], name: str, column: str, longest: int) -> Iterator[bytes]:
    """The values of a column of bytes; of one that is too long one byte more than the longest has."""
    import pyarrow as pa

    parquet, kind = _opened(file, name, column)
    refused = _RefusedError(f"column {column!r} of {name!r} holds other things than bytes; write it again.")
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)):
        raise refused
    for batch in parquet.iter_batches(PACKETS_AT_ONCE, columns=[column], use_threads=False):
        for value in batch.column(0):
            packet = value.as_buffer()
            if packet is None:
                raise refused
            yield packet[: longest + 1].to_pybytes()


def _labels(file: IO[bytes], name: str, column: str, longest: int) -> Iterator[bytes]:
    """Arrays of numbers, or of texts of at most `longest` bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parquet, kind = _opened(file, name, column)
    refused = _RefusedError(
        f"column {column!r} of {name!r} holds no plain numbers or texts of at most {longest} bytes; convert it."
    )
    if pa.types.is_nested(kind):
        raise refused
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if texts:
        parquet, _ = _opened(file, name, column, read_dictionary=[column])  # equal texts are held once
    for batch in parquet.iter_batches(LABELS_AT_ONCE, columns=[column], use_threads=False):
        values = batch.column(0)
        if texts and (pc.max(pc.binary_length(values.dictionary)).as_py() or 0) > longest:
            raise refused  # before rows repeat it
        labels = np.array(values.to_pylist())
        if labels.ndim != 1 or labels.dtype.kind not in "biufU":
            raise refused
        yield _stored(labels)


def _vectors(file: IO[bytes], name: str, column: str, longest: int) -> Iterator[bytes]:
    """Matrices of some rows, all of them with equally many numbers, at most `longest`."""
    parquet, _ = _opened(file, name, column)
    rows, dim = 0, None
    for group in range(parquet.num_row_groups):
        described = parquet.metadata.row_group(group)
        parts = (described.column(number) for number in range(described.num_columns))
        numbers = next(part.num_values for part in parts if part.path_in_schema.split(".")[0] == column)
        per_row = -(-numbers // max(1, described.num_rows))
        if per_row > longest:
            raise _RefusedError(
                f"column {column!r} of {name!r} has vectors of {per_row} numbers, more than {longest}; write shorter"
                " ones."
            )
        at_once = max(1, NUMBERS_AT_ONCE // max(1, per_row))
        for batch in parquet.iter_batches(at_once, row_groups=[group], columns=[column], use_threads=False):
            matrix = _matrix(batch.column(0))
            if matrix is None or matrix.shape[1] != (matrix.shape[1] if dim is None else dim):
                raise _RefusedError(
                    f"column {column!r} of {name!r} must hold lists of numbers, all of one length; those from row"
                    f" {rows} on do not."
                )
            rows, dim = rows + len(matrix), matrix.shape[1]
            yield _stored(matrix)


def _matrix(column: Any) -> NDArray[np.float32] | None:
    """None if the values are not lists of numbers of one length."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not lists or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        return None
    lengths, numbers = pc.list_value_length(column).unique().to_pylist(), pc.list_flatten(column)
    if len(lengths) != 1 or lengths[0] is None or numbers.null_count:
        return None
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float32).reshape(len(column), lengths[0])


def _opened(file: IO[bytes], name: str, column: str, **options: Any) -> tuple[Any, Any]:
    """A Parquet file, which is read a page at a time, and the type of its column."""
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 16, **options)
    held = parquet.schema_arrow.names
    if column not in held:
        raise _RefusedError(f"{name!r} has no column {column!r}; it has {', '.join(held) or 'none'}.")
    return parquet, parquet.schema_arrow.field(column).type


def _stored(array: NDArray[Any]) -> bytes:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()


READERS: dict[str, Callable[..., Iterator[bytes]]] = {
    "names": _names,
    "packets": _packets,
    "labels": _labels,
    "vectors": _vectors,
}
"""What the process can be asked for."""

if __name__ == "__main__":
    main()
