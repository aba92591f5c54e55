"""Two events with one id: told apart by what they say, where it is their sender who chooses ids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from switchboard.core.uuid7 import uuid7_time
from switchboard.store.ids import IdSequence
from tests.integration.test_hooks import MAPPED, TREE, post, stored
from tests.lab import envelope_json
from tests.servers import Opened, open_server
from tests.webhooks import Request, account, standard

PAID, LOST = b'{"type":"order.paid","order":7}', b'{"type":"order.lost","order":7}'
BEARER: Mapping[str, str] = {"authorization": "Bearer a-long-token", "content-type": "application/json"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "channels.d"
    account(directory, "orders", 'verify = "standard"' + MAPPED)
    account(directory, "whole", 'verify = "standard"')
    account(directory, "each", 'verify = "standard"\nrepeats = "events"' + MAPPED)
    account(directory, "bodies", 'verify = "bearer"' + MAPPED, "a-long-token")
    account(directory, "all", 'verify = "bearer"\nbody_id_hours = 0' + MAPPED, "a-long-token")
    return directory


@pytest.fixture
async def server(database_url: str, tmp_path: Path, directory: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data", tree=TREE, more={"channels_dir": directory}) as opened:
        yield opened


async def statuses(server: Opened, name: str, *sent: Request) -> list[str]:
    answers = [await post(server, name, one, **one.headers) for one in sent]
    return [answer.json()["status"] for answer in answers]


async def test_new_content_under_an_id_is_marked_and_the_same_is_a_duplicate(
    server: Opened,
) -> None:
    sent = [standard(body, "msg_1") for body in (PAID, LOST, PAID, LOST)]
    assert await statuses(server, "orders", *sent) == ["accepted", "accepted", "duplicate", "duplicate"]
    other, first = [one["request_id"] for one in await stored(server)]
    shown = [(await server.http.get(f"/v1/messages/{one}")).json()["same_id"] for one in (first, other)]
    assert shown == [None, first]
    notes = (await server.http.get(f"/v1/messages/{other}/explain")).json()["notes"]
    assert [first in note for note in notes] == [True]
    assert "switchboard_same_ids_total 1.0" in (await server.http.get("/metrics")).text
    assert (await server.http.get("/v1/books")).json()["problems"] == []


async def test_counts_and_times_of_the_delivery_are_not_compared(server: Opened) -> None:
    bodies = (b'{"is":"%b","pending_webhooks":%d}' % (kind, n) for kind in (b"paid", b"lost") for n in (3, 2))
    sent = [standard(body, "msg_1") for body in bodies]
    assert await statuses(server, "whole", *sent) == ["accepted", "duplicate", "accepted", "duplicate"]
    assert "switchboard_same_ids_total 1.0" in (await server.http.get("/metrics")).text


async def test_all_that_is_posted_is_an_event_if_the_account_says_so(server: Opened) -> None:
    assert await statuses(server, "each", *[standard(PAID, "msg_1")] * 3) == ["accepted"] * 3


async def test_without_an_id_equal_bodies_are_one_event_for_a_day_from_the_first(server: Opened) -> None:
    one, other = Request(PAID, BEARER), Request(LOST, BEARER)
    assert await statuses(server, "bodies", one, other, one) == ["accepted", "accepted", "duplicate"]
    await aged(server, timedelta(hours=23))
    assert await statuses(server, "bodies", one) == ["duplicate"]
    await aged(server, timedelta(hours=2))
    assert await statuses(server, "bodies", one, one, other) == ["accepted", "duplicate", "accepted"]
    assert (await server.http.get("/v1/books")).json()["problems"] == []
    assert await statuses(server, "all", one, one) == ["accepted", "accepted"]


async def test_a_full_backlog_does_not_take_an_event_for_one_whose_time_is_over(
    database_url: str, tmp_path: Path, directory: Path
) -> None:
    more, one = {"channels_dir": directory}, Request(PAID, BEARER)
    async with open_server(database_url, tmp_path / "data", tree=TREE, more=more, backlog=1) as server:
        assert await statuses(server, "bodies", one, one) == ["accepted", "duplicate"]
        await aged(server, timedelta(hours=25))
        assert (await post(server, "bodies", one, **one.headers)).status_code == 503


async def test_of_many_that_come_at_once_after_the_time_two_servers_store_one(
    server: Opened, database_url: str, tmp_path: Path, directory: Path
) -> None:
    one, more = Request(PAID, BEARER), {"channels_dir": directory}
    assert await statuses(server, "bodies", one) == ["accepted"]
    await aged(server, timedelta(hours=25))
    async with open_server(database_url, tmp_path / "second", tree=TREE, more=more) as second:
        answers = await asyncio.gather(*[statuses(where, "bodies", one) for where in (server, second) * 15])
    assert sorted(status for [status] in answers) == ["accepted", *["duplicate"] * 29]
    assert len(await stored(server)) == 2


async def aged(server: Opened, by: timedelta) -> None:
    """As if all that was accepted had been so much earlier."""
    for row in await server.lab.database.rows("select request_id from dedupe"):
        then = uuid7_time(row["request_id"]) - by
        [earlier] = IdSequence().next(1, then.timestamp())
        await server.lab.database.run("update dedupe set request_id = $2 where request_id = $1", row[0], earlier)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 202),
        ({"observed": 1}, 202),
        ({"text": "another"}, 422),
        ({"sender": "bob"}, 422),
        ({"thread": "t"}, 422),
    ],
)
async def test_programs_are_told_that_an_id_is_taken_and_connectors_are_not(
    server: Opened, change: dict[str, Any], status: int
) -> None:
    def event(**more: Any) -> dict[str, Any]:
        fields = {key: value for key, value in more.items() if key != "observed"}
        made = envelope_json(**{"text": "one", "event": "e", "channel": "api", **fields})
        made["event"]["observed_at"] = (datetime.now(UTC) - timedelta(hours=more.get("observed", 0))).isoformat()
        return made

    first = (await server.http.post("/v1/ingest", json=event())).json()
    again = await server.http.post("/v1/ingest", json=event(**change))
    assert again.status_code == status, again.text
    if status == 422:
        error = again.json()["error"]
        assert (error["code"], error["details"]["request_id"]) == ("event_mismatch", first["request_id"])
    else:
        assert again.json()["request_id"] == first["request_id"]
    [source] = [event()["source"]]
    body = {"name": "c", "role": "connector", "channel": "api", "endpoint": source["endpoint_identity"]}
    token = (await server.http.post("/v1/tokens", json=body)).json()["token"]
    headers = {"authorization": f"Bearer {token}"}
    polled = await server.http.post("/v1/ingest", json=event(**change), headers=headers)
    assert (polled.status_code, polled.json()["duplicate"]) == (202, True)


async def test_a_file_whose_link_has_changed_is_the_same_event(server: Opened) -> None:
    made = envelope_json("one", event="e", channel="api")
    for size, text, status in ((1, "one", 202), (2, "one", 202), (3, "two", 422)):
        made["payload"]["normalized_text"] = text
        made["payload"]["attachments"] = [{"media_type": "text/plain", "size_bytes": size}]
        assert (await server.http.post("/v1/ingest", json=made)).status_code == status
    assert len(await stored(server)) == 1


async def test_what_another_message_stands_for_is_a_duplicate_whatever_it_says(server: Opened) -> None:
    made = envelope_json("all of it", event="e1", channel="api")
    made["event"]["also"] = ["e2"]
    first = (await server.http.post("/v1/ingest", json=made)).json()
    second = await server.http.post("/v1/ingest", json=envelope_json("the rest", event="e2", channel="api"))
    assert (second.status_code, second.json()["request_id"]) == (202, first["request_id"])
