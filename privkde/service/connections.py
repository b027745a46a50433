"""Connections of the server: limited in number, for each client too, and closed if nothing arrives or is taken.

Uvicorn has no limit of its own for the time in which a request must arrive, and its limit of connections counts idle
ones, so that whoever opens enough of them shuts everybody else out. It reads heads and bodies in the same thread that
answers everybody: so a head has a limited number of lines, and a body may not come in chunks, which could be of one
byte each.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from privkde.service.clients import network_of
from privkde.service.problems import LONG_HEAD, NO_LENGTH, TOO_MANY, Kind, Problem
from privkde.service.settings import Settings

READ_AT_ONCE = 1 << 10
"""Bytes that are read before a head is looked at."""
END_OF_HEAD = re.compile(rb"\n\r?\n")
MOST_LINES = 100
"""Lines of a head; browsers behind proxies send less than half as many."""


class Connection(H11Protocol):
    """A connection that must make room for others while it waits, and that may not wait for long.

    A reverse proxy that `settings.proxies` names may have as many connections as there are.
    """

    def __init__(self, settings: Settings, **server: Any) -> None:
        super().__init__(**server)
        self._settings = settings
        self._arriving: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self.network = ""
        self.waits_since = 0.0
        self._lines, self._before = 0, b""

    @property
    def waits(self) -> bool:
        """Whether no request of it is being answered: it is new, between requests, or still sends a head."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, perhaps in place of one that waits, or close it."""
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        self.network, self.waits_since = network_of(address), self.loop.time()
        others = [other for other in self.connections if isinstance(other, Connection) and other is not self]
        if address not in self._settings.proxies and (
            sum(other.network == self.network for other in others) >= self._settings.client_connections
        ):
            self._refuse("this client has too many connections open; close some.")
        elif len(others) >= self._settings.connections and not _make_room(others):
            self._refuse("all connections are in use; try again soon.")
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Parts of a head do not stop its clock; a whole head does. What a request may not have closes it."""
        at = 0
        while at < len(data) and not self.transport.is_closing():
            part = data[at : at + READ_AT_ONCE] if self.waits else data[at:]  # a body is not looked at
            at += len(part)
            self._count_lines(part)
            if self._lines > MOST_LINES:
                self._refuse("a head has too many lines; send fewer headers.", LONG_HEAD)
            else:
                super().data_received(part)
                self._refuse_costly()
        if self.transport.is_closing():
            return
        if not self.waits:
            self._stop_clock()
        elif self._arriving is None:
            self._expect_head()

    def _count_lines(self, part: bytes) -> None:
        """Lines of a head that is still arriving; a body that follows in the same part has others."""
        if not self.waits:
            return
        text = self._before + part
        ended = END_OF_HEAD.search(text)
        self._lines += text[: len(text) if ended is None else ended.end()].count(b"\n") - self._before.count(b"\n")
        self._before = text[-3:]

    def _refuse_costly(self) -> None:
        """Refuse a body that comes in chunks, and requests that follow before the last one was answered."""
        if self.waits or self.transport.is_closing():
            return
        if self.conn.their_state is h11.DONE:
            following, _ = self.conn.trailing_data
            if following.count(b"\n") > MOST_LINES:
                self._refuse("requests follow before the last one was answered; wait for its answer.", TOO_MANY)
        elif any(name == b"transfer-encoding" for name, _ in self.headers):
            self._refuse("a body must come with its length (Content-Length), not in chunks.", NO_LENGTH)

    def on_response_complete(self) -> None:
        """From now on it waits; Uvicorn closes it if nothing at all arrives."""
        self.waits_since = self.loop.time()
        self._lines, self._before = 0, b""
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client takes its answer more slowly than it is given."""
        super().pause_writing()
        if self._leaving is None:
            self._leaving = self.loop.call_later(self._settings.arrival_limit, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has taken what was there."""
        super().resume_writing()
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the clocks."""
        self._stop_clock()
        if self._leaving is not None:
            self._leaving.cancel()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._arriving = self.loop.call_later(self._settings.arrival_limit, self.transport.abort)

    def _stop_clock(self) -> None:
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _refuse(self, detail: str, kind: Kind = TOO_MANY) -> None:
        """Answer without having been asked, and close: the client reads it as the answer to what it sends."""
        answer = Problem(kind, detail).response()
        lines = [f"HTTP/1.1 {kind.status} {HTTPStatus(kind.status).phrase}".encode(), b"connection: close"]
        lines += [name + b": " + value for name, value in answer.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self.connections.discard(self)
        self.transport.close()


def _make_room(connections: Iterable[Connection]) -> bool:
    """Close the one that has waited longest, of those who have most connections; whether there was one that waits."""
    held = Counter(connection.network for connection in connections)
    waiting = [connection for connection in connections if connection.waits]
    if not waiting:
        return False
    longest = max(waiting, key=lambda connection: (held[connection.network], -connection.waits_since))
    longest.connections.discard(longest)
    longest.transport.abort()
    return True
