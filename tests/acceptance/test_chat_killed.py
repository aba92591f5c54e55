"""Everything is killed while an answer on the page is written: it is given once, and the page shows it."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.acceptance.test_typing_after_a_kill import WAITING, killed_at_the_end
from tests.browser import find_chromium, open_tab, run_chromium
from tests.processes import butler, environment, running, switchboard, told, write_teams

pytestmark = pytest.mark.slow
_RULE: Final = {"name": "all", "channel": "*", "targets": [{"system_id": "System1/slow"}]}


async def test_an_answer_is_given_once_whatever_is_killed(place: Path) -> None:
    if find_chromium() is None:
        pytest.skip("there is no chromium here; in Debian: apt-get install chromium")
    go = place / "go"
    systems = [butler("slow", ["sh", "-c", WAITING.format(go=go)])]
    teams = write_teams(place / "teams", {"team": {"name": "root"}, "systems": systems, "routing_rules": [_RULE]})
    env = environment(place / "data", TEAMS_DIR=str(teams), LOG_LEVEL="error")
    with run_chromium() as chromium, ExitStack() as stack:
        async with open_tab(chromium) as tab, asyncio.timeout(240):
            living = killed_at_the_end(env, place)
            up = await asyncio.to_thread(living.__enter__)
            url = str(up.said["url"])
            await tab.open((await asyncio.to_thread(switchboard, up.environment, "open")).stdout.strip())
            await tab.click("main button")
            await tab.open(f"{url}/ui/chat")
            await tab.type("Please wait")
            await tab.leave_by_key("Enter")
            await tab.until("document.querySelector('.standing')?.textContent.includes('slow is working on it')")
            await asyncio.to_thread(living.__exit__, None, None, None)

            env |= {"SWITCHBOARD_PORT": str(urlsplit(url).port)}
            up = await asyncio.to_thread(stack.enter_context, running(env, "up"))
            go.touch()
            await tab.until("document.querySelector('.going') === null")
            assert await tab.evaluate("document.querySelector('.theirs .said').textContent") == "done"
            [message] = (await asyncio.to_thread(told, up.environment, "messages", "list"))["messages"]
            shown = await asyncio.to_thread(told, up.environment, "messages", "show", message["request_id"])
            assert [reply["text"] for reply in shown["replies"]] == ["done"]
