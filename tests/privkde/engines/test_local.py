"""Both executions of a collection, by both engines: every user is counted once, and the counts have the same law.

At the level of laws the equality is exact (test_execution.py: shares add up). Here the implementation is compared with
itself, faithful against aggregated, by an exact two-sample test. A pipeline of Beam takes half a second whatever it
does, so Beam is put to fewer cases of each law; test_beam.py shows that it counts bit by bit what the other one does.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from accounting.errors import InvalidInputError
from accounting.mechanisms import (
    BITSUMS,
    BitsumProtocol,
    NegativeBinomialNoise,
    PoissonNoise,
    Pure,
    RandomizedResponse,
    ThreeNegativeBinomial,
)
from accounting.numerics import tails
from privkde.bitsum import EXECUTED, Tally, executed
from privkde.draws.randomness import ByteStream, private_randomness
from privkde.engines import PATHS, Collector, Engine
from privkde.engines import engine as engine_named
from privkde.engines.local import LocalEngine, collect
from privkde.engines.users import Users, noise_of_all
from privkde.protocol.announcement import Announcement
from privkde.protocol.parties import Analyzer, Randomizer, TooFewUsersError
from privkde.storage import user_blocks as blocks
from privkde.storage.packets import write_packets
from privkde.storage.report_register import ReportRegister
from tests.privkde.unplanned import announced, small_laws

Counts = NDArray[np.int64]
"""(samples, 2): ones and zeros of independent instances."""


@cache
def running(name: str) -> Engine:
    return engine_named(name)


def cases(*parameters: tuple[Any, ...]) -> list[Any]:
    """Parameters of a test, an engine first. Beam is an extra."""
    return [pytest.param(*row, marks=[pytest.mark.extras] if row[0] == "beam" else []) for row in parameters]


EXECUTIONS = cases(
    *(("local", name, path) for name in BITSUMS for path in PATHS),
    *(("beam", name, path) for name in ("rr", "3nb") for path in PATHS),
)


def collected(
    engine: Collector,
    announcement: Announcement,
    rows: NDArray[np.floating],
    index: NDArray[np.intp],
    classes: NDArray[np.integer] | None = None,
    *,
    outside: str = "reject",
    **options: Any,
) -> Analyzer:
    """What `collect` of the local engine does, by any engine."""
    users = Users(announcement=announcement, rows=rows, index=index, classes=classes, outside=outside)
    return engine.play(users, **options)


def stream(*labels: str | int) -> ByteStream:
    return ByteStream(bytes(range(32))).child("test_engine", *labels)


# The two-sample test ------------------------------------------------------------------------------------------------

LEVEL = 5e-9
"""False-alarm level of one comparison; this file makes 14 that an honest implementation must pass: 7e-8 together."""

RELATIVE_PAD = 1e-6
"""Relative error granted to the hypergeometric tails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSamples:
    """Are two samples of equal size from one law? Fisher's exact test of many events, with a union bound.

    Under one law, given the pooled sample, every split into halves is equally likely. So the events may be chosen from
    the pooled sample, and how often one of them falls into the first half is hypergeometric. Nothing is asymptotic.
    """

    p_value: float
    n_events: int

    @property
    def refuted(self) -> bool:
        """Refuted at `LEVEL`."""
        return self.p_value <= LEVEL


def compared(first: Counts, second: Counts) -> TwoSamples:
    """Events: each pair (ones, zeros), and each threshold of ones, zeros, their sum and their difference."""
    assert first.shape == second.shape
    pooled = np.concatenate([first, second])
    ones, zeros = pooled.T
    events = _often(ones * (zeros.max() + 1) + zeros, len(first))
    for value in (ones, zeros, ones + zeros, ones - zeros):
        events += np.cumsum(_often(value, len(first))[::-1], axis=0)[:-1].tolist()
    p_values = [_fisher(in_first, total, len(first)) for in_first, total in events]
    return TwoSamples(p_value=min(1.0, 2 * len(events) * min(p_values)), n_events=len(events))


