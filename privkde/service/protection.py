"""What every request passes before it is looked at, and every answer before it leaves."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from privkde.service.clients import Client
from privkde.service.problems import INTERNAL, MEDIA, MISDIRECTED, TIMEOUT, TOO_LARGE, TOO_MANY, Problem
from privkde.service.settings import Settings
from privkde.service.turns import AGAIN_SOON

log = logging.getLogger("privkde.service")

SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Protection:
    """Limits of size, names, media types and of each client; security headers; one line of log without content.

    A browser sends `application/json` to another origin only after asking, and this service never allows it: so no
    foreign page can plan or charge in a user's name.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._under_way: Counter[Client] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, sent = time.perf_counter(), 500, False
        client = Client.of(scope, self._settings.token)
        scope.setdefault("state", {})["client"] = client
        scope["query_string"] = b""  # nothing here takes one, and reading a long one takes long
        self._under_way[client] += 1

        async def protected(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status, sent = message["status"], True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            try:
                self._refuse(scope, self._under_way[client])
                body = await self._body(scope, receive)
                await self._app(scope, _replayed(body, receive), protected)
            except Problem as problem:
                await problem.response()(scope, receive, protected)
            except Exception:
                log.exception("a request failed")
                if not sent:
                    await Problem(
                        INTERNAL,
                        "a mistake of ours; a charge may be sent again with the same key, and is charged once.",
                    ).response()(scope, receive, protected)
        finally:
            self._under_way[client] -= 1
            if not self._under_way[client]:
                del self._under_way[client]
            _log(scope, status, time.perf_counter() - started)

    def _refuse(self, scope: Scope, under_way: int) -> None:
        headers, most = Headers(scope=scope), self._settings.client_requests
        if under_way > most:
            raise Problem(
                TOO_MANY,
                f"{most} requests of this client are under way; wait for an answer before asking again.",
                headers=AGAIN_SOON,
            )
        if self._settings.hosts != ("*",) and _hostname(headers.get("host", "")) not in self._settings.hosts:
            raise Problem(MISDIRECTED, "address it by one of the names it was started with (--allow-host).")
        media = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] in ("POST", "PUT", "PATCH") and media != "application/json":
            raise Problem(MEDIA, "send JSON, and say so: Content-Type: application/json.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._settings.largest_body:
            raise self._too_large()

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, unless it is larger than it may be, or late; what arrived if the client leaves."""
        body = bytearray()  # grows without being copied, however small its parts are
        if scope["method"] in ("GET", "HEAD"):
            return b""
        with suppress(ClientDisconnect):
            try:
                async with asyncio.timeout(self._settings.arrival_limit):
                    async for part in Request(scope, receive).stream():
                        body += part
                        if len(body) > self._settings.largest_body:
                            raise self._too_large()
            except TimeoutError:
                limit = self._settings.arrival_limit
                raise Problem(TIMEOUT, f"a request must be sent within {limit:g} s.") from None
        return bytes(body)

    def _too_large(self) -> Problem:
        return Problem(TOO_LARGE, f"a request may have {self._settings.largest_body:,} bytes at most.")


def _hostname(host: str) -> str:
    """The name in a Host header, without its port; nothing if it is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Hand the body on, once; then wait for the client to leave."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _log(scope: MutableMapping[str, Any], status: int, seconds: float) -> None:
    """Method, route, status and time: not the content, and not who sent it."""
    route = getattr(scope.get("route"), "path", None)
    line = {"method": scope["method"], "route": route, "status": status, "ms": round(1000.0 * seconds, 1)}
    log.info("%s", json.dumps(line))
