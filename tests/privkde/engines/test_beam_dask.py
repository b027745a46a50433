"""Beam on Dask: a scheduler and two workers as processes of their own, one of which is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import distributed
import pytest

from accounting.errors import InvalidInputError
from privkde.engines import beam as beam_engine
from privkde.engines.beam import BeamEngine
from privkde.engines.local import LocalEngine
from privkde.engines.users import Users
from privkde.protocol.parties import Analyzer
from privkde.storage import user_blocks
from tests.privkde import holding
from tests.privkde.engines.test_beam import EVERYBODY, ROWS, SEEDED, announcement_of, plain

pytestmark = pytest.mark.extras

ROOT = Path(__file__).parents[3]
SECONDS = 120
"""A cluster that does not start within this time is a failure."""


@dataclass(frozen=True)
class Cluster:
    engine: BeamEngine
    workers: list[subprocess.Popen[bytes]]
    held: Path
    """Where workers say that they are held."""

    def counts_after_a_kill(self, run: Callable[[], Analyzer]) -> Analyzer:
        """What `run` counts if one of the two workers is killed while it works on its second part."""
        with ThreadPoolExecutor(1) as pool:
            counts = pool.submit(run)
            number = holding.wait_for_held(self.held, counts.done)
            os.kill(number, signal.SIGKILL)
            (killed,) = (worker for worker in self.workers if worker.pid == number)
            assert killed.wait(SECONDS) == -signal.SIGKILL
            (self.held / "go").touch()
            analyzer = counts.result(SECONDS)
        assert [worker.poll() for worker in self.workers if worker is not killed] == [None]
        return analyzer


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(user_blocks, "MOST_ROWS", holding.ROWS_PER_BLOCK)
    place, held, file = tmp_path / "place", tmp_path / "held", tmp_path / "scheduler.json"
    place.mkdir()
    held.mkdir()
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, holding.FOLDER: str(held)}
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str, *options: str) -> None:
        command = [
            sys.executable,
            "-m",
            f"{distributed.__name__}.cli.dask_{program}",
            "--scheduler-file",
            str(file),
            *options,
        ]
        with (tmp_path / f"{len(started)}.log").open("wb") as log:
            started.append(subprocess.Popen([*command, "--no-dashboard"], env=environment, stdout=log, stderr=log))

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", "0")
        for _ in range(2):
            start("worker", "--no-nanny", "--nthreads", "1", "--preload", "tests.privkde.holding")
        deadline = time.monotonic() + SECONDS
        while sum("Registered to" in (tmp_path / f"{number}.log").read_text() for number in (1, 2)) < 2:
            assert time.monotonic() < deadline
            assert [process.poll() for process in started] == [None] * 3
            time.sleep(0.05)
        options = (f"--temp_location={place}", f"--dask_scheduler_file={file}")
        yield Cluster(BeamEngine(runner="DaskRunner", options=options), started[1:], held)
        assert list(place.iterdir()) == []
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def test_users_are_played_as_on_one_machine(cluster: Cluster) -> None:
    users = Users(announcement=announcement_of("3nb"), rows=ROWS, index=EVERYBODY)
    found = cluster.counts_after_a_kill(lambda: cluster.engine.play(users, stream=SEEDED, path="faithful"))
    assert plain(found) == plain(LocalEngine().play(users, stream=SEEDED, path="faithful"))
    assert found.n_users == len(EVERYBODY)


def test_packets_are_counted_as_on_one_machine(cluster: Cluster, tmp_path: Path) -> None:
    users = Users(announcement=announcement_of("rr"), rows=ROWS, index=EVERYBODY)
    sent = tmp_path / "sent"
    sent.mkdir()
    LocalEngine().randomize(users, sent, stream=SEEDED)
    files = [str(sent / "*.packets")]
    found = cluster.counts_after_a_kill(lambda: cluster.engine.count(users.announcement, files, seeded=True))
    assert plain(found) == plain(LocalEngine().count(users.announcement, files, seeded=True))
    assert found.n_users == len(EVERYBODY)


def test_options_of_dask_are_known_and_others_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "--temp_location=x"
    engine = BeamEngine(runner="DaskRunner", options=(place, "--dask_client_address=tcp://h:8786"))
    assert engine._pipeline_options().get_all_options()["partition_size"] == 1
    divided = BeamEngine(runner="DaskRunner", options=(place, "--dask_npartitions=4"))
    assert divided._pipeline_options().get_all_options()["partition_size"] is None
    with pytest.raises(InvalidInputError, match="no option '--dask_scheduler=x'"):
        BeamEngine(runner="DaskRunner", options=(place, "--dask_scheduler=x"))
    with pytest.raises(InvalidInputError, match="DaskRunner needs the option --temp_location"):
        BeamEngine(runner="DaskRunner")
    monkeypatch.setattr(beam_engine, "find_spec", lambda _: None)
    with pytest.raises(InvalidInputError, match=r"privkde\[dask\]"):
        BeamEngine(runner="DaskRunner", options=(place,))
