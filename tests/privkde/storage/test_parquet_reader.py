"""The limits of the process that reads Parquet; `test_columns.py` has what it reads and what it does not survive."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from privkde.storage import parquet_reader

LIMITS = """
import json, resource
from privkde.storage.parquet_reader import _limit
_limit()
limited = resource.RLIMIT_DATA, resource.RLIMIT_CPU, resource.RLIMIT_CORE
print(json.dumps([resource.getrlimit(what) for what in limited]))
"""
LOWER = "import resource; resource.setrlimit(resource.RLIMIT_CPU, (20, 30))"


@pytest.mark.parametrize(("before", "seconds"), [("", [63, 63]), (LOWER, [20, 30])], ids=["usual", "lower already"])
def test_memory_and_time_are_limited(before: str, seconds: list[int], tmp_path: Path) -> None:
    """Time by the size of the file, which is the standard input; limits that are lower already stay."""
    (tmp_path / "a").write_bytes(bytes(3 << 20))
    with (tmp_path / "a").open("rb") as file:
        command = [sys.executable, "-c", before + LIMITS]
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=True)
    memory = [parquet_reader.MEMORY] * 2
    assert json.loads(done.stdout) == [memory, seconds, [0, 0]]
    assert parquet_reader.SECONDS + 3 == 63
