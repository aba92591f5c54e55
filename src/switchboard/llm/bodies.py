"""A `Request` in the format of each provider: chat completions, Responses, Anthropic's messages. Pure.

`openai_api.py` and `anthropic_api.py` send the bodies. Next: `answers.py`, which reads the responses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from switchboard.domain.json_values import JsonObject
from switchboard.domain.llm import ChatMessage, Request, ToolCall
from switchboard.llm.json_form import forced_tool, json_form
from switchboard.llm.spec import ModelSpec

Body = JsonObject


def chat(request: Request, spec: ModelSpec) -> Body:
    """For chat completions. One system message: the templates of small models break on more."""
    return {
        "model": spec.model,
        "messages": _chat_messages(request),
        "max_completion_tokens": request.max_tokens,
        **_chat_tools(request),
    }


def local_chat(request: Request, spec: ModelSpec) -> Body:
    """The same for a self-hosted server; a forced tool is asked for as JSON."""
    body: Body = {"model": spec.model, "max_tokens": request.max_tokens, "temperature": 0}
    tool = forced_tool(request)
    if tool is None:
        return body | {"messages": _chat_messages(request), **_chat_tools(request)}
    asked, schema = json_form(request, tool)
    form = {"type": "json_schema", "json_schema": {"name": "calls", "schema": schema}}
    return body | {"messages": _chat_messages(asked), "response_format": form}


def _chat_messages(request: Request) -> list[Body]:
    system = [{"role": "system", "content": request.system}] if request.system else []
    return system + [body for message in request.messages for body in _chat_message(message)]


def _chat_message(message: ChatMessage) -> Iterator[Body]:
    for result in message.results:
        yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text}
    calls = [
        {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": _arguments(call)}}
        for call in message.calls
    ]
    if calls:
        yield {"role": "assistant", "content": message.text or None, "tool_calls": calls}
    elif message.text:
        yield {"role": message.role, "content": message.text}


def _chat_tools(request: Request) -> Body:
    if not request.tools:
        return {}
    tools = [
        {
            "type": "function",
            "function": {"name": one.name, "description": one.description, "parameters": dict(one.parameters)},
        }
        for one in request.tools
    ]
    choice = {"type": "function", "function": {"name": request.force}} if request.force else "auto"
    return {"tools": tools, "tool_choice": choice}


def responses(request: Request, spec: ModelSpec) -> Body:
    """For the Responses API; nothing is stored there."""
    body: Body = {
        "model": spec.model,
        "instructions": request.system or None,
        "input": [item for message in request.messages for item in _response_items(message, spec)],
        "max_output_tokens": request.max_tokens,
        "store": False,
    }
    tools = [
        {
            "type": "function",
            "strict": False,
            "name": one.name,
            "description": one.description,
            "parameters": dict(one.parameters),
        }
        for one in request.tools
    ]
    choice = {"type": "function", "name": request.force} if request.force else "auto"
    return body | ({"tools": tools, "tool_choice": choice} if tools else {})


def _response_items(message: ChatMessage, spec: ModelSpec) -> Iterator[Mapping[str, object]]:
    if message.blocks and message.origin == spec.origin:
        # Nothing is stored there, so reasoning without its encrypted content cannot be found again.
        yield from (one for one in message.blocks if one.get("type") != "reasoning" or one.get("encrypted_content"))
        return
    for result in message.results:
        yield {"type": "function_call_output", "call_id": result.call_id, "output": result.text}
    if message.text:
        yield {"role": message.role, "content": message.text}
    for call in message.calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": _arguments(call)}


def messages(request: Request, spec: ModelSpec) -> Body:
    """For Anthropic's messages."""
    body: Body = {
        "model": spec.model,
        "messages": [{"role": one.role, "content": _content(one, spec)} for one in request.messages],
        "max_tokens": request.max_tokens,
        **({"system": request.system} if request.system else {}),
    }
    tools = [
        {"name": one.name, "description": one.description, "input_schema": dict(one.parameters)}
        for one in request.tools
    ]
    choice = {"type": "tool", "name": request.force} if request.force else {"type": "auto"}
    return body | ({"tools": tools, "tool_choice": choice} if tools else {})


def _content(message: ChatMessage, spec: ModelSpec) -> object:
    if message.blocks and message.origin == spec.origin:
        return list(message.blocks)
    if not message.results and not message.calls:
        return message.text
    results = [
        {"type": "tool_result", "tool_use_id": one.call_id, "content": one.text, "is_error": not one.ok}
        for one in message.results
    ]
    said = [{"type": "text", "text": message.text}] if message.text else []
    calls = [
        {"type": "tool_use", "id": one.id, "name": one.name, "input": dict(one.arguments)} for one in message.calls
    ]
    return [*results, *said, *calls]


def _arguments(call: ToolCall) -> str:
    return json.dumps(dict(call.arguments), ensure_ascii=False)
