"""Every list of the API in pages: all rows once, in one order, whatever is added meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.app.access import Principal
from switchboard.store.ids import new_uuid7
from tests.lab import envelope_json
from tests.servers import Opened, open_server

LISTS: Final[Mapping[str, tuple[str, str]]] = {
    "/v1/messages": ("messages", "request_id"),
    "/v1/deliveries": ("deliveries", "request_id"),
    "/v1/outbox": ("replies", "outbox_id"),
    "/v1/outbox?state=pending": ("replies", "outbox_id"),
    "/v1/connectors": ("connectors", "endpoint"),
    "/v1/lanes": ("lanes", "lane"),
    "/v1/teams": ("teams", "team_id"),
    "/v1/agents": ("agents", "system_id"),
    "/v1/rules": ("rules", "rule_id"),
    "/v1/rules?team_id=root": ("rules", "rule_id"),
    "/v1/rules/versions": ("versions", "version"),
    "/v1/sops": ("sops", "source"),
    "/v1/dead-letters": ("dead_letters", "dead_letter_id"),
    "/v1/tokens": ("tokens", "name"),
    "/v1/audit": ("entries", "audit_id"),
}
"""Where rows stand, and what tells them apart. What models chose and cost is tried where models are asked."""


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data") as opened:
        for n in range(5):
            await _add(opened, f"old{n}")
        yield opened


async def _add(server: Opened, name: str) -> None:
    """One more of everything that is listed, but for teams and their members."""
    await server.submit(envelope_json("hello", sender=name, event=name))
    lost = envelope_json("lost", channel="webhook", sender=name, event=name)
    await server.submit({**lost, "source": {"channel": "webhook", "provider": "http", "endpoint_identity": "hook"}})
    beat = {"channel": "telegram", "endpoint": name, "instance_id": "i", "state": "healthy"}
    assert (await server.http.post("/v1/connectors/heartbeat", json=beat)).status_code == 200
    needed = {"name": "x", "team": "root", "target": "side", "channel": "telegram", "filters": {"sender": name}}
    sop = {"document": {"name": name, "routing_requirements": [needed]}, "reason": "a test"}
    assert (await server.http.put(f"/v1/sops/{name}", json=sop)).status_code == 200
    await server.token_for(Principal("metrics", name))
    await server.lab.database.run(
        "insert into outbox (outbox_id, lane, seq, request_id, system_id, channel, endpoint, recipient, reply_to, text,"
        " state, created_at)"
        " select $1::uuid, key, 1000 + (select count(*) from outbox), $1::uuid, 's', 'telegram', 'e', 'r', '1', 't',"
        " 'pending', now() from lane where conversation is not null limit 1",
        new_uuid7(),
    )


async def _page(server: Opened, path: str, params: Mapping[str, str]) -> dict[str, Any]:
    answer = await server.http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize("listed", LISTS)
async def test_pages_hold_every_row_once_whatever_is_added_meanwhile(server: Opened, listed: str) -> None:
    rows, key = LISTS[listed]
    path, _, filters = listed.partition("?")
    params = dict([filters.split("=")]) if filters else {}
    whole = [row[key] for row in (await _page(server, path, {**params, "limit": "500"}))[rows]]
    assert len(whole) > 1
    page = await _page(server, path, {**params, "limit": "2"})
    found = [row[key] for row in page[rows]]
    await _add(server, "young")
    while page["next_cursor"] is not None:
        page = await _page(server, path, {**params, "limit": "2", "cursor": page["next_cursor"]})
        assert len(page[rows]) <= 2
        found += [row[key] for row in page[rows]]
    assert len(found) == len(set(found))
    assert [one for one in found if one in whole] == whole


@pytest.mark.parametrize("path", sorted({listed.partition("?")[0] for listed in LISTS}))
async def test_a_cursor_of_somebody_elses_is_refused(server: Opened, path: str) -> None:
    for cursor in ("?", "W10=", "WyJcdTAwMDAiXQ==", "eyJhIjoxfQ=="):
        answer = await server.http.get(path, params={"cursor": cursor})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_cursor"), cursor
