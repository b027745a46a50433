"""One column of a file, read a chunk at a time: packets in Parquet or Avro, vectors in Parquet (extra `beam`).

A chunk is a row group of Parquet or a block of Avro. Memory grows with the largest chunk, not with the file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from privkde.storage.container import DamagedFileError
from privkde.storage.files import reading

PARQUET, AVRO = ".parquet", ".avro"
FORMATS = (PARQUET, AVRO)
_AVRO_ROWS = "privkde.rows"
"""How many rows an Avro file was written with: the format has no end mark."""


def require_columns() -> None:
    """A clear error if the packages that read these files are not installed."""
    for module, package in (("pyarrow", "pyarrow"), ("fastavro", "apache-beam")):
        if find_spec(module) is None:
            raise InvalidInputError(
                f"Parquet and Avro files need {package}; install the extra with `pip install 'privkde[beam]'`."
            )


def _reading(name: str) -> AbstractContextManager[None]:
    require_columns()
    return reading(lambda error: DamagedFileError(f"{name!r} cannot be read ({type(error).__name__}); write it again."))


def read_column(file: IO[bytes], name: str, column: str) -> Iterator[list[Any]]:
    """The values of a column, chunk by chunk; `name` is the file's, for its ending and for errors."""
    with _reading(name):
        if name.endswith(AVRO):
            yield from _avro_chunks(file, name, column)
        else:
            for chunk in _parquet_chunks(file, name, column):
                yield chunk.to_pylist()


def _parquet_chunks(file: IO[bytes], name: str, column: str) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        _require_member(name, column, parquet.schema_arrow.names)
        for group in range(parquet.num_row_groups):
            yield parquet.read_row_group(group, columns=[column]).column(column)


def _avro_chunks(file: IO[bytes], name: str, column: str) -> Iterator[list[Any]]:
    import fastavro

    blocks: Any = fastavro.block_reader(file)
    schema = blocks.writer_schema
    _require_member(name, column, [field["name"] for field in schema.get("fields", [])])
    missing = int(blocks.metadata.get(_AVRO_ROWS, 0))
    for block in blocks:
        missing -= block.num_records
        yield [record[column] for record in block]
    if missing > 0:
        raise DamagedFileError(f"{name!r} is truncated: it lacks {missing} rows; write it again.")


def _require_member(name: str, column: str, held: list[str]) -> None:
    if column not in held:
        raise InvalidInputError(f"{name!r} has no column {column!r}; it has {', '.join(held) or 'none'}.")


def write_column(file: IO[bytes], suffix: str, column: str, values: list[bytes]) -> None:
    """A file with one column of bytes."""
    require_columns()
    if suffix == PARQUET:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({column: pa.array(values, pa.binary())}), file, compression="none")
        return
    import fastavro

    schema = {"type": "record", "name": "row", "fields": [{"name": column, "type": "bytes"}]}
    rows = {_AVRO_ROWS: str(len(values))}
    fastavro.writer(file, fastavro.parse_schema(schema), ({column: value} for value in values), metadata=rows)


def column_names(path: Path) -> list[str]:
    """The columns of a Parquet file."""
    with _reading(str(path)), path.open("rb") as file:
        import pyarrow.parquet as pq

        return list(pq.read_schema(file).names)


def read_labels(path: Path, column: str) -> NDArray[Any]:
    """A column of numbers or texts."""
    with path.open("rb") as file:
        values = [value for chunk in read_column(file, str(path), column) for value in chunk]
    labels = np.array(values) if values else np.zeros(0)
    if labels.ndim != 1 or labels.dtype.kind not in "biufU":
        raise InvalidInputError(f"column {column!r} of {str(path)!r} holds no plain numbers or texts; convert it.")
    return labels


def read_matrix(path: Path, column: str) -> NDArray[np.float32]:
    """A column of vectors, copied chunk by chunk to a temporary file without a name, and mapped from there."""
    rows, dim = 0, 0
    with _reading(str(path)), path.open("rb") as file, tempfile.TemporaryFile() as copy:
        for chunk in filter(len, _parquet_chunks(file, str(path), column)):
            matrix = _matrix(chunk)
            if rows == 0 and matrix is not None:
                dim = matrix.shape[1]
            if matrix is None or matrix.shape[1] != dim:
                raise InvalidInputError(
                    f"column {column!r} of {str(path)!r} must hold lists of numbers, all of one length; those from row"
                    f" {rows} on do not."
                )
            rows += len(matrix)
            copy.write(matrix.tobytes())
        copy.flush()
        if rows * dim == 0:
            return np.zeros((rows, dim), np.float32)
        return np.memmap(copy, np.float32, mode="r", shape=(rows, dim))


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
    return np.asarray(numbers.to_numpy(), np.float32).reshape(len(column), -1)
