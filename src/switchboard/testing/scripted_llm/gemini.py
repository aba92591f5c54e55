"""Gemini generateContent and streamGenerateContent, which gemini-cli speaks.

Called by `endpoints.py` through `dialect.Speaker`. The path contains the model and whether a stream is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from switchboard.domain.json_values import JsonMapping
from switchboard.testing.scripted_llm.answer import Answer, Ended, Json, event, pieces
from switchboard.testing.scripted_llm.dialect import JsonSpeaker, blocks_of, text_of, wanted
from switchboard.testing.scripted_llm.request import Choice, Conversation, Dialect, Said, Tool, ToolCall

_FINISH: Final[Mapping[Ended, str]] = {"stop": "STOP", "tool": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY"}
_CHOICES: Final[Mapping[str, Choice]] = {"ANY": "required", "NONE": "none"}
_STATUS: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Gemini(JsonSpeaker):
    """`POST /v1beta/models/MODEL:generateContent` and `:streamGenerateContent?alt=sse`."""

    name: Dialect = "gemini"

    def read(self, body: JsonMapping, path: str) -> Conversation:
        """Contents and function declarations."""
        model, _, verb = path.rpartition("/models/")[2].rpartition(":")
        config = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
        allowed = config.get("allowedFunctionNames") or []
        system = text_of((body.get("systemInstruction") or {}).get("parts"))
        messages = [said for content in wanted(body, "contents", list) for said in _split_message(content)]
        return Conversation(
            model=model,
            messages=tuple([Said("system", system), *messages] if system else messages),
            tools=tuple(_tool(one) for tool in body.get("tools") or () for one in _declarations(tool)),
            tool_choice=_CHOICES.get(str(config.get("mode")), "auto"),
            forced=allowed[0] if len(allowed) == 1 else None,
            streamed=verb == "streamGenerateContent",
        )

    def whole(self, answer: Answer) -> Json:
        """`GenerateContentResponse`."""
        return _response(answer, list(_parts(answer, cut=False)), last=True)

    def stream(self, answer: Answer) -> Iterator[bytes]:
        """Responses with one part each; the last one says why it ended."""
        parts = list(_parts(answer, cut=True)) or [{"text": ""}]
        for part in parts[:-1]:
            yield event(_response(answer, [part], last=False))
        yield event(_response(answer, parts[-1:], last=True))

    def error(self, status: int, message: str) -> Json:
        """`{"error": {"code", "message", "status"}}`."""
        return {"error": {"code": status, "message": message, "status": _STATUS.get(status, "INTERNAL")}}

    def error_event(self, _answer: Answer, status: int, message: str, /) -> bytes:
        """The same, as the data of an event."""
        return event(self.error(status, message))

    def headers(self, number: int) -> Mapping[str, str]:
        """Gemini has no such header; the number in the record helps people who debug."""
        return {"x-scripted-request": str(number)}


def _split_message(content: JsonMapping) -> Iterator[Said]:
    """The content of one message: its function results, then its text and calls."""
    parts = blocks_of(content.get("parts"))
    yield from (_result(part["functionResponse"]) for part in parts if part.get("functionResponse"))
    calls = tuple(_call(part["functionCall"]) for part in parts if "functionCall" in part)
    text = text_of([part for part in parts if not part.get("thought")])
    if text or calls:
        yield Said("assistant" if content.get("role") == "model" else "user", text, calls)


def _result(result: JsonMapping) -> Said:
    text = msgspec.json.encode(result.get("response")).decode()
    return Said("tool", text, call_id=result.get("id") or result["name"])


def _call(call: JsonMapping) -> ToolCall:
    return ToolCall(call["name"], call.get("args") or {}, call.get("id") or call["name"])


def _declarations(tool: JsonMapping) -> list[JsonMapping]:
    return tool.get("functionDeclarations") or tool.get("function_declarations") or []


def _tool(declared: JsonMapping) -> Tool:
    """A declared tool. The official SDK writes one of the names with underscores; the API accepts both."""
    names = ("parametersJsonSchema", "parameters_json_schema", "parameters")
    schema: JsonMapping = next((declared[name] for name in names if declared.get(name)), {})
    return Tool(declared["name"], declared.get("description") or "", schema)


def _parts(answer: Answer, *, cut: bool) -> Iterator[Json]:
    for text, marks in ((answer.thinking, {"thought": True}), (answer.text, {})):
        yield from ({"text": piece, **marks} for piece in (pieces(text) if cut else [text] if text else []))
    for call in answer.calls:
        key = f"call_{answer.number}_{call.number}"
        yield {"functionCall": {"id": key, "name": call.name, "args": call.value}}


def _response(answer: Answer, parts: list[Json], *, last: bool) -> Json:
    usage = answer.usage
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    return {
        "candidates": [candidate | ({"finishReason": _FINISH[answer.ended]} if last else {})],
        "usageMetadata": {
            "promptTokenCount": usage.input_tokens,
            "candidatesTokenCount": usage.output_tokens,
            "totalTokenCount": usage.input_tokens + usage.output_tokens,
            "cachedContentTokenCount": usage.cached_tokens,
        },
        "modelVersion": answer.model,
        "responseId": f"response_{answer.number}",
    }
