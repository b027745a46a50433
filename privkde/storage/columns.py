"""One column of a file, read a chunk at a time: packets in Parquet or Avro, vectors in Parquet (extra `beam`).

Memory grows with what is read at once, some rows of Parquet or a block of Avro, and not with the file. Files come from
others. Avro is refused where a few bytes could stand for many. Parquet is read by a process of its own
(`parquet_reader`), whose memory and time are limited and whose death only means that the file is refused.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
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
from privkde.storage import parquet_reader
from privkde.storage.container import DamagedFileError
from privkde.storage.files import reading

PARQUET, AVRO = ".parquet", ".avro"
FORMATS = (PARQUET, AVRO)
_AVRO_ROWS = "privkde.rows"
"""How many rows an Avro file was written with: the format has no end mark."""

LARGEST_BLOCK = 64 << 20
"""Bytes of a block of Avro."""
LONGEST_LABEL = 256
LARGEST_ARRAY = 4 * max(parquet_reader.NUMBERS_AT_ONCE, parquet_reader.LABELS_AT_ONCE * LONGEST_LABEL) + 256
"""Bytes of vectors or labels in Parquet that are taken at once, with their header."""
TIMES_THE_FILE, AND_MORE = 64, 64 << 20
"""Bytes of all vectors or labels of a Parquet file of S bytes: at most 64 S and 64 MiB. Vectors hardly become smaller
in a file, and labels are beside them; what is nearly always zero is written without dictionary and compression."""
LONGEST_REFUSAL = 1 << 20
"""Bytes of a sentence that lists the columns of a file."""
PACKET_ID = 16
"""Random bytes that every packet has: no way to write packets takes fewer."""


class UnlimitedReaderWarning(UserWarning):
    """A Parquet file is read without limits, which this system does not have."""


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


def read_packet_column(file: IO[bytes], name: str, column: str, longest: int) -> Iterator[bytes]:
    """The values of a column of bytes, one by one; `name` is the file's, for its ending and for errors.

    Of a value that is longer than `longest` one byte more than that comes. A Parquet file of S bytes holds at most S/16
    different packets, because each has 16 random bytes: one with more rows is refused at the first that is too many.
    """
    with _reading(name):
        if name.endswith(AVRO):
            for value in _avro_values(file, name, column):
                yield value[: longest + 1]
            return
        with _on_disk(file) as held:
            most = os.fstat(held.fileno()).st_size // PACKET_ID
            wanted = {"column": column, "longest": longest}
            for row, packet in enumerate(_parquet_values(held, name, "packets", wanted, largest=longest + 1)):
                if row == most:
                    raise InvalidInputError(
                        f"{name!r} has more than {most} rows, so many that packets must be repeated; write each once."
                    )
                yield packet


@contextmanager
def _on_disk(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """The file, if the system has it open as it is; else a copy without a name."""
    if isinstance(file, io.BufferedReader) and isinstance(file.raw, io.FileIO) and file.seekable():
        yield file
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        yield copy


def _parquet_values(file: IO[bytes], name: str, read: str, wanted: dict[str, Any], *, largest: int) -> Iterator[bytes]:
    """What a `parquet_reader` makes of a file, nothing larger than `largest`; it ends when this generator does."""
    if find_spec("resource") is None:
        warnings.warn(
            "this system cannot limit a process (Python has no module `resource` here): a forged Parquet file may take"
            " all memory; read only files of people whom you trust.",
            UnlimitedReaderWarning,
            stacklevel=2,
        )
    command = [sys.executable, "-P", "-m", parquet_reader.__name__, json.dumps({"read": read, "name": name, **wanted})]
    with subprocess.Popen(
        command,
        stdin=file,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
        start_new_session=True,  # whoever interrupts this process does not make the file look damaged
    ) as process:
        try:
            yield from _answers(cast("IO[bytes]", process.stdout), name, largest)
        finally:
            process.kill()


def _answers(answers: IO[bytes], name: str, largest: int) -> Iterator[bytes]:
    if answers.read(parquet_reader.HEAD.size) != parquet_reader.HEAD.pack(parquet_reader.READY, 0):
        raise InvalidInputError(
            f"{name!r} was not read, because the process that reads Parquet did not start; check that"
            f" {sys.executable!r} can import pyarrow.parquet."
        )
    damaged = DamagedFileError(
        f"{name!r} cannot be read: it is damaged, or takes too much time or more than {parquet_reader.MEMORY >> 20} MiB"
        " of memory; write it again."
    )
    while True:
        head = answers.read(parquet_reader.HEAD.size)
        if len(head) != parquet_reader.HEAD.size:
            raise damaged
        kind, length = parquet_reader.HEAD.unpack(head)
        if kind == parquet_reader.END:
            return
        most = {parquet_reader.VALUE: largest, parquet_reader.REFUSED: LONGEST_REFUSAL}.get(kind, -1)
        if length > most:
            raise damaged
        value = answers.read(length)
        if len(value) != length:
            raise damaged
        if kind == parquet_reader.REFUSED:
            raise InvalidInputError(value.decode())
        yield value


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
        return [name.decode() for name in _parquet_values(file, str(path), "names", {}, largest=LARGEST_ARRAY)]


def read_labels(path: Path, column: str) -> NDArray[Any]:
    """A column of numbers, or of texts of at most `LONGEST_LABEL` bytes; its memory is limited by the file's size."""
    parts = list(_parquet_arrays(path, "labels", column, LONGEST_LABEL))
    return np.concatenate(parts) if parts else np.zeros(0)


def read_matrix(path: Path, column: str) -> NDArray[np.float32]:
    """A column of vectors, copied some rows at a time to a temporary file without a name, and mapped from there.

    The copy is limited by the file's size.
    """
    rows, dim = 0, 0
    with tempfile.TemporaryFile() as copy:
        for matrix in _parquet_arrays(path, "vectors", column, MOST_DIMENSIONS):
            rows, dim = rows + len(matrix), matrix.shape[1]
            copy.write(matrix.tobytes())
        copy.flush()
        if rows * dim == 0:
            return np.zeros((rows, dim), np.float32)
        return np.memmap(copy, np.float32, mode="r", shape=(rows, dim))


def _parquet_arrays(path: Path, read: str, column: str, longest: int) -> Iterator[NDArray[Any]]:
    """Some rows at a time, as long as all of them fit the limit with as many bytes for each as the longest has."""
    with _reading(str(path)), path.open("rb") as file:
        most = TIMES_THE_FILE * os.fstat(file.fileno()).st_size + AND_MORE
        wanted, rows, width = {"column": column, "longest": longest}, 0, 0
        for value in _parquet_values(file, str(path), read, wanted, largest=LARGEST_ARRAY):
            array = np.load(io.BytesIO(value), allow_pickle=False)
            rows, width = rows + len(array), max(width, array.nbytes // max(1, len(array)))
            if rows * width > most:
                raise InvalidInputError(
                    f"{read} of {str(path)!r} take more than {most:,} bytes, {TIMES_THE_FILE} times its size and"
                    f" {AND_MORE >> 20} MiB; if that is right, write it by pyarrow.parquet.write_table with"
                    " compression='none' and use_dictionary=False."
                )
            yield array
