"""Dead letters on the page: sent on, made a rule of, closed, many at once, by keyboard and without a script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.browser import DESK, PHONE
from tests.lab import envelope_json
from tests.servers import Opened, open_server
from tests.web_forms import audited, choose, enter, follow, tick
from tests.web_house import signed_in

SIZES = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """A server with five dead letters: webhooks, which no rule takes."""
    async with open_server(database_url, tmp_path / "data") as opened:
        for n in range(5):
            answer = await opened.submit(
                envelope_json(f"Order {n} was shipped", channel="webhook", provider="http", sender="shop")
            )
            assert answer.is_success, answer.text
        yield opened


async def _list_letters(server: Opened, status: str = "pending") -> list[UUID]:
    answer = await server.http.get("/v1/dead-letters", params={"status": status})
    return [UUID(one["dead_letter_id"]) for one in answer.json()["dead_letters"]]


@SIZES
async def test_a_dead_letter_is_sent_on_and_made_a_rule(chromium: str, server: Opened, size: tuple[int, int]) -> None:
    async with signed_in(chromium, server, size, script=False) as tab:
        await tab.open(f"{server.url}/ui/dead-letters")
        await follow(tab, "a.row")
        await choose(tab, "#to", "System1/echo")
        await enter(tab, "#reason", "the shop is Ann's")
        await tick(tab, "form summary")
        await enter(tab, "#rule", "Mail of the shop")
        await follow(tab, "form button:not(.plain)")
        text = await tab.text()
        assert "Without a filter the rule would match every message of webhook" in text
        assert await tab.evaluate("document.querySelector('#reason').value") == "the shop is Ann's"
        await tick(tab, "input[name='key:sender']")
        await follow(tab, "form button:not(.plain)")
        text = await tab.text()
        assert "It was sent on." in text
        assert "the shop is Ann's" in text
    [entry] = await audited(server, "dead_letter:rerouted")
    assert entry["actor"].startswith("operator-1 (web: ")
    assert entry["detail"]["reason"] == "the shop is Ann's"
    assert len(await _list_letters(server)) == 4
    rules = (await server.http.get("/v1/rules", params={"team_id": "root"})).json()["rules"]
    assert [one["filters"] for one in rules if one["name"] == "Mail of the shop"] == [{"sender": "shop"}]


async def test_a_dead_letter_is_closed_once(chromium: str, server: Opened) -> None:
    [newest, *_] = await _list_letters(server)
    async with signed_in(chromium, server, PHONE, script=False) as tab:
        await tab.open(f"{server.url}/ui/dead-letters/{newest}")
        closed = await server.http.post(f"/v1/dead-letters/{newest}/reroute", json={"reason": "x", "to": _ECHO})
        assert closed.is_success
        await enter(tab, "#resolution", "known")
        await follow(tab, "form button.plain:not(.signed-in button)")
        assert "was rerouted (decision 2) by operator-1: x" in await tab.text()
    assert await audited(server, "dead_letter:handled") == []


_ECHO = {"system_id": "System1/echo"}


@SIZES
async def test_many_dead_letters_are_settled_at_once(chromium: str, server: Opened, size: tuple[int, int]) -> None:
    async with signed_in(chromium, server, size, script=False) as tab:
        await tab.open(f"{server.url}/ui/dead-letters?category=no_route")
        await tick(tab, "input[name='id']")
        await follow(tab, "button[value='ticked']")
        assert "Handle 1 dead letter" in await tab.text()

        await tab.open(f"{server.url}/ui/dead-letters?category=no_route")
        await server.submit(envelope_json("too late", channel="webhook", provider="http", sender="shop"))
        await follow(tab, "button[value='all']")
        await choose(tab, "#to", "System1/echo")
        await follow(tab, "main form[method='get'] button")
        assert "System1/echo\t5" in await tab.text()
        [first, *_] = await _list_letters(server)
        oldest = (await _list_letters(server))[-1]
        assert (await server.http.post(f"/v1/dead-letters/{oldest}/handle", json={"resolution": "by hand"})).is_success
        await enter(tab, "#reason", "the shop is Ann's")
        await follow(tab, "main form[method='post'] button")
        text = await tab.text()
        assert "4 sent on. 1 had been handled by somebody else meanwhile." in text
    assert await _list_letters(server) == [first]
    [entry] = await audited(server, "dead_letters:bulk")
    assert entry["actor"].startswith("operator-1 (web: ")
    assert entry["detail"]["reason"] == "the shop is Ann's"
    assert entry["detail"]["done"] == 4
