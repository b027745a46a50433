"""Connections of the server: limited in number, for each client too, and closed if nothing arrives or is taken.

Uvicorn has no limit of its own for the time in which a request must arrive, and its limit of connections counts idle
ones, so that whoever opens enough of them shuts everybody else out. It reads heads and bodies in the same thread that
answers everybody, and some take it very long: a long run of blanks, or a body in chunks of one byte each. So it gets a
head only when that is whole, its turn has come and it was looked at, and then as many bytes as the head says.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from privkde.service.clients import network_of
from privkde.service.problems import LONG_HEAD, NO_LENGTH, TOO_MANY, Kind, Problem
from privkde.service.settings import Settings

LARGEST_HEAD = 1 << 14
"""Bytes of a head; as many may arrive before the last request was answered."""
MOST_LINES = 100
"""Lines of a head; browsers behind proxies send less than half as many."""
MOST_BLANKS = 64
"""Blanks in a row in a head; h11 takes a time that grows with their square."""
END_OF_HEAD = re.compile(rb"\n\r?\n")
LONG_BLANK = re.compile(rb"[ \t]{%d}" % (MOST_BLANKS + 1))
IN_CHUNKS = re.compile(rb"\ntransfer-encoding:", re.IGNORECASE)
"""A header that h11 reads as this one begins its line with it: other spellings are refused, or are other headers."""


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
        self._arrived, self._searched = bytearray(), 0
        self._body_left = 0

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
        self._arrived += data
        self._read()
        self._linger()

    def on_response_complete(self) -> None:
        """From now on it waits; Uvicorn closes it if nothing at all arrives."""
        self.waits_since = self.loop.time()
        super().on_response_complete()
        if self._arrived:
            self._read()
        self._linger()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing has arrived for too long: Uvicorn closes it."""
        super().timeout_keep_alive_handler()
        self._linger()

    def _linger(self) -> None:
        """A connection that is closed waits until all was taken, and counts as long; but it may not wait for long."""
        if self._leaving is None and self.transport.is_closing() and self.transport.get_write_buffer_size() > 0:
            self._leaving = self.loop.call_later(self._settings.arrival_limit, self.transport.abort)

    def _read(self) -> None:
        """Hand on what arrived as far as it may be read now."""
        self._unset_keepalive_if_required()
        while self._arrived and not self.transport.is_closing():
            of_body = bool(self._body_left)
            part = self._taken(self._body_left or self._length_of_head())
            if of_body:
                self._body_left -= len(part)
                super().data_received(part)
            elif part:
                self._begin(part)
            else:
                break
        if self.transport.is_closing():
            return
        if not self.waits:
            self._stop_clock()
        elif self._arriving is None:
            self._expect_head()

    def _taken(self, length: int) -> bytes:
        part = bytes(self._arrived[:length])
        del self._arrived[:length]
        return part

    def _length_of_head(self) -> int:
        """Bytes of the head that arrived, or 0 if it is not whole or not yet its turn; refuses what is too long."""
        if not self.waits:
            if len(self._arrived) > LARGEST_HEAD:
                self._refuse("requests follow before the last one was answered; wait for its answer.")
            return 0
        if self._arrived[0] <= ord(" "):
            return 1  # no head begins so, and h11 says so
        ended = END_OF_HEAD.search(self._arrived, self._searched, LARGEST_HEAD)
        if ended is None:
            self._searched = max(0, len(self._arrived) - 2)
            if len(self._arrived) >= LARGEST_HEAD:
                self._refuse("a head is too long; send fewer and shorter headers.", LONG_HEAD)
            return 0
        self._searched = 0
        return ended.end()

    def _begin(self, head: bytes) -> None:
        """Begin a request, unless its head or a body in chunks would be costly to read."""
        if head.count(b"\n") > MOST_LINES:
            self._refuse("a head has too many lines; send fewer headers.", LONG_HEAD)
        elif LONG_BLANK.search(head):
            self._refuse(f"a head has more than {MOST_BLANKS} blanks in a row; send fewer.", LONG_HEAD)
        elif IN_CHUNKS.search(head):
            self._refuse("a body must come with its length (Content-Length), not in chunks.", NO_LENGTH)
        else:
            super().data_received(head)
            if not self.transport.is_closing():
                self._body_left = int(dict(self.headers).get(b"content-length", 0))

    def pause_writing(self) -> None:
        """The client takes its answer more slowly than it is given."""
        super().pause_writing()
        if self._leaving is None:
            self._leaving = self.loop.call_later(self._settings.arrival_limit, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has taken most of what was there."""
        super().resume_writing()
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        self._linger()  # what is left of a closed connection has a time of its own

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
        self.transport.close()
        self._linger()


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
