"""Memory of this process: how much it held at most, and rows that take none."""

from __future__ import annotations

import resource
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privkde.storage.user_blocks import Index

_STATUS = Path("/proc/self/status")


def peak_memory() -> int:
    """The largest resident memory so far, in bytes.

    On Linux, a process inherits `ru_maxrss` from whoever starts it: a child of a large process looks large. The
    high-water mark in /proc belongs to the program alone. Elsewhere `ru_maxrss` is all there is.
    """
    if _STATUS.exists():
        lines = dict(line.split(":", 1) for line in _STATUS.read_text(encoding="utf-8").splitlines())
        return 1024 * int(lines["VmHWM"].split()[0])
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else 1024 * largest


@dataclass(frozen=True, slots=True)
class RepeatedRows:
    """Many users whose vectors repeat a few: rows that exist only while they are read."""

    base: NDArray[np.float32]
    shape: tuple[int, int]

    def __getitem__(self, index: Index, /) -> NDArray[np.float32]:
        """These rows."""
        return self.base[index % len(self.base)]
