"""The wire forms of the official SDKs are those in `tests/fixtures/wire`: an SDK that changes them is noticed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from anthropic.types import RawMessageStreamEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from switchboard.domain.llm import ChatMessage, Request
from switchboard.llm.answers import read_document
from switchboard.llm.port import ApiKind
from switchboard.llm.streams import FOLDS
from tests.wire import FORMS, PLACE, record

EVENTS: Final[Mapping[ApiKind, TypeAdapter[Any]]] = {
    "openai": TypeAdapter(ChatCompletionChunk),
    "openai-responses": TypeAdapter(ResponseStreamEvent),
    "anthropic": TypeAdapter(RawMessageStreamEvent),
}

every_form = pytest.mark.parametrize(("name", "kind", "more"), FORMS, ids=[name for name, _, _ in FORMS])


@every_form
async def test_the_sdk_sends_what_it_sent_before(name: str, kind: ApiKind, more: dict[str, Any]) -> None:
    kept = json.loads((PLACE / f"{name}.json").read_text(encoding="utf-8"))
    assert await record(kind, more) == kept, "if an SDK or we have changed it on purpose: python -m tests.wire"


@every_form
def test_the_sdk_understands_the_events_and_we_read_the_same(name: str, kind: ApiKind, more: dict[str, Any]) -> None:
    kept = json.loads((PLACE / f"{name}.json").read_text(encoding="utf-8"))
    fold = FOLDS[kind]()
    for event in kept["events"]:
        EVENTS[kind].validate_python(event)
        fold.feed(json.dumps(event))
    reply = read_document(
        kind, fold.document, Request((ChatMessage("user", "Rain?"),)), local=bool(more.get("profile"))
    )
    assert (reply.text, [call.arguments for call in reply.calls]) == ("Let me see.", [{"at": "ü"}, {}])
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cache_read) == (50, 9, 20)
