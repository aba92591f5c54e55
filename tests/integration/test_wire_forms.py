"""The wire forms of the official SDKs are those in `tests/fixtures/wire`: an SDK that changes them is noticed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from switchboard.domain.llm import ChatMessage, Request, Usage
from switchboard.llm.answers import read_document
from switchboard.llm.port import ApiKind
from switchboard.llm.streams import FOLDS
from tests.wire import FORMS, PLACE, record

EVENTS: Final[Mapping[ApiKind, TypeAdapter[Any]]] = {
    "openai": TypeAdapter(ChatCompletionChunk),
    "openai-responses": TypeAdapter(ResponseStreamEvent),
    "anthropic": TypeAdapter(RawMessageStreamEvent),
}
WHOLE: Final[Mapping[ApiKind, TypeAdapter[Any]]] = {
    "openai": TypeAdapter(ChatCompletion),
    "openai-responses": TypeAdapter(Response),
    "anthropic": TypeAdapter(Message),
}

every_form = pytest.mark.parametrize(("name", "kind", "more"), FORMS, ids=[name for name, _, _ in FORMS])


@every_form
async def test_the_sdk_sends_what_it_sent_before(name: str, kind: ApiKind, more: dict[str, Any]) -> None:
    kept = json.loads((PLACE / f"{name}.json").read_text(encoding="utf-8"))
    assert await record(kind, more) == kept, "if an SDK or we have changed it on purpose: make wire"


@every_form
def test_the_sdk_understands_the_answer_whole_and_as_events_and_we_read_the_same(
    name: str, kind: ApiKind, more: dict[str, Any]
) -> None:
    kept = json.loads((PLACE / f"{name}.json").read_text(encoding="utf-8"))
    WHOLE[kind].validate_python(kept["whole"])
    fold = FOLDS[kind]()
    for event in kept["events"]:
        EVENTS[kind].validate_python(event)
        fold.feed(json.dumps(event))
    question, local = Request((ChatMessage("user", "Rain?"),)), bool(more.get("profile"))
    for document in (kept["whole"], fold.document):
        reply = read_document(kind, document, question, local=local)
        assert (reply.text, [call.arguments for call in reply.calls]) == ("Let me see.", [{"at": "ü"}, {}])
        assert reply.usage == Usage(50, 9, cache_read=20, cache_write=8)
