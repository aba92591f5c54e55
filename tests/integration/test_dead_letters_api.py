"""Dead letters over HTTP and MCP: the same service, the same answers, the same refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from mcp.shared.exceptions import MCPError

from switchboard.app.access import Principal
from tests.hands import assert_balanced, settled
from tests.integration.test_mcp import client_for, error_of, structured
from tests.lab import envelope_json
from tests.servers import AGENT, CONNECTOR, HANDLER, Opened, open_server
from tests.waiting import eventually

TOOLS = {f"dead_letters_{name}" for name in ("list", "get", "reroute", "handle")}
SIDE_HANDLER = Principal("agent", "side watch", system_id="System4/side")


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data", worker=True) as opened:
        yield opened


async def a_dead_letter(server: Opened, text: str = "lost", channel: str = "webhook") -> dict[str, Any]:
    """The dead letter of a message that reaches nobody: of the root by webhook, of the side team by slack."""
    given = envelope_json(text, channel=channel)
    given["source"]["provider"] = "http" if channel == "webhook" else channel
    request_id = (await server.submit(given)).json()["request_id"]
    dead_letters = (await server.http.get("/v1/dead-letters", params={"limit": 500})).json()["dead_letters"]
    [dead_letter] = [x for x in dead_letters if x["request_id"] == request_id]
    return dict(dead_letter)


async def test_from_the_list_to_the_answer(server: Opened) -> None:
    dead_letter = await a_dead_letter(server)
    path = f"/v1/dead-letters/{dead_letter['dead_letter_id']}"
    body = {"to": {"system_id": "System1/echo"}, "reason": "echo can"}
    done = (await server.http.post(f"{path}/reroute", json=body)).json()
    assert (done["already"], done["decision_n"], done["rule"]) == (False, 2, None)
    assert [made["system_id"] for made in done["deliveries"]] == ["System1/echo"]
    again = await server.http.post(f"{path}/reroute", json=body)
    assert (again.status_code, again.json()["already"]) == (200, True)
    replies = await server.http.get(f"/v1/messages/{dead_letter['request_id']}/replies", params={"wait_s": 20})
    assert [reply["text"] for reply in replies.json()["replies"]] == ["lost"]
    shown = (await server.http.get(path)).json()
    assert (shown["status"], shown["rerouted_n"], shown["resolution"]) == ("handled", 2, "echo can")
    assert [made["system_id"] for made in shown["rerouted_to"]] == ["System1/echo"]
    explained = (await server.http.get(f"/v1/messages/{dead_letter['request_id']}/explain")).json()
    first, second = explained["decisions"]
    assert [step["reason"] for step in first["trail"]] == ["no_route"]
    [step] = second["trail"]
    assert (step["reason"], step["targets"]) == ("reroute", [{"system_id": "System1/echo", "team_id": None}])
    assert "echo can" in step["detail"]
    await eventually(lambda: settled(server.lab))
    await assert_balanced(server.lab)


async def test_what_makes_no_sense_is_refused_and_moves_nothing(server: Opened) -> None:
    dead_letter = await a_dead_letter(server)
    path = f"/v1/dead-letters/{dead_letter['dead_letter_id']}"
    echo: dict[str, Any] = {"reason": "r", "to": {"system_id": "System1/echo"}}
    refusals: tuple[tuple[dict[str, Any], str, str | None], ...] = (
        ({"reason": ""}, "invalid_input", "reason"),
        ({"reason": "two\nlines"}, "invalid_input", "reason"),
        ({"to": {"system_id": "System1/echo"}}, "missing_field", "reason"),
        ({"reason": "r", "to": {}}, "invalid_input", "to"),
        ({"reason": "r", "to": {"system_id": "System1/echo", "team_id": "root"}}, "invalid_input", "to"),
        ({"reason": "r", "to": {"system_id": "System1/gone"}}, "unknown_target", "to"),
        ({"reason": "r", "rule": {"name": "n"}}, "invalid_input", None),
        ({"reason": "r", "more": 1}, "unknown_field", "more"),
        ({**echo, "rule": {"name": "n"}}, "invalid_input", "rule.filters"),
        ({**echo, "rule": {"name": "n", "filters": {}}}, "invalid_input", "rule.filters"),
        ({**echo, "rule": {"name": "n", "priority": 10**10}}, "invalid_input", "rule.priority"),
        ({**echo, "rule": {"name": "n", "filters": {"sendre": 5}}}, "unknown_filter_key", "rule.filters.sendre"),
    )
    for body, code, field in refusals:
        answer = await server.http.post(f"{path}/reroute", json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error.get("field")) == (422, code, field), (body, answer.text)
    nobody = await server.http.post(f"{path}/reroute", json={"reason": "r"})
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (409, "nobody_takes_it")
    for wrong in (
        {"filter": {}, "action": "handle"},
        {"filter": {}, "action": "handle", "resolution": "r", "to": {"team_id": "side"}},
        {"filter": {"since": "2026-01-01T00:00:00"}, "action": "handle", "resolution": "r"},
        {"filter": {"team": "root"}, "action": "handle", "resolution": "r"},
        {"action": "handle", "resolution": "r"},
    ):
        assert (await server.http.post("/v1/dead-letters/bulk", json=wrong)).status_code == 422, wrong
    assert (await server.http.get(path)).json()["status"] == "pending"
    assert (await server.http.post(f"/v1/dead-letters/{uuid4()}/handle", json={"resolution": "r"})).status_code == 404


async def test_many_at_once(server: Opened) -> None:
    for text in ("a", "b", "c"):
        await a_dead_letter(server, text)
    await a_dead_letter(server, "d", "slack")
    body = {"filter": {"team_id": "root"}, "action": "reroute", "reason": "r", "to": {"system_id": "System1/echo"}}
    looked = (await server.http.post("/v1/dead-letters/bulk", json={**body, "dry_run": True, "limit": 2})).json()
    assert (looked["matched"], looked["done"], looked["dry_run"]) == (3, 2, True)
    assert looked["next_cursor"] is not None
    done = (await server.http.post("/v1/dead-letters/bulk", json=body)).json()
    assert (done["matched"], done["done"], done["failed"], done["next_cursor"]) == (3, 3, [], None)
    left = {"filter": {}, "action": "handle", "resolution": "r"}
    assert (await server.http.post("/v1/dead-letters/bulk", json=left)).json()["done"] == 1
    await eventually(lambda: settled(server.lab))
    await assert_balanced(server.lab)


async def test_the_list_filters(server: Opened) -> None:
    await a_dead_letter(server, "old")
    new = await a_dead_letter(server, "new", "slack")

    async def found(**wanted: str) -> int:
        answer = await server.http.get("/v1/dead-letters", params=wanted)
        assert answer.status_code == 200, answer.text
        return len(answer.json()["dead_letters"])

    assert await found(channel="slack") == 1
    assert await found(since=new["created_at"]) == 1
    assert await found(until=new["created_at"]) == 1
    assert await found(system_id="System1/echo") == 0
    assert (await server.http.get("/v1/dead-letters", params={"since": "yesterday"})).status_code == 422


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
async def test_a_time_beyond_the_ends_of_time_is_refused_everywhere(server: Opened, when: str) -> None:
    async with client_for(server, dict(await server.token_for(HANDLER))) as client:
        for name in ("since", "until"):
            listed = await server.http.get("/v1/dead-letters", params={name: when})
            body = {"filter": {name: when}, "action": "handle", "resolution": "r"}
            bulk = await server.http.post("/v1/dead-letters/bulk", json=body)
            for answer, field in ((listed, name), (bulk, f"filter.{name}")):
                error = answer.json()["error"]
                assert (answer.status_code, error["code"], error["field"]) == (422, "invalid_input", field)
            error = error_of(await client.call_tool("dead_letters_list", {name: when}))
            assert (error["code"], error["field"]) == ("invalid_input", name)


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "0001-01-01T14:00:00+14:00"])
async def test_the_ends_of_time_are_times(server: Opened, when: str) -> None:
    async with client_for(server, dict(await server.token_for(HANDLER))) as client:
        for name in ("since", "until"):
            assert (await server.http.get("/v1/dead-letters", params={name: when})).status_code == 200
            body = {"filter": {name: when}, "action": "handle", "resolution": "r"}
            assert (await server.http.post("/v1/dead-letters/bulk", json=body)).status_code == 200
            assert "dead_letters" in structured(await client.call_tool("dead_letters_list", {name: when}))


async def test_a_system4_works_with_its_tools_on_its_own_dead_letters_alone(server: Opened) -> None:
    own, others = await a_dead_letter(server), await a_dead_letter(server, channel="slack")
    async with client_for(server, dict(await server.token_for(HANDLER))) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} >= TOOLS
        page = structured(await client.call_tool("dead_letters_list", {"status": "pending"}))
        assert [x["dead_letter_id"] for x in page["dead_letters"]] == [own["dead_letter_id"]]
        which = {"dead_letter_id": own["dead_letter_id"]}
        got = structured(await client.call_tool("dead_letters_get", which))
        assert got["payload"]["payload"]["normalized_text"] == "lost"
        wanted = {**which, "to": {"system_id": "System1/echo"}, "reason": "r"}
        done = structured(await client.call_tool("dead_letters_reroute", wanted))
        assert [made["system_id"] for made in done["deliveries"]] == ["System1/echo"]
        closed = error_of(await client.call_tool("dead_letters_handle", {**which, "resolution": "r"}))
        assert closed["code"] == "already_rerouted"
        foreign = {"dead_letter_id": others["dead_letter_id"]}
        for tool, more in (
            ("dead_letters_get", {}),
            ("dead_letters_handle", {"resolution": "r"}),
            ("dead_letters_reroute", {"reason": "r", "to": {"team_id": "side"}}),
        ):
            assert error_of(await client.call_tool(tool, {**foreign, **more}))["code"] == "not_found"
    async with client_for(server, dict(await server.token_for(SIDE_HANDLER))) as client:
        upward = {**foreign, "to": {"system_id": "System1/echo"}, "reason": "r"}
        assert error_of(await client.call_tool("dead_letters_reroute", upward))["code"] == "forbidden"
        done = structured(await client.call_tool("dead_letters_handle", {**foreign, "resolution": "mine"}))
        assert done["dead_letter"]["handled_by_system_id"] == "System4/side"


@pytest.mark.parametrize("caller", [AGENT, CONNECTOR], ids=lambda caller: caller.name)
async def test_for_all_others_the_tools_are_not_there(server: Opened, caller: Principal) -> None:
    dead_letter = await a_dead_letter(server)
    async with client_for(server, dict(await server.token_for(caller))) as client:
        assert not {tool.name for tool in (await client.list_tools()).tools} & TOOLS
        which = {"dead_letter_id": dead_letter["dead_letter_id"], "resolution": "r"}
        if caller is CONNECTOR:
            with pytest.raises(MCPError, match="unknown tool"):
                await client.call_tool("dead_letters_handle", which)
        else:
            assert error_of(await client.call_tool("dead_letters_handle", which))["code"] == "not_found"
    header = await server.token_for(Principal(caller.role, "again", caller.channel, caller.endpoint, caller.system_id))
    before = await server.lab.count("select count(*) from audit where action = 'refused:dead_letters'")
    for path, body in (
        (f"/v1/dead-letters/{dead_letter['dead_letter_id']}/handle", {"resolution": "r"}),
        (
            f"/v1/dead-letters/{dead_letter['dead_letter_id']}/reroute",
            {"reason": "r", "to": {"system_id": "System1/echo"}},
        ),
        ("/v1/dead-letters/bulk", {"filter": {}, "action": "handle", "resolution": "r"}),
    ):
        answer = await server.http.post(path, json=body, headers=header)
        assert answer.status_code in (403, 404), answer.text
    assert await server.lab.count("select count(*) from audit where action = 'refused:dead_letters'") == before + 3
    path = f"/v1/dead-letters/{dead_letter['dead_letter_id']}"
    assert (await server.http.get(path)).json()["status"] == "pending"
