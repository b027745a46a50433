"""Streams: published ChaCha20 vectors and a twin of the cipher; children, seeds and secrets."""

import ctypes
import hashlib
import hmac
import itertools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import InvalidInputError
from privkde.draws.randomness import (
    ByteStream,
    new_public_seed,
    private_randomness,
    process_identity,
    public_stream,
)
from tests.privkde.kernels.test_kernels import chacha20

ZERO_KEY = [  # RFC 8439, appendix A.1, test vectors 1 and 2: blocks 0 and 1
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
    "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
]
LAST_BIT_KEY = (  # test vector 3: key 00…01, block 1
    "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
    "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0"
)
SECOND_BYTE_KEY = (  # test vector 4: key 00ff00…00, block 2
    "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
    "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096"
)


def taken(stream: ByteStream, count: int) -> bytes:
    return stream.take(count).tobytes()


def test_published_vectors() -> None:
    assert taken(ByteStream(bytes(32)), 128).hex() == "".join(ZERO_KEY)
    assert taken(ByteStream(bytes(31) + b"\1"), 128)[64:].hex() == LAST_BIT_KEY
    assert taken(ByteStream(b"\0\xff" + bytes(30)), 192)[128:].hex() == SECOND_BYTE_KEY


@given(key=st.binary(min_size=32, max_size=32), count=st.integers(0, 400))
@settings(max_examples=25)
def test_bytes_are_those_of_a_twin_of_the_cipher(key: bytes, count: int) -> None:
    assert taken(ByteStream(key), count) == bytes(itertools.islice(chacha20(key), count))


