"""Where every random byte comes from: the only module that makes a generator.

A `ByteStream` is the keystream of ChaCha20 (RFC 8439, through OpenSSL) under a 256-bit key. *Private* streams take
their key from the operating system. *Public* streams take it from a published seed, so that everybody can draw the
same bytes, on any machine and with any version of NumPy.
"""

from __future__ import annotations

import hashlib
import hmac
import mmap
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from accounting import InvalidInputError
from accounting.errors import require_integer

KEY_BYTES = 32
SEED_BYTES = 16
NONCE_BYTES = 32
_ZEROS = memoryview(bytes(1 << 16))
_WIPE_ON_FORK = 18
"""MADV_WIPEONFORK of Linux, which Python does not name."""
_MARK_BYTES = 16


class _Process:
    """Which process this is; a fork changes it even if the system gives the new process the same number.

    Python tells of its own forks only. Of all others Linux does: the new process finds a page of zeros where this one
    wrote a mark. Elsewhere they are told by the number alone.
    """

    def __init__(self) -> None:
        self.forks = 0
        self.renewing = threading.Lock()
        self._page: mmap.mmap | None = None
        if sys.platform == "linux":
            page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with suppress(OSError):  # a system that cannot: before Linux 4.14, or one that only resembles it
                page.madvise(_WIPE_ON_FORK)
                page[:_MARK_BYTES] = os.urandom(_MARK_BYTES)
                self._page = page

    def forked(self) -> None:
        """Called in the new process, which has one thread; another may have held the lock in the old one."""
        self.forks += 1
        self.renewing = threading.Lock()

    def identity(self) -> tuple[int, int, bytes]:
        """Forks that Python knows of, the number, and the mark of this process, for forks that it does not know of."""
        if self._page is None:
            return self.forks, os.getpid(), b""
        mark = self._page[:_MARK_BYTES]
        if not any(mark):
            self._page[:_MARK_BYTES] = os.urandom(_MARK_BYTES)
            mark = self._page[:_MARK_BYTES]
        return self.forks, os.getpid(), mark


_PROCESS = _Process()
process_identity = _PROCESS.identity
if hasattr(os, "register_at_fork"):  # not where processes are never forked
    os.register_at_fork(after_in_child=_PROCESS.forked)


class ByteStream:
    """Uniform random bytes. A seeded stream is reproducible from its key; a `secret` one is consumed and never repeats.

    Two collections with the same noise would differ only where a user changed. So each child of a secret stream is
    new, also under the same name, and in a forked process a secret stream takes a new key. Threads may share a stream.
    A key that is given with `secret=True` must be fresh. A machine that is copied whole, with its memory, is not seen.

    >>> ByteStream(bytes(32)).take(4).tobytes().hex()  # the first bytes of the published ChaCha20 test vector
    '76b8e0ad'
    """

    def __init__(self, key: bytes, *, secret: bool = False) -> None:
        if len(key) != KEY_BYTES:
            raise InvalidInputError(f"a key of {len(key)} bytes was given; ChaCha20 needs exactly {KEY_BYTES}.")
        self.secret = secret
        self._start(key)
        self._lock = threading.Lock()
        self._process = _PROCESS.identity()

    def _start(self, key: bytes) -> None:
        self._key = key
        self._keystream = Cipher(ChaCha20(key, nonce=bytes(16)), mode=None).encryptor()

    def _held(self) -> threading.Lock:
        """The lock to hold while drawing. After a fork it is a new one, and a secret stream has a new key."""
        if self._process != _PROCESS.identity():
            with _PROCESS.renewing:
                if self._process != _PROCESS.identity():
                    if self.secret:
                        self._start(os.urandom(KEY_BYTES))
                    self._lock = threading.Lock()
                    self._process = _PROCESS.identity()  # last: other threads then find all of it renewed
        return self._lock

    def take(self, count: int) -> NDArray[np.uint8]:
        """The next `count` bytes."""
        out = np.empty(count, dtype=np.uint8)
        with self._held():
            for start in range(0, count, len(_ZEROS)):
                part = out[start : start + len(_ZEROS)].data
                self._keystream.update_into(_ZEROS[: len(part)], part)
        return out

    def child(self, *labels: str | int) -> ByteStream:
        """An independent stream for a named purpose; it does not depend on what was taken from this one.

        Of a seeded stream it is HMAC(key, name), the same each time. Of a secret stream it is HMAC(key, nonce ‖ name)
        with a fresh nonce of the operating system, another one each time.
        """
        name = "/".join(str(label) for label in labels).encode()
        nonce = os.urandom(NONCE_BYTES) if self.secret else b""
        with self._held():
            key = hmac.digest(self._key, nonce + name, "sha256")
        return ByteStream(key, secret=self.secret)

    def public_seed(self) -> str:
        """A seed to publish: fresh beside a secret stream, otherwise a function of this stream's key."""
        return new_public_seed() if self.secret else self.child("public").take(SEED_BYTES).tobytes().hex()

    def recipe(self) -> Callable[[], ByteStream]:
        """How another process makes its stream: the seeded one from its beginning, else a new secret one each time.

        It may be pickled; the key of a secret stream never leaves this process.
        """
        return private_randomness if self.secret else partial(ByteStream, self._key)

    def __reduce__(self) -> NoReturn:
        """Refused: two copies would draw the same noise."""
        raise TypeError(
            "two copies of a stream would draw the same noise, so it is not copied or pickled; send recipe()."
        )


def private_randomness(insecure_seed: int | None = None) -> ByteStream:
    """A stream keyed by the operating system; or by `insecure_seed`, which protects nobody, for tests and studies."""
    if insecure_seed is None:
        return ByteStream(os.urandom(KEY_BYTES), secret=True)
    seed = require_integer("insecure_seed", insecure_seed, low=0, high=2**128 - 1)
    return ByteStream(hashlib.sha256(b"privkde insecure seed/1 " + str(seed).encode()).digest())


def new_public_seed() -> str:
    """A fresh seed to publish, as 32 hexadecimal digits."""
    return os.urandom(SEED_BYTES).hex()


def public_stream(seed: str) -> ByteStream:
    """The stream that everybody draws the public randomness from."""
    try:
        raw = bytes.fromhex(seed)
    except (TypeError, ValueError):
        raw = b""
    if len(raw) != SEED_BYTES:
        raise InvalidInputError(f"public_seed={seed!r} must be {2 * SEED_BYTES} hexadecimal digits.")
    return ByteStream(hashlib.sha256(b"privkde public seed/1 " + raw).digest())
