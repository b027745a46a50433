"""Arrays in members of `.npz` archives: what a member says of itself, before memory is taken for it."""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


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
    """The header of an array that is exactly as long as it says (`ValueError` if not), or holds objects."""
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(member)
    header = ArrayHeader(shape=shape, fortran=fortran, dtype=dtype, start=member.tell())
    if not dtype.hasobject and info.file_size != header.n_bytes:
        raise ValueError(f"array {info.filename.removesuffix('.npy')!r} is not as long as it says")
    return header


def read_plain(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """An array of plain numbers or texts that is exactly as long as it says; nothing is unpickled."""
    with archive.open(info) as member:
        read_header(member, info)
    with archive.open(info) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))
