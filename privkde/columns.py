"""One column of a Parquet or Avro file, read a chunk at a time (extra `beam`: pyarrow, fastavro).

A chunk is a row group of Parquet or a block of Avro. Memory grows with the largest chunk, not with the file.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from privkde.blocks import Index
from privkde.container import DamagedFileError

FORMATS = (".parquet", ".avro")
_CHUNKS_KEPT = 4
_AVRO_ROWS = "privkde.rows"
"""How many rows an Avro file was written with: the format has no end mark."""


def require_columns() -> None:
    """A clear error if the packages that read these files are not installed."""
    for module, package in (("pyarrow", "pyarrow"), ("fastavro", "apache-beam")):
        if find_spec(module) is None:
            raise InvalidInputError(
                f"Parquet and Avro files need {package}; install the extra with `pip install 'privkde[beam]'`."
            )


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Whatever a damaged file makes of its reader, which has a dozen errors for it, as one of ours."""
    try:
        yield
    except (InvalidInputError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:
        raise DamagedFileError(f"{name!r} cannot be read ({type(error).__name__}); write it anew.") from error


def chunks(file: IO[bytes], name: str, column: str) -> Iterator[list[Any]]:
    """The values of a column, chunk by chunk; `name` is the file's, for its ending and for errors."""
    require_columns()
    with reading(name):
        if name.endswith(".parquet"):
            yield from _parquet_chunks(file, name, column)
        else:
            yield from _avro_chunks(file, name, column)


def _parquet_chunks(file: IO[bytes], name: str, column: str) -> Iterator[list[Any]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as parquet:
        _require_member(name, column, parquet.schema_arrow.names)
        for group in range(parquet.num_row_groups):
            yield parquet.read_row_group(group, columns=[column]).column(column).to_pylist()


def _avro_chunks(file: IO[bytes], name: str, column: str) -> Iterator[list[Any]]:
    import fastavro

    blocks: Any = fastavro.block_reader(file)
    _require_member(name, column, _avro_fields(blocks.writer_schema))
    missing = int(blocks.metadata.get(_AVRO_ROWS, 0))
    for block in blocks:
        missing -= block.num_records
        yield [record[column] for record in block]
    if missing > 0:
        raise DamagedFileError(f"{name!r} is truncated: it lacks {missing} rows; write it anew.")


def _avro_fields(schema: Any) -> list[str]:
    return [field["name"] for field in schema.get("fields", [])] if isinstance(schema, dict) else []


def _require_member(name: str, column: str, held: list[str]) -> None:
    if column not in held:
        raise InvalidInputError(f"{name!r} has no column {column!r}; it has {', '.join(held) or 'none'}.")


def column_names(path: Path) -> list[str]:
    """The columns of a file."""
    require_columns()
    with reading(str(path)), path.open("rb") as file:
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            return list(pq.read_schema(file).names)
        import fastavro

        return _avro_fields(fastavro.block_reader(file).writer_schema)


def write_column(file: IO[bytes], suffix: str, column: str, values: list[bytes]) -> None:
    """A file with one column of bytes."""
    require_columns()
    if suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({column: pa.array(values, pa.binary())}), file, compression="none")
        return
    import fastavro

    schema = {"type": "record", "name": "row", "fields": [{"name": column, "type": "bytes"}]}
    told = {_AVRO_ROWS: str(len(values))}
    fastavro.writer(file, fastavro.parse_schema(schema), ({column: value} for value in values), metadata=told)


def read_column(path: Path, column: str) -> NDArray[Any]:
    """A column of numbers or texts, such as labels."""
    with path.open("rb") as file:
        values = [value for chunk in chunks(file, str(path), column) for value in chunk]
    found = np.array(values) if values else np.zeros(0)
    if found.ndim != 1 or found.dtype.kind not in "biufU":
        raise InvalidInputError(f"column {column!r} of {str(path)!r} holds no plain numbers or texts; convert it.")
    return found


@dataclass(frozen=True, slots=True)
class ColumnRows:
    """A column of vectors as a matrix whose chunks are read when their rows are asked for."""

    path: Path
    column: str
    starts: tuple[int, ...]
    """The first row of each chunk, and at the end the number of rows."""
    offsets: tuple[tuple[int, int], ...]
    """Avro: where the header and each block begin and end, in bytes."""
    shape: tuple[int, int]
    stamp: tuple[int, int, int]
    """When the file was written, its size and its place, as its layout was read."""

    def __getitem__(self, index: Index, /) -> NDArray[np.floating]:
        """The vectors of these rows; refused if the file was written anew since its layout was read."""
        if _stamp(self.path) != self.stamp:
            raise InvalidInputError(f"{str(self.path)!r} was changed while it was being read; start again.")
        rows = np.asarray(index)
        found = np.empty((len(rows), self.shape[1]), np.float32)
        holders = np.searchsorted(self.starts, rows, side="right") - 1
        for number in np.unique(holders):
            mine = holders == number
            found[mine] = _chunk_of(self, int(number))[rows[mine] - self.starts[number]]
        return found


def _stamp(path: Path) -> tuple[int, int, int]:
    about = path.stat()
    return about.st_mtime_ns, about.st_size, about.st_ino


@lru_cache(maxsize=_CHUNKS_KEPT)
def _chunk_of(rows: ColumnRows, number: int) -> NDArray[np.float32]:
    """One chunk as a matrix; neighboring blocks of users share it."""
    if number >= len(rows.starts) - 1:
        raise InvalidInputError(f"row {rows.starts[-1]} was asked for and {str(rows.path)!r} has only those before.")
    with reading(str(rows.path)), rows.path.open("rb") as file:
        if rows.path.suffix == ".parquet":
            import pyarrow.parquet as pq

            with pq.ParquetFile(file) as parquet:
                found = _parquet_matrix(parquet.read_row_group(number, columns=[rows.column]).column(rows.column))
        else:
            (values,) = _avro_chunks(io.BytesIO(_bytes_of(file, rows, number)), str(rows.path), rows.column)
            found = _avro_matrix(values)
    if found is None or (rows.shape[1] and found.shape[1] != rows.shape[1]):
        raise InvalidInputError(
            f"column {rows.column!r} of {str(rows.path)!r} must hold lists of numbers, all of one length; those from"
            f" row {rows.starts[number]} on do not."
        )
    return found


def _bytes_of(file: IO[bytes], rows: ColumnRows, number: int) -> bytes:
    """An Avro file of one block: the header, and the block."""
    parts = []
    for begin, end in (rows.offsets[0], rows.offsets[number + 1]):
        file.seek(begin)
        parts.append(file.read(end - begin))
    return b"".join(parts)


def _parquet_matrix(column: Any) -> NDArray[np.float32] | None:
    """None if the values are no lists of numbers of one length."""
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


def _avro_matrix(values: list[Any]) -> NDArray[np.float32] | None:
    """None if the values are no lists of numbers of one length."""
    if not all(isinstance(value, list) and all(type(one) in (int, float) for one in value) for value in values):
        return None
    if len({len(value) for value in values}) != 1:
        return None
    return np.array(values, np.float32)


def read_rows(path: Path, column: str) -> ColumnRows:
    """A column of vectors; only its layout is read now, and the first chunk for the length of vectors."""
    require_columns()
    layout: Callable[[Path, str], tuple[list[int], list[tuple[int, int]]]]
    layout = _parquet_layout if path.suffix == ".parquet" else _avro_layout
    with reading(str(path)):
        stamp = _stamp(path)
        counts, offsets = layout(path, column)
    starts = tuple(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).tolist())
    unknown = ColumnRows(path, column, starts, tuple(offsets), (starts[-1], 0), stamp)
    dim = _chunk_of(unknown, 0).shape[1] if starts[-1] else 0
    return ColumnRows(path, column, starts, tuple(offsets), (starts[-1], dim), stamp)


def _parquet_layout(path: Path, column: str) -> tuple[list[int], list[tuple[int, int]]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as parquet:
        _require_member(str(path), column, parquet.schema_arrow.names)
        groups = (parquet.metadata.row_group(number) for number in range(parquet.num_row_groups))
        return [group.num_rows for group in groups], []


def _avro_layout(path: Path, column: str) -> tuple[list[int], list[tuple[int, int]]]:
    import fastavro

    with path.open("rb") as file:
        blocks = fastavro.block_reader(file)
        _require_member(str(path), column, _avro_fields(blocks.writer_schema))
        found = [(block.num_records, block.offset, block.offset + block.size) for block in blocks]
        first = found[0][1] if found else 0
    return [count for count, *_ in found], [(0, first), *((begin, end) for _, begin, end in found)]
