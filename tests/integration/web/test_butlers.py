"""Butlers on the page: how each is, what went wrong, and how a remote one is taken out of service and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.browser import DESK, PHONE
from tests.hands import at_work
from tests.lab import envelope_json
from tests.servers import Opened, open_server
from tests.waiting import eventually
from tests.web_filling import add_sync
from tests.web_forms import audited, enter, follow, tick
from tests.web_house import MODULES, TREE, Scripted, signed_in

SIZES = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """A server with a tree of two teams, one of whose butlers has just given up a message."""
    async with (
        open_server(database_url, tmp_path / "data", tree=TREE, more={"modules": MODULES}) as opened,
        at_work(opened.lab.worker({"scripted": Scripted()})),
    ):
        broken = await opened.submit(envelope_json("Please do the impossible", channel="telegram", sender="ben"))
        path = f"/v1/messages/{broken.json()['request_id']}"

        async def is_dead() -> bool:
            return bool((await opened.http.get(path)).json()["state"] == "dead")

        await eventually(is_dead)
        yield opened


@SIZES
async def test_a_remote_butler_is_quarantined_and_released(
    chromium: str, server: Opened, size: tuple[int, int]
) -> None:
    async with signed_in(chromium, server, size, script=False) as tab:
        await tab.open(f"{server.url}/ui/butlers")
        text = await tab.text()
        assert "1 given up, the last: the model server refused: 400 Bad Request" in text
        assert "https://courier.example.org/mcp" in text
        assert "key=secret" not in text
        for done, reason, told in (
            ("quarantine", "it loses parcels", "It gets no work until it is released"),
            ("release", "it has found them", "It gets work again."),
        ):
            await tick(tab, "details summary")
            await enter(tab, "details input[name=reason]", reason)
            await follow(tab, f"form[action$='/butlers/{done}'] button")
            assert told in await tab.text()
            [entry] = await audited(server, f"agent:{done}{'d' if done.endswith('e') else ''}")
            assert (entry["detail"]["reason"], entry["actor"]) == (reason, "operator-1 (web: Chrome on Linux)")


async def test_what_a_module_does_by_itself_is_done_now(chromium: str, server: Opened) -> None:
    await add_sync(server)
    async with signed_in(chromium, server, PHONE, script=False) as tab:
        await tab.open(f"{server.url}/ui/butlers")
        await follow(tab, "main li a[href$='#calendar']")
        text = await tab.text()
        assert "the server refused the password" in text
        assert "Invitations are sent by Switchboard, by mail to attendees." in text
        await follow(tab, "form[action$='/modules/sync'] button")
        assert "Workers begin within half a minute." in await tab.text()
    [entry] = await audited(server, "modules:synced")
    assert entry["detail"]["module"] == "calendar"


async def test_who_sends_for_an_account_is_said(server: Opened) -> None:
    """For an invitation and a mail, on the page as over the API."""
    modules = {one["module"]: one for one in (await server.http.get("/v1/modules")).json()["modules"]}
    account = {"account": "ann", "owner": "person:ann"}
    by_mail = "Switchboard, by mail to attendees"
    assert modules["calendar"]["accounts"] == [{**account, "sends": by_mail}]
    nobody = "nobody, as no e-mail account of a channel has its address"
    assert modules["email"]["accounts"] == [{**account, "sends": nobody}]
    assert modules["schedule"]["accounts"] == []
    served = {"channel": "email", "endpoint": "Ann@example.org", "instance_id": "1"}
    assert (await server.http.post("/v1/connectors/lease", json=served)).is_success
    modules = {one["module"]: one for one in (await server.http.get("/v1/modules")).json()["modules"]}
    assert modules["email"]["accounts"][0]["sends"] == "the account email/ann@example.org"
