"""`privkde serve`: the planner over HTTP, with a page."""

from __future__ import annotations

import argparse
import logging
import os
import socket
from functools import partial
from typing import Any

from accounting import InvalidInputError
from accounting.errors import require_integer
from privkde.cli.ledger_options import add_ledger_key, ledger_key
from privkde.cli.parsing import real, whole

TOKEN = "PRIVKDE_TOKEN"
"""The environment variable that holds the secret."""
SECONDS_TO_END = 5


def add_serve(serve: argparse.ArgumentParser) -> None:
    """Add the options of `serve`."""
    serve.description = f"Serve the planner. Its budgets need the token in {TOKEN}, if that is set."
    serve.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)")
    serve.add_argument("--port", type=whole, default=8000, metavar="N", help="port; 0 for any free one (default: 8000)")
    serve.add_argument("--ledger", metavar="FILE|URL", help="budget ledger to serve (default: none)")
    add_ledger_key(serve)
    serve.add_argument(
        "--workers", type=whole, metavar="N", help="processes that plan (default: one for each core, at least 2)"
    )
    serve.add_argument("--time-limit", type=real, default=60.0, metavar="X", help="seconds per request (default: 60)")
    serve.add_argument(
        "--allow-host", nargs="+", default=[], metavar="NAME", help="further names of this host; * for any"
    )
    serve.add_argument(
        "--proxy", nargs="+", default=[], metavar="ADDRESS", help="reverse proxies that may say whom they ask for"
    )
    serve.set_defaults(run=_serve)


def _serve(parsed: argparse.Namespace) -> None:
    try:
        import uvicorn

        from privkde.ledger import Ledger
        from privkde.service import Settings, create_app
        from privkde.service.connections import Connection
        from privkde.service.settings import LOOPBACK
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"{error.name} is missing; install the extra with `pip install 'privkde[api]'`."
        ) from error
    token = os.environ.get(TOKEN) or None
    names = ("*",) if "*" in parsed.allow_host else tuple(dict.fromkeys((*LOOPBACK, parsed.host, *parsed.allow_host)))
    if parsed.ledger is not None and token is None and set(names) != set(LOOPBACK):
        raise InvalidInputError(
            f"--ledger beyond this machine (as {', '.join(sorted(set(names) - set(LOOPBACK)))}): anybody who reaches it"
            f" could charge budgets; set {TOKEN} to a secret first."
        )
    key = None if parsed.ledger is None else ledger_key(parsed.ledger_key)
    given: dict[str, Any] = {} if parsed.workers is None else {"workers": parsed.workers}
    given |= {"time_limit": parsed.time_limit, "hosts": names, "proxies": tuple(parsed.proxy)}
    settings = Settings(ledger=parsed.ledger, ledger_key=key, token=token, **given)
    if parsed.ledger is not None:
        Ledger.open(parsed.ledger, key=key).close()  # a broken ledger is reported before anybody is served
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with _listening(parsed.host, require_integer("port", parsed.port, low=0, high=65535)) as listener:
        print(f"planner: {_address(listener)}  (Ctrl+C ends it)", flush=True)
        config = uvicorn.Config(
            create_app(settings),
            access_log=False,
            log_level="warning",
            http=partial(Connection, settings),  # type: ignore[arg-type] # anything that makes a protocol
            ws="none",  # a connection that becomes another kind is no longer counted
            proxy_headers=bool(settings.proxies),  # else a client could choose whom it is taken for
            forwarded_allow_ips=list(settings.proxies),
            timeout_graceful_shutdown=SECONDS_TO_END,
        )
        uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens on this address, or an error that says why not."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InvalidInputError(f"cannot listen on {host} port {port}: {error.strerror}; choose another.") from error


def _address(listener: socket.socket) -> str:
    """The URL of a listening socket, with its actual port."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
