"""Attacks: attempts to read, lose, duplicate or misroute other people's messages, or to stop the server.

Each test is an attack that was carried out against running processes; most of them were turned away, and these keep it
so. A real server, a real database and, where the attack needs one, a worker.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from switchboard.app.access import Principal
from switchboard.journey.reply import PullRequest
from tests.lab import Lab, butler, envelope_json, lab, rule, submission, team_of
from tests.servers import AGENT, CONNECTOR, Opened, open_server
from tests.waiting import SOON, eventually

OTHER = Principal("connector", "other", "telegram", "bot:office")
REPLIES = {"channel": "telegram", "endpoint": "bot:house"}


async def answered(server: Opened, text: str = "hello", **more: Any) -> tuple[str, str]:
    """A message submitted and answered: (request_id, outbox_id)."""
    accepted = await server.submit(envelope_json(text, **more))
    request_id = accepted.json()["request_id"]
    said = (await server.http.get(f"/v1/messages/{request_id}/replies?wait_s=20")).json()
    return request_id, said["replies"][0]["outbox_id"]


# Envelopes ------------------------------------------------------------------------------------------------------------


def with_nul_in_a_name(*path: str) -> dict[str, Any]:
    """An envelope in which the last name of `path` has a NUL at its end."""
    envelope = envelope_json("hello")
    at = envelope
    for name in path[:-1]:
        at = at[name]
    at[path[-1] + "\0"] = at.pop(path[-1])
    return envelope


@pytest.mark.parametrize("path", [("payload",), ("payload", "raw")])
async def test_a_nul_in_a_name_costs_nobody_else_his_message(server: Opened, path: tuple[str, ...]) -> None:
    evil = with_nul_in_a_name(*path)
    alone = await server.submit(evil)
    assert alone.status_code == 202
    batch = {"envelopes": [envelope_json("one"), evil, envelope_json("two")]}
    results = (await server.http.post("/v1/ingest/batch", json=batch)).json()["results"]
    assert [result["status"] for result in results] == ["accepted"] * 3


async def test_of_one_key_with_many_bodies_via_two_servers_one_message_is_kept(server: Opened) -> None:
    async def by_mcp(number: int) -> dict[str, Any]:
        given = {"envelopes": [envelope_json(f"mcp {number}", key="k")]}
        return dict((await tool(server, "ingest_batch", given))["results"][0])

    async def by_http(number: int) -> dict[str, Any]:
        return dict((await server.submit(envelope_json(f"http {number}", key="k"))).json())

    answers = await asyncio.gather(*(by(n) for n in range(20) for by in (by_http, by_mcp)))
    [kept] = [one["request_id"] for one in answers if "request_id" in one]
    refused = [one["error"] for one in answers if "error" in one]
    assert {(e["code"], e["details"]["request_id"]) for e in refused} == {("idempotency_mismatch", kept)}
    assert await server.lab.count("select count(*) from message_inbox") == 1


async def test_signs_that_separate_do_not_lead_into_another_conversation(server: Opened) -> None:
    pairs = [
        ("bot:house/a", "b"),
        ("bot:house", "a/b"),
        ("bot:house", "a%2Fb"),
        ("bot", "house/a/b"),
        ("bot:house", "A/b"),
    ]
    for endpoint, sender in pairs:
        await server.submit(envelope_json(endpoint=endpoint, sender=sender))
    assert await server.lab.count("select count(distinct conversation) from message_inbox") == len(pairs)
    assert await server.lab.count("select count(*) from lane where kind = 'turn'") == len(pairs)


# Tokens and scopes ----------------------------------------------------------------------------------------------------


async def test_no_other_spelling_of_a_path_or_token_gets_past_the_gate(server: Opened) -> None:
    token = server.token
    async with httpx2.AsyncClient(base_url=server.url) as stranger:
        ways = (f"/v1/books?token={token}", "/health/..%2fv1/books", "//v1/books", "/v1/books/", "/metrics;/health")
        assert {(await stranger.get(way)).status_code for way in ways} == {401}
        twice = [("authorization", f"Bearer {token}"), ("authorization", "Bearer sb_o_x")]
        assert (await stranger.get("/v1/books", headers=twice)).status_code == 401


@pytest.mark.parametrize("caller", [CONNECTOR, AGENT])
async def test_what_is_the_operators_is_no_one_elses(server: Opened, caller: Principal) -> None:
    header = await server.token_for(caller)
    reads = ("/v1/outbox", "/v1/tokens", "/v1/books", "/metrics", "/v1/lanes", "/v1/connectors")
    assert {(await server.http.get(path, headers=header)).status_code for path in reads} == {403}
    new = {"name": "mine", "role": "operator"}
    assert (await server.http.post("/v1/tokens", json=new, headers=header)).status_code == 403
    assert (await server.http.post("/v1/lanes/resume", json={"lane": "x"}, headers=header)).status_code == 403


# Replies --------------------------------------------------------------------------------------------------------------


async def test_a_guessed_lease_settles_nothing(answering: Opened) -> None:
    _, outbox_id = await answered(answering)
    own, other = await answering.token_for(CONNECTOR), await answering.token_for(OTHER)

    async def guess(header: Mapping[str, str]) -> set[int]:
        receipts = [{"lease": lease, "outcome": "sent"} for lease in range(4)]
        url = f"/v1/outbox/{outbox_id}/receipt"
        return {(await answering.http.post(url, json=r, headers=header)).status_code for r in receipts}

    assert await guess(own) == {409}
    assert await guess(other) == {404}
    leased = (await answering.http.post("/v1/outbox/next", json=REPLIES, headers=own)).json()["replies"]
    assert await guess(other) == {404}
    assert [reply["outbox_id"] for reply in leased] == [outbox_id]
    assert (await answering.http.post("/v1/outbox/next", json=REPLIES, headers=other)).status_code == 403


async def test_many_receipts_and_many_resends_at_once_count_once(answering: Opened) -> None:
    _, outbox_id = await answered(answering)
    http, own = answering.http, await answering.token_for(CONNECTOR)
    [reply] = (await http.post("/v1/outbox/next", json=REPLIES, headers=own)).json()["replies"]
    receipt = {"lease": reply["lease"], "outcome": "uncertain"}
    receipts = [http.post(f"/v1/outbox/{outbox_id}/receipt", json=receipt, headers=own) for _ in range(6)]
    assert sorted(r.status_code for r in await asyncio.gather(*receipts)) == [200, *[409] * 5]
    resends = [http.post(f"/v1/outbox/{outbox_id}/resend") for _ in range(6)]
    assert sorted(r.status_code for r in await asyncio.gather(*resends)) == [200, *[409] * 5]
    fetches = [http.post("/v1/outbox/next", json=REPLIES, headers=own) for _ in range(6)]
    leased = [reply for r in await asyncio.gather(*fetches) for reply in r.json()["replies"]]
    assert [reply["outbox_id"] for reply in leased] == [outbox_id]
    old = await http.post(f"/v1/outbox/{outbox_id}/receipt", json=receipt, headers=own)
    assert old.status_code == 409


async def test_repeated_disconnects_use_up_no_attempt(answering: Opened) -> None:
    _, outbox_id = await answered(answering)
    gone = asyncio.Event()
    gone.set()
    for _ in range(3):
        assert await answering.lab.replies.pull(PullRequest("telegram", "bot:house"), gone) == []
    [reply] = await answering.lab.replies.pull(PullRequest("telegram", "bot:house"))
    assert (str(reply.outbox_id), reply.attempts) == (outbox_id, 1)


async def test_an_endpoint_is_not_reached_by_cutting_the_names_elsewhere(answering: Opened) -> None:
    await answered(answering)
    shifted = await answering.token_for(Principal("connector", "shifted", "telegram:bot", "house"))
    asked = {"channel": "telegram:bot", "endpoint": "house"}
    leased = await answering.http.post("/v1/outbox/next", json=asked, headers=shifted)
    assert leased.json()["replies"] == []


async def test_the_colon_in_a_butlers_name_does_not_lead_his_reply_astray(database_url: str) -> None:
    teams = (team_of(butler("a:b"), "System4/root"),)
    async with lab(database_url, teams, (rule("System1/a:b"),)) as made:
        await made.accept.accept(submission("hello", thread="t"))
        await work_off(made)
        sql = "select lane_name(lane) as lane, (select name from conversation) as own from outbox"
        [reply] = await made.database.rows(sql)
        assert reply["lane"] == f"send:{reply['own']}"


async def work_off(made: Lab) -> None:
    """Let a worker do all there is to do."""
    worker = made.worker()
    running = asyncio.create_task(worker.run())
    pending = "select count(*) from delivery where state = 'pending'"

    async def done() -> bool:
        return await made.count(pending) == 0

    await eventually(done)
    worker.stop()
    await running


# Errors and sizes -----------------------------------------------------------------------------------------------------


async def tool(server: Opened, name: str, arguments: Mapping[str, Any]) -> Any:
    """Call an MCP tool; its structured answer, or the JSON-RPC error."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    headers = {"accept": "application/json, text/event-stream"}
    body = (await server.http.post("/mcp", json=call, headers=headers)).json()
    return body["result"]["structuredContent"] if "result" in body else body["error"]


