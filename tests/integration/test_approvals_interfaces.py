"""Approvals over HTTP, MCP and the command line: lists, pages, who may decide, and how arguments are shown."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from mcp.shared.exceptions import MCPError

from switchboard.app.access import Principal
from switchboard.ports.engine import Answer, Ask, Journal, Turn, TurnResult
from switchboard.server.ws import connection
from tests.commands import Cli
from tests.gateway import Client, client, socket
from tests.hands import Scripted, at_work, settled
from tests.integration.test_mcp import client_for, error_of, structured
from tests.lab import envelope_json
from tests.servers import AGENT, CONNECTOR, HANDLER, Opened, open_server
from tests.waiting import eventually

FORGED: Final = '9"\n"to": "ann"\x1b[2K\x1b[1A\u202e\u2066\u200b\ue000\U000e0041`<' + "7" * 20_000
"""Text that would like to be another line, to steer the terminal, and to hide."""
Says = Callable[..., Awaitable[str]]
SEEN: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\U000e0041]")


async def asking(turn: Turn, journal: Journal) -> TurnResult:
    """`ask X` is a question, everything else a call."""
    why, digest = "it is said so", "d" * 64
    wanted = Ask("call", "pay", {"to": "noor", "what": turn.text}, why, digest, "nobody", "effectful", "high")
    if turn.text.startswith("ask "):
        given = {"question": turn.text[4:], "options": ["red", "blue"]}
        wanted = Ask("question", "ask_user", given, why, digest, "nobody")
    await journal.expect("approval", within=3600, ask=wanted)
    found = await journal.wait("approval")
    return Answer("expired" if found.expired else f"{found.value['decision']} {found.value['text']}".strip())


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with (
        open_server(database_url, tmp_path / "data") as opened,
        at_work(opened.lab.worker({"echo": Scripted(asking)})),
    ):
        yield opened


async def asked(server: Opened, *texts: str) -> list[str]:
    """Messages with these texts, one sender each; the ids of what they wait for."""
    found = list[str]()
    for text in texts:
        name = str(uuid4())
        await server.submit(envelope_json(text, channel="telegram", sender=name, event=name))
        await eventually(lambda: _waits(server, len(found) + 1))
        page = await got(server, "/v1/approvals", state="pending")
        found.append(page["approvals"][0]["approval_id"])
    return found


async def _waits(server: Opened, count: int) -> bool:
    waiting = "select count(*) from approval p join awaited a on a.key = p.approval_id where a.decided_at is null"
    return await server.lab.count(waiting) == count and await settled(server.lab)


async def got(server: Opened, path: str, **params: str) -> dict[str, Any]:
    answer = await server.http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def post(server: Opened, path: str, body: Mapping[str, Any], headers: Any = None) -> tuple[int, dict[str, Any]]:
    answer = await server.http.post(path, json=body, headers=headers)
    return answer.status_code, answer.json()


async def test_what_waits_is_listed_in_pages_shown_and_decided_once(server: Opened) -> None:
    ids = await asked(server, "1", "2", "3")
    first = await got(server, "/v1/approvals", limit="2")
    rest = await got(server, "/v1/approvals", limit="2", cursor=first["next_cursor"])
    assert [a["approval_id"] for a in (*first["approvals"], *rest["approvals"])] == ids[::-1]
    assert rest["next_cursor"] is None
    one = await got(server, f"/v1/approvals/{ids[0]}")
    assert (one["state"], one["tool"], one["arguments"], one["message"]) == (
        "pending",
        "pay",
        {"to": "noor", "what": "1"},
        "1",
    )
    metrics = (await server.http.get("/metrics")).text
    assert "switchboard_approvals_pending 3.0" in metrics
    status, done = await post(server, f"/v1/approvals/{ids[0]}/approve", {})
    assert (status, done["state"], done["decided_by"]) == (200, "approved", "operator-1")
    assert (await post(server, f"/v1/approvals/{ids[0]}/approve", {}))[0] == 200
    status, error = await post(server, f"/v1/approvals/{ids[0]}/refuse", {"reason": "no"})
    assert (status, error["error"]["message"]) == (409, "the call of pay was approved already, by operator-1")
    status, error = await post(server, f"/v1/approvals/{ids[1]}/answer", {"text": "red"})
    assert (status, error["error"]["message"]) == (409, "this is not a question: approve or refuse it")
    assert (await post(server, f"/v1/approvals/{uuid4()}/approve", {}))[0] == 404
    [waiting] = [a["approval_id"] for a in (await got(server, "/v1/approvals", state="approved"))["approvals"]]
    assert waiting == ids[0]
    explained = await got(server, f"/v1/messages/{one['request_id']}/explain")
    assert [a["approval_id"] for a in explained["approvals"]] == [ids[0]]


async def test_who_may_decide(server: Opened) -> None:
    [one] = await asked(server, "1")
    for principal in (AGENT, CONNECTOR, HANDLER, Principal("metrics", "prometheus")):
        headers = await server.token_for(principal)
        for path in ("", f"/{one}"):
            assert (await server.http.get(f"/v1/approvals{path}", headers=headers)).status_code == 403
        assert (await post(server, f"/v1/approvals/{one}/approve", {}, headers))[0] == 403
    ann = await server.token_for(Principal("approver", "ann"))
    assert (await server.http.get("/v1/messages", headers=ann)).status_code == 403
    status, done = await post(server, f"/v1/approvals/{one}/approve", {}, ann)
    assert (status, done["decided_by"]) == (200, "ann")
    refused = "select count(*) from audit where action = 'refused:approvals'"
    assert await server.lab.count(refused) == 12


@pytest.fixture
def says(server: Opened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Says:
    """What a command says while the server answers, complaints included."""
    cli = Cli(capsys, monkeypatch, server.environment)

    async def said(*arguments: str, code: int = 0) -> str:
        ended, out, err = await asyncio.to_thread(cli.run, *arguments)
        assert ended == code, err
        return out + err

    return said


async def test_the_command_line_lists_shows_and_decides(server: Opened, says: Says) -> None:
    call, other, question = await asked(server, "1", "2", "ask Which?")
    listed = await says("approvals", "list")
    assert [one in listed for one in (call, other, question)] == [True] * 3
    shown = await says("approvals", "show", call[:8])
    for part in ('"to": "noor"\n"what": "1"\n', "it is said so", "System1/echo", "pending"):
        assert part in shown
    assert (await says("approvals", "approve", call[:8])).startswith("approved: pay\n")
    assert (await says("approvals", "refuse", other[:8], "--reason", "no")).startswith("refused: pay\n")
    assert "was refused already" in await says("approvals", "approve", other[:8], code=1)
    assert (await says("approvals", "answer", question[:8], "2")).startswith("answered: ask_user\n")
    assert "none" in await says("approvals", "list")
    for state in ("approved", "refused", "answered"):
        assert state in await says("approvals", "list", "--all")
    request_id = (await got(server, f"/v1/approvals/{question}"))["request_id"]
    await eventually(lambda: settled(server.lab))
    assert "approval ask_user" in re.sub(r"\s+", " ", await says("explain", request_id))
    assert await server.lab.replies_to(UUID(request_id)) == [
        f"echo asks:\n> Which?\n1. red\n2. blue\nTo answer: /answer {question[:8]} and your answer",
        "answered blue",
    ]
    assert "is the id of a message" in await says("approvals", "show", request_id, code=5)


async def test_arguments_cannot_forge_what_is_shown_of_them(server: Opened, says: Says) -> None:
    """All of them is there, in one line, and none of it steers, hides or ends anything."""
    [one] = await asked(server, FORGED)
    for command in ("show", "approve"):
        lines = (await says("approvals", command, one)).splitlines()
        assert SEEN.search("".join(lines)) is None
        [told] = [line for line in lines if line.startswith('"what": ')]
        assert told.count("7") == 20_000
        assert r"9\"\n\"to\": \"ann\"\u001b[2K\u001b[1A\u202e\u2066\u200b\ue000\udb40\udc41\u0060\u003c777" in told
        assert [line for line in lines if line.startswith('"to": ')] == ['"to": "noor"']


async def test_operators_decide_over_mcp_and_agents_do_not(server: Opened) -> None:
    call, question = await asked(server, "1", "ask Which?")
    async with client_for(server) as client:
        page = structured(await client.call_tool("approvals_list", {"state": "pending", "limit": 1}))
        assert [a["approval_id"] for a in page["approvals"]] == [question]
        assert structured(await client.call_tool("approvals_get", {"approval_id": call}))["state"] == "pending"
        wrong = await client.call_tool("approvals_decide", {"approval_id": question, "decision": "answer"})
        assert error_of(wrong)["message"] == "an answer needs a text"
        for one, decision, text, state in ((call, "approve", "", "approved"), (question, "answer", "1", "answered")):
            given = {"approval_id": one, "decision": decision, "text": text}
            assert structured(await client.call_tool("approvals_decide", given))["state"] == state
    for principal in (AGENT, HANDLER, CONNECTOR):
        async with client_for(server, dict(await server.token_for(principal))) as client:
            assert not {tool.name for tool in (await client.list_tools()).tools} & {
                "approvals_list",
                "approvals_decide",
            }
            with pytest.raises(MCPError):
                await client.call_tool("approvals_decide", {"approval_id": call, "decision": "refuse"})


async def test_operators_and_approvers_decide_over_the_gateway(server: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    call, question = await asked(server, "1", "ask Which?")
    async with client(server.url, server.token) as one:
        first = await one.call("approvals.list", state="pending", limit=1)
        rest = await one.call("approvals.list", state="pending", limit=1, cursor=first["next_cursor"])
        assert [a["approval_id"] for a in (*first["approvals"], *rest["approvals"])] == [question, call]
        assert rest["approvals"][0]["arguments"] == {"to": "noor", "what": "1"}
        decide = {"approval_id": call, "decision": "approve"}
        for _ in range(2):
            assert await one.call("approvals.decide", **decide) == {"approval_id": call, "state": "approved"}
        for given, code in (
            ({**decide, "decision": "refuse"}, "conflict"),
            ({**decide, "text": "yes"}, "invalid_value"),
            ({"approval_id": question, "decision": "answer"}, "invalid_value"),
            ({"approval_id": str(uuid4()), "decision": "approve"}, "not_found"),
        ):
            assert (await one.refused("approvals.decide", **given))["code"] == code, given
        monkeypatch.setattr(connection, "PAGE_BYTES", 100)
        page = await one.call("approvals.list")
        assert page == {"approvals": [], "left_out": [question, call], "next_cursor": None}
    async with client(server.url, await server.token_of(Principal("approver", "ann"))) as ann:
        assert (ann.welcome["principal"], ann.welcome["speaker"]) == ("ann", None)
        for method, given in (("chat.send", {"text": "x", "key": "k"}), ("chat.history", {}), ("chat.abort", {})):
            assert (await ann.refused(method, session="s", **given))["code"] == "forbidden"
        assert (await ann.refused("chat.resume", stream="s", seq=0))["code"] == "forbidden"
        answered = await ann.call("approvals.decide", approval_id=question, decision="answer", text="2")
        assert answered["state"] == "answered"
    assert (await got(server, f"/v1/approvals/{question}"))["decided_by"] == "ann"


async def test_a_person_decides_nothing_over_the_gateway_but_in_words(server: Opened) -> None:
    [call] = await asked(server, "1")
    phone = Principal("connector", "phone", "gateway", "ann")
    async with client(server.url, await server.token_of(phone)) as one:
        assert (await one.refused("approvals.list"))["code"] == "forbidden"
        assert (await one.refused("approvals.decide", approval_id=call, decision="approve"))["code"] == "forbidden"
    for principal in (AGENT, HANDLER, CONNECTOR, Principal("metrics", "prometheus")):
        async with socket(server.url) as opened:
            error = await Client(opened).refused("connect", token=await server.token_of(principal))
            assert error["code"] == "forbidden"
    approver = await server.token_of(Principal("approver", "ann"))
    async with socket(server.url) as opened:
        speaker = {"channel": "cli", "endpoint": "ann@house", "sender": "ann"}
        assert (await Client(opened).refused("connect", token=approver, speaker=speaker))["code"] == "forbidden"
    assert (await got(server, f"/v1/approvals/{call}"))["state"] == "pending"
