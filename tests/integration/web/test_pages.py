"""Every page in a real browser: it keeps nobody out, breaks no rule of its own, and fits the window.

With WEB_PICTURES=DIRECTORY, what is seen is saved there (`make pictures`).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from switchboard.server.web.page import WebPage
from switchboard.server.web.pages import PAGES
from tests.browser import DESK, PHONE, Tab, open_tab
from tests.web_house import House, ids_in_paths, open_house, signed_in
from tests.width import pairs

ENLARGED: Final = (DESK[0] // 2, DESK[1] // 2)
"""What a window on a laptop has room for at 200 %."""
SIZES: Final = {"desk": DESK, "phone": PHONE}


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    """A house with messages."""
    async with open_house(database_url, tmp_path / "data") as opened:
        yield opened


async def addresses_of(house: House) -> dict[str, str]:
    """Every page of the menu, and one of each kind below them, by the name of its picture."""
    menu = {page.menu.lower().replace(" ", "-"): page.path for page in PAGES if isinstance(page, WebPage) and page.menu}
    ids, one = house.ids, await ids_in_paths(house)
    return menu | {
        "message-actions": f"/messages/{ids['bin']}/actions",
        "approval": f"/approvals/{one['approval_id:uuid']}",
        "stranger": f"/strangers/{one['contact_id:uuid']}",
        "connection": "/connections/accounts/door",
        "connections-add": "/connections/add",
        "connections-add-one": "/connections/add/telegram",
        "connections-add-gmail": "/connections/add/gmail",
        "dead-letter": f"/dead-letters/{one['dead_letter_id:uuid']}",
        "dead-letters-many": "/dead-letters/many?category=no_route&action=reroute&to=System1/post",
        "rule": f"/rules/{one['rule_id:uuid']}",
        "rule-new": "/rules/new?team=root",
        "rule-versions": "/rules/versions",
        "rule-version": "/rules/versions/1",
        "modules": "/butlers/modules",
        "task": f"/tasks/{one['task_id:uuid']}",
        "message": f"/messages/{ids['bin']}",
        "message-dead": f"/messages/{ids['lost']}",
        "message-failed": f"/messages/{ids['broken']}",
        "mail": f"/messages/{ids['mail']}",
        "mail-html": f"/messages/{ids['mail']}/mail",
        "plan": f"/plans/{ids['trip']}",
        "conversation": "/conversations/one?name=telegram%2Fbot%253Ahouse%2Fann",
        "no-such-page": "/nothing",
    }


async def _look_at(tab: Tab, name: str, size: str) -> list[str]:
    """What is wrong with the page that is open."""
    pictures = os.environ.get("WEB_PICTURES")
    if pictures and not size.endswith("dark"):
        await tab.picture(Path(pictures) / f"{name}-{size}.webp")
    wrong = [f"{name} ({size}): {one}" for one in await tab.find_barriers()]
    if await tab.is_wider_than_window():
        wrong.append(f"{name} ({size}): one has to scroll sideways")
    expected = "404" if name == "no-such-page" else None
    wrong += [f"{name} ({size}): {one}" for one in tab.troubles if expected is None or expected not in one]
    tab.troubles.clear()
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize(("size", "dark"), pairs(list(SIZES), [False, True]))
async def test_every_page_is_for_everybody(chromium: str, house: House, size: str, dark: bool) -> None:
    wrong: list[str] = []
    suffix = f"{size}-dark" if dark else size
    async with signed_in(chromium, house.server, SIZES[size], dark=dark) as tab:
        for name, path in (await addresses_of(house)).items():
            await tab.open(f"{house.server.url}/ui{path}")
            wrong += await _look_at(tab, name, suffix)
            if size == "desk":
                await tab.resize(ENLARGED)
                wrong += [f"{name} at 200 %: one has to scroll sideways"] if await tab.is_wider_than_window() else []
                await tab.resize(DESK)
    async with open_tab(chromium, SIZES[size], dark=dark) as tab:
        await tab.open(f"{house.server.url}/ui/")
        wrong += await _look_at(tab, "sign-in", suffix)
    assert wrong == []


async def test_a_first_page_is_small_and_asks_only_this_server(chromium: str, house: House) -> None:
    async with signed_in(chromium, house.server) as tab:
        await tab.open(f"{house.server.url}/ui/")
        assert {one for one in tab.requests if not one.startswith(house.server.url)} == set()
        assert len(set(tab.requests)) <= 6
        got = [await house.server.http.get(one) for one in set(tab.requests) if "/static/" in one]
        page = await tab.evaluate("document.documentElement.outerHTML.length")
        assert sum(len(one.content) for one in got) + page <= 150_000
