"""Turns at the workers: the order in which clients get them, and what each may have."""

from __future__ import annotations

import pytest

from privkde.service import Settings
from privkde.service.problems import BUSY, TOO_MANY, Problem
from privkde.service.turns import Turns

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def refused(turns: Turns, client: str) -> Problem:
    with pytest.raises(Problem) as found:
        turns.ask(client)
    assert found.value.headers == {"Retry-After": "2"}
    return found.value


async def test_one_client_cannot_have_all_workers() -> None:
    turns = Turns(Settings(workers=3, queue=16))
    greedy = [turns.ask("greedy") for _ in range(5)]
    assert [turn.done() for turn in greedy] == [True, True, False, False, False]
    assert turns.ask("other").done()


async def test_clients_take_turns_however_much_one_has_sent() -> None:
    turns = Turns(Settings(workers=1, queue=20))
    order = [("a", turns.ask("a")) for _ in range(4)]
    order += [("b", turns.ask("b")) for _ in range(2)] + [("c", turns.ask("c"))]
    served = []
    while order:
        client, turn = next((client, turn) for client, turn in order if turn.done())
        order.remove((client, turn))
        served.append(client)
        turns.end(client, turn)
    assert served == ["a", "a", "b", "c", "a", "b", "a"]


async def test_who_has_the_fewest_workers_is_next() -> None:
    turns = Turns(Settings(workers=4, queue=20))
    first = [turns.ask(client) for client in "aaab"]
    waiting_a, waiting_b = turns.ask("a"), turns.ask("b")
    turns.end("a", first[0])
    assert (waiting_a.done(), waiting_b.done()) == (False, True)


async def test_a_client_over_its_share_is_refused_and_others_are_not() -> None:
    settings = Settings(workers=2, queue=6)
    turns = Turns(settings)
    mine = [turns.ask("greedy") for _ in range(settings.client_jobs)]
    assert refused(turns, "greedy").kind is TOO_MANY
    assert turns.ask("other").done()
    turns.end("greedy", mine[0])
    assert not turns.ask("greedy").done()  # it may wait again


async def test_when_all_places_are_taken_everybody_is_refused() -> None:
    turns = Turns(Settings(workers=1, queue=1))
    turns.ask("a")
    turns.ask("b")
    assert refused(turns, "c").kind is BUSY


async def test_a_turn_that_is_no_longer_wanted_is_nobodys() -> None:
    turns = Turns(Settings(workers=1, queue=4))
    first, second, third = turns.ask("a"), turns.ask("b"), turns.ask("b")
    second.cancel()
    turns.end("b", second)
    turns.end("a", first)
    assert third.done()
    turns.end("b", third)
    assert not turns._waiting
    assert not turns._taken
    assert turns.ask("a").done()
