"""Calls of tools outside turns: by whom, for whom, once or again, what waits for people, and what no door takes."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace

from switchboard.agents.turns.call_engine import CallEngine
from switchboard.app.access import Principal
from switchboard.core.calls import CALL, WantedCall, call_message, call_text, called_in, is_call
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.classification.source import IntakeContext, SourceArguments, envelope_of
from switchboard.domain.errors import ConfigurationError, InvalidInput
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import SystemId
from switchboard.modules.kernel.opened import OpenModules
from switchboard.ports.engine import Answer, EngineContext
from switchboard.ports.facts import Reader
from switchboard.server.contracts.modules import KEY
from switchboard.store.ids import new_uuid7
from switchboard.store.memory import facts
from switchboard.store.memory.facts import NewFact, StoredFacts
from switchboard.store.memory.history import StoredReaders
from switchboard.store.people import people as persons
from switchboard.store.people import tokens
from switchboard.store.people.tokens import Token
from switchboard.store.work.approvals import StoredApprovals
from switchboard.testing.engines import MemoryJournal, Record, a_turn
from switchboard.tools.files import file_tools
from switchboard.tools.memory import MemorySearch
from tests.commands import Cli
from tests.documents import all_blocks, steps
from tests.engines import Book
from tests.hands import assert_balanced, at_work
from tests.installed import DIARY, forget, install, installation
from tests.integration.test_mcp import client_for, error_of, structured
from tests.lab import butler, envelope_json, rule, team_of
from tests.servers import Opened, open_server
from tests.strategies import NOW
from tests.turning import NoMemos, Noting
from tests.waiting import eventually

CLERK: Final = SystemId("System1/clerk")
GRANTS: Final = {"household": ["look", "memory_search", "diary_read"]}
OPTIONS: Final[dict[str, Any]] = {
    "owners": ["person:ann"],
    "approve": ["pay"],
    "modules": {"diary": {}},
    "grants": GRANTS,
}
TEAM: Final = team_of(butler("clerk", "model", **OPTIONS), butler("other"))
WORDS: Final = ("secret", "walnut", "the secret walnut", "what is a secret?", "walnuts", "telegram", "'; select")


@dataclass(frozen=True)
class House:
    """A server and a worker with a butler of ann's, whose tools note what they are called with."""

    server: Opened
    tools: Mapping[str, Noting]
    headers: Mapping[str, Mapping[str, str]]
    """By whom a token is for: ann, bob, nobody, and the operator."""

    async def call(self, by: str, tool: str, **body: Any) -> tuple[int, dict[str, Any]]:
        given = {"tool": tool, "arguments": {"text": "7"}, **({"system_id": CLERK} if by == "operator" else {}), **body}
        answer = await self.server.http.post("/v1/modules/calls", json=given, headers=self.headers[by])
        return answer.status_code, answer.json()

    async def get(self, by: str, call_id: str, wait_s: float = 0) -> tuple[int, dict[str, Any]]:
        path = f"/v1/modules/calls/{call_id}"
        answer = await self.server.http.get(path, params={"wait_s": wait_s}, headers=self.headers[by])
        return answer.status_code, answer.json()


