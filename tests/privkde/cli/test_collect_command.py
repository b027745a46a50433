"""`privkde collect` from packets: each report once over all runs, and seeded draws are never published as private.

Collections by Beam, and from vectors, are in tests/privkde/engines/test_beam.py.
"""

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from accounting import plan_budget
from privkde.cli import main
from privkde.cli.interruption import ENDED_BY_SIGNAL
from privkde.draws.randomness import private_randomness
from privkde.protocol.announcement import Announcement
from privkde.protocol.model import DensityModel
from privkde.protocol.parties import Analyzer, Randomizer
from privkde.storage.packets import write_packets
from tests.privkde.cli.test_command_line import refuse
from tests.privkde.unplanned import SEED

PLAN = plan_budget(users=60, min_users=20, dim=2, repetitions=4, epsilon=8, delta=1e-3)
SHOP = Announcement(plan=PLAN, public_seed=SEED)
X = np.random.default_rng(3).normal(size=(60, 2))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.json").write_text(json.dumps(SHOP.to_json()), encoding="utf-8")
    packets = Randomizer(SHOP).packets(X)
    for name, part in {"monday": packets[:25], "tuesday": packets[25:35], "friday": packets[20:55]}.items():
        write_packets(tmp_path / f"{name}.packets", part)
    return tmp_path


def collect(shop: Path, *days: str) -> list[str]:
    files = [str(shop / f"{day}.packets") for day in days]
    return ["collect", *files, "--announcement", str(shop / "shop.json"), "--counts", str(shop / "counts.npz")]


def counted(shop: Path) -> tuple[list[int], list[int], int]:
    analyzer = Analyzer.load(shop / "counts.npz")
    return analyzer.tally.ones.tolist(), analyzer.tally.zeros.tolist(), analyzer.n_users


def test_a_second_run_counts_what_is_new_and_a_repeated_one_nothing(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(collect(shop, "monday")) == 0
    first = counted(shop)
    assert first[2] == 25
    capsys.readouterr()
    assert main(collect(shop, "monday")) == 0
    assert counted(shop) == first
    text = capsys.readouterr().out
    assert "repeated packets" in text
    assert "marked secret" in text
    before = (shop / "counts.npz").read_bytes()
    assert "10 users took part and the noise counts on 20" in refuse(capsys, *collect(shop, "tuesday"))
    assert (shop / "counts.npz").read_bytes() == before
    assert main(collect(shop, "tuesday", "friday")) == 0
    assert counted(shop)[2] == 55
    assert sorted(path.name for path in shop.iterdir() if "reports" in path.name) == ["shop.json.reports"]


def test_a_run_that_ends_before_it_writes_is_run_again(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was counted is neither lost nor counted twice."""

    def interrupted(self: Analyzer, path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Analyzer, "save", interrupted)
        assert main(collect(shop, "monday")) == ENDED_BY_SIGNAL + signal.SIGINT
    assert not (shop / "counts.npz").exists()
    assert main(collect(shop, "monday")) == 0
    assert counted(shop)[2] == 25


def test_a_register_elsewhere(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*collect(shop, "monday"), "--reports", str(shop / "kept")]) == 0
    assert (shop / "kept").exists()
    assert not (shop / "shop.json.reports").exists()
    (shop / "kept").write_bytes(b"damaged" * 100)
    capsys.readouterr()
    assert "is not a register of reports" in refuse(capsys, *collect(shop, "monday"), "--reports", str(shop / "kept"))


@pytest.mark.parametrize("folder", ["/", ".", ".."])
def test_a_folder_is_no_announcement(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also one without a name, beside which no register could be named."""
    refusal = refuse(capsys, "collect", "x.packets", "--announcement", folder, "-o", str(tmp_path / "o.npz"))
    assert f"Is a directory: {folder!r}" in refusal


def test_seeded_packets_are_refused_unless_they_are_asked_for_and_no_option_calls_them_private(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The attack: beside honest packets one seeded packet made the collection not private for good."""
    model = str(shop / "model.npz")
    write_packets(shop / "seeded.packets", Randomizer(SHOP, stream=private_randomness(1)).packets(X[:20]))
    assert main([*collect(shop, "monday", "seeded"), "-o", model]) == 0
    published = DensityModel.load(model)
    assert (published.private, published.n_users) == (True, (25,))
    assert "marked secret" in capsys.readouterr().out
    assert main([*collect(shop, "seeded"), "-o", model, "--seeded"]) == 0
    published = DensityModel.load(model)
    assert (published.private, published.n_users) == (False, (45,))
    assert published.contract.component.startswith("NOT PRIVATE")
    assert "not private" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*collect(shop, "seeded"), "-o", model, "--draws", "secret"])


NAMED = {
    "monday.packets": [],
    "tuesday.packets": [],
    "key": ["--ledger-key", "key"],
    "l.sqlite": ["--ledger", "l.sqlite"],
    "l.sqlite-wal": ["--ledger", "l.sqlite"],
    "l.sqlite-shm": ["--ledger", "l.sqlite"],
    "l.sqlite-journal": ["--ledger", "l.sqlite"],
    "shop.json.reports-journal": [],
    "kept-wal": ["--reports", "kept"],
    "linked": [],
}


@pytest.mark.parametrize("target", NAMED)
@pytest.mark.parametrize("flag", ["--counts", "-o"])
@pytest.mark.parametrize("source", ["monday.packets tuesday.packets", "*day.packets"])
def test_no_output_takes_the_place_of_what_the_command_needs(
    *,
    shop: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    flag: str,
    source: str,
) -> None:
    """The attack: counts took the place of the packets, and a model that of the ledger's log or key."""
    monkeypatch.chdir(shop)
    (shop / "linked").symlink_to(shop / "monday.packets")
    (shop / "key").write_text("k" * 40, encoding="utf-8")
    before = {path.name: path.read_bytes() for path in shop.iterdir()}
    command = ["collect", *source.split(), "--announcement", "shop.json", *NAMED[target], flag, target]
    assert "is named for something else" in refuse(capsys, *command)
    assert {path.name: path.read_bytes() for path in shop.iterdir()} == before


def test_a_register_is_a_file_whatever_its_name(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite would keep `:memory:` nowhere, so that reports were counted again."""
    monkeypatch.chdir(shop)
    assert main([*collect(shop, "monday"), "--reports", ":memory:"]) == 0
    assert (shop / ":memory:").exists()


def test_packets_that_are_a_link_to_itself_are_refused(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "loop.packets").symlink_to(shop / "loop.packets")
    assert "lead nowhere" in refuse(capsys, *collect(shop, "loop"))
