"""Anthropic Messages, which claude-code speaks; local servers offer it as well.

Called by `endpoints.py` through `dialect.Speaker`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from switchboard.domain.json_values import JsonMapping
from switchboard.testing.scripted_llm.answer import Answer, Ended, Json, event, pieces, seal, slices
from switchboard.testing.scripted_llm.dialect import JsonSpeaker, blocks_of, text_of, wanted
from switchboard.testing.scripted_llm.request import Choice, Conversation, Dialect, Role, Said, Tool, ToolCall

_STOP: Final[Mapping[Ended, str]] = {
    "stop": "end_turn",
    "tool": "tool_use",
    "length": "max_tokens",
    "filter": "refusal",
}
_ROLES: Final[Mapping[str, Role]] = {"assistant": "assistant", "system": "system"}
_CHOICES: Final[Mapping[str, Choice]] = {"any": "required", "tool": "required", "none": "none"}
_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_BEGUN: Final[Mapping[str, Json]] = {
    "thinking": {"thinking": "", "signature": ""},
    "text": {"text": ""},
    "tool_use": {"input": {}},
}
"""Blocks are announced without their content."""


class Anthropic(JsonSpeaker):
    """`POST /v1/messages`."""

    name: Dialect = "anthropic"

    def read(self, body: JsonMapping, _path: str) -> Conversation:
        """System text and messages; every tool result is a separate message."""
        wanted(body, "max_tokens", int)
        choice = body.get("tool_choice") or {}
        messages = [said for message in wanted(body, "messages", list) for said in _split_message(message)]
        system = text_of(body.get("system"))
        return Conversation(
            model=wanted(body, "model", str),
            messages=tuple([Said("system", system), *messages] if system else messages),
            tools=tuple(_tool(tool) for tool in body.get("tools") or ()),
            tool_choice=_CHOICES.get(str(choice.get("type")), "auto"),
            forced=choice.get("name"),
            streamed=bool(body.get("stream")),
        )

    def whole(self, answer: Answer) -> Json:
        """`message`."""
        return _message(answer) | {"content": list(_content(answer)), "stop_reason": _STOP[answer.ended]}

    def stream(self, answer: Answer) -> Iterator[bytes]:
        """From `message_start` to `message_stop`."""
        usage = _usage(answer)
        yield _event("message_start", message=_message(answer) | {"usage": usage | {"output_tokens": 1}})
        for index, block in enumerate(_content(answer)):
            yield from _block(index, block, answer)
        delta = {"stop_reason": _STOP[answer.ended], "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage=usage)
        yield _event("message_stop")

    def error(self, status: int, message: str) -> Json:
        """`{"type": "error", "error": {"type", "message"}}`."""
        return {"type": "error", "error": {"type": _TYPES.get(status, "api_error"), "message": message}}

    def error_event(self, _answer: Answer, status: int, message: str, /) -> bytes:
        """The event `error`."""
        return event(self.error(status, message), "error")

    def headers(self, number: int) -> Mapping[str, str]:
        """`request-id`."""
        return {"request-id": f"req_{number}"}


def _split_message(message: JsonMapping) -> Iterator[Said]:
    """The content of one message: its tool results, then its text and calls."""
    blocks = blocks_of(message.get("content"))
    for block in blocks:
        if block.get("type") == "tool_result":
            yield Said("tool", text_of(block.get("content")), call_id=block.get("tool_use_id", ""))
    calls = tuple(ToolCall(b["name"], b["input"], b["id"]) for b in blocks if b.get("type") == "tool_use")
    text = text_of(message.get("content"))
    if text or calls:
        yield Said(_ROLES.get(str(message.get("role")), "user"), text, calls)


def _tool(tool: JsonMapping) -> Tool:
    return Tool(tool["name"], tool.get("description") or "", tool.get("input_schema") or {})


def _message(answer: Answer) -> Json:
    return {
        "id": f"msg_{answer.number}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(answer),
    }


def _usage(answer: Answer) -> Json:
    """The usage; here cached tokens are counted separately from the others."""
    usage = answer.usage
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens - usage.written_tokens,
        "output_tokens": usage.output_tokens,
        "cache_creation_input_tokens": usage.written_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
    }


def _content(answer: Answer) -> Iterator[Json]:
    if answer.thinking:
        yield {"type": "thinking", "thinking": answer.thinking, "signature": seal(answer.number, answer.thinking)}
    if answer.text:
        yield {"type": "text", "text": answer.text}
    for call in answer.calls:
        key = f"toolu_{answer.number}_{call.number}"
        yield {"type": "tool_use", "id": key, "name": call.name, "input": call.value}


def _block(index: int, block: Json, answer: Answer) -> Iterator[bytes]:
    yield _event("content_block_start", index=index, content_block={**block, **_BEGUN[block["type"]]})
    for delta in _deltas(block, answer):
        yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _deltas(block: Json, answer: Answer) -> Iterator[Json]:
    if block["type"] == "text":
        yield from ({"type": "text_delta", "text": piece} for piece in pieces(block["text"]))
    elif block["type"] == "thinking":
        yield from ({"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"]))
        yield {"type": "signature_delta", "signature": block["signature"]}
    else:
        number = int(block["id"].rpartition("_")[2])
        text = answer.calls[number - 1].text
        yield from ({"type": "input_json_delta", "partial_json": piece} for piece in slices(text))


def _event(kind: str, **data: object) -> bytes:
    return event({"type": kind, **data}, kind)
