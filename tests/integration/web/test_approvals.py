"""Approvals on the page: what is decided is what was shown, by those who may, and once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from switchboard.app.access import Principal
from tests.browser import DESK, PHONE, open_tab
from tests.hands import Scripted, at_work
from tests.integration.test_approvals_interfaces import asked, asking, got
from tests.servers import Opened, open_server
from tests.web_forms import audited, enter, follow
from tests.web_house import link_of, signed_in

SIZES = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """A server whose butler asks."""
    async with (
        open_server(database_url, tmp_path / "data") as opened,
        at_work(opened.lab.worker({"echo": Scripted(asking)})),
    ):
        yield opened


@SIZES
async def test_a_call_is_approved_by_an_approver(chromium: str, server: Opened, size: tuple[int, int]) -> None:
    [one] = await asked(server, "40 € \u202egnp")
    await server.access.issue(Principal("operator", "test"), Principal("approver", "ben"))
    async with open_tab(chromium, size, script=False) as tab:
        await tab.open(await link_of(server, "ben"))
        await tab.click("main button")
        await tab.open(f"{server.url}/ui/approvals")
        assert await tab.evaluate("[...document.querySelectorAll('nav ul a')].map(a => a.textContent)") == ["Approvals"]
        for words in ("high risk", '"to": "noor"', "it is said so"):
            assert words in await tab.text()
        await follow(tab, "a.row")
        text = await tab.text()
        assert "high risk" in text
        assert "calling it twice does it twice" in text
        assert '"to": "noor"' in text
        assert "\\u202egnp" in text
        assert "it is said so" in text
        await follow(tab, "form[action$='/approve'] button")
        assert "It is decided, and the butler goes on." in await tab.text()
        await tab.open(f"{server.url}/ui/messages")
        assert "This is for operators, and you are signed in as somebody who decides" in await tab.text()
    assert (await got(server, f"/v1/approvals/{one}"))["decided_by"].startswith("ben (web: ")
    [entry] = await audited(server, "approval:approved")
    assert entry["actor"] == "ben (web: Chrome on Linux)"


async def test_a_call_is_refused_with_a_reason(chromium: str, server: Opened) -> None:
    [one] = await asked(server, "40 €")
    async with signed_in(chromium, server, PHONE, script=False) as tab:
        await tab.open(f"{server.url}/ui/approvals/{one}")
        await enter(tab, "#reason", "too much")
        await follow(tab, "form[action$='/refuse'] button")
    [entry] = await audited(server, "approval:refused")
    assert entry["detail"]["reason"] == "too much"


async def test_only_what_was_shown_is_decided(chromium: str, server: Opened) -> None:
    first, second = await asked(server, "1", "2")
    async with signed_in(chromium, server, DESK, script=False) as tab:
        await tab.open(f"{server.url}/ui/approvals/{first}")
        await tab.evaluate("document.querySelectorAll('[name=digest]').forEach(e => e.value = 'f'.repeat(64))")
        await follow(tab, "form[action$='/approve'] button")
        assert "This is not what you were shown; look at it again" in await tab.text()
        assert (await got(server, f"/v1/approvals/{first}"))["state"] == "pending"

        await tab.open(f"{server.url}/ui/approvals/{second}")
        assert (await server.http.post(f"/v1/approvals/{second}/refuse", json={})).is_success
        await follow(tab, "form[action$='/approve'] button")
        assert "The call of pay was refused already, by operator-1" in await tab.text()


async def test_a_question_is_answered_by_an_option(chromium: str, server: Opened) -> None:
    [one] = await asked(server, "ask which colour?")
    async with signed_in(chromium, server, PHONE, script=False) as tab:
        await tab.open(f"{server.url}/ui/approvals/{one}")
        assert "which colour?" in await tab.text()
        await follow(tab, "form.option:nth-of-type(2) button")
    assert (await got(server, f"/v1/approvals/{one}"))["answer"] == "blue"
