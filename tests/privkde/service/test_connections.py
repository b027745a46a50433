"""Connections under attack, against a real server: idle, slow and too many; nobody else is kept out."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import h11
import pytest
import uvicorn
from h11._readers import READERS
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from privkde.service import Settings
from privkde.service.connections import LARGEST_HEAD, Connection
from privkde.service.problems import LONG_HEAD, MEDIA_TYPE, NO_LENGTH, TOO_MANY

HONEST, ATTACKER, THIRD = "127.0.0.1", "127.0.0.2", "127.0.0.3"
CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUEST = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
PATIENCE = 60.0
"""Seconds after which a test that hangs fails; none of them waits for it."""
LONG = 3600.0
SHORT = 0.2
LARGE = 64 * 2**20
MEDIUM = 20_000  # bytes that wait for a client without anybody being told that it is slow
HIGH_WATER, LOW_WATER = 64 * 2**10, 16 * 2**10  # bytes at which asyncio calls a client slow, and no longer slow
linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")


arrived, released = threading.Event(), threading.Event()


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once, after a while (`/late`), when it is released (`/held`), or at length (`/medium`, `/large`)."""
    if scope["path"] == "/late":
        await asyncio.sleep(3 * SHORT)
    if scope["path"] == "/held":
        arrived.set()
        await asyncio.to_thread(released.wait)
    body = {"/large": bytes(LARGE), "/medium": bytes(MEDIUM)}.get(scope["path"], b"answered")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def serving(**limits: Any) -> Iterator[int]:
    """The port of a server with these limits, in a thread."""
    with running(**limits) as server:
        yield port_of(server)


def port_of(server: uvicorn.Server) -> int:
    port: int = server.servers[0].sockets[0].getsockname()[1]
    return port


@contextlib.contextmanager
def running(**limits: Any) -> Iterator[uvicorn.Server]:
    http: Any = partial(Connection, Settings(**limits))
    config = uvicorn.Config(application, port=0, http=http, ws="none", lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield server
    finally:
        server.force_exit = server.should_exit = True
        thread.join()


def connected(port: int, source: str = HONEST) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE, source_address=(source, 0))


def answer(connection: socket.socket, path: bytes = b"") -> bytes:
    """All that the server sends to a request until it has answered it or closed the connection."""
    with contextlib.suppress(ConnectionError):
        connection.sendall(REQUEST % path)
    return rest(connection, until=b"answered")


def rest(connection: socket.socket, until: bytes | None = None) -> bytes:
    got = b""
    with contextlib.suppress(ConnectionError):
        while not (until and got.endswith(until)) and (part := connection.recv(2**16)):
            got += part
    return got


def require_answer(got: bytes) -> None:
    assert got.startswith(b"HTTP/1.1 200 OK")


def require_refusal(got: bytes) -> None:
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 429 ")
    assert f"content-type: {MEDIA_TYPE}".encode() in head
    assert json.loads(body)["type"] == TOO_MANY.uri


