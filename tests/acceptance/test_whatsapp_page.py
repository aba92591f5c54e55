"""The page of WhatsApp: the account as it is added there, at a terminal that asks; the walkthrough is run elsewhere."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from switchboard.testing.whatsapp import APP_SECRET, NUMBER, TOKEN, WhatsAppServer
from tests.acceptance.test_channel_pages import HOUSE, command, said, typed
from tests.documents import HOME, calls
from tests.processes import environment
from tests.servers import open_server
from tests.terminals import terminal

pytestmark = pytest.mark.slow

PAGE: Final = HOME / "docs/channels/whatsapp.md"
TYPED: Final = {"phone_number_id": NUMBER, "token": TOKEN, "app_secret": APP_SECRET}
VARYING: Final = {"K7QM2XWP4B": r"\w+", "2026-11-25 09:14:03": r"[\d: -]+", " channels.d/": r" \S*channels.d/"}


async def test_a_number_is_added_as_the_page_shows_it(database_url: str, tmp_path: Path) -> None:
    async with WhatsAppServer() as whatsapp, open_server(database_url, tmp_path / "data", tree=HOUSE) as server:
        env = environment(tmp_path / "data", URL=server.url, CHANNELS_DIR=str(tmp_path / "channels.d"))
        env |= {"TERM": "dumb", "COLUMNS": "200", "SWITCHBOARD_PUBLIC_URL": "https://hooks.example"}
        here = ("--set", f"api_url={whatsapp.url}")
        [adding] = typed(PAGE)
        shown = await asyncio.to_thread(add_number, env, [*next(calls(adding.command, "switchboard")), *here])
        at = shown.index("general-purpose")
        assert at < shown.index("Meta bills each message") < shown.index("phone_number_id: ")
        for line in (one for one in adding.output.splitlines() if one and not one.startswith("…")):
            pattern = re.escape(line.partition(f": {NUMBER}")[0]).replace("switchboard", r"\S*switchboard")
            for word, varying in VARYING.items():
                pattern = pattern.replace(re.escape(word), varying)
            found = re.compile(pattern, re.DOTALL).search(shown, at)
            assert found, f"{line!r} is not shown in {shown!r}"
            at = found.end()
        for what in ("test", "pause", "resume"):
            await said(env, command(PAGE, f"switchboard channels {what} whatsapp"))
        await said(env, [*command(PAGE, "switchboard channels remove whatsapp"), "--yes"])
    assert {call.name for call in whatsapp.calls} == {"GET number"}, "nothing is changed at Meta before it is connected"


def add_number(env: Mapping[str, str], words: Sequence[str]) -> str:
    """At a terminal; what it shows."""
    with terminal(env, *words) as screen:
        for name, value in TYPED.items():
            screen.expect("not the number itself" if value == NUMBER else "while you type")
            screen.expect(f"{name}: ")  # the blank comes once nothing is shown any more
            screen.type(f"{value}\n")
        screen.expect("[none]: ")
        screen.type("butler\n")
        screen.expect("See how it is:")
        screen.expect("channels")
        return screen.screen.replace("\r", "")
