"""Signals in the middle of a collection: nothing temporary is left, and who has answered does not answer again."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privkde.cli import interruption, main
from privkde.cli.interruption import SIGNALS, Interrupted, interruptible, name_of
from privkde.engines import ANNOUNCEMENT
from privkde.engines.local import LocalEngine
from privkde.engines.users import Clients
from privkde.protocol.model import DensityModel
from privkde.storage import user_blocks
from privkde.storage.files import private_file
from privkde.storage.user_blocks import Index
from tests.plans import plan_for
from tests.privkde.cli.test_command_line import refuse
from tests.privkde.holding import ROWS_PER_BLOCK, wait_for_held

USERS = 60
BLOCKS = -(-USERS // ROWS_PER_BLOCK)
OTHER_SIGNALS = [number for number in SIGNALS if isinstance(number, signal.Signals) and number != signal.SIGTERM]
"""Without those for real time, of which there are many."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with users and a plan for them."""
    folder = tmp_path_factory.mktemp("shop")
    rows = np.random.default_rng(4).normal(size=(USERS, 5))
    np.savez_compressed(folder / "data.npz", X_train=rows)
    plan = plan_for(users=USERS, dim=5, repetitions=8, epsilon=8.0, delta=1e-3, accountant="basic", bitsum="poisson")
    (folder / "plan.json").write_text(plan.dumps(), encoding="utf-8")
    return folder


def collecting(shop: Path, folder: Path, *further: str) -> list[str]:
    given = ["--plan", str(shop / "plan.json"), "-o", str(folder / "model.npz"), "--packets", str(folder / "sent")]
    return ["collect", str(shop / "data.npz"), *given, *further]


