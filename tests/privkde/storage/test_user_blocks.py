"""Work in blocks: every row once, results in order, whatever the number of cores."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

from privkde.storage import user_blocks as blocks
from privkde.storage.user_blocks import BLOCK_ENTRIES, LEAST_ROWS, MOST_ROWS, Index, in_blocks

CORES = [1, 2, 5, None]


def pieces(index: Index, n_columns: int) -> list[tuple[list[int], int]]:
    return in_blocks(lambda part, start: (part.tolist(), start), index, n_columns)


@given(rows=st.integers(0, 1000), n_columns=st.integers(0, 10**7), cores=st.sampled_from(CORES))
def test_blocks_cut_the_index_into_consecutive_pieces(rows: int, n_columns: int, cores: int | None) -> None:
    index = np.random.default_rng(rows).permutation(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.cpu_count", lambda: cores)
        found = pieces(index, n_columns)
    assert [row for part, _ in found for row in part] == index.tolist()
    lengths = [len(part) for part, _ in found]
    assert [start for _, start in found] == np.cumsum([0, *lengths])[:-1].tolist()
    assert len(set(lengths[:-1])) <= 1
    if lengths:
        assert 1 <= lengths[-1] <= lengths[0] <= MOST_ROWS
        assert lengths[0] <= LEAST_ROWS or lengths[0] * n_columns <= BLOCK_ENTRIES
        if len(lengths) > 1:  # and not smaller than it has to be
            assert lengths[0] == MOST_ROWS or (lengths[0] + 1) * n_columns > BLOCK_ENTRIES


@pytest.mark.parametrize("cores", CORES)
def test_results_are_in_the_order_of_the_blocks(cores: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_ROWS", 1)
    monkeypatch.setattr("os.cpu_count", lambda: cores)

    def slow_first(part: Index, start: int) -> int:
        time.sleep(0.02 if start == 0 else 0.0)
        return int(part[0]) - start

    assert in_blocks(slow_first, np.arange(100, 112), 1) == [100] * 12


@pytest.mark.parametrize("cores", [1, 2, 7])
def test_as_many_threads_as_cores_and_blocks(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All workers meet at a barrier, which one fewer could not pass."""
    monkeypatch.setattr(blocks, "MOST_ROWS", 1)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    barrier, names = threading.Barrier(cores), set()

    def meet(_part: Index, _start: int) -> None:
        names.add(threading.get_ident())
        barrier.wait(timeout=60)

    in_blocks(meet, np.arange(2 * cores), 1)
    assert len(names) == cores


def test_one_block_is_done_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    assert in_blocks(lambda _part, _start: threading.get_ident(), np.arange(3), 1) == [threading.get_ident()]


@pytest.mark.parametrize("cores", CORES)
@pytest.mark.parametrize("rows", [0, 1, 254, 255, 256, 1000])
def test_progress_adds_up(rows: int, cores: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    done: list[int] = []
    in_blocks(lambda _part, _start: None, np.arange(rows), 3, done.append)
    assert sum(done) == rows
    assert len(done) == -(-rows // MOST_ROWS)


@pytest.mark.parametrize("cores", CORES)
def test_exceptions_reach_the_caller(cores: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_ROWS", 2)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    done: list[int] = []

    def fail(_part: Index, start: int) -> None:
        if start >= 4:
            raise KeyError(f"block {start}")

    with pytest.raises(KeyError, match="block 4"):
        in_blocks(fail, np.arange(10_000), 1, done.append)
    assert done == [2, 2], "a block that failed is not done"


def test_blas_has_one_thread_among_many_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_ROWS", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)

    def threads(_part: Index, _start: int) -> list[int]:
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        before = threads(np.arange(0), 0)
        assert 2 in before, "NumPy's BLAS was not found, or has one thread anyway"
        assert in_blocks(threads, np.arange(4), 1) == [[1] * len(before)] * 4
        assert threads(np.arange(0), 0) == before, "the limit ends with the work"
