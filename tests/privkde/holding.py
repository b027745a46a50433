"""Runs that are held in the middle, so that a test can end them there: `python -m tests.privkde.holding FOLDER …`.

After the first blocks of users, or files of packets, a process writes `FOLDER/held-<its number>` and waits for
`FOLDER/go`, or for a signal that asks it to end.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from privkde.cli import main
from privkde.cli.interruption import SIGNALS
from privkde.engines.users import Clients
from privkde.storage import user_blocks
from privkde.storage.packets import read_packets

ROWS_PER_BLOCK = 8
FOLDER = "PRIVKDE_TEST_HOLDING"
"""The environment variable of a worker of Dask, for which this module is preloaded."""


def holding(work: Callable[..., Any], folder: Path, after: int) -> Callable[..., Any]:
    """The same work, held from the call with this number on."""
    calls = count()

    def held(*arguments: Any) -> Any:
        if next(calls) >= after:
            (folder / f"held-{os.getpid()}").touch()
            while not (folder / "go").exists() and signal.getsignal(signal.SIGTERM) != signal.SIG_IGN:
                time.sleep(0.01)
        return work(*arguments)

    return held


def wait_for_held(folder: Path, ended: Callable[[], bool]) -> int:
    """The number of the first process that is held."""
    while True:
        for path in folder.glob("held-*"):
            return int(path.name.removeprefix("held-"))
        assert not ended(), "the run ended before it was held"
        time.sleep(0.01)


def dask_setup(_: Any) -> None:
    """Called in a worker of Dask before it works."""
    from privkde.engines import transforms

    folder = Path(os.environ[FOLDER])
    Clients._block = holding(Clients._block, folder, after=1)  # type: ignore[method-assign]
    transforms.read_packets = holding(read_packets, folder, after=1)  # type: ignore[attr-defined]


if __name__ == "__main__":
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)  # tests that run in the background ignore some
    user_blocks.MOST_ROWS = ROWS_PER_BLOCK
    Clients._block = holding(Clients._block, Path(sys.argv[1]), after=2)  # type: ignore[method-assign]
    sys.exit(main(sys.argv[2:]))
