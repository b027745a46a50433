"""`privkde serve`: the planner over HTTP, with a page."""

from __future__ import annotations

import argparse
import logging
import os
from typing import Any

from accounting import InvalidInputError
from privkde.cli.parsing import real, whole

TOKEN = "PRIVKDE_TOKEN"


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `serve`."""
    serve = commands.add_parser(
        "serve",
        help="the planner over HTTP, with a page",
        description=f"Serve the planner. Writing to a ledger needs the token in {TOKEN}, if that is set.",
        allow_abbrev=False,
    )
    serve.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)")
    serve.add_argument("--port", type=whole, default=8000, metavar="N", help="port; 0 for any free one (default: 8000)")
    serve.add_argument("--ledger", metavar="FILE|URL", help="budget ledger to serve (default: none)")
    serve.add_argument("--workers", type=whole, metavar="N", help="processes that plan (default: one for each core)")
    serve.add_argument("--time-limit", type=real, default=60.0, metavar="X", help="seconds per request (default: 60)")
    serve.add_argument(
        "--allow-host", nargs="+", default=[], metavar="NAME", help="further names it is addressed by; * for any"
    )
    serve.set_defaults(run=_serve)


def _serve(parsed: argparse.Namespace) -> None:
    try:
        import uvicorn

        from privkde.service import Settings, create_app
        from privkde.service.settings import LOOPBACK
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"{error.name} is missing; install the extra with `pip install 'privkde[api]'`."
        ) from error
    token = os.environ.get(TOKEN) or None
    if parsed.ledger is not None and token is None and parsed.host not in LOOPBACK:
        raise InvalidInputError(
            f"--ledger with --host {parsed.host}: anybody there could charge budgets; set {TOKEN} to a secret first."
        )
    names = ("*",) if "*" in parsed.allow_host else (*LOOPBACK, parsed.host, *parsed.allow_host)
    more = {} if parsed.workers is None else {"workers": parsed.workers}
    settings = Settings(ledger=parsed.ledger, token=token, time_limit=parsed.time_limit, hosts=names, **more)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("privkde.service").setLevel(logging.INFO)
    print(f"planner: http://{parsed.host}:{parsed.port}/  (Ctrl+C ends it)", flush=True)
    uvicorn.run(create_app(settings), host=parsed.host, port=parsed.port, access_log=False, log_level="warning")