def _often(value: NDArray[np.int64], half: int) -> list[list[int]]:
    """How often each value occurs in the first half and in all, the smallest value first."""
    distinct, which = np.unique(value, return_inverse=True)
    counts = [np.bincount(part, minlength=len(distinct)) for part in (which[:half], which)]
    return [[int(one) for one in row] for row in np.stack(counts, axis=1)]


def _fisher(in_first: int, total: int, half: int) -> float:
    """The smaller tail of P(k) = C(total, k) C(2·half − total, half − k)/C(2·half, half) at `in_first`, rounded up."""
    k = np.arange(max(0, total - half), min(total, half) + 1)
    log = _log_factorials(2 * half)
    outside = 2 * half - total
    logs = (log[total] - log[k] - log[total - k]) + (log[outside] - log[half - k] - log[outside - half + k])
    masses = np.exp(logs - (log[2 * half] - 2 * log[half]))
    return float(min(masses[k <= in_first].sum(), masses[k >= in_first].sum()) * (1 + RELATIVE_PAD))


@cache
def _log_factorials(largest: int) -> NDArray[np.float64]:
    return np.asarray(special.gammaln(np.arange(largest + 1) + 1.0))


def test_fisher_is_an_exact_tail() -> None:
    for half in (1, 2, 5, 8):
        for total in range(2 * half + 1):
            ways = {
                k: math.comb(total, k) * math.comb(2 * half - total, half - k)
                for k in range(max(0, total - half), min(total, half) + 1)
            }
            for seen in ways:
                tails = (
                    sum(way for k, way in ways.items() if k <= seen),
                    sum(way for k, way in ways.items() if k >= seen),
                )
                exact = min(tails) / math.comb(2 * half, half)
                assert exact <= _fisher(seen, total, half) <= exact * (1 + 2 * RELATIVE_PAD)


def binomial_counts(seed: int, probability: float, size: int) -> Counts:
    drawn = np.random.default_rng(seed).binomial(4, probability, size)
    return np.stack([drawn, 4 - drawn], axis=1)


