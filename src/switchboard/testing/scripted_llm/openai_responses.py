"""OpenAI Responses, which codex speaks: items instead of messages, typed events, tools in namespaces.

Called by `endpoints.py` through `dialect.Speaker`. A tool in a namespace is named `namespace::name` everywhere except
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final

from switchboard.domain.json_values import JsonMapping
from switchboard.testing.scripted_llm.answer import CREATED, Answer, Called, Ended, Json, event, pieces, seal, slices
from switchboard.testing.scripted_llm.dialect import BadRequest, text_of, wanted
from switchboard.testing.scripted_llm.openai_chat import CHOICES, OpenAi
from switchboard.testing.scripted_llm.request import Conversation, Dialect, Role, Said, Tool, ToolCall

_WHY: Final[Mapping[Ended, str]] = {"length": "max_output_tokens", "filter": "content_filter"}
_ROLES: Final[Mapping[str, Role]] = {"system": "system", "developer": "system", "assistant": "assistant"}
_Say = Callable[..., bytes]


class OpenAiResponses(OpenAi):
    """`POST /v1/responses`."""

    name: Dialect = "openai-responses"

    def read(self, body: JsonMapping, _path: str) -> Conversation:
        """Instructions and items; tools with and without namespaces."""
        choice = body.get("tool_choice")
        forced = choice.get("name") if isinstance(choice, dict) else None
        return Conversation(
            model=wanted(body, "model", str),
            messages=tuple(_messages(body)),
            tools=tuple(_tools(body.get("tools") or ())),
            tool_choice="required" if forced else CHOICES.get(choice if isinstance(choice, str) else "", "auto"),
            forced=forced,
            streamed=bool(body.get("stream")),
        )

    def whole(self, answer: Answer) -> Json:
        """`response`."""
        return _response(answer, list(_items(answer)))

    def stream(self, answer: Answer) -> Iterator[bytes]:
        """From `response.created` to `response.completed` (or `.incomplete`)."""
        numbers = count()

        def say(kind: str, **data: object) -> bytes:
            return event({"type": kind, "sequence_number": next(numbers), **data}, kind)

        started = _response(answer, []) | {"status": "in_progress", "usage": None, "incomplete_details": None}
        yield say("response.created", response=started)
        yield say("response.in_progress", response=started)
        items = list(_items(answer))
        for index, item in enumerate(items):
            yield say("response.output_item.added", output_index=index, item=_without_content(item))
            yield from _PARTS[item["type"]](item, index, say)
            yield say("response.output_item.done", output_index=index, item=item)
        response = _response(answer, items)
        yield say(f"response.{response['status']}", response=response)

    def error_event(self, answer: Answer, status: int, message: str, /) -> bytes:
        """`response.failed` of the response that had begun."""
        code = "rate_limit_exceeded" if status == 429 else "server_error"
        failed = _response(answer, []) | {"status": "failed", "error": {"code": code, "message": message}}
        number = 1 + sum(1 for _ in self.stream(answer))
        data = {"type": "response.failed", "sequence_number": number, "response": failed}
        return event(data, "response.failed")


def _messages(body: JsonMapping) -> Iterator[Said]:
    if isinstance(body.get("instructions"), str):
        yield Said("system", body["instructions"])
    given = body.get("input")
    if isinstance(given, str):
        yield Said("user", given)
    elif isinstance(given, list):
        yield from (said for item in given if (said := _message_of(item)))
    else:
        raise BadRequest("input: is required")


def _message_of(item: JsonMapping) -> Said | None:
    """An item as a message; None for other items (reasoning, references)."""
    kind = str(item.get("type", "message"))
    if kind == "function_call":
        return Said("assistant", "", (ToolCall(_joined(item), item["arguments"], item["call_id"]),))
    if kind.endswith("_call_output"):
        return Said("tool", text_of(item.get("output")), call_id=item.get("call_id", ""))
    if kind == "message":
        return Said(_ROLES.get(str(item.get("role")), "user"), text_of(item.get("content")))
    return None


def _joined(item: JsonMapping) -> str:
    return f"{item['namespace']}::{item['name']}" if item.get("namespace") else str(item["name"])


def _tools(tools: Any) -> Iterator[Tool]:
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from (_tool(inner | {"namespace": tool["name"]}) for inner in tool.get("tools", ()))
        elif "name" in tool:
            yield _tool(tool)


def _tool(tool: JsonMapping) -> Tool:
    return Tool(_joined(tool), tool.get("description") or "", tool.get("parameters") or {})


def _items(answer: Answer) -> Iterator[Json]:
    number = answer.number
    if answer.thinking:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        sealed = {"encrypted_content": seal(number, answer.thinking)} if _is_sealed(answer) else {}
        yield {"type": "reasoning", "id": f"rs_{number}", "summary": summary, **sealed}
    if answer.text or not answer.calls:
        content = [{"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}]
        head = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
        yield head | {"content": content}
    yield from (_call(answer, call) for call in answer.calls)


def _is_sealed(answer: Answer) -> bool:
    return "reasoning.encrypted_content" in (answer.request.body.get("include") or ())


def _call(answer: Answer, call: Called) -> Json:
    namespace, _, name = call.name.rpartition("::")
    key = f"{answer.number}_{call.number}"
    head = {"type": "function_call", "id": f"fc_{key}", "call_id": f"call_{key}", "status": "completed"}
    return head | {"name": name, "arguments": call.text} | ({"namespace": namespace} if namespace else {})


def _response(answer: Answer, items: list[Json]) -> Json:
    usage, why = answer.usage, _WHY.get(answer.ended)
    return {
        "id": f"resp_{answer.number}",
        "object": "response",
        "created_at": CREATED,
        "status": "incomplete" if why else "completed",
        "model": answer.model,
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": answer.request.body.get("tool_choice") or "auto",
        "tools": answer.request.body.get("tools") or [],
        "error": None,
        "incomplete_details": {"reason": why} if why else None,
        "instructions": None,
        "metadata": {},
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.written_tokens},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.input_tokens + usage.output_tokens,
        },
    }


def _without_content(item: Json) -> Json:
    """An item as it is announced: without its content."""
    emptied: Json = {"message": {"content": []}, "function_call": {"arguments": ""}, "reasoning": {"summary": []}}
    return {**item, **emptied[item["type"]], **({"status": "in_progress"} if "status" in item else {})}


def _reasoning(item: Json, index: int, say: _Say) -> Iterator[bytes]:
    at = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    [part] = item["summary"]
    yield say("response.reasoning_summary_part.added", **at, part=part | {"text": ""})
    for piece in pieces(part["text"]):
        yield say("response.reasoning_summary_text.delta", **at, delta=piece)
    yield say("response.reasoning_summary_text.done", **at, text=part["text"])
    yield say("response.reasoning_summary_part.done", **at, part=part)


def _message(item: Json, index: int, say: _Say) -> Iterator[bytes]:
    at = {"item_id": item["id"], "output_index": index, "content_index": 0}
    [part] = item["content"]
    yield say("response.content_part.added", **at, part=part | {"text": ""})
    for piece in pieces(part["text"]):
        yield say("response.output_text.delta", **at, delta=piece, logprobs=[])
    yield say("response.output_text.done", **at, text=part["text"], logprobs=[])
    yield say("response.content_part.done", **at, part=part)


def _function(item: Json, index: int, say: _Say) -> Iterator[bytes]:
    at = {"item_id": item["id"], "output_index": index}
    for piece in slices(item["arguments"]):
        yield say("response.function_call_arguments.delta", **at, delta=piece)
    yield say("response.function_call_arguments.done", **at, name=item["name"], arguments=item["arguments"])


_PARTS: Final[Mapping[str, Callable[[Json, int, _Say], Iterator[bytes]]]] = {
    "reasoning": _reasoning,
    "message": _message,
    "function_call": _function,
}
