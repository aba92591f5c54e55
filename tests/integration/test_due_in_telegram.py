"""What is due arrives in the chat where its task was made: by a real worker, server and connector, and Telegram API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from switchboard.app.front_door import WorkerFrontDoor
from switchboard.testing.bot_api import ANN
from switchboard.testing.connectors.running import connector
from tests.integration.test_buttons import ENDPOINT, a_house
from tests.integration.test_front_door import firing, scope_of


@pytest.mark.parametrize("own", [True, False], ids=["own words", "a model's words"])
async def test_a_reminder_is_sent_once_in_the_chat_of_its_task(database_url: str, tmp_path: Path, *, own: bool) -> None:
    async with a_house(database_url, tmp_path) as house, connector(house.configured, house.wire):
        door = WorkerFrontDoor(house.server.switchboard.runtime)
        first = await house.asked("Remind me tonight to water the tomatoes")
        [row] = await house.server.lab.database.rows(
            "select m.request_id, c.name from message_inbox m join conversation c using (conversation)"
        )
        origin = await door.origin(scope_of(UUID(str(row["request_id"])), row["name"], "System1/clerk"))
        assert origin is not None
        assert (origin.endpoint, origin.sender, await door.obstacle(origin)) == (ENDPOINT, str(ANN["id"]), "")
        due = [firing(origin, say=True, own=own), firing(origin, "tell the weather", task_id="t2", own=own)]
        said, _, *again = [await door.submit(one) for one in (*due, *due)]
        assert all(one.duplicate for one in again)
        await asyncio.wait_for(house.api.until(lambda: len(house.api.sent) >= 3), 60)

        texts = [one["text"] for one in house.api.sent]
        assert sorted(texts[1:]) == ["Noted: | tell the weather", "water the tomatoes"]
        assert {one["chat"]["id"] for one in house.api.sent} == {first["chat"]["id"]}
        explained = (await house.server.http.get(f"/v1/messages/{said.request_id}/explain")).json()
        assert "task t1, revision 2, due 2026-11-29 18:00:00 UTC" in explained["decisions"][0]["trail"][0]["detail"]
