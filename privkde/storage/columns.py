"""One column of a file, read a chunk at a time: packets in Parquet or Avro, vectors in Parquet (extra `beam`).

Memory grows with what is read at once, some rows of Parquet or a block of Avro, and not with the file. Packets come
from others, so their files are refused where a few bytes could stand for many: by compression that has no small ratio,
by a large dictionary, by columns of other things than bytes. A row is then at most a small multiple of the file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.kernels import MOST_DIMENSIONS
from privkde.storage.container import DamagedFileError
from privkde.storage.files import reading

PARQUET, AVRO = ".parquet", ".avro"
FORMATS = (PARQUET, AVRO)
_AVRO_ROWS = "privkde.rows"
"""How many rows an Avro file was written with: the format has no end mark."""

PLAIN_ENCODINGS = {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"}
"""Encodings of Parquet in which values do not share bytes, but for a dictionary's."""
PACKED_RATIOS = {"UNCOMPRESSED": 1, "SNAPPY": 22}
"""Compressions of packets in Parquet that are read, and how many bytes one byte can become at most. Avro: none."""
LARGEST_DICTIONARY = 32 << 20
"""Bytes, unpacked, of the dictionary of a column of packets, which any number of rows can repeat."""
LARGEST_BLOCK = 64 << 20
"""Bytes of a block of Avro."""
PACKETS_AT_ONCE = 16
NUMBERS_AT_ONCE = 1 << 22
"""Of vectors; a single vector is always read whole."""
LONGEST_LABEL = 256


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


def read_packet_column(file: IO[bytes], name: str, column: str) -> Iterator[Any]:
    """The values of a column of bytes, one by one; `name` is the file's, for its ending and for errors."""
    with _reading(name):
        yield from _avro_values(file, name, column) if name.endswith(AVRO) else _parquet_packets(file, name, column)


def _parquet_packets(file: IO[bytes], name: str, column: str) -> Iterator[Any]:
    import pyarrow as pa

    with _parquet(file, name, column) as parquet:
        kind = parquet.schema_arrow.field(column).type
        if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)):
            raise InvalidInputError(f"column {column!r} of {name!r} holds other things than bytes; write it again.")
        for group in range(parquet.num_row_groups):
            _refuse_bombs(_metadata(parquet, group, column), name, column)
            for chunk in parquet.iter_batches(PACKETS_AT_ONCE, row_groups=[group], columns=[column]):
                yield from chunk.column(0).to_pylist()


def _refuse_bombs(metadata: Any, name: str, column: str) -> None:
    """Refuse a chunk of packets whose few bytes can become many."""
    if metadata.compression not in PACKED_RATIOS:
        raise InvalidInputError(
            f"column {column!r} of {name!r} is compressed by {metadata.compression}, which has no small ratio; write it"
            " without compression: packets are random bytes."
        )
    strange = sorted(set(metadata.encodings) - PLAIN_ENCODINGS)
    if strange:
        raise InvalidInputError(
            f"column {column!r} of {name!r} is encoded by {strange[0]}, in which few bytes can become many; write it"
            " in plain."
        )
    if metadata.has_dictionary_page:
        packed = metadata.data_page_offset - metadata.dictionary_page_offset
        if not 0 <= packed * PACKED_RATIOS[metadata.compression] <= LARGEST_DICTIONARY:
            raise InvalidInputError(
                f"column {column!r} of {name!r} has a dictionary of more than {LARGEST_DICTIONARY} bytes; write it"
                " without a dictionary."
            )


def _avro_values(file: IO[bytes], name: str, column: str) -> Iterator[Any]:
    import fastavro

    blocks: Any = fastavro.block_reader(cast("IO[bytes]", _BlockReader(file, name)))
    fields = [(field["name"], field["type"]) for field in blocks.writer_schema.get("fields", [])]
    _require_member(name, column, [field for field, _ in fields])
    if fields not in ([(column, "bytes")], [(column, {"type": "bytes"})]) or blocks.codec != "null":
        raise InvalidInputError(
            f"{name!r} holds other things than bytes in one column {column!r}, or is compressed; write it again."
        )
    missing = int(blocks.metadata.get(_AVRO_ROWS, 0))
    for block in blocks:
        missing -= block.num_records
        for record in block:
            yield record[column]
    if missing > 0:
        raise DamagedFileError(f"{name!r} is truncated: it lacks {missing} rows; write it again.")


