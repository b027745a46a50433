"""What a service may cost, and what it is allowed to do."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field

from accounting import InvalidInputError
from accounting.errors import require_integer, require_real

LOOPBACK = ("127.0.0.1", "localhost", "::1")
SHORTEST_TOKEN = 24
"""Characters of a token."""
FEWEST_CHARACTERS = 8
"""Different ones among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits of one service; a service without a ledger plans and composes, and keeps nothing."""

    workers: int = field(default_factory=lambda: max(2, os.cpu_count() or 1))
    """Processes that plan; one client may keep all but one of them busy."""
    queue: int = 16
    """Jobs that may wait for them (503); one client's may be half of those at work or waiting (429)."""
    time_limit: float = 60.0
    """Seconds after which a request's work is stopped (504)."""
    short_limit: float = 10.0
    """The same for requests outside of the usual range, and for reading a ledger (504)."""
    memory_limit: int = 4 * 2**30
    """Bytes that a worker may use."""
    largest_body: int = 2**20
    """Bytes of a request (413)."""
    arrival_limit: float = 15.0
    """Seconds in which the head of a request must arrive, then its body, and in which a client must take its answer."""
    connections: int = 256
    """Open connections; for a further one, the one that has waited longest for a request is closed."""
    client_connections: int = 32
    """Open connections of one client; proxies may have more (429)."""
    client_requests: int = 16
    """Requests of one client that may be under way (429)."""
    proxies: tuple[str, ...] = ()
    """Addresses of reverse proxies, which are believed about whose requests they pass on (X-Forwarded-For)."""
    cache_bytes: int = 32 * 2**20
    """Bytes of answers that are kept; the same question is answered from them."""
    ledger: str | None = field(default=None, repr=False)
    """File or URL of a budget ledger."""
    ledger_key: bytes | None = field(default=None, repr=False)
    """The ledger's key, if it has one."""
    token: str | None = field(default=None, repr=False)
    """Bearer token that everything about budgets needs, if there is one."""
    hosts: tuple[str, ...] = LOOPBACK
    """Names by which the service may be addressed; ("*",) allows any."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hosts", tuple(name.lower() for name in self.hosts))
        object.__setattr__(self, "proxies", tuple(map(_address, self.proxies)))
        require_integer("workers", self.workers, low=1, high=256)
        require_integer("queue", self.queue, low=0, high=10_000)
        for name in ("time_limit", "short_limit", "arrival_limit"):
            require_real(name, getattr(self, name), low=0.0, high=3600.0)
        require_integer("memory_limit", self.memory_limit, low=2**28, high=2**44)
        require_integer("largest_body", self.largest_body, low=1024, high=2**30)
        require_integer("cache_bytes", self.cache_bytes, low=0, high=2**34)
        for name in ("connections", "client_connections", "client_requests"):
            require_integer(name, getattr(self, name), low=1, high=100_000)
        _refuse_weak(self.token)

    @property
    def client_workers(self) -> int:
        """Workers that one client may keep busy: one is left to the others, if there are two."""
        return max(1, self.workers - 1)

    @property
    def client_jobs(self) -> int:
        """Jobs of one client that may be at work or waiting."""
        return max(1, (self.workers + self.queue) // 2)


def _address(proxy: str) -> str:
    try:
        return str(ipaddress.ip_address(proxy))
    except ValueError:
        raise InvalidInputError(f"proxies: {proxy!r} is not an IP address; give that of the reverse proxy.") from None


def _refuse_weak(token: str | None) -> None:
    """A token that can be guessed protects nothing; the error does not repeat it."""
    if token is None:
        return
    repeats = any(token[by:] == token[:-by] for by in range(1, len(token) // 2 + 1))
    strong = len(token) >= SHORTEST_TOKEN and len(set(token)) >= FEWEST_CHARACTERS and not repeats
    if not strong or re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token) is None:
        raise InvalidInputError(
            f"the token has {len(token)} characters, {len(set(token))} of them different; it needs at least"
            f" {SHORTEST_TOKEN}, {FEWEST_CHARACTERS} of them different, without repetition, all letters, digits or"
            " ._~+/=-: take the output of `openssl rand -hex 32`."
        )
