"""Work on blocks of users, on all cores, with memory for a few blocks at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

BLOCK_ENTRIES = 1 << 20
"""Entries (users × instances) of one block: 4 MB of features. In smaller blocks, threads wait for each other more than
they work; measured by `make bench`."""
LEAST_ROWS, MOST_ROWS = 16, 2048

_controller = cache(ThreadpoolController)
"""Finding the BLAS libraries takes a millisecond; once is enough."""

T = TypeVar("T")
Index = NDArray[np.intp]
Progress = Callable[[int], None]
"""Called with the number of users that were just done; from any thread, perhaps several at a time."""


def rows_per_block(n_columns: int) -> int:
    """How many users make a block, if each has this many entries."""
    return min(MOST_ROWS, max(LEAST_ROWS, BLOCK_ENTRIES // max(1, n_columns)))


def block_parts(index: Index, n_columns: int) -> list[tuple[Index, int]]:
    """Every block of `index` and where it starts; the blocks depend on nothing else."""
    rows = rows_per_block(n_columns)
    return [(index[start : start + rows], start) for start in range(0, len(index), rows)]


def in_blocks(
    work: Callable[[Index, int], T],
    index: Index,
    n_columns: int,
    progress: Progress | None = None,
) -> list[T]:
    """`work(part of index, where it starts)` for every block of `index`; results in order of the blocks.

    BLAS is held to one thread: the workers are the parallelism. The blocks do not depend on the number of cores.
    """
    blocks = block_parts(index, n_columns)

    def run(block: tuple[Index, int]) -> T:
        part, start = block
        result = work(part, start)
        if progress is not None:
            progress(len(part))
        return result

    workers = min(os.cpu_count() or 1, len(blocks))
    if workers <= 1:
        return [run(block) for block in blocks]
    with one_blas_thread(), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run, blocks))


def one_blas_thread() -> AbstractContextManager[object]:
    """BLAS with a single thread, where the workers are the parallelism."""
    limit: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limit
