"""What a service may cost, and what it is allowed to do."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from accounting.errors import require_integer, require_real

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits of one service; a service without a ledger plans and composes, and keeps nothing."""

    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processes that plan."""
    queue: int = 16
    """Requests that may wait for them; more are answered with 503."""
    time_limit: float = 60.0
    """Seconds after which a request's work is stopped (504)."""
    memory_limit: int = 4 * 2**30
    """Bytes that a worker may use."""
    largest_body: int = 2**20
    """Bytes of a request (413)."""
    cache_bytes: int = 32 * 2**20
    """Bytes of answers that are kept; the same question is answered from them."""
    ledger: str | None = field(default=None, repr=False)
    """File or URL of a budget ledger."""
    ledger_key: bytes | None = field(default=None, repr=False)
    """The ledger's key, if it has one."""
    token: str | None = field(default=None, repr=False)
    """Bearer token that writing to the ledger needs, if there is one."""
    hosts: tuple[str, ...] = LOOPBACK
    """Names by which the service may be addressed; ("*",) allows any."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hosts", tuple(name.lower() for name in self.hosts))
        require_integer("workers", self.workers, low=1, high=256)
        require_integer("queue", self.queue, low=0, high=10_000)
        require_real("time_limit", self.time_limit, low=0.0, high=3600.0)
        require_integer("memory_limit", self.memory_limit, low=2**28, high=2**44)
        require_integer("largest_body", self.largest_body, low=1024, high=2**30)
        require_integer("cache_bytes", self.cache_bytes, low=0, high=2**34)