@pytest.fixture
async def house(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    install(tmp_path / "modules", monkeypatch, {"diary": DIARY})
    modules = OpenModules(installation(*TEAM.members))
    tools = {one.name: one for one in (Noting("look"), Noting("pay", "effectful"), Noting("send", "effectful"))}
    async with open_server(database_url, tmp_path / "data", tree=((TEAM,), (rule("System1/other"),))) as server:
        for one in ("ann", "bob", "cid"):
            await server.http.post("/v1/people", json={"person_id": one, "name": one})
        headers = {"operator": {"authorization": f"Bearer {server.token}"}}
        for name in ("ann", "bob", "cid", "nobody"):
            person = {"nobody": None}.get(name, name)
            body = {"name": name, "role": "agent", "system_id": CLERK, "person": person}
            made = await server.http.post("/v1/tokens", json=body)
            assert (made.status_code, made.json()["person"]) == (201, person)
            headers[name] = {"authorization": f"Bearer {made.json()['token']}"}
        database, book = server.lab.database, server.lab.rule_book

        async def owned() -> bool:
            await book.refresh()
            return bool(book.rules.members[CLERK].linked)

        await eventually(owned)
        readers = StoredReaders(database, CHANNELS)
        context = EngineContext(
            *(NoMemos(), Book()),
            readers=readers,
            facts=StoredFacts(database, readers),
            approvals=StoredApprovals(database),
            workspaces=tmp_path / "work",
            toolset=modules,
        )
        async with at_work(
            server.lab.worker({"call": CallEngine(context, [*tools.values(), *file_tools(), MemorySearch()])})
        ):
            yield House(server, tools, headers)
            await assert_balanced(server.lab)
    await modules.aclose()
    forget({"diary": DIARY})


@pytest.mark.parametrize(
    ("by", "body", "told"),
    [
        ("ann", {"tool": "look"}, "look: {'text': '7'}"),
        ("nobody", {"tool": "look"}, "look: {'text': '7'}"),
        ("nobody", {"tool": "send"}, "there is no tool 'send'; there are: look"),
        ("nobody", {"tool": "memory_search", "arguments": {"query": "secret"}}, "there is no tool 'memory_search'"),
        ("bob", {"tool": "look"}, "there is no tool 'look'; there are: memory_search"),
        ("operator", {"tool": "send"}, "send: {'text': '7'}"),
        ("operator", {"tool": "send", "person": "bob"}, "there is no tool 'send'; there are: memory_search"),
        ("operator", {"tool": "send", "person": "ann"}, "send: {'text': '7'}"),
        ("operator", {"tool": "look", "arguments": {"text": 7}}, "look was not called: "),
        ("operator", {"tool": "ask_user"}, "there is no tool 'ask_user'"),
    ],
)
async def test_a_call_has_the_grants_of_whom_it_is_for(house: House, by: str, body: dict[str, Any], told: str) -> None:
    status, call = await house.call(by, **body)
    assert (status, call["text"].startswith(told)) == (200, True), call
    assert call["state"] == ("done" if told.startswith(f"{body['tool']}: ") else "failed")
    assert (await house.get(by, call["call_id"]))[1] == call
    shown = (await house.server.http.get(f"/v1/messages/{call['call_id']}/explain")).json()
    assert [one["engine"] for one in shown["deliveries"][0]["attempts"]] == ["call"]
    audited = (await house.server.http.get("/v1/audit", params={"action": "modules:called"})).json()["entries"]
    assert [one["detail"]["person"] for one in audited] == ([body["person"]] if "person" in body else [])


@pytest.mark.parametrize(
    ("by", "body", "status"),
    [
        ("ann", {"system_id": "System1/other"}, 403),
        ("ann", {"person": "bob"}, 403),
        ("nobody", {"person": "ann"}, 403),
        ("operator", {"person": "dan"}, 404),
        ("operator", {"system_id": "System1/gone"}, 404),
        ("operator", {"system_id": "System4/root"}, 404),
        ("operator", {"arguments": {"text": "x" * 70_000}}, 413),
        ("operator", {"tool": "look\n"}, 422),
        ("operator", {"arguments": []}, 422),
    ],
)
async def test_what_is_no_call_of_the_caller_is_refused(
    house: House, by: str, body: dict[str, Any], status: int
) -> None:
    assert (await house.call(by, **{"tool": "look", **body}))[0] == status
    assert not house.tools["look"].calls


async def test_a_call_is_made_again_unless_it_has_the_same_key(house: House) -> None:
    for key, times in ((None, 2), ("1", 3), ("1", 3), ("2", 4)):
        status, call = await house.call("ann", "look", idempotency_key=key)
        assert (status, call["text"], len(house.tools["look"].calls)) == (200, "look: {'text': '7'}", times - (not key))
        if key is None:
            await house.call("ann", "look")
    assert (await house.call("ann", "look", idempotency_key="1", arguments={"text": "8"}))[0] == 422
    first = (await house.call("ann", "look", idempotency_key="1"))[1]["call_id"]
    others = {(await house.call(by, "look", idempotency_key="1"))[1]["call_id"] for by in ("nobody", "bob")}
    assert len(others | {first}) == 3


async def test_a_call_that_is_there_is_returned_at_the_limit_too(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard.app.calls.MAX_OPEN", 1)
    _, first = await house.call("ann", "pay", idempotency_key="1")
    assert first["state"] == "pending"
    assert (await house.call("ann", "pay", idempotency_key="2"))[0] == 429
    assert await house.call("ann", "pay", idempotency_key="1") == (200, first)
    assert (await house.call("ann", "pay", idempotency_key="1", arguments={"text": "8"}))[0] == 422


async def test_a_call_that_people_must_approve_is_pending_until_then(house: House) -> None:
    for by, tool in (("ann", "pay"), ("operator", "pay"), ("ann", "send")):
        _, call = await house.call(by, tool)
        assert (call["state"], call["text"], house.tools[tool].calls[:1]) == ("pending", "", [])
        approval = f"/v1/approvals/{call['approval_id']}"
        shown = (await house.server.http.get(approval)).json()
        assert (shown["tool"], shown["arguments"], shown["channel"]) == (tool, {"text": "7"}, CALL)
        for _ in range(2):
            assert (await house.server.http.post(f"{approval}/approve")).status_code == 200
        _, ended = await house.get(by, call["call_id"], wait_s=20)
        assert (ended["state"], ended["text"]) == ("done", f"{tool}: {{'text': '7'}}")
        assert len(house.tools[tool].calls) == 1
        house.tools[tool].calls.clear()
    _, call = await house.call("ann", "pay")
    await house.server.http.post(f"/v1/approvals/{call['approval_id']}/refuse", json={"reason": "too much"})
    _, ended = await house.get("ann", call["call_id"], wait_s=20)
    assert ended["state"] == "failed"
    assert "too much" in ended["text"]
    assert not house.tools["pay"].calls


async def test_a_call_is_shown_to_its_token_and_its_person_alone(house: House) -> None:
    _, call = await house.call("ann", "look")
    assert [(await house.get(by, call["call_id"]))[0] for by in house.headers] == [200, 200, 404, 404, 404]
    # Another token of the same name, for somebody else, is somebody else.
    await house.server.http.delete("/v1/tokens/ann")
    token = await house.server.token_for(Principal("agent", "ann", system_id=CLERK, person="bob"))
    again = await house.server.http.get(f"/v1/modules/calls/{call['call_id']}", headers=token)
    assert again.status_code == 404
    message = await house.server.submit(envelope_json("hello", channel="api"))
    assert (await house.get("operator", message.json()["request_id"]))[0] == 404


async def test_a_token_ends_with_its_person(house: House) -> None:
    assert (await house.server.http.delete("/v1/people/ann")).status_code == 200
    tokens = (await house.server.http.get("/v1/tokens")).json()["tokens"]
    assert {one["name"] for one in tokens if one["revoked_at"] is None} == {"operator-1", "bob", "cid", "nobody"}
    body = {"name": "x", "role": "agent", "system_id": CLERK, "person": "ann"}
    assert (await house.server.http.post("/v1/tokens", json=body)).status_code == 404
    body = {"name": "x", "role": "operator", "person": "bob"}
    assert (await house.server.http.post("/v1/tokens", json=body)).status_code == 422


@pytest.mark.parametrize("removed_first", [True, False])
async def test_no_token_outlives_a_person_who_is_removed_at_the_same_moment(house: House, removed_first: bool) -> None:
    """One of the two waits in its transaction while the other begins."""
    database, http = house.server.lab.database, house.server.http
    body = {"name": "desk", "role": "agent", "system_id": CLERK, "person": "ann"}
    token = Token(new_uuid7(), "desk", "agent", None, None, CLERK, "ann", NOW, expires_at=None, revoked_at=None)
    async with database.transaction() as one:
        if removed_first:
            await persons.delete(one, "ann")
            later = asyncio.create_task(http.post("/v1/tokens", json=body))
        else:
            assert await tokens.create(one, token, bytes(32))
            later = asyncio.create_task(http.delete("/v1/people/ann"))

        async def has_met_the_other() -> bool:
            waiting = (
                "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            )
            return later.done() or bool(await database.value(waiting))

        await eventually(has_met_the_other)
        if removed_first:
            await tokens.revoke_of(one, "ann")
    assert (await later).status_code == (404 if removed_first else 200)
    live = (await http.get("/v1/tokens")).json()["tokens"]
    assert not [one for one in live if one["person"] == "ann" and one["revoked_at"] is None]


async def test_a_call_is_told_what_is_private_to_its_person_alone(house: House) -> None:
    """By each token and as each person, in the words of each: 100 attempts, of which those of one's own succeed."""
    database, people = house.server.lab.database, ("ann", "bob", "cid", "stranger")
    for person in people:
        key = f"telegram/bot%3Ahouse/{person}"
        reader = Reader(CLERK, Conversation(key), key, private=True)
        assert await facts.learn(
            database,
            reader,
            NewFact(key, person, private=True, text=f"the secret of {person} is a walnut", positions=()),
        )
        if person != "stranger":
            link = {"channel": "telegram", "identity": person}
            assert (await house.server.http.post(f"/v1/people/{person}/link", json=link)).status_code == 200
    attempts = 0
    for by, whom in (*((name, name) for name in house.headers), *(("operator", one) for one in people[:3])):
        for words in (*people, *(f"secret of {one}" for one in people), *WORDS):
            more = {"person": whom} if by == "operator" and whom != by else {}
            status, call = await house.call(by, "memory_search", arguments={"query": words}, **more)
            told = {one for one in people if f"the secret of {one}" in call["text"]}
            mine = {whom} & {*people[:3]} if any(word in words for word in ("secret", "walnut", whom)) else set()
            assert (status, told) == (200, mine), (by, whom, words, call)
            attempts += 1
    assert attempts >= 100
    # As soon as the handle is nobody's, nothing of it is told.
    unlink = {"channel": "telegram", "identity": "ann"}
    await house.server.http.post("/v1/people/ann/unlink", json=unlink)
    _, call = await house.call("ann", "memory_search", arguments={"query": "secret walnut"})
    assert "walnut" not in call["text"]


async def test_the_command_line_calls(
    house: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = Cli(capsys, monkeypatch, house.server.environment)

    async def said(*arguments: str) -> tuple[int, str]:
        ended, out, err = await asyncio.to_thread(cli.run, "modules", "call", *arguments)
        return ended, out + err

    await house.call("operator", "look")  # the log says that a module is opened
    capsys.readouterr()
    assert await said("clerk", "look", '{"text": "7"}') == (0, "look: {'text': '7'}\n")
    code, out = await said("clerk", "look", "--json", '{"text": "7"}', "--as", "ann")
    assert (code, json.loads(out)["text"]) == (0, "look: {'text': '7'}")
    code, out = await said("clerk", "look", "--as", "bob")
    assert (code, out) == (1, "there is no tool 'look'; there are: memory_search\n")
    for wrong in ("{", "[]"):
        code, out = await said("clerk", "look", wrong)
        assert (code, "ARGUMENTS" in out) == (2, True)
    code, out = await said("clerk", "pay")
    assert (code, out.startswith("pending: people must approve it: switchboard approvals show ")) == (0, True)
    assert (await said("nobody", "look"))[0] == 5


async def test_the_commands_of_the_manual_call(
    house: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/calls.md has them, in their order."""
    cli = Cli(capsys, monkeypatch, house.server.environment)
    await house.server.http.delete("/v1/people/ann")
    commands = [
        step.command for block in all_blocks("console") if block.document.name == "calls.md" for step in steps(block)
    ]
    assert len(commands) == 5
    for command in commands:
        code, out, err = await asyncio.to_thread(cli.run, *shlex.split(command)[1:])
        assert code == 0, (command, out, err)
    tokens = (await house.server.http.get("/v1/tokens")).json()["tokens"]
    assert {one["name"]: one["person"] for one in tokens if one["name"] in {"desk", "hall"}} == {
        "desk": "ann",
        "hall": None,
    }


async def test_a_butlers_token_gets_calls_over_mcp(house: House) -> None:
    _, made = await house.call("ann", "pay")
    async with client_for(house.server, dict(house.headers["ann"])) as client:
        assert "calls_get" in {tool.name for tool in (await client.list_tools()).tools}
        found = structured(await client.call_tool("calls_get", {"call_id": made["call_id"]}))
        assert (found["state"], found["approval_id"]) == ("pending", made["approval_id"])
    async with client_for(house.server, dict(house.headers["bob"])) as client:
        refused = await client.call_tool("calls_get", {"call_id": made["call_id"]})
        assert error_of(refused)["code"] == "not_found"


MINE: Final = {"diary_read", "diary_add"}


async def test_a_butlers_token_has_the_tools_of_modules_over_mcp(house: House) -> None:
    """Those that are granted for whom it is; the server opens no module."""
    listed = {"ann": MINE, "bob": set[str](), "nobody": {"diary_read"}, "operator": set[str]()}
    for by, expected in listed.items():
        async with client_for(house.server, dict(house.headers[by])) as client:
            tools = {one.name: one for one in (await client.list_tools()).tools}
            assert MINE & {*tools} == expected
            if expected:
                assert tools["diary_read"].description == "What is planned for a day."
                found = structured(await client.call_tool("diary_read", {"day": "Monday"}))
                assert (found["state"], found["text"]) == ("done", "Ann: nothing on Monday")
                wrong = await client.call_tool("diary_read", {"day": 1})
                assert wrong.is_error
            else:
                with pytest.raises(MCPError, match="unknown tool: diary_read"):
                    await client.call_tool("diary_read", {"day": "Monday"})
    async with client_for(house.server, dict(house.headers["ann"])) as client:
        call = {"day": "Monday", "what": "rest"}
        meta: Any = {KEY: "1"}
        first, second = [structured(await client.call_tool("diary_add", call, meta=meta)) for _ in range(2)]
        assert (first["call_id"], first["state"]) == (second["call_id"], "pending")
        await house.server.http.post(f"/v1/approvals/{first['approval_id']}/approve")
        found = structured(await client.call_tool("calls_get", {"call_id": first["call_id"], "wait_s": 20}))
        assert found["text"] == "planned: rest"


async def test_an_interrupted_effect_is_not_repeated(tmp_path: Path) -> None:
    pay = Noting("pay", "effectful")
    engine = CallEngine(EngineContext(NoMemos(), Book(), workspaces=tmp_path), [pay])
    wanted = WantedCall("pay", {"text": "7"}, SystemId("System1/tool"), caller="operator-1", by_operator=True)
    message = call_message(wanted, RequestId(new_uuid7()), NOW)
    turn = a_turn({})
    turn = type(turn)(turn.member, turn.team_id, message.request_id, message.conversation, message.envelope, NOW)
    later = replace(message.envelope, control=replace(message.envelope.control, cause="reminder"))
    assert (is_call(message.envelope), is_call(later)) == (True, False)
    record = Record()
    first = await engine.run(turn, MemoryJournal(record))
    assert (first, len(pay.calls)) == (Answer("pay: {'text': '7'}"), 1)
    assert (await engine.run(turn, MemoryJournal(record)), len(pay.calls)) == (first, 1)
    del record.ended["tool:1:call"]
    result = await engine.run(turn, MemoryJournal(record))
    assert isinstance(result, Answer)
    assert (result.stop_reason, len(pay.calls)) == ("error", 1)
    assert result.text.startswith("outcome unknown")
    assert "outcome unknown" in result.warning


def test_a_tool_is_given_what_a_database_can_keep() -> None:
    # So it is for calls of models, whose answers are noted before anything is called.
    text = call_text("diary_add", {"day\x00": ["a\x00b", {"who": "\x00"}]})
    assert called_in(text) == ("diary_add", {"day": ["ab", {"who": ""}]})


async def test_no_door_takes_a_message_of_the_channel(house: House) -> None:
    forged = envelope_json('look {"text":"7"}', channel=CALL, provider="operator", sender="ann", endpoint="ann")
    assert (await house.server.submit(forged)).json()["error"]["code"] == "unknown_channel"
    batch = await house.server.http.post("/v1/ingest/batch", json={"envelopes": [forged]})
    assert batch.json()["results"][0]["error"]["code"] == "unknown_channel"
    async with client_for(house.server) as client:
        taken = await client.call_tool("ingest_batch", {"envelopes": [forged]})
        assert structured(taken)["results"][0]["error"]["code"] == "unknown_channel"
    body = {"name": uuid4().hex, "role": "connector", "channel": CALL, "endpoint": "ann"}
    token = (await house.server.http.post("/v1/tokens", json=body)).json()["token"]
    shown = {"authorization": f"Bearer {token}"}
    assert (await house.server.submit(forged, **shown)).json()["error"]["code"] == "unknown_channel"
    arguments = SourceArguments("ann", source_channel=CALL, source_endpoint_identity="ann")
    with pytest.raises(InvalidInput, match="calls of tools"):
        envelope_of("hello", arguments, {}, IntakeContext(RequestId(new_uuid7()), NOW, "a program"))
    with pytest.raises(ConfigurationError, match="calls of tools"):
        CHANNELS.adding((), {CALL: ["mine"]})
    assert not house.tools["look"].calls
