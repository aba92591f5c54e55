"""What butlers that are programs and services are told about whose words a message has: all of it, unfolded."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final
from uuid import UUID

import msgspec
import pytest
from msgspec import structs

from switchboard.agents.delivery import delivery_json
from switchboard.agents.mcp import Carried, route_request
from switchboard.agents.turns.options import TurnOptions
from switchboard.agents.turns.toolbox import granted_to
from switchboard.core.envelope.stored import stored_envelope, stored_json
from switchboard.core.remote_agents import RouteDocument
from switchboard.domain.envelope import Passage
from switchboard.ports.engine import Turn
from switchboard.testing.engines import a_turn
from switchboard.tools.registry import build_tools
from tests.turning import OWNER

Validator: Any = import_module("jsonschema").Draft202012Validator
KEY: Final = UUID(int=1)
PASSAGES: Final = (
    Passage(kind="own", text="Thanks!"),
    Passage(
        kind="quoted", text="> See you.", author="Ann", sent_at=datetime(2026, 11, 28, tzinfo=UTC), refers_to="<1@x>"
    ),
)


def turn_of(text: str, passages: tuple[Passage, ...] = (), channel: str = "api") -> Turn:
    """A turn for a message as it comes out of the database."""
    turn = a_turn({"owners": OWNER}, text)
    source = structs.replace(turn.envelope.source, channel=channel)
    payload = structs.replace(turn.envelope.payload, passages=passages)
    stored = stored_json(structs.replace(turn.envelope, source=source, payload=payload))
    return replace(turn, envelope=stored_envelope(stored))


SAID: Final = [
    ("Thanks!\n\n> See you.", PASSAGES, ["own", "quoted"]),
    ("Thanks!\n> See you.", (), ["own", "quoted"]),
    ("> See you.", (), ["quoted"]),
    ("Thanks!", (), []),
    ("Thanks!", (Passage(kind="own", text="Thanks!"),), []),
]


@pytest.mark.parametrize(("text", "passages", "kinds"), SAID)
def test_a_delivery_says_whose_words_its_parts_are(text: str, passages: tuple[Passage, ...], kinds: list[str]) -> None:
    payload = msgspec.json.decode(delivery_json(turn_of(text, passages), KEY, []))["envelope"]["payload"]
    assert payload["normalized_text"] == text
    assert [one["kind"] for one in payload.get("passages", [])] == kinds
    assert ("passages" in payload) == bool(kinds), "a butler that is strict need not know the field"
    assert [one["text"] for one in payload.get("passages", [])] == [line for line in text.split("\n") if line and kinds]


@pytest.mark.parametrize(("text", "passages", "kinds"), SAID)
def test_a_route_says_it_as_well(text: str, passages: tuple[Passage, ...], kinds: list[str]) -> None:
    route = route_request(turn_of(text, passages), KEY, "route.execute", Carried())
    sent: dict[str, Any] = route.model_dump(mode="json", exclude_none=True)
    assert [one["kind"] for one in sent["input"].get("passages", [])] == kinds
    assert ("passages" in sent["input"]) == bool(kinds)
    Validator(RouteDocument.model_json_schema()).validate(sent)


@pytest.mark.parametrize(("channel", "offered"), [("email", True), ("telegram", False), ("api", False)])
async def test_the_whole_message_is_offered_where_messages_are_folded(channel: str, *, offered: bool) -> None:
    tools = {tool.spec.name: tool for tool in build_tools()}
    turn, options = turn_of("hi", channel=channel), TurnOptions(grants={"groups": tuple(tools), "others": tuple(tools)})
    names = [tool.name for tool in (await granted_to(turn, options, tools, None)).tools]
    assert ("message_original" in names) == offered
