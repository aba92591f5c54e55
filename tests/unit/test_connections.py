"""`server/connections.py` and the turns that large bodies take: who is turned away, and who never is."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.domain.errors import Overloaded
from switchboard.server.connections import Connections
from switchboard.server.http.gate import LargeBodies
from tests.waiting import eventually


class Client:
    def __init__(self) -> None:
        self.open = True

    def abort(self) -> None:
        self.open = False


def shown(connections: Connections, client: Client, *, operator: bool) -> None:
    """A client shows a token, and hangs up if that does not help."""
    try:
        connections.admit_connection(client, operator=operator)
    except Overloaded:
        client.open = False
        connections.remove_connection(client)


STEPS = ("stranger", "connector", "operator", "close", "waits", "has_turn")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 99))))
def test_there_are_never_too_many_and_operators_always_get_in(steps: list[tuple[str, int]]) -> None:
    connections, clients = Connections(8), list[Client]()
    operators = list[Client]()
    for what, which in steps:
        if what == "close":
            if clients:
                client = clients.pop(which % len(clients))
                client.open = False
                connections.remove_connection(client)
        elif what in ("waits", "has_turn"):
            if clients:
                getattr(connections, what)(clients[which % len(clients)])
        elif what != "operator" or sum(one.open for one in operators) < 2:
            clients.append(Client())
            connections.add_connection(clients[-1])
            if what != "stranger":
                shown(connections, clients[-1], operator=what == "operator")
            if what == "operator":
                operators.append(clients[-1])
                assert clients[-1].open
        assert len(connections) <= connections.limit
        assert len(connections) == sum(one.open for one in clients)


def test_a_flood_displaces_who_does_as_it_does() -> None:
    """Who waits for a turn is displaced by no connection that asks for nothing, and displaces half of them at most."""
    connections, waiting, quiet = Connections(8), Client(), Client()
    connections.add_connection(waiting)
    connections.waits(waiting)
    for _ in range(100):
        connections.add_connection(Client())
    assert waiting.open
    connections.add_connection(quiet)
    for _ in range(3):
        connections.add_connection(asking := Client())
        connections.waits(asking)
    assert quiet.open
    asked = [Client() for _ in range(100)]
    for one in asked:
        connections.add_connection(one)
        connections.waits(one)
    assert (quiet.open, waiting.open, asked[-1].open) == (True, False, True)
    connections.has_turn(asked[-1])
    connections.admit_connection(asked[-1], operator=False)
    assert asked[-1].open
    assert len(connections) == connections.limit


def test_others_than_operators_leave_a_quarter_of_the_places() -> None:
    connections, clients = Connections(8), [Client() for _ in range(7)]
    for client in clients[:6]:
        connections.add_connection(client)
        connections.admit_connection(client, operator=False)
    connections.add_connection(clients[6])
    with pytest.raises(Overloaded):
        connections.admit_connection(clients[6], operator=False)
    connections.admit_connection(clients[6], operator=True)


async def test_large_bodies_arrive_one_per_token_and_are_worked_on_one_by_one() -> None:
    large, order = LargeBodies(10), list[str]()

    async def body(token: str, arrived: asyncio.Event) -> None:
        async with large.arriving(token):
            order.append(f"{token} arrives")
            await arrived.wait()
            async with large.working:
                order.append(f"{token} begins")
                await asyncio.sleep(0)
                order.append(f"{token} ends")

    async def begun(count: int) -> bool:
        return len(order) == count

    first, now = asyncio.Event(), asyncio.Event()
    now.set()
    tasks = [asyncio.create_task(body(token, when)) for token, when in (("a", first), ("a", now), ("b", now))]
    await eventually(lambda: begun(4))
    assert order == ["a arrives", "b arrives", "b begins", "b ends"], "another token does not wait for a slow one"
    first.set()
    await asyncio.gather(*tasks)
    assert order[4:] == ["a begins", "a ends", "a arrives", "a begins", "a ends"]
