"""What is due comes in by the front door: once, in its conversation, to its butler, and as nobody's words."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from switchboard.app.access import Access, Principal
from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.core.envelope.due import kept_facts
from switchboard.core.people.strangers import Contact
from switchboard.domain.errors import InvalidInput, Unavailable
from switchboard.domain.routing import SystemId
from switchboard.journey.accept import Submission
from switchboard.ports.front_door import Firing, Origin
from switchboard.ports.tools import ToolScope
from switchboard.store.messages import inbox
from switchboard.store.people import strangers
from switchboard.store.work import ledger
from tests.forked import Forks
from tests.hands import assert_balanced, at_work, settled
from tests.lab import TRUSTING, Lab, butler, envelope, envelope_json, lab, member, submission, team_of
from tests.servers import CONNECTOR, Opened, open_server
from tests.waiting import eventually

TASK = {"task_id": "t1", "revision": 1, "due": "2026-11-21T12:00:00Z", "made_at": "2026-11-20T12:00:00Z"}
OURS: tuple[dict[str, Any], ...] = ({"cause": "reminder"}, {"task": TASK}, {"cause": "reminder", "task": TASK})
DUE = datetime(2026, 11, 29, 18, 0, tzinfo=UTC)


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    async with open_server(database_url, tmp_path / "data", worker=False) as opened:
        yield opened


async def _refusals(server: Opened, message: Mapping[str, Any]) -> dict[str, tuple[int, str, str]]:
    """What each door that takes envelopes answers: status, code and field."""
    found = {}
    for role, headers in (("operator", {}), ("connector", dict(await server.token_for(CONNECTOR)))):
        one = await server.http.post("/v1/ingest", json=message, headers=headers)
        error = one.json()["error"]
        found[f"http {role}"] = one.status_code, error["code"], error["field"]
        many = await server.http.post("/v1/ingest/batch", json={"envelopes": [message]}, headers=headers)
        error = many.json()["results"][0]["error"]
        found[f"batch {role}"] = 422, error["code"], error["field"]
        for tool, arguments in (("ingest", {"envelope": message}), ("ingest_batch", {"envelopes": [message]})):
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
            accepted = {"accept": "application/json, text/event-stream", **headers}
            said = await server.http.post("/mcp", json=call, headers=accepted)
            error = json.loads(said.json()["result"]["content"][0]["text"])
            error = (error["results"][0] if "results" in error else error)["error"]
            found[f"mcp {tool} {role}"] = 422, error["code"], error["field"]
    try:
        raw = json.dumps(message).encode()
        await server.lab.accept.accept(Submission(envelope(of_control=message["control"]), raw))
    except InvalidInput as error:
        found["accept leg"] = error.status, error.code, str(error.field)
    return found


@pytest.mark.parametrize("control", OURS)
async def test_every_door_refuses_what_only_is_due(server: Opened, control: dict[str, Any]) -> None:
    refused = await _refusals(server, envelope_json("pay him", of_control=control))

    assert set(refused.values()) == {(422, "cause_refused", f"control.{min(control)}")}
    assert len(refused) == 9
    assert await server.lab.count("select count(*) from message_inbox") == 0


# In its conversation, once ------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_door(url: str, data_dir: Path, **more: Any) -> AsyncIterator[tuple[Lab, WorkerFrontDoor]]:
    policies = {name: {"strangers": policy} for name, policy in more.pop("policies", {}).items()}
    async with lab(url, channels=TRUSTING, **more) as parts:
        settings = Settings(data_dir=data_dir, endpoints=policies)
        runtime = Runtime(settings, parts.database, parts.notifier, parts.rule_book, TRUSTING)
        yield parts, WorkerFrontDoor(runtime)


def scope_of(turn: UUID, conversation: str, system_id: str = "System1/echo") -> ToolScope:
    """What a tool is given in a turn."""
    nowhere = frozenset[str]()
    return ToolScope(Path("/nonexistent"), nowhere, nowhere, turn, turn, conversation=f"{system_id} {conversation}")


async def origin_of(parts: Lab, door: WorkerFrontDoor, **message: Any) -> Origin:
    """What a task keeps that is made in the turn of this message."""
    accepted = await parts.accept.accept(submission(**message))
    stored = await inbox.get_message(parts.database, accepted.request_id)
    assert stored is not None
    found = await door.origin(scope_of(accepted.request_id, stored.conversation, message.get("pinned", "System1/echo")))
    assert found is not None
    return found


def firing(origin: Origin, text: str = "water the tomatoes", **more: Any) -> Firing:
    given = {"task_id": "t1", "revision": 2, "due": DUE, "made_at": DUE - timedelta(days=1), "text": text}
    return Firing(origin=origin, **{**given, **more})


IN_A_TOPIC = {
    "raw": {
        "update_id": 7,
        "message": {
            "message_id": 9,
            "chat": {"id": -100, "type": "supergroup"},
            "from": {"id": 5488},
            "message_thread_id": 3,
            "is_topic_message": True,
        },
    },
    "sender": "5488",
    "chat_type": "supergroup",
    "thread": "-100:3",
}
A_MAIL = {
    "channel": "email",
    "sender": "ann@example.org",
    "endpoint": "house@example.org",
    "event": "<2@example.org>",
    "raw": {
        "headers": {
            "message-id": "<2@example.org>",
            "references": "<1@example.org>",
            "authentication-results": "mx.example; dmarc=pass header.from=example.org",
        }
    },
}


@pytest.mark.parametrize(
    "made_by",
    [
        {"sender": "5488", "chat_type": "private", "of_event": {"reply_address": {"chat": 5488}}},
        IN_A_TOPIC,
        A_MAIL,
        {**A_MAIL, "sender": "ben@example.org", "before": {**A_MAIL, "raw": None, "event": "<1@example.org>"}},
        {"channel": "api", "sender": "ann", "thread": "kitchen"},
    ],
    ids=["private chat", "topic", "mail", "mail by a stranger in the thread", "api"],
)
async def test_what_is_due_is_said_and_done_once_where_its_task_was_made(
    database_url: str, tmp_path: Path, made_by: dict[str, Any]
) -> None:
    async with a_door(database_url, tmp_path) as (parts, door), at_work(parts.worker()):
        if before := made_by.get("before"):
            await parts.accept.accept(submission("begun by Ann", **before))
        origin = await origin_of(parts, door, text="Remind me", **made_by)
        assert await door.obstacle(origin) == ""
        say, do = firing(origin, say=True), firing(origin, "look at the weather", task_id="t2")
        # Whoever may submit messages there must not be able to take its key before it is due.
        await parts.accept.accept(submission("first", **{**made_by, "event": say.key}))
        await parts.accept.accept(submission("second", **{**made_by, "key": say.key, "event": "another"}))
        await eventually(lambda: settled(parts))
        first = [await door.submit(one) for one in (say, do)]
        late = replace(say, text="water the tomatoes (an hour late)")
        again = [await door.submit(one) for one in (say, do, late)]
        await eventually(lambda: settled(parts))

        assert [one.duplicate for one in (*first, *again)] == [False, False, True, True, True]
        assert [one.request_id for one in again] == [one.request_id for one in (*first, first[0])]
        rows = await parts.database.rows("select text, system_id, lane from outbox where text ~ 'tomatoes|weather'")
        assert sorted((row["text"], row["system_id"]) for row in rows) == [
            ("look at the weather", "System1/echo"),
            ("water the tomatoes", "switchboard"),
        ]
        assert len({row["lane"] for row in rows}) == 1
        for one, task in zip(first, ("t1", "t2"), strict=True):
            stored = await inbox.get_message(parts.database, one.request_id)
            assert stored is not None
            assert (stored.conversation, stored.sender, stored.thread) == (
                origin.conversation,
                origin.sender,
                origin.thread,
            )
            [decision] = await ledger.decisions_of(parts.database, one.request_id)
            assert f"task {task}, revision 2, due 2026-11-29 18:00:00 UTC" in decision.trail[0]["detail"]
            facts = decision.facts or {}
            assert kept_facts(facts) == origin.facts
            assert ("email_auth" not in origin.facts) or facts["email_auth"] == "pass"
            of_firing = await door.origin(scope_of(one.request_id, stored.conversation))
            assert of_firing == origin


DENIED = "an operator has denied the person or the group that made the task"
CLOSED = "the person or the group that made the task is not let in any more"
OBSTACLES: dict[str, tuple[str, dict[str, Any], str]] = {
    "nothing": ("select 1", {}, ""),
    "denied": ("update contact set state = 'denied'", {}, DENIED),
    "denied where now everybody may write": ("update contact set state = 'denied'", {"policy": "open"}, DENIED),
    "revoked": ("update contact set state = 'stranger'", {}, CLOSED),
    "forgotten": ("delete from contact", {}, CLOSED),
    "forgotten where everybody may write": ("delete from contact", {"policy": "open"}, ""),
    "another butler": ("select 1", {"system_id": SystemId("System1/ghost")}, "ghost is gone, or switched off"),
    "a butler that is switched off": (
        "select 1",
        {"system_id": SystemId("System1/asleep")},
        "asleep is gone, or switched off",
    ),
    "an account without a valid token": (
        "update token set revoked_at = now()",
        {},
        "the account telegram/bot:house is out of service",
    ),
    "an account whose process still reports itself": (
        "with t as (update token set revoked_at = now()) insert into connector (channel, endpoint, instance_id, state, "
        "counters) values ('telegram', 'bot:house', 'i', 'healthy', '{}')",
        {},
        "",
    ),
}


@pytest.mark.parametrize(("change", "now", "why"), OBSTACLES.values(), ids=OBSTACLES)
@pytest.mark.parametrize("made_by", [{"sender": "5488", "chat_type": "private"}, IN_A_TOPIC], ids=["person", "group"])
async def test_what_stands_in_the_way_is_told_before_anything_is_submitted(
    database_url: str, tmp_path: Path, change: str, now: dict[str, Any], why: str, made_by: dict[str, Any]
) -> None:
    policies = {"telegram/bot:house": now.get("policy", "pair")}
    team = team_of(butler("echo"), member("System1/asleep", active=False), "System4/root")
    async with a_door(database_url, tmp_path, policies=policies, teams_=[team]) as (parts, door):
        origin = await origin_of(parts, door, text="Remind me", **made_by)
        scope, identity = origin.contact or ("", "")
        assert (scope, identity) in {("person", "5488"), ("group", "-100")}
        await strangers.add(parts.database, convert_contact(scope, identity), "test")
        access = Access(parts.database)
        await access.issue(Principal("operator", "test"), Principal("connector", "c", "telegram", "bot:house"))
        assert await door.obstacle(origin) == ""

        await parts.database.run(change)

        found = await door.obstacle(replace(origin, system_id=now.get("system_id", origin.system_id)))
        assert found == why
        if "switched off" in why:
            with pytest.raises(Unavailable, match="switched off"):
                await door.submit(firing(replace(origin, system_id=now["system_id"])))
            assert await parts.count("select count(*) from message_inbox") == 1


def convert_contact(scope: str, identity: str) -> Contact:
    given = {"channel": "telegram", "endpoint": "bot:house", "scope": scope, "identity": identity}
    return msgspec.convert(given, Contact)


DEATHS = ("before_door", "after_receive", "before_commit", "after_commit", "after_door")


@pytest.mark.parametrize("say", [True, False], ids=["say", "do"])
@pytest.mark.parametrize("death", DEATHS)
async def test_what_is_due_is_answered_once_wherever_its_worker_dies(
    forks: Forks, database_url: str, tmp_path: Path, death: str, *, say: bool
) -> None:
    errors = tmp_path / "errors"
    async with a_door(database_url, tmp_path) as (parts, door):
        origin = await origin_of(parts, door, text="Remind me", sender="5488", chat_type="private")
        given = (database_url, str(tmp_path), msgspec.json.encode(firing(origin, say=say)).decode())
        by_door = death.endswith("_door")
        crash = {} if by_door else {"SWITCHBOARD_CRASH_AT": death}
        first = forks.start(
            "tests.due_node", *given, *([death] if by_door else []), env={**os.environ, **crash}, errors=errors
        )
        assert await first.wait() == -signal.SIGKILL
        for _ in range(2):
            assert await forks.start("tests.due_node", *given, env=os.environ, errors=errors).wait() == 0

        async with at_work(parts.worker()):
            await eventually(lambda: settled(parts))
        [row] = await parts.database.rows("select key, request_id from due_row")
        assert await parts.replies_to(row["request_id"]) == ["water the tomatoes"]
        assert await parts.count("select count(*) from message_inbox") == 2
        await assert_balanced(parts)
