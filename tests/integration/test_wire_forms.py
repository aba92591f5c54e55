"""What we send to providers is what is kept in `tests/fixtures/wire`, and what their SDKs send and understand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import httpx2
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from switchboard.domain.llm import ChatMessage, ModelDelta, ModelFailure, Request, Usage
from switchboard.llm.answers import read_document
from switchboard.llm.api import ApiSession
from switchboard.llm.openai_api import opener
from switchboard.llm.port import ApiKind
from switchboard.llm.streams import FOLDS
from switchboard.llm.web import open_client
from switchboard.testing.scripted_llm import (
    ContentType,
    Cut,
    Disconnect,
    Empty,
    Fault,
    Garbage,
    HugeText,
    ScriptedLlm,
    Status,
)
from switchboard.testing.scripted_llm import Reply as Scripted
from tests.asking import spec
from tests.wire import FORMS, PLACE, record, record_sdk, sdk_opener

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

ASKED: Final = Request((ChatMessage("user", "Rain?"),))

every_form = pytest.mark.parametrize(("name", "kind", "more"), FORMS, ids=[name for name, _, _ in FORMS])


@every_form
async def test_what_is_sent_is_what_was_sent_before(name: str, kind: ApiKind, more: dict[str, Any]) -> None:
    kept = json.loads((PLACE / f"{name}.json").read_text(encoding="utf-8"))
    assert await record(kind, more) == kept, "if an SDK or we have changed it on purpose: make wire"


ours = pytest.mark.parametrize(
    ("kind", "more"),
    [(kind, more) for _, kind, more in FORMS if kind != "anthropic"],
    ids=["chat", "responses", "local"],
)


@ours
async def test_our_client_sends_what_the_sdk_sends(
    kind: ApiKind, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another-program")
    sent = (await record(kind, more))["requests"]
    assert sent == await record_sdk(kind, more)
    assert sent[0]["headers"]["openai-organization"] == "org-1"


FAULTS: Final[tuple[Fault, ...]] = (
    *(Status(status, 7 if status in {429, 503} else None) for status in (302, 400, 401, 402, 404, 413, 429, 503)),
    Status(500, at="middle"),
    Disconnect(),
    Cut(),
    Cut(0),
    Garbage(),
    Empty(),
    ContentType(),
    HugeText(5_000_000),
)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", FAULTS, ids=repr)
async def test_our_client_fails_as_the_sdk_does(fault: Fault, streamed: bool) -> None:
    failures = []
    async with ScriptedLlm([Scripted("Sun.", fault=fault)] * 2) as llm, open_client() as http:
        for opened in (sdk_opener(http, "openai", llm.url), opener(http, "openai", f"{llm.url}/v1", None)):
            try:
                await ApiSession(spec("openai", llm.url), "openai", opened).run(ASKED, _ignore if streamed else None)
            except ModelFailure as failure:
                failures.append(vars(failure))
            else:
                failures.append({})
        assert len(llm.requests) == 2, "nothing is retried"
    assert failures[0] == failures[1]


async def test_who_is_not_there_fails_as_with_the_sdk() -> None:
    failures = []
    async with open_client() as http:
        for url in ("http://127.0.0.1:1", "http://no-such-host.invalid", "http://user:@/"):
            for opened in (sdk_opener(http, "openai", url), opener(http, "openai", f"{url}/v1", None)):
                with pytest.raises(ModelFailure) as caught:
                    await ApiSession(spec("openai", url), "openai", opened).run(ASKED)
                failures.append(vars(caught.value))
    assert failures[::2] == failures[1::2]


async def test_a_failure_is_told_whatever_its_character_set() -> None:
    answer = httpx2.Response(429, headers={"content-type": "application/json; charset=hex"}, content=b"slow down")
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: answer)) as http:
        with pytest.raises(ModelFailure, match="slow down"):
            async with opener(http, "openai", "http://127.0.0.1/v1", None)({"model": "m", "messages": []}):
                pass


async def test_the_query_of_a_base_url_stays_at_its_end() -> None:
    async with ScriptedLlm([Scripted("Sun.")]) as llm, open_client() as http:
        opened = opener(http, "openai", f"{llm.url}/v1/?api-version=2", None)
        async with opened({"model": "scripted-1", "messages": [{"role": "user", "content": "Rain?"}]}) as response:
            assert response.request.url.raw_path == b"/v1/chat/completions?api-version=2"


def _ignore(_: ModelDelta) -> None:
    pass


@every_form
def test_the_sdk_and_we_read_the_answer_alike_both_whole_and_as_events(
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