def packets(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "sent" / "0").glob("part-*")}


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(number, marks=pytest.mark.slow) for number in OTHER_SIGNALS)],
    ids=name_of,
)
def test_an_interrupted_collection_is_continued(
    number: int, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that have answered keep their packets, under the same announcement; only the others are played."""
    temporary, held = tmp_path / "temporary", tmp_path / "held"
    temporary.mkdir()
    held.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.privkde.holding", str(held), *collecting(shop, tmp_path)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_held(held, lambda: child.poll() is not None)
        before = packets(tmp_path)
        child.send_signal(number)
        _, shown = child.communicate(timeout=60)
    finally:
        child.kill()
    assert 0 < len(before) < BLOCKS
    assert (child.returncode, shown) == (128 + number, f"privkde: interrupted by {name_of(number)}\n")
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "model.npz").exists()
    announced = (tmp_path / "sent" / "0" / ANNOUNCEMENT).read_bytes()
    kept = packets(tmp_path)
    assert before.items() <= kept.items()

    played: list[int] = []
    block = Clients._block

    def spied(self: Clients, part: Index) -> Any:
        played.append(int(part[0]))
        return block(self, part)

    monkeypatch.setattr(Clients, "_block", spied)
    monkeypatch.setattr(user_blocks, "MOST_ROWS", ROWS_PER_BLOCK)
    assert main(collecting(shop, tmp_path)) == 0
    whole = packets(tmp_path)
    assert kept.items() <= whole.items()
    assert len(set(whole.values())) == len(whole) == BLOCKS
    assert len(played) == BLOCKS - len(kept)
    assert (tmp_path / "sent" / "0" / ANNOUNCEMENT).read_bytes() == announced
    assert DensityModel.load(tmp_path / "model.npz").n_users == (USERS,)


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_what_cannot_be_continued_is_refused(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(user_blocks, "MOST_ROWS", ROWS_PER_BLOCK)
    with monkeypatch.context() as patch:
        patch.setattr(LocalEngine, "count", interrupt)
        assert main(collecting(shop, tmp_path)) == 130
    capsys.readouterr()
    held = packets(tmp_path)
    next((tmp_path / "sent" / "0").glob("part-*")).unlink()
    left = packets(tmp_path)
    for further in (["--public-seed", "0" * 32], ["--bandwidth", "2"]):
        assert "answers to another announcement" in refuse(capsys, *collecting(shop, tmp_path, *further))
    with monkeypatch.context() as patch:
        patch.setattr(user_blocks, "MOST_ROWS", ROWS_PER_BLOCK // 2)  # another division into blocks
        assert "is not a block of these users" in refuse(capsys, *collecting(shop, tmp_path))
    assert main(collecting(shop, tmp_path)) == 0
    assert {name: packets(tmp_path)[name] for name in left} == left
    assert packets(tmp_path) != held
    capsys.readouterr()
    monkeypatch.setattr(user_blocks, "MOST_ROWS", ROWS_PER_BLOCK // 2)
    assert "some are missing now" in refuse(capsys, *collecting(shop, tmp_path))
    (tmp_path / "sent" / "notes").touch()
    assert "'notes', which does not belong there" in refuse(capsys, *collecting(shop, tmp_path))


def test_draws_that_are_continued_stay_marked(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded packets that are continued with secret ones are refused: too few are left for a model."""
    monkeypatch.setattr(user_blocks, "MOST_ROWS", ROWS_PER_BLOCK)
    with monkeypatch.context() as patch:
        patch.setattr(LocalEngine, "count", interrupt)
        assert main(collecting(shop, tmp_path, "--insecure-seed", "5")) == 130
    next((tmp_path / "sent" / "0").glob("part-*")).unlink()
    with pytest.raises(SystemExit) as refused:
        main(collecting(shop, tmp_path))
    assert refused.value.code == 2
    assert not (tmp_path / "model.npz").exists()


# The signals alone --------------------------------------------------------------------------------------------------

ENDED_BY = """
import os, resource, signal
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for number in (signal.SIGINT, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
for number in signal.valid_signals():
    process = os.fork()
    if process == 0:
        os.kill(os.getpid(), number)
        os._exit(0)
    status = os.waitpid(process, os.WUNTRACED)[1]
    if os.WIFSIGNALED(status):
        print(int(number))
    if os.WIFSTOPPED(status):
        os.kill(process, signal.SIGKILL)
"""
"""Which signals end a process that handles as many as Python does."""
NOT_CAUGHT = {signal.SIGKILL}
REPEATED = {signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV}
"""Whoever catches them goes on at the instruction that was wrong."""


@pytest.mark.skipif(sys.platform != "linux", reason="systems differ in which signals end a process")
def test_every_signal_that_would_end_a_process_is_handled() -> None:
    """The attack: a signal that is seldom used ends a command at once, and users' vectors stay in a named file."""
    ended = subprocess.run([sys.executable, "-c", ENDED_BY], capture_output=True, text=True, timeout=60, check=True)
    assert set(map(int, ended.stdout.split())) == {*SIGNALS} | NOT_CAUGHT | REPEATED


def test_signals_without_a_name_are_shown_by_number() -> None:
    assert name_of(signal.SIGTERM) == "SIGTERM"
    assert name_of(signal.SIGRTMIN + 1) == f"signal {signal.SIGRTMIN + 1}"
    assert str(Interrupted(signal.SIGRTMIN + 1)).endswith(name_of(signal.SIGRTMIN + 1))


def test_one_signal_ends_and_the_others_do_not_disturb() -> None:
    cleaned = []
    before = [signal.getsignal(number) for number in SIGNALS]

    def end() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGHUP)
            cleaned.append(True)

    with pytest.raises(Interrupted, match="interrupted by SIGTERM"), interruptible():
        end()
    assert cleaned
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_what_a_library_makes_of_it_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def ends_otherwise() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except BaseException as error:
            print("traceback", file=sys.stderr)
            logging.getLogger("library").critical("traceback")
            raise RuntimeError("ended") from error

    with pytest.raises(Interrupted), interruptible():
        ends_otherwise()
    assert capsys.readouterr().err == ""
    assert logging.getLogger("library").isEnabledFor(logging.INFO) == logging.getLogger().isEnabledFor(logging.INFO)
    with pytest.raises(RuntimeError), interruptible():
        raise RuntimeError("without a signal")


def test_signals_of_others_are_left_alone() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    try:
        with interruptible():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    seen: list[object] = []

    def elsewhere() -> None:
        with interruptible():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]


def test_cleaning_up_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up, ended = threading.Event(), []

    def give_up(number: int) -> None:
        ended.append(number)
        given_up.set()

    monkeypatch.setattr(interruption, "SECONDS_TO_END", 0.0)
    monkeypatch.setattr(interruption, "_give_up", give_up)

    def end() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            given_up.wait(60)

    with pytest.raises(Interrupted), interruptible():
        end()
    assert ended == [signal.SIGTERM]


def test_giving_up_leaves_no_file_of_users(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The process ends without cleaning up, so the file of a runner that was named would stay."""
    left: list[bool] = []
    with private_file("users.npz") as path:
        monkeypatch.setattr(os, "_exit", lambda code: left.append(path.exists()))
        interruption._give_up(signal.SIGTERM)
    assert left == [False]
    assert capfd.readouterr().err == "privkde: interrupted by SIGTERM, before everything temporary was deleted\n"
