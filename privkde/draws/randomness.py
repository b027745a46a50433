"""Where every random byte comes from: the only module that makes a generator.

A `ByteStream` is the keystream of ChaCha20 (RFC 8439, through OpenSSL) under a 256-bit key. *Private* streams take
their key from the operating system. *Public* streams take it from a published seed, so that everybody can draw the
same bytes, on any machine and with any version of NumPy.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
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
_ZEROS = memoryview(bytes(1 << 16))


class ByteStream:
    """Uniform random bytes, reproducible from the key alone.

    In a forked process, a `secret` stream takes a new key: two processes with the same key would send messages with
    the same noise.

    >>> ByteStream(bytes(32)).take(4).tobytes().hex()  # the first bytes of the published ChaCha20 test vector
    '76b8e0ad'
    """

    def __init__(self, key: bytes, *, secret: bool = False) -> None:
        if len(key) != KEY_BYTES:
            raise InvalidInputError(f"a key of {len(key)} bytes was given; ChaCha20 needs exactly {KEY_BYTES}.")
        self.secret = secret
        self._start(key)

    def _start(self, key: bytes) -> None:
        self._key = key
        self._process = os.getpid()
        self._keystream = Cipher(ChaCha20(key, nonce=bytes(16)), mode=None).encryptor()

    def _renew_after_fork(self) -> None:
        if self.secret and os.getpid() != self._process:
            self._start(os.urandom(KEY_BYTES))

    def take(self, count: int) -> NDArray[np.uint8]:
        """The next `count` bytes."""
        self._renew_after_fork()
        out = np.empty(count, dtype=np.uint8)
        for start in range(0, count, len(_ZEROS)):
            part = out[start : start + len(_ZEROS)].data
            self._keystream.update_into(_ZEROS[: len(part)], part)
        return out

    def child(self, *labels: str | int) -> ByteStream:
        """An independent stream for a named purpose; it does not depend on what was taken from this one."""
        self._renew_after_fork()
        name = "/".join(str(label) for label in labels)
        return ByteStream(hmac.digest(self._key, name.encode(), "sha256"), secret=self.secret)

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
