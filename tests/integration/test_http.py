"""The HTTP API over a real server: what goes in, what may be seen, how it says no, how it ends."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from html import unescape
from pathlib import Path
from uuid import UUID, uuid4

import httpx2
import pytest
from msgspec.structs import replace
from pydantic import SecretStr
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from switchboard.app.ops.doctor import check_database
from switchboard.app.settings import Settings
from switchboard.core.routing.explain import in_order
from switchboard.domain.errors import ConfigurationError
from switchboard.server.listener import bind
from switchboard.store.clock import DatabaseClock
from tests.lab import envelope_json, rule
from tests.servers import CONNECTOR, RULES, TEAMS, Opened, open_server
from tests.waiting import eventually

MAIL = b"From: Joe <joe@example.org>\r\nSubject: Hi\r\nMessage-ID: <1@example.org>\r\n\r\nHow are you?\r\n"


def error_of(response: httpx2.Response) -> tuple[int, str]:
    """Status and code; the shape is part of the assertion."""
    body = response.json()
    assert set(body) == {"error"}
    assert {"code", "message"} <= set(body["error"]) <= {"code", "message", "field", "details"}
    return response.status_code, body["error"]["code"]


# In ------------------------------------------------------------------------------------------------------------------


async def test_a_message_is_stored_byte_for_byte_before_it_is_acknowledged(server: Opened) -> None:
    raw = (json.dumps(envelope_json("hé  llo", channel="telegram"), ensure_ascii=False) + " \n").encode()
    accepted = await server.http.post("/v1/ingest", content=raw, headers={"content-type": "application/json"})
    assert accepted.status_code == 202
    body = accepted.json()
    assert body["status"] == "accepted"
    assert body["duplicate"] is False
    assert (body["triage_decision"], body["triage_target"]) == ("routed", "System1/echo")
    kept = await server.http.get(f"/v1/messages/{body['request_id']}/raw")
    assert kept.content == raw
    assert kept.headers["content-type"] == "application/json"


async def test_a_duplicate_gets_the_first_id(server: Opened) -> None:
    envelope = envelope_json("once", event="42")
    first, second = [(await server.submit(envelope)).json() for _ in range(2)]
    assert second == {"request_id": first["request_id"], "duplicate": True, "status": "accepted"}


async def test_a_message_for_nobody_is_a_dead_letter_and_says_so(server: Opened) -> None:
    body = (await server.submit(envelope_json("?", channel="webhook") | {"source": _webhook()})).json()
    assert (body["triage_decision"], body["triage_target"]) == ("dead_letter", "root")
    dead_letters = (await server.http.get("/v1/dead-letters")).json()["dead_letters"]
    assert [dead_letter["request_id"] for dead_letter in dead_letters] == [body["request_id"]]
    whole = (await server.http.get(f"/v1/dead-letters/{dead_letters[0]['dead_letter_id']}")).json()
    assert whole["payload"]["payload"]["normalized_text"] == "?"
    assert whole["category"] == "no_route"
    assert [notice["system_id"] for notice in whole["notices"]] == ["System4/root"]


def _webhook() -> dict[str, str]:
    return {"channel": "webhook", "provider": "http", "endpoint_identity": "hook"}


async def test_a_mail_comes_in_byte_for_byte(server: Opened) -> None:
    headers = {"content-type": "message/rfc822"}
    answer = await server.http.post("/v1/ingest?endpoint=me@example.org&provider=file", content=MAIL, headers=headers)
    assert answer.status_code == 202
    url = f"/v1/messages/{answer.json()['request_id']}"
    kept = await server.http.get(f"{url}/raw")
    assert (kept.content, kept.headers["content-type"]) == (MAIL, "message/rfc822")
    message = (await server.http.get(url)).json()
    assert (message["channel"], message["endpoint"], message["sender"]) == (
        "email",
        "me@example.org",
        "joe@example.org",
    )
    explained = (await server.http.get(f"{url}/explain")).json()
    looked_at = explained["decisions"][0]["trail"][0]["considered"]
    assert looked_at[-1]["fired"]


async def test_a_mail_without_its_account_or_without_sense_is_refused(server: Opened) -> None:
    headers = {"content-type": "message/rfc822"}
    assert error_of(await server.http.post("/v1/ingest", content=MAIL, headers=headers)) == (422, "missing_field")
    refused = await server.http.post("/v1/ingest?endpoint=me@x.org", content=b"  ", headers=headers)
    assert error_of(refused) == (422, "unreadable_mail")


async def test_the_idempotency_key_header_fills_the_field(server: Opened) -> None:
    answers = [
        (await server.submit(envelope_json("pay", event=str(n)), **{"idempotency-key": "k1"})).json() for n in range(2)
    ]
    assert [a["duplicate"] for a in answers] == [False, True]
    differing = await server.submit(envelope_json("pay", key="other"), **{"idempotency-key": "k1"})
    assert error_of(differing) == (422, "conflicting_idempotency_keys")
    another = await server.submit(envelope_json("pay twice", event="2"), **{"idempotency-key": "k1"})
    assert error_of(another) == (422, "idempotency_mismatch")
    assert another.json()["error"]["details"] == {"request_id": answers[0]["request_id"]}
    assert error_of(await server.submit(envelope_json("pay"), **{"idempotency-key": "k" * 513})) == (
        422,
        "invalid_value",
    )


async def test_the_header_names_an_event_that_has_no_id_of_its_own(server: Opened) -> None:
    taken = await server.submit(envelope_json("pay", event="unknown"), **{"idempotency-key": "k1"})
    assert taken.status_code == 202
    assert error_of(await server.submit(envelope_json("pay", event="unknown"))) == (422, "placeholder_event_id")


async def test_one_key_for_a_batch_is_refused_and_not_passed_over(server: Opened) -> None:
    body, key = {"envelopes": [envelope_json("pay")]}, {"idempotency-key": "k1"}
    assert error_of(await server.http.post("/v1/ingest/batch", json=body, headers=key)) == (422, "invalid_value")
    assert await server.lab.count("select count(*) from message_inbox") == 0


@pytest.mark.parametrize(
    ("content", "media_type", "expected"),
    [
        (b"{", "application/json", (400, "invalid_json")),
        (b"", "application/json", (400, "invalid_json")),
        (b"\xff\xfe", "application/json", (400, "invalid_utf8")),
        (b"[]", "application/json", (422, "wrong_type")),
        (b"{}", "application/json", (422, "missing_field")),
        (b"{}", "text/plain", (415, "unsupported_media_type")),
        (b"{}", "application/x-www-form-urlencoded", (415, "unsupported_media_type")),
        (b'{"schema_version":"ingest.v2"}', "application/json", (422, "unsupported_schema_version")),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "application/json", (422, "too_deep")),
        (b'{"schema_version":"\\ud800"}', "application/json; charset=utf-8", (422, "lone_surrogate")),
    ],
)
async def test_what_is_not_an_envelope_is_refused_in_one_shape(
    server: Opened, content: bytes, media_type: str, expected: tuple[int, str]
) -> None:
    answer = await server.http.post("/v1/ingest", content=content, headers={"content-type": media_type})
    assert error_of(answer) == expected
    assert await server.lab.count("select count(*) from message_inbox") == 0


@pytest.mark.parametrize("path", ["/v1/ingest", "/v1/ingest/batch", "/v1/rules", "/v1/outbox/next", "/v1/tokens"])
async def test_invalid_json_and_a_missing_field_are_told_alike_everywhere(server: Opened, path: str) -> None:
    headers = {"content-type": "application/json"}
    cases = {
        b"": (400, "invalid_json"),
        b"{": (400, "invalid_json"),
        b"\xff": (400, "invalid_utf8"),
        b"{}": (422, "missing_field"),
    }
    for content, expected in cases.items():
        assert error_of(await server.http.post(path, content=content, headers=headers)) == expected, content[:20]


async def test_too_large_bodies_are_cut_off_with_and_without_a_declared_length(
    database_url: str, tmp_path: Path
) -> None:
    async def stream() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 1000

    headers = {"content-type": "application/json"}
    async with open_server(database_url, tmp_path / "data", message_bytes=10_000, batch_bytes=20_000) as server:
        for path in ("/v1/ingest", "/v1/ingest/batch", "/mcp", "/v1/outbox/next"):
            declared = await server.http.post(path, content=b"x" * 50_000, headers=headers)
            assert error_of(declared) == (413, "too_large")
            assert error_of(await server.http.post(path, content=stream(), headers=headers)) == (413, "too_large")
        # what fits into a batch may still be too large for one message
        batch = {"envelopes": [envelope_json("x" * 12_000), envelope_json("small")]}
        big, small = (await server.http.post("/v1/ingest/batch", json=batch)).json()["results"]
        assert big["error"]["code"] == "too_large"
        assert small["status"] == "accepted"


@pytest.mark.parametrize("size", [3_000_000, 20_000_000])
async def test_who_sends_far_too_much_is_told_so_and_not_cut_off(server: Opened, size: int) -> None:
    """Who is cut off does not know why, and tries again for ever."""
    headers = {"content-type": "application/json"}
    answer = await server.http.post("/v1/ingest", content=bytes(size), headers=headers)
    assert error_of(answer) == (413, "too_large")
    stranger = await server.http.post("/v1/ingest", content=bytes(size), headers={**headers, "authorization": ""})
    assert stranger.status_code == 401


async def test_a_batch_answers_per_envelope_in_order_and_keeps_what_is_good(server: Opened) -> None:
    good, bad, unknown = envelope_json("a"), {"schema_version": "ingest.v1"}, envelope_json("b", channel="fax")
    answer = await server.http.post("/v1/ingest/batch", json={"envelopes": [good, bad, unknown, good]})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [r.get("status") or r["error"]["code"] for r in results] == [
        "accepted",
        "missing_field",
        "unknown_channel",
        "accepted",
    ]
    assert results[3]["request_id"] == results[0]["request_id"]
    assert results[3]["duplicate"] is True
    assert await server.lab.count("select count(*) from message_inbox") == 1


@pytest.mark.parametrize("envelopes", [[], [{}] * 201])
async def test_a_batch_has_1_to_200_envelopes(server: Opened, envelopes: list[object]) -> None:
    assert error_of(await server.http.post("/v1/ingest/batch", json={"envelopes": envelopes})) == (422, "batch_size")


async def test_a_full_backlog_is_told_with_retry_after(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path / "data", backlog=1) as server:
        assert (await server.submit(envelope_json("one"))).status_code == 202
        watching = asyncio.create_task(server.switchboard.accept.watch_backlog(0.01))
        answer = await server.submit(envelope_json("two"))
        while answer.status_code == 202:  # until the backlog was measured
            answer = await server.submit(envelope_json("two"))
        watching.cancel()
        assert error_of(answer) == (429, "overloaded")
        assert int(answer.headers["retry-after"]) >= 1
        batch = await server.http.post("/v1/ingest/batch", json={"envelopes": [envelope_json("three")] * 2})
        assert error_of(batch) == (429, "overloaded"), "nothing of it was taken: that must not look like success"


async def test_a_sender_over_its_rate_is_told_when_to_come_again(database_url: str, tmp_path: Path) -> None:
    async with open_server(database_url, tmp_path / "data", sender_per_minute=1) as server:
        server.http.headers.update(await server.token_for(CONNECTOR))
        given = [envelope_json("one"), envelope_json("two"), envelope_json("three", sender="bob")]
        first, second, third = (await server.http.post("/v1/ingest/batch", json={"envelopes": given})).json()["results"]
        assert (first["status"], third["status"]) == ("accepted", "accepted")
        assert second["error"]["code"] == "sender_over_rate"
        assert second["error"]["field"] == "sender.identity"
        assert 0 < second["error"]["details"]["retry_after_s"] <= 60
        answer = await server.submit(given[1])
        assert error_of(answer) == (429, "sender_over_rate")
        assert 0 < int(answer.headers["retry-after"]) <= 60


async def test_health_tells_when_clocks_too_far_apart_stop_all_acceptance(
    server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = DatabaseClock(lambda: datetime.now(UTC) - timedelta(seconds=40))
    await clock.measure(server.lab.database)
    monkeypatch.setattr(server.lab.accept, "_clock", clock)
    assert error_of(await server.submit(envelope_json("refused"))) == (503, "unavailable")
    health = await server.http.get("/health")
    assert (health.status_code, health.json()["status"]) == (503, "unavailable")


async def test_a_lost_database_is_503_everywhere_and_told_by_health(server: Opened) -> None:
    await server.http.get("/v1/teams")  # the token is known for two seconds
    await server.lab.database.close()
    answer = await server.submit(envelope_json("lost?"))
    assert error_of(answer) == (503, "unavailable")
    assert answer.headers["retry-after"] == "1"
    health = await server.http.get("/health")
    assert (health.status_code, health.json()["status"]) == (503, "unavailable")


async def test_a_defect_of_ours_is_500_in_our_shape_and_tells_nothing(server: Opened) -> None:
    await server.lab.database.run("alter function accept_messages rename to no_longer_there")
    await server.lab.database.run("alter table delivery rename to gone")
    with capture_logs():  # the traces are long, and their place is not here
        answers = [await server.submit(envelope_json("x")), await server.http.get("/v1/deliveries")]
    for answer in answers:
        assert error_of(answer) == (500, "internal_error")
        assert "accept_messages" not in answer.text
        assert "delivery" not in answer.text


# Out -----------------------------------------------------------------------------------------------------------------


async def test_a_reply_is_waited_for_and_the_whole_way_can_be_explained(answering: Opened) -> None:
    request_id = (await answering.submit(envelope_json("hello", channel="api"))).json()["request_id"]
    replies = (await answering.http.get(f"/v1/messages/{request_id}/replies?wait_s=20")).json()
    assert (replies["settled"], replies["state"]) == (True, "answered")
    assert [reply["text"] for reply in replies["replies"]] == ["hello"]
    explained = (await answering.http.get(f"/v1/messages/{request_id}/explain")).json()
    [step] = explained["decisions"][0]["trail"]
    assert step["reason"] == "rule"
    assert [(one["fired"], one["failed_filter"]) for one in step["considered"]][-1] == (True, None)
    [delivery] = explained["deliveries"]
    assert delivery["delivery"]["state"] == "answered"
    assert [attempt["outcome"] for attempt in delivery["attempts"]] == ["answered"]
    assert explained["replies"][0]["reply"]["state"] == "sent"


async def test_a_message_without_stored_facts_is_explained_without_reasons(server: Opened) -> None:
    request_id = (await server.submit(envelope_json("hello"))).json()["request_id"]
    await server.lab.database.run("update decision set facts = null")
    await server.lab.database.run("delete from message_raw")
    explained = (await server.http.get(f"/v1/messages/{request_id}/explain")).json()
    assert [step["considered"] for step in explained["decisions"][0]["trail"]] == [None]


async def test_a_connector_fetches_replies_in_order_and_hands_in_receipts(answering: Opened) -> None:
    headers = await answering.token_for(CONNECTOR)
    ids = [(await answering.submit(envelope_json(text))).json()["request_id"] for text in ("one", "two")]
    for request_id in ids:
        await answering.http.get(f"/v1/messages/{request_id}/replies?wait_s=20")
    request = {"channel": "telegram", "endpoint": "bot:house", "wait_s": 20}
    seen = []
    for _ in range(2):
        [reply] = (await answering.http.post("/v1/outbox/next", json=request, headers=headers)).json()["replies"]
        assert reply["idempotency_key"] == reply["outbox_id"]
        assert (reply["recipient"], reply["thread"]) == ("alice", None)
        seen.append(reply["text"])
        url = f"/v1/outbox/{reply['outbox_id']}/receipt"
        stale = {"lease": reply["lease"] + 1, "outcome": "sent"}
        assert error_of(await answering.http.post(url, json=stale, headers=headers)) == (409, "conflict")
        receipt = {"lease": reply["lease"], "outcome": "sent", "platform_message_id": "m1"}
        assert (await answering.http.post(url, json=receipt, headers=headers)).json() == {"state": "sent"}
        assert error_of(await answering.http.post(url, json=receipt, headers=headers)) == (409, "conflict")
    assert seen == ["one", "two"]
    refused = await answering.http.post(f"/v1/outbox/{uuid4()}/receipt", json={"lease": 1, "outcome": "sent"})
    assert error_of(refused) == (404, "not_found")


async def test_what_failed_is_sent_again_on_demand(answering: Opened) -> None:
    request_id = (await answering.submit(envelope_json("one"))).json()["request_id"]
    await answering.http.get(f"/v1/messages/{request_id}/replies?wait_s=20")
    [reply] = (
        await answering.http.post("/v1/outbox/next", json={"channel": "telegram", "endpoint": "bot:house"})
    ).json()["replies"]
    url = f"/v1/outbox/{reply['outbox_id']}"
    assert error_of(await answering.http.post(f"{url}/resend")) == (409, "conflict")
    await answering.http.post(f"{url}/receipt", json={"lease": reply["lease"], "outcome": "failed", "error": "blocked"})
    [failed] = (await answering.http.get("/v1/outbox?state=failed")).json()["replies"]
    assert failed["error"] == "blocked"
    assert (await answering.http.post(f"{url}/resend")).json() == {"state": "pending"}


async def test_a_connector_that_hangs_up_while_waiting_loses_nothing(answering: Opened) -> None:
    request = {"channel": "telegram", "endpoint": "bot:house", "wait_s": 30}
    with pytest.raises(httpx2.ReadTimeout):
        await answering.http.post("/v1/outbox/next", json=request, timeout=0.3)
    await answering.submit(envelope_json("still there?"))
    [reply] = (await answering.http.post("/v1/outbox/next", json=request)).json()["replies"]
    assert reply["text"] == "still there?"


async def test_pages_hold_everything_once_newest_first(server: Opened) -> None:
    sent = [(await server.submit(envelope_json(f"m{n}", sender=f"s{n}"))).json()["request_id"] for n in range(7)]
    for path, key in (("/v1/messages", "messages"), ("/v1/deliveries", "deliveries")):
        seen: list[str] = []
        cursor: str | None = None
        while True:
            page = (await server.http.get(path, params={"limit": 3, **({"cursor": cursor} if cursor else {})})).json()
            seen += [row["request_id"] for row in page[key]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert seen == sent[::-1]
        assert error_of(await server.http.get(path, params={"cursor": "?"})) == (422, "invalid_cursor")


async def test_filters_narrow_lists(answering: Opened) -> None:
    request_id = (await answering.submit(envelope_json("a", channel="api"))).json()["request_id"]
    await answering.submit(envelope_json("b", channel="telegram"))
    await answering.http.get(f"/v1/messages/{request_id}/replies?wait_s=20")
    found = (await answering.http.get("/v1/messages?channel=api&endpoint=bot:house")).json()["messages"]
    assert [m["request_id"] for m in found] == [request_id]
    answered = (await answering.http.get("/v1/deliveries?state=answered&system_id=System1/echo")).json()["deliveries"]
    assert request_id in [d["request_id"] for d in answered]
    assert error_of(await answering.http.get("/v1/deliveries?state=lost"))[0] == 422


async def test_of_a_team_with_many_rules_the_first_are_shown_and_all_are_counted(
    database_url: str, tmp_path: Path
) -> None:
    many = [rule("System1/echo", channel="telegram", sender=f"s{n}") for n in range(120)]
    last, first = replace(many[0], active=False, priority=9), replace(many[100], priority=5)
    given = [*RULES, last, *many[1:100], first, *many[101:]]
    async with open_server(database_url, tmp_path / "data", tree=(TEAMS, tuple(given))) as server:
        root, side = (await server.http.get("/v1/teams")).json()["teams"]
        assert (len(root["rules"]), root["rule_count"]) == (100, 124)
        assert (side["rules"], side["rule_count"]) == ([], 0)
        assert root == (await server.http.get("/v1/teams/root")).json()
    order = in_order(given)[:100]
    assert order[0] == first
    assert [one["rule_id"] for one in root["rules"]] == [str(one.rule_id) for one in order]


async def test_teams_agents_connectors_lanes(server: Opened) -> None:
    teams = (await server.http.get("/v1/teams")).json()
    assert [team["team_id"] for team in teams["teams"]] == ["root", "side"]
    assert "options" not in teams["teams"][0]["members"][0]
    assert [(len(team["rules"]), team["rule_count"]) for team in teams["teams"]] == [(4, 4), (0, 0)]
    assert (await server.http.get("/v1/teams/side")).json()["parent_id"] == "root"
    assert error_of(await server.http.get("/v1/teams/nobody")) == (404, "not_found")
    await server.submit(envelope_json("a"))
    agents = {a["system_id"]: a for a in (await server.http.get("/v1/agents")).json()["agents"]}
    assert agents["System1/echo"]["in_flight"] == 1
    beat = {
        "channel": "telegram",
        "endpoint": "bot:house",
        "instance_id": "i1",
        "state": "healthy",
        "counters": {"a": 1},
    }
    assert (await server.http.post("/v1/connectors/heartbeat", json=beat)).json() == {"status": "ok", "interval_s": 120}
    [connector] = (await server.http.get("/v1/connectors")).json()["connectors"]
    assert (connector["liveness"], connector["counters"]) == ("online", {"a": 1})
    await server.lab.database.run("update connector set last_seen_at = now() - interval '9 minutes'")
    assert (await server.http.get("/v1/connectors")).json()["connectors"][0]["liveness"] == "stale"
    [lane] = (await server.http.get("/v1/lanes")).json()["lanes"]
    assert error_of(await server.http.post("/v1/lanes/resume", json={"lane": lane["lane"]})) == (404, "not_found")
    await server.lab.database.run("update lane set state = 'paused'")
    resumed = await server.http.post("/v1/lanes/resume", json={"lane": lane["lane"]})
    assert resumed.json()["state"] == "resumed"


async def test_metrics_count_what_the_server_did(server: Opened) -> None:
    envelope = envelope_json("a", event="1")
    await server.submit(envelope)
    await server.submit(envelope)
    await server.submit({})
    text = (await server.http.get("/metrics")).text
    assert 'switchboard_accepted_total{channel="telegram"} 1.0' in text
    assert "switchboard_duplicates_total 1.0" in text
    assert 'switchboard_refused_total{code="missing_field"} 1.0' in text
    assert "switchboard_backlog 1.0" in text
    assert 'switchboard_lanes{state="ready"} 1.0' in text
    assert 'switchboard_books_difference{kind="messages"} 0.0' in text
    assert "switchboard_books_age_seconds +Inf" in text


async def metric(server: Opened, name: str) -> float:
    """One value, by its name with labels."""
    text = (await server.http.get("/metrics")).text
    [line] = [line for line in text.splitlines() if line.startswith(f"switchboard_{name} ")]
    return float(line.rpartition(" ")[2])


async def test_what_lies_in_quarantine_and_the_oldest_snapshot_are_measured(server: Opened) -> None:
    event = {"channel": "telegram", "endpoint": "bot:1", "event_id": "1", "reason": "no chat", "raw": "e30="}
    assert (await server.http.post("/v1/quarantine", json=event)).status_code == 200
    assert await metric(server, "quarantined_events") == 1
    async with server.lab.database.transaction() as one:
        await one.run("set transaction isolation level repeatable read")
        await one.value("select 1")
        assert await metric(server, "oldest_snapshot_seconds") > 0


async def test_the_oldest_waiting_is_what_waits_for_a_worker(server: Opened) -> None:
    assert await metric(server, "oldest_waiting_seconds") == 0
    await server.submit(envelope_json("a", sender="a"))
    await server.submit(envelope_json("b", sender="b"))
    an_hour_ago = "update lane set ready_at = clock_timestamp() - interval '1 hour' where kind = 'turn' and key = $1"
    key = await server.lab.database.value("select min(key::text)::uuid from lane where kind = 'turn'")
    await server.lab.database.run(an_hour_ago, key)
    assert await metric(server, "oldest_waiting_seconds") >= 3600


async def test_replies_that_wait_are_measured_apart_from_what_waits_for_a_worker(answering: Opened) -> None:
    database = answering.lab.database
    ids = [(await answering.submit(envelope_json("a", sender=name))).json()["request_id"] for name in "abc"]
    for request_id in ids:
        assert (await answering.http.get(f"/v1/messages/{request_id}/replies?wait_s=30")).json()["replies"]
    old = "update outbox set created_at = created_at - interval '1 hour' where request_id = $1"
    await database.run(old, UUID(ids[0]))
    await database.run("update lane set ready_at = ready_at - interval '1 hour' where kind = 'send'")
    assert await metric(answering, "replies_waiting") == 3
    assert await metric(answering, "oldest_reply_seconds") >= 3600
    assert await metric(answering, "oldest_waiting_seconds") == 0
    pull = {"channel": "telegram", "endpoint": "bot:house", "limit": 2}
    leased = (await answering.http.post("/v1/outbox/next", json=pull)).json()["replies"]
    assert await metric(answering, "replies_waiting") == 3, "they are on their way"
    for one, outcome in zip(leased, ("uncertain", "sent"), strict=True):
        receipt = {"lease": one["lease"], "outcome": outcome}
        assert (await answering.http.post(f"/v1/outbox/{one['outbox_id']}/receipt", json=receipt)).status_code == 200
    assert await metric(answering, "replies_waiting") == 1
    unsent = [
        await metric(answering, f'replies_unsent{{state="{state}"}}') for state in ("uncertain", "failed", "dead")
    ]
    assert unsent == [1, 0, 0]


def _beat(endpoint: str, state: str) -> dict[str, object]:
    return {"channel": "telegram", "endpoint": endpoint, "instance_id": "1", "state": state}


async def test_connectors_are_counted_by_state_and_doctor_names_the_missed_ones(answering: Opened) -> None:
    database = answering.lab.database
    for endpoint, state in (("well", "healthy"), ("ill", "degraded"), ("late", "healthy"), ("gone", "healthy")):
        await answering.http.post("/v1/connectors/heartbeat", json=_beat(endpoint, state))
    silent = "update connector set last_seen_at = last_seen_at - $1::interval where endpoint = $2"
    await database.run(silent, timedelta(seconds=300), "late")
    await database.run(silent, timedelta(days=31), "gone")
    states = ("healthy", "degraded", "failed", "stale", "offline")
    found = [await metric(answering, f'connectors{{state="{state}"}}') for state in states]
    assert found == [1, 1, 0, 1, 1]

    request_id = (await answering.submit(envelope_json("a"))).json()["request_id"]
    assert (await answering.http.get(f"/v1/messages/{request_id}/replies?wait_s=30")).json()["replies"]
    settings = Settings(data_dir=Path("/nowhere"), database_url=SecretStr(database.url))
    named = [one for one in await check_database(settings) if one.name == "connector"]
    assert {one.status for one in named} == {"warning"}
    told = [one.detail.partition(" ")[0] for one in named]
    assert told == ["telegram/ill", "telegram/late", "telegram/bot:house:"]
    assert "1 reply waiting since" in named[-1].detail
    assert "no connector has ever reported there" in named[-1].detail


async def test_books_are_read_as_a_worker_wrote_them_down(server: Opened) -> None:
    await server.submit(envelope_json("a"))
    never = (await server.http.get("/v1/books")).json()
    assert (never["accepted"], never["balanced_at"], never["stale"]) == (0, None, True)
    assert (await server.http.get("/v1/books", params={"now": True})).json()["accepted"] == 1
    await server.submit(envelope_json("b"))
    kept = (await server.http.get("/v1/books")).json()
    assert (kept["accepted"], kept["targets"]["accepted"], kept["stale"]) == (1, 1, False)
    assert 'switchboard_books_difference{kind="messages"} 0.0' in (await server.http.get("/metrics")).text


async def test_the_documentation_needs_no_internet(server: Opened) -> None:
    page = await server.http.get("/docs", headers={"authorization": ""})
    assert page.status_code == 200
    assert not re.search(r'(src|href)="(https?:)?//', page.text)
    assert page.text.count("<script") == 1
    assert "/v1/outbox/next" in page.text
    schema = (await server.http.get("/openapi.json", headers={"authorization": ""})).json()
    assert schema["components"]["schemas"]["Envelope"]["required"]
    published = (await server.http.get("/schemas/ingest.v1.json", headers={"authorization": ""})).json()
    assert published["$id"] == "/schemas/ingest.v1.json"


async def test_a_slash_after_docs_redirects_there_and_opens_nothing_else(server: Opened) -> None:
    stranger = {"authorization": ""}
    led = await server.http.get("/docs/?token=x", headers=stranger)
    assert (led.status_code, led.headers["location"], led.content) == (308, "/docs", b"")
    assert error_of(await server.http.post("/docs/", headers=stranger)) == (405, "method_not_allowed")
    for path in ("/docs/x", "/docs//", "/openapi.json/", "/v1/messages/"):
        assert error_of(await server.http.get(path, headers=stranger)) == (401, "unauthenticated"), path


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
async def test_pages_are_public_made_once_and_may_run_nothing_of_others(server: Opened, path: str) -> None:
    first, second = [await server.http.get(path, headers={"authorization": ""}) for _ in range(2)]
    assert first.status_code == 200
    assert first.content == second.content
    assert first.headers["cache-control"].startswith("public, max-age=")
    assert first.headers["x-content-type-options"] == "nosniff"
    if path != "/openapi.json":
        policy = first.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        [style] = re.findall(r"<style>(.*?)</style>", first.text, re.DOTALL)
        assert b64encode(sha256(style.encode()).digest()).decode() in policy
        for script in re.findall(r"<script>(.*?)</script>", first.text, re.DOTALL):
            assert b64encode(sha256(script.encode()).digest()).decode() in policy
            assert "connect-src 'self'" in policy


async def test_the_documentation_can_try_every_call_and_keeps_no_token(server: Opened) -> None:
    page = (await server.http.get("/docs", headers={"authorization": ""})).text
    paths = (await server.http.get("/openapi.json")).json()["paths"]
    calls = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert set(re.findall(r'<div data-method="(\w+)" data-path="([^"]+)"', page)) == calls
    [script] = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    for kept in ("localStorage", "sessionStorage", "cookie", "indexedDB", "innerHTML", "http"):
        assert kept not in script
    bodies = re.findall(r'<textarea rows="8" data-type="application/json">(.*?)</textarea>', page, re.DOTALL)
    for body in bodies:
        json.loads(unescape(body))
    operations = [one for methods in paths.values() for one in methods.values()]
    assert len(bodies) == sum("application/json" in one.get("requestBody", {}).get("content", {}) for one in operations)
    assert page.count('type="password" autocomplete="off"') == 1


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/v1/messages", "/metrics", "/mcp"])
async def test_a_page_that_calls_itself_by_our_address_gets_nothing(server: Opened, path: str) -> None:
    """DNS rebinding: its name leads to us, and the browser takes us for its own server."""
    refused = await server.http.get(path, headers={"host": "evil.example:8470"})
    assert error_of(refused) == (421, "unknown_host")
    assert "public_names" in refused.json()["error"]["message"]


OWN_NAMES = (
    *("127.0.0.1", "127.0.0.1:1", "localhost", "LOCALHOST.", "app.localhost:80", "[::1]", "[::1]:8470"),
    *("192.0.2.7:8470", socket.gethostname(), "proxy.example", "PROXY.example:443"),
)
FOREIGN_NAMES = (
    *("localhost.evil.example", "127.0.0.1.evil.example", "evil.example", "evil.example:8470", "other"),
    *("sub.proxy.example", "proxy.example.evil", "[evil]", "1", "", ":8470"),
)


async def test_the_server_answers_by_its_own_names(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWITCHBOARD_PUBLIC_NAMES", '["Proxy.example"]')
    async with open_server(database_url, tmp_path / "data") as server:
        for host in (*OWN_NAMES, *FOREIGN_NAMES, *OWN_NAMES, *FOREIGN_NAMES):
            answered = await server.http.get("/v1/messages", headers={"host": host})
            assert answered.status_code == (200 if host in OWN_NAMES else 421), host
            assert (await server.http.get("/health", headers={"host": host})).status_code == 200
        accept = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        by_proxy = {"host": "proxy.example", "origin": "https://proxy.example"}
        assert (await server.http.post("/mcp", json=call, headers=accept | by_proxy)).status_code == 200


async def test_any_name_may_be_allowed(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBOARD_PUBLIC_NAMES", '["*"]')
    async with open_server(database_url, tmp_path / "data") as server:
        assert (await server.http.get("/v1/messages", headers={"host": "any.example"})).status_code == 200


async def test_whoever_opens_the_address_is_led_to_the_page_for_people(server: Opened) -> None:
    for path in ("/", "/ui"):
        led = await server.http.get(path, headers={"authorization": ""})
        assert (led.status_code, led.headers["location"]) == (307, "/ui/")
    page = await server.http.get("/ui/", headers={"authorization": ""})
    assert page.status_code == 200
    assert "switchboard open" in page.text


async def test_every_time_that_is_told_ends_in_z(server: Opened) -> None:
    envelope = envelope_json("at the sea", channel="webhook") | {"source": _webhook()}
    envelope["event"] |= {"observed_at": "2026-01-31T14:00:00+02:00"}
    request_id = (await server.submit(envelope)).json()["request_id"]
    rule = {"team_id": "root", "name": "n", "channel": "irc", "targets": [{"system_id": "System1/echo"}], "reason": "r"}
    made = (await server.http.post("/v1/rules", json=rule)).json()
    [dead_letter] = (await server.http.get("/v1/dead-letters")).json()["dead_letters"]
    paths = [
        *("/v1/messages", f"/v1/messages/{request_id}", f"/v1/messages/{request_id}/explain", "/v1/dead-letters"),
        *(f"/v1/dead-letters/{dead_letter['dead_letter_id']}", "/v1/rules", f"/v1/rules/{made['rule']['rule_id']}"),
        *("/v1/rules/versions", "/v1/rules/versions/2", "/v1/rules/export", "/v1/tokens", "/v1/audit", "/v1/books"),
        *("/v1/teams", "/v1/agents", "/v1/rules/diff?from=1&to=2", "/v1/deliveries", "/v1/lanes", "/v1/outbox"),
    ]
    told: list[str] = []
    for path in paths:
        answer = await server.http.get(path)
        assert answer.status_code == 200, path
        told += re.findall(r"\d{4}-\d\d-\d\dT[^\"]*", _without_originals(answer))
    assert len(told) > 20
    assert [moment for moment in told if not moment.endswith("Z")] == []


def _without_originals(answer: httpx2.Response) -> str:
    """What the sender wrote stays as it is."""
    body = answer.json()
    return json.dumps({k: v for k, v in body.items() if k not in {"payload", "envelope"}})


@pytest.mark.parametrize("path", ["/", "/docs", "/health", "/schemas/route.v1.json", "/v1/teams", "/v1/nothing"])
async def test_head_is_get_without_the_body(server: Opened, path: str) -> None:
    got, head = await server.http.get(path), await server.http.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    varying = {"date", "request-id"}
    assert {k: v for k, v in head.headers.items() if k not in varying} == {
        k: v for k, v in got.headers.items() if k not in varying
    }


async def test_every_response_names_its_request_and_so_do_its_logs(server: Opened) -> None:
    teams = await server.http.get("/v1/teams")
    stranger = await server.http.get("/v1/teams", headers={"authorization": ""})
    unknown = await server.http.get("/v1/nothing")
    submitted, mcp = await server.submit(envelope_json("a")), await server.http.post("/mcp", json={})
    with capture_logs([merge_contextvars]) as entries:
        connector = await server.token_for(CONNECTOR)
        refused = await server.http.get("/v1/tokens", headers=connector)
    answers = (teams, stranger, unknown, submitted, mcp, refused)
    ids = [answer.headers["request-id"] for answer in answers]
    assert len(set(ids)) == len(ids)
    assert [entry["http_request"] for entry in entries if entry["event"] == "refused"] == [ids[-1]]


async def test_unknown_paths_and_methods_answer_in_our_shape(server: Opened) -> None:
    nothing = await server.http.get("/v1/nothing")
    assert error_of(nothing) == (404, "not_found")
    assert nothing.json()["error"]["message"] == "nothing is served at this path; all paths are listed at /docs"
    wrong = await server.http.put("/v1/ingest")
    assert error_of(wrong) == (405, "method_not_allowed")
    assert wrong.json()["error"]["message"].startswith("PUT is not possible at this path, but POST")
    assert wrong.headers["allow"] == "POST"
    assert error_of(await server.http.get("/v1/messages/no-uuid"))[0] == 422
    nul = await server.http.get("/v1/messages", params={"channel": "a\x00b"})
    assert error_of(nul)[0] == 422


# The end -------------------------------------------------------------------------------------------------------------


async def both_wait(server: Opened) -> bool:
    return "switchboard_long_polls 2.0" in (await server.http.get("/metrics")).text


async def test_it_stops_although_somebody_waits(server: Opened) -> None:
    request_id = (await server.submit(envelope_json("a"))).json()["request_id"]
    waiting = [
        asyncio.create_task(server.http.get(f"/v1/messages/{request_id}/replies?wait_s=60", timeout=70)),
        asyncio.create_task(
            server.http.post("/v1/outbox/next", json={"channel": "slack", "endpoint": "x", "wait_s": 60}, timeout=70)
        ),
    ]
    await eventually(lambda: both_wait(server))
    started = time.monotonic()
    server.stop.set()
    replies, outbox = await asyncio.gather(*waiting)
    await server.served
    assert time.monotonic() - started < 30, "not only when the polls were over by themselves"
    assert replies.json()["settled"] is False
    assert outbox.json() == {"replies": []}


async def test_a_port_in_use_is_named_with_what_to_do(server: Opened) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(ConfigurationError, match=rf"127.0.0.1:{port} is in use .* choose another port"):
        bind("127.0.0.1", port)
    with pytest.raises(ConfigurationError, match="not an address to listen on"):
        bind("nowhere.invalid", 0)
    with pytest.raises(ConfigurationError, match="is not an address to listen on"):
        bind("", 0)


async def test_secrets_and_bodies_are_never_logged(database_url: str, tmp_path: Path) -> None:
    with capture_logs() as entries:
        async with open_server(database_url, tmp_path / "data", worker=True) as server:
            headers = await server.token_for(CONNECTOR)
            await server.submit(envelope_json("canary-text"))
            await server.http.get("/v1/books", headers=headers)
            await server.http.get("/v1/books", headers={"authorization": "Bearer sb_o_canary-token"})
            text = repr(entries)
            assert any(entry["event"] == "refused" for entry in entries)
            for secret in (server.token, headers["authorization"], "canary-text", "canary-token"):
                assert secret not in text
            audited = await server.lab.database.rows("select actor, action, detail::text from audit")
            assert server.token not in repr(audited)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/dead-letters?categry=no_route", "'categry' here; did you mean category?"),
        ("/v1/rules?team=root", "did you mean team_id?"),
        ("/v1/messages?limit=1&limits=2", "'limits'"),
        ("/v1/rules/lint?x=1", "there are none"),
        ("/health?verbose=1", "there are none"),
    ],
)
async def test_a_parameter_that_a_route_does_not_know_is_refused(server: Opened, path: str, meant: str) -> None:
    refused = await server.http.get(path)
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "unknown_parameter"
    assert meant in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/ingest?endpoint=me@x.org", "there are none"),
        ("/v1/ingest?wait_s=1", "there are none"),
        ("/v1/ingest/batch?wait_s=1", "there are none"),
    ],
)
async def test_so_is_one_with_which_a_message_comes(server: Opened, path: str, meant: str) -> None:
    refused = await server.http.post(path, json=envelope_json("x"))
    assert refused.status_code == 422
    assert (refused.json()["error"]["code"], refused.json()["error"]["field"]) == (
        "unknown_parameter",
        path.partition("?")[2].partition("=")[0],
    )
    assert meant in refused.json()["error"]["message"]
    assert await server.lab.count("select count(*) from message_inbox") == 0


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("endpiont=me@x.org", "did you mean endpoint?"),
        ("endpoint=me@x.org&endpoint=you@x.org", "'endpoint' occurs twice"),
    ],
)
async def test_so_is_one_with_which_a_mail_comes(server: Opened, query: str, said: str) -> None:
    refused = await server.http.post(f"/v1/ingest?{query}", content=MAIL, headers={"content-type": "message/rfc822"})
    assert refused.status_code == 422
    assert said in refused.json()["error"]["message"]
    assert await server.lab.count("select count(*) from message_inbox") == 0