async def test_a_defect_behind_a_tool_tells_the_caller_nothing_of_it(
    server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def defect(*_: object) -> None:
        raise RuntimeError("canary: postgresql://user:secret@host/db")

    monkeypatch.setattr("switchboard.app.connectors.work.ConnectorService.heartbeat", defect)
    beat = {"channel": "telegram", "endpoint": "bot", "instance_id": "x", "state": "healthy"}
    error = await tool(server, "heartbeat", beat)
    assert "canary" not in json.dumps(error)
    assert error["code"] == -32603


_HEAD: Final = b"GET /health HTTP/1.1\r\nHost: x\r\n"


async def talk(server: Opened, *pieces: bytes) -> bytes:
    """What comes back on a connection of its own until it is closed, or cut while we still send."""
    at = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 100_000,
        b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 100_000,
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-Many: b\r\n" * 10_000,
    ],
)
async def test_a_head_without_end_is_cut_off(server: Opened, head: bytes) -> None:
    # Nobody has shown a token yet, and the parser keeps all of it.
    async with asyncio.timeout(SOON):
        assert (await talk(server, head)).startswith(b"HTTP/1.1 431 ")
    assert (await server.http.get("/health")).status_code == 200


@pytest.mark.parametrize(("answered", "begun"), [(b"", b""), (b"", _HEAD), (_HEAD + b"\r\n", _HEAD)])
async def test_a_head_that_never_comes_is_not_waited_for(
    server: Opened, answered: bytes, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvicorn itself ends a connection only if nothing has come in since an answer went out."""
    monkeypatch.setattr("switchboard.server.fastpath.heads.HEAD_S", 0.2)
    at = urlsplit(server.url)
    async with asyncio.timeout(SOON):
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        try:
            writer.write(answered)
            if answered:
                await reader.readuntil(b"}")
            writer.write(begun)
            await reader.read()
        finally:
            writer.close()


def posting(server: Opened, token: str, length: int) -> bytes:
    """The head of a POST whose body has yet to come."""
    head = f"POST /v1/ingest HTTP/1.1\r\nHost: {urlsplit(server.url).netloc}\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode()


async def test_a_body_without_a_token_is_not_read_on(server: Opened) -> None:
    async with asyncio.timeout(SOON):
        answer = await talk(server, posting(server, "sb_c_no", 1_000_000_000) + b"{")
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in answer.lower()


async def test_what_is_no_http_is_refused_and_fills_no_log(server: Opened, caplog: pytest.LogCaptureFixture) -> None:
    for nonsense in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"G@T / HTTP/1.1\r\n\r\n"):
        async with asyncio.timeout(SOON):
            assert (await talk(server, nonsense)).startswith(b"HTTP/1.1 400 ")
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


async def test_after_a_small_body_without_a_token_the_connection_goes_on(server: Opened) -> None:
    answer = await talk(server, (posting(server, "sb_c_no", 2) + b"{}") * 2 + posting(server, "sb_c_no", 9_999_999))
    assert answer.count(b"HTTP/1.1 401 ") == 3


async def test_a_body_that_does_not_come_is_not_waited_for(server: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard.server.fastpath.heads.BODY_S", 0.2)
    async with asyncio.timeout(SOON):
        assert await talk(server, posting(server, server.token, 1000) + b"{") == b""


async def test_connections_without_a_token_keep_nobody_out(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switchboard.server.app.connection_limit", lambda: 8)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(open_server(database_url, tmp_path / "data"))
        at = urlsplit(server.url)
        for _ in range(4):
            for _ in range(20):
                _, writer = await asyncio.open_connection(at.hostname, at.port)
                stack.callback(writer.close)
                writer.write(b"GET /health HTTP/1.1\r\n")  # its end never comes
            assert (await server.submit(envelope_json("let me in"))).status_code == 202
        assert await server.lab.count("select count(*) from message_inbox") == 4


async def test_only_messages_may_be_as_large_as_a_batch(server: Opened) -> None:
    large, batch = b"[" + b"0," * 600_000 + b"0]", "/v1/ingest/batch"
    for caller, path, status in (
        (CONNECTOR, batch, 422),
        (AGENT, batch, 413),
        (AGENT, "/mcp", 413),
        (AGENT, "/v1/rules/import", 413),
        (CONNECTOR, "/v1/ingest", 413),
    ):
        headers = {
            **await server.token_for(replace(caller, name=f"{caller.role} {path}")),
            "content-type": "application/json",
        }
        assert (await server.http.post(path, content=large, headers=headers)).status_code == status, (caller, path)


async def test_what_the_sdk_would_decode_may_be_neither_large_nor_of_many_parts(server: Opened) -> None:
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    call = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ingest", "arguments": {"x": %s}}}'
    for given, expected in (
        (f'"{"a" * 2_200_000}"', (413, "too_large")),
        (f"[{'[],' * 20_000}0]", (422, "too_complex")),
    ):
        answer = await server.http.post("/mcp", content=(call % given).encode(), headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == expected


async def test_a_disconnect_in_the_middle_of_a_body_is_not_logged_as_a_defect(server: Opened) -> None:
    head = f"POST /v1/ingest HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
    head += "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    at = urlsplit(server.url)
    with capture_logs() as logs:
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        writer.write(head.encode())
        await server.http.get("/v1/books")  # by now the other request is waiting for the rest of its body
        writer.close()
        await reader.read()
        await server.http.get("/v1/books")
    assert [entry for entry in logs if entry["log_level"] == "error"] == []
    assert await server.lab.count("select count(*) from message_inbox") == 0


async def test_long_heads_of_many_requests_on_one_connection_are_not_added_up(server: Opened) -> None:
    for _ in range(4):
        assert (await server.http.get("/health", headers={"x-long": "a" * 30_000})).status_code == 200
    large = await server.submit(envelope_json("x" * 200_000))
    assert large.status_code == 202
