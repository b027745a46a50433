"""Collections by Apache Beam: the counts of the local engine, and nothing but counts between workers."""

import bz2
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import execution
from sklearn.base import clone

from accounting import plan_budget
from accounting.errors import InvalidInputError
from accounting.mechanisms import BITSUMS
from privkde import PrivateKDE, PrivateKDEClassifier, engines
from privkde.cli import main
from privkde.draws.randomness import ByteStream, private_randomness
from privkde.engines import ANNOUNCEMENT, PATHS, ThroughFiles, transforms
from privkde.engines import beam as beam_engine
from privkde.engines.beam import BeamEngine, PipelineError
from privkde.engines.local import LocalEngine, collect
from privkde.engines.transforms import Block, CountPackets, Played
from privkde.engines.users import Users
from privkde.protocol.announcement import Announcement
from privkde.protocol.counting import PacketCounter, PartialCounts
from privkde.protocol.messages import MAGIC, VERSION
from privkde.protocol.parties import Analyzer, Randomizer, TooFewUsersError
from privkde.storage import user_blocks as blocks
from privkde.storage.container import DamagedFileError
from privkde.storage.files import TEMPORARY
from privkde.storage.packets import SUFFIXES, read_packets, write_packets
from tests.privkde.cli.test_command_line import refuse
from tests.privkde.engines.test_local import collected
from tests.privkde.holding import wait_for_held
from tests.privkde.unplanned import SEED, announced, small_laws

pytestmark = pytest.mark.extras

ROWS = np.random.default_rng(4).normal(size=(60, 5))
EVERYBODY = np.arange(60)
SEEDED = ByteStream(bytes(range(32)))


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "MOST_ROWS", 8)
        yield


def announcement_of(name: str, **request: Any) -> Announcement:
    return announced(small_laws(2)[name], kernel="gaussian", dim=5, repetitions=30, **request)


def plain(analyzer: Analyzer) -> tuple[list[int], list[int], int, int]:
    return analyzer.tally.ones.tolist(), analyzer.tally.zeros.tolist(), analyzer.n_users, analyzer.rejected


def packets_of(announcement: Announcement, count: int = 60) -> list[bytes]:
    return Randomizer(announcement).packets(ROWS[:count])


# The same counts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", BITSUMS)
def test_a_seed_gives_the_counts_of_the_local_engine(name: str, path: str) -> None:
    announcement, index = announcement_of(name), np.random.default_rng(1).permutation(60)[:45]
    expected = collect(announcement, ROWS, index, stream=SEEDED, path=path)
    found = collected(BeamEngine(), announcement, ROWS, index, stream=SEEDED, path=path)
    assert plain(found) == plain(expected)
    assert found.n_users == 45
    other = collect(announcement, ROWS, index, stream=SEEDED.child("other"), path=path)
    assert plain(other) != plain(expected)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_packets_give_the_same_counts_from_every_format(suffix: str, tmp_path: Path) -> None:
    """Written by one engine and counted by the other, these are the counts of the faithful path; some are malformed."""
    announcement = announcement_of("3nb")
    expected = collect(announcement, ROWS, EVERYBODY, stream=SEEDED, path="faithful")
    folders = {"local": tmp_path / "local", "beam": tmp_path / "beam"}
    for name, one in (("local", LocalEngine()), ("beam", BeamEngine())):
        folders[name].mkdir()
        users = Users(announcement=announcement, rows=ROWS, index=EVERYBODY)
        one.randomize(users, folders[name], stream=SEEDED, suffix=suffix)
    names = sorted(path.name for path in folders["beam"].glob("part-*"))
    assert len(names) == 8
    for name in names:
        assert (folders["local"] / name).stat().st_size == (folders["beam"] / name).stat().st_size
    malformed = packets_of(announcement, 3)[0]
    write_packets(folders["local"] / f"bad{suffix}", [malformed[:-1], b"pk"])
    files = [str(folders["local"] / f"*{suffix}")]
    found = BeamEngine().count(announcement, files, seeded=True)
    assert plain(found) == (*plain(expected)[:3], 2)
    assert plain(LocalEngine().count(announcement, files, seeded=True)) == plain(found)


