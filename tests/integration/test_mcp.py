"""MCP at /mcp with the official client over a real server: connectors' tools, in the shapes of the HTTP API."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent
from structlog.testing import capture_logs

from tests.lab import envelope_json
from tests.servers import AGENT, CONNECTOR, NO_TLS, Opened, open_server

ALL = {"ingest", "ingest_batch", "outbox_next", "outbox_receipt", "heartbeat", "messages_get", "messages_raw"}
READING = {
    *(f"routing_rules_{name}" for name in ("list", "get", "test", "explain", "versions", "lint")),
    *("messages_raw", "sops_list"),
}
"""What every agent may call."""


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data", worker=True) as opened:
        yield opened


@asynccontextmanager
async def client_for(
    server: Opened, headers: dict[str, str] | None = None, mode: Any = "auto"
) -> AsyncIterator[Client]:
    shown = headers or {"authorization": f"Bearer {server.token}"}
    async with httpx2.AsyncClient(headers=shown, timeout=30, verify=NO_TLS) as http:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport, mode=mode) as client:
            yield client


def structured(result: CallToolResult) -> Any:
    assert not result.is_error, result.content
    return result.structured_content


def error_of(result: CallToolResult) -> dict[str, str]:
    assert result.is_error
    [content] = result.content
    assert isinstance(content, TextContent)
    error: dict[str, str] = json.loads(content.text)["error"]
    return error


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
async def test_the_whole_life_of_a_connector(server: Opened, mode: str) -> None:
    async with client_for(server, dict(await server.token_for(CONNECTOR)), mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == ALL
        accepted = structured(await client.call_tool("ingest", {"envelope": envelope_json("hello")}))
        assert (accepted["status"], accepted["duplicate"]) == ("accepted", False)
        request = {"channel": "telegram", "endpoint": "bot:house", "wait_s": 20}
        [reply] = structured(await client.call_tool("outbox_next", request))["replies"]
        assert (reply["text"], reply["request_id"]) == ("hello", accepted["request_id"])
        receipt = {"outbox_id": reply["outbox_id"], "lease": reply["lease"], "outcome": "sent"}
        assert structured(await client.call_tool("outbox_receipt", receipt)) == {"state": "sent"}
        assert error_of(await client.call_tool("outbox_receipt", receipt))["code"] == "conflict"
        beat = {"channel": "telegram", "endpoint": "bot:house", "instance_id": "i", "state": "healthy"}
        assert structured(await client.call_tool("heartbeat", beat)) == {"status": "ok", "interval_s": 120}


async def test_a_batch_answers_per_envelope(server: Opened) -> None:
    async with client_for(server, dict(await server.token_for(CONNECTOR))) as client:
        envelopes = [
            envelope_json("a", event="1"),
            {"schema_version": "ingest.v1"},
            envelope_json("foreign", endpoint="bot:other"),
            envelope_json("a", event="1"),
            7,
            envelope_json("\ud800"),
        ]
        results = structured(await client.call_tool("ingest_batch", {"envelopes": envelopes[:5]}))["results"]
        got = [r.get("status") or r["error"]["code"] for r in results]
        assert got == ["accepted", "missing_field", "forbidden", "accepted", "wrong_type"]
        assert results[3]["duplicate"] is True
        many = [envelope_json(f"m{n}", event=f"m{n}", sender=f"s{n}") for n in range(201)]
        results = structured(await client.call_tool("ingest_batch", {"envelopes": many[:200]}))["results"]
        assert len({r["request_id"] for r in results}) == 200
        too_many = await client.call_tool("ingest_batch", {"envelopes": many})
        assert error_of(too_many)["code"] == "batch_size"


async def test_raw_bytes_are_the_canonical_json_of_what_was_given(server: Opened) -> None:
    envelope = envelope_json("hé", raw={"z": 1, "a": [1.5, None]})
    async with client_for(server) as client:
        request_id = structured(await client.call_tool("ingest", {"envelope": envelope}))["request_id"]
    raw = await server.http.get(f"/v1/messages/{request_id}/raw")
    assert raw.json() == envelope
    assert "hé".encode() in raw.content


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("ingest", {"envelope": {}}, "missing_field"),
        ("ingest", {"envelope": "text"}, "wrong_type"),
        ("ingest", {}, "wrong_type"),
        ("ingest", {"envelope": {}, "more": 1}, "wrong_type"),
        ("ingest_batch", {"envelopes": []}, "batch_size"),
        ("outbox_next", {"channel": "telegram"}, "missing_field"),
        ("outbox_next", {"channel": "telegram", "endpoint": "x", "limit": 1000}, "invalid_input"),
        ("outbox_receipt", {"outbox_id": "x", "lease": 1, "outcome": "sent"}, "invalid_input"),
        ("heartbeat", {"channel": "telegram", "endpoint": "x", "instance_id": "i", "state": "great"}, "invalid_input"),
    ],
)
async def test_errors_have_code_and_message(server: Opened, tool: str, arguments: dict[str, Any], code: str) -> None:
    async with client_for(server) as client:
        error = error_of(await client.call_tool(tool, arguments))
    assert error["code"] == code
    assert error["message"]


async def test_what_a_token_may_not_call_is_neither_listed_nor_callable(server: Opened) -> None:
    async with client_for(server, dict(await server.token_for(AGENT))) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == READING | {"calls_get"}
        with pytest.raises(MCPError, match="unknown tool: ingest"):
            await client.call_tool("ingest", {"envelope": envelope_json("x")})
    assert await server.lab.count("select count(*) from audit where action = 'refused:ingest'") == 1
    assert await server.lab.count("select count(*) from message_inbox") == 0


async def test_a_connector_reaches_only_its_own_endpoint(server: Opened) -> None:
    async with client_for(server, dict(await server.token_for(CONNECTOR))) as client:
        foreign = {"envelope": envelope_json("x", endpoint="bot:other")}
        assert error_of(await client.call_tool("ingest", foreign))["code"] == "forbidden"
        pull = {"channel": "telegram", "endpoint": "bot:other"}
        assert error_of(await client.call_tool("outbox_next", pull))["code"] == "forbidden"


async def test_a_lost_database_is_an_error_and_never_a_success(server: Opened) -> None:
    async with client_for(server) as client:
        await client.list_tools()
        await server.lab.database.close()
        lost = await client.call_tool("ingest", {"envelope": envelope_json("x")})
        assert error_of(lost)["code"] == "unavailable"


async def test_a_defect_of_ours_is_never_a_success(server: Opened) -> None:
    await server.lab.database.run("alter function accept_messages rename to no_longer_there")
    await server.lab.database.run("alter table connector rename to gone")
    with capture_logs():  # the trace is long, and its place is not here
        await _meet_defects(server)


async def _meet_defects(server: Opened) -> None:
    async with client_for(server) as client:
        one = await client.call_tool("ingest", {"envelope": envelope_json("x")})
        assert error_of(one)["code"] == "internal_error"
        [each] = structured(await client.call_tool("ingest_batch", {"envelopes": [envelope_json("x")]}))["results"]
        assert each["error"]["code"] == "internal_error"
        beat = {"channel": "telegram", "endpoint": "x", "instance_id": "i", "state": "healthy"}
        with pytest.raises(MCPError) as caught:
            await client.call_tool("heartbeat", beat)
        assert "connector" not in str(caught.value)


async def test_the_door_itself(server: Opened) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ingest", "arguments": {}}}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    assert (await server.http.post("/mcp", json=call, headers={**headers, "authorization": ""})).status_code == 401
    bare = await server.http.post("/mcp", json=call, headers=headers)
    assert bare.json()["result"]["isError"] is True
    rebound = await server.http.post("/mcp", json=call, headers={**headers, "host": "evil.example:80"})
    assert rebound.status_code == 421
    from_page = await server.http.post("/mcp", json=call, headers={**headers, "origin": "http://evil.example"})
    assert from_page.status_code == 403
    assert (await server.http.get("/mcp")).status_code == 405
    assert (await server.http.delete("/mcp")).status_code == 405


def test_the_sdk_is_not_imported_before_somebody_comes() -> None:
    code = "import sys, switchboard.server.serve; print(sorted(n for n in sys.modules if n.split('.')[0] == 'mcp'))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
