"""How much memory something takes: what Python and NumPy allocate, whatever the machine does besides."""

import tracemalloc
from collections.abc import Callable

MEGABYTE = 1 << 20


def peak(work: Callable[[], object]) -> int:
    """The most bytes that were held at once for `work`, which may not raise."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