def test_joint_labels_travel_with_their_users(tmp_path: Path) -> None:
    """Also through files, beside which lies what they answer."""
    named = {"classes": 2, "labels": "joint", "model": "density", "padded": 0}
    announcement, labels = announcement_of("rr", users=60, **named), np.arange(60) % 2
    expected = collect(announcement, ROWS, EVERYBODY, labels, stream=SEEDED, path="faithful")
    through = ThroughFiles(engine=BeamEngine(), folder=tmp_path)
    found = collected(through, announcement, ROWS, EVERYBODY, labels, stream=SEEDED)
    assert plain(found) == plain(expected)
    swapped = collect(announcement, ROWS, EVERYBODY, 1 - labels, stream=SEEDED, path="faithful")
    assert plain(swapped) != plain(expected)
    document = json.loads((tmp_path / "0" / ANNOUNCEMENT).read_text(encoding="utf-8"))
    assert Announcement.from_json(document) == announcement
    with pytest.raises(InvalidInputError, match="'aggregated' sends no messages"):
        collected(through, announcement, ROWS, EVERYBODY, labels, stream=SEEDED, path="aggregated")


def test_estimators_run_on_the_engine_that_they_are_given() -> None:
    options: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-3, "repetitions": 8, "insecure_seed": 3}
    expected = PrivateKDE(**options).fit(ROWS)
    for engine in (engines.engine("local"), engines.engine("beam")):
        found = PrivateKDE(**options, engine=engine).fit(ROWS)
        np.testing.assert_array_equal(found.model_.sums, expected.model_.sums)
        assert clone(found).engine == engine


def test_two_processes_count_the_packets_that_one_does(tmp_path: Path) -> None:
    announcement = announcement_of("3nb")
    for number in range(4):
        write_packets(tmp_path / f"{number}.packets", packets_of(announcement, 12 + number))
    one, two = (BeamEngine(workers=n).count(announcement, [str(tmp_path / "*.packets")]) for n in (1, 2))
    assert plain(one) == plain(two)
    assert two.n_users == 12 + 13 + 14 + 15


@pytest.mark.slow
def test_two_processes_play_what_one_does() -> None:
    """Starting workers takes Beam seconds each time."""
    announcement = announcement_of("pure")
    for path in PATHS:
        one, two = (
            collected(BeamEngine(workers=workers), announcement, ROWS, EVERYBODY, stream=SEEDED, path=path)
            for workers in (1, 2)
        )
        assert plain(one) == plain(two)


# What travels -------------------------------------------------------------------------------------------------------


@contextmanager
def watched() -> Iterator[list[bytes]]:
    """Every buffer of bytes that goes from one stage of a pipeline to the next."""
    seen: list[bytes] = []

    def spied(append: Callable[[Any, bytes], None]) -> Callable[[Any, bytes], None]:
        def watch(self: Any, data: bytes) -> None:
            seen.append(bytes(data))
            append(self, data)

        return watch

    with pytest.MonkeyPatch.context() as patch:
        for buffer in (execution.ListBuffer, execution.GroupingBuffer):
            patch.setattr(buffer, "append", spied(buffer.append))
        yield seen


def leaked(seen: list[bytes], announcement: Announcement) -> int:
    """Users' packets among these bytes, by how every packet of the collection begins."""
    wire = announcement.wire_format()
    head = MAGIC + bytes([VERSION, wire.dense, wire.width]) + wire.collection
    return sum(data.count(head) for data in seen)


class Spread(beam.PTransform):  # type: ignore[misc]
    """A saboteur: packets are spread over the workers and grouped before they are counted."""

    def __init__(self, announcement: Announcement, counter: PacketCounter, place: str) -> None:
        super().__init__()
        self.announcement = announcement
        self.place = place

    def expand(self, names: Any) -> Any:
        wire = self.announcement.wire_format()
        packets = names | beam.FlatMap(read_packets, wire.longest) | "Spread packets" >> beam.Reshuffle()
        reports = packets | beam.Map(lambda one: wire.packet_id(one).hex())
        reports | beam.io.WriteToText(f"{self.place}.new-")
        return packets | CountPackets(self.announcement)


