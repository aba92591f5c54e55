"""The interface of a dialect: reads a provider's requests, and writes its answers, streams and errors.

`endpoints.py` has one object for each. In: the JSON of a body; out: a `Conversation`; and from an `Answer` back to
JSON. Next: `openai_chat.py`, `openai_responses.py`, `anthropic.py`, `gemini.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec
from starlette.requests import Request as HttpRequest

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.testing.scripted_llm.answer import Answer, Json
from switchboard.testing.scripted_llm.request import Conversation, Dialect, Said


class BadRequest(Exception):
    """The body is invalid for this API. The message goes to the client, with status 400 unless another one is given."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class JsonSpeaker:
    """What all dialects have in common whose requests are JSON."""

    async def body_of(self, http: HttpRequest) -> JsonObject:
        """See `Speaker`."""
        return msgspec.json.decode(await http.body(), type=JsonObject)


class Speaker(Protocol):
    """One dialect."""

    @property
    def name(self) -> Dialect:
        """Its name in records and scripts."""

    async def body_of(self, http: HttpRequest) -> JsonObject:
        """The body as JSON. Raises BadRequest, msgspec.DecodeError."""

    def read(self, body: JsonMapping, path: str) -> Conversation:
        """Read a request. Raises BadRequest."""

    def whole(self, answer: Answer) -> Json:
        """The answer as one JSON object."""

    def stream(self, answer: Answer) -> Iterator[bytes]:
        """The answer as server-sent events, one at a time."""

    def error(self, status: int, message: str) -> Json:
        """The body of an error."""

    def error_event(self, _answer: Answer, status: int, message: str, /) -> bytes:
        """The event that reports, in the middle of a stream, that it has failed."""

    def headers(self, number: int) -> Mapping[str, str]:
        """The headers that this provider sends with every answer: the id of the request."""


def wanted(body: JsonMapping, field: str, kind: type) -> Any:
    """A required field. Raises BadRequest that names it."""
    value = body.get(field)
    if not isinstance(value, kind):
        raise BadRequest(f"{field}: {'is required' if value is None else 'has the wrong type'}")
    return value


def check_pairs(messages: Iterable[Said]) -> None:
    """Every call needs its result before any other message, and every result its call: all providers insist on this.

    Raises BadRequest that names the id.
    """
    open_calls: list[str] = []
    for said in messages:
        if said.role == "tool":
            if said.call_id not in open_calls:
                raise BadRequest(f"the result for {said.call_id!r} does not belong to an earlier call")
            open_calls.remove(said.call_id)
        elif open_calls and not said.calls:
            break
        open_calls += [call.call_id for call in said.calls]
    if open_calls:
        raise BadRequest(f"the call {open_calls[0]!r} has no result")


def text_of(content: object) -> str:
    """The text of a content: a string, or a list of blocks, of which only those with `text` count."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [block.get("text") if isinstance(block, dict) else block for block in content]
    return "\n".join(text for text in texts if isinstance(text, str))


def blocks_of(content: object) -> list[JsonMapping]:
    """A content as blocks; a string is one block of text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
