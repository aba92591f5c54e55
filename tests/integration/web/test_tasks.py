"""Tasks on the page: what is due next, what became of the last time; one is carried out, paused or cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.browser import DESK, PHONE
from tests.servers import NO_TLS, Opened, open_server
from tests.web_filling import add_person, add_tasks
from tests.web_forms import audited, enter, follow
from tests.web_house import link_of, signed_in

SIZES = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """A server without tasks."""
    async with open_server(database_url, tmp_path / "data") as opened:
        yield opened


@SIZES
async def test_a_task_is_found_carried_out_and_cancelled(chromium: str, server: Opened, size: tuple[int, int]) -> None:
    async with signed_in(chromium, server, size, script=False) as tab:
        await tab.open(f"{server.url}/ui/tasks")
        assert "Nothing is scheduled." in await tab.text(), "before any butler has had the module"
        await add_person(server)
        await add_tasks(server)
        await tab.open(f"{server.url}/ui/tasks?state=paused")
        assert "the bot was blocked" in await tab.text()
        await follow(tab, "a.row")
        await enter(tab, "#run-reason", "it was unblocked")
        await follow(tab, "form[action$='/run'] button")
        assert "It is due now" in await tab.text()
        assert "active" in await tab.text()
        await enter(tab, "#pause-reason", "away for a week")
        await follow(tab, "form[action$='/pause'] button")
        assert "It is paused" in await tab.text()
        assert "away for a week" in await tab.text(), "who paused it and why"
        await enter(tab, "#resume-reason", "back again")
        await follow(tab, "form[action$='/resume'] button")
        assert "It goes on, from its next time" in await tab.text()
        await enter(tab, "#cancel-reason", "we have no paper bin")
        await follow(tab, "form[action$='/cancel'] button")
        assert "we have no paper bin" in await tab.text(), "why it is not due any more"
        await tab.open(f"{server.url}/ui/tasks")
        text = await tab.text()
        assert "Put the paper bin out" not in text
        assert "Ann Weber" in text
        assert "the model server refused" in text
    for action, reason in (
        ("tasks:run", "it was unblocked"),
        ("tasks:paused", "away for a week"),
        ("tasks:resumed", "back again"),
        ("tasks:cancelled", "we have no paper bin"),
    ):
        [entry] = [one for one in await audited(server, action) if "web" in one["actor"]]
        assert entry["detail"]["reason"] == reason


async def test_a_form_that_is_sent_twice_carries_a_task_out_once(server: Opened) -> None:
    await add_person(server)
    await add_tasks(server)
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, headers={"origin": server.url}) as http:
        await http.post((await link_of(server)).removeprefix(server.url))
        task = (await server.http.get("/v1/tasks?state=paused")).json()["tasks"][0]["task_id"]
        form = (await http.get(f"/ui/tasks/{task}")).text.partition(f'action="/ui/tasks/{task}/run"')[2]
        fields = {
            name: form.partition(f'name="{name}" value="')[2].partition('"')[0] for name in ("form_token", "last")
        }

        async def send() -> int:
            return (await http.post(f"/ui/tasks/{task}/run", data={**fields, "reason": "now"})).status_code

        assert sorted(await asyncio.gather(send(), send())) == [303, 409], "at the same moment"
        assert await send() == 409
    assert len((await server.http.get(f"/v1/tasks/{task}")).json()["ledger"]["firings"]) == 1
    assert len([one for one in await audited(server, "tasks:run") if "web" in one["actor"]]) == 1
