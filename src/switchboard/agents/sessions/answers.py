"""The answer of a provider as a `Transcript`, in its three dialects. Pure.

`api.py` calls one of `READERS` with the JSON of a response; a `Transcript` leaves, or the `SessionFailure` that the
answer amounts to. Next: `journey/pipeline.py`.

A forced call is an answer and nothing more: it leaves without a result, and the pipeline carries it out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from switchboard.agents.sessions.port import ApiKind, SessionFailure
from switchboard.agents.sessions.web import status_failure
from switchboard.core.pipeline.prompt import ROUTE_TOOL
from switchboard.core.pipeline.transcript import (
    ToolCall,
    Transcript,
    Usage,
    block_text,
    call_of,
    clean,
    count,
    items,
    json_value,
    mapping,
    string,
)
from switchboard.core.pipeline.verdict import is_ours

Document = Mapping[str, object]

_CUT: Final = frozenset({"length", "max_tokens", "max_output_tokens"})
_FILTERED: Final = frozenset({"content_filter", "refusal", "safety"})
_TOO_LONG: Final = frozenset({"model_context_window_exceeded"})
_THINKING: Final = re.compile(r"<(think|thinking|thought)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_MOST_JSON: Final = 100_000
"""Characters of a text in which an answer is looked for."""
_MOST_TRIES: Final = 50


def read_answer(kind: ApiKind, body: str, *, local: bool = False) -> Transcript:
    """What a response says. With `local` an answer written as JSON counts as the call that it describes.

    Raises SessionFailure: `garbage` for what is no answer or was cut off, `refused`, `context_too_long`, or what the
    error in the body says.
    """
    document = json_value(body)
    if not isinstance(document, Mapping):
        raise SessionFailure("garbage", f"the answer is no object of JSON: {clean(body[:100])!r}")
    if document.get("error"):
        raise _told_in_the_body(document, body)
    transcript, refusal = READERS[kind](document)
    if local and not transcript.calls:
        transcript = replace(transcript, calls=described(transcript.text))
    _check_end(transcript, refusal)
    return replace(transcript, calls=tuple(map(_untried, transcript.calls)))


def _told_in_the_body(document: Document, body: str) -> SessionFailure:
    """An error with status 200: gateways do that, and the Responses API for what fails while it answers."""
    error = mapping(document.get("error"))
    code = count(error.get("code")) or {"rate_limit_exceeded": 429}.get(string(error.get("code")), 500)
    return status_failure(code, {}, body)


def _check_end(transcript: Transcript, refusal: str) -> None:
    if transcript.ended in _TOO_LONG:
        raise SessionFailure("context_too_long", "the context window is exceeded", transcript=transcript)
    if transcript.ended in _CUT:
        # Even where a call is whole: those that would have come after it are lost, and parts of the message with them.
        # What it was asked made it talk so long, and strangers write that: no reason to mistrust it for all others.
        why = f"the answer was cut off ({transcript.ended})"
        raise SessionFailure("garbage", why, alive=True, transcript=transcript)
    if transcript.ended in _FILTERED or (refusal and not transcript.calls):
        raise SessionFailure("refused", refusal[:500] or f"ended by {transcript.ended}", transcript=transcript)


def _untried(call: ToolCall) -> ToolCall:
    """Whatever the provider says of its state: nobody has carried it out."""
    return replace(call, ok=None, result=None)


def _chat(document: Document) -> tuple[Transcript, str]:
    choice = next(iter(items(document.get("choices"))), None)
    if choice is None:
        raise SessionFailure("garbage", "the answer has no choices")
    message, usage = mapping(choice.get("message")), mapping(document.get("usage"))
    transcript = Transcript(
        text=block_text(message.get("content")),
        calls=_calls(items(message.get("tool_calls"))),
        usage=Usage(count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))),
        model=string(document.get("model")) or None,
        ended=string(choice.get("finish_reason")) or None,
    )
    return transcript, string(message.get("refusal"))


def _responses(document: Document) -> tuple[Transcript, str]:
    if not isinstance(document.get("output"), list):
        raise SessionFailure("garbage", "the answer has no output")
    output, usage = list(items(document.get("output"))), mapping(document.get("usage"))
    blocks = [block for item in output if item.get("type") == "message" for block in items(item.get("content"))]
    why = string(mapping(document.get("incomplete_details")).get("reason"))
    transcript = Transcript(
        text="".join(string(block.get("text")) for block in blocks),
        calls=_calls(item for item in output if item.get("type") == "function_call"),
        usage=Usage(count(usage.get("input_tokens")), count(usage.get("output_tokens"))),
        model=string(document.get("model")) or None,
        ended=why or string(document.get("status")) or None,
    )
    return transcript, "".join(string(block.get("refusal")) for block in blocks)


def _anthropic(document: Document) -> tuple[Transcript, str]:
    if not isinstance(document.get("content"), list):
        raise SessionFailure("garbage", "the answer has no content")
    blocks, usage = list(items(document.get("content"))), mapping(document.get("usage"))
    cached = count(usage.get("cache_read_input_tokens")) + count(usage.get("cache_creation_input_tokens"))
    transcript = Transcript(
        text="".join(string(block.get("text")) for block in blocks if block.get("type") == "text"),
        calls=_calls(block for block in blocks if block.get("type") == "tool_use"),
        usage=Usage(count(usage.get("input_tokens")) + cached, count(usage.get("output_tokens"))),
        model=string(document.get("model")) or None,
        ended=string(document.get("stop_reason")) or None,
    )
    return transcript, ""


def _calls(raw: Iterable[Document]) -> tuple[ToolCall, ...]:
    return tuple(call for one in raw if (call := call_of(one)) is not None)


READERS: Final[Mapping[ApiKind, Callable[[Document], tuple[Transcript, str]]]] = {
    "openai": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
}


def described(text: str) -> tuple[ToolCall, ...]:
    """The calls that a text describes in JSON: `{"routes": [{"butler": …}, …]}`, one route, a list, or a call.

    Thinking, fences and prose around it are passed over. Nothing is repaired: what is broken is no answer.
    """
    value = _json_in(_THINKING.sub("", text[:_MOST_JSON]))
    listed = mapping(value).get("routes", value)
    found = items(listed if isinstance(listed, list) else [listed])
    return tuple(call for one in found if (call := _described(one)) is not None)


def _described(value: Document) -> ToolCall | None:
    if "butler" in value:
        return ToolCall(ROUTE_TOOL, value)
    call = call_of(value)
    return call if call is not None and is_ours(call) else None


def _json_in(text: str) -> object:
    """The first JSON object or list in a text."""
    for start in islice(re.finditer(r"[{\[]", text), _MOST_TRIES):
        try:
            value, _ = json.JSONDecoder().raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        return clean(value)
    return None
