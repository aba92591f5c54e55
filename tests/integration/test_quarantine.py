"""What could not be made into a message is kept once, is replayed by its connector, or is discarded by a person."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from switchboard.app.access import Principal
from switchboard.app.connectors import quarantine
from switchboard.app.connectors.quarantine import MAX_RAW
from tests.servers import CONNECTOR, Opened, open_server

ACCOUNT = {"channel": "telegram", "endpoint": "bot:house"}
RAW = b'{"update_id": 7, "message": "\x00\xff"}'


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data") as opened:
        opened.http.headers.update(await opened.token_for(CONNECTOR))
        yield opened


def event(number: int = 7, raw: bytes = RAW, reason: str = "no chat") -> dict[str, Any]:
    return {**ACCOUNT, "event_id": str(number), "reason": reason, "raw": b64encode(raw).decode()}


async def put(server: Opened, body: dict[str, Any]) -> dict[str, Any]:
    answer = await server.http.post("/v1/quarantine", json=body)
    assert answer.status_code == 200, answer.text
    kept: dict[str, Any] = answer.json()
    return kept


async def listed(server: Opened, **wanted: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = (await server.http.get("/v1/quarantine", params=wanted)).json()["events"]
    return events


async def replays(server: Opened) -> int:
    answer = await server.http.post("/v1/connectors/lease", json={**ACCOUNT, "instance_id": "a"})
    count: int = answer.json()["replays"]
    return count


async def test_an_event_is_kept_once_with_its_bytes(server: Opened) -> None:
    first = await put(server, event())
    assert first["duplicate"] is False
    assert await put(server, event(reason="still no chat")) == {**first, "duplicate": True}
    await put(server, event(8))
    assert [(e["event_id"], e["reason"]) for e in await listed(server)] == [("8", "no chat"), ("7", "still no chat")]
    shown = (await server.http.get(f"/v1/quarantine/{first['quarantine_id']}")).json()
    assert (b64decode(shown["raw"]), shown["size_bytes"]) == (RAW, len(RAW))


async def test_an_event_that_bears_the_id_of_another_one_replaces_nothing(server: Opened) -> None:
    kept = [await put(server, event(raw=raw)) for raw in (RAW, b"forged")]
    assert [one["duplicate"] for one in kept] == [False, False]
    shown = [(await server.http.get(f"/v1/quarantine/{one['quarantine_id']}")).json() for one in kept]
    assert [b64decode(one["raw"]) for one in shown] == [RAW, b"forged"]


async def test_an_event_is_replayed_or_waits_again(server: Opened) -> None:
    kept = (await put(server, event()))["quarantine_id"]
    await put(server, event(8))
    assert await replays(server) == 0
    assert (await server.http.post(f"/v1/quarantine/{kept}/replay")).status_code == 200
    assert [e["event_id"] for e in await listed(server, replay="true")] == ["7"]
    assert [e["event_id"] for e in await listed(server, replay="false")] == ["8"]
    assert await replays(server) == 1
    await put(server, event(reason="no better"))
    assert await replays(server) == 0
    assert (await server.http.get(f"/v1/quarantine/{kept}")).json()["reason"] == "no better"
    await server.http.post(f"/v1/quarantine/{kept}/replay")
    assert (await server.http.delete(f"/v1/quarantine/{kept}")).json()["status"] == "discarded"
    assert [e["event_id"] for e in await listed(server)] == ["8"]
    assert await replays(server) == 0
    assert await server.lab.count("select count(*) from audit where action = 'quarantine:discarded'") == 1


async def test_pages_of_the_quarantine(server: Opened) -> None:
    for number in range(5):
        await put(server, event(number))
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await server.http.get("/v1/quarantine", params={"limit": "2", **cursor})).json()
        seen += [e["event_id"] for e in page["events"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == ["4", "3", "2", "1", "0"]


async def test_beyond_the_limit_the_oldest_of_the_account_give_way(
    server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quarantine, "MAX_EVENTS", 3)
    for number in range(5):
        await put(server, event(number))
    assert [e["event_id"] for e in await listed(server)] == ["4", "3", "2"]
    monkeypatch.setattr(quarantine, "MAX_BYTES", 2 * len(RAW))
    await put(server, event(5))
    assert [e["event_id"] for e in await listed(server)] == ["5", "4"]
    assert await server.lab.count("select count(*) from audit where action = 'quarantine:full'") == 3


async def test_another_account_neither_sees_nor_touches_it(server: Opened) -> None:
    kept = (await put(server, event()))["quarantine_id"]
    other = await server.token_for(Principal("connector", "other", "telegram", "bot:other"))
    assert (await server.http.get("/v1/quarantine", headers=other)).json()["events"] == []
    assert (await server.http.get("/v1/quarantine", params=ACCOUNT, headers=other)).status_code == 403
    assert (await server.http.post("/v1/quarantine", json=event(9), headers=other)).status_code == 403
    for method, path in (("GET", ""), ("POST", "/replay"), ("DELETE", "")):
        asked = await server.http.request(method, f"/v1/quarantine/{kept}{path}", headers=other)
        assert asked.status_code == 404, method
    assert [e["replay"] for e in await listed(server)] == [False]


async def test_what_is_no_base64_or_too_large_is_refused(server: Opened) -> None:
    assert (await server.http.post("/v1/quarantine", json={**event(), "raw": "é"})).status_code == 422
    assert (await server.http.post("/v1/quarantine", json=event(raw=bytes(MAX_RAW + 1)))).status_code == 413
    assert await listed(server) == []
    kept = await put(server, event(raw=bytes(MAX_RAW)))
    assert kept["duplicate"] is False
