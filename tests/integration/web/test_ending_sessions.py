"""Browsers are signed out on the page: one, and all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import DESK, PHONE
from tests.servers import open_server
from tests.web_forms import audited, enter, follow, tick
from tests.web_house import signed_in


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
async def test_other_browsers_are_signed_out(
    chromium: str, database_url: str, tmp_path: Path, size: tuple[int, int]
) -> None:
    async with (
        open_server(database_url, tmp_path / "data") as server,
        signed_in(chromium, server, size, script=False) as tab,
        signed_in(chromium, server, size) as second,
        signed_in(chromium, server, size) as third,
    ):
        await tab.open(f"{server.url}/ui/sessions")
        assert "this browser" in await tab.text()
        await tick(tab, "main li:first-child summary")
        await enter(tab, "main li:first-child input[name='reason']", "lost the phone")
        await follow(tab, "main li:first-child button")
        assert "That browser is signed out." in await tab.text()
        await third.open(f"{server.url}/ui/sessions")
        assert "Or use a token" in await third.text()
        await enter(tab, "#all-reason", "to be sure")
        await follow(tab, "form[action='/ui/sessions/end-all'] button")
        assert "All other browsers are signed out." in await tab.text()
        await second.open(f"{server.url}/ui/sessions")
        assert "Or use a token" in await second.text()
        reasons = [*await audited(server, "web:ended"), *await audited(server, "web:ended_all")]
        assert [one["detail"]["reason"] for one in reasons] == ["lost the phone", "to be sure"]
        assert {one["actor"] for one in reasons} == {"operator-1 (web: Chrome on Linux)"}
