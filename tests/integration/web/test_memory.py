"""Memory on the page: nothing of it is read without a row in the audit; facts are shared, undone and forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.browser import DESK, PHONE, Tab
from tests.lab import envelope_json
from tests.servers import Opened, open_server
from tests.web_filling import ANN, add_memory, add_person
from tests.web_forms import audited, enter, follow
from tests.web_house import signed_in

SIZES = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
MOVED = "I have moved to York, to Mill Lane"


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """A server that knows Ann, what she has told, and what a stranger has."""
    async with open_server(database_url, tmp_path / "data") as opened:
        told = await opened.submit(envelope_json(MOVED, channel="telegram", sender="ann", thread="ann"))
        await add_person(opened)
        await add_memory(opened, UUID(told.json()["request_id"]), MOVED)
        yield opened


def _show(name: str) -> str:
    """The button that shows the facts of the person whose key ends so."""
    return f"form:has(input[name=author][value$='/{name}']) button"


async def _is_fine(tab: Tab) -> None:
    assert await tab.find_barriers() == []
    assert not await tab.is_wider_than_window()
    assert await tab.evaluate("document.querySelectorAll('main img').length") == 0


@SIZES
async def test_reading_is_on_record_and_facts_are_forgotten(
    chromium: str, server: Opened, size: tuple[int, int]
) -> None:
    async with signed_in(chromium, server, size, script=False) as tab:
        await tab.open(f"{server.url}/ui/memory")
        text = await tab.text()
        assert "Ann Weber" in text
        assert "York" not in text, "nothing is read yet"
        assert await audited(server, "memory:read") == []

        await follow(tab, _show("ann"))
        assert "I live in York" in await tab.text()
        [entry] = await audited(server, "memory:read")
        assert (entry["detail"]["author"], entry["actor"]) == (ANN.person, "operator-1 (web: Chrome on Linux)")

        await follow(tab, "li:has(bdi):nth-child(2) form button")
        text = await tab.text()
        assert MOVED in text, "the words that it was taken from"
        assert "I live in Leeds" in text, "what it replaced"
        assert await tab.evaluate("document.querySelector('main .rows a').pathname.startsWith('/ui/messages/')")
        await enter(tab, "#undo-reason", "she only visits")
        await follow(tab, "form[action$='/undo'] button")
        assert "It counts as never said" in await tab.text()
        await enter(tab, "#forget-reason", "Ann asked for it")
        await follow(tab, "form[action$='/forget'] button")
        assert "It is forgotten" in await tab.text()
        await follow(tab, _show("ann"))
        text = await tab.text()
        assert "I live in Leeds" in text
        assert "I live in York" not in text
    for action, reason in (("memory:undone", "she only visits"), ("memory:forgotten", "Ann asked for it")):
        [entry] = await audited(server, action)
        assert entry["detail"]["reason"] == reason


@SIZES
async def test_what_forms_show_keeps_nobody_out(chromium: str, server: Opened, size: tuple[int, int]) -> None:
    """The pages that only forms lead to, which no list of pages has."""
    async with signed_in(chromium, server, size) as tab:
        for selector in (_show("ben"), "form[action$='/entities'] button", "form[action$='/runs'] button"):
            await tab.open(f"{server.url}/ui/memory")
            await tab.click(selector)
            await _is_fine(tab)
        await tab.press("details summary")
        await enter(tab, "details input[name=reason]", "the model misread it")
        await follow(tab, "details form button")
        assert "counts as never said" in await tab.text()
        await tab.click("form[action$='/summaries'] button")
        await _is_fine(tab)
        await tab.press("details summary")
        await enter(tab, "details input[name=reason]", "too much is missing")
        await follow(tab, "details form button")
        assert "reads these messages again" in await tab.text()
        await enter(tab, "#words", "walnuts")
        await follow(tab, "form:has(#words) button")
        await follow(tab, "main li form button")
        await _is_fine(tab)
        await enter(tab, "#share-reason", "the kitchen must know")
        await follow(tab, "form[action$='/share'] button")
        assert "everyone who talks to the butler" in await tab.text()
        await tab.open(f"{server.url}/ui/memory")
        await enter(tab, "#text", "I take the train on Mondays")
        await enter(tab, "#author", "ann")
        await follow(tab, "form[action$='/add'] button")
        assert tab.troubles == []