def test_long_takes_go_on_where_the_last_piece_ended() -> None:
    """Zeros are encrypted 64 KiB at a time; the keystream does not start again."""
    size = 3 * (1 << 16) + 100
    whole = taken(ByteStream(bytes(32)), size)
    stream = ByteStream(bytes(32))
    assert b"".join(taken(stream, 1000) for _ in range(size // 1000 + 1))[:size] == whole
    block = 2 * (1 << 16) // 64  # the 2,048th block, across the second seam
    twin = itertools.islice(chacha20(bytes(32)), 0, (block + 1) * 64)
    assert bytes(twin)[-128:] == whole[(block - 1) * 64 : (block + 1) * 64]


@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_bytes_do_not_depend_on_how_they_are_taken(cuts: list[int]) -> None:
    stream = ByteStream(bytes(range(32)))
    assert b"".join(taken(stream, count) for count in cuts) == taken(ByteStream(bytes(range(32))), sum(cuts))


def test_taken_bytes_belong_to_the_caller() -> None:
    stream = ByteStream(bytes(32))
    first = stream.take(64)
    before = first.copy()
    second = stream.take(64)
    assert np.array_equal(first, before)
    first[:] = 0
    assert second.any()
    assert first.dtype == np.uint8
    assert first.flags.writeable
    assert stream.take(0).shape == (0,)


@given(ahead=st.integers(0, 300))
def test_children_do_not_depend_on_what_was_taken(ahead: int) -> None:
    stream = ByteStream(bytes(32))
    stream.take(ahead)
    child = stream.child("noise", 3)
    expected = hmac.new(bytes(32), b"noise/3", hashlib.sha256).digest()
    assert taken(child, 40) == taken(ByteStream(expected), 40)
    assert taken(stream, 8) == taken(ByteStream(bytes(32)), ahead + 8)[ahead:], "making a child takes nothing"


def test_children_differ_from_each_other_and_from_their_parent() -> None:
    parent = ByteStream(bytes(32))
    named: list[tuple[str | int, ...]] = [(), ("a",), ("b",), ("a", 0), ("a", 1), ("a", "b"), (1,), (11,), (1, 1)]
    family = [parent, *(parent.child(*labels) for labels in named), parent.child("a").child("b")]
    assert len({taken(member, 16) for member in family}) == len(family)
    assert taken(ByteStream(bytes(31) + b"\1").child("a"), 16) != taken(parent.child("a"), 16)


def test_secret_streams_differ_and_come_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = private_randomness(), private_randomness()
    assert first.secret
    assert second.secret
    assert taken(first, 32) != taken(second, 32)
    asked: list[int] = []

    def fixed(count: int) -> bytes:
        asked.append(count)
        return bytes(range(count))

    monkeypatch.setattr("os.urandom", fixed)
    assert taken(private_randomness(), 32) == taken(ByteStream(bytes(range(32))), 32)
    assert new_public_seed() == bytes(range(16)).hex()
    assert asked == [32, 16]


def test_seeded_streams_are_reproducible_and_say_so() -> None:
    assert not private_randomness(7).secret
    assert taken(private_randomness(7), 32) == taken(private_randomness(7), 32)
    expected = hashlib.sha256(b"privkde insecure seed/1 7").digest()
    assert taken(private_randomness(7), 32) == taken(ByteStream(expected), 32)
    seeds = [0, 1, 10, 2**64, 2**128 - 1]
    assert len({taken(private_randomness(seed), 32) for seed in seeds}) == len(seeds)


def drawn_by_a_fork(*streams: ByteStream, fork: Callable[[], int] | None = None) -> list[bytes]:
    """What a forked process takes from each of these streams: 32 bytes, and 32 of a child."""
    reading, writing = os.pipe()
    process = (fork or os.fork)()
    if process == 0:  # nothing of the test suite may run here
        try:
            os.write(writing, b"".join(taken(one, 32) + taken(one.child("a"), 32) for one in streams))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = pipe.read()
    os.waitpid(process, 0)
    assert len(found) == 64 * len(streams)
    return [found[at : at + 32] for at in range(0, len(found), 32)]


@pytest.mark.parametrize("equal_number", [False, True], ids=["another pid", "an equal pid"])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # other tests leave threads; this fork needs none
def test_forked_processes_share_no_secrets(equal_number: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the same noise would show which messages carry data; a seeded run is the same wherever it runs."""
    if equal_number:  # as in containers, where process numbers come around soon
        monkeypatch.setattr("os.getpid", lambda: 7)
    secret, seeded = private_randomness(), private_randomness(7)
    child, grandchild = secret.child("a"), secret.child("a").child("b")
    streams = (secret, child, grandchild, ByteStream(bytes(32), secret=True))
    forks = [drawn_by_a_fork(*streams) for _ in range(2)]
    here = [part for one in streams for part in (taken(one, 32), taken(one.child("a"), 32))]
    drawn = [*here, *forks[0], *forks[1]]
    assert len({*drawn}) == len(drawn)
    known = taken(ByteStream(bytes(32)), 32)
    assert known in here, "the process itself keeps its key"
    assert known not in {*forks[0], *forks[1]}
    expected = [taken(private_randomness(7), 32), taken(private_randomness(7).child("a"), 32)]
    assert drawn_by_a_fork(seeded) == expected
    assert [taken(seeded, 32), taken(seeded.child("a"), 32)] == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("stream", [private_randomness(), private_randomness(7)], ids=["secret", "seeded"])
def test_a_lock_that_another_thread_held_does_not_stop_a_forked_process(stream: ByteStream) -> None:
    with stream._held():
        assert len({*drawn_by_a_fork(stream)}) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_fork_that_python_does_not_know_of_is_seen_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    secret, seeded = ByteStream(bytes(32), secret=True), ByteStream(bytes(32))
    whole = taken(ByteStream(bytes(32)), 64)
    assert taken(secret, 32) == taken(seeded, 32) == whole[:32]
    number = os.getpid() + 1
    monkeypatch.setattr("os.getpid", lambda: number)
    assert taken(seeded, 32) == whole[32:]
    assert taken(secret, 32) not in (whole[:32], whole[32:])


@pytest.mark.skipif(sys.platform != "linux", reason="nothing but its number tells such a fork elsewhere")
def test_a_fork_that_python_does_not_know_of_is_seen_by_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: C code forks into a new namespace, where the new process is number 1 as this one is in its own."""
    monkeypatch.setattr("os.getpid", lambda: 1)
    streams = private_randomness(), ByteStream(bytes(32), secret=True)
    children = [stream.child("a") for stream in streams]
    fork = ctypes.CDLL(None).fork
    forks = [drawn_by_a_fork(*streams, *children, fork=fork) for _ in range(2)]
    here = [part for one in (*streams, *children) for part in (taken(one, 32), taken(one.child("a"), 32))]
    drawn = [*here, *forks[0], *forks[1]]
    assert len({*drawn}) == len(drawn)
    assert taken(ByteStream(bytes(32)), 32) in here, "the process itself keeps its key"


@pytest.mark.skipif(sys.platform != "linux", reason="nothing but its number tells such a fork elsewhere")
def test_a_fork_of_a_fork_is_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 1)
    fork = ctypes.CDLL(None).fork
    reading, writing = os.pipe()
    process = fork()
    if process == 0:
        try:
            os.write(writing, bytes(process_identity()[2]))
            if fork() == 0:
                os.write(writing, bytes(process_identity()[2]))
        finally:
            os._exit(0)
    os.waitpid(process, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        marks = pipe.read()
    assert len({process_identity()[2], marks[:16], marks[16:]}) == 3
    assert len(marks) == 32
    assert any(marks[:16])
    assert any(marks[16:])


def test_secrecy_is_inherited_and_changes_no_byte_of_the_stream_itself() -> None:
    for secret in (True, False):
        parent = ByteStream(bytes(32), secret=secret)
        child = parent.child("a", 1)
        assert (parent.secret, child.secret, child.child("b").secret) == (secret,) * 3
        assert taken(parent, 32) == taken(ByteStream(bytes(32)), 32)
    assert private_randomness().secret
    assert not private_randomness(7).secret
    assert not public_stream("00" * 16).secret
    assert not ByteStream(bytes(32)).secret


def test_a_secret_stream_never_has_the_same_child_twice() -> None:
    """Neither does another stream that was made with the same key, as a stored key or a copied machine would."""
    streams = [ByteStream(bytes(32), secret=True) for _ in range(2)]
    children = [taken(stream.child("noise"), 32) for stream in streams for _ in range(50)]
    assert len({*children}) == 100
    assert taken(ByteStream(bytes(32)).child("noise"), 32) not in children
    for seeded in (private_randomness(7), public_stream("00" * 16)):
        assert len({taken(seeded.child("noise"), 32) for _ in range(50)}) == 1


def test_a_secret_child_is_named_by_its_label_and_a_fresh_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.urandom", bytes)
    child = ByteStream(bytes(32), secret=True).child("noise", 3)
    expected = hmac.new(bytes(32), bytes(32) + b"noise/3", hashlib.sha256).digest()
    assert taken(child, 40) == taken(ByteStream(expected), 40)


@pytest.mark.parametrize("secret", [True, False])
def test_threads_that_share_a_stream_never_get_the_same_bytes(secret: bool) -> None:
    """Together they take exactly the bytes of the stream, in whole pieces; secret children all differ."""
    stream, start = ByteStream(bytes(32), secret=secret), threading.Barrier(8)
    pieces: list[bytes] = []
    children: list[bytes] = []

    def work() -> None:
        start.wait()
        for _ in range(20):
            pieces.append(taken(stream, (1 << 16) + 64))  # longer than what is encrypted at once
            children.append(taken(stream.child("a"), 32))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole, size = taken(ByteStream(bytes(32)), 160 * ((1 << 16) + 64)), (1 << 16) + 64
    assert sorted(pieces) == sorted(whole[at : at + size] for at in range(0, len(whole), size))
    assert len(children) == 160
    assert len({*children}) == (160 if secret else 1)


def test_public_seeds_of_a_run_are_fresh_or_follow_from_its_seed() -> None:
    secret = private_randomness()
    seeds = [secret.public_seed(), secret.public_seed(), private_randomness(7).public_seed()]
    assert len({*seeds}) == 3
    for seed in seeds:
        public_stream(seed)
    randomness = private_randomness(7)
    randomness.take(5)
    assert randomness.public_seed() == seeds[2] == randomness.public_seed()
    assert seeds[2] == taken(private_randomness(7).child("public"), 16).hex()
    assert private_randomness(8).public_seed() != seeds[2]


@pytest.mark.parametrize("seed", [-1, 2**128, 1.0, "1", True, b"1", np.int64(3)])
def test_unusable_seeds_are_refused(seed: Any) -> None:
    with pytest.raises(InvalidInputError, match="insecure_seed"):
        private_randomness(seed)


def test_public_streams_are_functions_of_the_seed() -> None:
    seed = "000102030405060708090a0b0c0d0e0f"
    expected = hashlib.sha256(b"privkde public seed/1 " + bytes.fromhex(seed)).digest()
    assert taken(public_stream(seed), 32) == taken(ByteStream(expected), 32)
    assert taken(public_stream(seed.upper()), 32) == taken(public_stream(seed), 32)
    fresh = [new_public_seed() for _ in range(2)]
    assert fresh[0] != fresh[1]
    assert [len(one) for one in fresh] == [32, 32]
    assert taken(public_stream(fresh[0]), 32) != taken(public_stream(fresh[1]), 32)


@pytest.mark.parametrize(
    "seed", ["", "00" * 15, "00" * 17, "0" * 31, "g" * 32, 5, None, b"0" * 32, ["00" * 16]], ids=str
)
def test_unusable_public_seeds_are_refused(seed: Any) -> None:
    with pytest.raises(InvalidInputError, match="32 hexadecimal digits"):
        public_stream(seed)


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_keys_of_another_length_are_refused(length: int) -> None:
    with pytest.raises(InvalidInputError, match=f"{length} bytes"):
        ByteStream(bytes(length))
