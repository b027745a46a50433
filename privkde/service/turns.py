"""Turns at the workers: clients take them one after the other, and none can take all of them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Hashable

from privkde.service.problems import BUSY, TOO_MANY, Problem
from privkde.service.settings import Settings

AGAIN_SOON = {"Retry-After": "2"}


class Turns:
    """As many turns at once as there are workers; who has the fewest of them is next, and of equals who waits longest.

    So a client's next job waits for what is at work and for one job of each other client, however many those have sent.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._free = settings.workers
        self._taken: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    def ask(self, client: Hashable) -> asyncio.Future[None]:
        """A turn, which has come when the future is done; `end` gives it back.

        Refused if too many wait already: of all clients (503), or of this one (429).
        """
        settings, waiting = self._settings, sum(map(len, self._waiting.values()))
        if settings.workers - self._free + waiting >= settings.workers + settings.queue:
            raise Problem(BUSY, "too many plans are being made; ask again soon.", headers=AGAIN_SOON)
        if self._taken[client] + len(self._waiting.get(client, ())) >= settings.client_jobs:
            raise Problem(
                TOO_MANY,
                f"{settings.client_jobs} pieces of work are under way for this client, which is its share; wait for"
                " an answer before asking again.",
                headers=AGAIN_SOON,
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self._hand_out()
        return turn

    def end(self, client: Hashable, turn: asyncio.Future[None]) -> None:
        """Give a turn to the next, whether it was used or, being cancelled, only waited for."""
        if turn.cancelled():
            self._waiting[client].remove(turn)
            if not self._waiting[client]:
                del self._waiting[client]
            return
        self._free += 1
        self._taken[client] -= 1
        if not self._taken[client]:
            del self._taken[client]
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free:
            allowed = [client for client in self._waiting if self._taken[client] < self._settings.client_workers]
            if not allowed:
                return
            client = min(allowed, key=self._taken.__getitem__)
            queue = self._waiting.pop(client)
            queue.popleft().set_result(None)
            if queue:
                self._waiting[client] = queue  # behind the others
            self._free -= 1
            self._taken[client] += 1