@pytest.mark.parametrize("change", [None, Spread])
def test_no_packet_goes_from_one_worker_to_another(
    change: type[Spread] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes to another stage may go to another worker: names of files, ids and counts do, packets do not."""
    announcement = announcement_of("rr")
    write_packets(tmp_path / "a.packets", packets_of(announcement))
    if change is not None:
        monkeypatch.setattr("privkde.engines.beam.CountFiles", change)
    with watched() as seen:
        assert BeamEngine().count(announcement, [str(tmp_path / "a.packets")]).n_users == 60
    assert sum(map(len, seen)) > 2 * 8 * announcement.n_instances  # the counts were seen on their way
    assert leaked(seen, announcement) == (0 if change is None else 2 * 60)


@pytest.mark.parametrize("copied", [False, True], ids=["stored", "copied"])
def test_pipelines_hold_neither_vectors_nor_classes(copied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that Beam pickles into a pipeline is compressed first; a saboteur copies the users there."""
    named = {"classes": 2, "labels": "joint", "model": "density", "padded": 0}
    announcement, labels = announcement_of("rr", users=60, **named), np.arange(60) % 2
    pickled: list[bytes] = []
    compress = bz2.compress

    def spied(data: bytes, compresslevel: int = 9) -> bytes:
        pickled.append(data)
        return compress(data, compresslevel)

    monkeypatch.setattr(bz2, "compress", spied)
    if copied:
        monkeypatch.setattr(beam_engine, "_stored", lambda users, **_: nullcontext((users, None)))
    collected(BeamEngine(), announcement, ROWS, EVERYBODY, labels, stream=SEEDED)
    assert any(announcement.public_seed.encode() in data for data in pickled)
    for private in (ROWS, labels):
        assert any(private.tobytes() in data for data in pickled) == copied


def test_playing_users_moves_neither_packets_nor_vectors() -> None:
    announcement = announcement_of("rr")
    with watched() as seen:
        collected(BeamEngine(), announcement, ROWS, EVERYBODY, stream=SEEDED, path="faithful")
    assert seen
    assert leaked(seen, announcement) == 0
    assert not any(ROWS[17].tobytes() in data for data in seen)


@pytest.fixture
def delivered(monkeypatch: pytest.MonkeyPatch) -> list[PartialCounts]:
    """What pipelines deliver, as it is read from their files."""
    seen: list[PartialCounts] = []
    read = beam_engine._delivered

    def spied(content: bytes, name: str) -> PartialCounts:
        seen.append(read(content, name))
        return seen[-1]

    monkeypatch.setattr(beam_engine, "_delivered", spied)
    return seen


def nothing(counts: PartialCounts) -> bool:
    return not (counts.tally.ones.any() | counts.tally.zeros.any())


def test_counts_of_too_few_users_are_not_delivered(delivered: list[PartialCounts], tmp_path: Path) -> None:
    announcement = announced(small_laws(40)["rr"], kernel="gaussian", dim=5, repetitions=30)
    few = packets_of(announcement, 39)
    write_packets(tmp_path / "few.packets", few)
    with pytest.raises(TooFewUsersError, match="39 users took part and the noise counts on 40"):
        BeamEngine().count(announcement, [str(tmp_path / "few.packets")])
    with pytest.raises(TooFewUsersError, match="39 users took part and the noise counts on 40"):
        collected(BeamEngine(), announcement, ROWS, np.arange(39), stream=SEEDED, path="faithful")
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        counts = pipeline | beam.Create(few) | CountPackets(announcement)
        counts | beam.Map(partial(beam_engine._deliver, str(tmp_path / "own.npz")))
    beam_engine._delivered((tmp_path / "own.npz").read_bytes(), "own.npz")
    assert [counts.n_users for counts in delivered] == [39] * 3
    assert all(nothing(counts) for counts in delivered)
    collected(BeamEngine(), announcement, ROWS, EVERYBODY, stream=SEEDED, path="faithful")
    assert not nothing(delivered[-1])


def test_a_refused_packet_of_a_stream_takes_nobodys_place(tmp_path: Path) -> None:
    """Every honest packet again as a seeded one, whichever of the two digests is less."""
    announcement, target = announcement_of("rr"), str(tmp_path / "own.npz")
    honest, wire = packets_of(announcement), announcement.wire_format()
    turned = [wire.encode(wire.counts(packet)._replace(secret=False)) for packet in honest]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        counts = pipeline | beam.Create([*turned, *honest]) | CountPackets(announcement)
        counts | beam.Map(partial(beam_engine._deliver, target))
    found = beam_engine._delivered(Path(target).read_bytes(), "own.npz")
    assert (found.n_users, found.rejected, found.repeated, found.secret) == (60, 60, 0, True)


def test_counts_beside_a_damaged_file_are_not_delivered(delivered: list[PartialCounts], tmp_path: Path) -> None:
    """Their counts would follow from those of all files, once the damaged file is repaired."""
    announcement = announcement_of("rr")
    write_packets(tmp_path / "good.packets", packets_of(announcement))
    (tmp_path / "bad.packets").write_bytes(b"damaged")
    with pytest.raises(InvalidInputError, match=r"bad\.packets' is truncated"):
        BeamEngine().count(announcement, [str(tmp_path / "*.packets")])
    assert (delivered[0].n_users, nothing(delivered[0])) == (0, True)


def test_noise_is_added_before_counts_are_delivered(delivered: list[PartialCounts]) -> None:
    announcement = announcement_of("3nb")
    found = collected(BeamEngine(), announcement, ROWS, EVERYBODY, stream=SEEDED)
    assert delivered[0].tally.ones.tolist() == found.tally.ones.tolist()
    assert delivered[0].tally.zeros.any()  # which are noise: users' bits are sent as ones only


def test_nothing_is_left_in_the_temporary_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of counts that were read, nor of too few users, nor after an error."""
    place, announcement = tmp_path / "place", announced(small_laws(40)["rr"], kernel="gaussian", dim=5, repetitions=30)
    place.mkdir()
    engine = BeamEngine(options=(f"--temp_location={place}",))
    for path in PATHS:
        assert collected(engine, announcement, ROWS, EVERYBODY, stream=SEEDED, path=path).n_users == 60
        assert not list(place.iterdir())
    with pytest.raises(TooFewUsersError):
        collected(engine, announcement, ROWS, np.arange(39), stream=SEEDED, path="faithful")
    assert not list(place.iterdir())
    for users in (60, 39):
        write_packets(tmp_path / "a.packets", packets_of(announcement, users))
        with nullcontext() if users == 60 else pytest.raises(TooFewUsersError):
            engine.count(announcement, [str(tmp_path / "a.packets")])
        assert not list(place.iterdir())
    monkeypatch.setattr(beam_engine, "sealed", lambda *_: b"altered on its way")
    with pytest.raises(DamagedFileError, match="was altered"):
        collected(engine, announcement, ROWS, EVERYBODY, stream=SEEDED)
    assert not list(place.iterdir())


def holders(folder: Path, private: bytes) -> list[str]:
    """The files below a folder that hold these bytes."""
    return [path.name for path in folder.rglob("*") if path.is_file() and private in path.read_bytes()]


@pytest.mark.parametrize("named", [False, True], ids=["nameless", "named"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_no_vectors_are_left_by_a_run_that_is_ended(number: signal.Signals, named: bool, tmp_path: Path) -> None:
    """While users are played, only a runner that may have other machines gives their file a name.

    A name that is not deleted, since nobody can catch SIGKILL, shows that the test looks at the right place.
    """
    temporary, held = tmp_path / "temporary", tmp_path / "held"
    temporary.mkdir()
    held.mkdir()
    np.savez_compressed(tmp_path / "data.npz", X_train=ROWS)
    (tmp_path / "plan.json").write_text(plan_budget(users=60, dim=5, repetitions=8, epsilon=8, delta=1e-3).dumps())
    given = ["collect", str(tmp_path / "data.npz"), "--plan", str(tmp_path / "plan.json"), "--engine", "beam"]
    given += ["-o", str(tmp_path / "model.npz")]
    given += ["--runner", "FnApiRunner", "--", f"--temp_location={tmp_path}"] if named else []
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.privkde.holding", str(held), *given],
        env={**os.environ, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_held(held, lambda: child.poll() is not None)
        row = ROWS[17].tobytes()
        assert bool(holders(temporary, row)) == named
        child.send_signal(number)
        _, shown = child.communicate(timeout=60)
    finally:
        child.kill()
    if number == signal.SIGTERM:
        assert (child.returncode, shown) == (128 + number, "privkde: interrupted by SIGTERM\n")
        assert list(temporary.iterdir()) == []
    else:
        assert child.returncode == -number
        assert bool(holders(temporary, row)) == named
    assert not (tmp_path / "model.npz").exists()


def test_a_file_that_is_named_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one user's packet, named often enough, would pass for many users."""
    announcement = announcement_of("rr")
    monkeypatch.chdir(tmp_path)
    write_packets(Path("one.packets"), packets_of(announcement, 1))
    for names in (["one.packets"] * 2, ["one.packets", str(tmp_path / "one.packets")]):
        for one in (LocalEngine(), BeamEngine()):
            with pytest.raises(InvalidInputError, match=r"one\.packets' is named 2 times"):
                one.count(announcement, names)
    with pytest.raises(InvalidInputError, match="is named 2 times"):
        BeamEngine().count(announcement, ["one.p*", "*.packets"])


def test_files_that_a_killed_worker_left_are_not_counted(tmp_path: Path) -> None:
    announcement = announcement_of("rr")
    for name in ("part-0.packets", f"{TEMPORARY}left.packets"):
        write_packets(tmp_path / name, packets_of(announcement))
    for one in (LocalEngine(), BeamEngine()):
        assert one.count(announcement, [str(tmp_path / "*.packets")]).n_users == 60


# Randomness ---------------------------------------------------------------------------------------------------------


def test_secret_streams_stay_where_they_are_and_seeded_ones_can_be_made_again() -> None:
    secret = private_randomness()
    for stream in (secret, SEEDED):
        with pytest.raises(TypeError, match="not copied"):
            pickle.dumps(stream)
    assert secret.recipe() is private_randomness
    first, second = (secret.recipe()() for _ in range(2))
    drawn = {stream.child("client", 0).take(32).tobytes() for stream in (secret, first, second)}
    assert len(drawn) == 3
    assert first.secret
    again = pickle.loads(pickle.dumps(SEEDED.recipe()))()
    assert again.child("client", 0).take(32).tobytes() == SEEDED.child("client", 0).take(32).tobytes()
    assert not again.secret


def test_every_block_draws_under_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three blocks of users, played twice: six different draws, none from the parent stream."""
    begun: list[bytes] = []
    packets = Randomizer.packets

    def spied(self: Randomizer, *arguments: Any, stream: ByteStream, **options: Any) -> list[bytes]:
        assert stream.secret
        begun.append(stream.child("spied").take(32).tobytes())
        return packets(self, *arguments, stream=stream, **options)

    monkeypatch.setattr(Randomizer, "packets", spied)
    stream = private_randomness()
    for _ in range(2):
        collected(BeamEngine(), announcement_of("rr"), ROWS, np.arange(24), stream=stream, path="faithful")
    assert len(begun) == len(set(begun)) == 6


def playing(stream: ByteStream, **options: Any) -> Callable[[Block], list[PartialCounts]]:
    """A worker that was set up to play blocks of users."""
    users = Users(announcement=announcement_of("rr"), rows=ROWS, index=EVERYBODY)
    worker = transforms._PlayBlock(Played(users=users, recipe=stream.recipe(), **options))
    worker.setup()
    return lambda block: list(worker.process(block))


@pytest.mark.parametrize("path", PATHS)
def test_a_worker_draws_again_for_every_block(path: str) -> None:
    """The same users twice: secret counts of 30 instances agree by chance with less than 1e-15, seeded ones always."""
    block = (np.arange(8), 0)
    for stream, repeated in ((private_randomness(), False), (SEEDED, True)):
        play = playing(stream, path=path)
        (first,), (second,) = play(block), play(block)
        assert first.n_users == second.n_users == 8
        assert (first.tally.ones.tolist() == second.tally.ones.tolist()) == repeated


@pytest.mark.parametrize("beaten", [False, True], ids=["after", "at the same time"])
def test_a_block_that_is_repeated_leaves_the_packets_that_are_there(
    beaten: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play, block = playing(private_randomness(), folder=tmp_path), (np.arange(8), 0)
    held = []
    for _ in range(2):
        assert [counts.complaint for counts in play(block)] == [None]
        (path,) = tmp_path.iterdir()
        held.append(path.read_bytes())
        if beaten:  # as if the file had not been there when the repeated block began
            monkeypatch.setattr(Path, "exists", lambda _: False)
    assert held[0] == held[1]


def test_users_whose_packets_are_written_do_not_answer_again(tmp_path: Path) -> None:
    """Whoever continues a folder, of which a block is missing, plays that block only."""
    users = Users(announcement=announcement_of("rr"), rows=ROWS, index=np.arange(24))
    BeamEngine().randomize(users, tmp_path, stream=private_randomness())
    held = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert len(set(held.values())) == len(held) == 3 + 1
    missing = tmp_path / "part-000000000008.packets"
    for one in (LocalEngine(), BeamEngine()):
        missing.unlink()
        (tmp_path / f"{TEMPORARY}left.packets").write_bytes(held[missing.name])  # a killed process was writing it
        one.randomize(users, tmp_path, stream=private_randomness())
        now = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert {name for name in held | now if held.get(name) != now.get(name)} == {missing.name}
    other = replace(users, announcement=replace(users.announcement, bandwidth=2.0))
    with pytest.raises(InvalidInputError, match="answers to another announcement; users answer only once"):
        LocalEngine().randomize(other, tmp_path, stream=private_randomness())
    for strange in (replace(users, index=np.arange(23)), replace(users, index=np.arange(16))):
        with pytest.raises(InvalidInputError, match=r"'part-0+16\.packets', which is not a block of these users"):
            LocalEngine().randomize(strange, tmp_path, stream=private_randomness())
    with pytest.raises(InvalidInputError, match="is not a block of these users"):
        LocalEngine().randomize(users, tmp_path, stream=private_randomness(), suffix=".avro")
    assert now == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_separate_labels_are_not_continued(tmp_path: Path) -> None:
    """Who reports a label again may answer in another class."""
    labels = np.arange(60) % 2

    def through() -> ThroughFiles:
        return ThroughFiles(engine=LocalEngine(), folder=tmp_path / "sent")

    def fit(collector: ThroughFiles) -> None:
        options: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-3, "repetitions": 8, "classes": [0, 1]}
        PrivateKDEClassifier(**options, public_seed=SEED, path="faithful", engine=collector).fit(ROWS, labels)

    first = through()
    fit(first)
    with pytest.raises(InvalidInputError, match="class '0' was collected before"):
        fit(first)
    for again in (fit, ThroughFiles.public_seed):
        with pytest.raises(InvalidInputError, match="of separate labels and cannot be continued"):
            again(through())
    assert sorted(path.name for path in (tmp_path / "sent").iterdir()) == ["0", "1"]


# Bad input ----------------------------------------------------------------------------------------------------------


def test_files_that_cannot_be_counted_are_named(tmp_path: Path) -> None:
    announcement = announcement_of("rr")
    write_packets(tmp_path / "good.packets", packets_of(announcement))
    (tmp_path / "bad.packets").write_bytes((tmp_path / "good.packets").read_bytes()[:-4])
    for one in (LocalEngine(), BeamEngine()):
        with pytest.raises(InvalidInputError, match=r"bad\.packets' is truncated"):
            one.count(announcement, [str(tmp_path / name) for name in ("good.packets", "bad.packets")])
        with pytest.raises(InvalidInputError, match=r"no file '.*none\.packets'"):
            one.count(announcement, [str(tmp_path / "none.packets")])
        with pytest.raises(InvalidInputError, match="must end in"):
            one.count(announcement, [__file__])


def test_options_that_do_not_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match="workers=0"):
        BeamEngine(workers=0)
    with pytest.raises(InvalidInputError, match="workers=2 is for the runner on this machine"):
        BeamEngine(runner="FlinkRunner", workers=2)
    with pytest.raises(InvalidInputError, match="name the runner as `runner`"):
        BeamEngine(options=("--runner=FlinkRunner",))
    with pytest.raises(InvalidInputError, match="for the engine 'beam'"):
        engines.engine("local", workers=2)
    with pytest.raises(InvalidInputError, match="FlinkRunner needs the option --temp_location"):
        BeamEngine(runner="FlinkRunner")
    unknown = BeamEngine(runner="NoRunner", options=(f"--temp_location={tmp_path}",))
    with pytest.raises(PipelineError, match="Unexpected pipeline runner: NoRunner"):
        collected(unknown, announcement_of("rr"), ROWS, EVERYBODY, stream=SEEDED)
    named = BeamEngine(runner="FnApiRunner", options=unknown.options)
    assert collected(named, announcement_of("rr"), ROWS, EVERYBODY, stream=SEEDED).n_users == 60
    with pytest.raises(InvalidInputError, match="no option '--temp_locaton=x'"):
        BeamEngine(options=("--job_name=a", "--temp_locaton=x"))
    with pytest.raises(InvalidInputError, match="no option 'x'"):
        BeamEngine(options=("x",))
    BeamEngine(runner="FlinkRunner", options=("--temp_location=x", "--of_the_job_server=1"))
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    with pytest.raises(InvalidInputError, match=r"privkde\[beam\]"):
        engines.engine("beam")


def test_outcomes_that_were_altered_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privkde.engines.beam.sealed", lambda *_: b"altered on its way")
    with pytest.raises(DamagedFileError, match="was altered"):
        collected(BeamEngine(), announcement_of("rr"), ROWS, EVERYBODY, stream=SEEDED)


def test_errors_that_are_not_ours_become_errors_of_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(transforms, "PacketCounter", broken)
    with pytest.raises(PipelineError, match="Beam could not run the pipeline"):
        collected(BeamEngine(), announcement_of("rr"), ROWS, EVERYBODY, stream=SEEDED)


# On the command line ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with users, a plan, their packets and the model of both."""
    folder = tmp_path_factory.mktemp("shop")
    np.savez(folder / "data.npz", X_train=ROWS)
    plan = plan_budget(users=60, dim=5, repetitions=8, epsilon=8, delta=1e-3)
    (folder / "plan.json").write_text(plan.dumps(), encoding="utf-8")
    command = ["collect", str(folder / "data.npz"), "--plan", str(folder / "plan.json"), "--insecure-seed", "5"]
    given = ["--public-seed", SEED, "--packets", str(folder / "sent"), "--format", "avro"]
    assert main([*command, *given, "-o", str(folder / "model.npz")]) == 0
    return folder


def counted(shop: Path, *further: str) -> list[str]:
    group = shop / "sent" / "0"
    return ["collect", str(group / "part-*"), "--announcement", str(group / ANNOUNCEMENT), *further]


def test_vectors_and_packets_end_in_the_same_model(
    capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path
) -> None:
    fit = ["fit", str(shop / "data.npz"), "--plan", str(shop / "plan.json"), "--insecure-seed", "5"]
    assert main([*fit, "--public-seed", SEED, "--path", "faithful", "-o", str(tmp_path / "fit.npz")]) == 0
    targets = ["--counts", str(tmp_path / "counts.npz"), "-o", str(tmp_path / "model.npz")]
    assert main([*counted(shop, *targets, "--engine", "beam"), "--", "--job_name=counting"]) == 0
    assert "60 of 60 planned" in capsys.readouterr().out
    whole = (shop / "model.npz").read_bytes()
    assert (tmp_path / "fit.npz").read_bytes() == (tmp_path / "model.npz").read_bytes() == whole
    assert Analyzer.load(tmp_path / "counts.npz").n_users == 60


def test_packets_need_no_vectors_and_vectors_no_announcement(
    capsys: pytest.CaptureFixture[str], shop: Path, tmp_path: Path
) -> None:
    model, data = str(tmp_path / "model.npz"), str(shop / "data.npz")
    planned = ["--plan", str(shop / "plan.json")]
    for command, complaint in (
        (counted(shop), "nothing would be kept"),
        (
            ["collect", data, *planned, "-o", model, "--reports", model],
            "--counts, --reports and --seeded are for packets",
        ),
        (counted(shop, "--counts", model, "--bandwidth", "2"), "--bandwidth is for vectors"),
        (counted(shop, "--counts", model, "--packets", model), "--packets is for vectors"),
        (["collect", data, *planned], "give one file of vectors and -o MODEL"),
        (["collect", data, *planned, "-o", model, "--format", "avro"], "add --packets FOLDER"),
        (["collect", data, *planned, "-o", model, "--packets", str(shop / "sent")], "not a block of these users"),
        (["collect", data, *planned, "-o", model, "--workers", "2"], "for the engine 'beam'"),
        (["collect", "gs://shop/data.npz", *planned, "-o", model], "'gs://shop/data.npz' is not on a disk"),
    ):
        assert complaint in refuse(capsys, *command)
    assert not list(tmp_path.iterdir())
