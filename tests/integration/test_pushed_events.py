"""Events that a connector is pushed over a socket: the server keeps them before the platform is answered."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.app.access import Principal
from switchboard.app.connectors import posted
from tests.servers import Opened, open_server

ACCOUNT: Final = {"channel": "slack", "endpoint": "T1:U1"}
NEXT: Final = "/v1/connectors/posted/next"
POSTED: Final = "/v1/connectors/posted"


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data") as opened:
        yield opened


def pushed(mark: str, raw: bytes = b"{}") -> dict[str, Any]:
    return {**ACCOUNT, "mark": mark, "raw": base64.b64encode(raw).decode("ascii")}


async def waiting(server: Opened) -> list[tuple[int, bytes]]:
    got = (await server.http.post(NEXT, json=ACCOUNT)).json()["events"]
    return [(one["posted_id"], base64.b64decode(one["raw"])) for one in got]


async def test_a_pushed_event_waits_once_like_one_that_was_posted(server: Opened) -> None:
    for mark, raw in (("Ev1", b"one"), ("Ev1", b"one again"), ("Ev2", b"two"), ("Ev1", b"one again")):
        kept = await server.http.post(POSTED, json=pushed(mark, raw))
        assert (kept.status_code, kept.json()) == (200, {"status": "kept"})
    assert (await server.http.post(POSTED, json=pushed("Ev1") | {"endpoint": "T1:U2"})).is_success
    found = await waiting(server)
    assert [raw for _, raw in found] == [b"one", b"two"]
    leased = await server.http.post("/v1/connectors/lease", json={**ACCOUNT, "instance_id": "a"})
    settled = {**ACCOUNT, "lease": leased.json()["lease"], "upto": found[0][0]}
    assert (await server.http.delete(POSTED, params=settled)).is_success
    assert (await server.http.post(POSTED, json=pushed("Ev1", b"one at last"))).is_success
    assert [raw for _, raw in await waiting(server)] == [b"two", b"one at last"]


async def test_a_full_account_keeps_no_more_but_knows_what_it_has(
    server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posted, "MOST_WAITING", 1)
    answers = [await server.http.post(POSTED, json=pushed(mark)) for mark in ("Ev1", "Ev2", "Ev1")]
    assert [one.status_code for one in answers] == [200, 429, 200]
    assert answers[1].json()["error"]["code"] == "overloaded"


@pytest.mark.parametrize(
    ("caller", "body", "status"),
    [
        (Principal("connector", "other", "slack", "T1:U2"), pushed("Ev1"), 403),
        (Principal("connector", "own", "slack", "T1:U1"), pushed("Ev1"), 200),
        (Principal("connector", "own", "slack", "T1:U1"), pushed("Ev1") | {"raw": "not base64"}, 422),
    ],
)
async def test_a_connector_keeps_events_of_its_own_account(
    server: Opened, caller: Principal, body: dict[str, Any], status: int
) -> None:
    answer = await server.http.post(POSTED, json=body, headers=await server.token_for(caller))
    assert answer.status_code == status
