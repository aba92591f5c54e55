"""The example of the routing PRD, played through on a real `switchboard up`.

A voice reply from a chat reaches root, the sub-team `onboarding`, and there System1/onboarding_interviewer. While rule
B is missing it is a dead letter of onboarding and its System4 knows; System3 makes the rule at run time, System4
reroutes the dead letter, and the answer goes out to that chat once.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from tests.lab import envelope_json
from tests.processes import DEADLINE, Server, butler, environment, running, switchboard, told, write_teams
from tests.waiting import eventually

pytestmark = pytest.mark.slow

CHAT = 5488423581
HEARD = "We are four, and a cat."
INTERVIEWER = "import json, sys; print('Noted:', json.load(sys.stdin)['envelope']['payload']['normalized_text'])"
RULE_A = {
    "name": "A",
    "channel": "telegram",
    "filters": {"telegram_user_id": str(CHAT)},
    "targets": [{"team_id": "onboarding"}],
}
RULE_B = {
    "name": "B",
    "channel": "telegram",
    "filters": {"telegram_chat_id": str(CHAT)},
    "targets": [{"system_id": "System1/onboarding_interviewer"}],
}
ELSEWHERE = RULE_B | {"name": "another house", "filters": {"telegram_chat_id": "7000000001"}}
ROOT = {
    "team": {"name": "root"},
    "systems": [{"type": "control"}, {"type": "intelligence"}],
    "routing_rules": [RULE_A],
}


def onboarding(*rules: dict[str, Any]) -> dict[str, Any]:
    """The sub-team with these rules."""
    interviewer = butler("onboarding_interviewer", [sys.executable, "-c", INTERVIEWER])
    systems = [interviewer, {"type": "control"}, {"type": "intelligence"}]
    return {"team": {"name": "onboarding", "parent": "root"}, "systems": systems, "routing_rules": list(rules)}


@dataclass(frozen=True, slots=True)
class House:
    """A running switchboard, and the tokens of those who act."""

    server: Server
    tokens: dict[str, str] = field(repr=False)

    @classmethod
    def open(cls, server: Server) -> House:
        """With the tokens of the bot and of three systems."""
        systems = ("System3/onboarding", "System4/onboarding", "System4/root")
        account = ("--role", "connector", "--channel", "telegram", "--endpoint", "bot:house")
        env = server.environment
        tokens = {"bot": str(told(env, "tokens", "create", "bot", *account)["token"])}
        for system in systems:
            name = system.replace("/", "-")
            made = told(env, "tokens", "create", name, "--role", "agent", "--system", system)
            tokens[system] = str(made["token"])
        return cls(server, tokens)

    @asynccontextmanager
    async def http(self, who: str) -> AsyncIterator[httpx2.AsyncClient]:
        """HTTP with somebody's token."""
        headers = {"authorization": f"Bearer {self.tokens[who]}"}
        url = str(self.server.said["url"])
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=DEADLINE, trust_env=False) as client:
            yield client

    async def get(self, who: str, path: str) -> dict[str, Any]:
        async with self.http(who) as client:
            return _good(await client.get(path))

    async def post(self, who: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self.http(who) as client:
            return _good(await client.post(path, json=body))

    async def call(self, who: str, tool: str, **arguments: Any) -> dict[str, Any]:
        """An MCP tool with somebody's token; of an error, `{"error": …}`."""
        async with self.http(who) as http:
            transport = streamable_http_client(f"{self.server.said['url']}/mcp", http_client=http)
            async with Client(transport) as client:
                result = await client.call_tool(tool, arguments)
        [content] = result.content
        assert isinstance(content, TextContent)
        answer: dict[str, Any] = json.loads(content.text)
        assert bool(result.is_error) is ("error" in answer)
        return answer

    async def hear(self, event: int) -> str:
        """A voice reply of the chat arrives; its request_id."""
        accepted = await self.post("bot", "/v1/ingest", voice(event))
        assert (accepted["status"], accepted["duplicate"]) == ("accepted", False)
        return str(accepted["request_id"])

    async def said(self, wait: float) -> list[dict[str, Any]]:
        """What the bot is to send now; it is sent, and its receipt handed in."""
        account = {"channel": "telegram", "endpoint": "bot:house"}
        replies: list[dict[str, Any]] = (await self.post("bot", "/v1/outbox/next", account | {"wait_s": wait}))[
            "replies"
        ]
        for reply in replies:
            receipt = {"lease": reply["lease"], "outcome": "sent", "platform_message_id": "900"}
            assert await self.post("bot", f"/v1/outbox/{reply['outbox_id']}/receipt", receipt) == {"state": "sent"}
        return replies


def _good(response: httpx2.Response) -> dict[str, Any]:
    assert response.is_success, response.text
    answer: dict[str, Any] = response.json()
    return answer


def voice(number: int) -> dict[str, Any]:
    """A voice message in reply to the bot, as Telegram tells of it, in an envelope with what was heard in it."""
    person = {"id": CHAT, "is_bot": False, "first_name": "Ada"}
    chat = {"id": CHAT, "type": "private", "first_name": "Ada"}
    asked = {"message_id": number - 1, "date": 1795262400, "chat": chat, "text": "Who lives in the house?"}
    asked["from"] = {"id": 99, "is_bot": True, "first_name": "House"}
    recording = {"file_id": "AwACAgIAAx", "file_unique_id": "AgADxQ", "duration": 3, "mime_type": "audio/ogg"}
    message = {"message_id": number, "date": 1795262460, "chat": chat, "from": person, "voice": recording}
    raw = {"update_id": number, "message": message | {"reply_to_message": asked}}
    names = {"sender": str(CHAT), "thread": str(CHAT), "chat_type": "private"}
    return envelope_json(HEARD, event=str(number), raw=raw, **names)


async def test_a_voice_reply_reaches_the_interviewer(place: Path) -> None:
    """Rule A, rule B, the interviewer, and the answer goes to the chat."""
    teams = write_teams(place / "teams", ROOT, onboarding(RULE_B))
    with running(environment(place / "data", TEAMS_DIR=str(teams), LOG_LEVEL="error"), "up") as server:
        house = await asyncio.to_thread(House.open, server)
        request_id = await house.hear(41)
        [reply] = await house.said(wait=20)
        found = await asyncio.to_thread(told, server.environment, "explain", request_id)
    assert (reply["request_id"], reply["recipient"], reply["text"]) == (request_id, str(CHAT), f"Noted: {HEARD}")
    [decision] = found["decisions"]
    assert [(step["team_id"], step["rule_name"]) for step in decision["trail"]] == [("root", "A"), ("onboarding", "B")]
    assert found["dead_letters"] == []


async def test_without_rule_b_it_waits_until_system3_makes_the_rule(place: Path) -> None:
    teams = write_teams(place / "teams", ROOT, onboarding(ELSEWHERE))
    with running(environment(place / "data", TEAMS_DIR=str(teams), LOG_LEVEL="error"), "up") as server:
        house = await asyncio.to_thread(House.open, server)
        request_id = await house.hear(41)
        dead_letter = await _waits_in_onboarding(house, request_id)
        await _system3_makes_rule_b(house, request_id)
        await _system4_reroutes(house, dead_letter, request_id)
        await _the_chat_hears_once(house, request_id)
        await _explain_tells_both_decisions(house, request_id)
        await _the_next_one_goes_straight(house)
        books = told(server.environment, "doctor", code=0)
        assert {f["status"] for f in books["findings"] if f["name"].startswith("books")} == {"ok"}


async def _waits_in_onboarding(house: House, request_id: str) -> str:
    """It is a dead letter of onboarding, whole; its System4 is told, root's is not."""
    [dead_letter] = (await house.get("System4/onboarding", "/v1/dead-letters"))["dead_letters"]
    assert (dead_letter["request_id"], dead_letter["team_id"], dead_letter["category"]) == (
        request_id,
        "onboarding",
        "no_route",
    )
    assert (dead_letter["status"], dead_letter["handler"]) == ("pending", "System4/onboarding")
    assert (await house.get("System4/root", "/v1/dead-letters"))["dead_letters"] == []
    path = f"/v1/dead-letters/{dead_letter['dead_letter_id']}"
    whole = await house.get("System4/onboarding", path)
    assert whole["payload"]["payload"]["normalized_text"] == HEARD

    async def known() -> bool:
        notices = (await house.get("System4/onboarding", path))["notices"]
        return [(n["system_id"], n["state"]) for n in notices] == [("System4/onboarding", "delivered")]

    await eventually(known)
    return str(dead_letter["dead_letter_id"])


async def _system3_makes_rule_b(house: House, request_id: str) -> None:
    """Only System3, only for its own team; it hears at once which message would now be routed differently."""
    wanted = {**RULE_B, "team_id": "onboarding", "reason": "the interview goes on"}
    refused = await house.call("System4/onboarding", "routing_rules_create", **wanted)
    assert refused["error"]["code"] == "forbidden"
    above = {**RULE_A, "name": "mine", "team_id": "root", "reason": "I would like to"}
    assert (await house.call("System3/onboarding", "routing_rules_create", **above))["error"]["code"] == "forbidden"

    written = await house.call("System3/onboarding", "routing_rules_create", **wanted)

    assert (written["rule"]["name"], written["rule"]["version"]) == ("B", written["version"])
    assert written["rule"]["created_by"] == "System3-onboarding (System3/onboarding)"
    assert (written["blast"]["looked_at"], written["blast"]["changed"]) == (1, 1)
    [example] = written["blast"]["examples"]
    assert example["request_id"] == request_id
    lost = [{"team": "onboarding", "category": "no_route"}]
    assert example["before"] == {"butlers": [], "dead_letters": lost, "models": []}
    assert example["after"] == {"butlers": ["System1/onboarding_interviewer"], "dead_letters": [], "models": []}


async def _system4_reroutes(house: House, dead_letter: str, request_id: str) -> None:
    """By the current rules; repeated, it reports what was done and nothing is done twice."""
    wanted = {"dead_letter_id": dead_letter, "reason": "there is a rule now"}
    refused = await house.call("System4/root", "dead_letters_reroute", **wanted)
    assert refused["error"]["code"] == "not_found"
    first = await house.call("System4/onboarding", "dead_letters_reroute", **wanted)
    again = await house.call("System4/onboarding", "dead_letters_reroute", **wanted)
    for answer, already in ((first, False), (again, True)):
        assert answer["already"] is already
        assert answer["decision_n"] == 2
        assert answer["dead_letter"]["status"] == "handled"
        assert answer["dead_letter"]["request_id"] == request_id
        assert [d["system_id"] for d in answer["deliveries"]] == ["System1/onboarding_interviewer"]


async def _the_chat_hears_once(house: House, request_id: str) -> None:
    [reply] = await house.said(wait=20)
    assert (reply["request_id"], reply["recipient"], reply["text"]) == (request_id, str(CHAT), f"Noted: {HEARD}")
    message = await asyncio.to_thread(told, house.server.environment, "messages", "show", request_id)
    assert [(one["system_id"], one["state"]) for one in message["deliveries"]] == [
        ("System1/onboarding_interviewer", "answered")
    ]
    assert await house.said(wait=0) == []


async def _explain_tells_both_decisions(house: House, request_id: str) -> None:
    """Why nobody took it at first, which rule was nearest to it, and what took it then."""
    found = await asyncio.to_thread(told, house.server.environment, "explain", request_id)
    first, second = found["decisions"]
    assert [(step["team_id"], step["reason"]) for step in first["trail"]] == [
        ("root", "rule"),
        ("onboarding", "no_route"),
    ]
    [miss] = first["trail"][1]["nearest"]
    assert (miss["name"], miss["failed"]) == ("another house", 1)
    assert (second["n"], second["trail"][-1]["rule_name"]) == (2, "B")
    assert second["version"] > first["version"]
    done = await asyncio.to_thread(switchboard, house.server.environment, "explain", request_id)
    shown = done.stdout
    places = [
        shown.index(part)
        for part in ("no route", "✗ another house", "≈ nearest: another house", "decision 2", "✓ B", "“Noted: ")
    ]
    assert places == sorted(places)


async def _the_next_one_goes_straight(house: House) -> None:
    request_id = await house.hear(43)
    [reply] = await house.said(wait=20)
    assert reply["request_id"] == request_id