@dataclass(slots=True)
class _BlockReader:
    """A file of Avro that is not read in larger pieces than `LARGEST_BLOCK`."""

    file: IO[bytes]
    name: str

    def read(self, size: int) -> bytes:
        if not 0 <= size <= LARGEST_BLOCK:
            raise DamagedFileError(
                f"{self.name!r} has a block of more than {LARGEST_BLOCK} bytes or is damaged; write it again."
            )
        return self.file.read(size)

    def tell(self) -> int:
        return self.file.tell()


@contextmanager
def _parquet(file: IO[bytes], name: str, column: str, *, dictionary: bool = False) -> Iterator[Any]:
    """A Parquet file with this column, read a page at a time; with `dictionary`, equal values are held once."""
    import pyarrow.parquet as pq

    _require_member(name, column, pq.read_schema(file).names)
    coded = [column] if dictionary else None
    with pq.ParquetFile(file, read_dictionary=coded, pre_buffer=False, buffer_size=1 << 16) as parquet:
        yield parquet


def _metadata(parquet: Any, group: int, column: str) -> Any:
    """What the file says of a column in one of its row groups; of the numbers, for a column of lists."""
    described = parquet.metadata.row_group(group)
    parts = (described.column(number) for number in range(described.num_columns))
    return next(part for part in parts if part.path_in_schema.split(".")[0] == column)


def _require_member(name: str, column: str, held: list[str]) -> None:
    if column not in held:
        raise InvalidInputError(f"{name!r} has no column {column!r}; it has {', '.join(held) or 'none'}.")


def write_column(file: IO[bytes], suffix: str, column: str, values: list[bytes]) -> None:
    """A file with one column of bytes."""
    require_columns()
    if suffix == PARQUET:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({column: pa.array(values, pa.binary())})
        pq.write_table(table, file, compression="none", use_dictionary=False)
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
    """A column of numbers, or of texts of at most `LONGEST_LABEL` bytes."""
    refused = InvalidInputError(
        f"column {column!r} of {str(path)!r} holds no plain numbers or texts of at most {LONGEST_LABEL} bytes; convert"
        " it."
    )
    parts: list[NDArray[Any]] = []
    with _reading(str(path)), path.open("rb") as file:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        schema = pq.read_schema(file)
        _require_member(str(path), column, schema.names)
        kind = schema.field(column).type
        if pa.types.is_nested(kind):
            raise refused
        texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        with _parquet(file, str(path), column, dictionary=texts) as parquet:
            for batch in parquet.iter_batches(columns=[column]):
                values = batch.column(0)
                if texts and (pc.max(pc.binary_length(values.dictionary)).as_py() or 0) > LONGEST_LABEL:
                    raise refused  # before rows repeat it
                parts.append(np.array(values.to_pylist()))
    labels = np.concatenate(parts) if parts else np.zeros(0)
    if labels.ndim != 1 or labels.dtype.kind not in "biufU":
        raise refused
    return labels


def read_matrix(path: Path, column: str) -> NDArray[np.float32]:
    """A column of vectors, copied some rows at a time to a temporary file without a name, and mapped from there."""
    rows, dim = 0, 0
    with _reading(str(path)), path.open("rb") as file, tempfile.TemporaryFile() as copy:
        for chunk in _parquet_vectors(file, str(path), column):
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


def _parquet_vectors(file: IO[bytes], name: str, column: str) -> Iterator[Any]:
    """Arrays of vectors of at most `NUMBERS_AT_ONCE` numbers."""
    with _parquet(file, name, column) as parquet:
        for group in range(parquet.num_row_groups):
            rows = max(1, parquet.metadata.row_group(group).num_rows)
            per_row = -(-_metadata(parquet, group, column).num_values // rows)
            if per_row > MOST_DIMENSIONS:
                raise InvalidInputError(
                    f"column {column!r} of {name!r} has vectors of {per_row} numbers, more than {MOST_DIMENSIONS};"
                    " write shorter ones."
                )
            at_once = max(1, NUMBERS_AT_ONCE // max(1, per_row))
            for batch in parquet.iter_batches(at_once, row_groups=[group], columns=[column]):
                yield batch.column(0)


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
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float32).reshape(len(column), -1)
