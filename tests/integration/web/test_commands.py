"""The commands of the page's use cases against a real server: `open`, `web-sessions`, `status`, `conversations`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.commands import Cli
from tests.servers import NO_TLS
from tests.web_house import House, open_house


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    """A house with messages."""
    async with open_house(database_url, tmp_path / "data") as opened:
        yield opened


async def test_a_link_is_made_used_listed_and_its_session_ended(
    house: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli, server = Cli(capsys, monkeypatch, house.server.environment), house.server
    address = (await asyncio.to_thread(cli.says, "open")).strip()
    assert address.startswith(f"{server.url}/ui/enter/")
    async with httpx2.AsyncClient(verify=NO_TLS) as http:
        assert (await http.post(address, headers={"origin": server.url})).status_code == 303
        [session] = (await asyncio.to_thread(cli.json, "web-sessions", "list"))["sessions"]
        assert session["name"] == "operator-1"
        await asyncio.to_thread(cli.says, "web-sessions", "end", session["session_id"][:8])
        assert "switchboard open" in (await http.get(f"{server.url}/ui/")).text
    assert (await asyncio.to_thread(cli.run, "web-sessions", "end", "0000"))[0] == 5
    refused = await asyncio.to_thread(cli.run, "open", "--for", "anne")
    assert refused[0] == 5, "a misspelt name makes nobody"
    made = await asyncio.to_thread(cli.json, "open", "--for", "ann", "--new")
    assert (made["name"], made["role"], made["url"]) == ("ann", "connector", f"{server.url}{made['path']}")
    await asyncio.to_thread(cli.json, "tokens", "revoke", "ann")
    refused = await asyncio.to_thread(cli.run, "open", "--for", "ann", "--new")
    assert "would see what was written under it" in refused[2]


async def test_it_is_told_how_it_is_and_who_talks(
    house: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = Cli(capsys, monkeypatch, house.server.environment)
    told = await asyncio.to_thread(cli.json, "status")
    assert (told["health"], told["workers"], sum(told["hours"])) == ("good", 1, len(house.ids))
    assert {one["kind"]: one["number"] for one in told["needs"] if one["number"]} == {
        "approvals": 1,
        "dead_letters": 2,
        "strangers": 1,
    }
    said = await asyncio.to_thread(cli.says, "status")
    assert "All is well" in said
    assert "switchboard dlq list" in said
    listed = (await asyncio.to_thread(cli.json, "conversations", "list"))["conversations"]
    newest = [one["request_id"] for one in listed]
    assert newest == sorted(newest, reverse=True)
    assert len({one["conversation"] for one in listed}) == len(listed), "each once, by its last message"
    [ann] = [one for one in listed if one["conversation"].endswith("house/ann")]
    assert ann["text"] == "I have moved to York, to Mill Lane"
    both = await asyncio.to_thread(cli.says, "conversations", "show", ann["conversation"])
    assert both.index("When is the bin emptied?") < both.index("On Tuesday") < both.index("leeks")
    pages: list[str] = []
    cursor = None
    while True:
        more = ("--cursor", cursor) if cursor else ()
        page = await asyncio.to_thread(cli.json, "conversations", "list", "--limit", "2", *more)
        pages += [one["conversation"] for one in page["conversations"]]
        if (cursor := page["next_cursor"]) is None:
            break
    assert pages == [one["conversation"] for one in listed]
