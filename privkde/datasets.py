"""Vectors in files: `.npz` archives, read and written a block at a time; Parquet and Avro files (extra `beam`)."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from privkde.blocks import Index
from privkde.columns import FORMATS, ColumnRows, column_names, read_column, read_rows
from privkde.files import write_whole


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A matrix in a file, mapped anew for every block, so that memory does not grow with what was read."""

    path: Path
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, int]

    def __getitem__(self, index: Index, /) -> NDArray[np.floating]:
        """Copies of these rows: an array of numbers never gives views."""
        mapped = np.memmap(self.path, dtype=self.dtype, mode="r", offset=self.offset, shape=self.shape)
        return np.asarray(mapped[index])


def read_vectors(path: Path, name: str) -> StoredRows | ColumnRows | NDArray[np.floating]:
    """The matrix or column `name` of a file; arrays are mapped if stored uncompressed in C order, else loaded."""
    if path.suffix in FORMATS:
        return read_rows(path, name)
    with _reading(path), zipfile.ZipFile(path) as archive:
        info = _member(archive, path, name)
        with archive.open(info) as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(member)
            header = member.tell()
        if len(shape) != 2 or dtype.kind != "f":
            raise InvalidInputError(
                f"array {name!r} of {str(path)!r} has shape {shape} and type {dtype}; vectors are real, (rows, dim)."
            )
        if info.file_size != header + math.prod(shape) * dtype.itemsize:
            raise InvalidInputError(f"array {name!r} of {str(path)!r} is not as long as it says; write it anew.")
        if info.compress_type == zipfile.ZIP_STORED and not fortran:
            return StoredRows(path, _data_offset(path, info) + header, dtype, (int(shape[0]), int(shape[1])))
    return read_array(path, name)


def read_array(path: Path, name: str) -> NDArray[Any]:
    """A small array or column, such as labels; nothing is unpickled."""
    if path.suffix in FORMATS:
        return read_column(path, name)
    with _reading(path), zipfile.ZipFile(path) as archive, archive.open(_member(archive, path, name)) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def holds(path: Path, name: str) -> bool:
    """Whether a file has this array or column."""
    if path.suffix in FORMATS:
        return name in column_names(path)
    with _reading(path), zipfile.ZipFile(path) as archive:
        return f"{name}.npy" in archive.namelist()


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """A matrix that is made while it is written: blocks of rows, `shape[0]` of them in all."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    blocks: Iterable[NDArray[Any]]


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any] | RowBlocks]) -> None:
    """An archive that can be mapped (uncompressed, C order), whole or not at all; equal arrays give equal files."""

    def write(temporary: Path) -> None:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays.items():
                info = zipfile.ZipInfo(f"{name}.npy")  # dated 1980: the time of writing is no part of the data
                info.external_attr = 0o644 << 16
                with archive.open(info, "w", force_zip64=True) as member:
                    if isinstance(array, RowBlocks):
                        _write_blocks(member, name, array)
                    else:
                        np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)

    write_whole(path, write)


def _write_blocks(member: IO[bytes], name: str, array: RowBlocks) -> None:
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(member, header)
    written = 0
    for block in array.blocks:
        written += len(block)
        member.write(np.ascontiguousarray(block, dtype=array.dtype).tobytes())
    if written != array.shape[0]:
        raise InvalidInputError(
            f"{written:,} rows came for array {name!r} and {array.shape[0]:,} were announced;"
            " did a file change meanwhile? Try again."
        )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever a damaged archive makes of zipfile and NumPy, which have a dozen errors for it, as one of ours."""
    try:
        yield
    except (InvalidInputError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:
        raise InvalidInputError(
            f"{str(path)!r} is no intact .npz archive of plain arrays ({error}); write it with numpy.savez."
        ) from error


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> zipfile.ZipInfo:
    held = archive.namelist()
    if f"{name}.npy" not in held:
        names = ", ".join(one.removesuffix(".npy") for one in held) or "none"
        raise InvalidInputError(f"{str(path)!r} has no array {name!r}; it has {names}.")
    return archive.getinfo(f"{name}.npy")


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Where a stored member's bytes begin: after its local header, whose two lengths are in its bytes 26 to 30."""
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        name, extra = np.frombuffer(file.read(4), "<u2")
    return info.header_offset + 30 + int(name) + int(extra)
