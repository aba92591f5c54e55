"""The final answer: a reply with ids, full tool names and usage; and how text is cut into pieces and events.

`endpoints.py` makes an `Answer` from a reply and a request; the dialects put it into their own format.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.testing.scripted_llm.faults import Habit, SpeechInSilence, WithoutIds
from switchboard.testing.scripted_llm.habits import habits_of
from switchboard.testing.scripted_llm.request import Request
from switchboard.testing.scripted_llm.script import Call, Reply, Usage

Json = JsonObject
Ended = Literal["stop", "tool", "length", "filter"]

CREATED: Final = 1_700_000_000
"""The creation time of everything: always the same, so that recordings do not differ."""
_WORDS: Final = re.compile(r"\S+\s*|\s+")
_PIECES: Final = 200
_SLICE: Final = 12
_CHARACTERS_PER_TOKEN: Final = 4


class Called(Struct, frozen=True):
    """A tool call with its number. `text`: the arguments for dialects that want text, `value`: as an object."""

    number: int
    name: str
    text: str
    value: Any


class Answer(Struct, frozen=True):
    """All that a dialect needs. `number` is that of the request; ids are derived from it, never random."""

    number: int
    model: str
    thinking: str
    text: str
    calls: tuple[Called, ...]
    usage: Usage
    ended: Ended
    request: Request
    without_ids: bool = False
    without_usage: bool = False
    habits: frozenset[Habit] = frozenset()
    invented: str = ""
    """What nobody said, at the end of a transcript."""


def answer(reply: Reply, request: Request) -> Answer:
    """The answer that the reply means for this request."""
    calls = tuple(_numbered_call(n, call, request) for n, call in enumerate(reply.calls, 1))
    usage = reply.usage or _estimate(reply, request)
    ended: Ended = reply.finish or ("tool" if calls else "stop")
    without_ids = isinstance(reply.fault, WithoutIds)
    return Answer(
        request.number,
        request.model,
        reply.thinking,
        reply.text,
        calls,
        usage,
        ended,
        request,
        without_ids,
        habits=habits_of(reply.fault),
        invented=reply.fault.text if isinstance(reply.fault, SpeechInSilence) else "",
    )


def _numbered_call(number: int, call: Call, request: Request) -> Called:
    name = call.name if call.exact else request.offered(call.name) or call.name
    if isinstance(call.arguments, str):
        return Called(number, name, call.arguments, _parse_arguments(call.arguments))
    return Called(number, name, msgspec.json.encode(call.arguments).decode(), dict(call.arguments))


def _parse_arguments(text: str) -> Any:
    """The parsed arguments. Broken JSON stays text: where an object belongs, that is the intended fault."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _estimate(reply: Reply, request: Request) -> Usage:
    said = reply.thinking + reply.text + "".join(f"{call.name}{call.arguments}" for call in reply.calls)
    asked = msgspec.json.encode(request.body)
    return Usage(1 + len(asked) // _CHARACTERS_PER_TOKEN, 1 + len(said) // _CHARACTERS_PER_TOKEN)


def seal(number: int, text: str) -> str:
    """A provider's signature or encryption of thinking: it shows whether the thinking comes back unchanged."""
    return f"{number}." + hashlib.sha256(f"{number} {text}".encode()).hexdigest()


def pieces(text: str) -> list[str]:
    """A text in the pieces of a stream: word by word, or about 200 pieces of a long one. Joined, they are the text."""
    words = _WORDS.findall(text)
    step = 1 + len(words) // _PIECES
    return ["".join(words[at : at + step]) for at in range(0, len(words), step)]


def slices(text: str) -> list[str]:
    """Arguments in the slices of a stream: cut anywhere, long ones into about 200 slices."""
    size = max(_SLICE, len(text) // _PIECES)
    return [text[at : at + size] for at in range(0, len(text), size)]


def event(data: JsonMapping, name: str = "") -> bytes:
    """A server-sent event."""
    head = f"event: {name}\n" if name else ""
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"
