"""What can be done about a message on the page, by keyboard and without a script, and what is on record of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from switchboard.store.database import Database
from tests.browser import DESK, PHONE
from tests.integration.test_reroutes import Office, open_office
from tests.waiting import eventually
from tests.web_forms import audited, choose, enter, follow
from tests.web_house import signed_in

SIZES = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])


@pytest.fixture
async def office(database_url: str, tmp_path: Path) -> AsyncIterator[Office]:
    """An office with a butler that is busy."""
    async with open_office(database_url, tmp_path / "data") as opened:
        yield opened


@SIZES
async def test_a_message_is_sent_to_somebody_else(chromium: str, office: Office, size: tuple[int, int]) -> None:
    sent = await office.write("wait")
    await office.busy.entered.wait()
    async with signed_in(chromium, office.server, size, script=False) as tab:
        await tab.open(f"{office.server.url}/ui/messages/{sent}")
        await follow(tab, "main a.button")
        await choose(tab, "#to", "System1/free")
        await enter(tab, "#reason", "free knows")
        await follow(tab, "form[action$='/reroute'] button")
        assert "It was sent on." in await tab.text()
        assert await office.answers(sent) == ["free: wait"]
        await tab.open(f"{office.server.url}/ui/messages/{sent}")
        assert "by operator-1 (web: Chrome on Linux): free knows" in await tab.text()

        await tab.open(f"{office.server.url}/ui/messages/{sent}/actions")
        await choose(tab, "#to", "System1/third")
        await enter(tab, "#reason", "third, too")
        await follow(tab, "form[action$='/reroute'] button")
        assert "A butler has answered this message already" in await tab.text()
        assert await tab.evaluate("document.querySelector('#reason').value") == "third, too"
    [entry] = await audited(office.server, "message:rerouted")
    assert entry["actor"] == "operator-1 (web: Chrome on Linux)"
    assert entry["detail"]["reason"] == "free knows"


async def test_a_message_is_stopped(chromium: str, office: Office) -> None:
    sent = await office.write("wait")
    await office.busy.entered.wait()
    async with signed_in(chromium, office.server, PHONE, script=False) as tab:
        await tab.open(f"{office.server.url}/ui/messages/{sent}/actions")
        await enter(tab, "#stop-reason", "nobody wants it")
        await follow(tab, "form[action$='/stop'] button")
        assert "It ends within a second" in await tab.text()
    [entry] = await audited(office.server, "message:stopped")
    assert entry["detail"] == {"request_id": str(sent), "reason": "nobody wants it"}


async def test_what_waits_for_its_next_attempt_is_tried_now(chromium: str, office: Office) -> None:
    sent = await office.write("fail")
    database = office.server.lab.database
    await eventually(lambda: _is_delayed(database))
    await database.run("update lane set ready_at = ready_at + interval '1 h' where delayed")
    tried = len(office.busy.texts)
    async with signed_in(chromium, office.server, DESK, script=False) as tab:
        await tab.open(f"{office.server.url}/ui/messages/{sent}/actions")
        await enter(tab, "#try-reason", "it is back")
        await follow(tab, "form[action$='/try'] button")
        assert "It goes on now." in await tab.text()
    async with asyncio.timeout(20):
        while len(office.busy.texts) == tried:
            await asyncio.sleep(0.02)
    [entry] = await audited(office.server, "message:tried")
    assert entry["detail"]["reason"] == "it is back"


async def _is_delayed(database: Database) -> bool:
    return bool(await database.value("select exists (select from lane where delayed and state = 'ready')"))


async def test_a_reply_that_was_not_sent_is_sent_again(chromium: str, office: Office) -> None:
    sent = await office.write("hello")
    await office.answers(sent)
    database = office.server.lab.database
    outbox_id: UUID = await database.value(
        "update outbox set state = 'uncertain' where request_id = $1 returning outbox_id", sent
    )
    async with signed_in(chromium, office.server, PHONE, script=False) as tab:
        await tab.open(f"{office.server.url}/ui/messages/{sent}/actions")
        await enter(tab, "#resend-reason1", "it never came")
        await follow(tab, "form[action$='/resend'] button")
        assert "The reply is sent again." in await tab.text()
    [entry] = await audited(office.server, "reply:resent")
    assert entry["detail"] == {"outbox_id": str(outbox_id), "reason": "it never came"}
