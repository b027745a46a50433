"""Arrays in members of `.npz` archives: what a member says of itself, before memory is taken for it."""

from __future__ import annotations

import io
import math
import sys
import zipfile
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

LONGEST_HEADER = 10_000
"""Bytes of an array's header, as many as NumPy takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayHeader:
    """Shape and type of an array, and where its numbers start in the member that holds it."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    start: int

    @property
    def n_bytes(self) -> int:
        """Bytes of the member."""
        return self.start + math.prod(self.shape) * self.dtype.itemsize


def read_header(member: IO[bytes], info: zipfile.ZipInfo) -> ArrayHeader:
    """The header of an array that is exactly as long as it says (`ValueError` if not), or holds objects.

    Members are stored or deflated: of other compressions `zipfile` unpacks gigabytes to read one byte.
    """
    name = info.filename.removesuffix(".npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"array {name!r} is compressed in another way than NumPy does")
    head = io.BytesIO(member.read(LONGEST_HEADER))  # NumPy reads a header of any length before it refuses it
    version = np.lib.format.read_magic(head)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(head)
    header = ArrayHeader(shape=shape, fortran=fortran, dtype=dtype, start=head.tell())
    if not dtype.hasobject and info.file_size != header.n_bytes:
        raise ValueError(f"array {name!r} is not as long as it says")
    if dtype.itemsize == 0 or min(shape, default=0) < 0:
        raise ValueError(f"array {name!r} has shape {shape} and entries of {dtype.itemsize} bytes")
    return header


def read_plain(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """An array of plain numbers or texts that is exactly as long as it says; nothing is unpickled."""
    with archive.open(info) as member:
        read_header(member, info)
    with archive.open(info) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def has_characters_only(array: NDArray[Any]) -> bool:
    """Whether an array, if it holds texts, holds characters of Unicode; NumPy takes any numbers for some."""
    if array.dtype.kind != "U" or array.nbytes == 0:
        return True
    numbers = np.ravel(array).view(np.dtype("u4").newbyteorder(array.dtype.byteorder))
    return int(numbers.max()) <= sys.maxunicode