def test_false_alarms_are_rare_and_the_stated_defect_is_seen() -> None:
    """Of 300 honest p-values 0.6 are expected at or below 0.002; 12 or more have a probability below 1e-11.

    Power: with 10,000 samples on each side and 500 events, frequencies that differ by 0.053 around 1/2 are refuted.
    Their difference has a deviation of 0.0071, so probabilities that differ by 0.085 are missed with probability 1e-5.
    """
    alarms = [
        compared(binomial_counts(seed, 0.3, 400), binomial_counts(10_000 + seed, 0.3, 400)).p_value
        for seed in range(300)
    ]
    assert sum(value <= 0.002 for value in alarms) < 12
    half = 10_000
    assert _fisher(half // 2 + 265, half, half) * 2 * 500 <= LEVEL < _fisher(half // 2 + 225, half, half) * 2 * 500
    for seed in range(10):
        rng = np.random.default_rng(seed)
        first, second = ((rng.random((half, 2)) < p).astype(np.int64) for p in (0.5, 0.62))
        assert compared(first, second).refuted


# Faithful against aggregated ----------------------------------------------------------------------------------------

INSTANCES = 20_000
USERS = np.array([[1.0], [1.0], [-1.0], [1.0]], np.float32)
"""One dimension and random signs: bits are 1, 1, 0, 1 in instances of sign +1 and 0, 0, 1, 0 in the others."""

COUNTED = 3
"""The noise counts on three users; four take part."""

COMPARED: dict[str, BitsumProtocol] = {
    "rr": RandomizedResponse(n_users=COUNTED, flip_probability=0.2),
    "3nb": ThreeNegativeBinomial(
        n_users=COUNTED,
        noise_shape=1,
        continue_probability=0.4,
        flood_shape=2.5,
        flood_continue_probability=0.5,
    ),
    "poisson": PoissonNoise(n_users=COUNTED, total_mean=3.3),
    "negative-binomial": NegativeBinomialNoise(n_users=COUNTED, shape=2.5, continue_probability=0.5),
    "pure": Pure(
        n_users=COUNTED,
        epsilon_target=3.0,
        noise_epsilon=1.0,
        silence_probability=0.2,
        base_messages=2,
        flood_shape=2.5,
        flood_continue_probability=0.5,
    ),
}


def announcement_of(name: str) -> Announcement:
    return announced(COMPARED[name], users=4, repetitions=INSTANCES)


@cache
def positive() -> NDArray[np.bool_]:
    return np.asarray(announcement_of("rr").family().scaled_features(np.ones((1, 1), np.float32))[0] == 1.0)


def counts_of(name: str, path: str, engine: str = "local") -> Counts:
    run, source = running(engine), stream(name, path)
    analyzer = collected(run, announcement_of(name), USERS, np.arange(4), stream=source, path=path)
    assert (analyzer.n_users, analyzer.rejected) == (4, 0)
    return np.stack([analyzer.tally.ones, analyzer.tally.zeros], axis=1)


@cache
def honest(name: str, path: str, engine: str = "local") -> Counts:
    return counts_of(name, path, engine)


def judged(first: Counts, second: Counts) -> list[TwoSamples]:
    """One comparison for each sign; within a sign, instances are independent and of one law."""
    return [compared(first[part], second[part]) for part in (positive(), ~positive())]


@pytest.mark.parametrize(
    ("engine", "name"), cases(*(("local", name) for name in BITSUMS), ("beam", "rr"), ("beam", "3nb"))
)
def test_faithful_and_aggregated_counts_are_not_told_apart(engine: str, name: str) -> None:
    """Two comparisons at 5e-9 for each case; the saboteurs below are the power."""
    assert 9_000 < positive().sum() < 11_000
    found = judged(honest(name, "faithful", engine), honest(name, "aggregated", engine))
    assert not any(one.refuted for one in found), found
    assert all(one.n_events <= 2000 for one in found)


Noise = Callable[[Any, int, tuple[int, ...], ByteStream], Tally]


@contextmanager
def broken(name: str, change: Callable[[Noise], Noise]) -> Iterator[None]:
    """The protocol with another `noise`, of any number of messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tails, "OVERLONG_EXPONENT", 1e9)
        patch.setattr(EXECUTED[name], "noise", change(EXECUTED[name].noise))
        yield


def for_everybody(noise: Noise) -> Noise:
    """The paper's text: the total shape for every user, without 1/n."""
    return lambda self, n_users, shape, source: noise(self, n_users * COUNTED, shape, source)


def for_counted_users(noise: Noise) -> Noise:
    """The noise that was planned, whoever takes part."""
    return lambda self, n_users, shape, source: noise(self, COUNTED if n_users > 1 else 1, shape, source)


def without_flood(noise: Noise) -> Noise:
    def changed(self: Any, n_users: int, shape: tuple[int, ...], source: ByteStream) -> Tally:
        drawn = noise(self, n_users, shape, source)
        common = np.minimum(drawn.ones, drawn.zeros)
        return Tally(drawn.ones - common, drawn.zeros - common)

    return changed


def independent_floods(noise: Noise) -> Noise:
    """Ones and zeros each with the right law, but no longer together."""

    def changed(self: Any, n_users: int, shape: tuple[int, ...], source: ByteStream) -> Tally:
        return Tally(noise(self, n_users, shape, source).ones, noise(self, n_users, shape, source).zeros)

    return changed


def same_for_all_users(noise: Noise) -> Noise:
    """One share drawn for the block and used by every user."""

    def changed(self: Any, n_users: int, shape: tuple[int, ...], source: ByteStream) -> Tally:
        drawn = noise(self, n_users, shape[-1:], source)
        return Tally(np.broadcast_to(drawn.ones, shape), np.broadcast_to(drawn.zeros, shape))

    return changed


def one_message_more(noise: Noise) -> Noise:
    """In every second instance."""

    def changed(self: Any, n_users: int, shape: tuple[int, ...], source: ByteStream) -> Tally:
        drawn = noise(self, n_users, shape, source)
        more = np.zeros(shape, np.int64)
        more[..., ::2] = 1
        return Tally(drawn.ones + more, drawn.zeros)

    return changed


SIGNED = ("3nb", "pure")
NOISY = (*SIGNED, "poisson", "negative-binomial")
SABOTEURS = [
    *(("local", name, "faithful", for_everybody) for name in NOISY),
    *(("local", name, "aggregated", for_everybody) for name in NOISY),
    *(("local", name, "aggregated", for_counted_users) for name in NOISY),
    *(("local", name, path, without_flood) for name in SIGNED for path in PATHS),
    *(("local", name, path, independent_floods) for name in SIGNED for path in PATHS),
    *(("local", name, "faithful", same_for_all_users) for name in NOISY),
    *(("local", name, "aggregated", one_message_more) for name in NOISY),
    ("beam", "3nb", "faithful", for_everybody),
    ("beam", "3nb", "aggregated", one_message_more),
]


@pytest.mark.parametrize(
    ("engine", "name", "path", "change"),
    cases(*SABOTEURS),
    ids=[f"{engine} {name} {path} {change.__name__}" for engine, name, path, change in SABOTEURS],
)
def test_broken_noise_is_refuted(engine: str, name: str, path: str, change: Callable[[Noise], Noise]) -> None:
    (other,) = {*PATHS} - {path}
    expected = honest(name, other)
    with broken(name, change):
        changed = counts_of(name, path, engine)
    assert any(one.refuted for one in judged(changed, expected))


@pytest.mark.parametrize(
    ("engine", "name", "path"),
    cases(
        *(("local", name, path) for name in ("rr", "pure") for path in PATHS), *(("beam", "rr", path) for path in PATHS)
    ),
)
def test_missing_flips_and_missing_silence_are_refuted(
    engine: str, name: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (other,) = {*PATHS} - {path}
    expected = honest(name, other)
    if name == "rr":
        monkeypatch.setattr(EXECUTED["rr"], "of", staticmethod(lambda law: EXECUTED["rr"](flip=0.0)))
    else:
        monkeypatch.setattr(
            EXECUTED["pure"],
            "inputs",
            lambda self, bits, _: Tally(self.law.base_messages + bits, np.full(bits.shape, self.law.base_messages)),
        )
    assert any(one.refuted for one in judged(counts_of(name, path, engine), expected))


# Who is counted, and how often --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "name", "path"),
    cases(
        *(("local", name, path) for name in ("3nb", "poisson", "negative-binomial") for path in PATHS),
        *(("beam", "3nb", path) for path in PATHS),
    ),
)
def test_certain_bits_are_counted_once_for_each_user(
    engine: str, name: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features ±1 leave nothing to rounding: without noise, the counts are those of the signs, whatever the blocks."""
    monkeypatch.setattr(
        EXECUTED[name],
        "noise",
        lambda _self, _n, shape, _s: Tally(np.zeros(shape, np.int64), np.zeros(shape, np.int64)),
    )
    announcement = announced(small_laws(2)[name], repetitions=6)
    rng = np.random.default_rng(1)
    rows = rng.choice([-1.0, 1.0], (40, 1))
    index = rng.permutation(40)[:33]
    signs = announcement.family().scaled_features(np.ones((1, 1), np.float32))[0]
    expected = np.sum(rows[index] * signs > 0, axis=0)
    for most_rows in (1, 2, 7, 33, 255) if engine == "local" else (7,):
        monkeypatch.setattr(blocks, "MOST_ROWS", most_rows)
        analyzer = collected(running(engine), announcement, rows, index, stream=stream(), path=path)
        assert analyzer.tally.ones.tolist() == expected.tolist()
        assert (analyzer.n_users, analyzer.rejected, analyzer.tally.zeros.tolist()) == (33, 0, [0] * 6)


@dataclass
class Recorded:
    """What a protocol returned during a collection."""

    inputs: list[Tally]
    noise: list[tuple[int, Tally]]


@contextmanager
def recorded(name: str) -> Iterator[Recorded]:
    own, record = EXECUTED[name], Recorded([], [])
    inputs, noise = own.inputs, own.noise

    def spied_inputs(self: Any, bits: NDArray[np.uint8], source: ByteStream) -> Tally:
        record.inputs.append(inputs(self, bits, source))
        return record.inputs[-1]

    def spied_noise(self: Any, n_users: int, shape: tuple[int, ...], source: ByteStream) -> Tally:
        record.noise.append((n_users, noise(self, n_users, shape, source)))
        return record.noise[-1][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own, "inputs", spied_inputs)
        patch.setattr(own, "noise", spied_noise)
        yield record


def total(tallies: list[Tally]) -> tuple[list[int], list[int]]:
    ones = sum(np.atleast_2d(tally.ones).sum(axis=0, dtype=np.int64) for tally in tallies)
    zeros = sum(np.atleast_2d(tally.zeros).sum(axis=0, dtype=np.int64) for tally in tallies)
    return np.asarray(ones).tolist(), np.asarray(zeros).tolist()


@pytest.mark.parametrize(("engine", "name", "path"), EXECUTIONS)
def test_counts_are_all_inputs_and_all_noise(
    engine: str, name: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "MOST_ROWS", 4)
    announcement = announced(small_laws(2)[name], repetitions=50)
    rows, index = np.linspace(-1, 1, 30)[:, None], np.arange(3, 14)
    with recorded(name) as record:
        analyzer = collected(running(engine), announcement, rows, index, stream=stream(name), path=path)
    assert sorted(len(tally.ones) for tally in record.inputs) == [3, 4, 4]
    if path == "faithful":
        assert sorted((n_users, tally.ones.shape) for n_users, tally in record.noise) == [
            (1, (3, 50)), (1, (4, 50)), (1, (4, 50)),
        ]  # fmt: skip
    else:
        assert [(n_users, tally.ones.shape) for n_users, tally in record.noise] == [(11, (50,))]
    expected = total([*record.inputs, *(tally for _, tally in record.noise)])
    assert (analyzer.tally.ones.tolist(), analyzer.tally.zeros.tolist()) == expected
    assert analyzer.n_users == 11
    assert analyzer.announcement is announcement


@pytest.mark.parametrize(("engine", "name", "path"), EXECUTIONS)
def test_nobody_is_counted_where_nobody_is(engine: str, name: str, path: str) -> None:
    announcement, run = announced(small_laws(2)[name]), running(engine)
    if path == "faithful":  # it has a shuffler, which lets nobody's messages through alone
        for few in (0, 1):
            with pytest.raises(TooFewUsersError, match=f"{few} users took part and the noise counts on 2"):
                collected(run, announcement, np.zeros((5, 1)), np.arange(few), stream=stream(), path=path)
        return
    analyzer = collected(run, announcement, np.zeros((5, 1)), np.arange(0), stream=stream(), path=path)
    assert (analyzer.n_users, analyzer.rejected) == (0, 0)
    assert not analyzer.tally.ones.any() | analyzer.tally.zeros.any()


class Watched(ByteStream):
    """Yields children only, and remembers how each of them begins."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.children: list[bytes] = []

    def child(self, *labels: str | int) -> ByteStream:
        self.children.append(super().child(*labels).take(32).tobytes())
        return super().child(*labels)

    def take(self, count: int) -> NDArray[np.uint8]:
        raise AssertionError(f"{count} bytes were taken from the parent stream")


def test_blocks_and_parties_draw_from_streams_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stream key is used twice in one collection: inputs, noise, clients and shuffler are independent."""
    monkeypatch.setattr(blocks, "MOST_ROWS", 3)
    announcement = announced(small_laws(2)["pure"], repetitions=40)
    for path in PATHS:
        watched = Watched(bytes(32))
        collect(announcement, np.zeros((10, 1)), np.arange(10), stream=watched, path=path)
        assert (
            len(watched.children) == len(set(watched.children)) == 4 + 1
        )  # four blocks, and the noise or the shuffler


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", BITSUMS)
def test_two_collections_from_one_secret_stream_do_not_show_who_changed(name: str, path: str) -> None:
    """The attack: subtract the counts of two collections between which one user changed.

    With the same draws twice, no count moves by more than that user's messages, here 1: the seeded control. With new
    draws, 60 bits are rounded again in each of 50 instances; that none of the counts moves by more has a chance of less
    than 1e-10.
    """
    announcement = announced(small_laws(2)[name], kernel="gaussian", dim=5, repetitions=50)
    before = np.random.default_rng(4).normal(size=(60, 5))
    after = before.copy()
    after[7] = -3.0

    def moved(shared: ByteStream) -> int:
        first, second = (
            collect(announcement, rows, np.arange(60), stream=shared, path=path).tally.ones for rows in (before, after)
        )
        return int(np.abs(second - first).max())

    if name != "pure":  # it draws on from where rounding stopped, which may need more bytes for another vector
        assert moved(ByteStream(bytes(32))) <= 1
    assert moved(private_randomness()) > 1


@pytest.mark.parametrize("name", [name for name in BITSUMS if name != "rr"])
def test_the_noise_of_all_users_is_new_each_time(name: str) -> None:
    """Beside a secret stream; 300 instances with ten likely values each do not agree by chance."""
    announcement = announced(small_laws(2)[name], repetitions=300)
    for shared, repeated in ((private_randomness(), False), (ByteStream(bytes(32)), True)):
        first, second = (noise_of_all(announcement, 2, shared) for _ in range(2))
        assert (first.ones.tolist() == second.ones.tolist()) == repeated


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", BITSUMS)
def test_seeded_collections_do_not_depend_on_the_number_of_cores(
    name: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "MOST_ROWS", 8)
    announcement = announced(small_laws(2)[name], kernel="gaussian", dim=5, repetitions=30)
    rows = np.random.default_rng(4).normal(size=(60, 5))
    found = []
    for cores in (1, 2, 7, None):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        analyzer = collect(announcement, rows, np.arange(60), stream=stream(), path=path)
        found.append((analyzer.tally.ones.tolist(), analyzer.tally.zeros.tolist()))
    assert all(one == found[0] for one in found)
    other = collect(announcement, rows, np.arange(60), stream=stream("other"), path=path)
    assert other.tally.ones.tolist() != found[0][0]


@pytest.mark.parametrize(("engine", "path"), cases(*(("local", path) for path in PATHS), ("beam", "faithful")))
def test_errors_of_the_client_name_the_row(engine: str, path: str) -> None:
    announcement, run = announced(small_laws(2)["rr"]), running(engine)
    rows = np.zeros((600, 1))
    rows[577] = np.nan
    index = np.arange(20, 600)
    with pytest.raises(InvalidInputError, match="row 577 has an entry that is NaN"):
        collected(run, announcement, rows, index, stream=stream(), path=path)
    rows[577] = 2.0
    with pytest.raises(InvalidInputError, match="row 577 has a norm above 1"):
        collected(run, announcement, rows, index, stream=stream(), path=path)
    assert collected(run, announcement, rows, index, stream=stream(), path=path, outside="project").n_users == 580


@pytest.mark.parametrize("path", PATHS)
def test_progress_adds_up_to_the_users(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_ROWS", 255)
    done: list[int] = []
    announcement = announced(small_laws(2)["rr"])
    analyzer = collect(
        announcement, np.zeros((700, 1)), np.arange(700), stream=stream(), path=path, progress=done.append
    )
    assert sum(done) == analyzer.n_users == 700
    assert len(done) == 3


@pytest.mark.parametrize("engine", cases(("local",), ("beam",)))
def test_unknown_paths_and_too_few_classes_are_refused(engine: str) -> None:
    announcement, rows, everybody = announced(small_laws(2)["rr"]), np.zeros((2, 1)), np.arange(2)
    with pytest.raises(InvalidInputError, match="aggregated"):
        collected(running(engine), announcement, rows, everybody, stream=stream(), path="agregated")
    with pytest.raises(InvalidInputError, match="one for each row"):
        collected(running(engine), announcement, rows, everybody, np.zeros(1, np.int64), stream=stream())


@pytest.mark.parametrize("path", PATHS)
def test_faithful_runs_every_party_and_aggregated_none_of_the_messages(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packets: list[bytes] = []
    receive = Analyzer.receive

    def spy(self: Analyzer, packet: bytes) -> bool:
        packets.append(packet)
        return receive(self, packet)

    monkeypatch.setattr(Analyzer, "receive", spy)
    announcement = announced(small_laws(2)["3nb"])
    collect(announcement, np.zeros((300, 1)), np.arange(300), stream=stream(), path=path)
    assert [announcement.wire_format().counts(packet).n_users for packet in packets] == (
        [300] if path == "faithful" else []
    )


# Files of packets: each report once -----------------------------------------------------------------------------------


BOTH = cases(("local",), ("beam",))


@pytest.fixture
def sent(tmp_path: Path) -> tuple[Announcement, list[bytes]]:
    """The noise counts on three users, and eight packets are there, by secret draws."""
    announcement = announced(small_laws(3)["3nb"], users=9)
    return announcement, Randomizer(announcement).packets(np.linspace(-1, 1, 8)[:, None])


def written(folder: Path, *files: list[bytes]) -> list[str]:
    for number, packets in enumerate(files):
        write_packets(folder / f"{number}.packets", packets)
    return [str(folder / f"{number}.packets") for number in range(len(files))]


def everything(analyzer: Analyzer) -> tuple[list[int], list[int], int, int, int, bool]:
    tally = analyzer.tally.ones.tolist(), analyzer.tally.zeros.tolist()
    return *tally, analyzer.n_users, analyzer.rejected, analyzer.repeated, analyzer.secret


def expected(announcement: Announcement, packets: list[bytes], *, repeated: int = 0, rejected: int = 0) -> Any:
    tallies = [announcement.wire_format().counts(packet).tally for packet in packets]
    total = sum(tallies[1:], tallies[0])
    return total.ones.tolist(), total.zeros.tolist(), len(packets), rejected, repeated, True


@pytest.mark.parametrize("engine", BOTH)
def test_links_and_copies_of_one_file_are_one_set_of_users(
    engine: str, sent: tuple[Announcement, list[bytes]], tmp_path: Path
) -> None:
    """Two users in four hard links, in copies or in repeated packets are too few for a plan that counts on three."""
    announcement, packets = sent
    files = written(tmp_path, packets[:2], packets[:2], [*packets[:2], packets[0]])
    for number in range(3):
        (tmp_path / f"link-{number}.packets").hardlink_to(files[0])
    with pytest.raises(TooFewUsersError, match=r"2 users took part .* 11 packets repeat"):
        running(engine).count(announcement, [str(tmp_path / "*.packets")])
    (tmp_path / "more").mkdir()
    more = written(tmp_path / "more", [*packets[2:], b"malformed"])
    found = running(engine).count(announcement, [str(tmp_path / "*.packets"), *more])
    assert everything(found) == expected(announcement, packets, repeated=11, rejected=1)


@pytest.mark.parametrize("engine", BOTH)
def test_files_are_not_counted_past_tokens(engine: str, sent: tuple[Announcement, list[bytes]], tmp_path: Path) -> None:
    """A regression: people were enrolled by tokens, and files were then counted without any."""
    announcement, packets = sent
    files = written(tmp_path, packets)
    with ReportRegister(announcement.collection(), tmp_path / "reports") as register:
        register.issue()
        with pytest.raises(InvalidInputError, match="the register has issued tokens"):
            running(engine).count(announcement, files, register=register)
        assert register.releases() == []


@pytest.mark.parametrize("engine", BOTH)
def test_a_report_is_in_one_release_over_all_runs(
    engine: str, sent: tuple[Announcement, list[bytes]], tmp_path: Path
) -> None:
    """Overlapping sets of files are not told apart by their difference, and a run over the same files changes nothing.

    The second run is by the other engine's register, and the last by the local engine: all three share a file.
    """
    announcement, packets = sent
    first, few, rest = written(tmp_path, packets[:3], packets[1:5], packets[2:])
    with ReportRegister(announcement.collection(), tmp_path / "reports") as register:
        one, local = running(engine), LocalEngine()
        released = one.count(announcement, [first], register=register)
        assert everything(released) == expected(announcement, packets[:3])
        with pytest.raises(TooFewUsersError, match=r"2 users took part and the noise counts on 3.* 2 packets repeat"):
            one.count(announcement, [few], register=register)
        again = local.count(announcement, [first], register=register)
        assert everything(again) == expected(announcement, packets[:3], repeated=3)
        assert again.releases == released.releases
        both = one.count(announcement, [few, rest], register=register)
        assert everything(both) == expected(announcement, packets, repeated=2 + 3)
        assert released.releases < both.releases
        assert [len(register.releases()), both.n_users] == [2, 8]
        same = one.count(announcement, [first, few, rest], register=register)
        assert (same.tally.ones.tolist(), same.n_users) == (both.tally.ones.tolist(), 8)
    with pytest.raises(InvalidInputError, match="a release would be counted twice"):
        both.merge(released)


@pytest.mark.parametrize("engine", BOTH)
def test_two_packets_with_one_id_are_one_report(
    engine: str, sent: tuple[Announcement, list[bytes]], tmp_path: Path
) -> None:
    """Here the first is counted, by Beam the one with the least SHA-256, wherever it is."""
    announcement, packets = sent
    wire = announcement.wire_format()
    twin = wire.encode(wire.counts(packets[1])._replace(packet_id=wire.packet_id(packets[0])))
    files = written(tmp_path, packets, [twin])
    kept = min(packets[0], twin, key=lambda packet: hashlib.sha256(packet).digest()) if engine == "beam" else packets[0]
    for order in (files, files[::-1] if engine == "beam" else files):
        found = running(engine).count(announcement, order)
        assert everything(found) == expected(announcement, [kept, *packets[1:]], repeated=1)


@pytest.mark.parametrize("engine", BOTH)
def test_seeded_packets_are_refused_or_in_a_study_counted_as_not_secret(
    engine: str, sent: tuple[Announcement, list[bytes]], tmp_path: Path
) -> None:
    announcement, packets = sent
    """An honest packet that is sent again as a seeded one is refused as well, and takes nobody's place."""
    wire = announcement.wire_format()
    seeded = Randomizer(announcement, stream=stream()).packets(np.zeros((1, 1)))
    turned = [wire.encode(wire.counts(packet)._replace(secret=False)) for packet in packets]
    files = written(tmp_path, turned, packets, seeded)
    assert everything(running(engine).count(announcement, files)) == expected(announcement, packets, rejected=9)
    study = running(engine).count(announcement, files[1:], seeded=True)
    assert (study.secret, study.n_users, study.rejected) == (False, 9, 0)
    for path in PATHS:
        for source in (stream(), private_randomness()):
            rows = np.zeros((3, 1))
            played = collected(running(engine), announcement, rows, np.arange(3), stream=source, path=path)
            assert played.secret is source.secret


def test_an_interrupted_count_counts_nothing(sent: tuple[Announcement, list[bytes]], tmp_path: Path) -> None:
    announcement, packets = sent
    files = written(tmp_path, packets)

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with ReportRegister(announcement.collection(), tmp_path / "reports") as register:
        with pytest.raises(KeyboardInterrupt):
            LocalEngine().count(announcement, files, stop, register=register)
        assert not register.releases()
        assert everything(LocalEngine().count(announcement, files, register=register)) == expected(
            announcement, packets
        )


def test_planned_laws_are_those_executed() -> None:
    for name, law in COMPARED.items():
        assert announcement_of(name).bitsum() == executed(law)
