"""OpenAI chat completions, as OpenAI, LM Studio, Ollama, llama.cpp and vLLM speak it.

Called by `endpoints.py` through `dialect.Speaker`. Thinking travels as `reasoning_content`, as local servers send it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from switchboard.domain.json_values import JsonMapping
from switchboard.testing.scripted_llm.answer import CREATED, Answer, Called, Ended, Json, event, pieces, slices
from switchboard.testing.scripted_llm.dialect import JsonSpeaker, text_of, wanted
from switchboard.testing.scripted_llm.habits import name_of, pieces_of
from switchboard.testing.scripted_llm.request import Choice, Conversation, Dialect, Role, Said, Tool, ToolCall

DONE: Final = b"data: [DONE]\n\n"
_FINISH: Final[Mapping[Ended, str]] = {
    "stop": "stop",
    "tool": "tool_calls",
    "length": "length",
    "filter": "content_filter",
}
_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_TYPES: Final = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
CHOICES: Final[Mapping[object, Choice]] = {"none": "none", "required": "required"}


class OpenAi(JsonSpeaker):
    """What both dialects of OpenAI have in common."""

    def error(self, status: int, message: str) -> Json:
        """`{"error": {"message", "type", "param", "code"}}`."""
        return {"error": {"message": message, "type": _TYPES.get(status, "server_error"), "param": None, "code": None}}

    def headers(self, number: int) -> Mapping[str, str]:
        """`x-request-id`."""
        return {"x-request-id": f"req_{number}"}


class OpenAiChat(OpenAi):
    """`POST /v1/chat/completions`."""

    name: Dialect = "openai-chat"

    def read(self, body: JsonMapping, _path: str) -> Conversation:
        """Messages, tools of type `function`, the choice of tool."""
        choice = body.get("tool_choice")
        forced = choice["function"]["name"] if isinstance(choice, dict) and "function" in choice else None
        return Conversation(
            model=wanted(body, "model", str),
            messages=tuple(_message_of(message) for message in wanted(body, "messages", list)),
            tools=tuple(_tool(tool["function"]) for tool in body.get("tools") or () if "function" in tool),
            tool_choice="required" if forced else CHOICES.get(choice if isinstance(choice, str) else "", "auto"),
            forced=forced,
            streamed=bool(body.get("stream")),
        )

    def whole(self, answer: Answer) -> Json:
        """`chat.completion`."""
        message: Json = {"role": "assistant", "content": answer.text or None}
        if answer.thinking:
            message["reasoning_content"] = answer.thinking
        if answer.calls:
            calls = [
                _call(answer, call, {"name": _name(answer, call), "arguments": call.text}) for call in answer.calls
            ]
            legacy = "function_call" in answer.habits
            message |= {"function_call": calls[0]["function"]} if legacy else {"tool_calls": calls}
        choice = {"index": 0, "message": message, "finish_reason": _FINISH[answer.ended], "logprobs": None}
        figures = {} if answer.without_usage else {"usage": _usage(answer)}
        return {**_head(answer), "object": "chat.completion", "choices": [choice], **figures}

    def stream(self, answer: Answer) -> Iterator[bytes]:
        """`chat.completion.chunk`s. Usage comes last, and only if it was requested, as with OpenAI."""
        for delta in _deltas(answer):
            yield _chunk(answer, [{"index": 0, "delta": delta, "finish_reason": None}])
        yield _chunk(answer, [{"index": 0, "delta": {}, "finish_reason": _FINISH[answer.ended]}])
        options = answer.request.body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage") and not answer.without_usage:
            yield _chunk(answer, [], usage=_usage(answer))
        yield DONE

    def error_event(self, _answer: Answer, status: int, message: str, /) -> bytes:
        """An error, as the data of an event."""
        return event(self.error(status, message))


def _message_of(message: JsonMapping) -> Said:
    calls = tuple(
        ToolCall(call["function"]["name"], call["function"]["arguments"], call["id"])
        for call in message.get("tool_calls") or ()
    )
    role = _ROLES.get(str(message.get("role")), "user")
    return Said(role, text_of(message.get("content")), calls, message.get("tool_call_id", ""))


def _tool(function: JsonMapping) -> Tool:
    return Tool(function["name"], function.get("description") or "", function.get("parameters") or {})


def _head(answer: Answer) -> Json:
    return {"id": f"chatcmpl-{answer.number}", "created": CREATED, "model": answer.model, "system_fingerprint": None}


def _name(answer: Answer, call: Called) -> str:
    return name_of(call.name, answer.habits)


def _call(answer: Answer, call: Called, function: Json) -> Json:
    without = answer.without_ids or "no_index" in answer.habits
    key = {} if without else {"id": f"call_{answer.number}_{call.number}"}
    return {**key, "type": "function", "function": function}


def _deltas(answer: Answer) -> Iterator[Json]:
    yield {"role": "assistant", "content": ""}
    for piece in pieces(answer.thinking):
        yield {"reasoning_content": piece}
    for piece in pieces(answer.text):
        yield {"content": piece}
    for index, call in enumerate(answer.calls):
        for n, function in enumerate(pieces_of(_name(answer, call), slices(call.text), answer.habits)):
            yield _piece(answer, call, index, function, first=n == 0)


def _piece(answer: Answer, call: Called, index: int, function: Json, *, first: bool) -> Json:
    if "function_call" in answer.habits:
        return {"function_call": function}
    place = {} if "no_index" in answer.habits else {"index": 0 if "one_index" in answer.habits else index}
    return {"tool_calls": [{**place, **(_call(answer, call, function) if first else {"function": function})}]}


def _chunk(answer: Answer, choices: list[Json], **more: object) -> bytes:
    return event({**_head(answer), "object": "chat.completion.chunk", "choices": choices, **more})


def _usage(answer: Answer) -> Json:
    usage = answer.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.written_tokens},
    }
