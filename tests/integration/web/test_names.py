"""Who wrote is called by name wherever a page tells of it: nobody knows the numbers that platforms give out."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from html import unescape
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.lab import envelope_json
from tests.servers import NO_TLS, Opened, open_server
from tests.web_house import link_of

LINKED, NAMED, BORROWED, AT_THE_DOOR = "4711", "4712", "4713", "4714"
DOOR: Final = "bot:door"


@pytest.fixture
async def ids(server: Opened) -> Mapping[str, str]:
    """A message of each, by sender; 4711 is linked to Ann Weber, and 4713 calls itself so, too."""
    people = server.http
    await people.post("/v1/people", json={"person_id": "ann", "name": "Ann Weber"})
    linked = await people.post("/v1/people/ann/link", json={"channel": "telegram", "identity": LINKED})
    assert linked.is_success, linked.text
    found = {}
    no_more: dict[str, str] = {}
    for sender, name, more in (
        (LINKED, "annw", no_more),
        (NAMED, "Noor", no_more),
        (BORROWED, "Ann Weber", no_more),
        (AT_THE_DOOR, "Bo", {"endpoint": DOOR}),
        ("lost", "Shop", {"channel": "webhook", "provider": "http"}),
    ):
        said: dict[str, Any] = {"sender": sender, "thread": sender, "of_sender": {"display_name": name}, **more}
        answer = await server.submit(envelope_json(f"from {sender}", **said))
        assert answer.is_success, answer.text
        found[sender] = str(answer.json()["request_id"])
    return found


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """A server with a door at which strangers are held."""
    async with open_server(database_url, tmp_path / "data", policies={f"telegram/{DOOR}": "pair"}) as opened:
        yield opened


def _read(html: str) -> str:
    """The words of the part of a page that is its own."""
    content = html.partition('<main id="content"')[2]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", content)).split())


async def test_every_page_calls_senders_by_name(server: Opened, ids: Mapping[str, str]) -> None:
    [stranger] = (await server.http.get("/v1/pairing")).json()["contacts"]
    [letter] = (await server.http.get("/v1/dead-letters")).json()["dead_letters"]
    own = "/ui/conversations/one?name=telegram%2Fbot%253Ahouse%2F"
    wanted: dict[str, tuple[str, ...]] = {
        "/ui/": ("Ann Weber telegram", "Noor 4712 telegram", "Ann Weber 4713 telegram"),
        "/ui/messages": ("Ann Weber telegram", "Noor 4712 telegram", "Ann Weber 4713 telegram", "Shop lost webhook"),
        "/ui/conversations": ("Ann Weber telegram", "Noor 4712 telegram", "Ann Weber 4713 telegram"),
        f"/ui/messages/{ids[LINKED]}": ("From Ann Weber", f"sender {LINKED}"),
        f"/ui/messages/{ids[BORROWED]}": ("From Ann Weber 4713",),
        f"/ui/messages/{ids[NAMED]}/actions": ("From Noor 4712",),
        f"{own}{LINKED}": ("Ann Weber from 4711",),
        f"{own}{BORROWED}": ("telegram/bot:house/4713 from 4713",),
        "/ui/strangers": ("Bo telegram · bot:door",),
        f"/ui/strangers/{stranger['contact_id']}": (f"Known there as {AT_THE_DOOR}",),
        "/ui/dead-letters": ("Shop lost webhook",),
        f"/ui/dead-letters/{letter['dead_letter_id']}": ("From Shop lost", "Sender lost"),
    }
    decided = await server.http.post(f"/v1/pairing/{stranger['contact_id']}/approve", json={"reason": "a neighbour"})
    assert decided.is_success, decided.text
    wanted |= {"/ui/strangers?state=approved": wanted.pop("/ui/strangers"), "/ui/audit": ("contact id Bo",)}
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, timeout=30) as http:
        await http.post((await link_of(server)).removeprefix(server.url), headers={"origin": server.url})
        pages = {path: await http.get(path) for path in wanted}
    shown = {path: _read(page.text) for path, page in pages.items()}
    missing = {path: one for path, said in wanted.items() for one in said if one not in shown[path]}
    assert missing == {}, [shown[path] for path in missing]
    assert f'title="{LINKED}"' in pages["/ui/messages"].text, "the number is there for who asks"
