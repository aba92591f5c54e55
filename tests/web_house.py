"""What tests of the page begin with: a link to sign in with, and tabs that are signed in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from switchboard.app.access import Principal
from switchboard.app.web_sessions import WebSessions
from tests.browser import DESK, Tab, open_tab
from tests.servers import Opened

OPERATOR = Principal("operator", "operator-1")


async def link_of(server: Opened, name: str | None = None) -> str:
    """A link that signs in, by default as the operator."""
    made = await WebSessions(server.lab.database, server.access).make_link(OPERATOR, name)
    return f"{server.url}{made.path}"


@asynccontextmanager
async def signed_in(
    chromium: str, server: Opened, size: tuple[int, int] = DESK, *, script: bool = True, dark: bool = False
) -> AsyncIterator[Tab]:
    """A tab in which the operator has signed in, by a link and its button."""
    async with open_tab(chromium, size, script=script, dark=dark) as tab:
        await tab.open(await link_of(server))
        await tab.click("main button")
        tab.requests.clear()
        yield tab
