"""Strangers on the page: what they wrote is read, and they are let in, kept out, and forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.browser import DESK, PHONE
from tests.lab import envelope_json
from tests.servers import Opened, open_server
from tests.web_forms import audited, enter, follow
from tests.web_house import signed_in

SIZES = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """A server to which a stranger has written twice."""
    async with open_server(database_url, tmp_path / "data", policies={"telegram/bot:house": "pair"}) as opened:
        for text in ("Hello, it is Noor", "Are you \u202ethere?"):
            answer = await opened.submit(envelope_json(text, channel="telegram", sender="noor", thread="noor"))
            assert answer.json()["triage_decision"] == "held", answer.text
        yield opened


@SIZES
async def test_a_stranger_is_let_in_and_forgotten_again(chromium: str, server: Opened, size: tuple[int, int]) -> None:
    async with signed_in(chromium, server, size, script=False) as tab:
        await tab.open(f"{server.url}/ui/strangers")
        assert "2 held" in await tab.text()
        await follow(tab, "a.row")
        text = await tab.text()
        assert "Hello, it is Noor" in text
        assert "Are you \\u202ethere?" in text
        await enter(tab, "#approve-reason", "my neighbour")
        await follow(tab, "form[action$='/approve'] button")
        assert "Approved: what was held goes on now." in await tab.text()
        await enter(tab, "#revoke-reason", "moved away")
        await follow(tab, "form[action$='/revoke'] button")
        assert "A stranger again" in await tab.text()
    entries = await audited(server, "contact_decided")
    assert [(one["detail"]["state"], one["detail"]["reason"]) for one in entries] == [
        ("stranger", "moved away"),
        ("approved", "my neighbour"),
    ]
    assert {one["actor"] for one in entries} == {"operator-1 (web: Chrome on Linux)"}


async def test_a_stranger_is_kept_out(chromium: str, server: Opened) -> None:
    [contact] = (await server.http.get("/v1/pairing")).json()["contacts"]
    held = (await server.http.get(f"/v1/pairing/{contact['contact_id']}/messages")).json()["messages"]
    assert [one["text"] for one in held] == ["Are you \u202ethere?", "Hello, it is Noor"]
    async with signed_in(chromium, server, PHONE, script=False) as tab:
        await tab.open(f"{server.url}/ui/strangers/{contact['contact_id']}")
        await enter(tab, "#deny-reason", "nobody knows them")
        await follow(tab, "form[action$='/deny'] button")
        assert "Hello, it is Noor" not in await tab.text()
    [entry] = await audited(server, "contact_decided")
    assert entry["detail"]["reason"] == "nobody knows them"
