"""A forced tool for models that call tools unreliably: asks for its arguments as JSON, which stands for the call.

A tool that is called once is asked for as the object that it takes, any other as a list of calls. `bodies.py` calls
`json_form` for the request to a model with `profile = "local"`; `answers.py` calls `calls_described` for the calls in
its text. Pure. With both a grammar and tools in a request, small models call nothing, so the tool is omitted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from switchboard.core.replies import call_of
from switchboard.core.text.lenient import clean, items, mapping
from switchboard.core.text.model_json import after_thinking
from switchboard.domain.json_values import JsonObject
from switchboard.domain.llm import OfferedTool, Request, ToolCall

_MOST_JSON: Final = 100_000
"""Characters of a text that are searched for an answer."""
_MOST_TRIES: Final = 50
_UNGRAMMATICAL: Final = frozenset({"minLength", "maxLength", "pattern", "format"})
_NAMED: Final = frozenset({"properties", "$defs", "definitions"})
_LISTED: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_ONE: Final = frozenset({"items", "additionalProperties"})
_ONE_CALL: Final = "\nAnswer with one JSON object and nothing else."
_REMINDER: Final = """
In this session there is no tool to call: instead of calling `{tool}`, write its arguments. Answer with one JSON object
and nothing else: `thought`, one sentence; then `calls`, a list with one object per call that you would make. If you
would make none, `calls` is empty.
"""


def for_grammars(schema: Mapping[str, object]) -> JsonObject:
    """A schema without rules that some servers cannot turn into a grammar, for which they refuse the whole request.

    Many versions of llama.cpp permit at most 2,000 characters in a string, and few patterns and formats. The output is
    checked against the full schema anyway.
    """
    return {name: _inner(name, value) for name, value in schema.items() if name not in _UNGRAMMATICAL}


def _inner(name: str, value: object) -> object:
    """The value under this name in a schema, if it consists of schemas."""
    if name in _NAMED and isinstance(value, Mapping):
        return {key: _schema(one) for key, one in value.items()}
    if name in _LISTED and isinstance(value, list | tuple):
        return [_schema(one) for one in value]
    return _schema(value) if name in _ONE else value


def _schema(value: object) -> object:
    return for_grammars(value) if isinstance(value, Mapping) else value


def forced_tool(request: Request) -> OfferedTool | None:
    """The tool that must be called."""
    return next((tool for tool in request.tools if tool.name == request.force), None)


def json_form(request: Request, tool: OfferedTool) -> tuple[Request, JsonObject]:
    """The request for calls of `tool` as JSON, and the schema of the answer.

    In a list of calls the thought comes first, because the beginning of a model's output shapes the rest.
    """
    *earlier, last = request.messages
    reminder = _ONE_CALL if tool.once else _REMINDER.format(tool=tool.name)
    asked = replace(last, text=last.text + reminder)
    schema = for_grammars(tool.parameters) if tool.once else _list_of_calls(tool)
    return replace(request, messages=(*earlier, asked), tools=(), force=""), schema


def _list_of_calls(tool: OfferedTool) -> JsonObject:
    return {
        "type": "object",
        "properties": {
            "thought": {"type": "string"},
            "calls": {"type": "array", "maxItems": 10, "items": for_grammars(tool.parameters)},
        },
        "required": ["thought", "calls"],
        "additionalProperties": False,
    }


def calls_described(text: str, request: Request) -> tuple[ToolCall, ...]:
    """The calls described in a text as JSON: `{"calls": [arguments, …]}`, one object of arguments, a list, or a call.

    Thinking, fences and prose around it are ignored. Nothing is repaired: broken JSON is not an answer.
    """
    tool = forced_tool(request)
    if tool is None:
        return ()
    value = _json_in(after_thinking(text[:_MOST_JSON]) or "")
    listed = mapping(value).get("calls", value)
    found = items(listed if isinstance(listed, list) else [listed])
    return tuple(call for one in found if (call := _call_of_value(dict(one), tool)) is not None)


def _call_of_value(value: dict[str, object], tool: OfferedTool) -> ToolCall | None:
    if value and all(name in value for name in tool.parameters.get("required", ())):
        return ToolCall(tool.name, value)
    call = call_of(value)
    return call if call is not None and call.name == tool.name else None


def _json_in(text: str) -> object:
    """The first JSON object or list in a text."""
    for start in islice(re.finditer(r"[{\[]", text), _MOST_TRIES):
        try:
            value, _ = json.JSONDecoder().raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        return clean(value)
    return None
