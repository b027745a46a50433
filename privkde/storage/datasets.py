"""Vectors and labels in files: arrays of `.npz` archives, or columns of Parquet files (extra `beam`)."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.kernels import MOST_DIMENSIONS
from privkde.storage.arrays import ArrayHeader, has_characters_only, read_header, read_plain
from privkde.storage.columns import AND_MORE, PARQUET, TIMES_THE_FILE, column_names, read_labels, read_matrix
from privkde.storage.files import reading, refuse_device, whole_file
from privkde.storage.user_blocks import Index


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A matrix in a file, mapped again for every block, so that memory does not grow with what was read."""

    path: Path
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, int]

    def __getitem__(self, index: Index, /) -> NDArray[np.floating]:
        """Copies of these rows: an array of numbers never gives views."""
        mapped = np.memmap(self.path, dtype=self.dtype, mode="r", offset=self.offset, shape=self.shape)
        return np.asarray(mapped[index])


def read_vectors(path: Path, name: str) -> StoredRows | NDArray[np.floating]:
    """The matrix or column `name` of a file; arrays are mapped if stored uncompressed in C order, else loaded."""
    if path.suffix == PARQUET:
        return read_matrix(path, name)
    with _reading(path), zipfile.ZipFile(path) as archive:
        info, header = _member(archive, path, name)
        if len(header.shape) != 2 or header.dtype.kind != "f":
            raise InvalidInputError(
                f"array {name!r} of {str(path)!r} has shape {header.shape} and type {header.dtype}; vectors are real,"
                " (rows, dim)."
            )
        if info.compress_type == zipfile.ZIP_STORED and not header.fortran:
            (rows, dim), begin = header.shape, _data_offset(path, info)
            if begin + header.n_bytes > path.stat().st_size:
                raise ValueError(f"array {name!r} goes on beyond the end of the file")
            return StoredRows(path, begin + header.start, header.dtype, (rows, dim))
    return read_array(path, name)


def read_array(path: Path, name: str) -> NDArray[Any]:
    """An array of numbers or texts, or a column, such as labels; its memory is limited by the file's size."""
    if path.suffix == PARQUET:
        return read_labels(path, name)
    with _reading(path), zipfile.ZipFile(path) as archive:
        info, header = _member(archive, path, name)
        _require_plain(path, name, header)
        array = read_plain(archive, info)
    if not has_characters_only(array):
        raise InvalidInputError(f"array {name!r} of {str(path)!r} holds characters that do not exist; write it again.")
    return array


def read_basis(path: Path, dim: int) -> NDArray[Any]:
    """The matrix `basis` of an archive, with a row for each entry of a vector; another shape is refused unread."""
    with _reading(path), zipfile.ZipFile(path) as archive:
        _, header = _member(archive, path, "basis")
    if len(header.shape) != 2 or not 1 <= header.shape[1] <= header.shape[0] == dim <= MOST_DIMENSIONS:
        raise InvalidInputError(
            f"array 'basis' of {str(path)!r} has shape {header.shape} and vectors have {dim} entries; give a matrix"
            f" ({dim}, r) with 1 ≤ r ≤ {dim}."
        )
    return read_array(path, "basis")


def _require_plain(path: Path, name: str, header: ArrayHeader) -> None:
    """Refuse by its header what is neither numbers nor texts, or far larger than the file that it comes from."""
    where = f"array {name!r} of {str(path)!r}"
    if header.dtype.kind not in "biufUS":
        raise InvalidInputError(f"{where} has type {header.dtype}; give numbers or texts.")
    most = TIMES_THE_FILE * path.stat().st_size + AND_MORE
    if header.n_bytes > most:
        raise InvalidInputError(
            f"{where} takes more than {most:,} bytes, {TIMES_THE_FILE} times the size of the file and"
            f" {AND_MORE >> 20} MiB; if that is right, write it uncompressed, by numpy.savez."
        )


def holds(path: Path, name: str) -> bool:
    """Whether a file has this array or column."""
    if path.suffix == PARQUET:
        return name in column_names(path)
    with _reading(path), zipfile.ZipFile(path) as archive:
        return f"{name}.npy" in archive.namelist()


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """An archive that can be mapped, whole or not at all; equal arrays give equal files."""
    with whole_file(path) as temporary, temporary.open("wb") as archive:
        np.savez(archive, allow_pickle=False, **arrays)


def _reading(path: Path) -> AbstractContextManager[None]:
    refuse_device(path)
    intact = f"{str(path)!r} is not an intact .npz archive of plain arrays"
    return reading(lambda error: InvalidInputError(f"{intact} ({error}); write it with numpy.savez, or as Parquet."))


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> tuple[zipfile.ZipInfo, ArrayHeader]:
    held = archive.namelist()
    if f"{name}.npy" not in held:
        names = ", ".join(member.removesuffix(".npy") for member in held) or "none"
        raise InvalidInputError(f"{str(path)!r} has no array {name!r}; it has {names}.")
    info = archive.getinfo(f"{name}.npy")
    with archive.open(info) as member:
        return info, read_header(member, info)


def _data_offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Where a stored member's bytes begin: after its local header, whose two lengths are in its bytes 26 to 30."""
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        name, extra = np.frombuffer(file.read(4), "<u2")
    return info.header_offset + 30 + int(name) + int(extra)