def refused(sent: bytes) -> dict[str, Any]:
    """The problem that the server answers to these bytes, after which it closes the connection."""
    with serving(arrival_limit=LONG) as port, connected(port) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        head, _, body = rest(connection).partition(b"\r\n\r\n")
    problem: dict[str, Any] = json.loads(body)
    assert head.startswith(f"HTTP/1.1 {problem['status']} ".encode())
    return problem


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What h11 was given to read."""
    given: list[bytes] = []
    receive = h11.Connection.receive_data

    def recorded(connection: h11.Connection, data: bytes) -> None:
        given.append(data)
        receive(connection, data)

    monkeypatch.setattr(h11.Connection, "receive_data", recorded)
    return given


@pytest.mark.parametrize("times", [1, 10_000])
def test_a_body_in_tiny_chunks_is_refused_by_its_head(read: list[bytes], times: int) -> None:
    """The attack: one connection sends a body byte by byte in chunks, and the server does nothing else."""
    assert refused(CHUNKED + b"1\r\n \r\n" * times)["type"] == NO_LENGTH.uri
    assert not read


@pytest.mark.parametrize(
    "header",
    [
        b"transfer-encoding: chunked",
        b"TRANSFER-Encoding:\tchunked",
        b"Transfer-Encoding:chunked",
        b"Transfer-Encoding: \r\n chunked",
        b"Transfer-Encoding : chunked",
        b"\x0bTransfer-Encoding: chunked",
        b"\rTransfer-Encoding: chunked",
        b"Content-Length: 2\nTransfer-Encoding: chunked",
    ],
)
def test_no_spelling_gets_a_body_in_chunks_read(monkeypatch: pytest.MonkeyPatch, header: bytes) -> None:
    readers: Any = READERS[h11.SEND_BODY]
    monkeypatch.setitem(readers, "chunked", None)
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n\r\n"
    with serving(arrival_limit=LONG) as port, connected(port) as connection:
        connection.sendall(head + b"2\r\n{}\r\n0\r\n\r\n")
        assert rest(connection)[:12] in (b"HTTP/1.1 411", b"HTTP/1.1 400")


@pytest.mark.parametrize("times", [0, 2_000])
def test_chunks_that_follow_another_request_are_not_read_either(read: list[bytes], times: int) -> None:
    """The attack: the second head arrived before the first request was answered, and nobody looked at it."""
    with serving(arrival_limit=LONG) as port, connected(port) as connection:
        connection.sendall(REQUEST % b"late" + CHUNKED + b"1\r\nx\r\n" * times)
        got = rest(connection)
    assert got.startswith(b"HTTP/1.1 200 OK")
    assert b"answeredHTTP/1.1 411 " in got
    assert read == [REQUEST % b"late"]


@pytest.mark.parametrize(
    "before", [b"", REQUEST % b"late", b"POST / HTTP/1.1\r\nHost: l\r\nContent-Length: 2\r\n\r\n{}"]
)
@pytest.mark.parametrize("blank", [b" ", b"\t"])
@pytest.mark.parametrize("length", [100, 20_000])
def test_a_long_run_of_blanks_is_refused_before_it_is_read(
    read: list[bytes], before: bytes, blank: bytes, length: int
) -> None:
    """The attack: h11 tries out every way to divide the blanks between the beginning and the end of a value."""
    line = b"GET / HTTP/1.1\r\nHost: localhost\r\na:" + blank * 15_900 + b"\x00\r\n\r\n"
    with serving(arrival_limit=LONG) as port, connected(port) as connection:
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(before + line), length):
                connection.sendall((before + line)[at : at + length])
        assert b"HTTP/1.1 431 " in rest(connection)
    assert b"".join(read) == before


def test_a_head_that_does_not_end_is_refused(read: list[bytes]) -> None:
    assert refused(b"GET / HTTP/1.1\r\na:" + b"b" * LARGEST_HEAD)["type"] == LONG_HEAD.uri
    assert not read


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00", b" " * 50_000, b"\n" * 50_000])
def test_what_cannot_be_a_head_is_refused_by_its_first_byte(read: list[bytes], sent: bytes) -> None:
    with serving(arrival_limit=LONG) as port, connected(port) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        rest(connection)
    assert read == [sent[:1]]


def test_requests_that_are_sent_without_waiting_are_answered_one_after_the_other() -> None:
    with serving(arrival_limit=LONG) as port, connected(port) as connection:
        connection.sendall((REQUEST % b"late") * 2 + REQUEST % b"" + b"GET /")
        got = b""
        while got.count(b"answered") < 3:
            got += connection.recv(2**16)
        connection.sendall(b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        require_answer(rest(connection, until=b"answered"))


def test_a_head_that_began_before_the_last_answer_must_arrive_in_time() -> None:
    with serving(arrival_limit=SHORT) as port, connected(port) as connection:
        connection.sendall(REQUEST % b"late" + b"GET /")
        assert rest(connection).endswith(b"answered")


def test_a_body_that_nobody_reads_is_no_head() -> None:
    """The application answers before the body is there; the connection goes on behind it."""
    body = (REQUEST % b"held") * 10_000
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serving(arrival_limit=LONG) as port, connected(port) as connection:
        connection.sendall(head)
        require_answer(rest(connection, until=b"answered"))
        connection.sendall(body + REQUEST % b"late")
        require_answer(rest(connection, until=b"answered"))


def test_a_head_of_very_many_lines_is_refused() -> None:
    many = b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 5_000 + b"\r\n"
    assert refused(many)["type"] == LONG_HEAD.uri
    assert refused(REQUEST % b"late" + many)["type"] == TOO_MANY.uri


def test_what_browsers_send_is_answered() -> None:
    """A long head, a body of very many lines, and one request after the other, in parts of any length."""
    body = b"[\n" * 4_000
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"v" * 90) for i in range(60))
    request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with serving(arrival_limit=LONG) as port, connected(port) as connection:
        for length in (len(request), 1000, 1024, len(head) + 20):
            for at in range(0, len(request), length):
                connection.sendall(request[at : at + length])
            require_answer(rest(connection, until=b"answered"))


def test_a_connection_that_is_kept_answers_any_number_of_requests() -> None:
    """A regression: lines of heads were added up over requests without a body."""
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 40 + b"\r\n"
    with serving(arrival_limit=LONG) as port, connected(port) as connection:
        for _ in range(10):
            connection.sendall(request)
            require_answer(rest(connection, until=b"answered"))


@pytest.mark.parametrize("ends", [(b"\r\n\r", b"\n"), (b"\r\n", b"\r", b"\n"), (b"\n\n",)])
def test_a_body_has_as_many_lines_as_it_likes_wherever_its_head_is_split(ends: tuple[bytes, ...]) -> None:
    body = b"\n" * 400
    newline = b"\n" if len(ends) == 1 else b"\r\n"
    head = newline.join([b"POST / HTTP/1.1", b"Host: localhost", b"Content-Length: %d" % len(body)])
    with serving(arrival_limit=LONG) as port, connected(port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in (head, *ends[:-1]):
            connection.sendall(part)
            time.sleep(0.05)
        connection.sendall(ends[-1] + body)
        require_answer(rest(connection, until=b"answered"))


@linux
def test_idle_connections_keep_nobody_out() -> None:
    with serving(connections=8, client_connections=8, arrival_limit=LONG) as port, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connected(port, ATTACKER)) for _ in range(8)]
        honest = stack.enter_context(connected(port))
        require_answer(answer(honest))
        assert rest(idle[0]) == b""  # the one that had waited longest was closed
        require_answer(answer(idle[1]))


@linux
def test_room_is_made_by_those_who_have_most() -> None:
    with serving(connections=4, client_connections=4, arrival_limit=LONG) as port, contextlib.ExitStack() as stack:
        honest = stack.enter_context(connected(port))  # waits longest
        idle = [stack.enter_context(connected(port, ATTACKER)) for _ in range(3)]
        stack.enter_context(connected(port, THIRD))
        assert rest(idle[0]) == b""
        require_answer(answer(honest))


@linux
def test_a_client_with_too_many_connections_is_refused_and_others_are_not() -> None:
    with serving(client_connections=2, arrival_limit=LONG) as port, contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(port, ATTACKER)) for _ in range(2)]
        require_refusal(rest(stack.enter_context(connected(port, ATTACKER))))
        require_answer(answer(stack.enter_context(connected(port))))
        require_answer(answer(held[0]))


@linux
def test_connections_that_are_being_answered_are_not_closed_for_others() -> None:
    with serving(connections=1, arrival_limit=LONG) as port, contextlib.ExitStack() as stack:
        busy = stack.enter_context(connected(port, ATTACKER))
        busy.sendall(REQUEST % b"held")
        assert arrived.wait(PATIENCE)
        require_refusal(rest(stack.enter_context(connected(port))))
        released.set()
        require_answer(rest(busy, until=b"answered"))


def test_a_proxy_may_have_more_connections_than_a_client() -> None:
    with serving(client_connections=1, proxies=(HONEST,)) as port, contextlib.ExitStack() as stack:
        for _ in range(3):
            require_answer(answer(stack.enter_context(connected(port))))


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: local"])
def test_a_head_that_does_not_arrive_ends_the_connection(sent: bytes) -> None:
    with serving(arrival_limit=SHORT) as port, connected(port) as slow:
        slow.sendall(sent)
        assert rest(slow) == b""


@pytest.mark.parametrize("before", [False, True])
def test_a_head_that_arrives_byte_by_byte_ends_the_connection(before: bool) -> None:
    """Also after a request that was answered, where the server would begin to wait again with each byte."""
    with serving(arrival_limit=SHORT) as port, connected(port) as slow:
        if before:
            require_answer(answer(slow))
        slow.settimeout(0.05)
        for _ in range(1000):
            try:
                slow.sendall(b"x")
                assert slow.recv(1) == b""
                return
            except TimeoutError:
                continue
            except ConnectionError:
                return
        pytest.fail("the connection is still open after 1000 bytes")


def test_work_may_take_longer_than_a_head() -> None:
    with serving(arrival_limit=SHORT) as port, connected(port) as patient:
        require_answer(answer(patient, b"late"))


def test_a_client_that_does_not_take_its_answer_loses_it() -> None:
    with running(arrival_limit=SHORT) as server, connected(port_of(server)) as lazy:
        lazy.sendall(REQUEST % b"large")
        deadline = time.monotonic() + PATIENCE
        while not server.server_state.total_requests or server.server_state.connections:
            assert time.monotonic() < deadline, "the server holds the answer as long as the client likes"
            time.sleep(0.01)
        assert 0 < len(rest(lazy)) < LARGE


class Undelivered(asyncio.Transport):
    """A transport whose client takes what the test says, and that tells its protocol what asyncio tells it."""

    def __init__(self, protocol: Connection) -> None:
        super().__init__()
        self.protocol, self.left, self.closing, self.cut = protocol, 0, False, False

    def get_write_buffer_size(self) -> int:
        return self.left

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.left += len(data)
        if self.left > HIGH_WATER:
            self.protocol.pause_writing()

    def taken(self, size: int) -> None:
        paused = self.left > LOW_WATER
        self.left -= size
        if paused and self.left <= LOW_WATER:
            self.protocol.resume_writing()

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.cut = True


class Clock:
    """A loop that only keeps timers; the test lets them go off."""

    def __init__(self) -> None:
        self.timers: list[asyncio.TimerHandle] = []
        self.loop = asyncio.new_event_loop()

    def call_later(self, delay: float, callback: Any) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(delay, callback, (), self.loop)
        self.timers.append(timer)
        return timer

    def time(self) -> float:
        return 0.0

    def run_out(self) -> None:
        for timer in self.timers:
            if not timer.cancelled():
                timer._run()


@pytest.fixture
def undelivered() -> Iterator[tuple[Undelivered, Clock]]:
    """A connection that answered and is closed, with more in its buffer than a client is left alone with."""
    clock = Clock()
    config = uvicorn.Config(application, http="h11", ws="none", lifespan="off", log_level="error")
    config.load()
    loop: Any = clock
    connection = Connection(
        Settings(arrival_limit=LONG), config=config, server_state=ServerState(), app_state={}, _loop=loop
    )
    transport = Undelivered(connection)
    connection.connection_made(transport)
    transport.write(bytes(HIGH_WATER + 1))
    connection._refuse("nobody asked.")
    yield transport, clock
    clock.loop.close()


@pytest.mark.parametrize("left", [1, LOW_WATER])
def test_a_closed_connection_whose_client_takes_all_but_the_end_is_cut(
    undelivered: tuple[Undelivered, Clock], left: int
) -> None:
    """The attack: asyncio tells also a closed connection that its client takes again, which stopped its clock."""
    transport, clock = undelivered
    transport.taken(transport.left - left)
    assert transport.is_closing()
    transport.protocol._stop_clock()  # the one of a new connection
    assert clock.timers[-1].when() == LONG
    clock.run_out()
    assert transport.cut


def test_a_closed_connection_whose_client_took_all_is_not_cut(undelivered: tuple[Undelivered, Clock]) -> None:
    transport, clock = undelivered
    transport.taken(transport.left)
    transport.protocol._stop_clock()
    clock.run_out()
    assert not transport.cut


def test_a_refused_client_that_does_not_take_its_answers_is_cut() -> None:
    """A regression: below 64 KiB a closed connection waited for ever, and no longer counted for its client."""
    with running(arrival_limit=SHORT) as server, socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        lazy.settimeout(PATIENCE)
        lazy.connect(("127.0.0.1", port_of(server)))
        deadline = time.monotonic() + PATIENCE
        while not (connections := list(server.server_state.connections)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (connection,) = connections
        assert isinstance(connection, Connection)
        theirs, asked = connection.transport.get_extra_info("socket"), 0
        while connection.transport.get_write_buffer_size() == 0:
            assert time.monotonic() < deadline, "the client's buffer has no end"
            lazy.sendall(REQUEST % b"medium")
            asked += 1
            while server.server_state.total_requests < asked:
                time.sleep(0.001)
        lazy.sendall((REQUEST % b"").replace(b"\r\n\r\n", b"\r\nx:" + b" " * 100 + b"x\r\n\r\n"))
        while theirs.fileno() >= 0:
            assert time.monotonic() < deadline, "the server waits as long as the client likes"
            time.sleep(0.01)
